"""Let the target answer prompts, many at a time, and keep its words, taps and distributions.

The words are the target's own, greedy for the larger part (greedy is what is served) and sampled
for the rest, so that the drafter also sees states off the beaten path. Which prompt is answered
how is decided by its index and the seed alone: a collection that was interrupted goes on as if it
had not been. This module knows tokens and rows; prompts become tokens in ``questions``.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import numpy as np

from dspark_cli.engine.lanes import Lanes
from dspark_cli.train.dataset import F16_MAX, OPENING_TOKENS, Answer

GREEDY_SHARE = 0.6  # of the answers
TEMPERATURES = (0.4, 1.0)  # of the sampled ones, drawn evenly

Question = Callable[[int], list[int] | None]
"""Tokens of one prompt by its index, or None where it is too long to be asked."""


@dataclass(frozen=True, slots=True)
class Manner:
    """How one prompt is answered."""

    temperature: float
    opening: int  # tokens sampled at temperature 1 before that


@dataclass(slots=True)
class _Speaker:
    """One lane's answer in the making."""

    prompt: int
    n_prompt: int
    manner: Manner
    random: np.random.Generator
    tokens: list[int]
    taps: list[np.ndarray]
    top_ids: list[np.ndarray] = field(default_factory=list)
    top_logprobs: list[np.ndarray] = field(default_factory=list)

    def choose(self, ids: np.ndarray, logprobs: np.ndarray) -> int:
        """The next token, from the head of the distribution; both [top], likeliest first."""
        opening = len(self.top_ids) < self.manner.opening
        temperature = 1.0 if opening else self.manner.temperature
        if temperature == 0:
            return int(ids[0])
        weights = np.exp((logprobs - logprobs[0]).astype(np.float64) / temperature)
        return int(self.random.choice(ids, p=weights / weights.sum()))

    def hear(self, ids: np.ndarray, logprobs: np.ndarray) -> int:
        token = self.choose(ids, logprobs)
        self.tokens.append(token)
        self.top_ids.append(ids)
        self.top_logprobs.append(logprobs.astype(np.float16))
        return token

    def answer(self, *, taps: bool) -> Answer:
        return Answer(
            prompt=self.prompt,
            n_prompt=self.n_prompt,
            temperature=self.manner.temperature,
            tokens=np.array(self.tokens, np.int32),
            top_ids=np.stack(self.top_ids),
            top_logprobs=np.stack(self.top_logprobs),
            taps=np.concatenate(self.taps) if taps else None,
        )


def manner_of(
    prompt: int, seed: int, *, held_out: bool, greedy_allowed: bool, from_nothing: bool
) -> Manner:
    """Decide how a prompt is answered, by its index and the seed alone.

    A drafter is judged by greedy answers, so that a prompt held out for that gets one.
    """
    random = np.random.default_rng([seed, prompt, 1])
    greedy = random.random() < GREEDY_SHARE or held_out
    temperature = float(random.uniform(*TEMPERATURES))
    return Manner(
        temperature=0.0 if greedy and greedy_allowed else temperature,
        opening=OPENING_TOKENS if from_nothing else 0,
    )


def top_of(logits: np.ndarray, top: int) -> tuple[np.ndarray, np.ndarray]:
    """The likeliest ``top`` tokens of each row and their log-probabilities, likeliest first.

    ``logits`` [n, n_vocab]; returns ids int32 [n, top] and log-probabilities float32 [n, top],
    normalised over the whole vocabulary.
    """
    ids = np.argpartition(logits, -top, axis=1)[:, -top:]
    chosen = np.take_along_axis(logits, ids, axis=1)
    order = np.argsort(-chosen, axis=1, kind="stable")
    ids = np.take_along_axis(ids, order, axis=1)
    chosen = np.take_along_axis(chosen, order, axis=1)
    total = np.exp(logits - chosen[:, :1]).sum(axis=1, keepdims=True, dtype=np.float32)
    return ids.astype(np.int32), chosen - chosen[:, :1] - np.log(total)


class Collection:
    """Answers to come from one target; ``ends`` says which tokens end a text."""

    def __init__(
        self,
        lanes: Lanes,
        question: Question,
        *,
        manner: Callable[[int], Manner],
        ends: Callable[[int], bool],
        answer_tokens: int,
        positions: int,
        top: int,
        seed: int,
        store_taps: bool,
    ) -> None:
        self._lanes = lanes
        self._question = question
        self._manner = manner
        self._ends = ends
        self._answer_tokens = answer_tokens
        self._positions = positions
        self._top = top
        self._seed = seed
        self._store_taps = store_taps
        self._speakers: dict[int, _Speaker] = {}
        self.skipped = 0  # prompts that were too long to be asked

    def answers(self, prompts: Iterator[int]) -> Iterator[Answer]:
        """Answers in the order of their ends; no prompt is begun after ``prompts`` ends."""
        exhausted = False
        while True:
            while not exhausted and len(self._speakers) < self._lanes.count:
                prompt = next(prompts, None)
                if prompt is None:
                    exhausted = True
                elif (tokens := self._question(prompt)) is None:
                    self.skipped += 1
                else:
                    yield from self._begin(prompt, tokens)
            if not self._speakers:
                return
            yield from self._step()

    def _begin(self, prompt: int, tokens: list[int]) -> Iterator[Answer]:
        lane = next(lane for lane in range(self._lanes.count) if lane not in self._speakers)
        rows = self._lanes.begin(lane, tokens)
        speaker = _Speaker(
            prompt=prompt,
            n_prompt=len(tokens),
            manner=self._manner(prompt),
            random=np.random.default_rng([self._seed, prompt]),
            tokens=list(tokens),
            taps=[self._half(rows.taps)] if self._store_taps else [],
        )
        self._speakers[lane] = speaker
        ids, logprobs = top_of(rows.logits, self._top)
        yield from self._continue(lane, ids[0], logprobs[0])

    def _step(self) -> Iterator[Answer]:
        lanes = np.array(sorted(self._speakers), np.int32)
        speakers = [self._speakers[lane] for lane in lanes]
        tokens = np.array([speaker.tokens[-1] for speaker in speakers], np.int32)
        positions = np.array([len(speaker.tokens) - 1 for speaker in speakers], np.int32)
        rows = self._lanes.step(lanes, tokens, positions)
        ids, logprobs = top_of(rows.logits, self._top)
        taps = self._half(rows.taps) if self._store_taps else None
        for row, lane in enumerate(lanes):
            if taps is not None:
                speakers[row].taps.append(taps[row : row + 1])
            yield from self._continue(int(lane), ids[row], logprobs[row])

    def _continue(self, lane: int, ids: np.ndarray, logprobs: np.ndarray) -> Iterator[Answer]:
        speaker = self._speakers[lane]
        token = speaker.hear(ids, logprobs)
        if self._ends(token) or self._full(speaker):
            del self._speakers[lane]
            yield speaker.answer(taps=self._store_taps)

    def _full(self, speaker: _Speaker) -> bool:
        length = len(speaker.tokens)
        return length - speaker.n_prompt >= self._answer_tokens or length >= self._positions

    def _half(self, taps: np.ndarray) -> np.ndarray:
        return taps.clip(-F16_MAX, F16_MAX).astype(np.float16)
