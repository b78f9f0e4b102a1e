"""Tensors of safetensors files, read a few rows at a time.

The safetensors library checks each header against its file: counts, sizes, overlaps. Its numpy
view knows no bfloat16, so the bytes are read here, at the places that the header names.
"""

import json
import math
import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from gguf import GGMLQuantizationType
from safetensors import SafetensorError, safe_open

from dspark_cli.convert.config import read_json
from dspark_cli.errors import DsparkError, UsageError
from dspark_cli.tensors import unpack

INDEX = ".safetensors.index.json"
MASK_EMBEDDING = "mask_embedding"  # stem of a file that is no shard

# safetensors' name -> bytes, the ggml type that holds the same numbers
FLOATS = {
    "F64": (8, GGMLQuantizationType.F32),
    "F32": (4, GGMLQuantizationType.F32),
    "F16": (2, GGMLQuantizationType.F16),
    "BF16": (2, GGMLQuantizationType.BF16),
    "F8_E4M3": (1, GGMLQuantizationType.F16),
    "F8_E5M2": (1, GGMLQuantizationType.F16),
}
INTEGERS = {"I64": "<i8", "I32": "<i4", "BOOL": "?", "U8": "u1"}
AS_STORED = {"F32", "F16", "BF16"}


@dataclass(frozen=True, slots=True)
class ShardRows:
    """One tensor of a shard; see ``weights.Weight``."""

    name: str
    path: Path
    shape: tuple[int, ...]  # outputs first
    dtype: str  # as safetensors names it
    offset: int  # bytes from the start of the file

    @property
    def type_id(self) -> int:
        """The ggml type that holds the same numbers; raises DsparkError where none does."""
        if self.dtype not in FLOATS:
            raise DsparkError(
                f"{self.path}: {self.name} is {self.dtype}, wanted one of {', '.join(FLOATS)}"
            )
        return FLOATS[self.dtype][1].value

    def packed(self, begin: int, end: int) -> np.ndarray | None:
        return self._bytes(begin, end) if self.dtype in AS_STORED else None

    def rows(self, begin: int, end: int) -> np.ndarray:
        type_id = self.type_id
        raw = self._bytes(begin, end)
        if self.dtype in AS_STORED:
            return unpack(raw, type_id)
        if self.dtype == "F64":
            return raw.view("<f8").astype(np.float32)
        values: np.ndarray = eight_bit_values(self.dtype)[raw]
        return values

    def integers(self) -> np.ndarray:
        """All of a tensor of integers, int64; raises DsparkError for any other."""
        if self.dtype not in INTEGERS:
            raise DsparkError(f"{self.path}: {self.name} is {self.dtype}, wanted I64 or I32")
        raw = self._read(0, math.prod(self.shape) * np.dtype(INTEGERS[self.dtype]).itemsize)
        return raw.view(INTEGERS[self.dtype]).astype(np.int64)

    def _bytes(self, begin: int, end: int) -> np.ndarray:
        size, _ = FLOATS[self.dtype]
        row = self.shape[-1] * size
        return self._read(begin * row, end * row).reshape(end - begin, row)

    def _read(self, begin: int, end: int) -> np.ndarray:
        try:
            raw = np.fromfile(self.path, np.uint8, end - begin, offset=self.offset + begin)
        except OSError as error:
            raise DsparkError(f"{self.path}: cannot be read: {error.strerror}") from None
        if len(raw) < end - begin:
            raise DsparkError(f"{self.path}: truncated: {self.name} runs past the end")
        return raw


def eight_bit_values(dtype: str) -> np.ndarray:
    """The 256 numbers of an 8-bit float, float32: bias 7 without infinities, or bias 15 as F16."""
    codes = np.arange(256, dtype=np.uint8)
    if dtype == "F8_E5M2":
        return (codes.astype(np.uint16) << 8).view("<f2").astype(np.float32)
    exponent, mantissa = (codes >> 3) & 15, (codes & 7).astype(np.float32)
    normal = (1 + mantissa / 8) * np.exp2(exponent.astype(np.float32) - 7)
    values = np.where(exponent == 0, mantissa / 8 * np.float32(2**-6), normal)
    values[(codes & 127) == 127] = np.nan  # noqa: PLR2004  all ones but the sign
    return np.where(codes & 128, -values, values).astype(np.float32)


def read_checkpoint_tensors(path: Path) -> dict[str, ShardRows]:
    """Every tensor of a ``.safetensors`` file, or of all shards of a folder.

    Raises UsageError where there is none, DsparkError for a damaged or contradictory one.
    """
    if not path.is_dir():
        return _read_shard(path)
    index = sorted(path.glob("*" + INDEX))
    if len(index) > 1:
        raise DsparkError(f"{path}: has {len(index)} indexes of shards, wanted one")
    if index:
        return _read_indexed(index[0])
    shards = sorted(path.glob("*.safetensors"))
    shards = [shard for shard in shards if shard.stem != MASK_EMBEDDING]
    if not shards:
        raise UsageError(
            f"{path}: holds no .safetensors file",
            hint="convert PyTorch's .bin files to safetensors first",
        )
    return _joined(shards)


def _read_indexed(index: Path) -> dict[str, ShardRows]:
    places = read_json(index).get("weight_map")
    if not isinstance(places, dict) or not places:
        raise DsparkError(f"{index}: has no weight_map from tensors to files")
    for name, file in places.items():
        # A path out of the folder would read, and report on, any file of this machine.
        if not isinstance(file, str) or not file or Path(file).name != file or file in {".", ".."}:
            raise DsparkError(
                f"{index}: {name} lies in {str(file)[:80]!r}, wanted the name of a file beside it"
            )
    found = _joined([index.with_name(file) for file in sorted({*places.values()})])
    for name, file in places.items():
        if name not in found or found[name].path.name != file:
            raise DsparkError(f"{index}: {name} is not in {file}, where it should be")
    return found


def _joined(shards: list[Path]) -> dict[str, ShardRows]:
    tensors: dict[str, ShardRows] = {}
    for shard in shards:
        for name, tensor in _read_shard(shard).items():
            if name in tensors:
                raise DsparkError(
                    f"{shard}: has {name}, which is in {tensors[name].path.name} too"
                )
            tensors[name] = tensor
    return tensors


def _read_shard(path: Path) -> dict[str, ShardRows]:
    try:
        if not path.exists():
            raise UsageError(f"{path}: no such file")
        if not path.is_file():
            raise DsparkError(f"{path}: is no regular file, wanted safetensors")
        with safe_open(path, "numpy"):
            pass
        with path.open("rb") as file:
            (length,) = struct.unpack("<Q", file.read(8))
            header = file.read(length)
        entries = json.loads(header, object_pairs_hook=_once)
    except (OSError, RuntimeError) as error:  # a loop of links, since Python 3.13 an OSError
        raise DsparkError(f"{path}: cannot be read: {error}") from None
    except (SafetensorError, ValueError, struct.error) as error:
        raise DsparkError(f"{path}: damaged safetensors: {_sentence(error)}") from None
    return dict(_tensors(path, entries, 8 + length))


def _once(pairs: list[tuple[str, object]]) -> dict[str, object]:
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        raise ValueError(f"{next(name for name in names if names.count(name) > 1)} stands twice")
    return found


def _tensors(
    path: Path, entries: Mapping[str, object], start: int
) -> Iterator[tuple[str, ShardRows]]:
    for name, entry in entries.items():
        if name == "__metadata__" or not isinstance(entry, dict):
            continue
        shape = tuple(entry["shape"])
        yield name, ShardRows(name, path, shape, entry["dtype"], start + entry["data_offsets"][0])


def _sentence(error: Exception) -> str:
    return " ".join(str(error).split())[:160]
