"""A GGUF's tensors as numbers, whatever they are packed as, whole or a few rows at a time."""

import math
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from gguf import GGML_QUANT_SIZES, GGMLQuantizationType, dequantize

from dspark_cli.errors import DsparkError
from dspark_cli.metadata import Metadata

Q2_0 = 42  # enum ggml_type; newer than some gguf packages
# The blocks of ggml-common.h that gguf-py cannot dequantise: elements and bytes.
SMALL_BLOCKS = {GGMLQuantizationType.Q1_0.value: (128, 18), Q2_0: (64, 18)}


def check_readable(metadata: Metadata, name: str) -> None:
    """Raise DsparkError where a tensor is missing or of a type that cannot be dequantised here."""
    tensor = metadata.tensors.get(name)
    if tensor is None:
        raise DsparkError(f"{metadata.path}: has no tensor {name}")
    try:
        _, block_bytes = block_sizes(tensor.type_id)
        unpack(np.zeros((1, block_bytes), np.uint8), tensor.type_id)
    except (NotImplementedError, ValueError, KeyError):
        raise DsparkError(
            f"{metadata.path}: {name} is {tensor.type_name}, which cannot be dequantised here",
            hint="use a copy of the file in another type, such as Q8_0 or F16",
        ) from None


def read_weights(metadata: Metadata, name: str) -> np.ndarray:
    """One tensor as float32, outputs first; raises DsparkError where there is none to read."""
    rows = PackedRows.of(metadata, name)
    return rows.rows(0, rows.count).reshape(rows.shape)


def block_sizes(type_id: int) -> tuple[int, int]:
    """Elements and bytes of one block; raises ValueError for a type that is not known here."""
    if type_id in SMALL_BLOCKS:
        return SMALL_BLOCKS[type_id]
    elements, size = GGML_QUANT_SIZES[GGMLQuantizationType(type_id)]
    return int(elements), int(size)


def unpack(packed: np.ndarray, type_id: int) -> np.ndarray:
    """Bytes [rows, bytes of a row] as float32 [rows, columns].

    Raises NotImplementedError or ValueError for a type that cannot be dequantised.
    """
    if type_id in SMALL_BLOCKS:
        return _unpack_small(packed, type_id)
    kind = GGMLQuantizationType(type_id)
    plain = {GGMLQuantizationType.F32: "<f4", GGMLQuantizationType.F16: "<f2"}
    values = packed.view(plain[kind]) if kind in plain else packed
    # Row by row: gguf-py's temporaries are as large as what it is given at once.
    numbers: np.ndarray = np.asarray(dequantize(values, kind), np.float32)
    return numbers


def _unpack_small(packed: np.ndarray, type_id: int) -> np.ndarray:
    """``dequantize_row_q1_0`` and ``dequantize_row_q2_0`` of ggml-quants.c, low bits first."""
    elements, size = SMALL_BLOCKS[type_id]
    blocks = packed.reshape(-1, size)
    scale = blocks[:, :2].copy().view("<f2").astype(np.float32)
    bits = 8 * (size - 2) // elements
    shifts = np.arange(0, 8, bits, dtype=np.uint8)
    codes = (blocks[:, 2:, None] >> shifts) & (2**bits - 1)
    codes = codes.reshape(len(blocks), elements).astype(np.float32)
    levels = codes - 1 if type_id == Q2_0 else 2 * codes - 1
    values: np.ndarray = scale * levels
    return values.reshape(len(packed), -1)


@dataclass(frozen=True, slots=True)
class PackedRows:
    """One tensor of a file, of which a few rows are read at a time; a vector is one row."""

    name: str
    path: Path
    shape: tuple[int, ...]  # outputs first
    type_id: int  # enum ggml_type
    offset: int  # bytes from the start of the file

    @classmethod
    def of(cls, metadata: Metadata, name: str) -> "PackedRows":
        """The tensor ``name``; raises DsparkError where it is missing or cannot be read here."""
        check_readable(metadata, name)
        tensor = metadata.tensors[name]
        elements, _ = block_sizes(tensor.type_id)
        if not tensor.shape or tensor.shape[0] % elements:
            raise DsparkError(
                f"{metadata.path}: damaged GGUF: rows of {name} hold {tensor.shape[:1]} elements, "
                f"{tensor.type_name} wants a multiple of {elements}"
            )
        shape = tensor.shape[::-1]
        return cls(name, tensor.path, shape, tensor.type_id, tensor.offset)

    @property
    def count(self) -> int:
        """Rows of it."""
        return math.prod(self.shape[:-1])

    @property
    def row_bytes(self) -> int:
        elements, size = block_sizes(self.type_id)
        return self.shape[-1] // elements * size

    def packed(self, begin: int, end: int) -> np.ndarray:
        """Rows as they lie in the file: uint8 [end - begin, row_bytes]; DsparkError at its end."""
        wanted = (end - begin) * self.row_bytes
        try:
            raw = np.fromfile(
                self.path, np.uint8, wanted, offset=self.offset + begin * self.row_bytes
            )
        except OSError as error:
            raise DsparkError(f"{self.path}: cannot be read: {error.strerror}") from None
        if len(raw) < wanted:
            raise DsparkError(f"{self.path}: truncated: {self.name} runs past the end")
        return raw.reshape(end - begin, self.row_bytes)

    def rows(self, begin: int, end: int) -> np.ndarray:
        """Rows as numbers: float32 [end - begin, columns]."""
        return unpack(self.packed(begin, end), self.type_id)
