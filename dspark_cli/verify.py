"""How much of a draft survives: the prefix that equals the target's own choices.

The target chooses every token itself, greedily or by its sampler, and a draft is kept as far as it
equals those choices. So any draft, of any length, leaves the text as it would have been. One pure
function for both; it knows rows of logits and a chooser.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np


class Rows(Protocol):
    """Rows of logits [n_vocab], one more than the draft has tokens."""

    def __len__(self) -> int: ...
    def __getitem__(self, row: int, /) -> np.ndarray: ...


@dataclass(frozen=True, slots=True)
class Verdict:
    """The target's judgement of one draft."""

    accepted: int  # leading draft tokens that the target chose as well
    bonus: int | None  # the target's choice after them; None where its logits are no numbers

    def tokens(self, draft: Sequence[int]) -> tuple[int, ...]:
        """What the target has chosen."""
        accepted = tuple(draft[: self.accepted])
        return accepted if self.bonus is None else (*accepted, self.bonus)


def verify(draft: Sequence[int], logits: Rows, choose: Callable[[np.ndarray], int]) -> Verdict:
    """Walk down the rows until the target's choice differs from the draft's.

    Row ``i`` judges ``draft[i]``, the row after the last accepted token supplies the bonus, and no
    row behind it is looked at: a sampling chooser draws once per committed token.
    """
    for accepted, proposed in enumerate(draft):
        choice = _choice(logits[accepted], choose)
        if choice != proposed:
            return Verdict(accepted, choice)
    return Verdict(len(draft), _choice(logits[len(draft)], choose))


def _choice(row: np.ndarray, choose: Callable[[np.ndarray], int]) -> int | None:
    # A chooser picks the likeliest token of a row that holds NaN, +inf or nothing but -inf, and
    # that token's logit shows it: numpy's argmax goes to the first NaN. Single -inf entries are
    # tokens that the model forbids itself.
    choice = choose(row)
    return choice if np.isfinite(row[choice]) else None
