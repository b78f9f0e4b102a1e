"""Matrices that are read a few rows at a time, as they are or as something made of them.

A weight is a matrix of float32 rows, outputs first; a vector is one row. What merely chooses rows
can also hand them out as they are packed, so that quantised weights are copied and not rounded
twice; what computes cannot.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from gguf import GGMLQuantizationType

PIECE_BYTES = 8 * 2**20  # of float32 rows that are in memory at once
F32 = GGMLQuantizationType.F32.value


class Weight(Protocol):
    """One tensor of a drafter."""

    @property
    def shape(self) -> tuple[int, ...]: ...
    @property
    def type_id(self) -> int:
        """As what it is stored (enum ggml_type), or would best be."""

    def rows(self, begin: int, end: int) -> np.ndarray:
        """Float32 [end - begin, columns]."""

    def packed(self, begin: int, end: int) -> np.ndarray | None:
        """The same rows as they are stored, uint8; None where they are computed."""


def row_count(weight: Weight) -> int:
    return math.prod(weight.shape[:-1])


def spans(weight: Weight) -> Iterator[tuple[int, int]]:
    """Row ranges that cover a weight, each small enough to be in memory."""
    step = max(PIECE_BYTES // (4 * max(weight.shape[-1], 1)), 1)
    count = row_count(weight)
    for begin in range(0, count, step):
        yield begin, min(begin + step, count)


def whole(weight: Weight) -> np.ndarray:
    """All of a small weight, in its shape."""
    return weight.rows(0, row_count(weight)).reshape(weight.shape)


@dataclass(frozen=True, slots=True)
class Given:
    """A weight that is in memory."""

    values: np.ndarray  # float32

    @property
    def shape(self) -> tuple[int, ...]:
        return self.values.shape

    @property
    def type_id(self) -> int:
        return F32

    def rows(self, begin: int, end: int) -> np.ndarray:
        return self.values.reshape(row_count(self), -1)[begin:end]

    def packed(self, begin: int, end: int) -> np.ndarray | None:  # noqa: ARG002
        return None


@dataclass(frozen=True, slots=True)
class RowsOf:
    """Consecutive rows of another weight, such as the queries of a fused projection."""

    base: Weight
    first: int
    count: int

    @property
    def shape(self) -> tuple[int, ...]:
        return (self.count, self.base.shape[-1])

    @property
    def type_id(self) -> int:
        return self.base.type_id

    def rows(self, begin: int, end: int) -> np.ndarray:
        return self.base.rows(self.first + begin, self.first + end)

    def packed(self, begin: int, end: int) -> np.ndarray | None:
        return self.base.packed(self.first + begin, self.first + end)


@dataclass(frozen=True, slots=True)
class PartedHeads:
    """Rotary pairs that lie side by side, laid half a rotation apart (NORM to NEOX).

    Of every head's ``length`` rows the first ``rotated`` are reordered: even ones, then odd ones.
    A vector is the norm of one head, whose elements are reordered.
    """

    base: Weight
    length: int
    rotated: int

    @property
    def shape(self) -> tuple[int, ...]:
        return self.base.shape

    @property
    def type_id(self) -> int:
        return self.base.type_id

    def rows(self, begin: int, end: int) -> np.ndarray:
        if len(self.shape) == 1:
            return self.base.rows(begin, end)[:, self._order]
        first, last, places = self._within(begin, end)
        chosen: np.ndarray = self.base.rows(first, last)[places]
        return chosen

    def packed(self, begin: int, end: int) -> np.ndarray | None:
        if len(self.shape) == 1:
            return None
        first, last, places = self._within(begin, end)
        packed = self.base.packed(first, last)
        return None if packed is None else packed[places]

    @property
    def _order(self) -> np.ndarray:
        rotated = np.arange(self.rotated).reshape(-1, 2).T.ravel()
        return np.concatenate([rotated, np.arange(self.rotated, self.length)])

    def _within(self, begin: int, end: int) -> tuple[int, int, np.ndarray]:
        """The whole heads around some rows, and where those rows lie within them."""
        first = begin // self.length * self.length
        last = -(-end // self.length) * self.length
        wanted = np.arange(begin, end)
        sources = wanted // self.length * self.length + self._order[wanted % self.length]
        return first, last, sources - first


@dataclass(frozen=True, slots=True)
class Widened:
    """A weight with columns of zeros behind its own."""

    base: Weight
    zeros: int

    @property
    def shape(self) -> tuple[int, ...]:
        return (*self.base.shape[:-1], self.base.shape[-1] + self.zeros)

    @property
    def type_id(self) -> int:
        return self.base.type_id

    def rows(self, begin: int, end: int) -> np.ndarray:
        rows = self.base.rows(begin, end)
        return np.concatenate([rows, np.zeros((len(rows), self.zeros), np.float32)], axis=-1)

    def packed(self, begin: int, end: int) -> np.ndarray | None:  # noqa: ARG002
        return None


@dataclass(frozen=True, slots=True)
class Patched:
    """A table of which one row is replaced."""

    base: Weight
    row: int
    values: np.ndarray  # float32 [columns]

    @property
    def shape(self) -> tuple[int, ...]:
        return self.base.shape

    @property
    def type_id(self) -> int:
        return self.base.type_id

    def rows(self, begin: int, end: int) -> np.ndarray:
        rows: np.ndarray = self.base.rows(begin, end).copy()
        if begin <= self.row < end:
            rows[self.row - begin] = self.values
        return rows

    def packed(self, begin: int, end: int) -> np.ndarray | None:  # noqa: ARG002
        return None
