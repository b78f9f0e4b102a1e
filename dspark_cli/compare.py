"""Is the speculative text the target's own? A verdict that rounding does not fool.

Kernels for one token and for several round differently, so two correct runs may part where two
logits nearly tie, and everything after differs. Comparing texts would report bugs that are none.
Here the speculative tokens are replayed through the target one at a time, so that each is judged
on its own prefix: it must be the target's choice, or lie within a tolerance of it and be what the
same batches choose once more from a clean memory. The tolerance is measured on the very text, as
the change that batch widths alone make to the logits.

Sampled runs with one seed are compared where they first part: the sampler's state of that moment
is applied to the logits of both widths.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import cycle

import numpy as np

from dspark_cli.auto import make_schedule
from dspark_cli.decode import Decoding, Drafter, NoDrafter
from dspark_cli.engine.sampler import Chooser, SamplerChain, argmax, chooser_for
from dspark_cli.equivalence import Comparison, Equivalence, Parting, Run
from dspark_cli.errors import InterruptedRunError
from dspark_cli.events import Finish, FinishReason, Round
from dspark_cli.options import SamplingOptions
from dspark_cli.pair import Pair
from dspark_cli.schedule import FIXED, ScheduleOptions
from dspark_cli.stats import Statistics

WATCHED = 64  # likeliest tokens of each row whose logits are compared between widths
LEAST_TOLERANCE = 0.001  # logits; what is measured on a short text may be 0 by luck
SAFETY = 2.0  # times the largest change seen


@dataclass(frozen=True, slots=True)
class Top:
    """The likeliest tokens of one row of logits, likeliest first."""

    ids: np.ndarray
    logits: np.ndarray


@dataclass(frozen=True, slots=True)
class Noise:
    """What batch widths alone do to the logits of a text."""

    gap: float  # largest change of the difference between a row's two likeliest tokens
    logit: float  # largest change of any watched logit


def compare(
    pair: Pair,
    prompt: Sequence[int],
    *,
    limit: int | None,
    sampling: SamplingOptions | None = None,
    tolerance: float | None = None,
    schedule: ScheduleOptions = FIXED,
    loop: type[Decoding] = Decoding,
) -> Comparison:
    """Decode ``prompt`` plainly and speculatively and judge the second by the first.

    ``tolerance`` in logits replaces the measured one. ``loop`` is the speculative loop under test.
    Raises InterruptedRunError on Ctrl-C; ``pair`` needs a drafter.
    """
    if pair.drafter is None:
        raise ValueError("there is nothing to compare without a drafter")
    sampling = sampling or SamplingOptions()
    judge = _Judge(pair, list(prompt), limit, sampling, schedule, tolerance)
    return judge.compare(loop)


@dataclass(slots=True)
class _Judge:
    """One prompt's comparison: two runs, and a replay where they part."""

    pair: Pair
    prompt: list[int]
    limit: int | None
    sampling: SamplingOptions
    schedule: ScheduleOptions
    given_tolerance: float | None

    def compare(self, loop: type[Decoding]) -> Comparison:
        drafter = self.pair.drafter
        if drafter is None:
            raise ValueError("a judge needs a drafter to judge")
        watched: list[Top] = []
        plain = self._run(Decoding, NoDrafter(), _watching(self._chooser(), watched))
        choose = self._chooser()
        fork = Fork(choose, plain.tokens) if isinstance(choose, SamplerChain) else None
        speculative = self._run(loop, drafter, fork or choose)
        statistics = Statistics(n_prompt=len(self.prompt))
        for round_ in speculative.rounds:
            statistics.add(round_)
        return self._verdict(plain, speculative, watched, fork, statistics)

    def _chooser(self) -> Chooser:
        return chooser_for(self.sampling, self.pair.vocabulary, self.prompt)

    def _verdict(
        self,
        plain: Run,
        speculative: Run,
        watched: Sequence[Top],
        fork: "Fork | None",
        statistics: Statistics,
    ) -> Comparison:
        def verdict(kind: Equivalence, **facts: object) -> Comparison:
            return Comparison(kind, plain, speculative, statistics, **facts)  # type: ignore[arg-type]

        if (end := self._wrong_end(speculative)) is not None:
            position, why = end
            return verdict("diverged", parting=_parting(plain, speculative, position), why=why)
        if plain.tokens == speculative.tokens:
            return verdict("identical")
        noise = self._noise(plain, watched, speculative.rounds)
        if fork is not None:
            return self._sampled_verdict(plain, speculative, fork, noise, verdict)
        tolerance = self.given_tolerance
        if tolerance is None:
            tolerance = max(SAFETY * noise.gap, LEAST_TOLERANCE)
        return self._greedy_verdict(plain, speculative, tolerance, verdict)

    def _greedy_verdict(
        self,
        plain: Run,
        speculative: Run,
        tolerance: float,
        verdict: Callable[..., Comparison],
    ) -> Comparison:
        """Hold every speculative token against the target's choice on its own prefix.

        A token is right if it is the choice of the replay, or if it misses that by no more than
        the tolerance and is what the same batches choose once more, from a clean memory.
        """
        tokens = speculative.tokens
        first = _parting(plain, speculative, _first_difference(plain, speculative))
        repeated = [
            float(row.max() - row[token])
            for row, token in zip(self._rescored(tokens, speculative.rounds), tokens, strict=False)
        ]
        # Rounds that do not account for every token leave some unexplained.
        repeated += [math.inf] * (len(tokens) - len(repeated))
        wrong: Parting | None = None
        largest = 0.0
        for position, row in enumerate(self._replay(tokens)):
            token, own = tokens[position], argmax(row)
            gap = float(row[own] - row[token])
            largest = max(largest, gap)
            if position == first.position and first.plain is not None:
                first = _scored(first, row)
            excused = gap <= tolerance and repeated[position] <= self._repeatability
            if wrong is None and gap > 0 and not excused:
                wrong = _scored(Parting(position, own, token), row)
        facts = {"largest_gap": largest, "tolerance": tolerance}
        if wrong is None:
            return verdict("tie", parting=first, **facts)
        why = "the target itself prefers another token by more than rounding explains"
        if (wrong.gap or 0.0) <= tolerance:
            why = "the target prefers another token, alone and in the same batches"
        return verdict("diverged", parting=wrong, why=why, **facts)

    def _sampled_verdict(
        self,
        plain: Run,
        speculative: Run,
        fork: "Fork",
        noise: Noise,
        verdict: Callable[..., Comparison],
    ) -> Comparison:
        """Apply the sampler of the moment where the texts part to the logits of both widths."""
        position = _first_difference(plain, speculative)
        parting = _parting(plain, speculative, position)
        if parting.plain is None or parting.speculative is None or fork.row is None:
            return verdict(
                "diverged", parting=parting, why="one text ends where the other goes on"
            )
        tokens = speculative.tokens[: position + 1]
        *_, repeated = self._rescored(tokens, speculative.rounds)
        *_, row = self._replay(tokens)
        tolerance = self.given_tolerance
        if tolerance is None:
            tolerance = max(SAFETY * noise.logit, LEAST_TOLERANCE)
        change = _largest_change(row, fork.row)
        facts = {
            "parting": _scored(parting, row),
            "largest_gap": change,
            "tolerance": tolerance,
        }
        if fork.draw(row) != parting.plain or fork.draw(fork.row) != parting.speculative:
            why = "the same sampler state does not draw these two tokens from these logits"
            return verdict("diverged", why=why, **facts)
        if change > tolerance or _largest_change(repeated, fork.row) > self._repeatability:
            why = "the logits of the two widths differ by more than rounding explains"
            return verdict("diverged", why=why, **facts)
        return verdict("tie", **facts)

    @property
    def _repeatability(self) -> float:
        """Logits by which the same batches, computed once more, may differ."""
        return LEAST_TOLERANCE if self.given_tolerance is None else self.given_tolerance

    def _run(self, loop: type[Decoding], drafter: Drafter, choose: Chooser) -> Run:
        self.pair.clear(len(self.prompt) - 1)
        rounds: list[Round] = []
        reason: FinishReason = "interrupted"
        for event in loop(
            self.pair.target,
            drafter,
            self.prompt,
            choose,
            room=self.pair.room,
            limit=self.limit,
            ends=lambda token: "eog" if self.pair.vocabulary.is_eog(token) else None,
            schedule=make_schedule(self.schedule, len(self.prompt)),
        ):
            if isinstance(event, Round):
                rounds.append(event)
            elif isinstance(event, Finish):
                reason = event.reason
        if reason == "interrupted":
            raise InterruptedRunError
        tokens = tuple(token for round_ in rounds for token in round_.tokens)
        return Run(tokens, reason, tuple(rounds))

    def _prefill(self) -> None:
        """Bring the prompt into a fresh memory, in the chunks of both runs."""
        self.pair.clear()
        for _ in Decoding(
            self.pair.target, NoDrafter(), self.prompt, argmax, room=self.pair.room, limit=0
        ):
            pass

    def _replay(self, tokens: Sequence[int]) -> Iterator[np.ndarray]:
        """The row that judges each of ``tokens``, computed one token at a time."""
        self._prefill()
        began = len(self.prompt) - 1
        for offset, token in enumerate([self.prompt[-1], *tokens[:-1]]):
            yield self.pair.target.score([token], began + offset).logits[0]

    def _rescored(self, tokens: Sequence[int], rounds: Sequence[Round]) -> Iterator[np.ndarray]:
        """The row that chooses each of ``tokens``, in batches as wide as those of ``rounds``.

        What follows in a batch does not change its earlier rows, so the drafts of then are not
        needed: the text itself fills the batch, and behind its end the last token does.
        """
        self._prefill()
        inputs = [self.prompt[-1], *tokens[:-1]]
        first = len(self.prompt) - 1
        index = 0
        for round_ in rounds:
            batch = inputs[index : index + round_.scored + 1]
            committed = min(len(round_.tokens), len(batch))
            if not batch:
                return
            room = self.pair.room - first - index
            batch += batch[-1:] * (min(round_.scored + 1, room) - len(batch))
            scored = self.pair.target.score(batch, first + index)
            for row in range(committed):
                yield scored.logits[row]
            index += committed
            self.pair.target.rewind(first + index)

    def _noise(self, plain: Run, watched: Sequence[Top], rounds: Sequence[Round]) -> Noise:
        """Score the plain text again in batches as wide as those of ``rounds``.

        One batch follows the other, and nothing is ever taken back: a memory that goes back
        wrongly is a fault to be found, and must not raise what is tolerated.
        """
        self._prefill()
        inputs = [self.prompt[-1], *plain.tokens[:-1]]
        widths = cycle([round_.scored + 1 for round_ in rounds] or [1])
        gap = logit = 0.0
        index = 0
        while index < len(inputs):
            batch = inputs[index : index + next(widths)]
            scored = self.pair.target.score(batch, len(self.prompt) - 1 + index)
            for row, top in enumerate(watched[index : index + len(batch)]):
                change = scored.logits[row][top.ids] - top.logits
                gap = max(gap, abs(float(change[0] - change[1])))
                logit = max(logit, float(np.abs(change).max()))
            index += len(batch)
        return Noise(gap, logit)

    def _wrong_end(self, run: Run) -> tuple[int, str] | None:
        """Where and how the run ended wrongly, judged by its own tokens; None where it did not."""
        is_eog = self.pair.vocabulary.is_eog
        for position, token in enumerate(run.tokens[:-1]):
            if is_eog(token):
                return position + 1, "an end-of-generation token did not end the text"
        count, ended = len(run.tokens), bool(run.tokens) and is_eog(run.tokens[-1])
        room = self.pair.room - len(self.prompt) + 1
        rightly = {
            "eog": ended,
            "length": count == self.limit and not ended,
            "context_full": count == room and not ended,
        }
        if rightly.get(run.reason, False):
            return None
        return count, f"the text ends with {run.reason} after {count} tokens, which is wrong"


class Fork:
    """A sampler that notes its state and the logits at the first draw that is not the expected."""

    def __init__(self, chain: SamplerChain, expected: Sequence[int]) -> None:
        self._chain = chain
        self._expected = expected
        self._drawn = 0
        self._state: SamplerChain | None = None
        self.row: np.ndarray | None = None

    def __call__(self, logits: np.ndarray) -> int:
        if self.row is not None:
            return self._chain(logits)
        before = self._chain.clone()
        token = self._chain(logits)
        if self._drawn < len(self._expected) and token != self._expected[self._drawn]:
            self._state, self.row = before, logits
        self._drawn += 1
        return token

    def draw(self, logits: np.ndarray) -> int:
        """What the state of the fork draws from ``logits``; the state is left as it was."""
        if self._state is None:
            raise ValueError("the sampler never left the expected tokens")
        return self._state.clone()(logits)


def _watching(choose: Chooser, watched: list[Top]) -> Chooser:
    """A chooser that notes each row's likeliest tokens before it chooses."""

    def chooser(logits: np.ndarray) -> int:
        watched.append(_top(logits))
        return choose(logits)

    return chooser


def _top(logits: np.ndarray) -> Top:
    count = min(WATCHED, len(logits))
    ids = np.argpartition(logits, -count)[-count:]
    ids = ids[np.argsort(logits[ids])[::-1]]
    return Top(ids, logits[ids])


def _largest_change(row: np.ndarray, other: np.ndarray) -> float:
    """Between the logits of two rows, of the tokens that matter in the first."""
    ids = _top(row).ids
    return float(np.abs(row[ids] - other[ids]).max())


def _first_difference(plain: Run, speculative: Run) -> int:
    pairs = zip(plain.tokens, speculative.tokens, strict=False)
    shorter = min(len(plain.tokens), len(speculative.tokens))
    return next((index for index, (one, other) in enumerate(pairs) if one != other), shorter)


def _parting(plain: Run, speculative: Run, position: int) -> Parting:
    def token(run: Run) -> int | None:
        return run.tokens[position] if position < len(run.tokens) else None

    return Parting(position, token(plain), token(speculative))


def _scored(parting: Parting, row: np.ndarray) -> Parting:
    """The same parting with its tokens' logits in ``row``."""
    if parting.plain is None or parting.speculative is None:
        return parting
    plain, speculative = float(row[parting.plain]), float(row[parting.speculative])
    return replace(parting, plain_logit=plain, speculative_logit=speculative)
