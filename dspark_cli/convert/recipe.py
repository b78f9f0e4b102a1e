"""What a source comes to: the keys and tensors of a mainline ``dflash`` drafter, not yet written.

``fork`` and ``checkpoint`` make recipes; ``plan`` holds them against a target and writes them.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from dspark_cli.convert.reference import Network
from dspark_cli.convert.weights import Given, Weight, Widened, row_count
from dspark_cli.errors import DsparkError
from dspark_cli.storing import Key

# Every layer of mainline's dflash, besides the attention projections that a source may fuse.
LAYER_TENSORS = (
    "attn_norm",
    "attn_q",
    "attn_k",
    "attn_v",
    "attn_output",
    "attn_q_norm",
    "attn_k_norm",
    "ffn_norm",
    "ffn_gate",
    "ffn_up",
    "ffn_down",
)
MIN_ROTATED = 2
LARGEST_BLOCK = 1024  # rows; a file that claims more is not believed
NO_MARKOV_RANK = 1  # of the head of zeros that stands in for none


@dataclass(frozen=True, slots=True)
class Recipe:
    """One drafter in mainline's terms."""

    path: Path
    kind: str  # what the source is, in words
    keys: tuple[Key, ...]  # all but the architecture and the tokenizer
    mask_token: int
    weights: Mapping[str, Weight]  # by their dflash names
    network: Network  # the same drafter by the source's own maths
    draft_tokens: np.ndarray | None = None  # target ids of the rows of a reduced head, int64
    folded: bool = False  # whether log-SNR conditioning is in the embeddings
    patched: bool = False  # whether the mask's row of the embeddings is the drafter's own
    notes: tuple[str, ...] = field(default=())  # what is done beyond renaming, one sentence each

    @property
    def rank(self) -> int:
        return self.weights["markov_w1.weight"].shape[-1]


def check_attention(path: Path, *, heads: int, kv_heads: int, length: int, rotated: int) -> None:
    """Refuse numbers with which no attention can be computed, and llama.cpp would abort."""
    if length < 1 or heads % kv_heads:
        raise DsparkError(
            f"{path}: {heads} heads of {length} elements cannot share {kv_heads} keys and values"
        )
    if not MIN_ROTATED <= rotated <= length or rotated % 2:
        raise DsparkError(
            f"{path}: {rotated} elements of every head are to be turned, wanted an even number "
            f"up to {length}"
        )


def heads(
    path: Path, found: Mapping[str, Weight], vocabulary: int, rows: int, width: int
) -> tuple[dict[str, Weight], list[str]]:
    """The Markov and confidence heads as mainline wants them, and what was done to them.

    ``found`` has the dflash names of those that the source has; ``rows`` is the draft vocabulary.
    Mainline takes a drafter without a Markov head for plain DFlash, which does not read the
    anchor's row; and its confidence head always sees the Markov head's row. Both get zeros.
    Raises DsparkError for half a head, or one of another width.
    """
    done: list[str] = []
    made = dict(found)
    first, second = (found.get(f"markov_w{number}.weight") for number in (1, 2))
    if (first is None) != (second is None):
        lacking = "second (W2)" if second is None else "first (W1)"
        raise DsparkError(
            f"{path}: has half a Markov head, its {lacking} matrix is missing",
            hint="ask its publisher for a complete file",
        )
    if first is None or second is None:
        for name, count in (("markov_w1.weight", vocabulary), ("markov_w2.weight", rows)):
            made[name] = Given(np.zeros((count, NO_MARKOV_RANK), np.float32))
        done.append(
            "it has no Markov head; one of zeros is written, for llama.cpp takes a drafter "
            "without for plain DFlash and does not read the anchor's row"
        )
    rank = made["markov_w1.weight"].shape[-1]
    confidence = found.get("conf_proj.weight")
    if confidence is None:
        made.pop("conf_proj.bias", None)
        return made, done
    columns = confidence.shape[-1]
    if row_count(confidence) != 1 or columns not in {width, width + rank}:
        raise DsparkError(
            f"{path}: the confidence head has shape {confidence.shape}, wanted (1, {width}) or, "
            f"with the Markov head's row, (1, {width + rank})"
        )
    if len(confidence.shape) == 1:
        confidence = Given(confidence.rows(0, 1))
    if columns == width:
        confidence = Widened(confidence, rank)
        done.append(f"the confidence head does not see the Markov head; {rank} zeros are appended")
    made["conf_proj.weight"] = confidence
    return made, done
