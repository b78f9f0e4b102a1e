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
from dspark_cli.engine.drafter import Drafter
from dspark_cli.engine.sampler import argmax
from dspark_cli.engine.target import Target
from dspark_cli.errors import InterruptedRunError, UsageError
from dspark_cli.events import Finish
from dspark_cli.pair import Pair
from dspark_cli.schedule import Costs, Cut, Outcome

DEPTH = 128  # tokens in memory while measuring, at most half the context
FEWEST_TURNS, MOST_TURNS = 2, 25  # every length is timed once a turn, and the median counts
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
    drafter, target = pair.drafter, pair.target
    if drafter is None:
        raise UsageError("there is no drafter whose costs could be measured")
    longest = drafter.draft_max
    beyond = INJECTIONS * sum(INJECTED) + longest + 1
    depth = min(DEPTH, pair.room - beyond)
    if depth < 1:
        raise UsageError(
            f"-c {pair.room} is too small to measure in, wanted at least {beyond + 1}"
        )
    tokens = [(at * STRIDE) % len(pair.vocabulary) for at in range(depth + beyond)]
    pair.clear()
    for begin in range(0, depth, target.chunk):
        chunk = tokens[begin : min(begin + target.chunk, depth)]
        target.read(chunk, begin)
        drafter.observe(target.taps(len(chunk)), begin)
    score: list[list[float]] = [[] for _ in range(longest + 1)]
    draft: list[list[float]] = [[] for _ in range(longest + 1)]
    for turn in range(MOST_TURNS):
        # Plain passes follow one another, which saves llama.cpp the making of another graph;
        # scored drafts change their length.
        target.rehearse(tokens[depth : depth + 1], depth, kept=1)
        for length in range(longest + 1):
            rows = tokens[depth : depth + length + 1]
            # A pass costs what it takes to go back in it, as if half of the draft were rejected.
            score[length].append(target.rehearse(rows, depth, kept=1 + length // 2))
            if length:
                draft[length].append(drafter.propose(tokens[depth], depth, length).seconds)
        progress(turn + 1, MOST_TURNS)
        if turn + 1 >= FEWEST_TURNS and clock() - began > seconds:
            break
    inject = _measure_injections(pair.target, drafter, tokens, depth)
    pair.clear()
    return Costs(
        score=tuple(median(times) for times in score),
        draft=(0.0, *(median(times) for times in draft[1:])),
        inject=inject,
    )


def _measure_injections(
    target: Target, drafter: Drafter, tokens: Sequence[int], position: int
) -> tuple[float, float]:
    """Seconds of an injection: of any batch, and of every row."""
    few, many = INJECTED[0], min(INJECTED[1], target.chunk)
    taken: dict[int, list[float]] = {rows: [] for rows in (few, many)}
    for _ in range(INJECTIONS):
        for rows in (few, many):
            target.read(tokens[position : position + rows], position)
            taken[rows].append(drafter.observe(target.taps(rows), position))
            position += rows
    per_row = max(median(taken[many]) - median(taken[few]), 0.0) / (many - few)
    return max(median(taken[few]) - few * per_row, 0.0), per_row
