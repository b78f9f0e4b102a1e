"""From answers to training blocks: which anchors, which labels, which distributions.

A block hangs on an anchor: a token that is known while its taps are not, as in a round of
decoding. Row i proposes the token i + 1 places after the anchor, knowing through the Markov head
what stands before it. This module knows numpy.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from dspark_cli.train.dataset import Answer

IGNORED = -1
COVERAGE = 0.99  # of the tokens of the answers
DRAFT_VOCABULARY_STEP = 512
SMALL_VOCABULARY = 8192  # a head of this size costs next to nothing
LEAST_SCALE = 1e-3  # of the mean: a channel that is always zero is not divided by zero
FULL_BLOCKS = 0.5  # of all blocks; the others' lengths are drawn, since a run may draft fewer rows


@dataclass(frozen=True, slots=True)
class Batch:
    """Blocks of n answers, padded to t tokens, m anchors and b rows; K distribution entries."""

    taps: np.ndarray  # float16 [n, t, n_taps x width]
    anchors: np.ndarray  # int64 [n, m], positions
    tokens: np.ndarray  # int64 [n, m], the anchors' own tokens
    lengths: np.ndarray  # int64 [n, m], rows of each block; 0 pads
    previous: np.ndarray  # int64 [n, m, b], the token before each proposal
    labels: np.ndarray  # int64 [n, m, b], target ids; IGNORED where there is nothing to propose
    greedy: np.ndarray  # int64 [n, m, b], the target's likeliest token there
    top_ids: np.ndarray  # int64 [n, m, b, K]
    top_chances: np.ndarray  # float32 [n, m, b, K], the target's at temperature 1


def anchors_of(answer: Answer) -> np.ndarray:
    """Every position that a round can start from: the prompt's last token to the last but one."""
    return np.arange(max(answer.n_prompt - 1, 1), len(answer.tokens) - 1)


def greedy_anchors(answer: Answer) -> np.ndarray:
    """The anchors from which on an answer is what the target would say by itself.

    An opening that was drawn is no greedy text: drafts are judged from its end on.
    """
    strayed = np.flatnonzero(answer.tokens[answer.n_prompt :] != answer.top_ids[:, 0])
    first = answer.n_prompt + int(strayed[-1]) if len(strayed) else 0
    every = anchors_of(answer)
    return every[every >= first]


def draw_anchors(
    answer: Answer, block_size: int, most: int, random: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """Some anchors of an answer and the lengths of their blocks, both [at most ``most``]."""
    every = anchors_of(answer)
    chosen = np.sort(random.choice(every, min(most, len(every)), replace=False))
    lengths = random.integers(1, block_size + 1, len(chosen))
    lengths[random.random(len(chosen)) < FULL_BLOCKS] = block_size
    return chosen, lengths


def make_batch(
    answers: Sequence[Answer],
    chosen: Sequence[tuple[np.ndarray, np.ndarray]],
    block_size: int,
) -> Batch:
    """Lay some answers' blocks side by side; ``chosen`` are anchors and lengths of each answer."""
    if any(answer.taps is None for answer in answers):
        raise ValueError("an answer came without its taps")
    n = len(answers)
    m = max(len(anchors) for anchors, _ in chosen)
    t = max(len(answer.tokens) for answer in answers) - 1
    top = answers[0].top_ids.shape[1]
    rows = (n, m, block_size)
    width = answers[0].taps.shape[1] if answers[0].taps is not None else 0
    batch = Batch(
        taps=np.zeros((n, t, width), np.float16),
        anchors=np.zeros((n, m), np.int64),
        tokens=np.zeros((n, m), np.int64),
        lengths=np.zeros((n, m), np.int64),
        previous=np.zeros(rows, np.int64),
        labels=np.full(rows, IGNORED, np.int64),
        greedy=np.full(rows, IGNORED, np.int64),
        top_ids=np.zeros((*rows, top), np.int64),
        top_chances=np.zeros((*rows, top), np.float32),
    )
    for index, (answer, (anchors, lengths)) in enumerate(zip(answers, chosen, strict=True)):
        _fill(batch, index, answer, anchors, lengths)
    return batch


def _fill(
    batch: Batch, index: int, answer: Answer, anchors: np.ndarray, lengths: np.ndarray
) -> None:
    if answer.taps is not None:
        batch.taps[index, : len(answer.taps)] = answer.taps
    count, size = len(anchors), batch.labels.shape[2]
    steps = np.arange(size)
    before = anchors[:, None] + steps  # positions of the tokens before each proposal
    real = (before + 1 < len(answer.tokens)) & (steps < lengths[:, None])
    place = np.minimum(before + 1, len(answer.tokens) - 1)
    said = np.maximum(place - answer.n_prompt, 0)  # rows of the distributions
    batch.anchors[index, :count] = anchors
    batch.tokens[index, :count] = answer.tokens[anchors]
    batch.lengths[index, :count] = lengths
    batch.previous[index, :count] = answer.tokens[np.minimum(before, len(answer.tokens) - 1)]
    batch.labels[index, :count] = np.where(real, answer.tokens[place], IGNORED)
    batch.greedy[index, :count] = np.where(real, answer.top_ids[said, 0], IGNORED)
    batch.top_ids[index, :count] = answer.top_ids[said]
    batch.top_chances[index, :count] = np.exp(answer.top_logprobs[said].astype(np.float32))


def choose_draft_tokens(counts: np.ndarray, wanted: int | None) -> np.ndarray:
    """The tokens that a drafter may propose, ascending; all of them where pruning gains little.

    ``counts`` [vocabulary] is how often each stood in an answer. None takes as many of the most
    frequent as make up ``COVERAGE`` of the answers, 0 takes all.
    """
    vocabulary = len(counts)
    if wanted is None:
        order = np.sort(counts)[::-1]
        needed = int(np.searchsorted(order.cumsum(), COVERAGE * counts.sum())) + 1
        wanted = -(-needed // DRAFT_VOCABULARY_STEP) * DRAFT_VOCABULARY_STEP
        if vocabulary <= SMALL_VOCABULARY or wanted > vocabulary // 2:
            wanted = vocabulary
    if wanted == 0 or wanted >= vocabulary:
        return np.arange(vocabulary)
    return np.sort(np.argsort(-counts, kind="stable")[:wanted])


def accepted_lengths(hits: np.ndarray) -> np.ndarray:
    """How many leading rows hit: ``hits`` bool [..., b] to int [...]."""
    lengths: np.ndarray = hits.astype(np.int64).cumprod(axis=-1).sum(axis=-1)
    return lengths


def rounds_of(accepted: np.ndarray) -> list[int]:
    """Walk an answer as decoding does: ``accepted`` [anchors], in order; returns each round's.

    Anchor 0 is the prompt's last token; a round that accepts a goes on a + 1 anchors later.
    """
    at, rounds = 0, []
    while at < len(accepted):
        rounds.append(int(accepted[at]))
        at += rounds[-1] + 1
    return rounds


def tap_scale(answers: Iterable[Answer]) -> np.ndarray:
    """The usual size of each tap channel, float32 [n_taps x width]: its root mean square.

    The first position of a text is left out: its states are an attention sink's, a hundred times
    larger than any other.
    """
    total: np.ndarray | None = None
    count = 0
    for answer in answers:
        if answer.taps is None or len(answer.taps) < 2:  # noqa: PLR2004  the sink and one more
            continue
        squares = np.square(answer.taps[1:].astype(np.float32)).sum(axis=0)
        total = squares if total is None else total + squares
        count += len(answer.taps) - 1
    if total is None:
        raise ValueError("no answer has taps")
    scale = np.sqrt(total / count).astype(np.float32)
    floored: np.ndarray = np.maximum(scale, scale.mean() * LEAST_SCALE)
    return floored
