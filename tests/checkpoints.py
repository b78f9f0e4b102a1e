"""Tiny checkpoints as four frameworks save them, and what they draft by their own maths.

Safetensors are laid out byte by byte here, bfloat16 included; names and rules are written down
once more, and not taken from the converter.
"""

import json
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
from forks import conditioning
from pairs import (
    MASK,
    Shape,
    Target,
    norm_near_one,
    normal_matrix,
    random_embeddings,
    random_layers,
)
from reference import Block, Layer, doubled, rms_norm, rope, sigmoid

LAYER_NAMES = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "attn_q_norm": "self_attn.q_norm",
    "attn_k_norm": "self_attn.k_norm",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
EASYDEL_NAMES = {
    "norm.weight": "final_norm.weight",
    "embed_tokens.weight": "tok_embeddings.weight",
    "markov_head.markov_w1.weight": "markov_head.down.weight",
    "markov_head.markov_w2.weight": "markov_head.up.weight",
    "confidence_head.proj.weight": "confidence_head.weight",
    "confidence_head.proj.bias": "confidence_head.bias",
}


@dataclass(frozen=True)
class Checkpoint:
    """A checkpoint as written; ``weights`` have DeepSpec's names and the stored values."""

    path: Path
    shape: Shape
    block_size: int
    n_taps: int
    mask: int
    weights: Mapping[str, np.ndarray]
    first_row: int = 0
    interleaved: bool = False
    rotated: int | None = None  # elements of a head
    linear: float = 1.0  # what positions are divided by
    windows: Mapping[int, int] = field(default_factory=dict)
    causal: bool = False
    tied: bool = False
    draft_tokens: np.ndarray | None = None
    mask_row: np.ndarray | None = None


def write_checkpoint(
    folder: Path,
    target: Target,
    *,
    framework: str = "DeepSpec",
    seed: int = 1,
    block_size: int = 4,
    taps: Sequence[int] = (0, 2),
    rank: int | None = 8,
    confidence: str | None = "markov",
    embeddings: bool = True,
    head: bool = True,
    tied: bool = False,
    draft_tokens: Sequence[int] | None = None,
    sample_from_anchor: bool | None = None,
    interleaved: bool = False,
    partial: float | None = None,
    window: int | None = None,
    sliding: Sequence[bool] | None = None,
    causal: bool | None = None,
    log_snr: bool = False,
    mask_row: np.ndarray | None = None,
    shards: int = 1,
    prefix: str = "",
    dtype: str = "F32",
    config: Mapping[str, object] | None = None,
    tensors: Mapping[str, np.ndarray | None] | None = None,
) -> Checkpoint:
    """Write a checkpoint whose weights are random; ``taps`` are outputs of target layers."""
    shape = replace(target.shape, n_layer=2)
    random = np.random.default_rng(seed)
    weights = named_weights(random, shape, len(target.vocabulary.tokens), len(taps))
    rows = len(target.vocabulary.tokens) if draft_tokens is None else len(draft_tokens)
    weights |= head_weights(random, len(target.vocabulary.tokens), rows, rank)
    if confidence is not None:
        columns = shape.n_embd + (rank or 0) * (confidence == "markov")
        weights["confidence_head.proj.weight"] = 1.5 * normal_matrix(random, 1, columns)
        weights["confidence_head.proj.bias"] = random.normal(size=1)
    weights["lm_head.weight"] = 4 * normal_matrix(random, rows, shape.n_embd)
    for name, kept in (("embed_tokens.weight", embeddings), ("lm_head.weight", head)):
        weights = weights if kept else {key: weights[key] for key in weights if key != name}
    if log_snr:
        for name, array in conditioning(random, shape.n_embd).items():
            weights[name.replace("dspark.log_snr_", "log_snr_embed.")] = array
    stored = {name: rounded(array, dtype) for name, array in weights.items()}
    values = {
        **hyper_parameters(framework, shape, block_size, taps, len(target.vocabulary.tokens)),
        **choices(sample_from_anchor, interleaved=interleaved, partial=partial, causal=causal),
        "tie_word_embeddings": tied,
    }
    slides = sliding or [True] * shape.n_layer
    values |= sliding_values(window, slides)
    if log_snr:
        values |= {"log_snr_conditioning": True, "min_log_snr": -9.0, "max_log_snr": 9.0}
    saved = dict(stored)
    if draft_tokens is not None:
        values["draft_vocab_size"] = rows
        saved["d2t"] = np.array(draft_tokens, np.int64) - np.arange(rows)
        saved["t2d"] = np.isin(np.arange(len(target.vocabulary.tokens)), draft_tokens)
    saved |= tensors or {}
    saved = {name: array for name, array in saved.items() if array is not None}
    if framework == "EasyDeL":
        saved = {EASYDEL_NAMES.get(name, name): array for name, array in saved.items()}
    folder.mkdir(parents=True, exist_ok=True)
    values |= config or {}
    values = {name: value for name, value in values.items() if value is not ...}
    (folder / "config.json").write_text(json.dumps(values))
    write_shards(folder, {prefix + name: array for name, array in saved.items()}, shards, dtype)
    nested = framework == "speculators"
    anchored = (not nested) if sample_from_anchor is None else sample_from_anchor
    return Checkpoint(
        path=folder,
        shape=shape,
        block_size=block_size,
        n_taps=len(taps),
        mask=MASK,
        weights=stored,
        first_row=0 if anchored else 1,
        interleaved=interleaved,
        rotated=None if partial is None else int(shape.head_dim * partial),
        linear=(values.get("rope_scaling") or {}).get("factor", 1.0),
        windows={i: window for i, slide in enumerate(slides) if window and slide},
        causal=bool(causal),
        tied=tied,
        draft_tokens=None if draft_tokens is None else np.array(draft_tokens),
        mask_row=mask_row,
    )


def named_weights(
    random: np.random.Generator, shape: Shape, n_vocab: int, n_taps: int
) -> dict[str, np.ndarray]:
    weights = {
        "embed_tokens.weight": random_embeddings(random, n_vocab, shape.n_embd),
        "fc.weight": normal_matrix(random, shape.n_embd, n_taps * shape.n_embd),
        "hidden_norm.weight": norm_near_one(random, shape.n_embd),
        "norm.weight": norm_near_one(random, shape.n_embd),
    }
    for name, array in random_layers(random, shape, head_norms=True).items():
        _, number, tensor, _ = name.split(".")
        weights[f"layers.{number}.{LAYER_NAMES[tensor]}.weight"] = array
    return weights


def head_weights(
    random: np.random.Generator, n_vocab: int, rows: int, rank: int | None
) -> dict[str, np.ndarray]:
    if rank is None:
        return {}
    return {
        "markov_head.markov_w1.weight": random.normal(size=(n_vocab, rank)),
        "markov_head.markov_w2.weight": 4 * normal_matrix(random, rows, rank),
    }


def sliding_values(window: int | None, sliding: Sequence[bool]) -> dict[str, object]:
    if window is None:
        return {}
    kinds = ["sliding_attention" if slides else "full_attention" for slides in sliding]
    return {"use_sliding_window": True, "sliding_window": window, "layer_types": kinds}


def hyper_parameters(
    framework: str, shape: Shape, block_size: int, taps: Sequence[int], n_vocab: int
) -> dict[str, object]:
    """A config.json in the shape of one framework."""
    layers = {
        "hidden_size": shape.n_embd,
        "intermediate_size": shape.n_ff,
        "num_hidden_layers": shape.n_layer,
        "num_attention_heads": shape.n_head,
        "num_key_value_heads": shape.n_head_kv,
        "head_dim": shape.head_dim,
        "max_position_embeddings": shape.context_length,
        "rms_norm_eps": shape.rms_eps,
        "rope_theta": shape.rope_base,
        "vocab_size": n_vocab,
        "hidden_act": "silu",
    }
    own = {"block_size": block_size, "mask_token_id": MASK, "target_layer_ids": list(taps)}
    if framework == "SpecForge":
        nested = {"projector_type": "dspark", "markov_head_type": "vanilla", **own}
        return {**layers, "architectures": ["DSparkDraftModel"], "dflash_config": nested}
    if framework == "speculators":
        return {
            "speculators_model_type": "dspark",
            "architectures": ["DSparkSpeculator"],
            "transformer_layer_config": layers,
            "aux_hidden_state_layer_ids": [tap + 1 for tap in taps],
            "block_size": block_size,
            "mask_token_id": MASK,
        }
    name = "DSparkForCausalLM" if framework == "EasyDeL" else "Qwen3DSparkModel"
    return {**layers, **own, "architectures": [name], "markov_head_type": "vanilla"}


def choices(
    sample_from_anchor: bool | None, *, interleaved: bool, partial: float | None, causal: object
) -> dict[str, object]:
    values = {
        "sample_from_anchor": sample_from_anchor,
        "rope_is_neox_style": False if interleaved else None,
        "partial_rotary_factor": partial,
        "is_causal": causal,
    }
    return {name: value for name, value in values.items() if value is not None}


# --- safetensors, byte by byte ------------------------------------------------------------------


def rounded(array: np.ndarray, dtype: str) -> np.ndarray:
    """The numbers that are left of ``array`` in a file of ``dtype``, float32."""
    array = array.astype(np.float32)
    if dtype == "BF16":
        return (bfloat16(array).astype(np.uint32) << 16).view(np.float32)
    return array.astype({"F32": np.float32, "F16": np.float16}[dtype]).astype(np.float32)


def bfloat16(array: np.ndarray) -> np.ndarray:
    """The upper half of every float, cut off; uint16."""
    return (np.ascontiguousarray(array, np.float32).view(np.uint32) >> 16).astype(np.uint16)


def encoded(array: np.ndarray, dtype: str) -> tuple[str, bytes]:
    if array.dtype == bool:
        return "BOOL", array.tobytes()
    if array.dtype == np.int64:
        return "I64", array.tobytes()
    if dtype == "BF16":
        return dtype, bfloat16(array).tobytes()
    return dtype, array.astype({"F32": "<f4", "F16": "<f2"}[dtype]).tobytes()


def safetensors(tensors: Mapping[str, np.ndarray], dtype: str = "F32") -> bytes:
    header, body = {}, bytearray()
    for name, array in tensors.items():
        kind, raw = encoded(array, dtype)
        offsets = [len(body), len(body) + len(raw)]
        header[name] = {"dtype": kind, "shape": list(array.shape), "data_offsets": offsets}
        body += raw
    return with_header(json.dumps(header).encode(), bytes(body))


def with_header(header: bytes, body: bytes) -> bytes:
    return struct.pack("<Q", len(header)) + header + body


def write_shards(folder: Path, tensors: Mapping[str, np.ndarray], shards: int, dtype: str) -> None:
    """One file, or several with an index."""
    if shards == 1:
        (folder / "model.safetensors").write_bytes(safetensors(tensors, dtype))
        return
    names = sorted(tensors)
    places = {}
    for number in range(shards):
        file = f"model-{number + 1:05d}-of-{shards:05d}.safetensors"
        part = {name: tensors[name] for name in names[number::shards]}
        (folder / file).write_bytes(safetensors(part, dtype))
        places |= dict.fromkeys(part, file)
    index = {"metadata": {}, "weight_map": places}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))


# --- what it drafts -----------------------------------------------------------------------------


@dataclass(frozen=True)
class PartLayer(Layer):
    """A layer that turns only the first elements of every head."""

    rotated: int = 0
    linear: float = 1.0

    def _turned(self, heads: np.ndarray, norm: str, positions: np.ndarray) -> np.ndarray:
        heads = rms_norm(heads, self._tensor(norm), self.shape.rms_eps)
        part = heads[..., : self.rotated]
        interleaved = self.interleaved_rope
        turned = rope(
            part, positions / self.linear, base=self.shape.rope_base, interleaved=interleaved
        )
        return np.concatenate([turned, heads[..., self.rotated :]], axis=-1)


class CheckpointReference:
    """The drafter of the paper, in double precision, from a checkpoint's own tensors."""

    def __init__(self, checkpoint: Checkpoint, target: Target) -> None:
        self.checkpoint = checkpoint
        weights = doubled(checkpoint.weights)
        lent = doubled(target.weights)
        self._embeddings = weights.get("embed_tokens.weight", lent["token_embd.weight"])
        self._head = weights.get("lm_head.weight")
        if self._head is None:
            self._head = self._embeddings if checkpoint.tied else lent["output.weight"]
        if checkpoint.mask_row is not None:
            self._embeddings = self._embeddings.copy()
            self._embeddings[checkpoint.mask] = checkpoint.mask_row
        self._weights = weights
        self._layers = {
            f"blk.{number}.{ours}.weight": weights[f"layers.{number}.{theirs}.weight"]
            for number in range(checkpoint.shape.n_layer)
            for ours, theirs in LAYER_NAMES.items()
        }

    def propose(self, taps: np.ndarray, anchor: int) -> Block:
        """Draft one whole block; ``taps`` has a row per position before ``anchor``."""
        made, weights, shape = self.checkpoint, self._weights, self.checkpoint.shape
        block = [anchor] + [made.mask] * (made.block_size - 1)
        x = self._embeddings[block]
        if "log_snr_embed.fc1.weight" in weights:
            x = x + np.array([self._conditioning(row) for row in range(len(block))])
        fused = taps.astype(np.float64) @ weights["fc.weight"].T
        context = rms_norm(fused, weights["hidden_norm.weight"], shape.rms_eps)
        everywhere = np.arange(len(taps) + len(block))
        before, here = everywhere[: len(taps)], everywhere[len(taps) :]
        for number in range(shape.n_layer):
            layer = PartLayer(
                shape,
                self._layers,
                number,
                made.interleaved,
                rotated=made.rotated or shape.head_dim,
                linear=made.linear,
            )
            h = layer.attention_input(x)
            theirs, ours = layer.keys_values(context, before), layer.keys_values(h, here)
            keys, values = (np.concatenate(pair) for pair in zip(theirs, ours, strict=True))
            seen = np.ones((len(block), len(everywhere)), dtype=bool)
            if number in made.windows:
                seen &= here[:, None] - everywhere < made.windows[number]
            if made.causal:
                seen &= everywhere <= here[:, None]
            x = x + layer.attention(layer.queries(h, here), keys, values, seen)
            x = x + layer.feed_forward(x)
        hidden = rms_norm(x, weights["norm.weight"], shape.rms_eps)
        return self._chain(hidden, hidden @ self._head.T, anchor)

    def _conditioning(self, row: int) -> np.ndarray:
        t = 1000.0 if row == 0 else 0.0
        angles = t * np.exp(-np.log(10000) * np.arange(64) / 64)
        wave = np.concatenate([np.sin(angles), np.cos(angles)])
        first, first_bias, second, second_bias = (
            self._weights[f"log_snr_embed.{name}"]
            for name in ("fc1.weight", "fc1.bias", "fc2.weight", "fc2.bias")
        )
        inner = first @ wave + first_bias
        return second @ (inner * sigmoid(inner)) + second_bias

    def _chain(self, hidden: np.ndarray, base: np.ndarray, anchor: int) -> Block:
        weights = self._weights
        before = weights.get("markov_head.markov_w1.weight")
        trust = weights.get("confidence_head.proj.weight")
        logits, proposals, confidences = base.copy(), [], []
        previous = anchor
        for row in range(self.checkpoint.first_row, len(base)):
            state = hidden[row]
            if before is not None:
                logits[row] += weights["markov_head.markov_w2.weight"] @ before[previous]
                if trust is not None and trust.shape[1] > len(state):
                    state = np.concatenate([state, before[previous]])
            if trust is not None:
                bias = weights["confidence_head.proj.bias"][0]
                confidences.append(sigmoid(trust[0] @ state + bias))
            previous = int(logits[row].argmax())
            if self.checkpoint.draft_tokens is not None:
                previous = int(self.checkpoint.draft_tokens[previous])
            proposals.append(previous)
        return Block(logits, proposals, None if trust is None else np.array(confidences))
