"""A drafter of the fork becomes one of mainline's, and drafts the same tokens."""

import struct
from dataclasses import replace

import numpy as np
import pytest
from fakes import full_disk
from forks import ForkReference, write_fork
from gguf import GGMLQuantizationType, GGUFValueType, GGUFWriter, quantize
from gguf.gguf_writer import GGUFValue
from pairs import MASK, VOCABULARY, Mutation, Vocabulary, write_random_target

from dspark_cli import PairOptions, open_pair
from dspark_cli.convert import logsnr
from dspark_cli.metadata import read_metadata
from dspark_cli.tensors import read_weights

V = len(VOCABULARY.tokens)


@pytest.fixture
def convert(dspark, target, tmp_path):
    """Convert one file for ``target``; returns the outcome and where the drafter should be."""
    out = tmp_path / "out.gguf"

    def run(source, *options):
        return dspark("convert", source, "-m", target.path, "-o", out, "-t", 1, *options), out

    return run


def proposals(path, target, reference, cases=((1, 97), (6, 98), (21, 257), (9, 0))):
    """Per case what llama.cpp drafts with the pair, and what the reference says."""
    random = np.random.default_rng(5)
    with open_pair(PairOptions(target.path, path)) as pair:
        for length, anchor in cases:
            columns = len(reference.fork.taps) * reference.fork.shape.n_embd
            taps = random.normal(size=(length, columns)).astype(np.float32)
            pair.drafter.clear()
            pair.drafter.observe(taps, 0)
            found = pair.drafter.propose(anchor, length, reference.fork.block_size)
            yield found, reference.propose(taps, anchor)


SHAPES = {
    "as the fork writes it": {},
    "a block of 1": {"block_size": 1},
    "a block of 7": {"block_size": 7, "seed": 3},
    "a block of 8, three taps": {"block_size": 8, "taps": (0, 1, 2)},
    "without log-SNR": {"log_snr": False},
    "without log-SNR, tied": {"log_snr": False, "head": False},
    "with log-SNR, tied": {"head": False},
    "everything borrowed": {"log_snr": False, "head": False, "embeddings": False},
    "only a head": {"log_snr": False, "embeddings": False},
    "rank 1": {"rank": 1},
    "rank 33": {"rank": 33},
    "without heads": {"rank": None, "confidence": None},
    "without a Markov head": {"rank": None, "confidence": "hidden"},
    "a confidence head that sees the hidden state alone": {"confidence": "hidden"},
    "without a confidence head": {"confidence": None},
    "a fused projection": {"fused_qkv": True},
    "keys with a single prefix": {"prefix": "dspark.", "log_snr": False},
    "keys with a single prefix, conditioned": {"prefix": "dspark."},
    "in half precision": {"dtype": np.float16},
}


@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
def test_a_converted_drafter_drafts_what_the_fork_drafts(tmp_path, target, convert, shape):
    """Token for token, by a reference that knows the fork's equations and not the converter."""
    fork = write_fork(tmp_path / "fork.gguf", target, **shape)

    outcome, out = convert(fork.path)

    assert outcome.code == 0, outcome.err
    for found, wanted in proposals(out, target, ForkReference(fork, target)):
        assert list(found.tokens) == wanted.proposals
        if wanted.confidences is not None:
            assert np.allclose(found.confidences, wanted.confidences, atol=2e-3)


YARN = {"type": "yarn", "factor": 8.0, "original_context_length": 64}


@pytest.mark.parametrize("scaling", [YARN, {"type": "linear", "factor": 4.0}])
def test_scaled_rotary_positions_go_along(tmp_path, target, convert, scaling):
    """The fork's keys are the usual ones, and so is their maths."""
    keys = {f"dspark.rope.scaling.{name}": value for name, value in scaling.items()}
    fork = write_fork(tmp_path / "fork.gguf", target, mutation=Mutation(metadata=keys))

    outcome, out = convert(fork.path, "--json")

    assert outcome.code == 0, outcome.err
    assert outcome.document["logit_error"] < 1e-3
    assert read_metadata(out).text("dflash.rope.scaling.type") == scaling["type"]


def test_conditioning_matters(tmp_path, target):
    """Else the fold would be proven by drafts that do not depend on it."""
    fork = write_fork(tmp_path / "fork.gguf", target)
    plain = {name: array for name, array in fork.weights.items() if "log_snr" not in name}
    with_it = ForkReference(fork, target)
    without = ForkReference(replace(fork, weights=plain), target)
    taps = np.random.default_rng(5).normal(size=(6, 128))

    assert with_it.propose(taps, 97).proposals != without.propose(taps, 97).proposals


# --- the tables of the recipe -------------------------------------------------------------------


@pytest.fixture(scope="module")
def conditioned(models, target):
    return write_fork(models / "conditioned.gguf", target)


def test_every_key_is_mainlines(conditioned, target, convert):
    """The recipe, key by key: what is renamed, said anew, dropped, and taken from the target."""
    outcome, out = convert(conditioned.path)
    before, after = read_metadata(conditioned.path), read_metadata(out)
    donor = read_metadata(target.path)

    assert outcome.code == 0
    assert after.architecture == "dflash"
    assert after.text("general.name") == "a drafter of the fork"
    for key, kind in (
        ("block_count", "u32"),
        ("context_length", "u32"),
        ("embedding_length", "u32"),
        ("feed_forward_length", "u32"),
        ("attention.head_count", "u32"),
        ("attention.head_count_kv", "u32"),
        ("attention.key_length", "u32"),
        ("attention.value_length", "u32"),
        ("attention.layer_norm_rms_epsilon", "f32"),
        ("rope.freq_base", "f32"),
        ("rope.dimension_count", "u32"),
    ):
        assert after.values[f"dflash.{key}"] == before.values[f"dspark.{key}"]
        assert after.types[f"dflash.{key}"] == kind
    said = {
        "dflash.block_size": (4, "u32"),
        "dflash.target_layers": ((1, 3), "[i32]"),  # inputs: one more than the fork's outputs
        "dflash.sample_from_anchor": (True, "bool"),
        "dflash.has_confidence_head": (True, "bool"),
        "dflash.attention.causal": (False, "bool"),
        "tokenizer.ggml.mask_token_id": (MASK, "u32"),
    }
    assert {key: (after.values[key], after.types[key]) for key in said} == said
    assert not [key for key in after.values if key.startswith("dspark.")]
    for gone in ("vocab_size", "markov_rank", "confidence_head", "log_snr_conditioning"):
        assert f"dflash.{gone}" not in after.values
    tokenizer = {key for key in donor.values if key.startswith("tokenizer.")}
    assert tokenizer | {"tokenizer.ggml.mask_token_id"} == {
        key for key in after.values if key.startswith("tokenizer.")
    }
    assert all(after.values[key] == donor.values[key] for key in tokenizer)


def test_every_tensor_is_mainlines(conditioned, convert):
    """The recipe, tensor by tensor: 11 per layer and 9, the numbers as they were."""
    _, out = convert(conditioned.path)
    before, after = read_metadata(conditioned.path), read_metadata(out)
    same = {
        "dspark.fc.weight": "fc.weight",
        "dspark.hidden_norm.weight": "enc.output_norm.weight",
        "dspark.markov_head_a.weight": "markov_w1.weight",
        "dspark.markov_head_b.weight": "markov_w2.weight",
        "dspark.confidence_head.weight": "conf_proj.weight",
        "dspark.confidence_head.bias": "conf_proj.bias",
        "output_norm.weight": "output_norm.weight",
        "output.weight": "output.weight",
    }
    same |= {name: name for name in before.tensors if name.startswith("blk.")}

    assert {*after.tensors} == {*same.values(), "token_embd.weight"}
    assert len(after.tensors) == 2 * 11 + 9
    for old, new in same.items():
        assert np.array_equal(read_weights(before, old), read_weights(after, new))
        assert before.tensors[old].type_id == after.tensors[new].type_id


def test_the_fold_is_in_the_embeddings_and_nowhere_else(conditioned, target, convert):
    """The mask's row gets the masks' vector and every other row the anchor's."""
    outcome, out = convert(conditioned.path)
    reference = ForkReference(conditioned, target)
    anchor, mask = reference._conditioning(0), reference._conditioning(1)  # noqa: SLF001
    added = np.broadcast_to(anchor, (V, 64)).copy()
    added[MASK] = mask

    found = read_weights(read_metadata(out), "token_embd.weight")

    assert np.allclose(found, conditioned.weights["token_embd.weight"] + added, atol=1e-4)
    assert "log-SNR conditioning" in outcome.err
    assert not [name for name in read_metadata(out).tensors if "log_snr" in name]


def test_a_tied_head_is_written_unfolded(tmp_path, target, convert):
    fork = write_fork(tmp_path / "fork.gguf", target, head=False)
    _, out = convert(fork.path)

    head = read_weights(read_metadata(out), "output.weight")

    assert np.array_equal(head, fork.weights["token_embd.weight"])


# --- types and shared tensors -------------------------------------------------------------------


@pytest.mark.parametrize("out_type", ["f32", "f16", "bf16", "q8_0", "q4_0"])
def test_matrices_are_stored_as_asked(conditioned, convert, out_type):
    """Vectors stay F32; folded embeddings are never coarser than Q8_0."""
    outcome, out = convert(conditioned.path, "--out-type", out_type)
    tensors = read_metadata(out).tensors

    assert outcome.code == 0, outcome.err
    assert tensors["blk.0.attn_q.weight"].type_name == out_type.upper()
    assert tensors["output_norm.weight"].type_name == "F32"
    folded = "Q8_0" if out_type == "q4_0" else out_type.upper()
    assert tensors["token_embd.weight"].type_name == folded


@pytest.mark.parametrize("kind", ["BF16", "Q4_1", "Q8_0"])
def test_packed_weights_are_copied_and_not_rounded_again(tmp_path, target, convert, kind):
    """--out-type keep leaves every matrix as it is, fused ones too."""
    fork = write_packed(tmp_path / "fork.gguf", target, GGMLQuantizationType[kind])
    outcome, out = convert(fork)
    before, after = read_metadata(fork), read_metadata(out)

    assert outcome.code == 0, outcome.err
    assert after.tensors["blk.0.attn_k.weight"].type_name == kind
    whole = read_weights(before, "blk.0.attn_qkv.weight")
    parts = [read_weights(after, f"blk.0.attn_{part}.weight") for part in "qkv"]
    assert np.array_equal(np.concatenate(parts), whole)


def write_packed(path, target, kind):
    """A drafter whose layers and fusion are packed, as the fork publishes them."""
    fork = write_fork(path, target, fused_qkv=True, head=False)
    metadata = read_metadata(path)
    tensors = {name: read_weights(metadata, name) for name in metadata.tensors}
    writer = GGUFWriter(path.with_name("packed.gguf"), arch="dspark")
    for key, value in metadata.values.items():
        if key == "general.architecture":
            continue
        listed = metadata.types[key].startswith("[")
        known = {"u32": GGUFValueType.UINT32, "str": GGUFValueType.STRING}
        known |= {"f32": GGUFValueType.FLOAT32, "bool": GGUFValueType.BOOL}
        if listed:
            writer.add_key_value(key, list(value), GGUFValueType.ARRAY, GGUFValueType.INT32)
        else:
            writer.add_key_value(key, value, known[metadata.types[key]])
    for name, array in tensors.items():
        packs = array.ndim == 2 and array.shape[1] % 32 == 0 and "confidence" not in name
        if packs:
            writer.add_tensor(name, quantize(array, kind), raw_dtype=kind)
        else:
            writer.add_tensor(name, array)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    assert fork.path == path
    return path.with_name("packed.gguf")


def test_shared_embeddings_are_left_out(tmp_path, target, convert):
    """--share-target drops both; the drafter was trained with the target's frozen ones."""
    own = {name: target.weights[name] for name in ("token_embd.weight", "output.weight")}
    fork = write_fork(
        tmp_path / "fork.gguf", target, log_snr=False, mutation=Mutation(tensors=own)
    )

    outcome, out = convert(fork.path, "--share-target")

    assert outcome.code == 0, outcome.err
    assert not {"token_embd.weight", "output.weight"} & read_metadata(out).tensors.keys()
    reference = ForkReference(fork, target)
    for found, wanted in proposals(out, target, reference):
        assert list(found.tokens) == wanted.proposals


def test_embeddings_that_are_not_the_targets_cannot_be_shared(tmp_path, target, convert):
    """The drafter would be another one; rows of both are compared before anything is written."""
    fork = write_fork(tmp_path / "fork.gguf", target, log_snr=False)

    outcome, out = convert(fork.path, "--share-target")

    assert outcome.code == 1
    assert "--share-target" in outcome.err
    assert not out.exists()


def test_folded_embeddings_cannot_be_shared(conditioned, convert):
    outcome, out = convert(conditioned.path, "--share-target")

    assert outcome.code == 2
    assert "log-SNR" in outcome.errors[0]
    assert not out.exists()


# --- what is refused ----------------------------------------------------------------------------


REFUSALS = {
    "a hidden correction (key)": (
        {},
        Mutation(metadata={"dspark.dspark.hidden_correction": True}),
        "hidden correction|publisher",
    ),
    "a hidden correction (tensor)": (
        {},
        Mutation(tensors={"dspark.correction_gate.weight": np.ones((8, 128), np.float32)}),
        "hidden correction|publisher",
    ),
    "an attention bias": (
        {},
        Mutation(tensors={"blk.1.attn_q.bias": np.ones(64, np.float32)}),
        "biases|blk.1.attn_q.bias",
    ),
    "an unknown tensor": (
        {},
        Mutation(tensors={"dspark.surprise": np.ones(64, np.float32)}),
        "dspark.surprise",
    ),
    "half a Markov head": (
        {},
        Mutation(tensors={"dspark.markov_head_b.weight": None}),
        "half a Markov head|W2",
    ),
    "a missing tensor": ({}, Mutation(tensors={"blk.1.ffn_up.weight": None}), "blk.1.ffn_up"),
    "conditioning without its weights": (
        {},
        Mutation(tensors={"dspark.log_snr_fc2.bias": None}),
        "log-SNR|log_snr_fc2.bias",
    ),
    "weights without conditioning": (
        {},
        Mutation(drop={"dspark.dspark.log_snr_conditioning"}),
        "log_snr_conditioning",
    ),
    "bounds that are no bounds": (
        {},
        Mutation(metadata={"dspark.dspark.max_log_snr": -9.0}),
        "max_log_snr",
    ),
    "a bound that is no number": (
        {},
        Mutation(metadata={"dspark.dspark.max_log_snr": float("nan")}),
        "max_log_snr|nan",
    ),
    "conditioning without embeddings": (
        {"embeddings": False},
        Mutation(),
        "no embeddings|token_embd.weight",
    ),
    "conditioning of another width": (
        {},
        Mutation(tensors={"dspark.log_snr_fc1.weight": np.ones((64, 64), np.float32)}),
        "fc1.weight|(64, 128)",
    ),
    "no mask token": ({}, Mutation(drop={"dspark.dspark.mask_token_id"}), "mask_token_id"),
    "no block size": ({}, Mutation(drop={"dspark.dspark.block_size"}), "block_size"),
    "no target layers": ({}, Mutation(drop={"dspark.dspark.target_layers"}), "target_layers"),
    "target layers that are no numbers": (
        {},
        Mutation(
            metadata={
                "dspark.dspark.target_layers": GGUFValue(
                    ["a"], GGUFValueType.ARRAY, GGUFValueType.STRING
                )
            }
        ),
        "target_layers|[str]",
    ),
    "a block of 0": ({}, Mutation(metadata={"dspark.dspark.block_size": 0}), "block_size"),
    "a confidence head of another width": (
        {},
        Mutation(tensors={"dspark.confidence_head.weight": np.ones((1, 70), np.float32)}),
        "confidence|70|72",
    ),
    "layers without end": ({}, Mutation(metadata={"dspark.block_count": 10**9}), "block_count"),
    "scaled rotary positions": (
        {},
        Mutation(metadata={"dspark.rope.scaling.type": "longrope"}),
        "longrope",
    ),
    "weights that are no numbers": (
        {},
        Mutation(tensors={"output.weight": np.full((V, 64), np.nan, np.float32)}),
        "output.weight|NaN",
    ),
}
CONTRACT = {
    "a tap beyond the target": ({"taps": (0, 9)}, Mutation(), "layer 10"),
    "a mask outside the vocabulary": ({"mask": 5000, "log_snr": False}, Mutation(), "5000"),
    "a fusion of another width": (
        {},
        Mutation(tensors={"dspark.fc.weight": np.ones((64, 64), np.float32)}),
        "fc.weight",
    ),
    "a norm of another width": (
        {},
        Mutation(tensors={"output_norm.weight": np.ones(63, np.float32)}),
        "output_norm.weight",
    ),
    "another width": ({}, Mutation(metadata={"dspark.embedding_length": 128}), "128"),
}


@pytest.mark.parametrize(("options", "mutation", "parts"), REFUSALS.values(), ids=REFUSALS)
def test_what_cannot_be_expressed_is_refused(tmp_path, target, convert, options, mutation, parts):
    """One sentence with the reason, nothing written."""
    fork = write_fork(tmp_path / "fork.gguf", target, **options, mutation=mutation)

    outcome, out = convert(fork.path)

    assert outcome.code == 1, outcome.err
    assert len(outcome.errors) == 1
    assert all(part in outcome.err for part in parts.split("|"))
    assert {*tmp_path.iterdir()} == {fork.path}
    assert not out.exists()


@pytest.mark.parametrize(("options", "mutation", "parts"), CONTRACT.values(), ids=CONTRACT)
def test_what_does_not_fit_the_target_is_refused(
    tmp_path, target, convert, options, mutation, parts
):
    """Exit code 4, or 1 where the file contradicts itself; before anything is written."""
    fork = write_fork(tmp_path / "fork.gguf", target, **options, mutation=mutation)

    outcome, _ = convert(fork.path)

    assert outcome.code in {1, 4}, outcome.err
    assert all(part in outcome.err for part in parts.split("|"))
    assert {*tmp_path.iterdir()} == {fork.path}


def test_another_vocabulary_is_refused(dspark, tmp_path, target):
    """The tokenizer comes from the target, so the target must be the right one."""
    larger = write_random_target(
        tmp_path / "larger.gguf", vocabulary=Vocabulary((*VOCABULARY.tokens, "<extra>"))
    )
    fork = write_fork(tmp_path / "fork.gguf", target)

    outcome = dspark("convert", fork.path, "-m", larger.path, "-o", tmp_path / "out.gguf")

    assert outcome.code == 4
    assert "token_embd.weight" in outcome.err
    assert not (tmp_path / "out.gguf").exists()


def test_the_old_two_bit_layout_names_the_bf16_file(tmp_path, target, convert):
    """Blocks of 128 under mainline's type 42; the next tensor's place tells."""
    fork = write_fork(tmp_path / "fork.gguf", target, log_snr=False)
    rows, columns = V, 64
    legacy = np.random.default_rng(0).integers(0, 255, rows * columns // 128 * 34).astype(np.uint8)
    path = repacked(fork.path, "token_embd.weight", 42, legacy)

    outcome, out = convert(path)

    assert outcome.code == 1
    assert "blocks of 128" in outcome.err
    assert "bf16" in outcome.err
    assert not out.exists()


def test_two_bits_in_mainlines_layout_are_read(tmp_path, target, convert):
    """Blocks of 64: a scale and codes of which 1 is zero."""
    fork = write_fork(tmp_path / "fork.gguf", target, log_snr=False)
    random = np.random.default_rng(0)
    blocks = random.integers(0, 256, (V, 18)).astype(np.uint8)
    blocks[:, :2] = np.full((V, 1), 0.5, "<f2").view(np.uint8)
    path = repacked(fork.path, "token_embd.weight", 42, blocks.ravel())
    codes = (blocks[:, 2:, None] >> np.array([0, 2, 4, 6], np.uint8)) & 3
    table = (codes.reshape(V, 64).astype(np.float32) - 1) / 2

    outcome, out = convert(path, "--out-type", "f32")

    assert outcome.code == 0, outcome.err
    assert np.array_equal(read_weights(read_metadata(out), "token_embd.weight"), table)


def repacked(path, name, type_id, data):
    """The same file with one tensor's type and bytes exchanged, everything after it moved up."""
    metadata = read_metadata(path)
    raw = path.read_bytes()
    ordered = sorted(metadata.tensors.values(), key=lambda tensor: tensor.offset)
    start = ordered[0].offset
    head, body, offsets = bytearray(raw[:start]), bytearray(), {}
    for tensor in ordered:
        offsets[tensor.name] = len(body)
        end = tensor.offset + tensor.size
        body += data.tobytes() if tensor.name == name else raw[tensor.offset : end]
        body += bytes(-len(body) % 32)
    for tensor in ordered:
        label = struct.pack("<Q", len(tensor.name)) + tensor.name.encode()
        at = head.index(label) + len(label) + 4 + 8 * len(tensor.shape)
        kind = type_id if tensor.name == name else tensor.type_id
        struct.pack_into("<IQ", head, at, kind, offsets[tensor.name])
    changed = path.with_name("repacked.gguf")
    changed.write_bytes(bytes(head + body))
    return changed


# --- the result is checked, whole, or not there -------------------------------------------------


def test_a_wrong_fold_fails_the_verification(conditioned, convert, monkeypatch):
    """Anchor and mask exchanged: llama.cpp loads that without a word, the comparison does not."""
    right = logsnr.constants
    monkeypatch.setattr(logsnr, "constants", lambda *given: right(*given)[::-1])

    outcome, out = convert(conditioned.path)

    assert outcome.code == 1
    assert "is not what conditioned.gguf says" in outcome.errors[0]
    assert not out.exists()
    assert not [*out.parent.iterdir()]


@pytest.mark.parametrize("out_type", ["f16", "bf16", "q8_0", "q4_0"])
def test_a_fold_that_is_left_out_fails_in_every_type(conditioned, convert, monkeypatch, out_type):
    nothing = np.zeros(64, np.float32)
    monkeypatch.setattr(logsnr, "constants", lambda *_: (nothing, nothing))

    outcome, out = convert(conditioned.path, "--out-type", out_type)

    assert outcome.code == 1
    assert not [*out.parent.iterdir()]


def test_no_verify_writes_without_loading(conditioned, convert, monkeypatch):
    monkeypatch.setattr(logsnr, "constants", lambda *_: (np.ones(64, np.float32),) * 2)

    outcome, out = convert(conditioned.path, "--no-verify")

    assert outcome.code == 0
    assert out.exists()


def test_an_output_is_replaced_only_by_force(conditioned, convert):
    _, out = convert(conditioned.path, "--no-verify")
    out.write_bytes(b"mine")

    refused, _ = convert(conditioned.path, "--no-verify")
    assert (refused.code, out.read_bytes()) == (2, b"mine")

    forced, _ = convert(conditioned.path, "--no-verify", "--force")
    assert forced.code == 0
    assert read_metadata(out).architecture == "dflash"


def test_the_source_is_never_the_output(dspark, tmp_path, target):
    fork = write_fork(tmp_path / "fork.gguf", target)
    before = fork.path.read_bytes()

    outcome = dspark("convert", fork.path, "-m", target.path, "-o", fork.path, "--force")

    assert outcome.code == 2
    assert fork.path.read_bytes() == before


def test_a_full_disk_leaves_nothing_behind(conditioned, convert):
    with full_disk(100_000):
        outcome, out = convert(conditioned.path, "--no-verify")

    assert outcome.code == 1
    assert "File too large" in outcome.err
    assert not [*out.parent.iterdir()]


def test_ctrl_c_leaves_nothing_behind(conditioned, convert, monkeypatch):
    def interrupted(_self, what, _done, _total):
        assert what == "writing"
        raise KeyboardInterrupt

    monkeypatch.setattr("dspark_cli.render.conversion.ConversionProgress.__call__", interrupted)

    outcome, out = convert(conditioned.path)

    assert outcome.code == 130
    assert not [*out.parent.iterdir()]


def test_the_report_is_json_too(conditioned, convert):
    outcome, out = convert(conditioned.path, "--json")

    document = outcome.document
    assert document["out"] == str(out)
    assert document["size"] == out.stat().st_size
    assert document["tensors"] == 31
    assert document["same_proposals"] == document["compared_blocks"] == 4
    assert document["logit_error"] < 1e-3
    assert "log-SNR" in document["notes"][0]


def test_a_mainline_drafter_needs_no_conversion(drafter, convert):
    outcome, _ = convert(drafter.path)

    assert outcome.code == 1
    assert "already" in outcome.err


def test_a_target_is_no_source(convert, tmp_path):
    other = write_random_target(tmp_path / "other.gguf")
    outcome, _ = convert(other.path)

    assert outcome.code == 1
    assert "no drafter" in outcome.err
