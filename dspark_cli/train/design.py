"""What is to be trained, decided from the target's metadata alone.

The drafter's blocks have the target's own shape (width, heads, feed-forward), so that they can
start from the target's weights and borrow its embeddings. Everything that would fail an hour later
is refused here.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeAlias

import numpy as np

from dspark_cli.contract import TargetShape, check_trainable, read_target
from dspark_cli.errors import DsparkError, UsageError
from dspark_cli.metadata import Fingerprint, Metadata, read_metadata
from dspark_cli.tensors import check_readable

OutType: TypeAlias = Literal["f32", "f16", "q8_0", "q4_0"]

TAPS = 5  # as DeepSpec's drafters, where the target is deep enough
TAPS_OF_SHALLOW = 3
DEEP = 12  # layers
FIRST_TAP = 2  # below it the residual stream is hardly more than the embedding
LARGEST_BLOCK = 64  # rows: the drafter's n_ubatch, which one non-causal decode must fit into
UNUSED, CONTROL = 5, 3  # enum llama_token_type


@dataclass(frozen=True, slots=True)
class DesignOptions:
    """What may be chosen; None leaves the choice to the target."""

    layers: int = 2
    block_size: int = 5
    taps: tuple[int, ...] | None = None
    markov_rank: int = 64

    def __post_init__(self) -> None:
        for name, value, most in (
            ("--layers", self.layers, 64),
            ("--block-size", self.block_size, LARGEST_BLOCK),
            ("--markov-rank", self.markov_rank, 4096),
        ):
            if not 1 <= value <= most:
                raise UsageError(f"{name} wants 1 to {most}, got {value}")


@dataclass(frozen=True, slots=True)
class DrafterDesign:
    """The drafter to be trained: every number of its shape."""

    target: TargetShape
    fingerprint: Fingerprint  # of the target
    taps: tuple[int, ...]  # inputs of these target layers, in the order of concatenation
    layers: int
    block_size: int
    markov_rank: int
    width: int
    heads: int
    kv_heads: int
    head_length: int
    feed_forward: int
    rms_epsilon: float
    rope_base: float
    mask_token: int

    @property
    def vocabulary(self) -> int:
        return self.target.vocabulary

    @property
    def tap_width(self) -> int:
        return len(self.taps) * self.width

    def as_checkpoint(self) -> dict[str, int | list[int]]:
        """What two sessions of one training must agree on."""
        return {
            "layers": self.layers,
            "block_size": self.block_size,
            "taps": list(self.taps),
            "markov_rank": self.markov_rank,
            "mask_token": self.mask_token,
        }


def design_drafter(model: Path, options: DesignOptions) -> DrafterDesign:
    """Design a drafter for the target ``model``.

    Raises ContractError for a target without taps, UsageError for options that it cannot have.
    """
    metadata = read_metadata(model)
    target = read_target(metadata)
    check_trainable(target)
    arch = metadata.architecture
    # The target's embedding and head are dequantised when a fit begins.
    check_readable(metadata, "token_embd.weight")
    if "output.weight" in metadata.tensors:
        check_readable(metadata, "output.weight")
    heads = _largest(metadata, f"{arch}.attention.head_count")
    feed_forward = _largest(metadata, f"{arch}.feed_forward_length")
    if not heads or not target.attention.kv_heads or target.width == 0:
        raise DsparkError(f"{model}: does not say how its attention is shaped")
    if options.block_size >= (target.context_length or options.block_size + 1):
        raise UsageError(
            f"--block-size {options.block_size} does not fit into the target's context of "
            f"{target.context_length} positions"
        )
    return DrafterDesign(
        target=target,
        fingerprint=metadata.fingerprint,
        taps=_taps(target, options.taps),
        layers=options.layers,
        block_size=options.block_size,
        markov_rank=options.markov_rank,
        width=target.width,
        heads=heads,
        kv_heads=max(target.attention.kv_heads),
        head_length=target.attention.key_length,
        feed_forward=feed_forward or 4 * target.width,
        rms_epsilon=metadata.number(f"{arch}.attention.layer_norm_rms_epsilon") or 1e-5,
        rope_base=metadata.number(f"{arch}.rope.freq_base") or 10_000.0,
        mask_token=choose_mask_token(metadata),
    )


def automatic_taps(layers: int) -> tuple[int, ...]:
    """Spread the taps from the first formed states to the input of the last layer."""
    count = min(TAPS if layers >= DEEP else TAPS_OF_SHALLOW, layers)
    first = min(FIRST_TAP, max(layers - count, 0))
    return tuple(int(tap) for tap in np.linspace(first, layers - 1, count).round())


def choose_mask_token(metadata: Metadata) -> int:
    """A token that stands in no text: the target's own mask, else an unused or a control token.

    Raises DsparkError where every token of the vocabulary has a use.
    """
    if (mask := metadata.integer("tokenizer.ggml.mask_token_id")) is not None:
        return mask
    tokens = metadata.strings("tokenizer.ggml.tokens")
    types = metadata.integers("tokenizer.ggml.token_type") or ()
    template = (metadata.text("tokenizer.chat_template") or "").encode()
    special = {
        value
        for key, value in metadata.values.items()
        if key.startswith("tokenizer.ggml.") and key.endswith("_token_id")
    }
    for kind in (UNUSED, CONTROL):
        for token, text in enumerate(tokens or ()):
            if (
                token < len(types)
                and types[token] == kind
                and token not in special
                and text not in template
            ):
                return token
    raise DsparkError(
        f"{metadata.path}: every token of its vocabulary has a use, wanted one to stand for the "
        "masked rows of a block",
        hint="a target with a tokenizer.ggml.mask_token_id or an unused token can have a drafter",
    )


def _taps(target: TargetShape, wanted: Sequence[int] | None) -> tuple[int, ...]:
    if wanted is None:
        return automatic_taps(target.layers)
    last = target.layers - (0 if target.support is not None and target.support.final_tap else 1)
    if not wanted or len(set(wanted)) != len(wanted):
        raise UsageError(f"--taps wants different layers, got {_listed(wanted)}")
    if outside := [tap for tap in wanted if not 0 <= tap <= last]:
        raise UsageError(
            f"--taps: {target.name} can be tapped at the inputs of layers 0 to {last}, "
            f"got {_listed(outside)}"
        )
    return tuple(wanted)


def _listed(taps: Sequence[int]) -> str:
    return ", ".join(map(str, taps)) or "none"


def _largest(metadata: Metadata, key: str) -> int:
    values = metadata.integers(key) or ()
    return max(values, default=0)
