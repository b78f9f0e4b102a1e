"""The forward pass of a drafter as its source defines it, in numpy, a few rows at a time.

Written from the equations of DSpark (arXiv 2607.05147) and of the fork's graph, log-SNR
conditioning included. It works on the source's own tensors and shares nothing with the mapping
that it judges: a wrong name, a wrong permutation or a wrong fold parts the two.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from dspark_cli.convert.weights import Weight, row_count, spans


@dataclass(frozen=True, slots=True)
class Yarn:
    """YaRN (arXiv 2309.00071): slow pairs are stretched, fast ones are not, some in between."""

    trained: int  # positions before stretching
    fast: float = 32.0  # turns over these positions, from which on a pair is left alone
    slow: float = 1.0  # and below which it is stretched whole


@dataclass(frozen=True, slots=True)
class Rotary:
    """Rotary positions: of every head the first ``length`` elements are turned."""

    base: float
    length: int
    interleaved: bool = False  # pairs (2i, 2i + 1) instead of (i, i + length / 2)
    stretch: float = 1.0  # positions are divided by it
    yarn: Yarn | None = None  # not all alike


@dataclass(frozen=True, slots=True)
class Network:
    """A drafter by the roles of its tensors; see ``semantics`` for who plays them.

    ``tensors`` holds ``embeddings``, ``head``, ``fuse``, ``fused_norm``, ``final_norm``,
    ``markov_in``, ``markov_out``, ``confidence``, ``confidence_bias``, ``condition_in`` ... and
    ``N.query`` ... per layer; a role without a tensor is one that the drafter does not have.
    """

    layers: int
    width: int
    head_length: int
    epsilon: float
    rotary: Rotary
    block_size: int
    mask_token: int
    tensors: Mapping[str, Weight]
    reads_anchor_row: bool = True
    causal: bool = False
    windows: Mapping[int, int] | None = None  # positions that a layer looks back; none: all
    draft_tokens: np.ndarray | None = None


@dataclass(frozen=True, slots=True)
class Case:
    """One block to be drafted."""

    taps: np.ndarray  # float32 [positions before the anchor, n_taps x width]
    anchor: int


@dataclass(frozen=True, slots=True)
class Proposal:
    """What a drafter says of one block; rows that propose nothing are left out."""

    tokens: tuple[int, ...]
    logits: np.ndarray  # float32 [rows, vocabulary]; -inf where a reduced head has no row
    confidences: np.ndarray  # float32 [rows], or [0] without that head


def propose(network: Network, cases: Sequence[Case], vocabulary: int) -> list[Proposal]:
    """Draft all blocks side by side, so that every weight is read once."""
    hidden = _trunk(network, cases)
    flat = _times(hidden.reshape(-1, network.width), network.tensors["head"])
    base = flat.reshape(len(cases), network.block_size, -1)
    return _chains(network, hidden, base, [case.anchor for case in cases], vocabulary)


def _trunk(network: Network, cases: Sequence[Case]) -> np.ndarray:
    """Hidden states of all blocks behind the final norm: [cases, block_size, width]."""
    tensors = network.tensors
    fused = _norm(
        _times(np.concatenate([case.taps for case in cases]), tensors["fuse"]),
        tensors["fused_norm"],
        network.epsilon,
    )
    counts = [len(case.taps) for case in cases]
    x = np.concatenate([_embedded(network, case.anchor) for case in cases])
    for number in range(network.layers):
        x = x + _attended(network, number, x, fused, counts)
        x = x + _fed_forward(network, number, x)
    hidden = _norm(x, tensors["final_norm"], network.epsilon)
    return hidden.reshape(len(cases), network.block_size, network.width)


def _embedded(network: Network, anchor: int) -> np.ndarray:
    """The rows of one block, conditioned where the drafter is: [block_size, width]."""
    table = network.tensors["embeddings"]
    tokens = [anchor] + [network.mask_token] * (network.block_size - 1)
    rows = np.concatenate([table.rows(token, token + 1) for token in tokens])
    if "condition_in" not in network.tensors:
        return rows
    # The signal-to-noise ratio is the largest at the anchor and the smallest at a mask, scaled
    # to 1000 and 0; whatever the bounds are, they cancel.
    times = [1000.0 if row == 0 else 0.0 for row in range(len(tokens))]
    conditioned: np.ndarray = rows + np.concatenate([_conditioned(network, t) for t in times])
    return conditioned


def _conditioned(network: Network, time: float) -> np.ndarray:
    """LogSnrEmbed: a sinusoid of the time through two layers, [1, width]."""
    frequencies = np.power(10_000.0, -np.arange(64) / 64)
    wave = [*np.sin(time * frequencies), *np.cos(time * frequencies)]
    inner = _times(np.array([wave], np.float32), network.tensors["condition_in"])
    inner = inner + _vector(network.tensors["condition_in_bias"])
    outer = _times(inner * _sigmoid(inner), network.tensors["condition_out"])
    return np.asarray(outer + _vector(network.tensors["condition_out_bias"]))


def _attended(
    network: Network, number: int, x: np.ndarray, fused: np.ndarray, counts: Sequence[int]
) -> np.ndarray:
    """What attention adds to the rows of all blocks.

    Queries come of the blocks; keys and values of the fused taps, which no layer norms, and of the
    blocks.
    """
    size = network.block_size
    h = _norm(x, network.tensors[f"{number}.attention_norm"], network.epsilon)
    queries, _, _ = _projected(network, number, h)
    _, keys, values = _projected(network, number, np.concatenate([fused, h]))
    mixed = []
    start = 0
    for case, count in enumerate(counts):
        here = slice(case * size, (case + 1) * size)
        rows = [
            *range(start, start + count),
            *range(len(fused) + here.start, len(fused) + here.stop),
        ]
        positions = np.arange(count + size)
        mixed.append(
            _mixed(
                _turned(queries[here], positions[count:], network.rotary),
                _turned(keys[rows], positions, network.rotary),
                values[rows],
                _visible(network, number, positions[count:], positions),
            )
        )
        start += count
    return _times(np.concatenate(mixed), network.tensors[f"{number}.attention_out"])


def _projected(
    network: Network, number: int, x: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Queries, keys and values [rows, heads, head_length], queries and keys normed per head."""
    tensors, length = network.tensors, network.head_length
    fused = tensors.get(f"{number}.query_key_value")
    if fused is None:
        parts = [_times(x, tensors[f"{number}.{role}"]) for role in ("query", "key", "value")]
    else:
        queries = tensors[f"{number}.attention_out"].shape[-1]
        keys = (fused.shape[0] - queries) // 2
        parts = np.split(_times(x, fused), [queries, queries + keys], axis=-1)
    query, key, value = (part.reshape(len(x), -1, length) for part in parts)
    return (
        _norm(query, tensors[f"{number}.query_norm"], network.epsilon),
        _norm(key, tensors[f"{number}.key_norm"], network.epsilon),
        value,
    )


def _visible(network: Network, number: int, rows: np.ndarray, columns: np.ndarray) -> np.ndarray:
    """Which positions ``columns`` a row at each of ``rows`` sees: [rows, columns]."""
    back = rows[:, None] - columns
    seen = np.ones(back.shape, bool)
    if network.causal:
        seen &= back >= 0
    if network.windows and number in network.windows:
        seen &= back < network.windows[number]
    return seen


def _mixed(
    queries: np.ndarray, keys: np.ndarray, values: np.ndarray, seen: np.ndarray
) -> np.ndarray:
    """Grouped-query attention: [rows, heads x head_length]."""
    share = queries.shape[1] // keys.shape[1]
    keys, values = np.repeat(keys, share, axis=1), np.repeat(values, share, axis=1)
    scores = np.einsum("nhd,mhd->hnm", queries, keys) / np.sqrt(queries.shape[-1])
    scores = np.where(seen, scores, -np.inf)
    odds = np.exp(scores - scores.max(axis=-1, keepdims=True))
    odds /= odds.sum(axis=-1, keepdims=True)
    mixed = np.einsum("hnm,mhd->nhd", odds, values)
    return np.asarray(mixed.reshape(len(queries), -1), np.float32)


def _turned(heads: np.ndarray, positions: np.ndarray, rotary: Rotary) -> np.ndarray:
    """Turn the rotated elements of [rows, heads, head_length] by their rows' positions."""
    half = rotary.length // 2
    angles = (positions[:, None] * _speeds(rotary))[:, None, :]
    if rotary.interleaved:
        first, second = slice(0, rotary.length, 2), slice(1, rotary.length, 2)
    else:
        first, second = slice(0, half), slice(half, rotary.length)
    turned: np.ndarray = heads.copy()
    # YaRN's attention grows with the logarithm of the stretch, half of it on either side.
    gain = 1.0 if rotary.yarn is None else 1 + 0.1 * np.log(max(rotary.stretch, 1.0))
    cosine, sine = gain * np.cos(angles), gain * np.sin(angles)
    turned[..., first] = heads[..., first] * cosine - heads[..., second] * sine
    turned[..., second] = heads[..., first] * sine + heads[..., second] * cosine
    return turned


def _speeds(rotary: Rotary) -> np.ndarray:
    """Radians per position of every pair: [length / 2]."""
    pairs = np.arange(rotary.length // 2)
    speeds: np.ndarray = rotary.base ** (-2.0 * pairs / rotary.length)
    if rotary.yarn is None:
        return speeds / rotary.stretch

    def pair_of(turns: float) -> float:
        """The pair, as a fraction, that turns so often over the trained positions."""
        wave = rotary.yarn.trained / (turns * 2 * np.pi) if rotary.yarn else 1.0
        return float(rotary.length * np.log(wave) / (2 * np.log(rotary.base)))

    low = max(np.floor(pair_of(rotary.yarn.fast)), 0)
    high = min(np.ceil(pair_of(rotary.yarn.slow)), rotary.length - 1)
    stretched = np.clip((pairs - low) / max(high - low, 1e-3), 0, 1)
    mixed: np.ndarray = speeds * (1 - stretched) + speeds / rotary.stretch * stretched
    return mixed


def _fed_forward(network: Network, number: int, x: np.ndarray) -> np.ndarray:
    h = _norm(x, network.tensors[f"{number}.feed_norm"], network.epsilon)
    gate = _times(h, network.tensors[f"{number}.gate"])
    inner = gate * _sigmoid(gate) * _times(h, network.tensors[f"{number}.up"])
    return _times(inner, network.tensors[f"{number}.down"])


def _chains(
    network: Network,
    hidden: np.ndarray,
    base: np.ndarray,
    anchors: Sequence[int],
    vocabulary: int,
) -> list[Proposal]:
    """Choose greedily, row after row, each biased by the token before it."""
    tensors = network.tensors
    first = 0 if network.reads_anchor_row else 1
    previous = list(anchors)
    tokens, logits, confidences = [], [], []
    for row in range(first, network.block_size):
        scores = base[:, row]
        state = hidden[:, row]
        if "markov_in" in tensors:
            before = np.concatenate([tensors["markov_in"].rows(id_, id_ + 1) for id_ in previous])
            scores = scores + _times(before, tensors["markov_out"])
            if "confidence" in tensors and tensors["confidence"].shape[-1] > network.width:
                state = np.concatenate([state, before], axis=-1)
        if "confidence" in tensors:
            trust = _times(state, tensors["confidence"])[:, 0]
            if "confidence_bias" in tensors:
                trust = trust + _vector(tensors["confidence_bias"])
            confidences.append(_sigmoid(trust))
        spread = _spread(scores, network.draft_tokens, vocabulary)
        previous = spread.argmax(axis=-1).tolist()
        tokens.append(previous)
        logits.append(spread)
    chances = np.stack(confidences, axis=1) if confidences else np.empty((len(anchors), 0))
    return [
        Proposal(
            tuple(line[case] for line in tokens),
            np.array([rows[case] for rows in logits]).reshape(len(tokens), vocabulary),
            chances[case].astype(np.float32),
        )
        for case in range(len(anchors))
    ]


def _spread(scores: np.ndarray, draft_tokens: np.ndarray | None, vocabulary: int) -> np.ndarray:
    """Give a reduced head's columns their places in the whole vocabulary."""
    if draft_tokens is None:
        return scores
    full = np.full((len(scores), vocabulary), -np.inf, np.float32)
    full[:, draft_tokens] = scores
    return full


def _times(x: np.ndarray, weight: Weight) -> np.ndarray:
    """``x`` [rows, in] through a matrix [out, in]: float32 [rows, out]."""
    result = np.empty((len(x), row_count(weight)), np.float32)
    x = x.astype(np.float32, copy=False)
    for begin, end in spans(weight):
        np.matmul(x, weight.rows(begin, end).T, out=result[:, begin:end])
    return result


def _vector(weight: Weight) -> np.ndarray:
    return weight.rows(0, row_count(weight)).reshape(-1)


def _norm(x: np.ndarray, weight: Weight, epsilon: float) -> np.ndarray:
    scale = np.sqrt(np.mean(np.square(x, dtype=np.float64), axis=-1, keepdims=True) + epsilon)
    return np.asarray(x / scale * _vector(weight), np.float32)


def _sigmoid(x: np.ndarray) -> np.ndarray:
    with np.errstate(over="ignore"):  # exp of a large number is infinite, and 1 / inf is 0
        return np.asarray(1 / (1 + np.exp(-x)))
