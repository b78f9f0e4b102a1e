"""How a target's memory goes back to the committed tokens after a pass over more.

Attention keeps a cell per position, and cells are dropped. A recurrent state has taken in every
token of the pass. llama.cpp keeps one state for each of a pass's last tokens where it can
(``n_rs_seq``), and going back drops cells too: `Cut` does both. Where there is one state only,
`Replay` saves it before the pass, restores it, and decodes the accepted tokens once more.
"""

import time
from collections.abc import Callable, Sequence
from typing import Protocol

import numpy as np

from dspark_cli.engine.context import Context
from dspark_cli.errors import LlamaError
from dspark_cli.events import Rollback

Decode = Callable[[Sequence[int], int], float]
"""Decode tokens from a position on, without logits; returns the seconds."""


class Rewind(Protocol):
    """Told of every pass, it takes the end of the last one back."""

    def reaches(self, position: int, /) -> bool:
        """Whether the memory can go back to ``position``."""

    def before(self, tokens: Sequence[int], position: int, /, *, tentative: bool) -> None:
        """A pass over ``tokens`` from ``position`` on comes next; its end may be rejected."""

    def back(self, position: int, /) -> Rollback:
        """Forget everything from ``position`` on; raises LlamaError where that is impossible."""


class Cut:
    """Drops attention cells; of recurrent states it goes back to an earlier one of the ring.

    The ring holds the states after each of a pass's last ``n_rs_seq + 1`` tokens, not the one
    before its first: llama.cpp would read whatever an older pass left there
    (``build_recurrent_attn`` in src/models/delta-net-base.cpp). So a pass cannot be taken back
    whole.
    """

    def __init__(self, context: Context) -> None:
        self._context = context
        self._began = self._ended = 0  # positions of the last pass

    def reaches(self, position: int) -> bool:
        if not self._context.recurrent or position in {0, self._ended}:
            return True
        return self._began < position and self._ended - position <= self._context.n_rs_seq

    def before(self, tokens: Sequence[int], position: int, *, tentative: bool) -> None:  # noqa: ARG002
        self._began, self._ended = position, position + len(tokens)

    def back(self, position: int) -> Rollback:
        if not self.reaches(position):
            raise LlamaError(
                f"the target's memory cannot go back to position {position}: it keeps the states "
                f"after positions {self._began} to {self._ended - 1}, at most "
                f"{self._context.n_rs_seq} before the last"
            )
        began = time.perf_counter()
        self._context.rewind(position)
        self._ended = min(self._ended, position)
        return Rollback(time.perf_counter() - began)


class Replay:
    """Saves the one recurrent state before a pass whose end may be rejected."""

    def __init__(self, context: Context, decode: Decode) -> None:
        self._context = context
        self.decode = decode
        self._state: np.ndarray | None = None  # before the last pass; None where it was empty
        self._tokens: tuple[int, ...] = ()  # of the last pass
        self._began = 0
        self._tentative = False
        self._saving = 0.0  # seconds

    def reaches(self, position: int) -> bool:
        if position in {0, self._began + len(self._tokens)}:
            return True
        return self._tentative and self._began <= position

    def before(self, tokens: Sequence[int], position: int, *, tentative: bool) -> None:
        began = time.perf_counter()
        self._state = self._context.save_state() if tentative and position else None
        self._tokens, self._began, self._tentative = tuple(tokens), position, tentative
        self._saving = time.perf_counter() - began

    def back(self, position: int) -> Rollback:
        if not self.reaches(position):
            raise LlamaError(
                f"the target's memory cannot go back to position {position}: its recurrent state "
                f"was not saved before position {self._began + len(self._tokens)}"
            )
        began = time.perf_counter() - self._saving
        self._saving = 0.0
        replayed = 0
        if position < self._began + len(self._tokens):
            self._tokens = self._tokens[: max(position - self._began, 0)]
            if self._state is not None:
                self._context.restore_state(self._state)
            self._context.rewind(self._began if self._tokens else position)
            if self._tokens:
                self.decode(self._tokens, self._began)
                replayed = len(self._tokens)
        return Rollback(time.perf_counter() - began, replayed)
