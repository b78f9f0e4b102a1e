"""Log-SNR conditioning, which is constant at inference, as two vectors to be folded away.

The fork adds ``e = fc2 . silu(fc1 . features(t) + b1) + b2`` to the embedding of every block row
before the first layer. The anchor's row always has t = 1000, the masks' rows always t = 0; the
anchor is never the mask token. So mask row + e(0) and every other row + e(1000) of the drafter's
own embeddings is the same drafter without conditioning.
"""

from collections.abc import Mapping

import numpy as np

from dspark_cli.convert.weights import Weight, spans, whole
from dspark_cli.errors import DsparkError

FEATURES = 128  # 64 sines, then 64 cosines
ANCHOR_TIME, MASK_TIME = 1000.0, 0.0
LONGEST_PERIOD = 10_000.0

NAMES = (
    "dspark.log_snr_fc1.weight",
    "dspark.log_snr_fc1.bias",
    "dspark.log_snr_fc2.weight",
    "dspark.log_snr_fc2.bias",
)


def constants(weights: Mapping[str, Weight], width: int) -> tuple[np.ndarray, np.ndarray]:
    """What the anchor's and the masks' rows are conditioned with, float32 [width] each.

    Raises DsparkError where a weight has another shape.
    """
    wanted = ((width, FEATURES), (width,), (width, width), (width,))
    for name, shape in zip(NAMES, wanted, strict=True):
        if weights[name].shape != shape:
            raise DsparkError(f"{name} has shape {weights[name].shape}, wanted {shape}")
    first, first_bias, second, second_bias = (weights[name] for name in NAMES)
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
