"""What a pair costs on this machine, and what its confidences are worth.

Everything else that decides about a draft is arithmetic. Timed passes run over a filled memory of
ordinary depth, each length in turn and again, so that a slow moment of the machine hits all.
"""

from collections.abc import Callable, Sequence
from statistics import median

import numpy as np

from dspark_cli.confidence import Outcomes
from dspark_cli.decode import Decoding
from dspark_cli.engine.sampler import argmax
from dspark_cli.errors import InterruptedRunError, UsageError
from dspark_cli.events import Finish, Round
from dspark_cli.pair import Pair
from dspark_cli.schedule import Costs

DEPTH = 128  # tokens in memory while measuring, at most half the context
REPEATS = 5  # of every length; their median counts
INJECTED = 2  # rows per timed injection, as after an ordinary round
LEAST_CHANCE = 1e-6  # a confidence of 0 or 1 has no logit
STRIDE = 7919  # a prime: filler tokens spread over the vocabulary


def measure_confidences(
    pair: Pair,
    prompts: Sequence[Sequence[int]],
    tokens: int,
    *,
    progress: Callable[[float, float], None] = lambda _done, _all: None,
) -> tuple[Outcomes, Outcomes]:
    """Decode prompts greedily and note what came of every confidence, in two halves of prompts.

    Raises InterruptedRunError after Ctrl-C.
    """
    if pair.drafter is None:
        raise UsageError("there is no drafter whose confidences could be measured")
    size = pair.drafter.draft_max
    halves: tuple[list[Round], list[Round]] = ([], [])
    for index, prompt in enumerate(prompts):
        pair.clear()
        for event in Decoding(
            pair.target,
            pair.drafter,
            prompt,
            argmax,
            room=pair.room,
            limit=tokens,
            ends=lambda token: "eog" if pair.vocabulary.is_eog(token) else None,
        ):
            if isinstance(event, Round) and event.confidences:
                halves[index % 2].append(event)
            if isinstance(event, Finish) and event.reason == "interrupted":
                raise InterruptedRunError
        progress(index + 1, len(prompts))
    return outcomes_of(halves[0], size), outcomes_of(halves[1], size)


def outcomes_of(rounds: Sequence[Round], size: int) -> Outcomes:
    """What came of the confidences of some rounds; drafts have up to ``size`` tokens."""
    shape = (len(rounds), size)
    confidence, hits, real = np.zeros(shape), np.zeros(shape, bool), np.zeros(shape, bool)
    for row, event in enumerate(rounds):
        said = np.clip(event.confidences, LEAST_CHANCE, 1 - LEAST_CHANCE)
        confidence[row, : len(said)] = np.log(said / (1 - said))
        hits[row, : event.accepted] = True
        real[row, : min(event.accepted + 1, event.scored - event.ignored)] = True
    return Outcomes(confidence, hits, real)


def measure_costs(
    pair: Pair,
    *,
    repeats: int = REPEATS,
    progress: Callable[[float, float], None] = lambda _done, _all: None,
) -> Costs:
    """Time a pair; its memory is empty afterwards.

    Raises UsageError without a drafter, or where the context is too small to measure in.
    """
    drafter, target = pair.drafter, pair.target
    if drafter is None:
        raise UsageError("there is no drafter whose costs could be measured")
    longest = drafter.draft_max
    depth = min(DEPTH, pair.room // 2)
    needed = depth + repeats * INJECTED + longest + 1
    if depth < 1 or needed > pair.room:
        raise UsageError(f"-c {pair.room} is too small to measure in, wanted at least {needed}")
    tokens = [(at * STRIDE) % len(pair.vocabulary) for at in range(needed)]
    pair.clear()
    for begin in range(0, depth, target.chunk):
        chunk = tokens[begin : min(begin + target.chunk, depth)]
        target.read(chunk, begin)
        drafter.observe(target.taps(len(chunk)), begin)
    score: list[list[float]] = [[] for _ in range(longest + 1)]
    draft: list[list[float]] = [[] for _ in range(longest + 1)]
    inject: list[float] = []
    for turn in range(repeats):
        position = depth + turn * INJECTED
        for length in range(longest + 1):
            rows = tokens[position : position + length + 1]
            # A pass costs what it takes to go back in it, as if half of the draft were rejected.
            score[length].append(target.rehearse(rows, position, kept=1 + length // 2))
            if length:
                draft[length].append(drafter.propose(tokens[position], position, length).seconds)
        target.read(tokens[position : position + INJECTED], position)
        inject.append(drafter.observe(target.taps(INJECTED), position))
        progress(turn + 1, repeats)
    pair.clear()
    return Costs(
        score=tuple(median(times) for times in score),
        draft=(0.0, *(median(times) + median(inject) for times in draft[1:])),
    )
