"""The forward passes of target and drafter in numpy, written from the equations.

Nothing is cached and nothing is batched: each call computes a whole text in double precision from
the weights that ``pairs`` wrote. Slow, short, and independent of llama.cpp.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from pairs import Drafter, Shape, Target


@dataclass(frozen=True)
class TargetPass:
    """What a target computes for a text of n tokens."""

    logits: np.ndarray  # [n, V]
    layer_inputs: np.ndarray  # [n_layer, n, E]

    def taps(self, layers: Sequence[int]) -> np.ndarray:
        """Lay the inputs of ``layers`` side by side, as a drafter wants them: [n, n_taps * E]."""
        return np.concatenate([self.layer_inputs[layer] for layer in layers], axis=-1)


@dataclass(frozen=True)
class Block:
    """What a drafter computes for the rows of one block.

    ``proposals`` and ``confidences`` leave out a first row that proposes nothing; ``confidences``
    is None without a confidence head.
    """

    logits: np.ndarray  # [m, V]
    proposals: list[int]
    confidences: np.ndarray | None


class TargetReference:
    def __init__(self, target: Target) -> None:
        self.target = target
        self._weights = doubled(target.weights)

    def forward(self, tokens: Sequence[int]) -> TargetPass:
        """Compute the logits after every token of a text, and the input of every layer."""
        shape, weights = self.target.shape, self._weights
        positions = np.arange(len(tokens))
        causal = positions[:, None] >= positions
        x = weights["token_embd.weight"][list(tokens)]
        inputs = []
        for number in range(shape.n_layer):
            inputs.append(x)
            layer = Layer(shape, weights, number, interleaved_rope=self.target.arch == "llama")
            h = layer.attention_input(x)
            x = x + layer.attention(
                layer.queries(h, positions), *layer.keys_values(h, positions), causal
            )
            x = x + layer.feed_forward(x)
        hidden = rms_norm(x, weights["output_norm.weight"], shape.rms_eps)
        return TargetPass(hidden @ weights["output.weight"].T, np.array(inputs))


class DrafterReference:
    """A drafter beside its target, whose embeddings and head it uses for want of its own."""

    def __init__(self, drafter: Drafter, target: Target) -> None:
        self.drafter = drafter
        self._weights = doubled(drafter.weights)
        borrowed = doubled(target.weights)
        self._embeddings = self._weights.get("token_embd.weight", borrowed["token_embd.weight"])
        self._head = self._weights.get("output.weight")
        if self._head is None:
            tied = "token_embd.weight" in self._weights
            self._head = self._embeddings if tied else borrowed["output.weight"]

    def propose(self, taps: np.ndarray, anchor: int, rows: int | None = None) -> Block:
        """Draft a block of ``rows``, as many as the drafter is trained for unless told.

        ``taps`` has a row per position before ``anchor``: [n_past, n_taps * E].
        """
        rows = self.drafter.block_size if rows is None else rows
        if not 1 <= rows <= self.drafter.block_size:
            message = f"a block has 1 to {self.drafter.block_size} rows, not {rows}"
            raise ValueError(message)
        hidden = self._hidden(taps, [anchor] + [self.drafter.mask] * (rows - 1))
        logits = self._spread(hidden @ self._head.T, absent=-np.inf)
        if not self.drafter.is_dspark:
            return Block(logits, [int(row.argmax()) for row in logits[1:]], None)
        return self._markov_chain(hidden, logits, anchor)

    def _hidden(self, taps: np.ndarray, block: Sequence[int]) -> np.ndarray:
        """Run the block through the layers; every row sees the context and the whole block."""
        shape, weights = self.drafter.shape, self._weights
        context = np.arange(len(taps))
        positions = len(taps) + np.arange(len(block))
        everything = np.ones((len(block), len(taps) + len(block)), dtype=bool)
        fused = rms_norm(
            taps.astype(np.float64) @ weights["fc.weight"].T,
            weights["enc.output_norm.weight"],
            shape.rms_eps,
        )
        x = self._embeddings[list(block)]
        for number in range(shape.n_layer):
            layer = Layer(shape, weights, number, interleaved_rope=False)
            h = layer.attention_input(x)
            # The context enters as keys and values alone, and without the layer's attn_norm.
            context_keys, context_values = layer.keys_values(fused, context)
            block_keys, block_values = layer.keys_values(h, positions)
            x = x + layer.attention(
                layer.queries(h, positions),
                np.concatenate([context_keys, block_keys]),
                np.concatenate([context_values, block_values]),
                everything,
            )
            x = x + layer.feed_forward(x)
        return rms_norm(x, weights["output_norm.weight"], shape.rms_eps)

    def _markov_chain(self, hidden: np.ndarray, base: np.ndarray, anchor: int) -> Block:
        """Bias each row by the token before it, which is the proposal of the row before."""
        w1, w2 = self._weights["markov_w1.weight"], self._weights["markov_w2.weight"]
        logits = base.copy()
        proposals, confidences = [], []
        previous = anchor
        for row in range(self.drafter.first_row, len(base)):
            logits[row] += self._spread(w2 @ w1[previous], absent=0.0)
            if "conf_proj.weight" in self._weights:
                state = np.concatenate([hidden[row], w1[previous]])
                score = self._weights["conf_proj.weight"][0] @ state
                confidences.append(sigmoid(score + self._weights["conf_proj.bias"][0]))
            previous = int(logits[row].argmax())
            proposals.append(previous)
        has_confidence = "conf_proj.weight" in self._weights
        return Block(logits, proposals, np.array(confidences) if has_confidence else None)

    def _spread(self, draft_logits: np.ndarray, absent: float) -> np.ndarray:
        """Move the columns of a reduced vocabulary to their places in the target's."""
        rows = self.drafter.weights.get("d2t")
        if rows is None:
            return draft_logits
        full = np.full((*draft_logits.shape[:-1], len(self._embeddings)), absent)
        full[..., rows] = draft_logits
        return full


def greedy(target: TargetReference, prompt: Sequence[int], n: int) -> list[int]:
    """Continue ``prompt`` by the ``n`` tokens the target itself finds likeliest."""
    text = list(prompt)
    for _ in range(n):
        text.append(int(target.forward(text).logits[-1].argmax()))
    return text[len(prompt) :]


@dataclass(frozen=True)
class Layer:
    """One transformer layer; keys and queries are normed per head where it has the weights."""

    shape: Shape
    weights: Mapping[str, np.ndarray]
    number: int
    interleaved_rope: bool

    def attention_input(self, x: np.ndarray) -> np.ndarray:
        return rms_norm(x, self._tensor("attn_norm"), self.shape.rms_eps)

    def queries(self, h: np.ndarray, positions: np.ndarray) -> np.ndarray:
        return self._turned(self._heads(h, "attn_q"), "attn_q_norm", positions)

    def keys_values(self, h: np.ndarray, positions: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        keys = self._turned(self._heads(h, "attn_k"), "attn_k_norm", positions)
        return keys, self._heads(h, "attn_v")

    def attention(
        self, queries: np.ndarray, keys: np.ndarray, values: np.ndarray, allowed: np.ndarray
    ) -> np.ndarray:
        """Attend from [n, heads, dim] to [m, kv_heads, dim] where ``allowed[n, m]``."""
        share = self.shape.n_head // self.shape.n_head_kv
        keys, values = np.repeat(keys, share, axis=1), np.repeat(values, share, axis=1)
        scores = np.einsum("nhd,mhd->hnm", queries, keys) / np.sqrt(self.shape.head_dim)
        mixed = np.einsum("hnm,mhd->nhd", softmax(np.where(allowed, scores, -np.inf)), values)
        return mixed.reshape(len(queries), -1) @ self._tensor("attn_output").T

    def feed_forward(self, x: np.ndarray) -> np.ndarray:
        h = rms_norm(x, self._tensor("ffn_norm"), self.shape.rms_eps)
        gate = h @ self._tensor("ffn_gate").T
        inner = gate * sigmoid(gate) * (h @ self._tensor("ffn_up").T)
        return inner @ self._tensor("ffn_down").T

    def _tensor(self, name: str) -> np.ndarray:
        return self.weights[f"blk.{self.number}.{name}.weight"]

    def _heads(self, h: np.ndarray, name: str) -> np.ndarray:
        return (h @ self._tensor(name).T).reshape(len(h), -1, self.shape.head_dim)

    def _turned(self, heads: np.ndarray, norm: str, positions: np.ndarray) -> np.ndarray:
        weight = self.weights.get(f"blk.{self.number}.{norm}.weight")
        if weight is not None:
            heads = rms_norm(heads, weight, self.shape.rms_eps)
        return rope(heads, positions, base=self.shape.rope_base, interleaved=self.interleaved_rope)


def rope(
    heads: np.ndarray, positions: np.ndarray, *, base: float, interleaved: bool
) -> np.ndarray:
    """Turn pairs of dimensions of [n, heads, dim] by angles that grow with the position.

    A pair is (2i, 2i + 1) when ``interleaved`` (llama.cpp's NORM) and (i, i + dim / 2) when not
    (its NEOX).
    """
    half = heads.shape[-1] // 2
    angles = positions[:, None, None] * base ** (-np.arange(half) / half)
    pairs = (
        (slice(0, None, 2), slice(1, None, 2))
        if interleaved
        else (slice(None, half), slice(half, None))
    )
    first, second = (heads[..., pair] for pair in pairs)
    turned = np.empty_like(heads)
    turned[..., pairs[0]] = first * np.cos(angles) - second * np.sin(angles)
    turned[..., pairs[1]] = first * np.sin(angles) + second * np.cos(angles)
    return turned


def rms_norm(x: np.ndarray, weight: np.ndarray, eps: float) -> np.ndarray:
    return x / np.sqrt(np.mean(x**2, axis=-1, keepdims=True) + eps) * weight


def softmax(scores: np.ndarray) -> np.ndarray:
    odds = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return odds / odds.sum(axis=-1, keepdims=True)


def sigmoid(x: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-x))


def doubled(weights: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Take weights to double precision, and leave token ids alone."""
    return {
        name: array if array.dtype.kind == "i" else array.astype(np.float64)
        for name, array in weights.items()
    }
