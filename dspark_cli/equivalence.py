"""What a comparison of two texts found: plain facts, and their sums over many prompts.

A verdict is ``identical`` (the same tokens), ``tie`` (parted only where rounding decides) or
``diverged`` (some token is not the target's own). This module knows no model.
"""

from dataclasses import dataclass
from typing import Literal, TypeAlias

from dspark_cli.events import FinishReason, Round
from dspark_cli.stats import JsonObject, Statistics

Equivalence: TypeAlias = Literal["identical", "tie", "diverged"]


@dataclass(frozen=True, slots=True)
class Run:
    """One finished run: what it said, why it ended, and in which batches."""

    tokens: tuple[int, ...]
    reason: FinishReason
    rounds: tuple[Round, ...]


@dataclass(frozen=True, slots=True)
class Parting:
    """Where two texts part, or where a token is not the target's own.

    ``position`` counts generated tokens from 0. A token is None where that text had ended. Logits
    are those of the replay, one token at a time.
    """

    position: int
    plain: int | None
    speculative: int | None
    plain_logit: float | None = None
    speculative_logit: float | None = None

    @property
    def gap(self) -> float | None:
        """By how much the replay prefers the plain token."""
        if self.plain_logit is None or self.speculative_logit is None:
            return None
        return self.plain_logit - self.speculative_logit


@dataclass(frozen=True, slots=True)
class Comparison:
    """The verdict on one prompt, with everything it rests on."""

    verdict: Equivalence
    plain: Run
    speculative: Run
    statistics: Statistics
    parting: Parting | None = None
    largest_gap: float = 0.0  # logits, over all replayed tokens
    tolerance: float | None = None  # None where nothing had to be tolerated
    why: str | None = None  # of a divergence, in words

    @property
    def compared(self) -> int:
        """Tokens that were judged."""
        return len(self.speculative.tokens)


@dataclass(slots=True)
class Summary:
    """All prompts together."""

    identical: int = 0
    ties: int = 0
    diverged: int = 0
    tokens: int = 0
    largest_gap: float = 0.0  # of the ties
    largest_tolerance: float | None = None
    statistics: Statistics | None = None

    def add(self, comparison: Comparison) -> None:
        self.tokens += comparison.compared
        match comparison.verdict:
            case "identical":
                self.identical += 1
            case "tie":
                self.ties += 1
                self.largest_gap = max(self.largest_gap, comparison.largest_gap)
            case "diverged":
                self.diverged += 1
        if comparison.tolerance is not None:
            self.largest_tolerance = max(self.largest_tolerance or 0.0, comparison.tolerance)
        if self.statistics is None:
            self.statistics = Statistics()
        self.statistics.merge(comparison.statistics)

    @property
    def tau(self) -> float | None:
        return self.statistics.mean_acceptance_length if self.statistics else None

    @property
    def prompts(self) -> int:
        return self.identical + self.ties + self.diverged

    def passed(self, *, strict: bool) -> bool:
        return self.diverged == 0 and not (strict and self.ties)

    def as_json(self) -> JsonObject:
        statistics = self.statistics or Statistics()
        return {
            "prompts": self.prompts,
            "identical": self.identical,
            "tie": self.ties,
            "diverged": self.diverged,
            "tokens_compared": self.tokens,
            "largest_gap": self.largest_gap,
            "largest_tolerance": self.largest_tolerance,
            "mean_acceptance_length": statistics.mean_acceptance_length,
            "draft_acceptance_rate": statistics.draft_acceptance_rate,
            "looks_foreign": statistics.looks_foreign,
        }
