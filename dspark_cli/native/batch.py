"""``llama_batch`` over numpy arrays that are filled in one go and allocated once.

A run has one sequence; only ``LaneBatch`` knows several. The arrays' pointers go into the
structure when it is made, so the arrays must live as long as the batch and are never replaced.
"""

import ctypes
from collections.abc import Sequence
from typing import Any

import llama_cpp.llama_cpp as bindings
import numpy as np

MROPE_POSITIONS = 4  # an M-RoPE model wants (t, h, w, extra) per embedding row


def _pointer(array: np.ndarray, kind: Any) -> Any:
    return array.ctypes.data_as(ctypes.POINTER(kind))


class _Batch:
    """What both kinds share: positions, one sequence, output flags."""

    def __init__(self, capacity: int, positions_per_row: int = 1) -> None:
        self.capacity = capacity
        self._positions = np.zeros(capacity * positions_per_row, np.int32)
        self._outputs = np.zeros(capacity, np.int8)
        self._n_sequences = np.ones(capacity, np.int32)
        self._sequence = ctypes.c_int32(0)
        one = ctypes.pointer(self._sequence)
        self._sequences = (ctypes.POINTER(ctypes.c_int32) * capacity)(*([one] * capacity))
        self.native = bindings.llama_batch(
            n_tokens=0,
            pos=_pointer(self._positions, bindings.llama_pos),
            n_seq_id=_pointer(self._n_sequences, ctypes.c_int32),
            seq_id=ctypes.cast(
                self._sequences, ctypes.POINTER(ctypes.POINTER(bindings.llama_seq_id))
            ),
            logits=_pointer(self._outputs, ctypes.c_int8),
        )


class TokenBatch(_Batch):
    """Up to ``capacity`` tokens at consecutive positions."""

    def __init__(self, capacity: int) -> None:
        super().__init__(capacity)
        self._tokens = np.zeros(capacity, np.int32)
        self.native.token = _pointer(self._tokens, bindings.llama_token)

    def fill(self, tokens: Sequence[int], position: int, *, outputs: bool) -> None:
        """Lay out ``tokens`` from ``position`` on; ``outputs`` asks for logits of every row."""
        rows = len(tokens)
        self._tokens[:rows] = tokens
        self._positions[:rows] = np.arange(position, position + rows)
        self._outputs[:rows] = outputs
        self.native.n_tokens = rows


class LaneBatch(_Batch):
    """Up to ``capacity`` tokens, each of its own sequence and position."""

    def __init__(self, capacity: int) -> None:
        super().__init__(capacity)
        self._tokens = np.zeros(capacity, np.int32)
        self._lanes = np.zeros(capacity, np.int32)
        item, first = self._lanes.itemsize, self._lanes.ctypes.data
        for row in range(capacity):
            self._sequences[row] = ctypes.cast(first + row * item, ctypes.POINTER(ctypes.c_int32))
        self.native.token = _pointer(self._tokens, bindings.llama_token)

    def fill(
        self, tokens: np.ndarray, positions: np.ndarray, lanes: np.ndarray, outputs: np.ndarray
    ) -> None:
        """Lay out one row per token; all arrays [n], ``outputs`` 1 where logits are wanted."""
        rows = len(tokens)
        self._tokens[:rows] = tokens
        self._positions[:rows] = positions
        self._lanes[:rows] = lanes
        self._outputs[:rows] = outputs
        self.native.n_tokens = rows


class EmbeddingBatch(_Batch):
    """Up to ``capacity`` rows of ``width`` floats at consecutive positions, without outputs."""

    def __init__(self, capacity: int, width: int, *, mrope: bool) -> None:
        super().__init__(capacity, MROPE_POSITIONS if mrope else 1)
        self._mrope = mrope
        self._rows = np.zeros((capacity, width), np.float32)
        self.native.embd = _pointer(self._rows, ctypes.c_float)

    def fill(self, rows: np.ndarray, position: int) -> None:
        """Lay out ``rows`` [n, width] from ``position`` on; text positions are (p, p, p, 0)."""
        count = len(rows)
        self._rows[:count] = rows
        text = np.arange(position, position + count)
        self._positions[:count] = text
        if self._mrope:
            # section-major: all first coordinates, then all second ones (llama-batch.cpp)
            self._positions[count : 3 * count] = np.tile(text, 2)
            self._positions[3 * count : 4 * count] = 0
        self.native.n_tokens = count


def copy_rows(pointer: Any, rows: int, width: int) -> np.ndarray:
    """Copy a float matrix [rows, width] out of llama.cpp, which reuses the memory."""
    return np.array(np.ctypeslib.as_array(pointer, shape=(rows, width)), dtype=np.float32)


def view_rows(pointer: Any, rows: int, width: int) -> np.ndarray:
    """Look at the first rows of a float matrix inside llama.cpp, until the next decode."""
    return np.ctypeslib.as_array(pointer, shape=(rows, width))


def view_row(pointer: Any, row: int, width: int) -> np.ndarray:
    """Look at one row of a float matrix [*, width] inside llama.cpp, until the next decode."""
    address = ctypes.addressof(pointer.contents) + row * width * ctypes.sizeof(ctypes.c_float)
    return np.ctypeslib.as_array((ctypes.c_float * width).from_address(address))
