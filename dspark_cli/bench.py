"""Side by side: the same prompts plainly and under each schedule, in turn, several times.

Machines are shared and noisy, so nothing here is compared with another day: all arms run within
one process, alternating prompt by prompt, and what counts is each prompt's median and the ratio of
two sides.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from statistics import median

from dspark_cli.errors import DsparkError, InterruptedRunError
from dspark_cli.generate import Generation
from dspark_cli.options import GenerationOptions
from dspark_cli.pair import Pair
from dspark_cli.schedule import Costs, ScheduleOptions
from dspark_cli.stats import JsonObject, Statistics, ratio

PLAIN = "plain"
WARM_UP_TOKENS = 16


@dataclass(frozen=True, slots=True)
class BenchPrompt:
    """Tokens to continue, and the kind of text that they ask for."""

    tokens: tuple[int, ...]
    category: str


@dataclass(frozen=True, slots=True)
class Arm:
    """One way of decoding."""

    name: str
    pair: Pair
    schedule: ScheduleOptions


@dataclass(slots=True)
class Measured:
    """What one arm did with one prompt, trial by trial."""

    tokens: int = 0
    seconds: list[float] = field(default_factory=list)

    @property
    def median_seconds(self) -> float:
        return median(self.seconds)


@dataclass(slots=True)
class Bench:
    """Everything that was measured."""

    prompts: tuple[BenchPrompt, ...]
    arms: tuple[str, ...]
    cells: dict[tuple[str, int], Measured] = field(default_factory=dict)  # arm, prompt
    statistics: dict[str, Statistics] = field(default_factory=dict)  # of an arm's first trial
    costs: Costs | None = None  # that ``auto`` decided by

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
        for arm in self.arms:
            statistics = self.statistics.get(arm, Statistics())
            spread = self.spread(arm)
            arms[arm] = {
                "tokens_per_second": self.tokens_per_second(arm),
                "ratio_to_plain": self.ratio(arm),
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
            "score_seconds": list(self.costs.score) if self.costs else None,
            "draft_seconds": list(self.costs.draft) if self.costs else None,
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

    Raises InterruptedRunError after Ctrl-C.
    """
    bench = Bench(tuple(prompts), tuple(arm.name for arm in arms))
    bench.costs = next((arm.schedule.costs for arm in arms if arm.schedule.costs), None)
    for arm in arms:
        _decode(arm, prompts[0], min(tokens, WARM_UP_TOKENS))
    steps, done = trials * len(prompts) * len(arms), 0
    for trial in range(trials):
        for index, prompt in enumerate(prompts):
            # Whoever goes first meets a cooler machine: every arm takes that place in turn.
            turn = (trial + index) % len(arms)
            for arm in [*arms[turn:], *arms[:turn]]:
                run = _decode(arm, prompt, tokens)
                cell = bench.cells.setdefault((arm.name, index), Measured())
                cell.tokens = run.statistics.n_predict
                cell.seconds.append(run.statistics.decode_seconds)
                if trial == 0:
                    bench.statistics.setdefault(arm.name, Statistics()).merge(run.statistics)
                done += 1
                progress(done, steps, f"{prompt.category}, {arm.name}")
    return bench


def _decode(arm: Arm, prompt: BenchPrompt, tokens: int) -> Generation:
    options = GenerationOptions(n_predict=tokens, schedule=arm.schedule)
    run = Generation(arm.pair, list(prompt.tokens), options)
    for _ in run:
        pass
    if run.finish_reason == "interrupted":
        raise InterruptedRunError
    return run


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
