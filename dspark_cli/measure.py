"""What a pair costs on this machine, and what its confidences are worth.

Everything else that decides about a draft is arithmetic. Timed passes run over a filled memory of
ordinary depth, each length in turn and again, so that a slow moment of the machine hits all.
"""

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import reduce
from statistics import median

import numpy as np

from dspark_cli.confidence import Outcomes
from dspark_cli.decode import Decoding
from dspark_cli.engine.sampler import argmax
from dspark_cli.errors import InterruptedRunError, UsageError
from dspark_cli.events import Finish
from dspark_cli.pair import Pair
from dspark_cli.schedule import Costs, Cut, Growth, Outcome

DEPTH = 128  # tokens in memory while measuring, at most half the context
DEEP = 2048  # tokens in memory while measuring what more of them cost, at most
LEAST_DESCENT = 256  # tokens between the two, or the difference drowns in noise
MOST_FILLING = 60.0  # seconds
FEWEST_TURNS, MOST_TURNS = 2, 25  # every length is timed once a turn, and the median counts
GROWTH_TURNS = 10
INJECTIONS = 3
INJECTED = (1, 9)  # rows of the timed injections, which tell a batch from a row
LEAST_CHANCE = 1e-6  # a confidence of 0 or 1 has no logit
STRIDE = 7919  # a prime: filler tokens spread over the vocabulary


@dataclass(slots=True)
class Watched:
    """A schedule that lets the target decode plainly, and notes what would have been drafted.

    Every list has an entry per round, which commits one token.
    """

    drafts: list[tuple[int, ...]] = field(default_factory=list)
    confidences: list[tuple[float, ...]] = field(default_factory=list)
    text: list[int] = field(default_factory=list)
    patient: bool = field(init=False, default=False)

    def rows(self, most: int) -> int:
        return most

    def cut(self, confidences: Sequence[float], proposed: int) -> Cut:
        self.confidences.append(tuple(confidences[:proposed]))
        return Cut(0)

    def learn(self, outcome: Outcome) -> None:
        self.drafts.append(outcome.draft)
        self.text += outcome.committed

    @property
    def right(self) -> list[int]:
        """How many leading tokens of every draft are the text's own."""
        return [
            common_prefix(draft, self.text[begin : begin + len(draft)])
            for begin, draft in enumerate(self.drafts)
        ]

    def outcomes(self, size: int) -> Outcomes:
        """What came of the confidences; drafts have up to ``size`` tokens."""
        shape = (len(self.drafts), size)
        confidence, hits, real = np.zeros(shape), np.zeros(shape, bool), np.zeros(shape, bool)
        for begin, (draft, said, right) in enumerate(
            zip(self.drafts, self.confidences, self.right, strict=True)
        ):
            clipped = np.clip(said, LEAST_CHANCE, 1 - LEAST_CHANCE)
            confidence[begin, : len(said)] = np.log(clipped / (1 - clipped))
            hits[begin, :right] = True
            real[begin, : min(len(draft), len(self.text) - begin)] = True
        return Outcomes(confidence, hits, real)


def common_prefix(one: Sequence[int], other: Sequence[int]) -> int:
    """How many leading entries are the same."""
    differ = (at for at, (ours, its) in enumerate(zip(one, other, strict=False)) if ours != its)
    return next(differ, min(len(one), len(other)))


def watch(pair: Pair, prompt: Sequence[int], tokens: int) -> Watched:
    """Continue a prompt greedily, with a draft at every position that is not scored.

    Raises UsageError without a drafter, InterruptedRunError after Ctrl-C.
    """
    if pair.drafter is None:
        raise UsageError("there is no drafter that could be watched")
    pair.clear()
    watched = Watched()
    for event in Decoding(
        pair.target,
        pair.drafter,
        prompt,
        argmax,
        room=pair.room,
        limit=tokens,
        ends=lambda token: "eog" if pair.vocabulary.is_eog(token) else None,
        schedule=watched,
    ):
        if isinstance(event, Finish) and event.reason == "interrupted":
            raise InterruptedRunError
    return watched


def measure_confidences(
    pair: Pair,
    prompts: Sequence[Sequence[int]],
    tokens: int,
    *,
    progress: Callable[[float, float], None] = lambda _done, _all: None,
) -> tuple[Outcomes, Outcomes]:
    """Watch the drafter over some prompts and note what came of every confidence, in two halves.

    Raises UsageError without a drafter, InterruptedRunError after Ctrl-C.
    """
    if pair.drafter is None:
        raise UsageError("there is no drafter whose confidences could be measured")
    halves: tuple[list[Outcomes], list[Outcomes]] = ([], [])
    for index, prompt in enumerate(prompts):
        halves[index % 2].append(watch(pair, prompt, tokens).outcomes(pair.drafter.draft_max))
        progress(index + 1, len(prompts))
    nothing = Watched().outcomes(pair.drafter.draft_max)
    one, other = (reduce(Outcomes.joined, half, nothing) for half in halves)
    return one, other


def measure_costs(
    pair: Pair,
    *,
    seconds: float = math.inf,
    progress: Callable[[float, float], None] = lambda _done, _all: None,
    clock: Callable[[], float] = time.perf_counter,
) -> Costs:
    """Time a pair for about ``seconds``; its memory is empty afterwards.

    Raises UsageError without a drafter, or where the context is too small to measure in.
    """
    began = clock()
    bench = Timing(pair)
    beyond = INJECTIONS * sum(INJECTED) + bench.longest + 1
    depth = min(DEPTH, pair.room - beyond)
    if depth < 1:
        raise UsageError(
            f"-c {pair.room} is too small to measure in, wanted at least {beyond + 1}"
        )
    bench.fill(depth)
    for turn in range(MOST_TURNS):
        bench.take_turn()
        progress(turn + 1, MOST_TURNS)
        if turn + 1 >= FEWEST_TURNS and clock() - began > seconds:
            break
    score, draft = bench.medians()
    inject = bench.injections()
    pair.clear()
    return Costs(score, draft, inject, depth)


def measure_growth(
    pair: Pair,
    *,
    seconds: float = MOST_FILLING,
    turns: int = GROWTH_TURNS,
    progress: Callable[[float, float], None] = lambda _done, _all: None,
    clock: Callable[[], float] = time.perf_counter,
) -> Growth | None:
    """What every position of the context adds to the costs; the pair's memory is empty afterwards.

    Times the pair twice, before and after filling its memory for at most ``seconds``. Nothing
    grows as far as is known where filling so little that it tells nothing would take longer; None
    where the context holds too little. Raises UsageError without a drafter.
    """
    bench = Timing(pair)
    shallow = min(DEPTH, pair.room)
    deep = min(DEEP, pair.room - bench.longest - 1)
    if deep - shallow < LEAST_DESCENT:
        return None
    began = clock()
    bench.fill(shallow)
    if (clock() - began) / shallow * LEAST_DESCENT > seconds:
        pair.clear()
        return Growth((0.0,) * (bench.longest + 1), (0.0,) * (bench.longest + 1))
    found = []
    for half in range(2):
        if half:
            began = clock()
            while bench.depth < deep and clock() - began < seconds:
                bench.fill(min(bench.depth + DEPTH, deep))
        depth = bench.depth
        for turn in range(turns):
            bench.take_turn()
            progress((half + (turn + 1) / turns) / 2, 1.0)
        found.append((depth, *bench.medians()))
    pair.clear()
    (before, *first), (after, *second) = found
    score, draft = (
        [(late - early) / (after - before) for early, late in zip(*tables, strict=True)]
        for tables in zip(first, second, strict=True)
    )
    return Growth(straightened(score), (0.0, *straightened(draft[1:])))


def straightened(growth: Sequence[float]) -> tuple[float, ...]:
    """A straight line through measured growths, at least 0: every further row adds as much.

    Each alone is the small difference of two noisy times.
    """
    if len(growth) < 2:  # noqa: PLR2004  one point is no line
        return tuple(max(value, 0.0) for value in growth)
    rows = np.arange(len(growth))
    slope, first = np.polyfit(rows, growth, 1)
    return tuple(max(float(first + slope * row), 0.0) for row in rows)


class Timing:
    """Times passes over a memory that it fills with other text."""

    def __init__(self, pair: Pair) -> None:
        """Raises UsageError without a drafter."""
        if pair.drafter is None:
            raise UsageError("there is no drafter whose costs could be measured")
        self._target, self._drafter = pair.target, pair.drafter
        self._vocabulary = len(pair.vocabulary)
        self.longest = pair.drafter.draft_max
        self.depth = 0  # positions in memory
        self._score: list[list[float]] = [[] for _ in range(self.longest + 1)]
        self._draft: list[list[float]] = [[] for _ in range(self.longest + 1)]
        pair.clear()

    def _tokens(self, count: int) -> list[int]:
        """What comes next: tokens from all over the vocabulary."""
        return [(at * STRIDE) % self._vocabulary for at in range(self.depth, self.depth + count)]

    def fill(self, depth: int) -> None:
        """Read on up to a depth of the context, and forget the times taken above it."""
        for times in (*self._score, *self._draft):
            times.clear()
        while self.depth < depth:
            self._read(min(self._target.chunk, depth - self.depth))

    def _read(self, rows: int) -> float:
        """Read some tokens into both memories; returns the seconds of injecting their taps."""
        self._target.read(self._tokens(rows), self.depth)
        seconds = self._drafter.observe(self._target.taps(rows), self.depth)
        self.depth += rows
        return seconds

    def take_turn(self) -> None:
        """Time every length once, scored and drafted."""
        tokens = self._tokens(self.longest + 1)
        # Plain passes follow one another, which saves llama.cpp the making of another graph;
        # scored drafts change their length.
        self._target.rehearse(tokens[:1], self.depth, kept=1)
        for length in range(self.longest + 1):
            # A pass costs what it takes to go back in it, as if half of the draft were rejected.
            seconds = self._target.rehearse(tokens[: length + 1], self.depth, kept=1 + length // 2)
            self._score[length].append(seconds)
            if length:
                self._draft[length].append(
                    self._drafter.propose(tokens[0], self.depth, length).seconds
                )

    def medians(self) -> tuple[tuple[float, ...], tuple[float, ...]]:
        """Seconds of scoring 0, 1, ... draft tokens, and of drafting as many."""
        return (
            tuple(median(times) for times in self._score),
            (0.0, *(median(times) for times in self._draft[1:])),
        )

    def injections(self) -> tuple[float, float]:
        """Seconds of an injection: of any batch, and of every row."""
        few, many = INJECTED[0], min(INJECTED[1], self._target.chunk)
        taken: dict[int, list[float]] = {rows: [] for rows in (few, many)}
        for _ in range(INJECTIONS):
            for rows in (few, many):
                taken[rows].append(self._read(rows))
        per_row = max(median(taken[many]) - median(taken[few]), 0.0) / (many - few)
        return max(median(taken[few]) - few * per_row, 0.0), per_row
