"""Write a trained drafter as a mainline ``dflash`` GGUF, complete or not at all.

Keys and tensors are those of llama.cpp's ``src/models/dflash.cpp``. The tokenizer is the target's,
key by key; embeddings are borrowed from the target, the head too where it is not pruned.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path

import gguf
import numpy as np
from gguf import GGMLQuantizationType

from dspark_cli.contract import TEMPERATURES_KEY
from dspark_cli.files import replacing
from dspark_cli.metadata import Metadata
from dspark_cli.storing import (
    STORED_AS,
    Key,
    StoredTensor,
    pack,
    stored_type,
    tokenizer_keys,
    write_gguf,
)
from dspark_cli.train.design import DrafterDesign, OutType
from dspark_cli.train.weights import Weights


def write_drafter(
    out: Path,
    design: DrafterDesign,
    target: Metadata,
    weights: Weights,
    *,
    draft_tokens: np.ndarray,
    head: np.ndarray,
    context_length: int,
    out_type: OutType,
    temperatures: Sequence[float] = (),
    name: str | None = None,
) -> None:
    """Write ``out``; raises DsparkError where the disk refuses, and leaves nothing behind.

    ``draft_tokens`` [draft vocabulary] are target ids, ``head`` their rows of the target's head.
    ``context_length`` counts the positions of the longest text that it was trained on: distances
    beyond are none that it has learned, whatever the target can do.
    """
    keys = [*_keys(design, out_type, name or out.stem)]
    keys.append(Key("dflash.context_length", context_length, "u32"))
    if temperatures:
        divisors = tuple(float(value) for value in temperatures)
        keys.append(Key(TEMPERATURES_KEY, divisors, "[f32]"))
    keys += tokenizer_keys(target)
    keys.append(Key("tokenizer.ggml.mask_token_id", design.mask_token, "u32"))
    tensors = [_tensor(tensor, values, out_type) for tensor, values in weights.items()]
    if len(draft_tokens) < design.vocabulary:
        ids = draft_tokens.astype(np.int64)
        tensors.append(StoredTensor("d2t", ids.shape, GGMLQuantizationType.I64, lambda: [ids]))
        tensors.append(_tensor("output.weight", head, out_type))
    with replacing(out) as beside:
        write_gguf(beside, "dflash", keys, tensors)


def as_stored(weights: Weights, out_type: OutType) -> Weights:
    """The weights as a reader of the file will find them, rounded and dequantised."""
    rounded: Weights = {}
    for name, values in weights.items():
        kind = stored_type(name, values.shape, out_type)
        if kind == GGMLQuantizationType.F16:
            rounded[name] = values.astype(np.float16).astype(np.float32)
        elif kind == GGMLQuantizationType.F32:
            rounded[name] = values.astype(np.float32)
        else:
            rounded[name] = gguf.dequantize(gguf.quantize(values, kind), kind)
    return rounded


def _tensor(name: str, values: np.ndarray, out_type: OutType) -> StoredTensor:
    kind = stored_type(name, values.shape, out_type)
    return StoredTensor(name, values.shape, kind, lambda: [pack(values, kind)])


def _keys(design: DrafterDesign, out_type: OutType, name: str) -> Iterator[Key]:
    yield Key("general.name", name, "str")
    yield Key("general.description", f"DSpark drafter for {design.fingerprint.name}", "str")
    yield Key("general.file_type", STORED_AS[out_type][1], "u32")
    for key, number in (
        ("block_count", design.layers),
        ("embedding_length", design.width),
        ("feed_forward_length", design.feed_forward),
        ("attention.head_count", design.heads),
        ("attention.head_count_kv", design.kv_heads),
        ("attention.key_length", design.head_length),
        ("attention.value_length", design.head_length),
        ("rope.dimension_count", design.head_length),
        ("block_size", design.block_size),
    ):
        yield Key(f"dflash.{key}", number, "u32")
    yield Key("dflash.attention.layer_norm_rms_epsilon", design.rms_epsilon, "f32")
    yield Key("dflash.rope.freq_base", design.rope_base, "f32")
    yield Key("dflash.target_layers", tuple(design.taps), "[i32]")
    yield Key("dflash.sample_from_anchor", True, "bool")
    yield Key("dflash.has_confidence_head", True, "bool")
