"""Log-SNR conditioning, which is constant at inference, as two vectors to be folded away.

The fork adds ``e = fc2 . silu(fc1 . features(t) + b1) + b2`` to the embedding of every block row
before the first layer. The anchor's row always has t = 1000, the masks' rows always t = 0; the
anchor is never the mask token. So mask row + e(0) and every other row + e(1000) of the drafter's
own embeddings is the same drafter without conditioning.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np

from dspark_cli.convert.weights import Weight, spans, whole
from dspark_cli.errors import DsparkError

FEATURES = 128  # 64 sines, then 64 cosines
ANCHOR_TIME, MASK_TIME = 1000.0, 0.0
LONGEST_PERIOD = 10_000.0

ROLES = ("fc1.weight", "fc1.bias", "fc2.weight", "fc2.bias")


def fold(
    path: Path, table: Weight | None, conditioning: Sequence[Weight], mask: int
) -> "Conditioned":
    """Embeddings with the conditioning in them; the four weights come in the order of ``ROLES``.

    Raises DsparkError where there are no embeddings, or a weight has another shape.
    """
    if table is None:
        raise DsparkError(
            f"{path}: is conditioned on log-SNR and has no embeddings of its own; "
            "the conditioning can be folded into nothing else",
            hint="ask its publisher for the file with the embeddings (token_embd.weight)",
        )
    width = table.shape[-1]
    wanted = ((width, FEATURES), (width,), (width, width), (width,))
    for role, weight, shape in zip(ROLES, conditioning, wanted, strict=True):
        if weight.shape != shape:
            raise DsparkError(f"{path}: log_snr {role} has shape {weight.shape}, wanted {shape}")
    first, first_bias, second, second_bias = conditioning
    return Conditioned(table, mask, (first, first_bias, second, second_bias))


@dataclass(frozen=True)
class Conditioned:
    """A table of embeddings to each row of which its role's vector is added."""

    base: Weight
    mask: int
    conditioning: tuple[Weight, Weight, Weight, Weight]

    @property
    def shape(self) -> tuple[int, ...]:
        return self.base.shape

    @property
    def type_id(self) -> int:
        return self.base.type_id

    def rows(self, begin: int, end: int) -> np.ndarray:
        anchor, mask = self._vectors
        here = np.arange(begin, end)[:, None] == self.mask
        shifted: np.ndarray = self.base.rows(begin, end) + np.where(here, mask, anchor)
        return shifted

    def packed(self, begin: int, end: int) -> np.ndarray | None:  # noqa: ARG002
        return None

    @cached_property
    def _vectors(self) -> tuple[np.ndarray, np.ndarray]:
        return constants(*self.conditioning)


def check_bounds(path: Path, low: float | None, high: float | None) -> None:
    """Refuse a file without sound bounds: they cancel, but it is not what it says."""
    if low is None or high is None or not np.isfinite([low, high]).all() or high <= low:
        raise DsparkError(
            f"{path}: log-SNR conditioning wants finite bounds, min_log_snr below "
            f"max_log_snr, got {low} and {high}"
        )


def folded_note(mask: int) -> str:
    return (
        "log-SNR conditioning, constant at inference, is folded into the embeddings: "
        f"row {mask} gets the masks' vector, every other row the anchor's"
    )


def constants(
    first: Weight, first_bias: Weight, second: Weight, second_bias: Weight
) -> tuple[np.ndarray, np.ndarray]:
    """What the anchor's and the masks' rows are conditioned with, float32 [width] each."""
    times = np.stack([features(ANCHOR_TIME), features(MASK_TIME)])
    hidden = times @ whole(first).T.astype(np.float64) + whole(first_bias)
    hidden = hidden / (1 + np.exp(-hidden))
    pieces = [hidden @ second.rows(*span).T.astype(np.float64) for span in spans(second)]
    anchor, mask = np.concatenate(pieces, axis=-1) + whole(second_bias)
    return anchor.astype(np.float32), mask.astype(np.float32)


def features(time: float) -> np.ndarray:
    """Sines, then cosines, of 64 frequencies from 1 down to nearly 1 / 10,000."""
    half = FEATURES // 2
    angles = time * np.exp(-np.log(LONGEST_PERIOD) * np.arange(half) / half)
    return np.concatenate([np.sin(angles), np.cos(angles)])
