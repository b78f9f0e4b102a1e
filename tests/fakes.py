"""Small honest models for the decode loop: what they say is known, and they insist on order.

They keep a memory as llama.cpp does, and raise where it would refuse: a gap between positions, a
memory that was not rewound, taps of rows that were never decoded. Time passes only when they work.
"""

import resource
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np

from dspark_cli.errors import InterruptedRunError
from dspark_cli.events import NO_ROLLBACK, Rollback

VOCABULARY = 256
WRONG = VOCABULARY - 1  # a token that no text in these tests contains


def successor(token: int) -> int:
    """The fakes count: after each number comes the next one."""
    return (token + 1) % VOCABULARY


def greedy(row: np.ndarray) -> int:
    return int(row.argmax())


class Clock:
    """Time that stands still until somebody spends it."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now

    def spend(self, seconds: float) -> float:
        self.now += seconds
        return seconds


class CtrlC:
    """An interrupt that comes at the n-th call, counted from 1; never without a number."""

    def __init__(self, at: int | None = None) -> None:
        self._at = at
        self._calls = 0

    def check(self) -> None:
        self._calls += 1
        if self._calls == self._at:
            raise InterruptedRunError


@dataclass(frozen=True)
class Scored:
    logits: np.ndarray
    seconds: float


class CountingTarget:
    """A target whose next token is a function of the last one, and of nothing else.

    Its taps are the position and the token of each row, so that a test can recognise them.
    """

    def __init__(
        self,
        *,
        next_token: Callable[[int], int] = successor,
        chunk: int = 8,
        room: int = VOCABULARY,
        clock: Clock | None = None,
        read_seconds: float = 0.0,
        score_seconds: float = 0.0,
        ctrl_c: CtrlC | None = None,
    ) -> None:
        self.chunk = chunk
        self.memory: list[tuple[int, int]] = []  # (position, token)
        self.widths: list[int] = []  # rows of each scoring pass
        self._next_token = next_token
        self._room = room
        self._clock = clock or Clock()
        self._read_seconds = read_seconds
        self._score_seconds = score_seconds
        self._ctrl_c = ctrl_c or CtrlC()
        self._decoded: list[tuple[int, int]] = []  # rows of the last decode

    @property
    def tokens(self) -> list[int]:
        return [token for _, token in self.memory]

    def read(self, tokens: Sequence[int], position: int) -> float:
        if len(tokens) > self.chunk:
            raise ValueError(f"{len(tokens)} tokens in one decode, which takes {self.chunk}")
        self._decode(tokens, position)
        return self._clock.spend(self._read_seconds)

    def score(self, tokens: Sequence[int], position: int) -> Scored:
        self._decode(tokens, position)
        self.widths.append(len(tokens))
        return Scored(
            np.stack([self.row(token) for token in tokens]), self._clock.spend(self._score_seconds)
        )

    def row(self, token: int) -> np.ndarray:
        """The logits after ``token``."""
        logits = np.zeros(VOCABULARY, np.float32)
        logits[self._next_token(token)] = 1.0
        return logits

    def taps(self, rows: int) -> np.ndarray:
        if rows > len(self._decoded):
            raise ValueError(f"taps of {rows} rows, the last decode had {len(self._decoded)}")
        return np.array(self._decoded[:rows])

    def rewind(self, position: int) -> Rollback:
        if position > len(self.memory):
            raise ValueError(f"rewound to {position}, memory ends at {len(self.memory)}")
        del self.memory[position:]
        return NO_ROLLBACK

    def _decode(self, tokens: Sequence[int], position: int) -> None:
        self._ctrl_c.check()
        if not tokens:
            raise ValueError("an empty batch")
        if position < len(self.memory):
            raise ValueError(f"position {position} is in memory still: it was not rewound")
        if position > len(self.memory):
            raise ValueError(f"a gap: {position} follows {len(self.memory)} positions")
        if position + len(tokens) > self._room:
            raise ValueError(f"{position + len(tokens)} positions, there is room for {self._room}")
        self._decoded = list(enumerate(tokens, position))
        self.memory += self._decoded


@dataclass(frozen=True)
class Draft:
    tokens: tuple[int, ...] = ()
    confidences: tuple[float, ...] = ()
    seconds: float = 0.0


class ChainDrafter:
    """Drafts a chain, each token from the one before by what the drafter ``knows``.

    Keeps all that it observed and was asked for, and proposes only where it has observed
    everything before.
    """

    def __init__(
        self,
        knows: Callable[[int], int],
        *,
        block_size: int = 4,
        clock: Clock | None = None,
        draft_seconds: float = 0.0,
        inject_seconds: float = 0.0,
        ctrl_c: CtrlC | None = None,
        ctrl_c_observing: CtrlC | None = None,
    ) -> None:
        self.observed: list[tuple[int, int]] = []  # (position, token), as CountingTarget's taps
        self.asked: list[int] = []  # the ``most`` of each proposal
        self._knows = knows
        self._block_size = block_size
        self._clock = clock or Clock()
        self._draft_seconds = draft_seconds
        self._inject_seconds = inject_seconds
        self._ctrl_c = ctrl_c or CtrlC()
        self._ctrl_c_observing = ctrl_c_observing or CtrlC()

    def propose(self, last: int, position: int, most: int) -> Draft:
        self._ctrl_c.check()
        if most < 1:
            raise ValueError(f"asked for {most} tokens")
        if position != len(self.observed):
            raise ValueError(f"asked at {position}, observed {len(self.observed)} positions")
        self.asked.append(most)
        tokens: list[int] = []
        for _ in range(self.length(most)):
            last = self._knows(last)
            tokens.append(last)
        confidences = tuple(1 / (index + 2) for index in range(len(tokens)))
        return Draft(tuple(tokens), confidences, self._clock.spend(self._draft_seconds))

    def length(self, most: int) -> int:
        """Tokens of the next draft."""
        return min(self._block_size, most)

    def observe(self, taps: np.ndarray, position: int) -> float:
        self._ctrl_c_observing.check()
        if position != len(self.observed):
            raise ValueError(f"taps from {position} on, observed {len(self.observed)} positions")
        self.observed += [(int(at), int(token)) for at, token in taps]
        return self._clock.spend(self._inject_seconds)


def perfect(**options: object) -> ChainDrafter:
    """Knows the target by heart."""
    return ChainDrafter(successor, **options)


def wrong(**options: object) -> ChainDrafter:
    """Never right."""
    return ChainDrafter(lambda _: WRONG, **options)


def half_knowing(**options: object) -> ChainDrafter:
    """Knows what follows an odd token, and nothing else."""
    return ChainDrafter(lambda token: successor(token) if token % 2 else WRONG, **options)


@contextmanager
def full_disk(size: int) -> Iterator[None]:
    """Let no file of this process grow beyond ``size`` bytes: writing fails as on a full disk."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
