"""Smaller files of the same model: which tensors become what, and what is never left behind."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import llama_cpp.llama_cpp as bindings
import numpy as np
import pytest
from fakes import full_disk
from gguf import GGUFReader, GGUFWriter
from pairs import Mutation, Shape, write_random_drafter, write_random_target

from dspark_cli.metadata import read_metadata
from dspark_cli.models import DRAFTERS, find_drafter
from dspark_cli.quantize.types import ALIASES, AT_HAND, TYPES

FAILED, USAGE, CONTRACT, LLAMA, INTERRUPTED = 1, 2, 4, 5, 130  # the exit codes
WIDE = Shape(n_embd=256, n_head=4, n_head_kv=2, head_dim=64, n_layer=2, n_ff=256)
SLOW = Shape(n_embd=256, n_head=4, n_head_kv=2, head_dim=64, n_layer=8, n_ff=2048)
HEADS = ("markov_w1.weight", "markov_w2.weight", "conf_proj.weight")
AT_LEAST_Q8 = {"F32", "F16", "BF16", "Q8_0"}
DRAFT_VOCAB = (*range(32, 127), 257)


@pytest.fixture(scope="module")
def wide(models):
    """A target of whole blocks: every row is 256 wide."""
    return write_random_target(models / "wide.gguf", shape=WIDE)


@pytest.fixture(scope="module")
def wide_drafter(models, wide):
    """Its drafter, of rank 32, with a vocabulary and a head of its own."""
    return write_random_drafter(
        models / "wide-drafter.gguf",
        wide,
        taps=(0, 1),
        markov_rank=32,
        draft_vocab=DRAFT_VOCAB,
    )


@pytest.fixture(scope="module")
def slow(models):
    """14 million weights, which one thread is busy with for some seconds."""
    return write_random_target(models / "slow.gguf", shape=SLOW, dtype=np.float16)


def types_in(path: Path) -> dict[str, str]:
    return {name: tensor.type_name for name, tensor in read_metadata(path).tensors.items()}


def data_of(path: Path, name: str) -> np.ndarray:
    """Numbers in their order; llama.cpp's quantiser drops a last dimension of 1."""
    return next(tensor.data for tensor in GGUFReader(path).tensors if tensor.name == name).ravel()


def main_type(name: str) -> str:
    """The tensor type that most tensors of a dense model get."""
    special = {"MXFP4_MOE": "Q8_0", "IQ3_M": "IQ3_S"}  # experts alone are MXFP4
    return special.get(name, re.sub(r"_K_[SML]$", "_K", name))


# --- types --------------------------------------------------------------------------------------


def test_every_type_of_the_library_has_a_name():
    """Numbers are those of the installed library; NVFP4 is the one that it cannot write."""
    theirs = {
        name.removeprefix("LLAMA_FTYPE_").removeprefix("MOSTLY_").removeprefix("ALL_"): value
        for name, value in vars(bindings).items()
        if name.startswith("LLAMA_FTYPE_")
    }

    assert {name: entry.number for name, entry in TYPES.items()} == {
        name: value for name, value in theirs.items() if name not in {"GUESSED", "NVFP4"}
    }


@pytest.mark.parametrize("name", AT_HAND)
def test_a_pair_of_any_type_runs(dspark, wide, wide_drafter, tmp_path, name):
    """Target and drafter are what was asked for, say so, and decode."""
    target, drafter = tmp_path / "target.gguf", tmp_path / "drafter.gguf"

    for path, out in ((wide.path, target), (wide_drafter.path, drafter)):
        assert dspark("quantize", path, out, name, "-t", 1, "--json").code == 0
        written = read_metadata(out)
        assert written.integer("general.file_type") == TYPES[name].number
        matrices = Counter(
            tensor.type_name for tensor in written.tensors.values() if len(tensor.shape) > 1
        )
        assert matrices[main_type(name)] >= 4
    ran = dspark(
        "run", "-m", target, "-md", drafter, "-p", "Hello", "-n", 8, "-t", 1, "--json",
        "--schedule", "fixed",
    )  # fmt: skip

    assert ran.code == 0
    assert ran.document["n_predict"] == 8
    assert ran.document["num_spec_steps"] > 0


@pytest.mark.parametrize("name", [name for name in TYPES if name not in AT_HAND])
def test_a_type_that_needs_an_importance_matrix_is_refused(dspark, wide, tmp_path, name):
    outcome = dspark("quantize", wide.path, tmp_path / "out.gguf", name)

    assert outcome.code == USAGE
    assert f"{name}: needs an importance matrix" in outcome.errors[0]


@pytest.mark.parametrize("name", [name for name in TYPES if name not in AT_HAND])
def test_llama_cpp_would_refuse_it_too(wide, tmp_path, name):
    """The table is held against the library: without the matrix each of these fails in it."""
    params = bindings.llama_model_quantize_default_params()
    params.ftype = TYPES[name].number

    status = bindings.llama_model_quantize(
        str(wide.path).encode(), str(tmp_path / "out.gguf").encode(), params
    )

    assert status == 1


def test_names_are_those_of_llama_cpp_s_tool_in_any_case(dspark, wide, tmp_path):
    for spelt, meant in (("q4_k", "Q4_K_M"), *ALIASES.items()):
        out = tmp_path / f"{spelt}.gguf"
        assert dspark("quantize", wide.path, out, spelt, "--json").document["type"] == meant


# --- drafters -----------------------------------------------------------------------------------


def test_a_drafter_in_q4_0_keeps_its_heads_and_still_proposes(
    dspark, wide, wide_drafter, tmp_path
):
    """Heads, norms and d2t are what they were or Q8_0; what it drafts is judged as before."""
    out = tmp_path / "out.gguf"
    outcome = dspark("quantize", wide_drafter.path, out, "Q4_0", "-m", wide.path, "-t", 1)
    before, after = types_in(wide_drafter.path), types_in(out)

    assert outcome.code == 0
    assert {after[name] for name in HEADS} <= AT_LEAST_Q8
    assert after["markov_w1.weight"] == after["markov_w2.weight"] == "Q8_0"
    assert {after[name] for name in after if re.search(r"blk\.\d\.(attn_.|ffn_.*)\.weight", name)
            and "norm" not in name} == {"Q4_0"}  # fmt: skip
    assert "kept: markov_w1.weight Q8_0, markov_w2.weight Q8_0" in outcome.err
    untouched = [name for name in before if "norm" in name or name in {"d2t", "conf_proj.weight"}]
    assert len(untouched) == 12
    for name in untouched:
        assert after[name] == before[name]
        assert np.array_equal(data_of(wide_drafter.path, name), data_of(out, name))
    run = ("run", "-m", wide.path, "-p", "Hello", "-n", 24, "-t", 1, "--json")
    drafted = dspark(*run, "-md", out, "--schedule", "fixed")
    plain = dspark(*run, "--no-draft")
    assert drafted.document["num_draft_tokens"] > 0
    assert drafted.document["tokens"] == plain.document["tokens"]


def test_pure_keeps_no_heads(dspark, wide_drafter, tmp_path):
    out = tmp_path / "out.gguf"

    outcome = dspark("quantize", wide_drafter.path, out, "Q4_0", "--pure", "--json")

    assert outcome.document["kept"] == {}
    matrices = {name for name in wide_drafter.weights if wide_drafter.weights[name].ndim > 1}
    assert {types_in(out)[name] for name in matrices - {"conf_proj.weight"}} == {"Q4_0"}


def test_a_head_that_is_quantised_already_stays_as_it_is(dspark, wide_drafter, tmp_path):
    """Making a Q4_0 head Q8_0 would cost space and win nothing; copying it costs nothing."""
    once, twice = tmp_path / "once.gguf", tmp_path / "twice.gguf"
    dspark("quantize", wide_drafter.path, once, "Q4_0", "--pure")

    outcome = dspark("quantize", once, twice, "Q5_0", "--allow-requantize", "--json")

    assert outcome.document["kept"] == {"markov_w1.weight": "Q4_0", "markov_w2.weight": "Q4_0"}
    assert np.array_equal(data_of(once, HEADS[0]), data_of(twice, HEADS[0]))


def test_a_file_whose_heads_alone_are_quantised_may_be_quantised(dspark, wide_drafter, tmp_path):
    """Nothing is quantised twice there."""
    mixed, out = tmp_path / "mixed.gguf", tmp_path / "out.gguf"
    dspark("quantize", wide_drafter.path, tmp_path / "half.gguf", "Q8_0")
    heads = {name: data_of(tmp_path / "half.gguf", name) for name in HEADS[:2]}
    reader = GGUFReader(wide_drafter.path)
    writer = GGUFWriter(mixed, "dflash")
    for key, field in reader.fields.items():
        if not key.startswith(("GGUF.", "general.architecture")):
            kinds = field.types
            writer.add_key_value(
                key, field.contents(), kinds[0], kinds[-1] if len(kinds) > 1 else None
            )
    for tensor in reader.tensors:
        head = heads.get(tensor.name)
        if head is None:
            writer.add_tensor(tensor.name, tensor.data)
        else:
            writer.add_tensor(tensor.name, head, raw_dtype=8)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()

    outcome = dspark("quantize", mixed, out, "Q4_0", "--json")

    assert outcome.code == 0
    assert outcome.document["kept"] == dict.fromkeys(HEADS[:2], "Q8_0")
    assert outcome.document["after"]["types"]["Q4_0"] > 10


def test_tau_is_measured_before_and_after(dspark, tmp_path):
    """On the built-in pair, in both forms: a drafter in 4 bits is hardly worse."""
    command = ("quantize", "builtin", tmp_path / "out.gguf", "Q4_0", "-m", "builtin", "--measure")

    as_json, in_words = dspark(*command, "--json"), dspark(*command, "--force")

    found = as_json.document["measured"]
    assert found["prompts"] == 12
    assert found["rounds_before"] > 100
    assert found["tau_before"] > 4
    assert abs(found["tau_after"] - found["tau_before"]) < 0.3
    assert as_json.document["after"]["size"] < 0.4 * as_json.document["before"]["size"]
    assert as_json.document["after"]["size"] == (tmp_path / "out.gguf").stat().st_size
    row = next(line for line in in_words.out.splitlines() if line.startswith(" tau"))
    assert f"{found['tau_before']:.2f}" in row
    assert f"{found['tau_after']:.2f}" in row


# --- odd shapes and files -----------------------------------------------------------------------


def test_rows_that_are_no_whole_blocks_are_told_of(dspark, target, tmp_path):
    """Rows of 64 fill no block of Q4_K: llama.cpp takes a type of smaller blocks."""
    outcome = dspark("quantize", target.path, tmp_path / "out.gguf", "Q4_K_M")
    as_json = dspark("quantize", target.path, tmp_path / "2.gguf", "Q4_K_M", "--json").document

    assert "tensors with rows of 64 became Q5_0: such rows are no whole blocks" in outcome.err
    assert {item["row"] for item in as_json["fallbacks"]} == {64, 128}
    found = types_in(tmp_path / "out.gguf")
    assert all(found[item["tensor"]] == item["type"] for item in as_json["fallbacks"])
    assert len(as_json["fallbacks"]) == 30


def test_another_alignment_is_no_damage(dspark, tmp_path):
    """llama.cpp pads to 32 bytes whatever the input says; the output must then say 32."""
    source = write_random_target(
        tmp_path / "in.gguf", mutation=Mutation(metadata={"general.alignment": 128})
    )
    out = tmp_path / "out.gguf"

    assert dspark("quantize", source.path, out, "Q8_0").code == 0
    assert read_metadata(out).integer("general.alignment") == 32
    ran = dspark("run", "-m", out, "--no-draft", "-p", "Hello", "-n", 4, "-t", 1)
    assert (ran.code, len(ran.out)) == (0, 4)


def test_splits_become_one_file(dspark, target, tmp_path):
    """The first split stands for all, and none of them is overwritten."""
    writer = GGUFWriter(tmp_path / "big.gguf", "llama", split_max_tensors=20)
    for key, field in GGUFReader(target.path).fields.items():
        if not key.startswith(("GGUF.", "general.architecture")):
            kinds = field.types
            writer.add_key_value(
                key, field.contents(), kinds[0], kinds[-1] if len(kinds) > 1 else None
            )
    for tensor in GGUFReader(target.path).tensors:
        writer.add_tensor(tensor.name, tensor.data)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    first, second = sorted(tmp_path.glob("big-*.gguf"))

    refused = dspark("quantize", first, second, "Q8_0", "--force")
    outcome = dspark("quantize", first, tmp_path / "out.gguf", "Q8_0")

    assert refused.code == USAGE
    assert outcome.code == 0
    assert types_in(tmp_path / "out.gguf").keys() == types_in(target.path).keys()


# --- refusals -----------------------------------------------------------------------------------


@pytest.fixture
def bad(tmp_path, target, drafter):
    """A folder of inputs that cannot be quantised, and one that can."""
    shutil.copy(target.path, tmp_path / "good.gguf")
    shutil.copy(drafter.path, tmp_path / "drafter.gguf")
    (tmp_path / "good.part").symlink_to(tmp_path / "good.gguf")
    whole = target.path.read_bytes()
    (tmp_path / "text.gguf").write_text("Once upon a time")
    (tmp_path / "empty.gguf").write_bytes(b"")
    (tmp_path / "short.gguf").write_bytes(whole[: len(whole) // 2])
    (tmp_path / "there.gguf").write_bytes(b"precious")
    (tmp_path / "folder").mkdir()
    write_random_target(
        tmp_path / "arch.gguf", mutation=Mutation(metadata={"general.architecture": "flurble"})
    )
    write_random_target(
        tmp_path / "deep.gguf", mutation=Mutation(metadata={"llama.block_count": 100_000})
    )
    write_random_target(
        tmp_path / "nan.gguf",
        mutation=Mutation(tensors={"output.weight": np.full((288, 64), np.nan, np.float32)}),
    )
    write_random_target(tmp_path / "other.gguf", shape=WIDE)
    return tmp_path


@pytest.mark.parametrize(
    ("line", "code", "words"),
    [
        ("none.gguf out.gguf Q8_0", USAGE, "none.gguf: no such file"),
        ("folder out.gguf Q8_0", USAGE, "folder: is a directory"),
        ("text.gguf out.gguf Q8_0", FAILED, "text.gguf: is no GGUF file"),
        ("empty.gguf out.gguf Q8_0", FAILED, "empty.gguf: is empty"),
        ("short.gguf out.gguf Q8_0", FAILED, "short.gguf: truncated GGUF"),
        ("good.gguf out.gguf Q9_9", USAGE, "Q9_9: is no type|Q8_0, Q6_K|Q4_K_M|TQ1_0"),
        ("good.gguf good.gguf Q8_0", USAGE, "good.gguf|its input|another name"),
        ("good.gguf good.gguf Q8_0 --force", USAGE, "good.gguf|its input|another name"),
        ("good.gguf ./folder/../good.gguf Q8_0 --force", USAGE, "its input|another name"),
        ("good.gguf good Q8_0", USAGE, "its input|another name"),  # good.part leads to it
        ("good.gguf there.gguf Q8_0", USAGE, "there.gguf: exists already|--force"),
        ("good.gguf folder Q8_0", USAGE, "folder: wanted a file in a folder that exists"),
        ("good.gguf nowhere/out.gguf Q8_0", USAGE, "nowhere/out.gguf: wanted a file in a folder"),
        ("good.gguf /dev/null Q8_0 --force", USAGE, "/dev/null: is no regular file"),
        ("good.gguf out.gguf Q8_0 -t 0", USAGE, "--threads wants 1 to 512 threads, got 0"),
        ("good.gguf out.gguf Q8_0 --measure", USAGE, "--measure|-m FILE"),
        ("good.gguf out.gguf Q8_0 -m other.gguf", USAGE, "good.gguf is none|llama"),
        ("drafter.gguf out.gguf Q8_0 -m other.gguf", CONTRACT, "width"),
        ("arch.gguf out.gguf Q8_0", LLAMA, "arch.gguf: unknown model architecture: 'flurble'"),
        ("deep.gguf out.gguf Q8_0", LLAMA, "deep.gguf: llama.cpp aborted|LLAMA_MAX_LAYERS"),
        ("nan.gguf out.gguf Q8_0", LLAMA, "nan.gguf: tensor 'output.weight' has invalid data"),
    ],
)
def test_what_cannot_be_quantised_is_refused_and_leaves_nothing(
    dspark, bad, monkeypatch, line, code, words
):
    """One sentence, in words and as JSON, and no file more or less than before."""
    monkeypatch.chdir(bad)
    before = {path: path.read_bytes() for path in bad.rglob("*") if path.is_file()}

    in_words = dspark("quantize", *line.split())
    as_json = dspark("quantize", *line.split(), "--json")

    assert in_words.code == as_json.code == code
    assert in_words.out == ""
    said = " ".join([*in_words.errors, in_words.err.partition("hint: ")[2]])
    assert all(word in said for word in words.split("|")), said
    assert as_json.document["error"]["messages"] == in_words.errors
    assert {path: path.read_bytes() for path in bad.rglob("*") if path.is_file()} == before


def test_quantising_twice_is_refused_unless_it_is_allowed(dspark, wide, tmp_path):
    once, twice = tmp_path / "once.gguf", tmp_path / "twice.gguf"
    dspark("quantize", wide.path, once, "Q8_0")

    refused = dspark("quantize", once, twice, "Q4_0")
    allowed = dspark("quantize", once, twice, "Q4_0", "--allow-requantize")

    assert refused.code == USAGE
    assert "once.gguf: is quantised already (16 Q8_0)" in refused.errors[0]
    assert "--allow-requantize" in refused.err
    assert allowed.code == 0
    assert Counter(types_in(twice).values())["Q4_0"] == 15


def test_names_of_packages_are_taken_too(dspark, tmp_path):
    """``builtin`` is the target of that name, and with -m its drafter."""
    refused = dspark("quantize", "builtin", tmp_path / "out.gguf", "Q4_0")
    drafter = dspark("quantize", "builtin", tmp_path / "out.gguf", "Q8_0", "-m", "builtin")

    assert "builtin-target.gguf: is quantised already" in refused.errors[0]
    assert drafter.code == 0
    names = read_metadata(find_drafter("builtin")).tensors.keys()
    assert DRAFTERS["builtin"] == find_drafter("builtin").name
    assert types_in(tmp_path / "out.gguf").keys() == names


# --- whole or not there -------------------------------------------------------------------------


def test_force_replaces_what_is_there(dspark, wide, tmp_path):
    out = tmp_path / "out.gguf"
    out.write_bytes(b"old")

    assert dspark("quantize", wide.path, out, "Q8_0", "--force").code == 0

    assert read_metadata(out).architecture == "llama"
    assert [*tmp_path.iterdir()] == [out]


@pytest.mark.parametrize("room", [0, 100_000, 400_000])
def test_a_full_disk_leaves_what_was_there(dspark, wide, tmp_path, room):
    """The reason is the operating system's, which llama.cpp's stream does not know."""
    out = tmp_path / "out.gguf"
    out.write_bytes(b"old")

    with full_disk(room):
        outcome = dspark("quantize", wide.path, out, "Q8_0", "--force", "--json")

    assert outcome.code == FAILED
    assert outcome.document["error"]["message"] == f"{out}: cannot be written: File too large"
    assert out.read_bytes() == b"old"
    assert [*tmp_path.iterdir()] == [out]


def begin(source: Path, out: Path, *options: str) -> "subprocess.Popen[bytes]":
    """Start a quantisation of some seconds and come back when it is writing."""
    running = subprocess.Popen(
        [sys.executable, "-m", "dspark_cli", "quantize", source, out, "IQ3_S", "-t", "1",
         *options],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True,
    )  # fmt: skip
    beside = out.with_name(out.name + ".part")
    while not beside.exists() or not beside.stat().st_size:
        assert running.poll() is None
        time.sleep(0.02)
    return running


def gone(path: Path, seconds: float = 20) -> bool:
    """Whether a file vanishes within some seconds."""
    end = time.monotonic() + seconds
    while path.exists() and time.monotonic() < end:
        time.sleep(0.05)
    return not path.exists()


@pytest.mark.parametrize("group", [False, True], ids=["kill", "terminal"])
def test_ctrl_c_leaves_nothing(slow, tmp_path, group):
    """A terminal sends it to the child as well, ``kill -INT`` to the parent alone."""
    running = begin(slow.path, tmp_path / "out.gguf", "--json")

    (os.killpg if group else os.kill)(running.pid, signal.SIGINT)
    out, err = running.communicate(timeout=60)

    assert running.returncode == INTERRUPTED
    assert out == b""
    assert b"Traceback" not in err
    assert [*tmp_path.iterdir()] == []


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGHUP])
def test_a_killed_quantisation_leaves_nothing(slow, tmp_path, number):
    """The child notices that it is alone, and takes its half file along."""
    running = begin(slow.path, tmp_path / "out.gguf")

    running.send_signal(number)
    running.communicate(timeout=60)

    assert running.returncode == -number
    assert gone(tmp_path / "out.gguf.part")
    assert [*tmp_path.iterdir()] == []


def test_a_killed_child_is_one_sentence(slow, tmp_path):
    """As when memory runs out: parent and child are told apart."""
    running = begin(slow.path, tmp_path / "out.gguf", "--json")
    children = Path(f"/proc/{running.pid}/task/{running.pid}/children")
    if not children.exists():
        running.kill()
        running.communicate()
        pytest.skip("needs Linux's list of child processes")

    os.kill(int(children.read_text().split()[0]), signal.SIGKILL)
    out, _ = running.communicate(timeout=60)

    error = json.loads(out)["error"]
    assert running.returncode == error["exit_code"] == LLAMA
    assert error["message"].endswith("slow.gguf: quantising was ended by SIGKILL")
    assert "memory" in error["hint"]
    assert [*tmp_path.iterdir()] == []


def test_the_whole_group_killed_leaves_no_output(slow, tmp_path):
    """Nobody is left to clean up, but the name that was asked for was never given."""
    running = begin(slow.path, tmp_path / "out.gguf")

    os.killpg(running.pid, signal.SIGKILL)
    running.communicate(timeout=60)

    assert not (tmp_path / "out.gguf").exists()


def test_progress_and_remarks_stay_off_stdout(dspark, wide, tmp_path):
    """stdout is the table alone."""
    outcome = dspark("quantize", wide.path, tmp_path / "out.gguf", "Q8_0")

    assert "quantising" not in outcome.out
    assert re.search(r"size\s+[\d.]+\s+[\d.]+\s+MB", outcome.out)
    assert "quantising 100%" in outcome.err
