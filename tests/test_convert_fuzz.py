"""Damaged sources cost a sentence: no traceback, no allocation of what a file claims, no file."""

import json
import os
import random
import signal
import subprocess
import sys
import time
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
from checkpoints import write_checkpoint
from forks import write_fork
from pairs import Mutation, Shape, Vocabulary, write_random_target

from dspark_cli.convert.plan import plan_from
from dspark_cli.errors import DsparkError
from dspark_cli.metadata import read_metadata
from dspark_cli.storing import write_gguf

MIB = 2**20


def attempt(source: Path, target: Path, out: Path) -> str:
    """Plan and write one source; returns what was said, nothing where all went well."""
    said = ()
    try:
        plan = plan_from(source, target, out_type="keep", share_target=False)
        write_gguf(out, "dflash", plan.keys, plan.tensors)
    except DsparkError as error:
        said = error.messages
    assert all(message and "\n" not in message for message in said)
    return "; ".join(said).replace(str(source.parent), "")


def damaged(raw: bytes, dice: random.Random, where: int) -> bytes:
    """Up to four bytes of the first ``where`` changed, or the file cut off."""
    changed = bytearray(raw)
    if dice.random() < 0.2:
        return bytes(changed[: dice.randrange(len(raw))])
    for _ in range(dice.randint(1, 4)):
        changed[dice.randrange(where)] = dice.choice([0, 1, 0x7F, 0xFF, dice.randrange(256)])
    return bytes(changed)


@pytest.fixture
def measured():
    """Python's and numpy's own memory, at its highest."""
    tracemalloc.start()
    yield lambda: tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()


@pytest.mark.parametrize("log_snr", [True, False])
def test_a_damaged_file_of_the_fork_is_one_sentence(tmp_path, target, measured, log_snr):
    fork = write_fork(tmp_path / "fork.gguf", target, log_snr=log_snr)
    raw = fork.path.read_bytes()
    header = min(tensor.offset for tensor in read_metadata(fork.path).tensors.values())
    dice = random.Random(7)
    said = set()
    for _ in range(400):
        fork.path.write_bytes(damaged(raw, dice, header))
        said.add(attempt(fork.path, target.path, tmp_path / "out.gguf")[:80])

    assert len(said) > 20
    assert measured() < 64 * MIB


@pytest.mark.parametrize("file", ["model.safetensors", "config.json"])
def test_a_damaged_checkpoint_is_one_sentence(tmp_path, target, measured, file):
    made = write_checkpoint(
        tmp_path / "in", target, framework="speculators", draft_tokens=range(0, 288, 2)
    )
    path = made.path / file
    raw = path.read_bytes()
    header = len(raw) if file == "config.json" else 8 + int.from_bytes(raw[:8], "little")
    dice = random.Random(7)
    said = set()
    for _ in range(400):
        path.write_bytes(damaged(raw, dice, header))
        said.add(attempt(made.path, target.path, tmp_path / "out.gguf")[:160])

    assert len(said) > 20
    assert measured() < 64 * MIB


HUGE = [0, -1, 2**31, 2**62, 1e308, float("inf"), float("nan"), "x", [], {}, True, None, [1] * 9]


@pytest.mark.parametrize("value", HUGE, ids=str)
def test_any_value_in_a_config_is_believed_only_where_it_fits(tmp_path, target, measured, value):
    """Each key in turn says something else; what comes is a sentence, or the same drafter."""
    made = write_checkpoint(tmp_path / "in", target, framework="SpecForge", partial=0.5)
    path = made.path / "config.json"
    config = json.loads(path.read_text())
    for name in config:
        path.write_text(json.dumps({**config, name: value}))
        attempt(made.path, target.path, tmp_path / "out.gguf")
    for name in config["dflash_config"]:
        nested = {**config["dflash_config"], name: value}
        path.write_text(json.dumps({**config, "dflash_config": nested}))
        attempt(made.path, target.path, tmp_path / "out.gguf")

    assert measured() < 64 * MIB


@pytest.mark.parametrize("value", [0, 1, 2**31, 2**32 - 1])
def test_any_number_in_a_file_of_the_fork_is_believed_only_where_it_fits(
    tmp_path, target, measured, value
):
    plain = read_metadata(write_fork(tmp_path / "plain.gguf", target).path)
    for name in plain.values:
        if plain.types[name] == "u32":
            mutation = Mutation(metadata={name: value})
            fork = write_fork(tmp_path / "fork.gguf", target, mutation=mutation)
            attempt(fork.path, target.path, tmp_path / "out.gguf")

    assert measured() < 64 * MIB


# --- a large one --------------------------------------------------------------------------------

WIDTH, TOKENS, RANK = 1024, 120_000, 256


@pytest.fixture(scope="module")
def large(tmp_path_factory):
    """A checkpoint of 1 GB, all zeros and so without a place on the disk, and its target."""
    folder = tmp_path_factory.mktemp("large")
    words = Vocabulary((*Vocabulary().tokens, *(f"<{i}>" for i in range(TOKENS - 288))))
    zeros = {"token_embd.weight": np.zeros((TOKENS, 32), np.float16), "output.weight": None}
    target = write_random_target(
        folder / "target.gguf",
        shape=Shape(n_embd=32, n_head=2, n_head_kv=1, head_dim=16, n_layer=4, n_ff=32),
        vocabulary=words,
        mutation=Mutation(metadata={"llama.embedding_length": WIDTH}, tensors=zeros),
    )
    sizes = {
        "embed_tokens": (TOKENS, WIDTH), "lm_head": (TOKENS, WIDTH), "fc": (WIDTH, 2 * WIDTH),
        "norm": (WIDTH,), "hidden_norm": (WIDTH,), "markov_head.markov_w1": (TOKENS, RANK),
        "markov_head.markov_w2": (TOKENS, RANK),
    }  # fmt: skip
    for number in range(24):
        sizes |= {
            f"layers.{number}.{name}": size
            for name, size in {
                "input_layernorm": (WIDTH,), "post_attention_layernorm": (WIDTH,),
                "self_attn.q_proj": (1024, WIDTH), "self_attn.k_proj": (256, WIDTH),
                "self_attn.v_proj": (256, WIDTH), "self_attn.o_proj": (WIDTH, 1024),
                "self_attn.q_norm": (128,), "self_attn.k_norm": (128,),
                "mlp.gate_proj": (2048, WIDTH), "mlp.up_proj": (2048, WIDTH),
                "mlp.down_proj": (WIDTH, 2048),
            }.items()
        }  # fmt: skip
    header, at = {}, 0
    for name, size in sizes.items():
        end = at + 2 * int(np.prod(size))
        entry = {"dtype": "BF16", "shape": list(size), "data_offsets": [at, end]}
        header[f"{name}.weight"], at = entry, end
    raw = json.dumps(header).encode()
    source = folder / "in"
    source.mkdir()
    with (source / "model.safetensors").open("wb") as file:
        file.write(len(raw).to_bytes(8, "little") + raw)
        file.truncate(8 + len(raw) + at)
    config = {
        "architectures": ["Qwen3DSparkModel"], "hidden_size": WIDTH, "intermediate_size": 2048,
        "num_hidden_layers": 24, "num_attention_heads": 8, "num_key_value_heads": 2,
        "head_dim": 128, "max_position_embeddings": 4096, "rms_norm_eps": 1e-6,
        "rope_theta": 1e6, "vocab_size": TOKENS, "block_size": 4, "mask_token_id": 258,
        "target_layer_ids": [0, 2],
    }  # fmt: skip
    (source / "config.json").write_text(json.dumps(config))
    assert at > 10**9
    return source, target.path


PROGRAM = """
import sys
from dspark_cli.cli.app import main
try:
    main(sys.argv[1:])
finally:
    lines = open("/proc/self/status").read().splitlines()
    print(next(line for line in lines if line.startswith("VmHWM")), file=sys.stderr)
"""


def command(source, target, out, *options):
    arguments = ["convert", source, "-m", target, "-o", out, *options]
    return [sys.executable, "-c", PROGRAM, *map(str, arguments)]


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="reads Linux's own account")
def test_a_gigabyte_converts_within_600_mb(large, tmp_path):
    """Tensor by tensor, and of each a few rows: memory has nothing to do with size."""
    source, target = large
    out = tmp_path / "out.gguf"

    done = subprocess.run(
        command(source, target, out, "-t", 1, "--out-type", "q8_0", "--no-verify"),
        capture_output=True, text=True, check=False, timeout=300,
    )  # fmt: skip

    assert done.returncode == 0, done.stderr
    peak = int(done.stderr.split("VmHWM:")[1].split()[0]) * 1024
    assert peak < 600 * 10**6
    assert out.stat().st_size > 10**8


def test_ctrl_c_in_the_middle_leaves_nothing_behind(large, tmp_path):
    source, target = large
    out = tmp_path / "out.gguf"
    part = out.with_name("out.gguf.part")
    process = subprocess.Popen(
        command(source, target, out), stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    try:
        ends = time.monotonic() + 60
        while not (part.exists() and part.stat().st_size > MIB) and time.monotonic() < ends:
            time.sleep(0.005)
        os.kill(process.pid, signal.SIGINT)
        process.communicate(timeout=60)
    finally:
        process.kill()

    assert process.returncode == 130
    assert list(tmp_path.iterdir()) == []
