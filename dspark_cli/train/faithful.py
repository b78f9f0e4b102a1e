"""Does the written file propose what was trained? llama.cpp and PyTorch, block by block.

Both get the same stored taps and anchors of held-out answers. Rounding may decide a near-tie; the
gap of the two likeliest tokens at every difference is kept, so that nobody has to believe it.
"""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import torch

from dspark_cli.engine.drafter import Drafter
from dspark_cli.train.batches import greedy_anchors
from dspark_cli.train.dataset import Answer
from dspark_cli.train.model import TrainedDrafter

BLOCKS_PER_ANSWER = 20


@dataclass(frozen=True, slots=True)
class Faithfulness:
    """How two implementations of one drafter agree on ``blocks`` blocks."""

    blocks: int
    same: int  # blocks whose tokens are all equal
    gaps: tuple[float, ...]  # logits between PyTorch's two likeliest tokens, where blocks part
    confidence_error: float  # the largest difference of a chance, over rows before any parting

    @property
    def rate(self) -> float | None:
        return self.same / self.blocks if self.blocks else None


@torch.no_grad()
def compare_proposals(
    drafter: TrainedDrafter, loaded: Drafter, answers: Iterable[Answer], blocks: int
) -> Faithfulness:
    """Let both draft at up to ``blocks`` anchors of ``answers``, which carry their taps."""
    device = drafter.head.device
    same, count, worst = 0, 0, 0.0
    gaps: list[float] = []
    for answer in answers:
        if answer.taps is None or count >= blocks:
            break
        every = greedy_anchors(answer)
        if not len(every):
            continue
        step = max(len(every) // BLOCKS_PER_ANSWER, 1)
        anchors = every[::step][: min(BLOCKS_PER_ANSWER, blocks - count)]
        taps = answer.taps.astype(np.float32)
        ours = drafter.propose(
            torch.from_numpy(taps)[None].to(device),
            torch.from_numpy(anchors)[None].to(device),
            torch.from_numpy(answer.tokens[anchors].astype(np.int64))[None].to(device),
        )
        loaded.clear()
        fed = 0
        for row, anchor in enumerate(anchors.tolist()):
            loaded.observe(taps[fed:anchor], fed)
            fed = anchor
            draft = loaded.propose(int(answer.tokens[anchor]), anchor, drafter.design.block_size)
            equal = ours.tokens[row] == np.array(draft.tokens)
            agreed = len(equal) if equal.all() else int(equal.argmin())
            if agreed < len(equal):
                gaps.append(float(ours.gaps[row, agreed]))
            else:
                same += 1
            # Row i's confidence depends on drafts before i only.
            rows = min(agreed + 1, len(equal))
            apart = np.abs(ours.confidences[row, :rows] - np.array(draft.confidences[:rows]))
            worst = max(worst, float(apart.max()))
            count += 1
    return Faithfulness(count, same, tuple(sorted(gaps)), worst)
