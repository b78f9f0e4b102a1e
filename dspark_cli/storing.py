"""Write a GGUF: keys and tensors that are known, data that comes a few rows at a time.

gguf-py lays out keys and descriptions; the data never is in memory as a whole. The types are those
that a drafter of ours can be stored in.
"""

import math
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Literal, TypeAlias, cast

import numpy as np
from gguf import (
    GGML_QUANT_SIZES,
    GGMLQuantizationType,
    GGUFValueType,
    GGUFWriter,
    LlamaFileType,
    quantize,
)

from dspark_cli.metadata import DEFAULT_ALIGNMENT, TYPE_NAMES, Metadata, Strings, Value
from dspark_cli.tensors import block_sizes

StoredType: TypeAlias = Literal["f32", "f16", "bf16", "q8_0", "q4_0"]

STORED_AS = {
    "f32": (GGMLQuantizationType.F32, LlamaFileType.ALL_F32),
    "f16": (GGMLQuantizationType.F16, LlamaFileType.MOSTLY_F16),
    "bf16": (GGMLQuantizationType.BF16, LlamaFileType.MOSTLY_BF16),
    "q8_0": (GGMLQuantizationType.Q8_0, LlamaFileType.MOSTLY_Q8_0),
    "q4_0": (GGMLQuantizationType.Q4_0, LlamaFileType.MOSTLY_Q4_0),
}
# Small and decisive: one row of confidences is worth its 2 kB.
ALWAYS_F32 = frozenset({"conf_proj.weight"})
VALUE_TYPES = {name: GGUFValueType(number) for number, name in TYPE_NAMES.items()}

Written: TypeAlias = Callable[[int], None]
"""Called with the number of bytes of each piece of data that was written."""


@dataclass(frozen=True, slots=True)
class Key:
    """One key of a GGUF."""

    name: str
    value: Value
    kind: str  # as metadata names types: "u32"; an array's elements in brackets


@dataclass(frozen=True, slots=True)
class StoredTensor:
    """One tensor to be written; ``pieces`` gives its data in order, already packed."""

    name: str
    shape: tuple[int, ...]  # outputs first
    type_id: int  # enum ggml_type
    pieces: Callable[[], Iterable[np.ndarray]]

    @property
    def size(self) -> int:
        """Bytes."""
        elements, size = block_sizes(self.type_id)
        return math.prod(self.shape) // elements * size


def stored_type(name: str, shape: Sequence[int], out_type: StoredType) -> GGMLQuantizationType:
    """How one tensor is stored: vectors in F32, rows that fill no block in F16."""
    if len(shape) == 1 or name in ALWAYS_F32:
        return GGMLQuantizationType.F32
    kind, _ = STORED_AS[out_type]
    block, _ = GGML_QUANT_SIZES[kind]
    return GGMLQuantizationType.F16 if shape[-1] % block else kind


def pack(values: np.ndarray, kind: GGMLQuantizationType) -> np.ndarray:
    """Float32 rows as they are stored: numbers for F32 and F16, bytes for all else."""
    values = np.ascontiguousarray(values, np.float32)
    return np.asarray(quantize(values, kind))


def write_gguf(
    path: Path,
    architecture: str,
    keys: Iterable[Key],
    tensors: Sequence[StoredTensor],
    written: Written = lambda _size: None,
) -> None:
    """Write one file; raises OSError where the disk refuses, and ValueError for wrong sizes."""
    writer = GGUFWriter(path, architecture)
    try:
        for key in keys:
            _add_key(writer, key)
        for tensor in tensors:
            writer.add_tensor_info(
                tensor.name,
                tensor.shape,
                np.dtype(np.float32),  # of no account beside the type
                tensor.size,
                # gguf-py writes the number, also of a type that it has no name for
                raw_dtype=cast("GGMLQuantizationType", tensor.type_id),
            )
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_ti_data_to_file()
        file = (writer.fout or [])[0]
        _align(file)
        for tensor in tensors:
            began = file.tell()
            for piece in tensor.pieces():
                file.write(np.ascontiguousarray(piece).data)
                written(piece.nbytes)
            if file.tell() - began != tensor.size:
                raise ValueError(f"{tensor.name}: wrote {file.tell() - began} of {tensor.size}")
            _align(file)
        file.flush()
        os.fsync(file.fileno())
    finally:
        with suppress(OSError):  # closing writes what is buffered, to the same full disk
            writer.close()


def tokenizer_keys(target: Metadata, prefix: str = "tokenizer.ggml.") -> Iterator[Key]:
    """The target's tokenizer as it is, but for the mask token: that is the drafter's own."""
    for name, value in target.values.items():
        if not name.startswith(prefix) or name == "tokenizer.ggml.mask_token_id":
            continue
        if isinstance(value, Strings | tuple) and not len(value):
            continue  # gguf-py writes no empty arrays, and llama.cpp misses none
        yield Key(name, value, target.types[name])


def _add_key(writer: GGUFWriter, key: Key) -> None:
    if key.kind.startswith("["):
        elements = VALUE_TYPES[key.kind.strip("[]")]
        writer.add_key_value(key.name, _listed(key.value), GGUFValueType.ARRAY, elements)
    else:
        writer.add_key_value(key.name, key.value, VALUE_TYPES[key.kind])


def _listed(value: object) -> list[object]:
    return list(value) if isinstance(value, Iterable) else [value]


def _align(file: IO[bytes]) -> None:
    file.write(bytes(-file.tell() % DEFAULT_ALIGNMENT))
