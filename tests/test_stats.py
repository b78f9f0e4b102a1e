"""What the rounds add up to, computed by hand."""

import json
import random

import pytest

from dspark_cli.events import Finish, Prefill, Rollback, Round, Text
from dspark_cli.stats import Depth, Statistics, depth_of

# Four rounds of a drafter with a block of 4. All numbers are sums of powers of two, so that the
# arithmetic below is exact.
PREFILLS = [Prefill(4, 6, 0.5, 0.25), Prefill(6, 6, 0.25, 0.0)]
ALL_ACCEPTED = Round(
    tokens=(11, 12, 13, 14, 15),
    position=6,
    proposed=4,
    scored=4,
    accepted=4,
    ignored=0,
    confidences=(1.0, 0.75, 0.5, 0.5),
    draft_seconds=1.0,
    score_seconds=2.0,
    inject_seconds=0.5,
    seconds=4.0,
)
TWO_OF_THREE_REJECTED = Round(
    tokens=(16, 17),
    position=11,
    proposed=4,
    scored=3,
    accepted=1,
    ignored=0,
    confidences=(0.75, 0.25, 0.25, 0.0),
    draft_seconds=1.0,
    score_seconds=2.0,
    inject_seconds=0.5,
    seconds=4.0,
)
PLAIN = Round((18,), 13, 0, 0, 0, 0, score_seconds=1.0, seconds=1.5)
CUT = Round(
    tokens=(19, 20),
    position=14,
    proposed=4,
    scored=4,
    accepted=2,
    ignored=2,
    confidences=(1.0, 0.5, 0.0, 0.25),
    draft_seconds=1.0,
    score_seconds=2.0,
    seconds=3.5,
)
EVENTS = [
    *PREFILLS,
    ALL_ACCEPTED,
    Text(b"abc", drafted=True),
    TWO_OF_THREE_REJECTED,
    PLAIN,
    CUT,
    Finish("eog", 16),
]


def added(*events, n_prompt: int = 0) -> Statistics:
    statistics = Statistics(n_prompt=n_prompt)
    for event in events:
        statistics.add(event)
    return statistics


def first_position(accepted: int, rounds: int) -> Statistics:
    """So many drafted rounds, of which so many accepted their only draft token."""
    return added(
        *[Round((1, 2), 0, 1, 1, 1, 0)] * accepted,
        *[Round((1,), 0, 1, 1, 0, 0)] * (rounds - accepted),
    )


def random_round(chance: random.Random) -> Round:
    proposed = chance.randint(0, 5)
    scored = chance.randint(0, proposed)
    accepted = chance.randint(0, scored)
    ignored = chance.choice([0, scored - accepted])
    return Round(
        tokens=tuple(range(accepted + 1)),
        position=0,
        proposed=proposed,
        scored=scored,
        accepted=accepted,
        ignored=ignored,
        confidences=tuple(chance.randint(0, 8) / 8 for _ in range(proposed)),
        draft_seconds=chance.randint(0, 8) / 8,
        score_seconds=chance.randint(0, 8) / 8,
        inject_seconds=chance.randint(0, 8) / 8,
        seconds=chance.randint(24, 32) / 8,
    )


# --- one run, by hand ---------------------------------------------------------------------------


def test_the_counts_of_a_run():
    """Every key of the document, in its documented order."""
    document = added(*EVENTS, n_prompt=7).as_json()

    expected = {
        "n_prompt": 7,
        "n_predict": 5 + 2 + 1 + 2,
        "num_spec_steps": 3,
        "num_plain_steps": 1,
        "num_shadow_steps": 0,
        "num_proposed_draft_tokens": 4 + 4 + 4,
        "num_draft_tokens": 4 + 3 + 4,
        "num_accepted_draft_tokens": 4 + 1 + 2,
        "num_rejected_draft_tokens": 2,
        "num_ignored_draft_tokens": 2,
        "mean_acceptance_length": 1 + 7 / 3,
        "expected_acceptance_length": None,
        "draft_acceptance_rate": 7 / 11,
        "acceptance_histogram": {"1": 1, "2": 1, "4": 1},
        "scored_length_histogram": {"0": 1, "3": 1, "4": 2},
        # Position 3 was judged in two steps: in the cut one it was behind the end.
        "acceptance_rate_per_pos": [3 / 3, 2 / 3, 1 / 2, 1 / 1],
        # Position 3 was reached once, for the second step had parted at position 2.
        "conditional_acceptance_rate_per_pos": [3 / 3, 2 / 3, 1 / 1, 1 / 1],
        "acceptance_by_depth": [
            {
                "from_position": 0,
                "to_position": 1024,
                "num_spec_steps": 3,
                "num_draft_tokens": 11,
                "num_accepted_draft_tokens": 7,
                "draft_acceptance_rate": 7 / 11,
                "mean_acceptance_length": 1 + 7 / 3,
            }
        ],
        "rollback_tokens": 0,
        "mean_confidence": (2.75 + 1.25 + 1.75) / 12,
        "mean_confidence_per_pos": [2.75 / 3, 1.5 / 3, 0.75 / 3, 0.75 / 3],
    }
    assert document == expected
    assert list(document) == list(expected)


def test_the_timings_of_a_run():
    """Every key of the timings; the single-token pass is the one of the plain round."""
    timings = added(*EVENTS, n_prompt=7).timings_as_json()

    expected = {
        "prefill_seconds": 1.0,
        "prefill_tokens_per_second": 6.0,
        "decode_seconds": 13.0,
        "decode_tokens_per_second": 10 / 13,
        "draft_seconds": 3.0,
        "score_seconds": 7.0,
        "inject_seconds": 1.0,
        "rollback_seconds": 0.0,
        "other_seconds": 2.0,
        "other_share": 2 / 13,
        "single_token_seconds": 1.0,
        # A plain round has 2 s / 4 of Python too.
        "plain_seconds_estimate": (1.0 + 0.5) * 10,
        "saved_seconds": 15.0 - 13.0,
    }
    assert timings == expected
    assert list(timings) == list(expected)


@pytest.mark.parametrize(
    ("position", "begins"),
    [
        (0, 0),
        (1023, 0),
        (1024, 1024),
        (2047, 1024),
        (2048, 2048),
        (28_000, 16_384),
        (2**17, 2**17),
    ],
)
def test_depths_double(position, begins):
    """Few enough to be read at any length, and fine where drafters fade first."""
    assert depth_of(position) == begins


def test_acceptance_is_told_apart_by_depth():
    """Two runs together count as one; rounds without a draft are in no depth."""
    shallow = added(Round((1, 2, 3), 10, 4, 4, 2, 0), Round((1,), 3000, 0, 0, 0, 0))
    shallow.merge(added(Round((1,), 5000, 4, 4, 0, 0), Round((1, 2), 20, 2, 2, 1, 0)))

    assert shallow.depths == {0: Depth(2, 6, 3), 4096: Depth(1, 4, 0)}
    assert [at["draft_acceptance_rate"] for at in shallow.as_json()["acceptance_by_depth"]] == [
        0.5,
        0.0,
    ]


def test_a_rollback_is_part_of_the_time_and_of_no_other():
    """Its seconds are not Python's."""
    statistics = added(
        Round((1,), 0, 4, 4, 0, 0, score_seconds=1.0, rollback=Rollback(0.5, 1), seconds=2.0)
    )

    assert statistics.other_seconds == 0.5
    assert (statistics.rollback_seconds, statistics.rollback_tokens) == (0.5, 1)


def test_a_run_says_why_it_ended():
    """And nothing before it has."""
    assert added(*EVENTS[:-1]).finish_reason is None
    assert added(*EVENTS).finish_reason == "eog"


@pytest.mark.parametrize("seed", range(20))
def test_accepted_rejected_and_ignored_make_up_the_draft_tokens(seed):
    """Whatever the rounds were."""
    chance = random.Random(seed)
    statistics = added(*(random_round(chance) for _ in range(30)))

    assert statistics.num_draft_tokens == (
        statistics.num_accepted_draft_tokens
        + statistics.num_rejected_draft_tokens
        + statistics.num_ignored_draft_tokens
    )
    assert statistics.rounds == 30
    assert sum(statistics.histogram.values()) == statistics.num_spec_steps
    assert sum(statistics.accepted_per_pos) == statistics.num_accepted_draft_tokens


def test_a_cut_round_judges_only_what_stands_before_the_end():
    """Nobody knows whether the target would have agreed with what was behind it."""
    statistics = added(CUT)

    assert statistics.acceptance_rate_per_pos == [1.0, 1.0]
    assert statistics.conditional_acceptance_rate_per_pos == [1.0, 1.0]
    assert statistics.draft_acceptance_rate == 2 / 4


def test_tokens_that_were_drafted_but_not_scored_are_not_draft_tokens():
    """Proposed and scored are two counts; only scored ones are accepted or not."""
    statistics = added(TWO_OF_THREE_REJECTED)

    assert statistics.num_proposed_draft_tokens == 4
    assert statistics.num_draft_tokens == 3
    assert statistics.acceptance_rate_per_pos == [1.0, 0.0, 0.0]
    assert statistics.conditional_acceptance_rate_per_pos == [1.0, 0.0, None]


def test_time_outside_llama_cpp_is_never_negative():
    """Clocks may disagree by a little."""
    assert added(Round((1,), 0, 0, 0, 0, 0, score_seconds=2.0, seconds=1.5)).other_seconds == 0.0


# --- nothing below the line ---------------------------------------------------------------------


def test_without_a_round_every_rate_is_null():
    """An empty run is an honest document, without NaN."""
    statistics = added()
    document = {**statistics.as_json(), **statistics.timings_as_json()}

    rates = {name for name, value in document.items() if value is None}
    assert rates == {
        "mean_acceptance_length",
        "expected_acceptance_length",
        "draft_acceptance_rate",
        "mean_confidence",
        "prefill_tokens_per_second",
        "decode_tokens_per_second",
        "other_share",
        "single_token_seconds",
        "plain_seconds_estimate",
        "saved_seconds",
    }
    assert json.loads(json.dumps(document, allow_nan=False)) == document


def test_without_a_draft_the_rates_of_drafting_are_null():
    """Public report lc#16501: no drafts gave an acceptance of -nan %."""
    document = added(PLAIN, PLAIN, Finish("length", 2)).as_json()

    assert document["num_plain_steps"] == 2
    assert document["num_draft_tokens"] == 0
    assert document["draft_acceptance_rate"] is None
    assert document["mean_acceptance_length"] is None
    assert document["mean_confidence"] is None
    assert document["acceptance_histogram"] == {}
    assert document["acceptance_rate_per_pos"] == []


def test_without_a_confidence_head_its_means_are_null():
    """A plain DFlash drafter says nothing of its trust; its acceptance is counted all the same."""
    document = added(Round((1, 2), 0, 2, 2, 1, 0)).as_json()

    assert document["mean_confidence"] is None
    assert document["mean_confidence_per_pos"] == []
    assert document["acceptance_rate_per_pos"] == [1.0, 0.0]


@pytest.mark.parametrize("seed", range(20))
def test_the_documents_survive_json(seed):
    """Read back they are the same: keys are texts, numbers are numbers, nothing is NaN."""
    chance = random.Random(seed)
    statistics = added(*(random_round(chance) for _ in range(seed)))

    for document in (statistics.as_json(), statistics.timings_as_json()):
        assert json.loads(json.dumps(document, allow_nan=False)) == document


def test_the_histogram_is_in_order():
    """By tokens accepted, not by when it first happened or by spelling."""
    rounds = [Round((), 0, 12, 12, accepted, 0) for accepted in (10, 2, 0, 2, 11)]

    assert list(added(*rounds).as_json()["acceptance_histogram"].items()) == [
        ("0", 1),
        ("2", 2),
        ("10", 1),
        ("11", 1),
    ]


# --- what follows from the numbers --------------------------------------------------------------


@pytest.mark.parametrize(
    ("accepted", "rounds", "foreign"),
    [
        pytest.param(6, 32, True, id="18.75 %"),
        pytest.param(7, 32, False, id="21.9 %"),
        pytest.param(0, 32, True, id="never right"),
        pytest.param(0, 31, False, id="too few rounds to tell"),
        pytest.param(20, 100, False, id="20 %"),
        pytest.param(19, 100, True, id="19 %"),
        pytest.param(0, 0, False, id="no rounds"),
    ],
)
def test_a_drafter_that_hardly_ever_starts_right_looks_foreign(accepted, rounds, foreign):
    """Below a fifth at the first position, after 32 rounds that drafted."""
    assert first_position(accepted, rounds).looks_foreign is foreign


def test_plain_rounds_do_not_make_a_drafter_foreign():
    """Only rounds with a draft are evidence."""
    assert not added(*[PLAIN] * 100, *[Round((1,), 0, 1, 1, 0, 0)] * 31).looks_foreign


@pytest.mark.parametrize(
    ("seconds", "saved"), [(3.0, 2.0), (5.0, 0.0), (8.0, -3.0)], ids=["gain", "even", "loss"]
)
def test_saved_seconds_say_whether_drafting_paid(seconds, saved):
    """Five tokens would have taken a second each."""
    statistics = added(
        Round((1, 2, 3, 4, 5), 0, 4, 4, 4, 0, score_seconds=seconds, seconds=seconds)
    )
    statistics.plain_score_seconds.append(1.0)

    assert statistics.saved_seconds == saved


def test_what_drafts_promised_stands_beside_what_came():
    """Of two scored drafts 1.5 and 0.5 tokens were expected; a shadow promises nothing."""
    statistics = added(
        Round((1, 2, 3), 0, 2, 2, 2, 0, expected=1.5),
        Round((4,), 3, 2, 1, 0, 0, expected=0.5),
        Round((5,), 4, 1, 0, 0, 0),
    )

    assert statistics.expected_acceptance_length == 1 + 2 / 2
    assert statistics.mean_acceptance_length == 1 + 2 / 2
    assert (statistics.num_spec_steps, statistics.num_shadow_steps) == (2, 1)


def test_no_seconds_are_saved_without_a_draft_or_a_measurement():
    """Nothing is claimed that was not measured."""
    assert added(PLAIN).saved_seconds is None
    assert added(ALL_ACCEPTED).saved_seconds is None


def test_the_single_token_pass_is_a_median():
    """One slow pass, as the first often is, does not count."""
    statistics = added()
    statistics.plain_score_seconds += [9.0, 1.0, 2.0]

    assert statistics.single_token_seconds == 2.0


# --- several runs -------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(20))
def test_merging_runs_is_adding_all_their_rounds(seed):
    """However the rounds are dealt out, longer and shorter drafts together."""
    chance = random.Random(seed)
    rounds = [random_round(chance) for _ in range(30)]
    cut = chance.randint(0, 30)
    first = added(*rounds[:cut], Finish("eog", 1), n_prompt=3)
    second = added(*rounds[cut:], Finish("length", 1), n_prompt=4)

    first.merge(second)

    assert first == added(*rounds, Finish("length", 1), n_prompt=7)


def test_merging_adds_the_prompts_too():
    """Tokens and seconds of reading them, so that the speed is that of all."""
    total = added(*PREFILLS)

    total.merge(added(Prefill(2, 2, 1.0, 0.0)))

    assert (total.prefill_tokens, total.prefill_seconds) == (8, 2.0)


def test_merging_leaves_the_other_run_alone():
    """The total grows; what was merged into it stays that run's own."""
    total, run = Statistics(), added(*EVENTS)

    total.merge(run)
    total.merge(run)

    assert run == added(*EVENTS)
    assert total.num_accepted_draft_tokens == 14
