"""Tiny drafters in the dialect of the PrismML fork, and what they draft by the fork's own maths.

Names, keys and equations are written down once more here, from the formats and not from the
converter: what it makes of a file must draft what `ForkReference` computes.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from gguf import GGUFValueType
from gguf.gguf_writer import GGUFValue
from pairs import (
    FAITHFUL,
    MASK,
    Mutation,
    Shape,
    Target,
    norm_near_one,
    normal_matrix,
    random_embeddings,
    random_layers,
    typed,
    write_gguf,
)
from reference import Block, Layer, doubled, rms_norm, sigmoid


@dataclass(frozen=True)
class Fork:
    """A file as written; ``taps`` are outputs of layers, as the fork counts them."""

    path: Path
    shape: Shape
    block_size: int
    taps: tuple[int, ...]
    mask: int
    weights: Mapping[str, np.ndarray]


def write_fork(
    path: Path,
    target: Target,
    *,
    seed: int = 1,
    block_size: int = 4,
    taps: Sequence[int] = (0, 2),
    rank: int | None = 8,
    confidence: str | None = "markov",
    log_snr: bool = True,
    embeddings: bool = True,
    head: bool = True,
    fused_qkv: bool = False,
    prefix: str = "dspark.dspark.",
    mask: int = MASK,
    n_layer: int = 2,
    dtype: type[np.floating] = np.float32,
    mutation: Mutation = FAITHFUL,
) -> Fork:
    """Write a drafter whose weights are random; ``confidence`` is markov, hidden or None."""
    shape = replace(target.shape, n_layer=n_layer)
    n_vocab, width = len(target.vocabulary.tokens), shape.n_embd
    random = np.random.default_rng(seed)
    weights = {
        **trunk(random, shape, len(taps)),
        **heads(random, n_vocab, width, rank, confidence),
    }
    if embeddings:
        weights["token_embd.weight"] = random_embeddings(random, n_vocab, width)
    if head:
        weights["output.weight"] = 4 * normal_matrix(random, n_vocab, width)
    if log_snr:
        weights |= conditioning(random, width)
    stored = fused(weights, n_layer) if fused_qkv else weights
    metadata = {
        "general.architecture": typed("dspark"),
        "general.name": typed("a drafter of the fork"),
        **shape.metadata("dspark"),
        "dspark.vocab_size": typed(n_vocab),
        f"{prefix}block_size": typed(block_size),
        "dspark.dspark.mask_token_id": typed(mask),
        f"{prefix}target_layers": GGUFValue(list(taps), GGUFValueType.ARRAY, GGUFValueType.INT32),
        f"{prefix}markov_rank": typed(rank or 0),
        f"{prefix}confidence_head": typed(confidence is not None),
        f"{prefix}confidence_head_with_markov": typed(confidence == "markov"),
        "tokenizer.ggml.model": typed("none"),
    }
    if log_snr:
        metadata |= {
            f"{prefix}log_snr_conditioning": typed(True),
            f"{prefix}min_log_snr": typed(-9.0),
            f"{prefix}max_log_snr": typed(9.0),
        }
    written = write_gguf(path, metadata, stored, dtype=dtype, mutation=mutation)
    whole = weights if fused_qkv else written
    whole = {
        name: np.asarray(written.get(name, array.astype(dtype))) for name, array in whole.items()
    }
    return Fork(path, shape, block_size, tuple(taps), mask, whole)


def trunk(random: np.random.Generator, shape: Shape, n_taps: int) -> dict[str, np.ndarray]:
    """Make the layers and what joins them to the taps and to the head."""
    return {
        "dspark.fc.weight": normal_matrix(random, shape.n_embd, n_taps * shape.n_embd),
        "dspark.hidden_norm.weight": norm_near_one(random, shape.n_embd),
        "output_norm.weight": norm_near_one(random, shape.n_embd),
        **random_layers(random, shape, head_norms=True),
    }


def heads(
    random: np.random.Generator, n_vocab: int, width: int, rank: int | None, confidence: str | None
) -> dict[str, np.ndarray]:
    weights = {}
    if rank is not None:
        weights["dspark.markov_head_a.weight"] = random.normal(size=(n_vocab, rank))
        weights["dspark.markov_head_b.weight"] = 4 * normal_matrix(random, n_vocab, rank)
    if confidence is not None:
        columns = width + (rank or 0) * (confidence == "markov")
        weights["dspark.confidence_head.weight"] = 1.5 * normal_matrix(random, 1, columns)
        weights["dspark.confidence_head.bias"] = random.normal(size=1)
    return weights


def conditioning(random: np.random.Generator, width: int) -> dict[str, np.ndarray]:
    """Make LogSnrEmbed, loud enough to change what is drafted."""
    return {
        "dspark.log_snr_fc1.weight": normal_matrix(random, width, 128),
        "dspark.log_snr_fc1.bias": random.normal(size=width),
        "dspark.log_snr_fc2.weight": 6 * normal_matrix(random, width, width),
        "dspark.log_snr_fc2.bias": random.normal(size=width),
    }


def fused(weights: Mapping[str, np.ndarray], n_layer: int) -> dict[str, np.ndarray]:
    """Lay queries, keys and values of every layer into one tensor."""
    stored = dict(weights)
    for number in range(n_layer):
        parts = [stored.pop(f"blk.{number}.attn_{part}.weight") for part in "qkv"]
        stored[f"blk.{number}.attn_qkv.weight"] = np.concatenate(parts)
    return stored


class ForkReference:
    """What the fork's graph and its chain on the host compute, in double precision."""

    def __init__(self, fork: Fork, target: Target) -> None:
        self.fork = fork
        self._weights = doubled(fork.weights)
        borrowed = doubled(target.weights)
        own = self._weights.get("token_embd.weight")
        self._embeddings = borrowed["token_embd.weight"] if own is None else own
        self._head = self._weights.get("output.weight", own)
        if self._head is None:
            self._head = borrowed["output.weight"]

    def propose(self, taps: np.ndarray, anchor: int) -> Block:
        """Draft one whole block; ``taps`` has a row per position before ``anchor``."""
        weights, shape = self._weights, self.fork.shape
        block = [anchor] + [self.fork.mask] * (self.fork.block_size - 1)
        x = self._embeddings[block]
        if "dspark.log_snr_fc1.weight" in weights:
            x = x + np.array([self._conditioning(row) for row in range(len(block))])
        context = rms_norm(
            taps.astype(np.float64) @ weights["dspark.fc.weight"].T,
            weights["dspark.hidden_norm.weight"],
            shape.rms_eps,
        )
        everywhere = np.arange(len(taps) + len(block))
        before, here = everywhere[: len(taps)], everywhere[len(taps) :]
        for number in range(shape.n_layer):
            layer = Layer(shape, weights, number, interleaved_rope=False)
            h = layer.attention_input(x)
            theirs, ours = layer.keys_values(context, before), layer.keys_values(h, here)
            keys, values = (np.concatenate(pair) for pair in zip(theirs, ours, strict=True))
            seen = np.ones((len(block), len(everywhere)), dtype=bool)
            x = x + layer.attention(layer.queries(h, here), keys, values, seen)
            x = x + layer.feed_forward(x)
        hidden = rms_norm(x, weights["output_norm.weight"], shape.rms_eps)
        return self._chain(hidden, hidden @ self._head.T, anchor)

    def _conditioning(self, row: int) -> np.ndarray:
        weights = self._weights
        snr = 9.0 if row % self.fork.block_size == 0 else -9.0
        t = (snr + 9.0) / 18.0 * 1000
        angles = [t * np.exp(-np.log(10000) * i / 64) for i in range(64)]
        wave = np.array([np.sin(angle) for angle in angles] + [np.cos(angle) for angle in angles])
        inner = weights["dspark.log_snr_fc1.weight"] @ wave + weights["dspark.log_snr_fc1.bias"]
        inner = inner * sigmoid(inner)
        return weights["dspark.log_snr_fc2.weight"] @ inner + weights["dspark.log_snr_fc2.bias"]

    def _chain(self, hidden: np.ndarray, base: np.ndarray, anchor: int) -> Block:
        weights = self._weights
        before = weights.get("dspark.markov_head_a.weight")
        trust = weights.get("dspark.confidence_head.weight")
        logits, proposals, confidences = base.copy(), [], []
        previous = anchor
        for row in range(len(base)):
            state = hidden[row]
            if before is not None:
                logits[row] += weights["dspark.markov_head_b.weight"] @ before[previous]
                if trust is not None and trust.shape[1] > len(state):
                    state = np.concatenate([state, before[previous]])
            if trust is not None:
                bias = weights["dspark.confidence_head.bias"][0]
                confidences.append(sigmoid(trust[0] @ state + bias))
            previous = int(logits[row].argmax())
            proposals.append(previous)
        return Block(logits, proposals, None if trust is None else np.array(confidences))
