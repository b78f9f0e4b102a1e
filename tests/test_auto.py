"""``auto``: never much slower than plain decoding, and as fast as the drafter allows.

The real loop runs over fakes whose clock advances by a table of costs, so every figure here is
arithmetic. Tables are milliseconds measured on 2 cores for SmolLM2 (F32, F16, 4 bits).
"""

from dataclasses import replace
from itertools import accumulate
from operator import mul

import numpy as np
import pytest
from fakes import ChainDrafter, Clock, CountingTarget, greedy, successor

from dspark_cli.auto import Auto, best_length, draft_worth, followed
from dspark_cli.bounds import least_seconds, speed_bound
from dspark_cli.decode import Decoding
from dspark_cli.events import Round
from dspark_cli.schedule import Costs, Cut, Growth, Outcome

DRAFT = (0.0, 1.9, 2.8, 4.0, 4.5, 5.8)  # with an injection
TABLES = {
    "F32": Costs((19.3, 24.6, 27.6, 30.6, 33.0, 40.1), DRAFT),
    "F16": Costs((12.5, 19.1, 18.1, 27.4, 28.0, 31.2), DRAFT),
    "Q4_1": Costs((11.7, 21.7, 31.7, 32.6, 47.3, 46.0), DRAFT),
}
every_table = pytest.mark.parametrize("costs", TABLES.values(), ids=TABLES)


class TableTarget(CountingTarget):
    """Takes as long for a batch as the table says."""

    def __init__(self, costs: Costs, clock: Clock) -> None:
        super().__init__(clock=clock, room=100_000, chunk=512)
        self._costs = costs

    def score(self, tokens, position):
        scored = super().score(tokens, position)
        seconds = self._costs.at(position).score[len(tokens) - 1]
        return type(scored)(scored.logits, self._clock.spend(seconds))


class TableDrafter(ChainDrafter):
    """Right or wrong as ``right(position)`` says, with confidences of its own."""

    def __init__(self, costs: Costs, clock: Clock, right, confidence) -> None:
        super().__init__(successor, block_size=costs.longest, clock=clock)
        self._costs = costs
        self._right = right
        self._confidence = confidence

    def propose(self, last, position, most):
        draft = super().propose(last, position, most)
        seconds = self._clock.spend(self._costs.draft[len(draft.tokens)])
        tokens, confidences = [], []
        for offset, token in enumerate(draft.tokens):
            right = self._right(position + offset)
            tokens.append(token if right else (token + 7) % 256)
            confidences.append(self._confidence(right))
        return type(draft)(tuple(tokens), tuple(confidences), seconds)


def simulate(costs, right, confidence, tokens=512, **options):
    """Rounds and milliseconds of one run under ``auto``."""
    clock = Clock()
    drafter = TableDrafter(costs, clock, right, confidence)
    decoding = Decoding(
        TableTarget(costs, clock), drafter, [1, 2], greedy,
        room=100_000, limit=tokens, schedule=Auto(costs, **options), clock=clock,
    )  # fmt: skip
    rounds = [event for event in decoding if isinstance(event, Round)]
    return rounds, clock.now


def plain(costs, tokens=512):
    return costs.score[0] * tokens


# --- the rule -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("survival", "rate", "score", "k"),
    [
        ((0.9, 0.8), 0.1, (10, 11, 12), 2),  # 0.9 and 1.7 against 1.1 and 1.2
        ((0.9, 0.8), 0.1, (10, 30, 31), 0),  # -1, -2.1, -1.4
        ((0.5, 0.45), 0.1, (10, 16, 15), 2),  # a jag: two are cheaper than one
        ((0.5, 0.1), 0.1, (10, 14, 20), 1),
        ((), 0.1, (10,), 0),
        ((0.0, 0.0), 0.0, (10, 10, 10), 0),  # equals: the shortest
    ],
)
def test_the_best_length_is_the_one_with_the_largest_gain(survival, rate, score, k):
    """All lengths are compared: costs are jagged, and a drop may be followed by a rise."""
    assert best_length(survival, rate, score) == k


@every_table
@pytest.mark.parametrize("seed", range(20))
def test_the_rule_is_what_trying_every_length_finds(costs, seed):
    random = np.random.default_rng(seed)
    survival = tuple(accumulate(random.random(5), mul))
    rate = float(random.uniform(0.02, 0.3))

    values = [sum(survival[:k]) - rate * costs.score[k] for k in range(6)]

    k = best_length(survival, rate, costs.score)
    assert values[k] == pytest.approx(max(values))
    worth = draft_worth(survival, rate, costs)
    assert worth == pytest.approx(max(values) + rate * (costs.score[0] - costs.draft[5]))


def test_a_draft_is_worth_nothing_where_no_token_survives():
    """It costs its drafting, and is not scored."""
    costs = TABLES["F16"]

    assert draft_worth((0.0,) * 5, 0.08, costs) == pytest.approx(-0.08 * costs.draft[5])


JAGGED = (1.0, 1.6, 1.7)  # the second draft token is nearly free, the first is not


@pytest.mark.parametrize(("second", "k"), [(0.9, 2), (0.1, 0)])
def test_a_longer_draft_may_be_worth_it_where_a_shorter_one_is_not(second, k):
    """The paper's Appendix A: the first token is scored or not as the second one is trusted."""
    survival = tuple(accumulate((0.5, second), mul))

    assert best_length(survival, 1.0, JAGGED) == k


def test_such_a_choice_leaves_the_distribution_as_it_is():
    """There, drafts that are scored by what follows them bias a rejection sampler.

    The target says A in 7 of 10 cases, else B; A is drafted with a sequel that is trusted, B with
    one that is not. What is said is drawn by the target and matched, so it stays 0.7 and 0.3.
    """
    a, b = 10, 20
    random = np.random.default_rng(11)

    class Drafts(ChainDrafter):
        def propose(self, last, position, most):
            first = a if random.random() < 0.5 else b
            draft = super().propose(last, position, most)
            return type(draft)((first, 30), (0.5, 0.9 if first == a else 0.1))

    class Rule:
        patient = False

        def __init__(self):
            self.lengths = []

        def rows(self, most):
            return most

        def cut(self, confidences, proposed):
            survival = tuple(accumulate(confidences, mul))
            k = best_length(survival, 1.0, JAGGED) if proposed else 0
            self.lengths.append(k)
            return Cut(k)

        def learn(self, outcome):
            pass

    rule, said = Rule(), []
    for _ in range(4000):
        draws = iter(random.random(3) < 0.7)
        decoding = Decoding(
            CountingTarget(), Drafts(successor, block_size=2), [1, 2],
            lambda _, draws=draws: a if next(draws) else b,
            room=100, limit=3, schedule=rule,
        )  # fmt: skip
        said += [event.tokens[0] for event in decoding if isinstance(event, Round)][:1]

    assert set(rule.lengths) == {0, 2}
    share = said.count(a) / len(said)
    assert abs(share - 0.7) < 4 * (0.7 * 0.3 / len(said)) ** 0.5


# --- bounds -----


def test_hindsight_makes_every_draft_as_long_as_it_is_right():
    """Four tokens: three in one round with two right drafts, then a plain one."""
    costs = Costs((10.0, 12.0, 13.0), (0.0, 1.0, 2.0), (0.5, 9.0))

    assert least_seconds([2, 0, 0, 0], costs) == 13.0 + 2.0 + 0.5 + 9.0 + 10.0


def test_hindsight_drafts_only_where_it_pays():
    """Every draft is right, and none is worth its time."""
    costs = Costs((10.0, 30.0, 50.0), (0.0, 1.0, 2.0))

    assert least_seconds([2] * 6, costs) == 60.0
    assert speed_bound([[2] * 6], [costs]) == 1.0
    assert speed_bound([], []) is None


def test_no_text_is_drafted_beyond_its_end():
    """The last token is a bonus: two tokens are one round with one draft."""
    costs = Costs((10.0, 12.0, 13.0), (0.0, 1.0, 2.0))

    assert least_seconds([2, 2], costs) == 13.0
    assert least_seconds([2], costs) == 10.0


@every_table
def test_no_run_is_faster_than_hindsight(costs):
    random = np.random.default_rng(3)
    known = [bool(random.random() < 0.7) for _ in range(520)]

    rounds, took = simulate(costs, lambda at: known[at], lambda right: 0.9 if right else 0.3)

    begin = rounds[0].position
    right = []
    for at in range(begin, begin + 512):
        run = [known[at + offset] for offset in range(costs.longest)]
        right.append(run.index(False) if False in run else costs.longest)
    assert least_seconds(right, costs) <= took


# --- depth -----

# Milliseconds of SmolLM2 F32 at 128 tokens of context, and what every further one adds to them:
# a batch that costs little more than a token becomes several times as dear.
DEEPENING = Costs(
    (31.9, 37.4, 42.8, 48.5, 54.1, 59.2),
    DRAFT,
    depth=128,
    growth=Growth((0.015, 0.029, 0.047, 0.062, 0.073, 0.084), (0.0,) * 6),
)


def test_costs_grow_with_the_context():
    """Linearly, from the depth where they were measured; above it they are as measured."""
    assert DEEPENING.at(128) is DEEPENING.at(0) is DEEPENING
    assert DEEPENING.at(1128).score[0] == pytest.approx(31.9 + 15)
    assert DEEPENING.at(628).at(1128).score == pytest.approx(DEEPENING.at(1128).score)
    assert DEEPENING.at(1128).draft == DRAFT
    assert Costs((1.0, 2.0), (0.0, 1.0)).at(1000).score == (1.0, 2.0)


def test_what_pays_in_a_short_context_is_left_alone_in_a_long_one():
    """Half of the tokens are guessed: a table that knows of the depth ends it where it loses."""

    known = np.random.default_rng(5).random(8000) < 0.5

    def run(costs, position):
        clock = Clock()
        drafter = TableDrafter(DEEPENING, clock, lambda at: known[at], lambda _: 0.5)
        target = TableTarget(DEEPENING, clock)
        prompt = list(range(250)) * (position // 250 + 1)
        decoding = Decoding(
            target, drafter, prompt[: position + 1], greedy, room=100_000, limit=512,
            schedule=Auto(costs, position=position + 1), clock=clock,
        )  # fmt: skip
        rounds = [event for event in decoding if isinstance(event, Round)]
        took = sum(event.seconds for event in rounds)
        drafted = sum(event.scored > 0 for event in rounds) / len(rounds)
        plainly = sum(DEEPENING.at(position + at).score[0] for at in range(512))
        return plainly / took, drafted

    blind = replace(DEEPENING, growth=None)
    assert run(DEEPENING, 100) == pytest.approx(run(blind, 100), rel=0.1)
    assert run(DEEPENING, 100)[0] > 1.15
    assert run(blind, 6000)[0] < 0.8
    speed, drafted = run(DEEPENING, 6000)
    assert speed > 0.98
    assert drafted < 0.1


@pytest.mark.parametrize(
    ("score", "draft"),
    [((1.0,), (0.0,)), ((1.0, -1.0), (0.0, 0.0)), ((1.0, 1.0), (0.5, 0.0))],
)
def test_a_growth_that_cannot_be_is_refused(score, draft):
    with pytest.raises(ValueError, match=r"growth|nothing faster"):
        Costs((1.0, 2.0), (0.0, 1.0), growth=Growth(score, draft))


def test_hindsight_knows_the_depth_of_every_text():
    """Each text is weighed by its own costs."""
    near, far = DEEPENING, DEEPENING.at(8000)
    right = [5] * 60

    both = speed_bound([right, right], [near, far])

    assert speed_bound([right], [far]) < both < speed_bound([right], [near])


# --- live costs -----


def test_a_length_that_takes_longer_moves_most():
    """And all others a little: a deeper context slows everything."""
    costs = Costs((10.0, 12.0, 14.0), (0.0, 1.0, 2.0))

    after = followed(costs, Outcome((1, 2), 2, 0, (5,), 2.0, 21.0), rows=2)

    assert 14.0 < after.score[2] < 21.0
    assert 10.0 < after.score[0] < 10.5
    assert after.score[2] / 14.0 > after.score[0] / 10.0
    assert after.draft == costs.draft


def test_a_stall_does_not_overturn_the_table():
    """A pass that took a hundred times as long counts as twice."""
    costs = Costs((10.0, 12.0), (0.0, 1.0))

    assert followed(costs, Outcome((), 0, 0, (5,), 0.0, 1000.0), rows=0) == followed(
        costs, Outcome((), 0, 0, (5,), 0.0, 20.0), rows=0
    )


def test_live_costs_find_out_that_a_table_is_wrong():
    """A table that promises cheap scoring: the clock says otherwise, and drafting ends."""
    real = TABLES["Q4_1"]
    promised = Costs((11.7, 12.0, 12.3, 12.6, 12.9, 13.2), DRAFT)

    def run(*, live):
        clock = Clock()
        drafter = TableDrafter(real, clock, lambda at: at % 3 == 0, lambda _: 0.5)
        decoding = Decoding(
            TableTarget(real, clock), drafter, [1, 2], greedy, room=100_000, limit=512,
            schedule=Auto(promised, live=live), clock=clock,
        )  # fmt: skip
        for _ in decoding:
            pass
        return clock.now

    assert run(live=True) < 1.1 * plain(real)
    assert run(live=False) > 1.3 * plain(real)


# --- runs ---------------------------------------------------------------------------------------


@every_table
@pytest.mark.parametrize("claimed", [0.05, 0.3, 0.6, 0.95])
def test_a_drafter_that_is_always_wrong_costs_next_to_nothing(costs, claimed):
    """Whatever it claims: within 3 % of plain decoding over 512 tokens."""
    _, took = simulate(costs, lambda _: False, lambda _: claimed)

    assert took <= 1.03 * plain(costs)


@pytest.mark.parametrize("name", ["F32", "F16"])
def test_a_perfect_drafter_reaches_what_the_costs_allow(name):
    """Within 5 % of whole blocks in every round."""
    costs = TABLES[name]
    bound = 512 / 6 * (costs.score[5] + costs.draft[5])

    _, took = simulate(costs, lambda _: True, lambda _: 0.99)

    assert took <= bound / 0.95


@every_table
@pytest.mark.parametrize("honesty", [0.2, 0.5, 0.8, 1.0])
def test_no_mixture_is_slower_than_plain_decoding(costs, honesty):
    """Half right in bursts, with confidences between blind and clairvoyant: 3 % at most."""
    random = np.random.default_rng(5)
    burst = [bool(random.random() < 0.5) for _ in range(200)]

    def right(position):
        return burst[position // 8 % 200]

    def confidence(is_right):
        return 0.5 + (0.5 if is_right else -0.5) * honesty * 0.96

    _, took = simulate(costs, right, confidence)

    assert took <= 1.03 * plain(costs)


def test_what_becomes_predictable_is_found_again():
    """200 tokens nobody could guess, then a text by heart: drafted within 32 tokens."""
    costs = TABLES["F16"]

    rounds, _ = simulate(costs, lambda at: at >= 200, lambda right: 0.95 if right else 0.2)

    first = next(r.position for r in rounds if r.scored and r.position >= 200)
    assert first < 200 + 32


@every_table
def test_shadows_cost_little_and_keep_coming(costs):
    """Where nothing pays, at most 1.5 % of the time goes to looking whether it still does not."""
    rounds, took = simulate(costs, lambda _: False, lambda _: 0.05, tokens=2000)

    settled = rounds[100:]
    shadows = [round_ for round_ in settled if round_.proposed]
    assert all(round_.proposed == 1 and round_.scored == 0 for round_ in shadows)
    assert len(shadows) >= 5
    assert len(shadows) * costs.draft[1] <= 0.015 * took


def test_taps_of_plain_rounds_wait_for_the_next_draft():
    """The drafter is fed in order and all at once; nothing is lost."""
    costs = TABLES["F16"]
    clock = Clock()
    drafter = TableDrafter(costs, clock, lambda at: at >= 150, lambda right: 0.9 if right else 0.1)
    decoding = Decoding(
        TableTarget(costs, clock), drafter, [1, 2], greedy,
        room=100_000, limit=300, schedule=Auto(costs), clock=clock,
    )  # fmt: skip

    rounds = [event for event in decoding if isinstance(event, Round)]

    assert sum(round_.scored for round_ in rounds) > 0
    assert [position for position, _ in drafter.observed] == list(range(len(drafter.observed)))


def test_decisions_do_not_depend_on_a_clock():
    """The same text and table give the same rounds."""
    runs = [
        simulate(TABLES["F16"], lambda at: at % 5 > 1, lambda right: 0.8 if right else 0.3)[0]
        for _ in range(2)
    ]

    shapes = [[(r.proposed, r.scored, r.accepted) for r in rounds] for rounds in runs]
    assert shapes[0] == shapes[1]


def test_confidences_are_corrected_by_what_came_of_them():
    """A drafter that claims 0.9 and keeps 0.45 is soon believed half."""
    auto = Auto(TABLES["F32"])
    for turn in range(60):
        auto.rows(5)
        auto.cut((0.9,) * 5, 5)
        kept = turn % 2
        auto.learn(Outcome((1,) * 5, 1, kept, (1,) * (kept + 1)))

    assert 0.4 < auto._chance(0, 0.9) < 0.6  # noqa: SLF001


@pytest.mark.parametrize(
    ("score", "draft"), [((1.0,), (0.0,)), ((1.0, 2.0), (0.0,)), ((0.0, 1.0), (0.0, 1.0))]
)
def test_costs_that_cannot_be_are_refused(score, draft):
    with pytest.raises(ValueError, match="costs"):
        Costs(score, draft)
