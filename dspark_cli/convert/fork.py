"""A drafter of the PrismML fork (architecture ``dspark``) in mainline's terms.

Keys and tensors are those of the fork's ``dspark`` model of July 2026 and of its converter; tools
of others write the keys with a single prefix. The maths is mainline's, but for log-SNR
conditioning, which is folded (``logsnr``).
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from dspark_cli.contract.shapes import MAX_LAYERS
from dspark_cli.convert import logsnr
from dspark_cli.convert.layout import weights_of
from dspark_cli.convert.recipe import (
    LARGEST_BLOCK,
    LAYER_TENSORS,
    Recipe,
    check_attention,
    heads,
)
from dspark_cli.convert.semantics import fork_network
from dspark_cli.convert.weights import RowsOf, Weight
from dspark_cli.errors import DsparkError
from dspark_cli.metadata import Metadata
from dspark_cli.storing import Key

KIND = "a drafter of the PrismML fork (architecture dspark)"

RENAMED = {
    "dspark.fc.weight": "fc.weight",
    "dspark.hidden_norm.weight": "enc.output_norm.weight",
    "output_norm.weight": "output_norm.weight",
    "token_embd.weight": "token_embd.weight",
    "output.weight": "output.weight",
}
HEADS = {
    "dspark.markov_head_a.weight": "markov_w1.weight",
    "dspark.markov_head_b.weight": "markov_w2.weight",
    "dspark.confidence_head.weight": "conf_proj.weight",
    "dspark.confidence_head.bias": "conf_proj.bias",
}
CONDITIONING = tuple(f"dspark.log_snr_{role}" for role in logsnr.ROLES)
BORROWED = ("token_embd.weight", "output.weight")

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
CORRECTION = ("hidden_correction", "markov_deploy_exposure", "correction_")
UNSAID = ("general.architecture", "general.file_type", "general.quantization_version")
INTEGERS = ("[i32]", "[u32]", "[i64]", "[u64]")
UNREADABLE = "ask its publisher for a complete file"


def read_fork(metadata: Metadata) -> Recipe:
    """The recipe of a fork's file; raises DsparkError for what mainline cannot express."""
    _check_keys(metadata)
    layers = _number(metadata, "dspark.block_count", most=MAX_LAYERS)
    _check_tensors(metadata, layers)
    shape = _Shape.of(metadata)
    weights = weights_of(metadata)
    mapped: dict[str, Weight] = {
        new: weights[old] for old, new in RENAMED.items() if old in weights
    }
    for number in range(layers):
        mapped |= _layer(metadata, weights, f"blk.{number}.", shape)
    vocabulary = _vocabulary(metadata, weights)
    found = {new: weights[old] for old, new in HEADS.items() if old in weights}
    made, notes = heads(metadata.path, found, vocabulary, vocabulary, shape.width)
    mapped |= made
    folded = _is_conditioned(metadata)
    if folded:
        table = weights.get("token_embd.weight")
        conditioning = [weights[name] for name in CONDITIONING]
        mapped["token_embd.weight"] = logsnr.fold(metadata.path, table, conditioning, shape.mask)
        # llama.cpp ties the head to embeddings that stand alone, and these are folded.
        if table is not None:
            mapped.setdefault("output.weight", table)
        notes.append(logsnr.folded_note(shape.mask))
        if "output.weight" not in weights:
            notes.append("its head was tied to the embeddings; it is written unfolded")
    elif not {*BORROWED} & mapped.keys():
        notes.append("it has no embeddings and no head: llama.cpp borrows the target's")
    return Recipe(
        path=metadata.path,
        kind=KIND,
        keys=(*_keys(metadata, shape, confidence="conf_proj.weight" in mapped),),
        mask_token=shape.mask,
        weights=mapped,
        network=fork_network(metadata, weights),
        folded=folded,
        notes=tuple(notes),
    )


@dataclass(frozen=True, slots=True)
class _Shape:
    """What the mapping needs to know of a file's numbers."""

    width: int
    block_size: int
    mask: int
    taps: tuple[int, ...]  # as the fork counts them: outputs of layers
    head_length: int
    queries: int  # rows of a layer's query projection
    keys: int

    @classmethod
    def of(cls, metadata: Metadata) -> "_Shape":
        width = _number(metadata, "dspark.embedding_length")
        heads_ = _number(metadata, "dspark.attention.head_count")
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


def own_key(metadata: Metadata, name: str) -> str | None:
    """The key of a DSpark hyper-parameter: with the fork's doubled prefix, or with one."""
    names = (f"dspark.dspark.{name}", f"dspark.{name}")
    return next((key for key in names if key in metadata.values), None)


def _check_keys(metadata: Metadata) -> None:
    for key in metadata.values:
        if any(part.startswith(CORRECTION) for part in key.split(".")):
            raise DsparkError(
                f"{metadata.path}: has a hidden correction ({key}), which corrects the hidden "
                "state ahead of the head; llama.cpp's dflash cannot express it",
                hint="ask its publisher for a drafter without hidden_correction",
            )
    for name in ("block_size", "mask_token_id", "target_layers"):
        if own_key(metadata, name) is None:
            raise DsparkError(
                f"{metadata.path}: has no key dspark.dspark.{name} (nor dspark.{name})",
                hint=UNREADABLE,
            )


def _check_tensors(metadata: Metadata, layers: int) -> None:
    """Refuse what is missing or unknown, with the reason where there is one."""
    known = {*RENAMED, *HEADS, *CONDITIONING}
    required = {*RENAMED} - {*BORROWED}
    for number in range(layers):
        block = {f"blk.{number}.{name}.weight" for name in LAYER_TENSORS}
        fused = f"blk.{number}.attn_qkv.weight"
        if fused in metadata.tensors:
            parts = {f"blk.{number}.attn_{part}.weight" for part in "qkv"}
            if both := sorted(parts & metadata.tensors.keys()):
                raise DsparkError(f"{metadata.path}: has both {fused} and {', '.join(both)}")
            block = block - parts | {fused}
        known |= block
        required |= block
    unknown = sorted(metadata.tensors.keys() - known)
    for name in unknown:
        if "correction" in name:
            raise DsparkError(
                f"{metadata.path}: has a hidden correction (tensor {name}), which llama.cpp's "
                "dflash cannot express",
                hint="ask its publisher for a drafter without hidden_correction",
            )
        if name.endswith(".bias") and ".attn_" in name:
            raise DsparkError(
                f"{metadata.path}: its attention has biases ({name}), which llama.cpp's dflash "
                "cannot express",
                hint="only drafters trained without attention biases can be converted",
            )
    if unknown:
        raise DsparkError(
            f"{metadata.path}: {len(unknown)} tensors are not known here, such as {unknown[0]}",
            hint="a newer version of dspark-cli may know them",
        )
    if missing := sorted(required - metadata.tensors.keys()):
        raise DsparkError(
            f"{metadata.path}: lacks {len(missing)} tensors, such as {missing[0]}",
            hint=UNREADABLE,
        )


def _layer(
    metadata: Metadata, weights: Mapping[str, Weight], block: str, shape: _Shape
) -> dict[str, Weight]:
    """One layer's tensors, a fused projection taken apart."""
    fused = weights.get(block + "attn_qkv.weight")
    if fused is None:
        names = [f"{block}{name}.weight" for name in LAYER_TENSORS]
        return {name: weights[name] for name in names}
    wanted = (shape.queries + 2 * shape.keys, shape.width)
    if fused.shape != wanted:
        raise DsparkError(
            f"{metadata.path}: {block}attn_qkv.weight has shape {fused.shape}, wanted {wanted}"
        )
    parts = {
        "attn_q": RowsOf(fused, 0, shape.queries),
        "attn_k": RowsOf(fused, shape.queries, shape.keys),
        "attn_v": RowsOf(fused, shape.queries + shape.keys, shape.keys),
    }
    rest = [name for name in LAYER_TENSORS if name not in parts]
    whole: dict[str, Weight] = {f"{block}{name}.weight": part for name, part in parts.items()}
    return whole | {f"{block}{name}.weight": weights[f"{block}{name}.weight"] for name in rest}


def _vocabulary(metadata: Metadata, weights: Mapping[str, Weight]) -> int:
    """Tokens: rows of the first table that has one for each."""
    for name in ("token_embd.weight", "dspark.markov_head_a.weight", "output.weight"):
        if name in weights:
            return weights[name].shape[0]
    raise DsparkError(
        f"{metadata.path}: has neither embeddings nor a head, so nothing says how many tokens "
        "it knows",
        hint=UNREADABLE,
    )


def _is_conditioned(metadata: Metadata) -> bool:
    """Whether log-SNR conditioning is part of the drafter; raises where keys and tensors part."""
    key = own_key(metadata, "log_snr_conditioning")
    said = bool(metadata.flag(key)) if key else False
    present = [name for name in CONDITIONING if name in metadata.tensors]
    if said and len(present) < len(CONDITIONING):
        missing = ", ".join(sorted({*CONDITIONING} - {*present}))
        raise DsparkError(
            f"{metadata.path}: is conditioned on log-SNR but lacks {missing}", hint=UNREADABLE
        )
    if present and not said:
        raise DsparkError(
            f"{metadata.path}: has {present[0]} but does not say log_snr_conditioning, so it is "
            "not known whether the drafter was trained with it",
            hint=UNREADABLE,
        )
    if said:
        bounds = (own_key(metadata, name) for name in ("min_log_snr", "max_log_snr"))
        logsnr.check_bounds(metadata.path, *(metadata.number(key or "") for key in bounds))
    return said


def _keys(metadata: Metadata, shape: _Shape, *, confidence: bool) -> Iterator[Key]:
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
    return _number(metadata, own_key(metadata, name) or name, least=least, most=most)


def _number(metadata: Metadata, key: str, *, least: int = 1, most: int = 2**31 - 1) -> int:
    value = metadata.integer(key)
    if value is None or not least <= value <= most:
        shown = "nothing" if key not in metadata.values else str(metadata.values[key])[:60]
        raise DsparkError(
            f"{metadata.path}: {key} wants a number from {least} to {most}, got {shown}"
        )
    return value
