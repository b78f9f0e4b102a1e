"""The confidence head, fitted once more to answers that the drafter never saw.

On the answers it learned from a drafter is right too often, and a head that was taught there is
too sure everywhere else. Held-out answers are few, so the new head is the old one, rescaled and
shifted, plus a correction that has to earn every bit of its size. It is still one linear row, as
the GGUF wants it.
"""

from dataclasses import dataclass, replace

import numpy as np
import torch
from torch.nn.functional import binary_cross_entropy_with_logits

from dspark_cli.confidence import Outcomes, PositionCalibration, calibrate_crosswise
from dspark_cli.train.fit import Judgement

PENALTIES = (0.03, 0.1, 0.3, 1.0, 3.0, 10.0)  # of the correction's squared size, to choose from
ITERATIONS = 80  # of L-BFGS; the problem is convex


@dataclass(frozen=True, slots=True)
class ConfidenceHead:
    """``conf_proj``: weight [width + rank] and bias."""

    weight: np.ndarray
    bias: float

    def logits(self, judgement: Judgement) -> np.ndarray:
        """Confidence logits [blocks, b] of judged blocks; 0 where there was nothing to propose."""
        laid = np.zeros(judgement.real.shape, np.float32)
        laid[judgement.real] = judgement.features @ self.weight + self.bias
        return laid


def reached_rows(judgement: Judgement) -> np.ndarray:
    """Which real rows had everything before them accepted: what a confidence is conditional on."""
    before = np.ones_like(judgement.hits)
    before[:, 1:] = np.logical_and.accumulate(judgement.hits[:, :-1], axis=1)
    rows: np.ndarray = before[judgement.real]
    return rows


def fit_head(judgement: Judgement, start: ConfidenceHead, penalty: float) -> ConfidenceHead:
    """Fit a head to what became of judged blocks, beginning from ``start``."""
    chosen = reached_rows(judgement)
    features = judgement.features[chosen]
    happened = torch.from_numpy(judgement.hits[judgement.real][chosen].astype(np.float32))
    mean, size = features.mean(0), features.std(0) + 1e-6
    x = torch.from_numpy((features - mean) / size)
    old = torch.from_numpy((features @ start.weight + start.bias).astype(np.float32))
    correction = torch.zeros(x.shape[1], requires_grad=True)
    scale, shift = torch.ones(1, requires_grad=True), torch.zeros(1, requires_grad=True)
    optimiser = torch.optim.LBFGS(
        [correction, scale, shift], max_iter=ITERATIONS, line_search_fn="strong_wolfe"
    )

    def loss() -> torch.Tensor:
        optimiser.zero_grad()
        value = binary_cross_entropy_with_logits(x @ correction + scale * old + shift, happened)
        value = value + penalty * correction.square().sum()
        value.backward()  # type: ignore[no-untyped-call]
        return value

    optimiser.step(loss)  # type: ignore[no-untyped-call]
    added = correction.detach().numpy() / size
    factor = float(scale.detach())
    weight = (factor * start.weight + added).astype(np.float32)
    bias = factor * start.bias + float(shift.detach()) - float(added @ mean)
    return ConfidenceHead(weight, bias)


def surprise(judgement: Judgement, head: ConfidenceHead) -> float:
    """Mean negative log-likelihood of what became of judged blocks."""
    logits = head.logits(judgement)[judgement.real]
    signs = np.where(judgement.hits[judgement.real], 1.0, -1.0)
    return float(np.logaddexp(0, -signs * logits)[reached_rows(judgement)].mean())


@dataclass(frozen=True, slots=True)
class Trusted:
    """A head and its temperatures, with errors on blocks that neither was fitted to."""

    head: ConfidenceHead
    calibration: list[PositionCalibration]


def learn_trust(one: Judgement, other: Judgement, start: ConfidenceHead) -> Trusted:
    """Fit head and temperatures to two halves of held-out answers.

    Each half is judged by what the other one taught; the file gets what both teach together. The
    error before is that of ``start`` as it is.
    """
    sides = ((one, other), (other, one))
    penalty = min(
        PENALTIES,
        key=lambda value: sum(surprise(b, fit_head(a, start, value)) for a, b in sides),
    )
    taught = [fit_head(half, start, penalty) for half in (one, other)]
    # A head knows the half that it was fitted to: temperatures are those of the other half's.
    crossed = outcomes(one, taught[1]), outcomes(other, taught[0])
    before = calibrate_crosswise(outcomes(one, start), outcomes(other, start))
    return Trusted(
        head=fit_head(one.joined(other), start, penalty),
        calibration=[
            replace(item, error_before=old.error_before)
            for item, old in zip(calibrate_crosswise(*crossed), before, strict=True)
        ],
    )


def outcomes(judgement: Judgement, head: ConfidenceHead) -> Outcomes:
    """The blocks with what ``head`` says of them."""
    return Outcomes(head.logits(judgement), judgement.hits, judgement.real)
