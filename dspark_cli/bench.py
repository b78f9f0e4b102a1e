"""Side by side: the same prompts plainly and under each schedule, in turn, several times.

Machines are shared and noisy, so nothing here is compared with another day: all arms run within
one process, alternating prompt by prompt, and what counts is each prompt's median and the ratio of
two sides.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from statistics import median
from typing import Protocol

import numpy as np

from dspark_cli.auto import make_schedule
from dspark_cli.bounds import speed_bound
from dspark_cli.decode import Decoding
from dspark_cli.engine.drafter import Draft, Drafter
from dspark_cli.engine.sampler import argmax
from dspark_cli.errors import DsparkError, InterruptedRunError
from dspark_cli.events import Finish, Round
from dspark_cli.generate import Generation
from dspark_cli.measure import watch
from dspark_cli.options import GenerationOptions
from dspark_cli.pair import Pair
from dspark_cli.peer import Peer
from dspark_cli.schedule import Costs, ScheduleOptions
from dspark_cli.stats import JsonObject, Statistics, ratio

PLAIN, ORACLE, PEER = "plain", "oracle", "peer"
CERTAIN = 0.99  # what an oracle trusts its tokens
FORESIGHTS = 5  # runs in which an oracle learns its text: other widths may round otherwise
WARM_UP_TOKENS = 16


@dataclass(frozen=True, slots=True)
class BenchPrompt:
    """Tokens to continue, and the kind of text that they ask for."""

    tokens: tuple[int, ...]
    category: str


class Arm(Protocol):
    """One side: a way of decoding."""

    @property
    def name(self) -> str: ...
    def decode(self, prompt: Sequence[int], tokens: int, /) -> Statistics:
        """Continue ``prompt`` by ``tokens`` tokens; raises InterruptedRunError after Ctrl-C."""
        ...


@dataclass(frozen=True, slots=True)
class ScheduleArm:
    """A pair under a schedule; plainly where it has no drafter."""

    name: str
    pair: Pair
    schedule: ScheduleOptions

    def decode(self, prompt: Sequence[int], tokens: int) -> Statistics:
        options = GenerationOptions(n_predict=tokens, schedule=self.schedule)
        run = Generation(self.pair, [*prompt], options)
        for _ in run:
            pass
        if run.finish_reason == "interrupted":
            raise InterruptedRunError
        return run.statistics


@dataclass(frozen=True, slots=True)
class Oracle:
    """A drafter that takes its usual time, and then says what it knows to be right."""

    drafter: Drafter
    text: Sequence[int]  # the prompt and its continuation

    def propose(self, last: int, position: int, most: int) -> Draft:
        draft = self.drafter.propose(last, position, most)
        right = tuple(self.text[position + 1 : position + 1 + len(draft.tokens)])
        return replace(draft, tokens=right, confidences=(CERTAIN,) * len(right))

    def observe(self, taps: np.ndarray, position: int) -> float:
        return self.drafter.observe(taps, position)


@dataclass(frozen=True, slots=True)
class OracleArm:
    """A drafter that is always right: what any drafter of this size could be worth here."""

    pair: Pair
    drafter: Drafter
    schedule: ScheduleOptions
    name: str = ORACLE
    _texts: dict[tuple[int, ...], list[int]] = field(init=False, default_factory=dict)

    def decode(self, prompt: Sequence[int], tokens: int) -> Statistics:
        """As an ordinary run, but for the drafter; the text to know is found first, untimed."""
        known = (*prompt, tokens)
        if known not in self._texts:
            text: list[int] = []
            for _ in range(FORESIGHTS):
                before, text = text, self._run(prompt, tokens, text)[0]
                if text == before:
                    break
            self._texts[known] = text
        return self._run(prompt, tokens, self._texts[known])[1]

    def _run(
        self, prompt: Sequence[int], tokens: int, text: list[int]
    ) -> tuple[list[int], Statistics]:
        """What the target says to a drafter that says ``text``."""
        said, statistics = list[int](), Statistics(n_prompt=len(prompt))
        self.pair.clear()
        for event in Decoding(
            self.pair.target,
            Oracle(self.drafter, [*prompt, *text]),
            prompt,
            argmax,
            room=self.pair.room,
            limit=tokens,
            ends=lambda token: "eog" if self.pair.vocabulary.is_eog(token) else None,
            schedule=make_schedule(self.schedule, len(prompt)),
        ):
            statistics.add(event)
            if isinstance(event, Round):
                said += event.tokens
            if isinstance(event, Finish) and event.reason == "interrupted":
                raise InterruptedRunError
        return said, statistics


@dataclass(frozen=True, slots=True)
class PeerArm:
    """Another program on the same files, prompts and threads."""

    peer: Peer
    name: str = PEER

    def decode(self, prompt: Sequence[int], tokens: int) -> Statistics:
        return self.peer.decode(prompt, tokens)


@dataclass(slots=True)
class Measured:
    """What one arm did with one prompt, trial by trial."""

    tokens: int = 0
    seconds: list[float] = field(default_factory=list)

    @property
    def median_seconds(self) -> float:
        return median(self.seconds)


@dataclass(frozen=True, slots=True)
class Bounds:
    """What the measured costs allow, as multiples of plain decoding."""

    costs: Costs  # at the depth of the first prompt
    hindsight: float | None  # with this drafter, every draft as long as it is right
    perfect: float | None  # with a drafter that is always right


@dataclass(slots=True)
class Bench:
    """Everything that was measured."""

    prompts: tuple[BenchPrompt, ...]
    arms: tuple[str, ...]
    cells: dict[tuple[str, int], Measured] = field(default_factory=dict)  # arm, prompt
    statistics: dict[str, Statistics] = field(default_factory=dict)  # of an arm's first trial
    bounds: Bounds | None = None

    @property
    def categories(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(prompt.category for prompt in self.prompts))

    def ratio(self, arm: str, *, to: str = PLAIN, category: str | None = None) -> float | None:
        """Speed of ``arm`` as a multiple of another's.

        The medians of all prompts added up, per token: rounding may end one arm's text earlier.
        """
        ours, theirs = (self._seconds_per_token(name, category) for name in (arm, to))
        return ratio(theirs, ours) if ours is not None and theirs is not None else None

    def spread(self, arm: str, *, to: str = PLAIN) -> tuple[float, float] | None:
        """The slowest and the fastest prompt's ratio."""
        ratios = [
            (theirs.median_seconds / theirs.tokens) / (ours.median_seconds / ours.tokens)
            for ours, theirs in self._cells_of(arm, to)
            if ours.tokens and theirs.tokens and ours.median_seconds
        ]
        return (min(ratios), max(ratios)) if ratios else None

    def tokens_per_second(self, arm: str, category: str | None = None) -> float | None:
        seconds = self._seconds_per_token(arm, category)
        return ratio(1.0, seconds) if seconds else None

    def as_json(self) -> JsonObject:
        """The document of ``dspark bench --json``."""
        arms: JsonObject = {}
        bounds = self.bounds
        for arm in self.arms:
            statistics = self.statistics.get(arm, Statistics())
            spread = self.spread(arm)
            arms[arm] = {
                "tokens_per_second": self.tokens_per_second(arm),
                "ratio_to_plain": self.ratio(arm),
                "ratio_to_peer": self.ratio(arm, to=PEER),
                "ratio_spread": list(spread) if spread else None,
                "by_category": {
                    category: self.ratio(arm, category=category) for category in self.categories
                },
                **statistics.as_json(),
                "timings": statistics.timings_as_json(),
            }
        return {
            "prompts": len(self.prompts),
            "trials": max((len(cell.seconds) for cell in self.cells.values()), default=0),
            "score_seconds": list(bounds.costs.score) if bounds else None,
            "draft_seconds": list(bounds.costs.draft) if bounds else None,
            "inject_seconds": list(bounds.costs.inject) if bounds else None,
            "hindsight_ratio_to_plain": bounds.hindsight if bounds else None,
            "perfect_ratio_to_plain": bounds.perfect if bounds else None,
            "arms": arms,
        }

    def _cells_of(self, *arms: str) -> Iterator[tuple[Measured, ...]]:
        for index in range(len(self.prompts)):
            found = tuple(self.cells.get((arm, index)) for arm in arms)
            if all(cell is not None and cell.seconds for cell in found):
                yield tuple(cell for cell in found if cell is not None)

    def _seconds_per_token(self, arm: str, category: str | None) -> float | None:
        chosen = [
            self.cells[arm, index]
            for index, prompt in enumerate(self.prompts)
            if (arm, index) in self.cells and category in {None, prompt.category}
        ]
        tokens = sum(cell.tokens for cell in chosen)
        return ratio(sum(cell.median_seconds for cell in chosen), tokens)


def run_bench(
    arms: Sequence[Arm],
    prompts: Sequence[BenchPrompt],
    *,
    tokens: int,
    trials: int,
    progress: Callable[[float, float, str], None],
) -> Bench:
    """Measure every arm on every prompt, ``trials`` times.

    Raises InterruptedRunError after Ctrl-C, and what an arm raises.
    """
    bench = Bench(tuple(prompts), tuple(arm.name for arm in arms))
    for arm in arms:
        arm.decode(prompts[0].tokens, min(tokens, WARM_UP_TOKENS))
    steps, done = trials * len(prompts) * len(arms), 0
    for trial in range(trials):
        for index, prompt in enumerate(prompts):
            # Whoever goes first meets a cooler machine: every arm takes that place in turn.
            turn = (trial + index) % len(arms)
            for arm in [*arms[turn:], *arms[:turn]]:
                statistics = arm.decode(prompt.tokens, tokens)
                cell = bench.cells.setdefault((arm.name, index), Measured())
                cell.tokens = statistics.n_predict
                cell.seconds.append(statistics.decode_seconds)
                if trial == 0:
                    bench.statistics.setdefault(arm.name, Statistics()).merge(statistics)
                done += 1
                progress(done, steps, f"{prompt.category}, {arm.name}")
    return bench


def find_bounds(
    pair: Pair,
    costs: Costs,
    prompts: Sequence[BenchPrompt],
    *,
    tokens: int,
    progress: Callable[[float, float, str], None],
) -> Bounds:
    """What no schedule exceeds; the drafter is watched at every position of every answer.

    Raises UsageError without a drafter, InterruptedRunError after Ctrl-C.
    """
    texts, here = [], []
    for index, prompt in enumerate(prompts):
        texts.append(watch(pair, prompt.tokens, tokens).right)
        here.append(costs.at(len(prompt.tokens)))
        progress(index + 1, len(prompts), f"{index + 1} prompts")
    always = [[costs.longest] * len(right) for right in texts]
    return Bounds(here[0], speed_bound(texts, here), speed_bound(always, here))


def fitting(
    prompts: Sequence[BenchPrompt], room: int, tokens: int
) -> tuple[list[BenchPrompt], int]:
    """The prompts whose answers fit into the context, and how many do not.

    Raises DsparkError where none does.
    """
    found = [prompt for prompt in prompts if 0 < len(prompt.tokens) <= room - tokens]
    if not found:
        raise DsparkError(
            f"none of {len(prompts)} prompts leaves room for {tokens} tokens in a context of "
            f"{room}"
        )
    return found, len(prompts) - len(found)
