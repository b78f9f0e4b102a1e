"""Where prompts come from: a text, a file, JSONL, token ids; always UTF-8, always explained."""

import json
import random
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from dspark_cli.errors import DsparkError, UsageError

# What may follow a backslash in -e, as in llama.cpp's string_process_escapes.
ESCAPES = {b"n": b"\n", b"r": b"\r", b"t": b"\t", b"'": b"'", b'"': b'"', b"\\": b"\\"}
ESCAPE = re.compile(rb"\\(?:x(?P<hex>[0-9a-fA-F]{2})|(?P<char>[nrt'\"\\]))")
BYTE_ORDER_MARK = "\ufeff"
LARGEST = 2**28  # bytes; a device such as /dev/zero never ends, and any text does before this
LONGEST_ID = 10  # digits of a 32-bit number


@dataclass(frozen=True, slots=True)
class Prompt:
    """A text to continue, and where it stood."""

    text: str
    source: str  # for messages: "-p", a file, or a file and a line
    category: str | None = None  # what kind of text it asks for, where a file says so


def read_bytes(path: Path) -> bytes:
    """The bytes of ``path``; raises UsageError where there are none to be had."""
    try:
        with path.open("rb") as file:
            return read_to_end(file, str(path))
    except FileNotFoundError:
        raise UsageError(f"{path}: no such file") from None
    except IsADirectoryError:
        raise UsageError(f"{path}: is a directory, wanted a file") from None
    except OSError as error:
        raise UsageError(f"{path}: cannot be read: {error.strerror}") from None


def read_to_end(file: BinaryIO, source: str) -> bytes:
    """All bytes of ``file``; raises UsageError where there is no end in sight."""
    raw = file.read(LARGEST + 1)
    if len(raw) > LARGEST:
        raise UsageError(f"{source}: holds more than {LARGEST} bytes, which no context can hold")
    return raw


def decode_text(raw: bytes, source: str) -> str:
    """UTF-8, or a sentence that names the first bad byte."""
    try:
        return raw.decode()
    except UnicodeDecodeError as error:
        raise DsparkError(
            f"{source}: is not UTF-8: byte {raw[error.start]:#04x} at offset {error.start}"
        ) from None


def read_text(path: Path) -> str:
    """The whole text of ``path``."""
    return decode_text(read_bytes(path), str(path))


def from_file(raw: bytes, source: str) -> Prompt:
    """A whole file as one prompt; one newline at its end is the editor's, as in llama.cpp."""
    return Prompt(decode_text(raw, source).removesuffix("\n"), source)


def unescape(text: str) -> str:
    r"""Replace ``\n``, ``\t``, ``\r``, ``\\``, quotes and ``\xHH`` (a byte), nothing else.

    Raises DsparkError where the bytes make no UTF-8.
    """

    def replace(match: re.Match[bytes]) -> bytes:
        if match["hex"]:
            return bytes([int(match["hex"], 16)])
        return ESCAPES[match["char"]]

    return decode_text(ESCAPE.sub(replace, text.encode(errors="surrogateescape")), "-p")


def read_jsonl(path: Path) -> Iterator[Prompt]:
    """Prompts of a file, one per line.

    A line is ``{"prompt": text}``, ``{"turns": [first, ...]}`` (the first turn is used), a JSON
    string, or, in a file whose first line is none of these, plain text.
    """
    text = decode_text(read_bytes(path), str(path)).removeprefix(BYTE_ORDER_MARK)
    numbered = enumerate((line.removesuffix("\r") for line in text.split("\n")), 1)
    lines = [(number, line) for number, line in numbered if line.strip()]
    if not lines:
        raise UsageError(f"{path}: holds no prompt")
    is_json = lines[0][1].lstrip().startswith(("{", '"'))
    for number, line in lines:
        source = f"{path}, line {number}"
        yield _json_prompt(line, source) if is_json else Prompt(line, source)


def select(
    prompts: Sequence[Prompt], *, limit: int | None = None, shuffle: int | None = None
) -> list[Prompt]:
    """The first ``limit`` prompts, of an order that the seed ``shuffle`` decides."""
    chosen = list(prompts)
    if shuffle is not None:
        random.Random(shuffle).shuffle(chosen)  # noqa: S311  an order, not a secret
    return chosen[:limit]


def _json_prompt(line: str, source: str) -> Prompt:
    try:
        value = json.loads(line)
    except json.JSONDecodeError as error:
        raise DsparkError(f"{source}: is no JSON: {error.msg} at column {error.colno}") from None
    except RecursionError:
        raise DsparkError(f"{source}: is nested too deeply to be a prompt") from None
    match value:
        case str(text) | {"prompt": str(text)} | {"turns": [str(text), *_]}:
            try:
                text.encode()
            except UnicodeEncodeError as error:
                lone = text[error.start]
                raise DsparkError(f"{source}: holds half a character, {lone!a}") from None
            category = value.get("category") if isinstance(value, dict) else None
            return Prompt(text, source, category if isinstance(category, str) else None)
    raise DsparkError(f'{source}: wanted {{"prompt": text}} or {{"turns": [text, ...]}}')


def read_token_ids(path: Path, vocabulary: int) -> list[int]:
    """Token ids of a file, all within the vocabulary."""
    return parse_token_ids(read_bytes(path), str(path), vocabulary)


def parse_token_ids(raw: bytes, source: str, vocabulary: int) -> list[int]:
    """Token ids from a JSON array or from numbers between spaces, all within the vocabulary."""
    text = decode_text(raw, source).removeprefix(BYTE_ORDER_MARK).strip()
    if text.startswith("[") and text.endswith("]"):
        text = text[1:-1]
    tokens = []
    for word in text.replace(",", " ").split():
        if not re.fullmatch(rf"-?[0-9]{{1,{LONGEST_ID}}}", word):
            raise DsparkError(f"{source}: wanted token ids, found {word[:40]!r}")
        tokens.append(int(word))
    if not tokens:
        raise UsageError(f"{source}: holds no token ids")
    if outside := [token for token in tokens if not 0 <= token < vocabulary]:
        raise DsparkError(
            f"{source}: token {outside[0]} lies outside the vocabulary of {vocabulary}"
        )
    return tokens
