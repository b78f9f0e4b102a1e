"""``auto``: draft and score as much as pays, by calibrated confidence and measured cost.

Over a long run the best length k of a draft maximises ``1 + a_1 + ... + a_k - rate T(k)``, where
a_j is the chance that the first j drafts are accepted, T(k) the seconds of scoring k, and ``rate``
the tokens per second that are being achieved. (The paper stops at the first drop, since its T is
smooth; T is jagged on CPUs, so all k are looked at. Any k is exact: a token is committed only
because the target chose it. And T is that of the depth where the run is: the longer the context,
the dearer a row.) Whether to draft at all, and how many rows, is decided by what the
last drafts were worth in the same measure.

Where drafting does not pay, rounds are plain, and their taps wait. Now and then a *shadow* of one
row is drafted and not scored; what the target says next judges it. Shadows cost a fixed small
share of the time. All decisions come from a table of costs and from token counts, and from a clock
only where ``live`` lets what rounds really take correct the table: otherwise the same text gives
the same decisions.
"""

from collections.abc import Sequence
from dataclasses import replace
from itertools import accumulate
from math import exp, log
from operator import mul

from dspark_cli.schedule import (
    WHOLE_DRAFT,
    Costs,
    Cut,
    Outcome,
    Schedule,
    ScheduleOptions,
    WhileConfident,
)

PROBE_SHARE = 0.013  # of the time goes to shadows where nothing is drafted
MEMORY = 64.0  # tokens over which the achieved rate is remembered
LEARNING = 0.25  # least weight of the newest draft in what drafts are worth,
STALENESS = 16.0  # tokens after which an older judgement of that has lost most of its weight
TRUST = 1.0  # drafts that the confidences are believed for before outcomes correct them
OUTCOMES = 32.0  # tokens over which outcomes are remembered
PRIOR = 0.6  # acceptance that is assumed of every position before anything is known
USUAL_PENDING = 2  # rows that are injected before a draft that follows another one
OWN_STEP, COMMON_STEP = 0.4, 0.05  # how far live costs follow one observation: theirs, any other
STALL = 2.0  # times what was expected: a pass that took longer was disturbed
PLAIN_EVERY = 24  # rounds: live costs need to know what plain decoding takes, too
LEAST_CHANCE, MOST_CHANCE = 1e-6, 1 - 1e-6


def best_length(survival: Sequence[float], rate: float, score: Sequence[float]) -> int:
    """The k that maximises ``sum(survival[:k]) - rate * score[k]``; the shortest of equals."""
    gains = accumulate(survival, initial=0.0)
    values = [gain - rate * seconds for gain, seconds in zip(gains, score, strict=False)]
    return max(range(len(values)), key=values.__getitem__)


def draft_worth(survival: Sequence[float], rate: float, costs: Costs) -> float:
    """Tokens that a draft of these chances is worth more than a plain round."""
    k = best_length(survival, rate, costs.score)
    scoring = costs.score[k] - costs.score[0]
    drafting = costs.draft[len(survival)] + costs.injecting(USUAL_PENDING)
    return sum(survival[:k]) - rate * (scoring + drafting)


def followed(costs: Costs, outcome: Outcome, rows: int) -> Costs:
    """Costs that have learned from one round in which ``rows`` were drafted.

    What the clock says of one length moves that entry most. It moves all others a little in
    proportion: a slower machine and a deeper context slow everything.
    """
    draft = costs.draft
    if rows:
        draft = _drawn(draft, rows, outcome.draft_seconds)
    score = _drawn(costs.score, outcome.scored, outcome.score_seconds)
    return replace(costs, score=score, draft=draft)


def _drawn(table: tuple[float, ...], at: int, seconds: float) -> tuple[float, ...]:
    """A table whose entry ``at`` took ``seconds`` just now."""
    change = min(max(seconds / table[at], 1 / STALL), STALL)
    return tuple(
        entry * change ** (OWN_STEP if index == at else COMMON_STEP)
        for index, entry in enumerate(table)
    )


class Auto:
    """A run's decisions, from ``position`` on; ``temperatures`` [block] calibrate confidences."""

    patient = True

    def __init__(
        self,
        costs: Costs,
        temperatures: Sequence[float] = (),
        *,
        live: bool = False,
        position: int = 0,
    ) -> None:
        self._costs = costs.at(position)
        self._position = position
        self._live = live
        self._temperatures = tuple(temperatures)
        self._seconds = self._tokens = 0.0  # remembered
        longest = costs.longest
        self._claimed = [0.0] * longest  # sum of claims, by position
        self._kept = [0.0] * longest  # of which were accepted
        self._worth = [0.0] * longest  # of drafts of 1, 2, ... rows
        self._drafts = 0
        self._age = 0  # tokens since they were judged last
        self._credit = 0.0  # seconds that shadows may take
        self._rows = 0  # of the round under way
        self._since_plain = 0  # rounds
        self._waiting = 0  # rows of taps that the drafter has not been fed
        self._claims: tuple[float, ...] = ()
        self._shadowing = False
        self._note_worth([PRIOR])

    @property
    def rate(self) -> float:
        """Tokens per second that are being achieved, at least those of plain decoding."""
        plain = 1 / self._costs.score[0]
        return max(plain, self._tokens / self._seconds) if self._seconds else plain

    def rows(self, most: int) -> int:
        longest = min(most, self._costs.longest)
        self._shadowing, self._claims, self._rows = False, (), 0
        if longest < 1 or (self._live and self._since_plain >= PLAIN_EVERY):
            return 0
        best = max(range(longest), key=self._worth.__getitem__)
        if self._worth[best] > 0:
            self._rows = best + 1
        elif self._credit >= self._shadow_seconds:
            self._credit -= self._shadow_seconds
            self._shadowing, self._rows = True, 1
        return self._rows

    def cut(self, confidences: Sequence[float], proposed: int) -> Cut:
        if not proposed:
            return Cut(0)
        claims = [self._claim(*item) for item in enumerate(confidences[:proposed])]
        self._claims = tuple(claims or [PRIOR] * proposed)
        chances = [self._chance(*item) for item in enumerate(self._claims)]
        self._note_worth(chances)
        if self._shadowing:
            return Cut(0)
        survival = tuple(accumulate(chances, mul))
        k = best_length(survival, self.rate, self._costs.score)
        return Cut(k, sum(survival[:k]))

    def learn(self, outcome: Outcome) -> None:
        tokens = len(outcome.committed)
        self._age += tokens
        faded = exp(-tokens / OUTCOMES)
        self._claimed = [faded * value for value in self._claimed]
        self._kept = [faded * value for value in self._kept]
        if self._shadowing and outcome.draft:
            # The target's own next token says whether a shadow was right.
            self._note_outcome(0, kept=outcome.committed[0] == outcome.draft[0])
        for position in range(min(outcome.accepted + 1, outcome.scored)):
            self._note_outcome(position, kept=position < outcome.accepted)
        self._since_plain = self._since_plain + 1 if outcome.scored else 0
        if self._live:
            self._costs = followed(self._costs, outcome, self._rows)
        self._position += tokens
        self._costs = self._costs.at(self._position)
        seconds = self._costs.score[outcome.scored] + self._costs.draft[self._rows]
        if self._rows:
            seconds += self._costs.injecting(self._waiting)
            self._waiting = 0
        self._waiting += tokens
        fading = exp(-tokens / MEMORY)
        self._seconds = self._seconds * fading + seconds
        self._tokens = self._tokens * fading + tokens
        # Unused credit does not pile up: after a good stretch shadows stay rare.
        self._credit = min(self._credit + PROBE_SHARE * seconds, self._shadow_seconds)

    @property
    def _shadow_seconds(self) -> float:
        """What a shadow would take now: all taps that wait go in before it."""
        return self._costs.draft[1] + self._costs.injecting(self._waiting)

    def _claim(self, position: int, confidence: float) -> float:
        """A confidence behind its temperature."""
        if position >= len(self._temperatures):
            return confidence
        confidence = min(max(confidence, LEAST_CHANCE), MOST_CHANCE)
        logit = log(confidence / (1 - confidence)) / self._temperatures[position]
        return 1 / (1 + exp(-logit))

    def _chance(self, position: int, claim: float) -> float:
        """A claim in the light of what came of earlier ones."""
        correction = (self._kept[position] + TRUST) / (self._claimed[position] + TRUST)
        return min(claim * correction, 1.0)

    def _note_outcome(self, position: int, *, kept: bool) -> None:
        self._claimed[position] += self._claims[position]
        self._kept[position] += kept

    def _note_worth(self, chances: Sequence[float]) -> None:
        """What drafts of every length would be worth here; the last chance stands for more."""
        longest = self._costs.longest
        extended = [*chances, *[chances[-1]] * (longest - len(chances))][:longest]
        survival = tuple(accumulate(extended, mul))
        weight = max(LEARNING, 1 / (self._drafts + 1), 1 - exp(-self._age / STALENESS))
        for rows in range(1, longest + 1):
            worth = draft_worth(survival[:rows], self.rate, self._costs)
            self._worth[rows - 1] += weight * (worth - self._worth[rows - 1])
        self._drafts += 1
        self._age = 0


def make_schedule(options: ScheduleOptions, position: int = 0) -> Schedule:
    """The schedule of one run that drafts from ``position`` on.

    Raises ValueError for ``auto`` without its costs.
    """
    match options.kind:
        case "fixed":
            return WHOLE_DRAFT
        case "confidence":
            return WhileConfident(options.p_min or 0.0)
    if options.costs is None:
        raise ValueError("auto decides by costs, and was given none")
    return Auto(options.costs, options.temperatures, live=options.live_costs, position=position)
