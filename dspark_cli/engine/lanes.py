"""Many sequences of one target side by side, one token of each per decode.

A batch of 64 sequences costs little more than a batch of eight, which makes collecting a
target's own words affordable. Every lane is a sequence of its own in llama.cpp's memory.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import llama_cpp.llama_cpp as bindings
import numpy as np

from dspark_cli.engine.context import Context
from dspark_cli.engine.taps import Taps
from dspark_cli.native.batch import LaneBatch, view_rows


@dataclass(frozen=True, slots=True)
class LaneRows:
    """What one decode says: one row of logits per lane, taps for every row of the batch."""

    logits: np.ndarray  # [rows with logits, n_vocab]; valid until the next decode
    taps: np.ndarray  # [rows, n_taps x width], a copy


class Lanes:
    """A context of ``count`` sequences; the context was made with as many."""

    def __init__(self, context: Context, taps: Taps, count: int, vocabulary: int) -> None:
        self.context = context
        self.count = count
        self._taps = taps
        self._vocabulary = vocabulary
        self._batch = LaneBatch(max(context.n_batch, count))

    def begin(self, lane: int, tokens: Sequence[int]) -> LaneRows:
        """Forget what ``lane`` held and read a prompt into it; logits of its last token only."""
        self.context.rewind(0, sequence=lane)
        taps = []
        for start in range(0, len(tokens), self.context.n_batch):
            chunk = np.asarray(tokens[start : start + self.context.n_batch], np.int32)
            rows = len(chunk)
            outputs = np.zeros(rows, np.int8)
            outputs[-1] = 1
            positions = np.arange(start, start + rows)
            self._batch.fill(chunk, positions, np.full(rows, lane), outputs)
            self.context.decode(self._batch)
            taps.append(self._taps.read(rows))
        return LaneRows(self._logits(1), np.concatenate(taps))

    def step(self, lanes: np.ndarray, tokens: np.ndarray, positions: np.ndarray) -> LaneRows:
        """Decode one token of each of ``lanes`` at its position; all arrays [n]."""
        rows = len(lanes)
        self._batch.fill(tokens, positions, lanes, np.ones(rows, np.int8))
        self.context.decode(self._batch)
        return LaneRows(self._logits(rows), self._taps.read(rows))

    def _logits(self, rows: int) -> np.ndarray:
        logits = bindings.llama_get_logits(self.context.handle)
        return view_rows(logits, rows, self._vocabulary)
