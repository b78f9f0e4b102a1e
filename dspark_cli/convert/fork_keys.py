"""The keys of a fork's file: its numbers, under two prefixes or one, and mainline's of them."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from dspark_cli.contract.shapes import MAX_LAYERS
from dspark_cli.convert.recipe import LARGEST_BLOCK, check_attention
from dspark_cli.errors import DsparkError
from dspark_cli.metadata import Metadata
from dspark_cli.storing import Key

# Hyper-parameters of the fork that mainline has no use for: it reads the tensors.
DROPPED = {
    "vocab_size",
    "mask_token_id",
    "markov_rank",
    "confidence_head",
    "confidence_head_with_markov",
    "log_snr_conditioning",
    "min_log_snr",
    "max_log_snr",
}
# What is said anew, in mainline's type.
SAID_ANEW = {"block_size", "target_layers"}
UNSAID = ("general.architecture", "general.file_type", "general.quantization_version")
INTEGERS = ("[i32]", "[u32]", "[i64]", "[u64]")
INCOMPLETE = "ask its publisher for a complete file"


def own_key(metadata: Metadata, name: str) -> str | None:
    """The key of a DSpark hyper-parameter: with the fork's doubled prefix, or with one."""
    names = (f"dspark.dspark.{name}", f"dspark.{name}")
    return next((key for key in names if key in metadata.values), None)


@dataclass(frozen=True, slots=True)
class ForkShape:
    """What the mapping needs to know of a file's numbers."""

    width: int
    block_size: int
    mask: int
    taps: tuple[int, ...]  # as the fork counts them: outputs of layers
    head_length: int
    queries: int  # rows of a layer's query projection
    keys: int

    @classmethod
    def of(cls, metadata: Metadata) -> "ForkShape":
        width = number(metadata, "dspark.embedding_length")
        heads_ = number(metadata, "dspark.attention.head_count")
        kv_heads = metadata.integer("dspark.attention.head_count_kv") or heads_
        length = metadata.integer("dspark.attention.key_length") or width // heads_
        rotated = metadata.integer("dspark.rope.dimension_count") or length
        check_attention(
            metadata.path, heads=heads_, kv_heads=kv_heads, length=length, rotated=rotated
        )
        for key in ("attention.layer_norm_rms_epsilon", "rope.freq_base", "rope.scaling.factor"):
            value = metadata.number(f"dspark.{key}")
            if value is not None and not 0 < value < np.inf:
                raise DsparkError(f"{metadata.path}: dspark.{key} is {value}, wanted more than 0")
        return cls(
            width=width,
            block_size=_own_number(metadata, "block_size", least=1, most=LARGEST_BLOCK),
            mask=_own_number(metadata, "mask_token_id", least=0),
            taps=_taps(metadata),
            head_length=length,
            queries=heads_ * length,
            keys=kv_heads * length,
        )


def mainline_keys(metadata: Metadata, shape: ForkShape, *, confidence: bool) -> Iterator[Key]:
    """Every key of the output but architecture and tokenizer."""
    for name, value in metadata.values.items():
        kind = metadata.types[name]
        if kind.startswith("[") and not len(value):  # type: ignore[arg-type]
            continue  # gguf-py writes no empty arrays
        if name.startswith("general.") and name not in UNSAID and name != "general.alignment":
            yield Key(name, value, kind)
        elif name.startswith("dspark."):
            rest = name.removeprefix("dspark.").removeprefix("dspark.")
            if rest not in DROPPED | SAID_ANEW and name == (own_key(metadata, rest) or name):
                yield Key(f"dflash.{rest}", value, kind)
    yield Key("dflash.block_size", shape.block_size, "u32")
    # The fork names a layer for its output, mainline the next one for its input.
    yield Key("dflash.target_layers", tuple(tap + 1 for tap in shape.taps), "[i32]")
    yield Key("dflash.sample_from_anchor", True, "bool")
    yield Key("dflash.has_confidence_head", confidence, "bool")
    yield Key("dflash.attention.causal", False, "bool")


def _taps(metadata: Metadata) -> tuple[int, ...]:
    key = own_key(metadata, "target_layers") or ""
    taps = metadata.integers(key)
    kind = metadata.types[key]
    if kind not in INTEGERS or not taps or not all(0 <= tap < MAX_LAYERS for tap in taps):
        raise DsparkError(
            f"{metadata.path}: {key} wants a list of layers from 0 to {MAX_LAYERS - 1}, "
            f"got {kind} {str(metadata.values[key])[:60]}"
        )
    return taps


def _own_number(metadata: Metadata, name: str, *, least: int, most: int = 2**31 - 1) -> int:
    return number(metadata, own_key(metadata, name) or name, least=least, most=most)


def number(metadata: Metadata, key: str, *, least: int = 1, most: int = 2**31 - 1) -> int:
    value = metadata.integer(key)
    if value is None or not least <= value <= most:
        shown = "nothing" if key not in metadata.values else str(metadata.values[key])[:60]
        raise DsparkError(
            f"{metadata.path}: {key} wants a number from {least} to {most}, got {shown}"
        )
    return value
