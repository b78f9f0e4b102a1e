"""Weights by their GGUF names: read from a target or a drafter, or drawn to begin with.

One dictionary, from tensor name to a float32 array in PyTorch's order (outputs first), is what
starts a training, what a checkpoint exports and what a GGUF stores. This module knows numpy and
GGUF tensors; it knows no PyTorch.
"""

from contextlib import suppress

import numpy as np

from dspark_cli.errors import DsparkError
from dspark_cli.metadata import Metadata
from dspark_cli.tensors import read_weights
from dspark_cli.train.design import DrafterDesign

Weights = dict[str, np.ndarray]

INITIAL_DEVIATION = 0.02  # of matrices drawn at random, as in GPT-2
# W1 meets a W2 of zeros, which learns as fast as W1 is large: 0.02 would cost hundreds of steps.
MARKOV_DEVIATION = 0.2
# Rotary pairs lie side by side in these targets (LLAMA_ROPE_TYPE_NORM); a drafter's lie half a
# head apart (NEOX).
INTERLEAVED_ROPE = frozenset({"llama", "muse-glimmer", "nanbeige"})


def shapes_of(design: DrafterDesign, draft_vocabulary: int) -> dict[str, tuple[int, ...]]:
    """Every tensor that is trained, with its shape, outputs first (llama.cpp's dflash.cpp)."""
    width, rank = design.width, design.markov_rank
    queries = design.heads * design.head_length
    keys = design.kv_heads * design.head_length
    shapes: dict[str, tuple[int, ...]] = {
        "fc.weight": (width, design.tap_width),
        "enc.output_norm.weight": (width,),
        "output_norm.weight": (width,),
        "markov_w1.weight": (design.vocabulary, rank),
        "markov_w2.weight": (draft_vocabulary, rank),
        "conf_proj.weight": (1, width + rank),
        "conf_proj.bias": (1,),
    }
    for layer in range(design.layers):
        block = f"blk.{layer}."
        shapes |= {
            block + "attn_norm.weight": (width,),
            block + "attn_q.weight": (queries, width),
            block + "attn_k.weight": (keys, width),
            block + "attn_v.weight": (keys, width),
            block + "attn_output.weight": (width, queries),
            block + "attn_q_norm.weight": (design.head_length,),
            block + "attn_k_norm.weight": (design.head_length,),
            block + "ffn_norm.weight": (width,),
            block + "ffn_gate.weight": (design.feed_forward, width),
            block + "ffn_up.weight": (design.feed_forward, width),
            block + "ffn_down.weight": (width, design.feed_forward),
        }
    return shapes


def initial_weights(
    design: DrafterDesign,
    target: Metadata,
    draft_tokens: np.ndarray,
    tap_scale: np.ndarray,
    *,
    seed: int,
    start: Metadata | None = None,
) -> Weights:
    """Weights to begin a training with.

    Random ones, in which the target's last layers replace the blocks and the fusion passes the tap
    nearest to them, where shapes allow; and of ``start``, an earlier drafter of the same target,
    all that still fits. ``draft_tokens`` [draft vocabulary] are target ids, ``tap_scale``
    [n_taps x width] is the usual size of the taps' channels.
    """
    random = np.random.default_rng(seed)
    weights: Weights = {}
    for name, shape in shapes_of(design, len(draft_tokens)).items():
        if "norm" in name:
            weights[name] = np.ones(shape, np.float32)
        elif name in {"markov_w2.weight", "conf_proj.weight", "conf_proj.bias"}:
            weights[name] = np.zeros(shape, np.float32)
        else:
            deviation = MARKOV_DEVIATION if name == "markov_w1.weight" else INITIAL_DEVIATION
            weights[name] = random.normal(0, deviation, shape).astype(np.float32)
    weights["fc.weight"] /= tap_scale
    _start_from_target(weights, design, target)
    if start is not None:
        _start_from_drafter(weights, start, draft_tokens)
    return weights


def _start_from_target(weights: Weights, design: DrafterDesign, target: Metadata) -> None:
    first = design.target.layers - design.layers
    if first < 0:
        return
    for layer in range(design.layers):
        for name in (
            "attn_norm", "attn_q", "attn_k", "attn_v", "attn_output", "attn_q_norm",
            "attn_k_norm", "ffn_norm", "ffn_gate", "ffn_up", "ffn_down",
        ):  # fmt: skip
            theirs = f"blk.{first + layer}.{name}.weight"
            ours = f"blk.{layer}.{name}.weight"
            try:
                values = read_weights(target, theirs)
            except DsparkError:  # missing or unreadable: this one begins at random
                continue
            if name in {"attn_q", "attn_k"} and target.architecture in INTERLEAVED_ROPE:
                values = half_rotated(values, design.head_length)
            if values.shape == weights[ours].shape:
                weights[ours] = values
    # The head was trained behind the target's own last norm.
    with suppress(DsparkError):
        weights["output_norm.weight"] = read_weights(target, "output_norm.weight")
    # The first block then reads of the taps what the target's own layer would read.
    nearest = min(range(len(design.taps)), key=lambda at: abs(design.taps[at] - first))
    columns = slice(nearest * design.width, (nearest + 1) * design.width)
    weights["fc.weight"][:, columns] = np.eye(design.width, dtype=np.float32)
    weights["enc.output_norm.weight"] = weights["blk.0.attn_norm.weight"].copy()


def half_rotated(weights: np.ndarray, head_length: int) -> np.ndarray:
    """Rows of q or k [heads x head_length, width], from interleaved pairs to split halves."""
    heads = len(weights) // head_length
    pairs = weights.reshape(heads, head_length // 2, 2, -1)
    halves: np.ndarray = pairs.swapaxes(1, 2).reshape(weights.shape)
    return halves


def _start_from_drafter(weights: Weights, start: Metadata, draft_tokens: np.ndarray) -> None:
    for name in weights:
        if name not in start.tensors:
            continue
        values = read_weights(start, name)
        if name == "markov_w2.weight":
            values = _rows_of(values, start, draft_tokens, weights[name])
        if values.shape == weights[name].shape:
            weights[name] = values


def _rows_of(
    values: np.ndarray, start: Metadata, draft_tokens: np.ndarray, ours: np.ndarray
) -> np.ndarray:
    """A head over another draft vocabulary, laid out for ours; unknown tokens keep our rows."""
    if values.shape[1] != ours.shape[1]:
        return ours
    d2t = start.tensors.get("d2t")
    known = np.arange(len(values)) if d2t is None else start.read_integers(d2t)
    place = {int(token): row for row, token in enumerate(known)}
    rows = np.array([place.get(int(token), -1) for token in draft_tokens])
    laid: np.ndarray = ours.copy()
    laid[rows >= 0] = values[rows[rows >= 0]]
    return laid
