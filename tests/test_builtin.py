"""The built-in pair: a real, fast pair that needs no download, for a first try and for tests."""

import json

import pytest

from dspark_cli import (
    Generation,
    GenerationOptions,
    MemoryOptions,
    PairOptions,
    find_drafter,
    find_target,
    open_pair,
    raw_prompt,
)
from dspark_cli.metadata import read_metadata

PROMPTS = ("Once upon a time", "Long ago", "12 + 7 =", "def", "Greek:", "One day")


@pytest.fixture(scope="module")
def pair():
    options = PairOptions(
        find_target("builtin"), find_drafter("builtin"), memory=MemoryOptions(threads=1)
    )
    with open_pair(options) as opened:
        yield opened


def test_a_first_run_needs_no_model(dspark):
    """The text comes, and a note says what speaks."""
    done = dspark("run", "-p", "Once upon a time", "-n", 60, "-t", 1)

    assert done.code == 0
    assert len(done.out.split()) > 20
    assert "built-in demonstration pair" in done.err.splitlines()[0]


def test_a_program_reads_the_same_run_as_json(dspark):
    """The note stays on stderr."""
    done = dspark("run", "-p", "Once upon a time", "-n", 20, "-t", 1, "--json")

    assert done.document["n_predict"] == 20
    assert done.document["target"]["name"] == "builtin-target.gguf"


@pytest.mark.parametrize("command", ["run", "check", "inspect"])
def test_a_drafter_without_its_target_is_not_given_another_one(dspark, command):
    """-md alone is a mistake, never a reason to load the demonstration."""
    prompt = [] if command == "inspect" else ["-p", "x"]
    done = dspark(command, "-md", "some.gguf", *prompt)

    assert done.code == 2
    assert done.errors == ["-md was given without -m"]


def test_inspect_shows_what_is_built_in(dspark):
    done = dspark("inspect", "--json")

    assert done.code == 0
    assert done.document["drafter"]["block_size"] == 5


def test_both_files_fit_into_a_small_wheel():
    """12 MB is what a first try may cost."""
    size = find_target("builtin").stat().st_size + find_drafter("builtin").stat().st_size

    assert size < 12_000_000


def test_drafting_pays_off_in_tokens(pair):
    """On six prompts a round commits more than two and a half tokens on average."""
    steps = accepted = 0
    for text in PROMPTS:
        run = Generation(pair, raw_prompt(pair, text), GenerationOptions(n_predict=96))
        for _ in run:
            pass
        steps += run.statistics.num_spec_steps
        accepted += run.statistics.num_accepted_draft_tokens

    assert 1 + accepted / steps >= 2.5


def test_every_character_comes_whole(pair):
    """Byte-level tokens split Greek letters and emoji; no piece of text ever does."""
    for text in ("Greek:", "Japanese:", "Two cats:"):
        run = Generation(pair, raw_prompt(pair, text), GenerationOptions(n_predict=80))
        pieces = list(run.text_pieces())

        assert "".join(pieces) == run.text
        assert "\ufffd" not in "".join(pieces[:-1])
        assert not run.text.isascii()


def test_the_drafter_changes_nothing(dspark, tmp_path):
    """check finds no divergence over stories, sums, code and other alphabets."""
    prompts = tmp_path / "prompts.jsonl"
    prompts.write_text("".join(json.dumps({"prompt": text}) + "\n" for text in PROMPTS))

    done = dspark("check", "--prompts", prompts, "-n", 96, "-t", 1, "--json")

    assert done.code == 0
    assert done.document["summary"]["diverged"] == 0


def test_its_confidences_are_calibrated():
    """The drafter brings a temperature for every draft position."""
    metadata = read_metadata(find_drafter("builtin"))

    temperatures = metadata.values["dspark_cli.confidence_temperatures"]

    assert len(temperatures) == metadata.integer("dflash.block_size")
    assert all(0.05 < value < 20 for value in temperatures)


def test_a_directory_of_that_name_hides_nothing(tmp_path, monkeypatch, dspark):
    """Only a file called builtin comes before the name."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "builtin").mkdir()

    assert dspark("inspect", "-m", "builtin").code == 0

    (tmp_path / "smollm2").write_bytes(b"not a model")

    assert "smollm2: is no GGUF file" in dspark("inspect", "-m", "smollm2").errors[0]
