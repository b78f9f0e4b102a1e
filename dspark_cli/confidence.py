"""Temperatures that turn a drafter's confidences into chances, and how far off they are.

Sequential temperature scaling (the paper's section 3.3): position by position, from the left, one
temperature divides the logits of the confidence. A confidence is conditional on everything before
it being accepted, so only such rows count. This module knows arrays.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

BINS = 15  # of equal mass, as calibration errors are commonly reported,
LABELS_PER_BIN = (
    100  # and fewer where they would hold less: chance alone fills a small bin unevenly
)
FEWEST_LABELS = 200  # of one position, below which it takes its left neighbour's temperature
LOWEST, HIGHEST = 0.05, 20.0  # temperatures that are searched
SEARCH_STEPS = 60  # of golden-section search: the bracket shrinks below 1e-9 of its length
GOLDEN = (np.sqrt(5) - 1) / 2


@dataclass(frozen=True, slots=True)
class PositionCalibration:
    """One draft position before and after."""

    labels: int
    temperature: float
    error_before: float | None  # expected calibration error; None without labels
    error_after: float | None


def chances(logits: np.ndarray, temperature: float) -> np.ndarray:
    """Logistic function of logits / temperature."""
    result: np.ndarray = 1 / (1 + np.exp(-np.clip(logits / temperature, -60, 60)))
    return result


def calibration_error(predicted: np.ndarray, happened: np.ndarray, bins: int = BINS) -> float:
    """Expected calibration error over bins of equal mass; both [n], n > 0."""
    order = np.argsort(predicted, kind="stable")
    parts = np.array_split(order, min(bins, len(order) // LABELS_PER_BIN or 1))
    gaps = [
        abs(float(predicted[part].mean()) - float(happened[part].mean())) * len(part)
        for part in parts
    ]
    return sum(gaps) / len(order)


def fit_temperature(logits: np.ndarray, happened: np.ndarray) -> float:
    """The temperature of the least negative log-likelihood; both [n], n > 0."""
    signs = np.where(happened, 1.0, -1.0)

    def loss(log_temperature: float) -> float:
        return float(np.logaddexp(0, -signs * logits / np.exp(log_temperature)).mean())

    low, high = np.log(LOWEST), np.log(HIGHEST)
    for _ in range(SEARCH_STEPS):
        left, right = high - GOLDEN * (high - low), low + GOLDEN * (high - low)
        low, high = (low, right) if loss(left) < loss(right) else (left, high)
    return float(np.exp((low + high) / 2))


@dataclass(frozen=True, slots=True)
class Outcomes:
    """Confidences of some blocks and what became of them, all [blocks, b]."""

    confidence: np.ndarray  # logits
    hits: np.ndarray  # bool
    real: np.ndarray  # bool, whether there was a token to propose

    def joined(self, other: "Outcomes") -> "Outcomes":
        """Both as one."""
        return Outcomes(
            np.concatenate([self.confidence, other.confidence]),
            np.concatenate([self.hits, other.hits]),
            np.concatenate([self.real, other.real]),
        )


def calibrate(outcomes: Outcomes, usual: Sequence[float] = ()) -> list[PositionCalibration]:
    """Calibrate every position.

    ``usual`` are the drafter's own temperatures, kept where there are too few labels for others.
    """
    confidence, hits, real = outcomes.confidence, outcomes.hits, outcomes.real
    reached = np.ones(len(hits), bool)
    result: list[PositionCalibration] = []
    for position in range(hits.shape[1]):
        tried = reached & real[:, position]
        logits, happened = confidence[tried, position], hits[tried, position]
        if len(logits) >= FEWEST_LABELS:
            temperature = fit_temperature(logits.astype(np.float64), happened)
        elif position < len(usual):
            temperature = usual[position]
        else:
            temperature = result[-1].temperature if result else 1.0
        result.append(_judged(logits, happened, temperature))
        reached = tried & hits[:, position]
    return result


def calibrate_crosswise(
    one: Outcomes, other: Outcomes, usual: Sequence[float] = ()
) -> list[PositionCalibration]:
    """Temperatures of all blocks, and errors on blocks that no temperature was fitted to.

    Each half is judged with the temperatures of the other one.
    """
    together = calibrate(one.joined(other), usual)
    judged = [
        apply([item.temperature for item in calibrate(a, usual)], b)
        for a, b in ((one, other), (other, one))
    ]
    return [
        PositionCalibration(
            labels=all_.labels,
            temperature=all_.temperature,
            error_before=_mean(first, second, "error_before"),
            error_after=_mean(first, second, "error_after"),
        )
        for all_, first, second in zip(together, *judged, strict=True)
    ]


def _mean(first: PositionCalibration, second: PositionCalibration, name: str) -> float | None:
    """The two halves' errors, weighted by their labels; None where neither has one."""
    known = [
        (value, item.labels)
        for item in (first, second)
        if (value := getattr(item, name)) is not None
    ]
    labels = sum(count for _, count in known)
    return sum(value * count for value, count in known) / labels if labels else None


def apply(temperatures: Sequence[float], outcomes: Outcomes) -> list[PositionCalibration]:
    """Judge given temperatures on other blocks than those they were fitted on."""
    confidence, hits, real = outcomes.confidence, outcomes.hits, outcomes.real
    reached = np.ones(len(hits), bool)
    result = []
    for position, temperature in enumerate(temperatures):
        tried = reached & real[:, position]
        result.append(_judged(confidence[tried, position], hits[tried, position], temperature))
        reached = tried & hits[:, position]
    return result


def _judged(logits: np.ndarray, happened: np.ndarray, temperature: float) -> PositionCalibration:
    if len(logits) == 0:
        return PositionCalibration(0, temperature, None, None)
    return PositionCalibration(
        labels=len(logits),
        temperature=temperature,
        error_before=calibration_error(chances(logits, 1.0), happened),
        error_after=calibration_error(chances(logits, temperature), happened),
    )
