"""What a target said, kept for training: shards of answers in a folder, and a manifest.

A shard is one safetensors file with the arrays of some whole answers laid end to end; the manifest
names the shards that count and everything they depend on. Both are written beside their final name
and then renamed, so a kill at any moment leaves a valid dataset that lacks the last few answers.
This module knows arrays and files, no model.
"""

import hashlib
import json
import math
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

from dspark_cli.errors import DsparkError, UsageError
from dspark_cli.files import write_atomically

if TYPE_CHECKING:
    from typing_extensions import Self

FORMAT = 1  # of the manifest; raised when an older reader would misunderstand
MANIFEST = "manifest.json"
SHARD_BYTES = 64 * 2**20  # a shard is written when its arrays take this much,
SHARD_SECONDS = 60.0  # or when this much work would be lost by a kill
HELD_OUT_EVERY = 20  # one prompt in so many is never trained on
GOLDEN_RATIO = (math.sqrt(5) - 1) / 2
OPENING_TOKENS = 8  # sampled at temperature 1 where a text begins from nothing
F16_MAX = 65504.0  # the largest half-precision number; larger hidden states are clipped to it


@dataclass(frozen=True, slots=True)
class Answer:
    """One prompt and what the target said to it.

    ``taps`` row i holds the taps of ``tokens[i]``; the last token was never decoded and has none.
    ``top_ids`` and ``top_logprobs`` row i is the head of the target's distribution (temperature 1)
    of which ``tokens[n_prompt + i]`` was picked, likeliest first.
    """

    prompt: int  # which prompt of the collection
    n_prompt: int
    temperature: float  # 0 is greedy
    tokens: np.ndarray  # int32 [n]
    top_ids: np.ndarray  # int32 [n - n_prompt, top]
    top_logprobs: np.ndarray  # float16 [n - n_prompt, top]
    taps: np.ndarray | None  # float16 [n - 1, n_taps x width]; None: computed again when needed

    @property
    def n_answer(self) -> int:
        return len(self.tokens) - self.n_prompt

    @property
    def nbytes(self) -> int:
        arrays = (self.tokens, self.top_ids, self.top_logprobs, self.taps)
        return sum(array.nbytes for array in arrays if array is not None)


@dataclass(frozen=True, slots=True)
class Header:
    """All that the answers of one dataset have in common, and must have to be added to it."""

    target: str  # SHA-256 of the target's metadata
    target_name: str
    vocabulary: int
    width: int  # n_embd
    taps: tuple[int, ...]  # layer inputs, in the order of concatenation
    top: int  # entries kept of each distribution
    stores_taps: bool
    prompts: str  # where they came from, with what tells two files of one name apart
    distinct_prompts: int  # indices count through them again and again; 0: each is its own
    answer_tokens: int  # the longest answer
    seed: int

    def bytes_per_token(self) -> int:
        """Bytes that one token takes on disk, its part of the distributions included."""
        taps = len(self.taps) * self.width * 2 if self.stores_taps else 0
        return taps + 4 + self.top * (4 + 2)


@dataclass(frozen=True, slots=True)
class Shard:
    """One file of a dataset."""

    name: str
    answers: int
    tokens: int  # of prompts and answers
    prompts: tuple[int, ...]


def _read_manifest(folder: Path) -> tuple[Header, list[Shard]]:
    path = folder / MANIFEST
    try:
        document = json.loads(path.read_bytes())
        if document["format"] != FORMAT:
            raise DsparkError(f"{path}: format {document['format']}, wanted {FORMAT}")
        values = {item.name: document["header"][item.name] for item in fields(Header)}
        header = Header(**{**values, "taps": tuple(values["taps"])})
        shards = [
            Shard(
                str(item["name"]),
                int(item["answers"]),
                int(item["tokens"]),
                tuple(map(int, item["prompts"])),
            )
            for item in document["shards"]
        ]
    except FileNotFoundError:
        raise UsageError(f"{folder}: holds no dataset ({MANIFEST} is missing)") from None
    except OSError as error:
        raise UsageError(f"{path}: cannot be read: {error.strerror}") from None
    except (ValueError, KeyError, TypeError) as error:
        raise DsparkError(f"{path}: is no manifest of a dataset: {error}") from None
    return header, shards


class DatasetWriter:
    """Adds answers to a folder; what was added is safe on disk after ``flush``.

    Raises UsageError where the folder holds a dataset with another header.
    """

    def __init__(self, folder: Path, header: Header) -> None:
        self.header = header
        self._folder = folder
        self._shards: list[Shard] = []
        self._waiting: list[Answer] = []
        self._waiting_bytes = 0
        self._clock = time.monotonic
        self._flushed = self._clock()
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise UsageError(f"{folder}: cannot be made: {error.strerror}") from None
        if (folder / MANIFEST).exists():
            found, self._shards = _read_manifest(folder)
            _check_same(folder, found, header)
            self._forget_strays()
        else:
            self._write_manifest()

    def __enter__(self) -> "Self":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.flush()

    @property
    def tokens(self) -> int:
        """Tokens of prompts and answers, added or found."""
        waiting = sum(len(answer.tokens) for answer in self._waiting)
        return sum(shard.tokens for shard in self._shards) + waiting

    @property
    def answers(self) -> int:
        return sum(shard.answers for shard in self._shards) + len(self._waiting)

    @property
    def prompts(self) -> set[int]:
        """Prompts that have their answer."""
        written = {prompt for shard in self._shards for prompt in shard.prompts}
        return written | {answer.prompt for answer in self._waiting}

    def add(self, answer: Answer) -> None:
        """Keep an answer; a full shard goes to disk."""
        self._waiting.append(answer)
        self._waiting_bytes += answer.nbytes
        old = self._clock() - self._flushed >= SHARD_SECONDS
        if self._waiting_bytes >= SHARD_BYTES or old:
            self.flush()

    def flush(self) -> None:
        """Write what is waiting as one shard."""
        self._flushed = self._clock()
        if not self._waiting:
            return
        name = f"shard-{len(self._shards):05d}.safetensors"
        write_atomically(self._folder / name, save(_arrays(self._waiting)))
        self._shards.append(
            Shard(
                name=name,
                answers=len(self._waiting),
                tokens=sum(len(answer.tokens) for answer in self._waiting),
                prompts=tuple(answer.prompt for answer in self._waiting),
            )
        )
        self._waiting, self._waiting_bytes = [], 0
        self._write_manifest()

    def _write_manifest(self) -> None:
        document = {
            "format": FORMAT,
            "header": asdict(self.header),
            "shards": [asdict(shard) for shard in self._shards],
        }
        write_atomically(self._folder / MANIFEST, json.dumps(document, indent=1).encode())

    def _forget_strays(self) -> None:
        """Remove what a kill left behind: a shard that no manifest names, a half-written file."""
        known = {shard.name for shard in self._shards}
        for path in self._folder.glob("shard-*"):
            if path.name not in known:
                path.unlink()


class Dataset:
    """A folder of answers to be read in any order; a shard is open, not loaded.

    Raises UsageError for a folder without a dataset, DsparkError for a damaged one.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.header, self._shards = _read_manifest(folder)
        self._files = [_open_shard(folder / shard.name) for shard in self._shards]
        self._places: list[tuple[int, int]] = []  # shard, answer within it
        self._offsets: list[np.ndarray] = []
        for index, file in enumerate(self._files):
            offsets = np.concatenate([[0], np.cumsum(file.get_tensor("lengths"))])
            self._offsets.append(offsets)
            self._places += [(index, answer) for answer in range(len(offsets) - 1)]

    def __len__(self) -> int:
        return len(self._places)

    @property
    def tokens(self) -> int:
        return sum(shard.tokens for shard in self._shards)

    @property
    def longest(self) -> int:
        """Tokens of the longest prompt and answer."""
        return max(int(np.diff(offsets).max(initial=0)) for offsets in self._offsets)

    @property
    def groups(self) -> list[int]:
        """Which distinct prompt each answer belongs to, in order of the answers.

        Of texts that begin from nothing the sampled opening is the prompt: behind it two greedy
        texts are the same.
        """
        distinct = self.header.distinct_prompts
        if distinct:
            return [prompt % distinct for shard in self._shards for prompt in shard.prompts]
        return [_number(answer.tokens[: answer.n_prompt + OPENING_TOKENS]) for answer in self]

    def temperatures(self) -> list[float]:
        """The temperature of each answer, in order of the answers."""
        return [float(t) for file in self._files for t in file.get_tensor("temperature")]

    def token_counts(self) -> np.ndarray:
        """How often each token stands in an answer; shape [vocabulary]."""
        counts = np.zeros(self.header.vocabulary, np.int64)
        for answer in self:
            counts += np.bincount(
                answer.tokens[answer.n_prompt :], minlength=self.header.vocabulary
            )
        return counts

    def __iter__(self) -> Iterator[Answer]:
        """Every answer, without its taps."""
        for index in range(len(self)):
            yield self.read(index, taps=False)

    def __getitem__(self, index: int) -> Answer:
        return self.read(index, taps=self.header.stores_taps)

    def read(self, index: int, *, taps: bool) -> Answer:
        """One answer; only its own part of the shard is read."""
        shard, place = self._places[index]
        file, offsets = self._files[shard], self._offsets[shard]
        begin, end = int(offsets[place]), int(offsets[place + 1])
        n_prompts = file.get_tensor("n_prompt")
        n_prompt = int(n_prompts[place])
        # Distributions exist for answer tokens, taps for all tokens but the last of each answer.
        tops = begin - int(n_prompts[:place].sum())
        n_answer = end - begin - n_prompt
        return Answer(
            prompt=int(file.get_tensor("prompt")[place]),
            n_prompt=n_prompt,
            temperature=float(file.get_tensor("temperature")[place]),
            tokens=file.get_slice("tokens")[begin:end],
            top_ids=file.get_slice("top_ids")[tops : tops + n_answer],
            top_logprobs=file.get_slice("top_logprobs")[tops : tops + n_answer],
            taps=file.get_slice("taps")[begin - place : end - place - 1] if taps else None,
        )


def is_held_out(group: int) -> bool:
    """Whether a prompt is kept for judging, by its number alone: a dataset may still grow.

    Multiples of the golden ratio fill the unit interval evenly, so any run of prompts loses the
    same share, and none of the regular categories of the built-in ones falls through.
    """
    return (group * GOLDEN_RATIO) % 1 < 1 / HELD_OUT_EVERY


def _number(tokens: np.ndarray) -> int:
    """A number that equal tokens share, and different ones hardly ever."""
    return int.from_bytes(hashlib.sha256(tokens.tobytes()).digest()[:4], "big")


def _arrays(answers: Sequence[Answer]) -> dict[str, np.ndarray]:
    arrays: dict[str, np.ndarray] = {
        "lengths": np.array([len(answer.tokens) for answer in answers], np.int64),
        "prompt": np.array([answer.prompt for answer in answers], np.int64),
        "n_prompt": np.array([answer.n_prompt for answer in answers], np.int64),
        "temperature": np.array([answer.temperature for answer in answers], np.float32),
        "tokens": np.concatenate([answer.tokens for answer in answers]).astype(np.int32),
        "top_ids": np.concatenate([answer.top_ids for answer in answers]).astype(np.int32),
        "top_logprobs": np.concatenate([answer.top_logprobs for answer in answers]).astype(
            np.float16
        ),
    }
    taps = [answer.taps for answer in answers if answer.taps is not None]
    if taps:
        arrays["taps"] = np.concatenate(taps).clip(-F16_MAX, F16_MAX).astype(np.float16)
    return arrays


def _open_shard(path: Path) -> Any:
    try:
        return safe_open(path, framework="np")
    except (OSError, SafetensorError) as error:
        raise DsparkError(f"{path}: the shard cannot be read: {error}") from None


def _check_same(folder: Path, found: Header, wanted: Header) -> None:
    if found == wanted:
        return
    differing = [
        f"{item.name} is {getattr(found, item.name)}, wanted {getattr(wanted, item.name)}"
        for item in fields(Header)
        if getattr(found, item.name) != getattr(wanted, item.name)
    ]
    raise UsageError(
        f"{folder}: holds another dataset: {'; '.join(differing)}",
        hint="give the same options, or another folder",
    )
