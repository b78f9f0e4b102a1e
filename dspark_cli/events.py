"""What a run reports, as plain facts in the order in which they happen.

``decode`` yields these; statistics add them up; renderers show them. No event knows a model, a
file or a terminal. All times are seconds.
"""

from dataclasses import dataclass
from typing import Literal, TypeAlias

FinishReason: TypeAlias = Literal["eog", "length", "stop", "context_full", "interrupted"]
"""Why a run ended: an end-of-generation token, ``-n``, a ``--stop`` text, no room, or Ctrl-C."""


@dataclass(frozen=True, slots=True)
class Prefill:
    """One chunk of the prompt has gone through the target and into the drafter's memory."""

    done: int  # prompt tokens decoded so far
    total: int  # prompt tokens to decode; the last prompt token belongs to the first round
    score_seconds: float
    inject_seconds: float


@dataclass(frozen=True, slots=True)
class Rollback:
    """What it took to go back to the committed tokens after a pass over more."""

    seconds: float = 0.0
    tokens: int = 0  # decoded once more, where the target's memory keeps one recurrent state only


NO_ROLLBACK = Rollback()


@dataclass(frozen=True, slots=True)
class Round:
    """One propose, score, verify and commit.

    ``scored = accepted + rejected + ignored``; a round with ``scored == 0`` is plain decoding.
    """

    tokens: tuple[int, ...]  # committed: the accepted draft, then the bonus unless the run ended
    position: int  # of the first committed token's predecessor, in the target's memory
    proposed: int  # draft tokens that the drafter made
    scored: int  # draft tokens that the target judged in one pass
    accepted: int  # of those, agreed and committed
    ignored: int  # of those, behind what ended the run
    expected: float | None = None  # accepted tokens that the schedule reckoned with
    confidences: tuple[float, ...] = ()  # one per proposed token; empty without the head
    draft_seconds: float = 0.0
    score_seconds: float = 0.0
    inject_seconds: float = 0.0
    rollback: Rollback = NO_ROLLBACK
    seconds: float = 0.0  # the whole round, Python included, its reader not

    @property
    def rejected(self) -> int:
        return self.scored - self.accepted - self.ignored


@dataclass(frozen=True, slots=True)
class Text:
    """Bytes that may be shown now: whole characters, nothing of a stop text."""

    data: bytes
    drafted: bool  # whether an accepted draft token brought them


@dataclass(frozen=True, slots=True)
class Finish:
    """The run is over."""

    reason: FinishReason
    position: int  # positions up to the newest committed token, which is not among them


Event: TypeAlias = Prefill | Round | Finish
"""What decoding yields."""

Report: TypeAlias = Event | Text
"""What a generation yields: the same, with the text between."""
