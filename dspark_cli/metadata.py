"""Read what a GGUF says about itself: keys and tensor shapes, never weights.

A bounded reader: no count or length in the file is believed beyond the file's own size, and long
arrays stay bytes until somebody asks for them, so that a vocabulary of 250k tokens costs a tenth
of a second. (gguf-py builds a numpy view per token, seconds for the same file.) The layout is that
of ggml's ``docs/gguf.md``, versions 2 and 3, little endian. This module knows the container; what
the keys mean is the contract's business.
"""

import hashlib
import math
import mmap
import re
import stat
import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import TypeAlias

import numpy as np
from gguf import GGML_QUANT_SIZES, GGMLQuantizationType

from dspark_cli.errors import DsparkError, UsageError

MAGIC = b"GGUF"
VERSIONS = (2, 3)
DEFAULT_ALIGNMENT = 32  # bytes; general.alignment overrides it
MAX_DIMENSIONS = 4  # GGML_MAX_DIMS
STRING, ARRAY = 8, 9  # enum gguf_type

# enum gguf_type -> the name that gguf_type_name gives it
TYPE_NAMES = dict(
    enumerate(
        ["u8", "i8", "u16", "i16", "u32", "i32", "f32", "bool", "str", "arr", "u64", "i64", "f64"]
    )
)

# enum gguf_type -> (struct format, bytes)
SCALARS = {
    0: ("<B", 1),
    1: ("<b", 1),
    2: ("<H", 2),
    3: ("<h", 2),
    4: ("<I", 4),
    5: ("<i", 4),
    6: ("<f", 4),
    7: ("<?", 1),
    10: ("<Q", 8),
    11: ("<q", 8),
    12: ("<d", 8),
}
SMALLEST_KEY = 8 + 4 + 1  # bytes: an empty name, a type, one byte of value
SMALLEST_TENSOR = 8 + 4 + 4 + 8  # bytes: an empty name, no dimensions, a type, an offset
NEWER_TYPES = {42: "Q2_0"}  # enum ggml_type: names that some gguf packages do not know yet
SPLIT_NAME = re.compile(r"^(?P<stem>.*)-(?P<part>\d{5})-of-(?P<parts>\d{5})\.gguf$")

Scalar: TypeAlias = int | float | bool | str


@dataclass(frozen=True, slots=True)
class Strings:
    """An array of strings, as it lies in the file: per string a 64-bit length and its bytes."""

    raw: bytes
    count: int

    def __len__(self) -> int:
        return self.count

    def __iter__(self) -> Iterator[bytes]:
        at = 0
        for _ in range(self.count):
            (length,) = struct.unpack_from("<Q", self.raw, at)
            yield self.raw[at + 8 : at + 8 + length]
            at += 8 + length


Value: TypeAlias = Scalar | Strings | tuple[Scalar, ...]


@dataclass(frozen=True, slots=True)
class Tensor:
    """One tensor's description; ``shape`` in ggml order, the contiguous axis first."""

    name: str
    shape: tuple[int, ...]
    type_id: int  # enum ggml_type
    offset: int  # bytes from the start of the file
    path: Path  # the split that holds it

    @property
    def type_name(self) -> str:
        try:
            return GGMLQuantizationType(self.type_id).name
        except ValueError:
            return NEWER_TYPES.get(self.type_id, f"type {self.type_id}")

    @property
    def elements(self) -> int:
        return math.prod(self.shape)

    @property
    def size(self) -> int | None:
        """Bytes, or None where the type is unknown to the installed gguf package."""
        try:
            block, block_bytes = GGML_QUANT_SIZES[GGMLQuantizationType(self.type_id)]
        except ValueError:
            return None
        return self.elements // block * block_bytes


@dataclass(frozen=True, slots=True)
class Fingerprint:
    """Enough to tell one file from another in a report."""

    name: str
    size: int  # bytes, all splits together
    metadata_sha256: str  # of everything before the weights of the first split

    def as_json(self) -> dict[str, Scalar]:
        return {"name": self.name, "size": self.size, "metadata_sha256": self.metadata_sha256}


@dataclass(frozen=True, slots=True)
class Metadata:
    """Keys and tensor descriptions of one model, all of its splits together."""

    path: Path
    values: Mapping[str, Value]
    types: Mapping[str, str]  # of the values, such as "u32"; an array's elements in brackets
    tensors: Mapping[str, Tensor]
    fingerprint: Fingerprint

    @property
    def architecture(self) -> str:
        return self.text("general.architecture") or "unknown"

    def text(self, key: str) -> str | None:
        value = self.values.get(key)
        return value if isinstance(value, str) else None

    def integer(self, key: str) -> int | None:
        value = self.values.get(key)
        return value if isinstance(value, int) and not isinstance(value, bool) else None

    def number(self, key: str) -> float | None:
        value = self.values.get(key)
        return float(value) if isinstance(value, int | float) else None

    def flag(self, key: str) -> bool | None:
        value = self.values.get(key)
        return value if isinstance(value, bool) else None

    def strings(self, key: str) -> Strings | None:
        value = self.values.get(key)
        return value if isinstance(value, Strings) else None

    def integers(self, key: str) -> tuple[int, ...] | None:
        """An array of integers; a single integer counts as an array of one."""
        value = self.values.get(key)
        if isinstance(value, tuple):
            return tuple(int(item) for item in value if isinstance(item, int))
        single = self.integer(key)
        return None if single is None else (single,)

    def read_integers(self, tensor: Tensor) -> np.ndarray:
        """The data of an I64 or I32 tensor, such as ``d2t``; shape [elements]."""
        dtype = {"I64": "<i8", "I32": "<i4"}[tensor.type_name]
        return np.fromfile(tensor.path, dtype, tensor.elements, offset=tensor.offset)


@dataclass(slots=True)
class _Cursor:
    """Bounded reads from one file; every one either fits or says where the file is broken."""

    data: mmap.mmap
    path: Path
    at: int = 0
    size: int = field(init=False)

    def __post_init__(self) -> None:
        self.size = len(self.data)

    def fail(self, what: str) -> DsparkError:
        return DsparkError(f"{self.path}: {what} (at byte {self.at} of {self.size})")

    def skip(self, length: int, what: str) -> int:
        """Step over ``length`` bytes and return where they began."""
        if length > self.size - self.at:
            raise self.fail(
                f"truncated GGUF: {what} needs {length} bytes, {self.size - self.at} are left"
            )
        began = self.at
        self.at += length
        return began

    def scalar(self, kind: int, what: str) -> Scalar:
        layout, length = SCALARS[kind]
        value: Scalar = struct.unpack_from(layout, self.data, self.skip(length, what))[0]
        return value

    def count(self, smallest: int, what: str) -> int:
        """A 64-bit count of things that take at least ``smallest`` bytes each."""
        (count,) = struct.unpack_from("<Q", self.data, self.skip(8, what))
        if count * smallest > self.size - self.at:
            raise self.fail(f"damaged GGUF: {count} {what} cannot fit into the file")
        return int(count)

    def bytes(self, what: str) -> bytes:
        length = self.count(1, what)
        began = self.skip(length, what)
        return self.data[began : began + length]

    def text(self, what: str) -> str:
        raw = self.bytes(what)
        try:
            return raw.decode()
        except UnicodeDecodeError:
            raise self.fail(f"damaged GGUF: {what} is not UTF-8: {raw[:32]!r}") from None

    def strings(self, count: int, key: str) -> Strings:
        began = self.at
        length_of = struct.Struct("<Q").unpack_from
        at, size, data = self.at, self.size, self.data
        for _ in range(count):
            if at + 8 > size:
                raise self.fail(f"truncated GGUF: the array {key} runs past the end")
            at += 8 + length_of(data, at)[0]
        if at > size:
            raise self.fail(f"truncated GGUF: the array {key} runs past the end")
        self.at = at
        return Strings(data[began:at], count)

    def array(self, key: str) -> tuple[str, Value]:
        kind = int(self.scalar(4, key))
        if kind == STRING:
            return "[str]", self.strings(self.count(8, f"elements of {key}"), key)
        if kind not in SCALARS:
            raise self.fail(f"damaged GGUF: {key} is an array of unknown type {kind}")
        layout, length = SCALARS[kind]
        count = self.count(length, f"elements of {key}")
        began = self.skip(count * length, key)
        values = struct.unpack_from(f"<{count}{layout[1]}", self.data, began)
        return f"[{TYPE_NAMES[kind]}]", values

    def value(self, key: str) -> tuple[str, Value]:
        """One value and the name of its type."""
        kind = int(self.scalar(4, key))
        if kind == ARRAY:
            return self.array(key)
        if kind == STRING:
            # A value is shown, never matched: a broken character in a description is no reason
            # to refuse the model.
            return TYPE_NAMES[kind], self.bytes(key).decode(errors="replace")
        if kind not in SCALARS:
            raise self.fail(f"damaged GGUF: {key} has unknown type {kind}")
        return TYPE_NAMES[kind], self.scalar(kind, key)


def read_metadata(path: Path) -> Metadata:
    """Read one GGUF, or all splits of one when ``path`` is its first split.

    Raises UsageError for a path that is no readable file, DsparkError for one that is no sound
    GGUF.
    """
    first = _read_file(path)
    parts = first.integer("split.count") or 1
    if parts == 1:
        return first
    return _join_splits(first, parts)


def _open(path: Path) -> mmap.mmap:
    try:
        mode = path.stat().st_mode
        if stat.S_ISDIR(mode):
            raise UsageError(f"{path}: is a directory, wanted a GGUF file")
        if not stat.S_ISREG(mode):
            raise UsageError(f"{path}: is no regular file, wanted a GGUF file")
        with path.open("rb") as file:
            head = file.read(len(MAGIC))
            if not head:
                raise DsparkError(f"{path}: is empty, wanted a GGUF file")
            if head != MAGIC:
                raise DsparkError(
                    f"{path}: is no GGUF file: it begins with {head!r}, wanted {MAGIC!r}"
                )
            return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    except FileNotFoundError:
        raise UsageError(f"{path}: no such file") from None
    except OSError as error:
        raise UsageError(f"{path}: cannot be read: {error.strerror}") from None


def _read_file(path: Path) -> Metadata:
    with _open(path) as data:
        cursor = _Cursor(data, path, at=len(MAGIC))
        version = int(cursor.scalar(4, "the version"))
        if version not in VERSIONS:
            raise DsparkError(f"{path}: GGUF version {version}, wanted 2 or 3 (little endian)")
        n_tensors = cursor.count(SMALLEST_TENSOR, "tensors")
        n_values = cursor.count(SMALLEST_KEY, "keys")
        values: dict[str, Value] = {}
        types: dict[str, str] = {}
        for _ in range(n_values):
            key = cursor.text("a key")
            if key in values:
                raise cursor.fail(f"damaged GGUF: the key {key} stands twice")
            types[key], values[key] = cursor.value(key)
        tensors = _read_tensors(cursor, n_tensors, values)
        return Metadata(
            path=path,
            values=MappingProxyType(values),
            types=MappingProxyType(types),
            tensors=MappingProxyType(tensors),
            fingerprint=Fingerprint(
                path.name, cursor.size, hashlib.sha256(data[: cursor.at]).hexdigest()
            ),
        )


def _read_tensors(cursor: _Cursor, count: int, values: Mapping[str, Value]) -> dict[str, Tensor]:
    """Read the tensor descriptions and hold each against the file's size."""
    relative = []
    for _ in range(count):
        name = cursor.text("a tensor's name")
        n_dimensions = int(cursor.scalar(4, name))
        if n_dimensions > MAX_DIMENSIONS:
            raise cursor.fail(f"damaged GGUF: tensor {name} claims {n_dimensions} dimensions")
        shape = tuple(int(cursor.scalar(10, name)) for _ in range(n_dimensions))
        type_id, offset = int(cursor.scalar(4, name)), int(cursor.scalar(10, name))
        relative.append((name, shape, type_id, offset))
    alignment = values.get("general.alignment", DEFAULT_ALIGNMENT)
    if not isinstance(alignment, int) or alignment <= 0 or alignment & (alignment - 1):
        raise cursor.fail(
            f"damaged GGUF: general.alignment is {alignment!r}, wanted a power of two"
        )
    data_start = -(-cursor.at // alignment) * alignment
    tensors: dict[str, Tensor] = {}
    for name, shape, type_id, offset in relative:
        if name in tensors:
            raise cursor.fail(f"damaged GGUF: the tensor {name} stands twice")
        tensor = Tensor(name, shape, type_id, data_start + offset, cursor.path)
        end = tensor.offset + (tensor.size or 0)
        if end > cursor.size:
            raise cursor.fail(f"truncated GGUF: tensor {name} ends at byte {end}")
        tensors[name] = tensor
    return tensors


def _join_splits(first: Metadata, parts: int) -> Metadata:
    """Add the tensors of the sibling files to the first split's."""
    named = SPLIT_NAME.match(first.path.name)
    if not named or int(named["parts"]) != parts:
        raise DsparkError(
            f"{first.path}: is one of {parts} splits, "
            f"whose names must end in -00001-of-{parts:05d}.gguf"
        )
    if int(named["part"]) != 1:
        raise UsageError(
            f"{first.path}: is split {int(named['part'])} of {parts}",
            hint=f"give the first one, {named['stem']}-00001-of-{parts:05d}.gguf",
        )
    tensors = dict(first.tensors)
    size = first.fingerprint.size
    for part in range(2, parts + 1):
        sibling = first.path.with_name(f"{named['stem']}-{part:05d}-of-{parts:05d}.gguf")
        if not sibling.exists():
            raise UsageError(f"{first.path}: split {part} of {parts} is missing, wanted {sibling}")
        other = _read_file(sibling)
        if other.integer("split.no") != part - 1:
            raise DsparkError(f"{sibling}: does not say that it is split {part} of {parts}")
        tensors |= other.tensors
        size += other.fingerprint.size
    wanted = first.integer("split.tensors.count")
    if wanted is not None and wanted != len(tensors):
        raise DsparkError(f"{first.path}: its splits hold {len(tensors)} tensors, wanted {wanted}")
    return Metadata(
        path=first.path,
        values=first.values,
        types=first.types,
        tensors=MappingProxyType(tensors),
        fingerprint=Fingerprint(first.fingerprint.name, size, first.fingerprint.metadata_sha256),
    )
