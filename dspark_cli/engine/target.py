"""The target: the model whose answer it is."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from dspark_cli.engine.context import Context
from dspark_cli.engine.rewind import Cut, Replay, Rewind
from dspark_cli.engine.taps import Taps
from dspark_cli.events import Rollback
from dspark_cli.native.batch import TokenBatch


class LogitRows:
    """Rows of logits inside llama.cpp, copied one at a time and only when asked for.

    Valid until the next decode of the same context.
    """

    def __init__(self, context: Context, rows: int) -> None:
        self._context = context
        self._rows = rows

    def __len__(self) -> int:
        return self._rows

    def __getitem__(self, row: int) -> np.ndarray:
        if not 0 <= row < self._rows:
            raise IndexError(f"row {row} of {self._rows}: no logits were asked for it")
        return self._context.logits_row(row)


@dataclass(frozen=True, slots=True)
class Scored:
    """What one forward pass says about a run of tokens."""

    logits: LogitRows  # row i judges the token after tokens[i]
    seconds: float


class Target:
    """A context of the target model, with its taps where a drafter wants them."""

    def __init__(self, context: Context, taps: Taps | None, widest_score: int) -> None:
        self.context = context
        self.chunk = context.n_batch
        self._taps = taps
        self._batch = TokenBatch(max(self.chunk, widest_score))
        one_state = context.recurrent and not context.n_rs_seq
        self.rewinding: Rewind = Replay(context, self._decode) if one_state else Cut(context)

    def read(self, tokens: Sequence[int], position: int) -> float:
        """Decode a piece of the prompt, which needs no logits; returns the seconds."""
        self.rewinding.before(tokens, position, tentative=False)
        return self._decode(tokens, position)

    def _decode(self, tokens: Sequence[int], position: int) -> float:
        self._batch.fill(tokens, position, outputs=False)
        return self.context.decode(self._batch)

    def score(self, tokens: Sequence[int], position: int) -> Scored:
        """Decode ``tokens`` from ``position`` on, with logits for each.

        At least the first of them is kept: the target chose it itself.
        """
        self.rewinding.before(tokens, position, tentative=len(tokens) > 1)
        self._batch.fill(tokens, position, outputs=True)
        seconds = self.context.decode(self._batch)
        return Scored(LogitRows(self.context, len(tokens)), seconds)

    def taps(self, rows: int) -> np.ndarray:
        """Taps [rows, n_taps x width] of the last decode's first rows; no columns without taps."""
        if self._taps is None:
            return np.empty((rows, 0), np.float32)
        return self._taps.read(rows)

    def rewind(self, position: int) -> Rollback:
        """Forget everything from ``position`` on.

        Rows and taps of the last pass up to there are those that the memory now holds.
        """
        return self.rewinding.back(position)

    def reaches(self, position: int) -> bool:
        """Whether the memory can go back to ``position``."""
        return self.rewinding.reaches(position)

    def rehearse(self, tokens: Sequence[int], position: int, *, kept: int) -> float:
        """Seconds of scoring ``tokens`` and going back to the first ``kept``; leaves no trace."""
        state = self.context.save_state() if self.context.recurrent and position else None
        seconds = self.score(tokens, position).seconds + self.rewind(position + kept).seconds
        if state is not None:
            self.context.restore_state(state)
        self.context.rewind(position)
        self.rewinding.before((), position, tentative=False)
        return seconds

    def clear(self) -> None:
        self.context.clear()
