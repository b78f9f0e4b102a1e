"""A checkpoint of four frameworks becomes a drafter of mainline's, and drafts the same tokens."""

import json
import subprocess
import sys
import zipfile

import numpy as np
import pytest
from checkpoints import (
    CheckpointReference,
    safetensors,
    with_header,
    write_checkpoint,
)
from pairs import MASK, VOCABULARY, Mutation, write_random_target

from dspark_cli import PairOptions, open_pair
from dspark_cli.convert.shards import eight_bit_values
from dspark_cli.metadata import read_metadata
from dspark_cli.tensors import read_weights

V = len(VOCABULARY.tokens)
EVEN = range(0, V, 2)


@pytest.fixture
def convert(dspark, target, tmp_path):
    """Convert one checkpoint for ``target``; returns the outcome and the drafter's path."""
    out = tmp_path / "out.gguf"

    def run(source, *options, model=target):
        return dspark("convert", source, "-m", model.path, "-o", out, "-t", 1, *options), out

    return run


def proposals(path, target, reference, lengths=(1, 6, 21)):
    """Per context length what llama.cpp drafts with the pair, and what the reference says."""
    random = np.random.default_rng(5)
    made = reference.checkpoint
    with open_pair(PairOptions(target.path, path)) as pair:
        for length, anchor in zip(lengths, (97, 98, 256), strict=True):
            taps = random.normal(size=(length, made.n_taps * made.shape.n_embd))
            taps = taps.astype(np.float32)
            pair.drafter.clear()
            pair.drafter.observe(taps, 0)
            found = pair.drafter.propose(anchor, length, made.block_size)
            yield found, reference.propose(taps, anchor)


SHAPES = {
    "DeepSpec": {},
    "SpecForge": {"framework": "SpecForge"},
    "speculators": {"framework": "speculators"},
    "EasyDeL": {"framework": "EasyDeL", "prefix": "model."},
    "EasyDeL with log-SNR": {"framework": "EasyDeL", "log_snr": True},
    "EasyDeL with log-SNR, tied": {
        "framework": "EasyDeL", "log_snr": True, "head": False, "tied": True,
    },
    "a block of 1": {"block_size": 1},
    "a block of 7": {"block_size": 7, "seed": 3},
    "a block of 8": {"block_size": 8, "prefix": "drafter.model."},
    "rank 1": {"rank": 1},
    "rank 32": {"rank": 32, "seed": 4},
    "without a Markov head": {"rank": None, "confidence": "hidden"},
    "without heads": {"rank": None, "confidence": None},
    "a confidence head without the Markov row": {"confidence": "hidden"},
    "a reduced head": {"framework": "speculators", "draft_tokens": EVEN},
    "a reduced head, borrowed embeddings": {
        "framework": "speculators", "draft_tokens": EVEN, "embeddings": False,
    },
    "a reduced head read from the anchor": {
        "framework": "speculators", "draft_tokens": EVEN, "sample_from_anchor": True,
    },
    "a block whose anchor row is not read": {"sample_from_anchor": False},
    "everything borrowed": {"embeddings": False, "head": False},
    "only embeddings": {"head": False},
    "only embeddings, tied": {"head": False, "tied": True},
    "only a head": {"embeddings": False},
    "interleaved rotary pairs": {"interleaved": True},
    "half of every head turned": {"partial": 0.5},
    "half of every head turned, interleaved": {"partial": 0.5, "interleaved": True},
    "positions at half speed": {
        "config": {"rope_scaling": {"rope_type": "linear", "factor": 2.0}},
    },
    "sliding layers": {"window": 8},
    "one sliding layer of two": {"window": 6, "sliding": [False, True]},
    "causal attention": {"causal": True},
    "three shards": {"shards": 3},
    "half precision": {"dtype": "F16"},
}  # fmt: skip


@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
def test_a_converted_checkpoint_drafts_what_it_was_trained_to(tmp_path, target, convert, shape):
    """Token for token, by a reference that knows the equations and not the converter."""
    made = write_checkpoint(tmp_path / "in", target, **shape)

    outcome, out = convert(made.path)

    assert outcome.code == 0, outcome.err
    for found, wanted in proposals(out, target, CheckpointReference(made, target)):
        assert list(found.tokens) == wanted.proposals
        if wanted.confidences is not None:
            assert np.allclose(found.confidences, wanted.confidences, atol=2e-3)


def test_bfloat16_is_copied(tmp_path, target, convert):
    """numpy has no such type: the bytes are read and written as they are."""
    made = write_checkpoint(tmp_path / "in", target, dtype="BF16", shards=2)

    outcome, out = convert(made.path)
    after = read_metadata(out)

    assert outcome.code == 0, outcome.err
    assert after.tensors["fc.weight"].type_name == "BF16"
    assert after.tensors["output_norm.weight"].type_name == "F32"
    for ours, theirs in (
        ("fc.weight", "fc.weight"),
        ("blk.1.ffn_down.weight", "layers.1.mlp.down_proj.weight"),
        ("enc.output_norm.weight", "hidden_norm.weight"),
    ):
        assert np.array_equal(read_weights(after, ours), made.weights[theirs])


def test_one_file_will_do(tmp_path, target, convert):
    """IN may be a .safetensors file, its config.json beside it."""
    made = write_checkpoint(tmp_path / "in", target)

    outcome, _ = convert(made.path / "model.safetensors")

    assert outcome.code == 0, outcome.err


@pytest.mark.parametrize(
    ("framework", "sample_from_anchor", "written"),
    [
        ("DeepSpec", None, True),
        ("SpecForge", None, True),
        ("EasyDeL", None, True),
        ("speculators", None, False),
        ("speculators", True, True),
        ("DeepSpec", False, False),
    ],
)
def test_every_key_is_mainlines(tmp_path, target, convert, framework, sample_from_anchor, written):
    """Key by key, with the rules for the anchor's row and the layers of each framework."""
    made = write_checkpoint(
        tmp_path / "in",
        target,
        framework=framework,
        sample_from_anchor=sample_from_anchor,
        taps=(-1, 2),
    )
    _, out = convert(made.path)
    after = read_metadata(out)

    wanted = {
        "dflash.block_count": (2, "u32"),
        "dflash.context_length": (4096, "u32"),
        "dflash.embedding_length": (64, "u32"),
        "dflash.feed_forward_length": (128, "u32"),
        "dflash.attention.head_count": (4, "u32"),
        "dflash.attention.head_count_kv": (2, "u32"),
        "dflash.attention.key_length": (16, "u32"),
        "dflash.attention.value_length": (16, "u32"),
        "dflash.rope.dimension_count": (16, "u32"),
        "dflash.rope.freq_base": (10000.0, "f32"),
        "dflash.block_size": (4, "u32"),
        "dflash.target_layers": ((0, 3), "[i32]"),  # -1 is the output of the embeddings
        "dflash.sample_from_anchor": (written, "bool"),
        "dflash.has_confidence_head": (True, "bool"),
        "tokenizer.ggml.mask_token_id": (MASK, "u32"),
    }
    assert {key: (after.values[key], after.types[key]) for key in wanted} == wanted
    assert abs(after.number("dflash.attention.layer_norm_rms_epsilon") - 1e-5) < 1e-9
    assert "dflash.attention.causal" not in after.values
    assert "dflash.attention.sliding_window" not in after.values
    assert "dflash.rope.dimension_sections" not in after.values


def test_every_tensor_is_mainlines(tmp_path, target, convert):
    """Tensor by tensor: t2d is dropped, d2t is absolute."""
    made = write_checkpoint(tmp_path / "in", target, framework="speculators", draft_tokens=EVEN)
    _, out = convert(made.path)
    after = read_metadata(out)
    layer = {
        "attn_norm", "attn_q", "attn_k", "attn_v", "attn_output", "attn_q_norm", "attn_k_norm",
        "ffn_norm", "ffn_gate", "ffn_up", "ffn_down",
    }  # fmt: skip

    assert {*after.tensors} == {
        "fc.weight", "enc.output_norm.weight", "output_norm.weight", "token_embd.weight",
        "output.weight", "markov_w1.weight", "markov_w2.weight", "conf_proj.weight",
        "conf_proj.bias", "d2t",
        *(f"blk.{number}.{name}.weight" for number in range(2) for name in layer),
    }  # fmt: skip
    assert after.read_integers(after.tensors["d2t"]).tolist() == [*EVEN]
    assert after.tensors["d2t"].type_name == "I64"


def test_sliding_windows_are_written_per_layer(tmp_path, target, convert):
    made = write_checkpoint(tmp_path / "in", target, window=6, sliding=[False, True])
    _, out = convert(made.path)
    after = read_metadata(out)

    assert after.integer("dflash.attention.sliding_window") == 6
    assert after.values["dflash.attention.sliding_window_pattern"] == (False, True)


def test_sections_come_from_a_target_that_has_them(tmp_path, convert):
    """An M-RoPE target's drafter turns by the first coordinate alone."""
    sections = {"llama.rope.dimension_sections": [3, 3, 2, 0]}
    target = write_random_target(tmp_path / "mrope.gguf", mutation=Mutation(metadata=sections))
    made = write_checkpoint(tmp_path / "in", target)

    outcome, out = convert(made.path, model=target)

    assert outcome.code == 0, outcome.err
    found = read_metadata(out).values["dflash.rope.dimension_sections"]
    assert found == (8, 0, 0, 0)


def test_yarn_is_verified_against_its_paper(tmp_path, target, convert):
    """Its frequencies are computed once more; without the keys llama.cpp would draft otherwise."""
    scaling = {"type": "yarn", "factor": 8.0, "original_max_position_embeddings": 64}
    made = write_checkpoint(tmp_path / "in", target, config={"rope_scaling": scaling})

    outcome, out = convert(made.path, "--json")
    after = read_metadata(out)

    assert outcome.code == 0, outcome.err
    assert outcome.document["logit_error"] < 1e-3
    assert after.text("dflash.rope.scaling.type") == "yarn"
    assert after.integer("dflash.rope.scaling.original_context_length") == 64


# --- the mask's own embedding -------------------------------------------------------------------

TORCH = """
import sys, torch
torch.save({"mask_token_id": int(sys.argv[2]), "embedding": torch.arange(64.0).to(
    getattr(torch, sys.argv[3])) / 16}, sys.argv[1])
"""


@pytest.mark.parametrize("embeddings", [True, False])
@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_the_masks_own_embedding_replaces_its_row(tmp_path, target, convert, embeddings, dtype):
    """It comes in PyTorch's file, which is read without PyTorch; the head stays as it was."""
    pytest.importorskip("torch")
    row = np.arange(64, dtype=np.float32) / 16
    made = write_checkpoint(
        tmp_path / "in", target, embeddings=embeddings, head=embeddings, mask_row=row
    )
    file = made.path / "mask_embedding.pt"
    subprocess.run([sys.executable, "-c", TORCH, file, str(MASK), dtype], check=True)

    outcome, out = convert(made.path)

    assert outcome.code == 0, outcome.err
    after = read_metadata(out)
    assert np.array_equal(read_weights(after, "token_embd.weight")[MASK], row)
    assert "output.weight" in after.tensors
    for found, wanted in proposals(out, target, CheckpointReference(made, target)):
        assert list(found.tokens) == wanted.proposals


@pytest.mark.parametrize(
    "content",
    [b"", b"PK\3\4", b"\x80\x04cos\nsystem\n(S'false'\ntR."],
    ids=["nothing", "a zip", "a pickle"],
)
def test_a_broken_mask_embedding_is_one_sentence(tmp_path, target, convert, content):
    made = write_checkpoint(tmp_path / "in", target)
    (made.path / "mask_embedding.pt").write_bytes(content)

    outcome, out = convert(made.path)

    assert (outcome.code, len(outcome.errors)) == (1, 1)
    assert "mask_embedding.pt" in outcome.err
    assert not out.exists()


def test_a_mask_embedding_that_calls_something_is_refused(tmp_path, target, convert):
    """A pickle may name any function; here only those that make a vector are known."""
    made = write_checkpoint(tmp_path / "in", target)
    proof = tmp_path / "proof"
    with zipfile.ZipFile(made.path / "mask_embedding.pt", "w") as archive:
        archive.writestr("mask/data.pkl", f"cos\nmkdir\n(S'{proof}'\ntR.".encode())

    outcome, _ = convert(made.path)

    assert (outcome.code, len(outcome.errors)) == (1, 1)
    assert "os.mkdir" in outcome.err
    assert not proof.exists()


# --- what is refused ----------------------------------------------------------------------------

REFUSALS = {
    "a gated Markov head": ({"config": {"markov_head_type": "gated"}}, "gated|vanilla"),
    "a recurrent Markov head by its tensor": (
        {"tensors": {"markov_head.joint_proj.weight": np.ones((8, 8), np.float32)}},
        "joint_proj|vanilla",
    ),
    "attention biases": (
        {"tensors": {"layers.0.self_attn.q_proj.bias": np.ones(64, np.float32)}},
        "biases|q_proj.bias",
    ),
    "an unknown tensor": (
        {"tensors": {"surprise.weight": np.ones(64, np.float32)}},
        "surprise.weight",
    ),
    "a missing tensor": ({"tensors": {"fc.weight": None}}, "fc.weight"),
    "half a Markov head": ({"tensors": {"markov_head.markov_w1.weight": None}}, "half|W1"),
    "another vocabulary": ({"config": {"vocab_size": 5000}}, "5000|288"),
    "Gemma's layers": ({"config": {"architectures": ["Gemma4DSparkModel"]}}, "Gemma"),
    "another model": ({"config": {"architectures": ["LlamaForCausalLM"]}}, "LlamaForCausalLM"),
    "no architecture": ({"config": {"architectures": ...}}, "no DSpark drafter"),
    "an activation that is not silu": ({"config": {"hidden_act": "gelu"}}, "gelu"),
    "scaled rotary positions": (
        {"config": {"rope_scaling": {"rope_type": "llama3", "factor": 8.0}}},
        "llama3",
    ),
    "no mask token": ({"config": {"mask_token_id": ...}}, "mask_token_id"),
    "no layers named": ({"config": {"target_layer_ids": ...}}, "target_layer_ids"),
    "layers that are no numbers": ({"config": {"target_layer_ids": ["a"]}}, "target_layer_ids"),
    "a block that is a text": ({"config": {"block_size": "4"}}, "block_size"),
    "layers without end": ({"config": {"num_hidden_layers": 10**12}}, "num_hidden_layers"),
    "an epsilon that is no number": ({"config": {"rms_norm_eps": float("nan")}}, "rms_norm_eps"),
    "a nested config that is a list": ({"config": {"dflash_config": [1]}}, "dflash_config"),
    "a reduced head without its table": (
        {"framework": "speculators", "draft_tokens": EVEN, "tensors": {"d2t": None}},
        "d2t",
    ),
    "a table out of range": (
        {
            "framework": "speculators",
            "draft_tokens": EVEN,
            "tensors": {"d2t": np.full(144, 1000, np.int64)},
        },
        "d2t|outside",
    ),
    "a table that repeats": (
        {
            "framework": "speculators",
            "draft_tokens": EVEN,
            "tensors": {"d2t": -np.arange(144)},
        },
        "d2t|more than once",
    ),
    "log-SNR weights that nobody announced": (
        {"log_snr": True, "config": {"log_snr_conditioning": ...}},
        "log_snr_conditioning",
    ),
    "log-SNR announced without weights": (
        {"config": {"log_snr_conditioning": True, "min_log_snr": -9, "max_log_snr": 9}},
        "log_snr_conditioning",
    ),
    "weights that are no numbers": (
        {"tensors": {"lm_head.weight": np.full((V, 64), np.inf, np.float32)}},
        "output.weight|NaN",
    ),
    "a tensor under two names": (
        {"tensors": {"model.norm.weight": np.ones(64, np.float32)}},
        "norm.weight|same tensor",
    ),
}


@pytest.mark.parametrize(("options", "parts"), REFUSALS.values(), ids=REFUSALS)
def test_what_cannot_be_expressed_is_refused(tmp_path, target, convert, options, parts):
    """One sentence with the reason, nothing written."""
    made = write_checkpoint(tmp_path / "in", target, **options)

    outcome, _ = convert(made.path)

    assert outcome.code == 1, outcome.err
    assert len(outcome.errors) == 1
    assert all(part in outcome.err for part in parts.split("|"))
    assert {*tmp_path.iterdir()} == {made.path}


@pytest.mark.parametrize(
    "options",
    [
        {"taps": (0, 9)},
        {"tensors": {"fc.weight": np.ones((64, 64), np.float32)}},
        {"tensors": {"layers.0.mlp.up_proj.weight": np.ones((64, 64), np.float32)}},
        {"tensors": {"embed_tokens.weight": np.ones((V + 1, 64), np.float32)}},
        {"config": {"mask_token_id": 5000}},
    ],
)
def test_what_does_not_fit_the_target_is_refused(tmp_path, target, convert, options):
    made = write_checkpoint(tmp_path / "in", target, **options)

    outcome, _ = convert(made.path)

    assert outcome.code == 4, outcome.err
    assert {*tmp_path.iterdir()} == {made.path}


def test_shared_embeddings_are_left_out(tmp_path, target, convert):
    """A full head goes with them; a reduced one stays."""
    own = {
        "embed_tokens.weight": target.weights["token_embd.weight"],
        "lm_head.weight": target.weights["output.weight"],
    }
    made = write_checkpoint(tmp_path / "in", target, tensors=own)

    outcome, out = convert(made.path, "--share-target")

    assert outcome.code == 0, outcome.err
    assert not {"token_embd.weight", "output.weight"} & read_metadata(out).tensors.keys()


# --- files that are not what they seem ----------------------------------------------------------


def index(places) -> bytes:
    return json.dumps({"weight_map": places}).encode()


def header(entries, body=b"") -> bytes:
    return with_header(json.dumps(entries).encode(), body)


ENTRY = {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}
BROKEN = {
    "an empty file": ("model.safetensors", b""),
    "a short file": ("model.safetensors", b"abc"),
    "a header longer than its file": ("model.safetensors", b"\xff" * 7 + b"\x7f" + b"{}"),
    "a header that is no JSON": ("model.safetensors", with_header(b"{nonsense", b"")),
    "a header that is not UTF-8": ("model.safetensors", with_header(b'{"\xff\xfe": 1}', b"")),
    "a header of nested lists": ("model.safetensors", with_header(b"[" * 5000, b"")),
    "an offset beyond the file": (
        "model.safetensors",
        header({"a": {**ENTRY, "data_offsets": [0, 2**40]}}, bytes(8)),
    ),
    "a shape larger than its data": (
        "model.safetensors",
        header({"a": {**ENTRY, "shape": [2**40, 2**40]}}, bytes(8)),
    ),
    "a negative shape": ("model.safetensors", header({"a": {**ENTRY, "shape": [-2]}}, bytes(8))),
    "an unknown type": ("model.safetensors", header({"a": {**ENTRY, "dtype": "F99"}}, bytes(8))),
    "one tensor twice": (
        "model.safetensors",
        with_header(
            b'{"a": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}, '
            b'"a": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}}',
            bytes(8),
        ),
    ),
    "a config that is no JSON": ("config.json", b"{"),
    "a config that is not UTF-8": ("config.json", b'{"a": "\xff"}'),
    "a config that is a list": ("config.json", b"[]"),
    "a config of nested lists": ("config.json", b"[" * 100_000),
    "an index without a map": ("model.safetensors.index.json", b"{}"),
    "an index that is no JSON": ("model.safetensors.index.json", b"\x00"),
    "an absolute shard": (
        "model.safetensors.index.json",
        index({"a": "/etc/hostname.safetensors"}),
    ),
    "a shard outside": ("model.safetensors.index.json", index({"a": "../x.safetensors"})),
    "a shard that is a number": ("model.safetensors.index.json", index({"a": 7})),
    "a shard that is a folder": ("model.safetensors.index.json", index({"a": ".."})),
    "a missing shard": ("model.safetensors.index.json", index({"a": "gone.safetensors"})),
    "a tensor that its shard lacks": (
        "model.safetensors.index.json",
        index({"a": "model.safetensors"}),
    ),
    "one tensor in two files": (
        "more.safetensors",
        safetensors({"norm.weight": np.ones(64, np.float32)}),
    ),
}


@pytest.mark.parametrize(("name", "content"), BROKEN.values(), ids=BROKEN)
def test_a_broken_checkpoint_is_one_sentence(tmp_path, target, convert, name, content):
    """Never a traceback, and nothing written."""
    made = write_checkpoint(tmp_path / "in", target)
    (made.path / name).write_bytes(content)

    outcome, _ = convert(made.path)

    assert outcome.code in {1, 2}, outcome.err
    assert len(outcome.errors) == 1
    assert "Traceback" not in outcome.err
    assert {*tmp_path.iterdir()} == {made.path}


def test_a_shard_that_links_to_itself_is_one_sentence(tmp_path, target, convert):
    made = write_checkpoint(tmp_path / "in", target)
    shard = made.path / "model.safetensors"
    shard.unlink()
    shard.symlink_to("model.safetensors")

    outcome, _ = convert(made.path)

    assert outcome.code in {1, 2}
    assert len(outcome.errors) == 1


def test_an_empty_folder_is_one_sentence(tmp_path, convert):
    outcome, _ = convert(tmp_path)

    assert (outcome.code, len(outcome.errors)) == (2, 1)


def test_eight_bit_floats_are_what_their_formats_say():
    """Sign, exponent, mantissa: 0x38 and 0x3C are 1; the largest are 448 and 57344."""
    small, wide = eight_bit_values("F8_E4M3"), eight_bit_values("F8_E5M2")

    assert (small[0x38], small[0xB8], small[0x7E], small[0x01]) == (1, -1, 448, 2**-9)
    assert (wide[0x3C], wide[0xBC], wide[0x7B], wide[0x01]) == (1, -1, 57344, 2**-16)
    assert np.isnan([small[0x7F], small[0xFF]]).all()
