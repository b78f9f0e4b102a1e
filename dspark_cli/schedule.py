"""How much of a draft is scored: decisions, without a model or a clock.

A token is committed only because the target itself chose it, so any length is as right as any
other; it is only faster or slower. The loop asks, and does what it is told.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal, Protocol, TypeAlias

from dspark_cli.errors import UsageError

ScheduleKind: TypeAlias = Literal["fixed", "confidence", "auto"]


@dataclass(frozen=True, slots=True)
class Costs:
    """What one machine takes for one pair, in seconds.

    ``score[k]`` scores k draft tokens and the newest one, ``draft[m]`` drafts m rows; ``draft[0]``
    is 0. Both reach to the block size. ``inject`` is what injecting takes: any batch of rows, and
    every row of it. All are those of a context of ``depth`` positions, to which every further one
    adds its ``growth``, where that is known: attention looks at all of them.
    """

    score: tuple[float, ...]
    draft: tuple[float, ...]
    inject: tuple[float, float] = (0.0, 0.0)
    depth: int = 0
    growth: "Growth | None" = None

    def __post_init__(self) -> None:
        if len(self.score) != len(self.draft) or len(self.score) < 2:  # noqa: PLR2004
            raise ValueError("costs of 0 to block_size tokens, both of them")
        if min(self.score) <= 0 or self.draft[0] != 0 or min(self.draft) < 0:
            raise ValueError("costs are seconds: above 0 for scoring, 0 for drafting nothing")
        if min(self.inject) < 0:
            raise ValueError("costs of injecting are seconds, 0 or more")
        if self.growth and not len(self.growth.score) == len(self.growth.draft) == len(self.score):
            raise ValueError("every cost has its growth")

    @property
    def longest(self) -> int:
        return len(self.score) - 1

    def injecting(self, rows: int) -> float:
        """Seconds for feeding the drafter ``rows`` rows at once."""
        return self.inject[0] + self.inject[1] * rows if rows else 0.0

    def at(self, depth: int) -> "Costs":
        """What everything takes in a context of ``depth`` positions, if that is deeper."""
        further = depth - self.depth
        if self.growth is None or further <= 0:
            return self
        return replace(
            self,
            score=_grown(self.score, self.growth.score, further),
            draft=_grown(self.draft, self.growth.draft, further),
            depth=depth,
        )


@dataclass(frozen=True, slots=True)
class Growth:
    """Seconds that every position of the context adds to scoring k drafts, to drafting m rows."""

    score: tuple[float, ...]
    draft: tuple[float, ...]

    def __post_init__(self) -> None:
        if min(self.score) < 0 or min(self.draft) < 0 or self.draft[0] != 0:
            raise ValueError("a longer context makes nothing faster")


def _grown(table: tuple[float, ...], growth: tuple[float, ...], by: int) -> tuple[float, ...]:
    return tuple(cost + by * more for cost, more in zip(table, growth, strict=True))


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of one round."""

    draft: tuple[int, ...]  # proposed tokens
    scored: int  # of those
    accepted: int  # of those
    committed: tuple[int, ...]  # accepted tokens and the bonus
    draft_seconds: float = 0.0
    score_seconds: float = 0.0  # going back included


@dataclass(frozen=True, slots=True)
class Cut:
    """How much of a draft is scored."""

    scored: int  # 0 to what was proposed
    expected: float | None = None  # tokens of those that should be accepted, where one knows


class Schedule(Protocol):
    """Decides about one round after the other."""

    @property
    def patient(self) -> bool:
        """Whether taps of committed tokens wait until the next draft, to go in together."""

    def rows(self, most: int, /) -> int:
        """How many tokens are drafted: 0 to ``most``."""

    def cut(self, confidences: Sequence[float], proposed: int, /) -> Cut:
        """How many of ``proposed`` draft tokens are scored.

        ``confidences`` [proposed] are the drafter's, each under the condition that all before it
        are accepted; empty without a confidence head.
        """

    def learn(self, outcome: Outcome, /) -> None:
        """Hear what became of the round that was decided last."""


class Steady:
    """Drafts whole blocks, and learns nothing."""

    __slots__ = ()
    patient = False

    def rows(self, most: int) -> int:
        return most

    def learn(self, outcome: Outcome) -> None:
        """Stay as it is."""


@dataclass(frozen=True, slots=True)
class WholeDraft(Steady):
    """``fixed``: every round scores all that was drafted."""

    def cut(self, confidences: Sequence[float], proposed: int) -> Cut:  # noqa: ARG002
        return Cut(proposed)


WHOLE_DRAFT = WholeDraft()


@dataclass(frozen=True, slots=True)
class WhileConfident(Steady):
    """``confidence``: the draft ends before the first token that the drafter trusts too little.

    As llama.cpp's ``--spec-draft-p-min`` (common/speculative.cpp).
    """

    least: float

    def cut(self, confidences: Sequence[float], proposed: int) -> Cut:
        below = (at for at, value in enumerate(confidences) if value < self.least)
        return Cut(min(next(below, proposed), proposed))


@dataclass(frozen=True, slots=True)
class ScheduleOptions:
    """Which schedule, and its threshold."""

    kind: ScheduleKind = "fixed"
    p_min: float | None = None  # of confidence
    costs: Costs | None = None  # of auto; measured for the pair
    temperatures: tuple[float, ...] = ()  # of auto; calibrate the drafter's confidences
    live_costs: bool = False  # of auto: let the clock correct the costs

    def __post_init__(self) -> None:
        if self.p_min is not None and not 0 <= self.p_min <= 1:
            raise UsageError(f"--spec-draft-p-min wants 0 to 1, got {self.p_min}")
        if self.kind == "confidence" and self.p_min is None:
            raise UsageError("--schedule confidence wants its threshold, --spec-draft-p-min P")
        if self.live_costs and self.kind != "auto":
            raise UsageError(f"--live-costs and --schedule {self.kind} contradict each other")
        if self.kind != "confidence" and self.p_min is not None:
            raise UsageError(
                f"--spec-draft-p-min and --schedule {self.kind} contradict each other"
            )

    @property
    def needs_confidence(self) -> bool:
        return self.kind == "confidence"


FIXED = ScheduleOptions()
