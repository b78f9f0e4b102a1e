"""run and inspect know the shapes that convert reads: what they are, and what to type."""

import pytest
from checkpoints import write_checkpoint
from forks import write_fork
from pairs import Mutation, write_random_target

from dspark_cli.metadata import read_metadata


@pytest.fixture
def fork(tmp_path, target):
    return write_fork(tmp_path / "fork.gguf", target).path


@pytest.fixture
def checkpoint(tmp_path, target):
    return write_checkpoint(tmp_path / "saved", target, framework="SpecForge").path


def test_run_names_the_command_for_a_file_of_the_fork(dspark, fork, target):
    outcome = dspark("run", "-m", target.path, "-md", fork, "-p", "a")

    assert outcome.code == 4
    assert f"dspark convert {fork} -m {target.path} -o fork-dflash.gguf" in outcome.err


@pytest.mark.parametrize("inside", ["", "model.safetensors"])
def test_run_names_the_command_for_a_checkpoint(dspark, checkpoint, target, inside):
    source = checkpoint / inside

    outcome = dspark("run", "-m", target.path, "-md", source, "-p", "a")

    assert outcome.code == 2
    assert f"dspark convert {source} -m {target.path} -o " in outcome.err


def test_the_named_command_works(dspark, fork, target, tmp_path, monkeypatch):
    """What run says to type makes a drafter that run takes."""
    monkeypatch.chdir(tmp_path)
    refused = dspark("run", "-m", target.path, "-md", fork, "-p", "a")
    (line,) = [line for line in refused.err.splitlines() if line.startswith("hint: ")]

    converted = dspark(*line.removeprefix("hint: dspark ").split())
    run = dspark("run", "-m", target.path, "-md", "fork-dflash.gguf", "-p", "a", "-n", 8)

    assert (converted.code, run.code) == (0, 0), converted.err + run.err


def test_a_file_of_the_fork_is_described_as_it_will_be(dspark, fork, target):
    pair = ("inspect", "-m", target.path, "-md", fork)
    words, document = dspark(*pair), dspark(*pair, "--json").document

    assert words.code == 4  # what run would be refused for
    assert "log-SNR conditioning" in words.out
    assert f"dspark convert {fork} -m {target.path}" in words.out.replace("\n", "")
    assert document["conversion"]["converts"] is True
    assert document["converted"]["block_size"] == 4
    assert document["converted"]["taps"] == [1, 3]
    assert document["converted"]["markov_rank"] == 8


def test_a_checkpoint_is_described_as_it_will_be(dspark, checkpoint, target):
    document = dspark("inspect", "-m", target.path, "-md", checkpoint, "--json").document

    assert document["conversion"]["kind"] == "a checkpoint of SpecForge"
    assert document["conversion"]["converts"] is True
    assert document["drafter"]["taps"] == [1, 3]
    assert document["drafter"]["confidence_head"] is True


@pytest.mark.parametrize("what", ["fork", "checkpoint"])
def test_a_source_is_known_without_its_target(dspark, what, request):
    source = request.getfixturevalue(what)

    outcome = dspark("inspect", "-md", source)

    assert outcome.code == 0, outcome.err
    assert {"fork": "PrismML", "checkpoint": "SpecForge"}[what] in outcome.out
    assert "TARGET.gguf" in outcome.out


def test_what_cannot_be_converted_says_why(dspark, tmp_path, target):
    """inspect refuses for the reason that convert would, and with its exit code."""
    gated = write_checkpoint(tmp_path / "in", target, config={"markov_head_type": "gated"})

    in_words = dspark("inspect", "-m", target.path, "-md", gated.path)
    document = dspark("inspect", "-m", target.path, "-md", gated.path, "--json").document

    assert in_words.code == 1
    assert "cannot be converted: " in in_words.out
    assert "gated" in in_words.out
    assert document["conversion"]["converts"] is False
    assert "gated" in document["conversion"]["refusal"]
    assert document["drafter"] is None


def test_what_does_not_fit_its_target_says_so(dspark, tmp_path, target):
    far = write_checkpoint(tmp_path / "in", target, taps=(0, 9))

    outcome = dspark("inspect", "-m", target.path, "-md", far.path)

    assert outcome.code == 4
    assert "layer 10" in outcome.out


def test_a_target_that_cannot_run_here_is_no_obstacle(dspark, tmp_path, target):
    """The drafter of a target that is not tapped is converted and compared; the note says so."""
    untapped = write_random_target(tmp_path / "untapped.gguf", arch="qwen2")
    fork = write_fork(tmp_path / "fork.gguf", target)
    out = tmp_path / "out.gguf"

    outcome = dspark("convert", fork.path, "-m", untapped.path, "-o", out, "-t", 1)

    assert outcome.code == 0, outcome.err
    assert "cannot be run here yet" in outcome.err
    assert "qwen2" in outcome.err
    assert "4 of 4 random blocks" in outcome.out


def test_the_geometry_of_the_published_drafters_has_75_tensors(dspark, tmp_path, target):
    """Six layers of 11, and 9: 79 in the fork's file, less four of the conditioning."""
    fork = write_fork(tmp_path / "fork.gguf", target, n_layer=6)
    out = tmp_path / "out.gguf"

    assert len(read_metadata(fork.path).tensors) == 79
    assert dspark("convert", fork.path, "-m", target.path, "-o", out, "-t", 1).code == 0
    assert len(read_metadata(out).tensors) == 75


def test_an_abort_of_llama_cpp_leaves_nothing_behind(dspark, tmp_path, target):
    """A target that cannot be loaded, whose embeddings would be borrowed: exit code 5."""
    broken = write_random_target(
        tmp_path / "broken.gguf", mutation=Mutation(tensors={"blk.0.attn_q.weight": None})
    )
    fork = write_fork(tmp_path / "fork.gguf", target, log_snr=False, embeddings=False, head=False)
    before = {*tmp_path.iterdir()}

    outcome = dspark("convert", fork.path, "-m", broken.path, "-o", tmp_path / "out.gguf")

    assert outcome.code == 5
    assert {*tmp_path.iterdir()} == before
