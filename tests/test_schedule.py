"""What a round scores is decided by pure functions, and never changes the text."""

import json

import pytest
from fakes import CountingTarget, greedy, half_knowing, perfect, wrong
from pairs import write_rigged_drafter, write_rigged_target

from dspark_cli import MemoryOptions, PairOptions, open_pair
from dspark_cli.auto import make_schedule
from dspark_cli.decode import Decoding
from dspark_cli.errors import UsageError
from dspark_cli.events import Round
from dspark_cli.measure import measure_growth, straightened
from dspark_cli.schedule import FIXED, WHOLE_DRAFT, Growth, ScheduleOptions, WhileConfident


def step_by_seven(token: int) -> int:
    return (token + 7) % 288


def rounds(drafter, schedule, limit=24) -> list[Round]:
    decoding = Decoding(
        CountingTarget(), drafter, [1, 2, 3], greedy, room=200, limit=limit, schedule=schedule
    )
    return [event for event in decoding if isinstance(event, Round)]


@pytest.mark.parametrize(
    ("confidences", "least", "length"),
    [
        ((0.9, 0.8, 0.7), 0.0, 3),
        ((0.9, 0.8, 0.7), 0.7, 3),
        ((0.9, 0.6, 0.9), 0.7, 1),
        ((0.5, 0.9, 0.9), 0.7, 0),
        ((), 0.7, 0),
    ],
)
def test_a_draft_ends_before_the_first_token_that_is_not_trusted(confidences, least, length):
    """Later tokens stand on it, however much the drafter trusts them."""
    assert WhileConfident(least).cut(confidences, len(confidences)).scored == length


def test_a_fixed_schedule_scores_all_that_was_drafted():
    assert WHOLE_DRAFT.cut((0.1, 0.1), 2).scored == 2


@pytest.mark.parametrize("least", [0.0, 0.3, 0.4, 0.45, 0.51, 1.0])
@pytest.mark.parametrize("drafter", [perfect, wrong, half_knowing])
def test_no_threshold_changes_the_text(drafter, least):
    """A token is committed because the target chose it; the fakes trust 1/2, 1/3, 1/4, 1/5."""
    done = rounds(drafter(), WhileConfident(least))

    assert [token for round_ in done for token in round_.tokens] == list(range(4, 28))


@pytest.mark.parametrize(("least", "scored"), [(0.0, 4), (0.25, 3), (0.4, 1), (0.6, 0)])
def test_only_what_is_trusted_is_scored(least, scored):
    """The rest was drafted, and is neither accepted nor rejected."""
    first = rounds(perfect(), WhileConfident(least))[0]

    assert (first.proposed, first.scored, first.accepted) == (4, scored, scored)
    assert first.rejected == first.ignored == 0
    assert len(first.tokens) == scored + 1


def test_the_drafter_is_fed_whatever_was_scored():
    """A round that scores nothing still feeds the taps of its token."""
    drafter = perfect()

    done = rounds(drafter, WhileConfident(0.6))

    assert all(round_.scored == 0 for round_ in done)
    assert len(drafter.observed) == 2 + len(done)


@pytest.mark.parametrize(
    ("kind", "p_min", "sentence"),
    [
        ("confidence", None, "--schedule confidence wants its threshold"),
        ("confidence", 1.5, "--spec-draft-p-min wants 0 to 1, got 1.5"),
        ("fixed", 0.5, "--spec-draft-p-min and --schedule fixed contradict each other"),
    ],
)
def test_options_that_make_no_schedule_are_refused(kind, p_min, sentence):
    with pytest.raises(UsageError, match=sentence):
        ScheduleOptions(kind, p_min)


def test_only_auto_has_costs_that_a_clock_could_correct():
    with pytest.raises(UsageError, match="--live-costs and --schedule fixed contradict"):
        ScheduleOptions("fixed", live_costs=True)


def test_in_the_library_fixed_is_the_default():
    assert make_schedule(FIXED) is WHOLE_DRAFT
    assert make_schedule(ScheduleOptions("confidence", 0.3)) == WhileConfident(0.3)


# --- the command --------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def speaking(tmp_path_factory):
    """A rigged pair whose drafter knows everything and whose confidence is known."""
    folder = tmp_path_factory.mktemp("speaking")
    target = write_rigged_target(folder / "t.gguf", next_token=step_by_seven)
    return target.path, folder


def run_words(target, drafter, *more):
    return ["run", "-m", target, "-md", drafter, "-p", "a", "-n", 12, "-t", 1, "--json", *more]


def test_the_threshold_alone_is_enough(speaking, dspark):
    """As in llama.cpp; the histogram shows what was scored."""
    target, folder = speaking
    drafter = write_rigged_drafter(
        folder / "d.gguf", _target(folder), knows=step_by_seven, confidence=lambda _: 0.3
    ).path

    whole = dspark(*run_words(target, drafter, "--schedule", "fixed")).document
    cut = dspark(*run_words(target, drafter, "--spec-draft-p-min", 0.5)).document

    assert cut["tokens"] == whole["tokens"]
    assert cut["scored_length_histogram"] == {"0": 12}
    assert cut["num_spec_steps"] == 0
    assert whole["num_spec_steps"] > 0


def test_check_takes_the_same_schedule(speaking, dspark):
    target, folder = speaking
    drafter = write_rigged_drafter(
        folder / "d2.gguf", _target(folder), knows=step_by_seven, confidence=lambda _: 0.3
    ).path

    done = dspark(
        "check", "-m", target, "-md", drafter, "-p", "a", "-n", 12, "-t", 1, "--json",
        "--schedule", "confidence", "--spec-draft-conf-min", 0.2,
    )  # fmt: skip

    assert done.code == 0
    assert done.document["summary"]["identical"] == 1


def test_a_drafter_without_confidences_cannot_be_cut_by_them(speaking, dspark):
    """Decided by metadata, before weights are loaded."""
    target, folder = speaking
    drafter = write_rigged_drafter(
        folder / "silent.gguf", _target(folder), knows=step_by_seven, confidence=None
    ).path

    done = dspark(*run_words(target, drafter, "--spec-draft-p-min", 0.5))

    assert done.code == 4
    assert "has no confidence head" in done.document["error"]["message"]


def _target(folder):
    return write_rigged_target(folder / "t.gguf", next_token=step_by_seven)


def auto_words(target, drafter, *more):
    return run_words(target, drafter, "--schedule", "auto", *more)


@pytest.fixture
def knowing(speaking, tmp_path, monkeypatch):
    """A pair whose drafter is always right, and a cache of its own."""
    target, folder = speaking
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    drafter = write_rigged_drafter(
        tmp_path / "d.gguf", _target(folder), knows=step_by_seven, confidence=lambda _: 0.9
    ).path
    return target, drafter, tmp_path / "cache"


def test_auto_measures_once_and_keeps_what_it_found(knowing, dspark):
    """The second run decides by the same table, so it decides the same."""
    target, drafter, cache = knowing

    first, second = (dspark(*auto_words(target, drafter)) for _ in range(2))

    assert first.code == second.code == 0
    assert "--schedule auto: measured this pair" in first.err
    assert "measured" not in second.err
    (kept,) = cache.rglob("*.json")
    assert json.loads(kept.read_text())["draft"][0] == 0
    assert first.document["tokens"] == second.document["tokens"]
    shape = "scored_length_histogram"
    assert first.document[shape] == second.document[shape]


def test_what_a_longer_context_costs_is_found_out_when_a_run_may_get_there(knowing, dspark):
    """Once, and kept; whoever wants a short text does not wait for it."""
    target, drafter, cache = knowing

    def growth(*more):
        done = dspark(*auto_words(target, drafter, *more))
        assert done.code == 0, done.err
        (kept,) = cache.rglob("*.json")
        return json.loads(kept.read_text())["growth"], "tokens of context" in done.err

    assert growth() == (None, False)
    assert growth("-c", 600, "-n", 500) == (None, False)
    found, told = growth("-n", 1100)
    assert told
    assert len(found["score"]) == len(found["draft"]) == 5
    assert min(found["score"]) >= 0
    assert growth("-n", 1100) == (found, False)


def test_auto_leaves_the_text_as_it_is(knowing, dspark):
    """Whatever it decides, the target chooses."""
    target, drafter, _ = knowing

    auto = dspark(*auto_words(target, drafter, "-n", 60)).document
    whole = dspark(*run_words(target, drafter, "-n", 60)).document
    checked = dspark("check", "-m", target, "-md", drafter, "-p", "a", "-n", 60, "-t", 1,
                     "--schedule", "auto")  # fmt: skip

    assert auto["tokens"] == whole["tokens"]
    assert checked.code == 0


FORGED = b"""{"format": 3, "score": %b, "draft": [0, 1, 1, 1, 1], "inject": %b,
 "temperatures": %b, "depth": %b, "growth": %b}"""


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{}",
        b"[1]",
        b"\xff",
        b'{"format": 2, "score": [1], "draft": [0]}',
        FORGED % (b"[1e999, 1, 1, 1, 1]", b"[0, 0]", b"[]", b"9", b"null"),
        FORGED % (b"[1, 1, 1, 1, 1]", b"[0]", b"[]", b"9", b"null"),
        FORGED % (b"[1, 1, 1, 1, 1]", b"[0, 0]", b"[0]", b"9", b"null"),
        FORGED % (b"[1, 1, 1, 1, 1]", b"[0, 0]", b"[]", b"1e999", b"null"),
        FORGED % (b"[1, 1, 1, 1, 1]", b"[0, 0]", b"[]", b"9", b"{}"),
        FORGED % (b"[1, 1, 1, 1, 1]", b"[0, 0]", b"[]", b"9", b'{"score": [-1], "draft": [0]}'),
    ],
)
def test_a_damaged_table_is_measured_anew(knowing, dspark, content):
    """With a warning, and without harm."""
    target, drafter, cache = knowing
    dspark(*auto_words(target, drafter))
    (kept,) = cache.rglob("*.json")
    kept.write_bytes(content)

    done = dspark(*auto_words(target, drafter))

    assert done.code == 0
    assert "measuring anew" in done.err
    assert json.loads(kept.read_text())["format"] == 3


def test_auto_is_the_default_where_there_is_something_to_decide_by(knowing, dspark):
    """A confidence head is; what was decided, and foretold, is in the statistics."""
    target, drafter, _ = knowing

    done = dspark(*run_words(target, drafter, "-n", 40))

    assert "--schedule auto: measured this pair" in done.err
    found = done.document
    if found["num_spec_steps"]:
        assert found["expected_acceptance_length"] > 1


def test_a_drafter_that_says_nothing_of_itself_is_scored_whole(
    speaking, dspark, tmp_path, monkeypatch
):
    """Until its pair is calibrated: then the costs decide, and outcomes."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    target, folder = speaking
    drafter = write_rigged_drafter(folder / "d.gguf", _target(folder), knows=step_by_seven).path

    before = dspark(*run_words(target, drafter))
    calibrated = dspark("calibrate", "-m", target, "-md", drafter, "-t", 1)
    after = dspark(*run_words(target, drafter, "-n", 40))

    assert before.err.count("measured") == 0
    assert before.document["scored_length_histogram"]["4"] >= 2
    assert before.document["expected_acceptance_length"] is None
    assert calibrated.code == after.code == 0
    assert "measured" not in after.err
    assert after.document["tokens"][:12] == before.document["tokens"]


def test_a_context_too_small_to_measure_in_is_no_obstacle(knowing, dspark):
    """Nobody asked for auto, so nobody is refused; who asks for it is."""
    target, drafter, cache = knowing

    by_default = dspark(*run_words(target, drafter, "-c", 32))
    asked = dspark(*auto_words(target, drafter, "-c", 32))

    assert by_default.code == 0
    assert "too small to measure in" in by_default.err
    assert by_default.document["scored_length_histogram"]["4"] >= 2
    assert asked.code == 2
    assert (
        "-c 32 is too small to measure in, wanted at least" in asked.document["error"]["message"]
    )
    assert not list(cache.rglob("*.json"))


@pytest.mark.parametrize("batch", [1, 2, 6])
def test_a_pair_is_measured_in_batches_of_any_size(knowing, dspark, batch):
    """What is timed fits into the batch that the run has."""
    target, drafter, _ = knowing

    done = dspark(*auto_words(target, drafter, "-b", batch))

    assert done.code == 0, done.out
    assert "measured this pair" in done.err


def test_costs_can_follow_the_clock(knowing, dspark):
    """--live-costs means auto; the text stays the target's own."""
    target, drafter, _ = knowing

    live = dspark(*run_words(target, drafter, "--live-costs", "-n", 60))
    table = dspark(*auto_words(target, drafter, "-n", 60))

    assert live.code == 0
    assert live.document["tokens"] == table.document["tokens"]


def test_a_calibration_can_be_left_out(knowing, dspark):
    """Nothing is read, nothing is kept."""
    target, drafter, cache = knowing

    done = dspark(*auto_words(target, drafter, "--no-calibration"))

    assert done.code == 0
    assert not list(cache.rglob("*.json"))


def test_without_a_drafter_there_is_nothing_to_decide(knowing, dspark):
    target, _, cache = knowing

    words = ["run", "-m", target, "--no-draft", "-p", "a", "-n", 5, "--json"]

    done = dspark(*words, "--schedule", "auto")

    assert done.code == 0
    assert not cache.exists()


# --- calibrate ----------------------------------------------------------------------------------


def test_a_calibration_is_what_auto_decides_by(knowing, dspark, tmp_path):
    """Costs and temperatures are measured, shown, kept, and used without another word."""
    target, drafter, cache = knowing
    prompts = tmp_path / "prompts.txt"
    prompts.write_text("".join(f"{chr(97 + i)}\n" for i in range(20)))

    done = dspark(
        "calibrate", "-m", target, "-md", drafter, "--prompts", prompts, "-n", 24, "-t", 1,
        "--json",
    )  # fmt: skip

    assert done.code == 0, done.err
    found = done.document
    assert len(found["score_seconds"]) == len(found["draft_seconds"]) == 5
    assert found["draft_seconds"][0] == 0
    assert min(found["score_seconds"]) > 0
    assert len(found["score_seconds_per_position"]) == 5
    assert min(found["score_seconds_per_position"] + found["draft_seconds_per_position"]) >= 0
    assert found["depth"] == 128
    assert len(found["temperatures"]) == 4
    assert found["labels"][0] >= 80
    (kept,) = cache.rglob("*.json")
    assert json.loads(kept.read_text())["temperatures"] == found["temperatures"]
    assert "measured" not in dspark(*auto_words(target, drafter)).err


def test_a_confidence_that_is_wrong_gets_its_temperature(knowing, dspark, tmp_path):
    """This drafter says 0.9 and is always right: a low temperature makes that a certainty."""
    target, drafter, _ = knowing
    prompts = tmp_path / "prompts.txt"
    prompts.write_text("".join(f"{chr(97 + i % 26)}{i}\n" for i in range(50)))

    found = dspark(
        "calibrate", "-m", target, "-md", drafter, "--prompts", prompts, "-n", 60, "-t", 1,
        "--json",
    ).document  # fmt: skip

    assert found["labels"][0] >= 200
    assert found["temperatures"][0] < 0.6
    assert found["calibration_error_after"][0] < found["calibration_error_before"][0]


def test_what_is_built_in_can_be_calibrated_with_its_own_texts(dspark, tmp_path, monkeypatch):
    """A target that cannot chat goes on with openings of its own."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))

    done = dspark("calibrate", "--limit", 4, "-n", 24, "-t", 1)

    assert done.code == 0
    assert "draft tokens" in done.out
    assert "... calibrated" in done.out
    assert "kept in" in done.err


def test_a_cache_that_cannot_be_written_to_is_a_warning(knowing, dspark, tmp_path):
    """The numbers are shown all the same."""
    target, drafter, cache = knowing
    cache.write_text("a file where a folder should be")
    prompts = tmp_path / "prompts.txt"
    prompts.write_text("a\nb\n")

    done = dspark("calibrate", "-m", target, "-md", drafter, "--prompts", prompts, "-n", 8)

    assert done.code == 0
    assert "cannot be written to, so nothing is kept" in done.err


# --- growth -------------------------------------------------------------------------------------


def test_growth_is_a_straight_line_over_the_rows():
    """Noise of one length is not taken for its nature, and nothing gets faster."""
    assert straightened([1.0, 2.0, 3.0]) == pytest.approx((1.0, 2.0, 3.0))
    assert straightened([1.0, 3.0, 2.0, 4.0]) == pytest.approx((1.3, 2.1, 2.9, 3.7))
    assert straightened([-3.0, -1.0, 1.0]) == pytest.approx((0.0, 0.0, 1.0))
    assert straightened([-2.0]) == (0.0,)


def test_growth_is_not_looked_for_where_that_would_take_long(knowing):
    """A model that reads slowly does not fill its memory; a short context holds too little."""
    target, drafter, _ = knowing
    slow = iter(range(0, 10_000, 100))
    for ctx_size, expected in ((1024, Growth((0.0,) * 5, (0.0,) * 5)), (300, None)):
        memory = MemoryOptions(ctx_size=ctx_size, threads=1)
        with open_pair(PairOptions(target, drafter, memory=memory)) as pair:
            found = measure_growth(pair, seconds=1.0, clock=lambda: next(slow))
            assert pair.target.context.held == 0
        assert found == expected
