"""``dspark check`` as a script meets it: verdicts, summaries, exit codes."""

import json
import re
import signal
import subprocess
import sys

import pytest
from pairs import (
    write_random_drafter,
    write_random_target,
    write_rigged_drafter,
    write_rigged_target,
    write_taught_drafter,
)
from reference import TargetReference, greedy
from test_compare import BLUR, KeepsARejectedToken, OneTokenTooMany, blur

from dspark_cli.compare import compare
from dspark_cli.decode import Decoding

PROMPT = "The rain in Spain stays"


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """Arguments that name a context-sensitive target and a drafter that is half right."""
    folder = tmp_path_factory.mktemp("check")
    target = write_random_target(folder / "target.gguf")
    text = greedy(TargetReference(target), list(PROMPT.encode()), 80)
    drafter = write_taught_drafter(folder / "drafter.gguf", target, [[ord(PROMPT[-1]), *text]])
    return ["-m", target.path, "-md", drafter.path, "-t", "1", "-c", "256"]


@pytest.fixture
def check(dspark, files):
    return lambda *arguments: dspark("check", *files, *arguments)


@pytest.fixture
def faulty(monkeypatch):
    """Put another loop in the place of the one under test."""

    def plant(loop: type[Decoding]) -> None:
        monkeypatch.setattr(
            "dspark_cli.compare.compare",
            lambda *these, **those: compare(*these, **those, loop=loop),
        )

    return plant


def test_a_sound_pair_is_equivalent_and_the_exit_code_is_0(check):
    outcome = check("-p", PROMPT, "-n", "60")

    assert outcome.code == 0
    assert outcome.out.startswith("identical  60 tokens, tau ")
    assert outcome.out.endswith("equivalent\n")
    assert "1 + accepted per drafted round" in outcome.out
    assert "NOT" not in outcome.out


def test_a_fault_is_not_equivalent_and_the_exit_code_is_1(check, faulty):
    """The line names the place, both tokens with texts and logits, and a command to repeat it."""
    faulty(OneTokenTooMany)
    outcome = check("-p", PROMPT, "-n", "60")

    first, again, *_ = outcome.out.splitlines()
    assert outcome.code == 1
    assert first.startswith("diverged   at token ")
    assert all(word in first for word in ("plain", "speculative", "gap", "tolerance", "tau"))
    assert again.strip().startswith("again: dspark check -m ")
    assert re.search(r" -n 60 .*--token-ids <\(echo 84( \d+)+\)$", again)
    assert outcome.out.endswith("NOT equivalent\n")


def test_the_command_that_is_printed_does_it_again(check, faulty, monkeypatch):
    """Its token ids are the prompt; bash hands them over as a file."""
    faulty(KeepsARejectedToken)
    found = json.loads(check("-p", PROMPT, "-n", "60", "--json").out)["prompts"][0]
    monkeypatch.undo()
    command = found["reproduce"].replace(
        "dspark check", f"{sys.executable} -m dspark_cli check", 1
    )

    done = subprocess.run(
        ["bash", "-c", command], capture_output=True, text=True, check=False, timeout=120
    )

    assert found["verdict"] == "diverged"
    assert done.returncode == 0
    assert done.stdout.startswith("identical  60 tokens")


def test_the_command_that_is_printed_has_every_option_of_the_run(check, faulty):
    """What decides kernels decides texts: cache types, batches, attention, threads."""
    faulty(OneTokenTooMany)
    options = "-b 64 -ub 32 -td 2 -fa on -ctk f32 -ctv bf16 -ctkd f32 --tolerance 0.5"

    outcome = check("-p", PROMPT, "-n", "60", *options.split(), "--json")

    command = outcome.document["prompts"][0]["reproduce"]
    words = "-n 60 -c 256 -b 64 -ub 32 -t 1 -td 2 -fa on -ctk f32 -ctv bf16 -ctkd f32"
    assert f" {words} --tolerance 0.5 --token-ids " in command


def test_a_tie_passes_unless_strict(check, monkeypatch):
    """Rounding is no fault; whoever wants every text identical says so."""
    blur(monkeypatch, BLUR)

    lax = check("-p", PROMPT, "-n", "80")
    strict = check("-p", PROMPT, "-n", "80", "--strict")

    assert (lax.code, strict.code) == (0, 1)
    assert lax.out.startswith("tie        at token ")
    assert "parted where rounding decides" in lax.out
    assert strict.out.endswith("NOT equivalent (strict)\n")


def test_a_given_tolerance_decides(check, monkeypatch):
    blur(monkeypatch, BLUR)

    assert check("-p", PROMPT, "-n", "80", "--tolerance", "0.0001").code == 1
    assert check("-p", PROMPT, "-n", "80", "--tolerance", "10").code == 0


def test_json_holds_every_prompt_and_the_summary(check, tmp_path):
    file = tmp_path / "prompts.jsonl"
    file.write_text('{"turns": ["one", "never"]}\n{"prompt": "two"}\n"three"\n')

    outcome = check("--prompts", file, "-n", "20", "--json")

    assert outcome.code == 0
    summary = outcome.document["summary"]
    assert summary["equivalent"] is True
    assert (summary["prompts"], summary["identical"]) == (3, 3)
    assert summary["tokens_compared"] == 60
    assert summary["mean_acceptance_length"] >= 1
    first = outcome.document["prompts"][0]
    assert first["prompt"] == f"{file}, line 1"
    assert first["verdict"] == "identical"
    assert first["finish_reason"] == {"plain": "length", "speculative": "length"}
    assert first["reproduce"] is None


def test_json_lines_come_one_per_prompt(check, tmp_path, faulty):
    faulty(OneTokenTooMany)
    file = tmp_path / "prompts.txt"
    file.write_text(f"{PROMPT}\nThe plain\n")

    outcome = check("--prompts", file, "-n", "40", "--jsonl")

    events = [json.loads(line) for line in outcome.out.splitlines()]
    assert outcome.code == 1
    assert [event["event"] for event in events] == ["prompt", "prompt", "summary"]
    assert events[0]["plain"]["logit"] > events[0]["speculative"]["logit"]
    assert isinstance(events[0]["plain"]["text"], str)
    assert events[-1]["equivalent"] is False


@pytest.mark.parametrize(("limit", "seed"), [(1, None), (2, None), (3, 1), (9, 2)])
def test_a_part_of_the_prompts_can_be_taken(check, tmp_path, limit, seed):
    """In an order that the seed decides: the same one every time."""
    file = tmp_path / "prompts.txt"
    file.write_text("".join(f"prompt {number}\n" for number in range(5)))
    shuffled = [] if seed is None else ["--shuffle", seed]

    def taken() -> list[str]:
        outcome = check("--prompts", file, "--limit", limit, *shuffled, "-n", "2", "--json")
        return [prompt["prompt"] for prompt in outcome.document["prompts"]]

    names = [f"{file}, line {number}" for number in range(1, 6)]
    assert len(taken()) == min(limit, 5)
    assert taken() == taken()
    assert set(taken()) <= set(names)
    assert (taken() == names[:limit]) is (seed is None)


def test_a_drafter_of_another_target_is_named_without_failing_the_check(dspark, tmp_path):
    """Bad drafters are bugs too, but not in the loop."""
    target = write_random_target(tmp_path / "t.gguf")
    stranger = write_random_drafter(tmp_path / "d.gguf", target, seed=9)

    outcome = dspark("check", "-m", target.path, "-md", stranger.path, "-t", "1", "-p", PROMPT)

    assert outcome.code == 0
    assert outcome.err.count("does not seem to belong to this target") == 1


def test_sampled_texts_of_one_seed_are_compared(check):
    assert check("-p", PROMPT, "-n", "40", "--temp", "0.8", "--seed", "7").code == 0


def test_sampling_needs_a_seed(check):
    """Two runs of two seeds say nothing."""
    outcome = check("-p", PROMPT, "--temp", "0.8")

    assert outcome.code == 2
    assert "--seed" in outcome.errors[0]


@pytest.mark.parametrize(
    "wrong",
    [
        "--tolerance nan",
        "--tolerance inf",
        "--tolerance -1",
        "--limit 0",
        "-n -2",
        "--json --jsonl",
    ],
)
def test_options_that_cannot_be_are_refused(check, wrong):
    outcome = check("-p", PROMPT, *wrong.split())

    assert outcome.code == 2
    assert "Traceback" not in outcome.err


def test_a_prompt_too_long_is_named_before_anything_is_compared(check, tmp_path):
    file = tmp_path / "prompts.txt"
    file.write_text("short\n" + "x" * 300 + "\n")

    outcome = check("--prompts", file)

    assert outcome.code == 1
    assert outcome.out == ""
    assert outcome.errors == [f"{file}, line 2: the prompt has 300 tokens, the context holds 256"]


def test_there_is_nothing_to_check_without_a_drafter(dspark, files):
    outcome = dspark("check", *files[:2], "-p", PROMPT)

    assert outcome.code == 2
    assert "no drafter for" in outcome.errors[0]


def test_ctrl_c_gives_the_summary_of_what_is_done(tmp_path):
    """Exit code 130, unless a divergence was found before."""
    target = write_rigged_target(tmp_path / "t.gguf", next_token=lambda _: 97)
    drafter = write_rigged_drafter(tmp_path / "d.gguf", target, knows=lambda _: 97)
    file = tmp_path / "prompts.txt"
    file.write_text("prompt\n" * 5000)
    with subprocess.Popen(
        [sys.executable, "-m", "dspark_cli", "check", "-m", target.path, "-md", drafter.path,
         "--prompts", file, "-t", "1", "-n", "16", "--jsonl"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:  # fmt: skip
        process.stdout.readline()
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=120)

    summary = json.loads(out.splitlines()[-1])
    assert process.returncode == 130
    assert err == b""
    assert summary["interrupted"] is True
    assert summary["equivalent"] is True
    assert 1 <= summary["prompts"] < 5000
