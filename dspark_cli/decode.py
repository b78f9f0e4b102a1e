"""The decode loop: propose, score, verify, commit, rewind.

The target judges every token, so a bad drafter costs time and never changes the text. This
module knows token ids and arrays; it knows nothing of files, text or terminals. Plain decoding
is the very same loop with a drafter that never proposes.
"""

import time
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from dspark_cli.errors import InterruptedRunError, LlamaError
from dspark_cli.events import (
    NO_ROLLBACK,
    Event,
    Finish,
    FinishReason,
    Prefill,
    Rollback,
    Round,
)
from dspark_cli.schedule import WHOLE_DRAFT, Outcome, Schedule
from dspark_cli.verify import Rows, verify


class Scored(Protocol):
    """What one forward pass of the target says."""

    @property
    def logits(self) -> Rows: ...
    @property
    def seconds(self) -> float: ...


class Target(Protocol):
    """The model whose answer it is; rows and taps are valid until its next decode."""

    @property
    def chunk(self) -> int:
        """Prompt tokens that one decode takes."""

    def read(self, tokens: Sequence[int], position: int, /) -> float: ...
    def score(self, tokens: Sequence[int], position: int, /) -> Scored: ...
    def taps(self, rows: int, /) -> np.ndarray: ...
    def rewind(self, position: int, /) -> Rollback: ...


class Draft(Protocol):
    """Proposed tokens, and the drafter's trust in each."""

    @property
    def tokens(self) -> tuple[int, ...]: ...
    @property
    def confidences(self) -> tuple[float, ...]: ...
    @property
    def seconds(self) -> float: ...


class Drafter(Protocol):
    """Proposes what the target may say next, from the taps of all that was said."""

    def propose(self, last: int, position: int, most: int, /) -> Draft: ...
    def observe(self, taps: np.ndarray, position: int, /) -> float: ...


@dataclass(frozen=True, slots=True)
class EmptyDraft:
    """Nothing was proposed: the target's own choice is the round's only token."""

    tokens: tuple[int, ...] = ()
    confidences: tuple[float, ...] = ()
    seconds: float = 0.0


class NoDrafter:
    """Plain decoding: never proposes, needs no taps."""

    def propose(self, last: int, position: int, most: int) -> Draft:  # noqa: ARG002
        return EmptyDraft()

    def observe(self, taps: np.ndarray, position: int) -> float:  # noqa: ARG002
        return 0.0


Ends = Callable[[int], FinishReason | None]
"""Asked about every committed token in order: the reason to end with it, or None to go on."""


@dataclass(slots=True)
class Decoding:
    """One run: a prompt, its continuation, and where it stands.

    ``room`` is the number of positions the run may fill; ``limit`` the number of tokens it may
    commit, None for no limit. ``position`` counts the tokens of the prompt that both memories hold
    already. Iterating yields Prefill, then Round, then one Finish.
    """

    target: Target
    drafter: Drafter
    prompt: Sequence[int]
    choose: Callable[[np.ndarray], int]
    room: int
    limit: int | None = None
    ends: Ends = lambda _: None
    schedule: Schedule = WHOLE_DRAFT
    clock: Callable[[], float] = time.perf_counter
    position: int = 0  # tokens in the target's memory
    produced: int = field(init=False, default=0)
    last: int = field(init=False)  # the newest token, not in memory yet
    _pending: list[np.ndarray] = field(init=False, default_factory=list)  # taps, in order
    _fed: int = field(init=False)  # positions whose taps the drafter has
    _injecting: float = field(init=False, default=0.0)  # seconds, of the round under way

    def __post_init__(self) -> None:
        self.last = self.prompt[-1]
        self._fed = self.position

    def __iter__(self) -> Iterator[Event]:
        try:
            yield from self._prefill()
            reason: FinishReason | None = None
            while (reason := reason or self._exhausted()) is None:
                reason = yield from self._round()
        except InterruptedRunError:
            reason = "interrupted"
        yield Finish(reason, self.position)

    def _prefill(self) -> Iterator[Prefill]:
        """Read all but the last prompt token, which the first round scores."""
        total = len(self.prompt) - 1
        while self.position < total:
            chunk = self.prompt[self.position : min(self.position + self.target.chunk, total)]
            score_seconds = self.target.read(chunk, self.position)
            inject_seconds = self.drafter.observe(self.target.taps(len(chunk)), self.position)
            self.position += len(chunk)
            self._fed = self.position
            yield Prefill(self.position, total, score_seconds, inject_seconds)

    def _exhausted(self) -> FinishReason | None:
        if self.produced == self.limit:
            return "length"
        return "context_full" if self.position >= self.room else None

    def _round(self) -> Generator[Round, None, FinishReason | None]:
        """Yield one round and return why it ended the run, if it did.

        Raises LlamaError where the target's logits are no numbers, behind what it chose before.
        """
        started, began = self.clock(), self.position
        self._injecting = 0.0
        draft = self._propose()
        cut = self.schedule.cut(draft.confidences, len(draft.tokens))
        length = cut.scored
        judged = draft.tokens[:length]
        scored = self.target.score([self.last, *judged], began)
        verdict = verify(judged, scored.logits, self.choose)
        tokens, reason = self._commit(verdict.tokens(judged))
        broken = verdict.bonus is None and reason is None
        if not tokens:
            raise broken_logits(began + 1)
        self.position += len(tokens)
        rollback = NO_ROLLBACK
        try:
            # Before the taps are read: where accepted tokens are decoded again, theirs count.
            rollback = self.target.rewind(self.position)
            if reason is None and not broken:
                self._pending.append(self.target.taps(len(tokens)))
                if not self.schedule.patient:
                    self._inject()
        except InterruptedRunError:
            reason = "interrupted"  # the round's tokens are committed all the same
        self.last = tokens[-1]
        self.produced += len(tokens)
        ended = len(tokens) <= verdict.accepted  # inside the accepted draft
        accepted = len(tokens) if ended else verdict.accepted
        if not ended:
            took = scored.seconds + rollback.seconds
            self.schedule.learn(
                Outcome(draft.tokens, length, accepted, tokens, draft.seconds, took)
            )
        yield Round(
            tokens=tokens,
            position=began,
            proposed=len(draft.tokens),
            scored=length,
            accepted=accepted,
            ignored=length - accepted if ended else 0,
            expected=cut.expected,
            confidences=draft.confidences,
            draft_seconds=draft.seconds,
            score_seconds=scored.seconds,
            inject_seconds=self._injecting,
            rollback=rollback,
            seconds=self.clock() - started,
        )
        if broken:
            raise broken_logits(self.position + 1)
        return reason

    def _inject(self) -> None:
        """Feed the drafter the taps that wait for it."""
        if not self._pending:
            return
        taps = np.concatenate(self._pending) if len(self._pending) > 1 else self._pending[0]
        self._pending.clear()
        self._injecting += self.drafter.observe(taps, self._fed)
        self._fed += len(taps)

    def _propose(self) -> Draft:
        """A draft no longer than what may still be committed: one token is the target's own."""
        most = self.room - self.position - 1
        if self.limit is not None:
            most = min(most, self.limit - self.produced - 1)
        rows = self.schedule.rows(most) if most > 0 else 0
        if not rows:
            return EmptyDraft()
        self._inject()
        return self.drafter.propose(self.last, self.position, rows)

    def _commit(self, chosen: tuple[int, ...]) -> tuple[tuple[int, ...], FinishReason | None]:
        """What the target has chosen, cut behind the first token that ends the run."""
        for index, token in enumerate(chosen):
            if (reason := self.ends(token)) is not None:
                return chosen[: index + 1], reason
        return chosen, None


def broken_logits(position: int) -> LlamaError:
    """The failure of a target whose logits for the token at ``position`` are no numbers."""
    return LlamaError(
        f"the target's logits for position {position} are not finite: the weights or the "
        "computation are broken",
        hint="try -fa off, another quantisation, or a fresh download of the target",
    )
