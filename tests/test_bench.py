"""``bench``: two sides on the same prompts, in turn; what counts are ratios of medians."""

import json
import sys

import numpy as np
import pytest
from pairs import write_rigged_drafter, write_rigged_target

from dspark_cli.bench import PLAIN, Bench, BenchPrompt, Measured, fitting
from dspark_cli.errors import DsparkError
from dspark_cli.measure import Watched


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


def test_speed_can_be_measured_at_a_depth_of_the_context(knowing, dspark):
    """Other text stands before every prompt; what it takes to read is not in the speed."""
    done = dspark(*knowing, "--trials", 1, "--depth", 100, "--json")
    beyond = dspark(*knowing, "--trials", 1, "--depth", 100, "-c", 110, "--json")

    assert done.code == 0, done.err
    arms = done.document["arms"]
    assert arms["fixed"]["n_prompt"] == arms["plain"]["n_prompt"] == 3 * 101
    assert arms["fixed"]["n_predict"] == 60
    assert beyond.code == 1
    assert "none of 3 prompts leaves room for 20 tokens" in beyond.document["error"]["message"]


def test_one_schedule_can_be_measured_alone(knowing, dspark):
    done = dspark(*knowing, "--trials", 1, "--schedules", "fixed", "--json")

    assert list(done.document["arms"]) == ["plain", "fixed"]


def test_people_get_tables(knowing, dspark):
    done = dspark(*knowing, "--trials", 1)

    assert "x plain" in done.out
    assert "always right would reach" in done.out


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


# --- bounds and oracles -------------------------------------------------------------------------


def test_what_was_watched_says_how_much_of_every_draft_is_right():
    """A draft is judged by the text that follows it, as far as there is one."""
    watched = Watched(
        drafts=[(5, 6, 9), (6, 7, 8), (1, 8, 8), (8, 0, 0)],
        confidences=[(0.9, 0.8, 0.7)] * 4,
        text=[5, 6, 7, 8],
    )

    assert watched.right == [2, 3, 0, 1]
    outcomes = watched.outcomes(3)
    assert outcomes.hits.tolist() == [
        [True, True, False],
        [True, True, True],
        [False, False, False],
        [True, False, False],
    ]
    assert outcomes.real.sum(axis=1).tolist() == [3, 3, 2, 1]
    assert outcomes.confidence[0] == pytest.approx(np.log([9, 4, 7 / 3]))


def test_an_oracle_shows_what_a_perfect_drafter_would_be_worth(knowing, dspark, tmp_path):
    """It takes its time from a drafter that is always wrong, and is always right."""
    target = write_rigged_target(tmp_path / "t.gguf", next_token=step_by_seven)
    wrong = write_rigged_drafter(
        tmp_path / "wrong.gguf", target, knows=lambda token: (token + 1) % 288,
        confidence=lambda _: 0.5,
    )  # fmt: skip
    knowing[knowing.index("-md") + 1] = wrong.path

    done = dspark(*knowing, "--trials", 1, "--oracle", "--json")

    assert done.code == 0, done.err
    arms = done.document["arms"]
    assert list(arms) == ["plain", "fixed", "auto", "oracle"]
    assert arms["fixed"]["num_accepted_draft_tokens"] == 0
    assert arms["oracle"]["num_rejected_draft_tokens"] == 0
    assert arms["oracle"]["n_predict"] == 60
    assert done.document["hindsight_ratio_to_plain"] == 1.0
    assert done.document["perfect_ratio_to_plain"] >= 1.0


# --- another program ----------------------------------------------------------------------------

# It reads its options and the prompt as the real one does; every byte is a token of this target.
SPEAKING = """
import sys
words = dict(zip(sys.argv[1:-1], sys.argv[2:]))
text = open(words["-f"], "rb").read()
assert text.endswith(b"\\n"), text
assert words["--spec-type"] == "draft-dspark", words
assert words["--spec-draft-n-max"] == "4" and words["-t"] == words["-td"] == "1", words
n = int(words["-n"]) + 1
print(f"encoded {len(text) - 1:4d} tokens in    0.100 seconds, speed: 1.000 t/s", file=sys.stderr)
print(f"decoded {n:4d} tokens in    0.500 seconds, speed: {n / 0.5:8.3f} t/s", file=sys.stderr)
print(f"n_drafted = 40\\nn_accept  = {n // 2}", file=sys.stderr)
"""


@pytest.fixture
def program(tmp_path):
    """Write a program that stands in for the other runner."""

    def write(source: str):
        path = tmp_path / "runner"
        path.write_text(f"#!{sys.executable}\n{source}")
        path.chmod(0o755)
        return path

    return write


def test_another_program_takes_part_in_the_same_alternation(knowing, dspark, program):
    """On the same files, prompts and threads; its own report says how long it took."""
    done = dspark(*knowing, "--trials", 1, "--peer", program(SPEAKING), "--json")

    assert done.code == 0, done.err
    arms = done.document["arms"]
    assert list(arms) == ["plain", "fixed", "auto", "peer"]
    assert arms["peer"]["tokens_per_second"] == pytest.approx(40.0)
    assert arms["peer"]["mean_acceptance_length"] == 2.0
    assert arms["peer"]["ratio_to_peer"] == 1.0
    fixed = arms["fixed"]
    assert fixed["ratio_to_peer"] == pytest.approx(fixed["tokens_per_second"] / 40.0)
    assert "x peer" in dspark(*knowing, "--trials", 1, "--peer", program(SPEAKING)).out


def test_without_another_program_there_is_no_ratio_to_it(knowing, dspark):
    done = dspark(*knowing, "--trials", 1, "--json")

    assert all(arm["ratio_to_peer"] is None for arm in done.document["arms"].values())


@pytest.mark.parametrize(
    ("source", "sentence"),
    [
        ("print('hello')", "reports no time, wanted llama-speculative-simple"),
        ("raise SystemExit(7)", "ended with exit code 7"),
        (SPEAKING.replace("len(text) - 1", "len(text)"), "read 2 tokens of a prompt of 1"),
    ],
)
def test_a_program_that_does_something_else_is_one_sentence(
    knowing, dspark, program, source, sentence
):
    done = dspark(*knowing, "--trials", 1, "--peer", program(source))

    assert done.code == 1
    assert sentence in done.errors[0]


def test_a_program_that_is_none_is_refused_before_anything_is_loaded(knowing, dspark, tmp_path):
    done = dspark(*knowing, "--peer", tmp_path)

    assert done.code == 2
    assert "wanted a program that can be run" in done.errors[0]
