"""Where prompts come from: a text, a file, JSONL, token ids; always UTF-8, always explained."""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from dspark_cli.errors import DsparkError, UsageError

ESCAPES = {"n": "\n", "r": "\r", "t": "\t", "'": "'", '"': '"', "\\": "\\"}


@dataclass(frozen=True, slots=True)
class Prompt:
    """A text to continue, and where it stood."""

    text: str
    source: str  # for messages: "-p", a file, or a file and a line


def read_bytes(path: Path) -> bytes:
    """The bytes of ``path``; raises UsageError where there are none to be had."""
    try:
        return path.read_bytes()
    except FileNotFoundError:
        raise UsageError(f"{path}: no such file") from None
    except IsADirectoryError:
        raise UsageError(f"{path}: is a directory, wanted a file") from None
    except OSError as error:
        raise UsageError(f"{path}: cannot be read: {error.strerror}") from None


def decode_text(raw: bytes, source: str) -> str:
    """UTF-8, or a sentence that names the first bad byte."""
    try:
        return raw.decode()
    except UnicodeDecodeError as error:
        raise DsparkError(
            f"{source}: is not UTF-8: byte {raw[error.start]:#04x} at offset {error.start}"
        ) from None


def from_file(raw: bytes, source: str) -> Prompt:
    """A whole file as one prompt; one newline at its end is the editor's, as in llama.cpp."""
    return Prompt(decode_text(raw, source).removesuffix("\n"), source)


def unescape(text: str) -> str:
    r"""Replace ``\n``, ``\t``, ``\r``, ``\\``, quotes and ``\xHH``, leave all else alone."""

    def replace(match: re.Match[str]) -> str:
        if match["hex"]:
            return chr(int(match["hex"], 16))
        return ESCAPES[match["char"]]

    return re.sub(r"\\(?:x(?P<hex>[0-9a-fA-F]{2})|(?P<char>[nrt'\"\\]))", replace, text)


def read_jsonl(path: Path) -> Iterator[Prompt]:
    """Prompts of a file, one per line.

    A line is ``{"prompt": text}``, ``{"turns": [first, ...]}`` (the first turn is used), a JSON
    string, or, in a file whose first line is none of these, plain text.
    """
    text = decode_text(read_bytes(path), str(path))
    lines = [(number, line) for number, line in enumerate(text.split("\n"), 1) if line.strip()]
    if not lines:
        raise UsageError(f"{path}: holds no prompt")
    is_json = lines[0][1].lstrip().startswith(("{", '"'))
    for number, line in lines:
        source = f"{path}, line {number}"
        yield Prompt(_json_prompt(line, source) if is_json else line, source)


def _json_prompt(line: str, source: str) -> str:
    try:
        value = json.loads(line)
    except json.JSONDecodeError as error:
        raise DsparkError(f"{source}: is no JSON: {error.msg} at column {error.colno}") from None
    match value:
        case str(text) | {"prompt": str(text)} | {"turns": [str(text), *_]}:
            return text
    raise DsparkError(f'{source}: wanted {{"prompt": text}} or {{"turns": [text, ...]}}')


def read_token_ids(path: Path, vocabulary: int) -> list[int]:
    """Token ids from a JSON array or from numbers between spaces, all within the vocabulary."""
    text = decode_text(read_bytes(path), str(path)).strip()
    words = re.split(r"[\s,]+", text.removeprefix("[").removesuffix("]").strip())
    try:
        tokens = [int(word) for word in words if word]
    except ValueError:
        wrong = next(word for word in words if not re.fullmatch(r"[+-]?\d+", word))
        raise DsparkError(f"{path}: wanted token ids, found {wrong!r}") from None
    if not tokens:
        raise UsageError(f"{path}: holds no token ids")
    if outside := [token for token in tokens if not 0 <= token < vocabulary]:
        raise DsparkError(
            f"{path}: token {outside[0]} lies outside the vocabulary of {vocabulary}"
        )
    return tokens
