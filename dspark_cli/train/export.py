"""Write a trained drafter as a mainline ``dflash`` GGUF, complete or not at all.

Keys and tensors are those of llama.cpp's ``src/models/dflash.cpp``. The tokenizer is the target's,
key by key; embeddings are borrowed from the target, the head too where it is not pruned.
"""

from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

import gguf
import numpy as np
from gguf import GGMLQuantizationType, GGUFValueType, GGUFWriter, LlamaFileType

from dspark_cli.contract import TEMPERATURES_KEY
from dspark_cli.errors import DsparkError
from dspark_cli.metadata import TYPE_NAMES, Metadata, Strings, Value
from dspark_cli.train.design import DrafterDesign, OutType
from dspark_cli.train.weights import Weights

STORED_AS = {
    "f32": (GGMLQuantizationType.F32, LlamaFileType.ALL_F32),
    "f16": (GGMLQuantizationType.F16, LlamaFileType.MOSTLY_F16),
    "q8_0": (GGMLQuantizationType.Q8_0, LlamaFileType.MOSTLY_Q8_0),
    "q4_0": (GGMLQuantizationType.Q4_0, LlamaFileType.MOSTLY_Q4_0),
}
BLOCK = 32  # elements of a row share one scale in Q8_0 and Q4_0
# Small and decisive: one row of confidences is worth its 2 kB.
ALWAYS_F32 = frozenset({"conf_proj.weight"})
VALUE_TYPES = {name: GGUFValueType(number) for number, name in TYPE_NAMES.items()}


def write_drafter(
    out: Path,
    design: DrafterDesign,
    target: Metadata,
    weights: Weights,
    *,
    draft_tokens: np.ndarray,
    head: np.ndarray,
    out_type: OutType,
    temperatures: Sequence[float] = (),
    name: str | None = None,
) -> None:
    """Write ``out``; raises DsparkError where the disk refuses, and leaves nothing behind.

    ``draft_tokens`` [draft vocabulary] are target ids, ``head`` their rows of the target's head.
    """
    beside = out.with_name(out.name + ".part")
    writer = GGUFWriter(beside, "dflash")
    try:
        _add_keys(writer, design, target, out_type, name or out.stem)
        if temperatures:
            writer.add_array(TEMPERATURES_KEY, [float(value) for value in temperatures])
        for tensor, values in weights.items():
            _add_tensor(writer, tensor, values, out_type)
        if len(draft_tokens) < design.vocabulary:
            writer.add_tensor("d2t", draft_tokens.astype(np.int64))
            _add_tensor(writer, "output.weight", head, out_type)
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()
        beside.replace(out)
    except OSError as error:
        # numpy's tofile says what it wrote and has no errno.
        raise DsparkError(f"{out}: cannot be written: {error.strerror or error}") from None
    finally:
        with suppress(OSError):  # closing writes what is buffered, to the same full disk
            writer.close()
        beside.unlink(missing_ok=True)


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


def stored_type(name: str, shape: Sequence[int], out_type: OutType) -> GGMLQuantizationType:
    """How one tensor is stored: vectors in F32, rows that fill no block in F16."""
    if len(shape) == 1 or name in ALWAYS_F32:
        return GGMLQuantizationType.F32
    kind, _ = STORED_AS[out_type]
    if out_type in {"q8_0", "q4_0"} and shape[-1] % BLOCK:
        return GGMLQuantizationType.F16
    return kind


def _add_tensor(writer: GGUFWriter, name: str, values: np.ndarray, out_type: OutType) -> None:
    kind = stored_type(name, values.shape, out_type)
    values = np.ascontiguousarray(values, np.float32)
    if kind == GGMLQuantizationType.F32:
        writer.add_tensor(name, values)
    elif kind == GGMLQuantizationType.F16:
        writer.add_tensor(name, values.astype(np.float16))
    else:
        writer.add_tensor(name, gguf.quantize(values, kind), raw_dtype=kind)


def _add_keys(
    writer: GGUFWriter, design: DrafterDesign, target: Metadata, out_type: OutType, name: str
) -> None:
    writer.add_name(name)
    writer.add_description(f"DSpark drafter for {design.fingerprint.name}")
    writer.add_file_type(STORED_AS[out_type][1])
    writer.add_block_count(design.layers)
    writer.add_context_length(design.context_length)
    writer.add_embedding_length(design.width)
    writer.add_feed_forward_length(design.feed_forward)
    writer.add_head_count(design.heads)
    writer.add_head_count_kv(design.kv_heads)
    writer.add_key_length(design.head_length)
    writer.add_value_length(design.head_length)
    writer.add_layer_norm_rms_eps(design.rms_epsilon)
    writer.add_rope_freq_base(design.rope_base)
    writer.add_rope_dimension_count(design.head_length)
    writer.add_uint32("dflash.block_size", design.block_size)
    writer.add_array("dflash.target_layers", list(design.taps))
    writer.add_bool("dflash.sample_from_anchor", True)
    writer.add_bool("dflash.has_confidence_head", True)
    for key, value, kind, elements in _tokenizer(target):
        writer.add_key_value(key, value, kind, elements)
    writer.add_uint32("tokenizer.ggml.mask_token_id", design.mask_token)


def _tokenizer(
    target: Metadata,
) -> Iterator[tuple[str, object, GGUFValueType, GGUFValueType | None]]:
    """The target's tokenizer keys with their types; the mask token is the drafter's own."""
    for key, value in target.values.items():
        if not key.startswith("tokenizer.ggml.") or key == "tokenizer.ggml.mask_token_id":
            continue
        if isinstance(value, Strings | tuple) and not len(value):
            continue  # gguf-py writes no empty arrays, and llama.cpp misses none
        kind = target.types[key]
        if kind.startswith("["):
            yield key, _listed(value), GGUFValueType.ARRAY, VALUE_TYPES[kind.strip("[]")]
        else:
            yield key, value, VALUE_TYPES[kind], None


def _listed(value: Value) -> list[object]:
    if isinstance(value, Strings):
        return list(value)
    return list(value) if isinstance(value, tuple) else [value]
