"""The drafter: fed with the target's taps, it proposes one block of tokens at a time.

How llama.cpp's ``dflash`` graph is driven (src/models/dflash.cpp): an embedding batch fuses the
taps and writes keys and values at the rows' own positions; a token batch ``[last, mask, mask,
...]`` attends to them without a causal mask, the Markov chain and the confidences being computed
in the graph. The block leaves the memory again: only taps of committed tokens stay, of which the
last ``window`` positions, where the drafter has a window.
"""

from dataclasses import dataclass

import llama_cpp.llama_cpp as bindings
import numpy as np

from dspark_cli.contract import DrafterShape
from dspark_cli.engine.context import Context
from dspark_cli.errors import LlamaError
from dspark_cli.native import ext
from dspark_cli.native.batch import EmbeddingBatch, TokenBatch, copy_rows

WINDOW_STEPS = 8  # the oldest eighth of a full window is dropped at once
F16_MAX = 65504.0  # the largest half-precision number


@dataclass(frozen=True, slots=True)
class Draft:
    """Tokens proposed for the positions after ``last``, with the drafter's trust in each."""

    tokens: tuple[int, ...] = ()
    confidences: tuple[
        float, ...
    ] = ()  # conditional on all before it being accepted; may be empty
    seconds: float = 0.0


class Drafter:
    """A context of the drafter model."""

    def __init__(self, context: Context, shape: DrafterShape, window: int | None = None) -> None:
        if shape.block_size is None or shape.taps is None or shape.mask_token is None:
            raise ValueError(f"{shape.name} did not pass the contract")
        self.context = context
        self.draft_max = shape.draft_max
        self._first_row = shape.first_draft_row
        self._has_confidence = shape.has_confidence
        self._width = shape.width
        self._block = [shape.mask_token] * shape.block_size
        self._tokens = TokenBatch(shape.block_size)
        self._window = window
        # What remains when the window is full: dropping is rare, and the new rows still fit.
        self._kept = window - max(window // WINDOW_STEPS, 1) if window else 0
        rows = min(context.n_ubatch, max(window - self._kept, 1)) if window else context.n_ubatch
        self._rows = EmbeddingBatch(rows, len(shape.taps) * shape.width, mrope=shape.mrope)
        self.first = 0  # the oldest position in memory
        self._fed = 0  # the first position whose taps are still due
        self._coming = 0  # positions that come before the first draft
        ext.set_embeddings_nextn(context.handle, True, True)
        bindings.llama_set_causal_attn(context.handle, shape.causal)

    def observe(self, taps: np.ndarray, position: int) -> float:
        """Inject ``taps`` [n, n_taps x width] of the tokens from ``position`` on.

        Rows that lie before the window at the next draft are left out.
        """
        if position != self._fed:
            raise LlamaError(f"taps of position {position} came when {self._fed} was due")
        end = position + len(taps)
        if self._window is not None:
            begin = min(max(max(end, self._coming) - self._window, position), end)
            if begin > position:  # and all that is in memory lies before the window too
                self.context.rewind(0)
                self.first = begin
            taps, position = taps[begin - position :], begin
        # An F16 fusion multiplies F16 rows: an attention sink beyond that range would be infinite.
        taps = taps.clip(-F16_MAX, F16_MAX)
        seconds = 0.0
        for began in range(0, len(taps), self._rows.capacity):
            rows = taps[began : began + self._rows.capacity]
            self._make_room(position + began + len(rows))
            self._rows.fill(rows, position + began)
            seconds += self.context.decode(self._rows)
        self._fed = end
        return seconds

    def _make_room(self, end: int) -> None:
        """Drop the oldest positions where the window up to ``end`` would hold too many.

        The others keep their positions: rotary embedding sees distances alone.
        """
        if self._window is not None and end - self.first > self._window:
            self.first = end - self._kept
            self.context.forget_before(self.first)

    def propose(self, last: int, position: int, most: int) -> Draft:
        """Propose up to ``most`` tokens to follow ``last``, which stands at ``position``."""
        rows = min(len(self._block), most + self._first_row)
        self._tokens.fill([last, *self._block[1:rows]], position, outputs=True)
        seconds = self.context.decode(self._tokens)
        tokens = self.context.logits_argmax(range(self._first_row, rows))
        confidences = self._confidences(rows) if self._has_confidence else ()
        self.context.rewind(position)
        return Draft(tuple(tokens.tolist()), confidences, seconds)

    def clear(self, coming: int = 0) -> None:
        """Forget everything; ``coming`` positions will be observed before the first draft."""
        self.context.clear()
        self.first = self._fed = 0
        self._coming = coming

    def _confidences(self, rows: int) -> tuple[float, ...]:
        """Column 0 of the nextn rows: the graph repeats each confidence over the row's width."""
        carried = copy_rows(ext.get_embeddings_nextn(self.context.handle), rows, self._width)
        return tuple(carried[self._first_row :, 0].tolist())
