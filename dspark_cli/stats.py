"""Add up what the rounds report: acceptance, lengths, time, and whether drafting paid.

Names are those that vLLM and AIPerf share. A rate with nothing below the line is None, never NaN.
Pure arithmetic over events.
"""

from dataclasses import dataclass, field
from statistics import median
from typing import TypeAlias, TypeVar

from dspark_cli.events import Finish, FinishReason, Prefill, Report, Round

JsonValue: TypeAlias = "bool | int | float | str | list[JsonValue] | dict[str, JsonValue] | None"
Number = TypeVar("Number", int, float)
JsonObject: TypeAlias = dict[str, JsonValue]

FIRST_DEPTH = 1024  # positions; every further bucket of depth is twice as long
FOREIGN_ROUNDS = 32  # drafted rounds before a drafter is called a stranger
FOREIGN_RATE = 0.2  # first-position acceptance below which it is called so


def ratio(part: float, whole: float) -> float | None:
    return part / whole if whole else None


def depth_of(position: int) -> int:
    """Where the bucket of a position begins: 0, 1024, 2048, 4096, and so on doubling."""
    return 0 if position < FIRST_DEPTH else 1 << (position.bit_length() - 1)


@dataclass(frozen=True, slots=True)
class Depth:
    """What came of the drafts that were made between two depths of the context."""

    steps: int = 0
    scored: int = 0
    accepted: int = 0

    @property
    def mean_acceptance_length(self) -> float | None:
        accepted = ratio(self.accepted, self.steps)
        return None if accepted is None else 1 + accepted

    def plus(self, other: "Depth") -> "Depth":
        return Depth(
            self.steps + other.steps, self.scored + other.scored, self.accepted + other.accepted
        )

    def as_json(self, begins: int) -> JsonObject:
        return {
            "from_position": begins,
            "to_position": 2 * begins or FIRST_DEPTH,
            "num_spec_steps": self.steps,
            "num_draft_tokens": self.scored,
            "num_accepted_draft_tokens": self.accepted,
            "draft_acceptance_rate": ratio(self.accepted, self.scored),
            "mean_acceptance_length": self.mean_acceptance_length,
        }


@dataclass(slots=True)
class Statistics:
    """Sums over one run, or over several added together with ``merge``."""

    n_prompt: int = 0
    n_predict: int = 0
    num_spec_steps: int = 0  # rounds with a scored draft
    num_plain_steps: int = 0  # rounds without
    num_shadow_steps: int = 0  # of those, with a draft that was not scored
    num_proposed_draft_tokens: int = 0
    num_draft_tokens: int = 0  # scored: accepted + rejected + ignored
    num_accepted_draft_tokens: int = 0
    num_rejected_draft_tokens: int = 0
    num_ignored_draft_tokens: int = 0
    num_expected_draft_tokens: float = 0.0  # accepted ones that the schedule reckoned with,
    expecting_steps: int = 0  # in so many steps
    histogram: dict[int, int] = field(default_factory=dict)  # accepted in a step -> steps
    scored_lengths: dict[int, int] = field(default_factory=dict)  # scored in a round -> rounds
    judged_per_pos: list[int] = field(default_factory=list)  # steps whose draft reached here
    reached_per_pos: list[int] = field(default_factory=list)  # ... with all before accepted
    accepted_per_pos: list[int] = field(default_factory=list)
    confidence_sums: list[float] = field(default_factory=list)
    confidence_counts: list[int] = field(default_factory=list)
    prefill_seconds: float = 0.0
    prefill_tokens: int = 0
    decode_seconds: float = 0.0  # of all rounds; what their reader did between is not in it
    draft_seconds: float = 0.0
    score_seconds: float = 0.0
    inject_seconds: float = 0.0
    rollback_seconds: float = 0.0
    rollback_tokens: int = 0  # decoded once more
    depths: dict[int, Depth] = field(default_factory=dict)  # by the depth where they begin
    plain_score_seconds: list[float] = field(default_factory=list)  # single-token passes
    finish_reason: FinishReason | None = None

    def add(self, event: Report) -> None:
        match event:
            case Prefill():
                self.prefill_seconds += event.score_seconds + event.inject_seconds
                self.prefill_tokens = event.done
            case Round():
                self._add_round(event)
            case Finish():
                self.finish_reason = event.reason
            case _:
                pass

    def _add_round(self, round_: Round) -> None:
        self.n_predict += len(round_.tokens)
        self.num_proposed_draft_tokens += round_.proposed
        self.num_draft_tokens += round_.scored
        self.num_accepted_draft_tokens += round_.accepted
        self.num_rejected_draft_tokens += round_.rejected
        self.num_ignored_draft_tokens += round_.ignored
        self.decode_seconds += round_.seconds
        self.draft_seconds += round_.draft_seconds
        self.score_seconds += round_.score_seconds
        self.inject_seconds += round_.inject_seconds
        self.rollback_seconds += round_.rollback.seconds
        self.rollback_tokens += round_.rollback.tokens
        self.scored_lengths[round_.scored] = self.scored_lengths.get(round_.scored, 0) + 1
        if not round_.scored:
            self.num_plain_steps += 1
            self.num_shadow_steps += round_.proposed > 0
            self.plain_score_seconds.append(round_.score_seconds)
            return
        self.num_spec_steps += 1
        if round_.expected is not None:
            self.expecting_steps += 1
            self.num_expected_draft_tokens += round_.expected
        self.histogram[round_.accepted] = self.histogram.get(round_.accepted, 0) + 1
        begins = depth_of(round_.position)
        depth = Depth(1, round_.scored, round_.accepted)
        self.depths[begins] = self.depths.get(begins, Depth()).plus(depth)
        for position in range(round_.scored - round_.ignored):
            _bump(self.judged_per_pos, position, by=1)
            _bump(self.reached_per_pos, position, by=position <= round_.accepted)
            _bump(self.accepted_per_pos, position, by=position < round_.accepted)
        for position, confidence in enumerate(round_.confidences):
            _bump(self.confidence_sums, position, by=confidence)
            _bump(self.confidence_counts, position, by=1)

    def merge(self, other: "Statistics") -> None:
        """Add another run's sums to these."""
        for name in (
            "n_prompt", "n_predict", "num_spec_steps", "num_plain_steps", "num_shadow_steps",
            "num_expected_draft_tokens", "expecting_steps",
            "num_proposed_draft_tokens", "num_draft_tokens", "num_accepted_draft_tokens",
            "num_rejected_draft_tokens", "num_ignored_draft_tokens", "prefill_seconds",
            "prefill_tokens", "decode_seconds", "draft_seconds", "score_seconds", "inject_seconds",
            "rollback_seconds", "rollback_tokens",
        ):  # fmt: skip
            setattr(self, name, getattr(self, name) + getattr(other, name))
        for ours, theirs in (
            (self.histogram, other.histogram),
            (self.scored_lengths, other.scored_lengths),
        ):
            for length, count in theirs.items():
                ours[length] = ours.get(length, 0) + count
        for name in (
            "judged_per_pos", "reached_per_pos", "accepted_per_pos", "confidence_sums",
            "confidence_counts",
        ):  # fmt: skip
            for position, value in enumerate(getattr(other, name)):
                _bump(getattr(self, name), position, by=value)
        for begins, depth in other.depths.items():
            self.depths[begins] = self.depths.get(begins, Depth()).plus(depth)
        self.plain_score_seconds += other.plain_score_seconds
        self.finish_reason = other.finish_reason

    @property
    def rounds(self) -> int:
        return self.num_spec_steps + self.num_plain_steps

    @property
    def mean_acceptance_length(self) -> float | None:
        """Tau: 1 + accepted per step that scored a draft; a step cut by the end had no bonus."""
        accepted = ratio(self.num_accepted_draft_tokens, self.num_spec_steps)
        return None if accepted is None else 1 + accepted

    @property
    def expected_acceptance_length(self) -> float | None:
        """The tau that the schedule reckoned with; None where it foretells nothing."""
        expected = ratio(self.num_expected_draft_tokens, self.expecting_steps)
        return None if expected is None else 1 + expected

    @property
    def draft_acceptance_rate(self) -> float | None:
        return ratio(self.num_accepted_draft_tokens, self.num_draft_tokens)

    @property
    def acceptance_rate_per_pos(self) -> list[float | None]:
        """Share of steps that accepted this draft position, of those whose draft reached it."""
        return [
            ratio(hits, judged)
            for hits, judged in zip(self.accepted_per_pos, self.judged_per_pos, strict=True)
        ]

    @property
    def conditional_acceptance_rate_per_pos(self) -> list[float | None]:
        """The same, only among steps that had accepted every position before it."""
        return [
            ratio(hits, reached)
            for hits, reached in zip(self.accepted_per_pos, self.reached_per_pos, strict=True)
        ]

    @property
    def mean_confidence_per_pos(self) -> list[float | None]:
        return [
            ratio(total, count)
            for total, count in zip(self.confidence_sums, self.confidence_counts, strict=True)
        ]

    @property
    def mean_confidence(self) -> float | None:
        return ratio(sum(self.confidence_sums), sum(self.confidence_counts))

    @property
    def other_seconds(self) -> float:
        """Decode time outside llama.cpp's decode calls: Python and sampling."""
        inside = self.draft_seconds + self.score_seconds + self.inject_seconds
        inside += self.rollback_seconds
        return max(self.decode_seconds - inside, 0.0)

    @property
    def looks_foreign(self) -> bool:
        """Whether the drafter does not seem to have been made for this target."""
        if not self.judged_per_pos or self.judged_per_pos[0] < FOREIGN_ROUNDS:
            return False
        return self.accepted_per_pos[0] < FOREIGN_RATE * self.judged_per_pos[0]

    @property
    def single_token_seconds(self) -> float | None:
        """Median time of a target pass over one token."""
        return median(self.plain_score_seconds) if self.plain_score_seconds else None

    @property
    def plain_seconds_estimate(self) -> float | None:
        """What the same tokens would have taken one at a time.

        A plain round has its share of time outside llama.cpp too.
        """
        single, outside = self.single_token_seconds, ratio(self.other_seconds, self.rounds)
        if single is None or outside is None:
            return None
        return (single + outside) * self.n_predict

    @property
    def saved_seconds(self) -> float | None:
        """Time that drafting saved; negative where it cost time; None without a draft."""
        plain, drafted = self.plain_seconds_estimate, self.num_spec_steps or self.num_shadow_steps
        return plain - self.decode_seconds if plain is not None and drafted else None

    def as_json(self) -> JsonObject:
        """The documented keys, in the order of the README."""
        return {
            "n_prompt": self.n_prompt,
            "n_predict": self.n_predict,
            "num_spec_steps": self.num_spec_steps,
            "num_plain_steps": self.num_plain_steps,
            "num_shadow_steps": self.num_shadow_steps,
            "num_proposed_draft_tokens": self.num_proposed_draft_tokens,
            "num_draft_tokens": self.num_draft_tokens,
            "num_accepted_draft_tokens": self.num_accepted_draft_tokens,
            "num_rejected_draft_tokens": self.num_rejected_draft_tokens,
            "num_ignored_draft_tokens": self.num_ignored_draft_tokens,
            "mean_acceptance_length": self.mean_acceptance_length,
            "expected_acceptance_length": self.expected_acceptance_length,
            "draft_acceptance_rate": self.draft_acceptance_rate,
            "acceptance_histogram": {
                str(accepted): self.histogram[accepted] for accepted in sorted(self.histogram)
            },
            "scored_length_histogram": {
                str(length): self.scored_lengths[length] for length in sorted(self.scored_lengths)
            },
            "acceptance_rate_per_pos": list(self.acceptance_rate_per_pos),
            "conditional_acceptance_rate_per_pos": list(self.conditional_acceptance_rate_per_pos),
            "acceptance_by_depth": [
                depth.as_json(begins) for begins, depth in sorted(self.depths.items())
            ],
            "rollback_tokens": self.rollback_tokens,
            "mean_confidence": self.mean_confidence,
            "mean_confidence_per_pos": list(self.mean_confidence_per_pos),
        }

    def timings_as_json(self) -> JsonObject:
        """Seconds and speeds; ``saved_seconds`` is an estimate."""
        return {
            "prefill_seconds": self.prefill_seconds,
            "prefill_tokens_per_second": ratio(self.prefill_tokens, self.prefill_seconds),
            "decode_seconds": self.decode_seconds,
            "decode_tokens_per_second": ratio(self.n_predict, self.decode_seconds),
            "draft_seconds": self.draft_seconds,
            "score_seconds": self.score_seconds,
            "inject_seconds": self.inject_seconds,
            "rollback_seconds": self.rollback_seconds,
            "other_seconds": self.other_seconds,
            "other_share": ratio(self.other_seconds, self.decode_seconds),
            "single_token_seconds": self.single_token_seconds,
            "plain_seconds_estimate": self.plain_seconds_estimate,
            "saved_seconds": self.saved_seconds,
        }


def _bump(values: list[Number], index: int, by: Number) -> None:
    """Add to an entry of a list that grows as needed."""
    values.extend([0] * (index + 1 - len(values)))
    values[index] += by
