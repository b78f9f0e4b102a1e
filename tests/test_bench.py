"""``bench``: two sides on the same prompts, in turn; what counts are ratios of medians."""

import json

import pytest
from pairs import write_rigged_drafter, write_rigged_target

from dspark_cli.bench import PLAIN, Bench, BenchPrompt, Measured, fitting
from dspark_cli.errors import DsparkError


def step_by_seven(token: int) -> int:
    return (token + 7) % 288


def measured(**cells) -> Bench:
    """A bench of two prompts, one a category; cells are (tokens, seconds of each trial)."""
    prompts = (BenchPrompt((1,), "chat"), BenchPrompt((2,), "code"))
    bench = Bench(prompts, tuple(cells))
    for arm, of_arm in cells.items():
        for index, (tokens, seconds) in enumerate(of_arm):
            bench.cells[arm, index] = Measured(tokens, list(seconds))
    return bench


def test_a_ratio_is_that_of_the_medians_per_token():
    """One slow trial changes nothing, and a longer prompt weighs more."""
    bench = measured(
        plain=[(100, (1.0, 1.0, 9.0)), (100, (3.0, 3.0, 3.0))],
        auto=[(100, (0.5, 0.5, 0.5)), (100, (1.5, 7.0, 1.5))],
    )

    assert bench.ratio("auto") == pytest.approx(2.0)
    assert bench.ratio("auto", category="chat") == pytest.approx(2.0)
    assert bench.ratio(PLAIN) == 1.0
    assert bench.tokens_per_second("auto") == pytest.approx(100.0)


def test_a_text_that_ends_earlier_is_compared_per_token():
    """Rounding may part two texts, and one of them may be shorter."""
    bench = measured(plain=[(100, (1.0,)), (100, (1.0,))], fixed=[(50, (0.5,)), (100, (1.0,))])

    assert bench.ratio("fixed") == pytest.approx(1.0)


def test_the_spread_shows_the_slowest_and_the_fastest_prompt():
    bench = measured(plain=[(10, (1.0,)), (10, (1.0,))], fixed=[(10, (0.5,)), (10, (2.0,))])

    assert bench.spread("fixed") == pytest.approx((0.5, 2.0))


def test_what_was_not_measured_is_null():
    bench = measured(plain=[(10, (1.0,)), (10, (1.0,))])

    assert bench.ratio("auto") is None
    assert bench.spread("auto") is None


def test_prompts_that_leave_no_room_are_left_out():
    short, long = BenchPrompt((1, 2), "chat"), BenchPrompt((1,) * 90, "chat")

    assert fitting([short, long], 100, 20) == ([short], 1)
    with pytest.raises(DsparkError, match="none of 1 prompts leaves room for 20 tokens"):
        fitting([long], 100, 20)


# --- the command --------------------------------------------------------------------------------


@pytest.fixture
def knowing(tmp_path, monkeypatch):
    """A rigged pair whose drafter is always right, prompts of two categories, an own cache."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    target = write_rigged_target(tmp_path / "t.gguf", next_token=step_by_seven)
    drafter = write_rigged_drafter(
        tmp_path / "d.gguf", target, knows=step_by_seven, confidence=lambda _: 0.9
    )
    prompts = tmp_path / "prompts.jsonl"
    lines = [
        {"prompt": "a", "category": "one"},
        {"prompt": "b", "category": "two"},
        {"prompt": "c"},
    ]
    prompts.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return [
        "bench",
        "-m",
        target.path,
        "-md",
        drafter.path,
        "--prompts",
        prompts,
        "-t",
        1,
        "-n",
        20,
    ]


def test_every_arm_is_measured_on_every_prompt(knowing, dspark):
    """Plain decoding and both schedules, by category, as JSON."""
    done = dspark(*knowing, "--trials", 2, "--json")

    assert done.code == 0, done.err
    found = done.document
    assert list(found["arms"]) == ["plain", "fixed", "auto"]
    assert (found["prompts"], found["trials"]) == (3, 2)
    plain, fixed = found["arms"]["plain"], found["arms"]["fixed"]
    assert plain["ratio_to_plain"] == 1.0
    assert list(fixed["by_category"]) == ["one", "two", "prompts"]
    assert fixed["ratio_to_plain"] > 0
    assert fixed["mean_acceptance_length"] == 5.0
    assert plain["num_spec_steps"] == 0
    assert len(found["score_seconds"]) == len(found["draft_seconds"]) == 5
    assert plain["n_predict"] == fixed["n_predict"] == 60


def test_one_schedule_can_be_measured_alone(knowing, dspark):
    done = dspark(*knowing, "--trials", 1, "--schedules", "fixed", "--json")

    assert list(done.document["arms"]) == ["plain", "fixed"]


def test_people_get_tables(knowing, dspark):
    done = dspark(*knowing, "--trials", 1)

    assert "to plain" in done.out
    assert "times plain decoding" in done.out


def test_a_plot_is_a_picture(knowing, dspark, tmp_path):
    pytest.importorskip("matplotlib", reason="needs the extra plot")

    done = dspark(*knowing, "--trials", 1, "--plot", tmp_path / "bench.png")

    assert done.code == 0, done.err
    assert (tmp_path / "bench.png").read_bytes()[:4] == b"\x89PNG"


@pytest.mark.parametrize(
    ("more", "sentence"),
    [
        (["--schedules", "fastest"], "--schedules wants some of fixed, auto, got fastest"),
        (["--schedules", "fixed,fixed"], "--schedules wants some of"),
        (["--plot", "nowhere/bench.png"], "wanted a file in a folder that exists"),
    ],
)
def test_what_cannot_be_measured_is_one_sentence(knowing, dspark, more, sentence):
    done = dspark(*knowing, *more)

    assert done.code == 2
    assert sentence in done.errors[0]


def test_the_built_in_prompts_are_four_of_each_kind():
    from dspark_cli.cli.bench import built_in  # noqa: PLC0415

    prompts = built_in(None)

    assert len(prompts) == 20
    assert sorted({p.category for p in prompts}) == ["chat", "code", "maths", "rewrite", "story"]
    assert built_in(3) == prompts[:3]
