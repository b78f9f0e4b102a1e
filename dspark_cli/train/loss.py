"""What the drafter is taught: the paper's loss of its section 3.3, on the target's top tokens.

Per row, 0.1 cross-entropy of the token that was said plus 0.9 total variation between the
drafter's and the target's distribution, weighted exp(-(k - 1) / gamma) by the position k in the
block; and the binary cross-entropy of the confidence against the analytic acceptance of the
drafted token. llama.cpp drafts the likeliest token, so that acceptance is the target's own chance
of it; for a greedy target 1 where it is the target's likeliest token, else 0.

The head is the largest matrix by far. Its loss is computed some rows at a time, gradient and all,
so that the logits of a batch are never in memory together.
"""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

CROSS_ENTROPY, TOTAL_VARIATION = 0.1, 0.9
CONFIDENCE = 0.1  # keeps the head's gradient small beside the blocks'
GAMMA = 4.0  # rows; the first row's weight is e times that of the fifth
LOGITS_AT_ONCE = 1 << 21  # elements of one piece: 8 MB of float32, near the cores


@dataclass(frozen=True, slots=True)
class Labels:
    """What rows should say; ``draft`` indices are rows of the drafter's head, -1 outside of it."""

    token: Tensor  # int64 [r], draft index of the token that was said
    greedy: Tensor  # int64 [r], draft index of the target's likeliest token
    top: Tensor  # int64 [r, K], draft indices
    chances: Tensor  # float32 [r, K], the target's at temperature 1
    position: Tensor  # int64 [r], 0-based in the block


@dataclass(frozen=True, slots=True)
class Loss:
    """One number to descend, and which rows already say what the target would."""

    total: Tensor
    hits: Tensor  # bool [r], whether the likeliest draft is the target's likeliest token


def loss_of(
    hidden: Tensor,
    markov: Tensor,
    confidence: Tensor,
    labels: Labels,
    *,
    head: Tensor,
    markov_head: Tensor,
) -> Loss:
    """Judge rows: ``hidden`` [r, width], ``markov`` [r, rank], ``confidence`` logits [r].

    ``head`` [draft vocabulary, width] is frozen, ``markov_head`` [draft vocabulary, rank] learns.
    """
    weights = torch.exp(-labels.position.float() / GAMMA)
    weights = weights / weights.sum()
    half = torch.get_autocast_dtype(hidden.device.type)
    kind = half if torch.is_autocast_enabled(hidden.device.type) else hidden.dtype
    spoken, hits = _HeadLoss.apply(  # type: ignore[no-untyped-call]
        hidden, markov, markov_head, head, labels, weights, kind
    )
    trust = functional.binary_cross_entropy_with_logits(
        confidence.float(), hits.float(), weight=weights, reduction="sum"
    )
    return Loss(spoken + CONFIDENCE * trust, hits)


class _HeadLoss(torch.autograd.Function):
    """Cross-entropy and total variation of all rows, with their gradients, piece by piece.

    With q the drafter's chances, p the target's and w a row's weight, the logits' gradient is
    ``q (a w + b w sum I q) - a w [said] - b w I q [top]`` where I says that q is below p, a and b
    are the weights of the two losses, and brackets put a value into its token's place.
    """

    @staticmethod
    def forward(
        ctx: Any,
        hidden: Tensor,
        markov: Tensor,
        markov_head: Tensor,
        head: Tensor,
        labels: Labels,
        weights: Tensor,
        kind: torch.dtype,
    ) -> tuple[Tensor, Tensor]:
        rows = max(LOGITS_AT_ONCE // len(head), 1)
        total = hidden.new_zeros(())
        hits = torch.empty(len(hidden), dtype=torch.bool, device=hidden.device)
        of_hidden, of_markov = torch.empty_like(hidden), torch.empty_like(markov)
        of_markov_head = torch.zeros_like(markov_head)
        small_head, small_markov_head = head.to(kind), markov_head.to(kind)
        for begin in range(0, len(hidden), rows):
            piece = slice(begin, begin + rows)
            h, m = hidden[piece].to(kind), markov[piece].to(kind)
            logits = (h @ small_head.T).float()
            logits += m @ small_markov_head.T
            loss, hits[piece] = _descend(logits, labels, weights, piece)
            total += loss
            gradient = logits.to(kind)  # _descend left it there
            of_hidden[piece] = gradient @ small_head
            of_markov[piece] = gradient @ small_markov_head
            of_markov_head += gradient.T @ m
        ctx.save_for_backward(of_hidden, of_markov, of_markov_head)
        ctx.mark_non_differentiable(hits)
        return total, hits

    @staticmethod
    def backward(ctx: Any, by_total: Tensor, _by_hits: Tensor) -> tuple[Tensor | None, ...]:
        of_hidden, of_markov, of_markov_head = ctx.saved_tensors
        return (
            of_hidden * by_total,
            of_markov * by_total,
            of_markov_head * by_total,
            None,
            None,
            None,
            None,
        )


def _descend(
    logits: Tensor, labels: Labels, weights: Tensor, piece: slice
) -> tuple[Tensor, Tensor]:
    """Loss and hits of some rows; their ``logits`` [r, draft vocabulary] become the gradient."""
    token, top, chances = labels.token[piece], labels.top[piece], labels.chances[piece]
    weight = weights[piece]
    largest, likeliest = logits.max(-1)
    said_place, top_place = token.clamp(min=0)[:, None], top.clamp(min=0)
    said = logits.gather(1, said_place)[:, 0]
    q = logits.sub_(largest[:, None]).exp_()
    total = q.sum(-1)
    named = (token >= 0).float()
    cross_entropy = (largest + total.log() - said) * named
    q.div_(total[:, None])
    ours = q.gather(1, top_place) * (top >= 0)
    # The tail beyond the target's top tokens counts as missed: an upper bound of the distance.
    variation = 1 - torch.minimum(ours, chances).sum(-1)
    loss = (weight * (CROSS_ENTROPY * cross_entropy + TOTAL_VARIATION * variation)).sum()
    short = ours * (ours < chances)
    of_said = CROSS_ENTROPY * weight * named
    of_top = TOTAL_VARIATION * weight[:, None] * short
    q.mul_((of_said + of_top.sum(-1))[:, None])
    q.scatter_add_(1, said_place, -of_said[:, None])
    q.scatter_add_(1, top_place, -of_top)
    return loss, likeliest == labels.greedy[piece]
