"""A GGUF's tensors as numbers, whatever they are packed as."""

import math
from collections.abc import Mapping

import numpy as np
from gguf import GGML_QUANT_SIZES, GGMLQuantizationType, dequantize

from dspark_cli.errors import DsparkError
from dspark_cli.metadata import Metadata


def check_readable(metadata: Metadata, name: str) -> None:
    """Raise DsparkError where a tensor is missing or of a type that cannot be dequantised here."""
    tensor = metadata.tensors.get(name)
    if tensor is None:
        raise DsparkError(f"{metadata.path}: has no tensor {name}")
    try:
        kind = GGMLQuantizationType(tensor.type_id)
        _, block_bytes = GGML_QUANT_SIZES[kind]
        dequantize(_typed(np.zeros(block_bytes, np.uint8), kind), kind)
    except (NotImplementedError, ValueError, KeyError):
        raise DsparkError(
            f"{metadata.path}: {name} is {tensor.type_name}, which cannot be dequantised here",
            hint="train on a copy of the target in another type, such as Q8_0 or F16",
        ) from None


def read_weights(metadata: Metadata, name: str) -> np.ndarray:
    """One tensor as float32, outputs first; raises DsparkError where there is none to read."""
    check_readable(metadata, name)
    tensor = metadata.tensors[name]
    kind = GGMLQuantizationType(tensor.type_id)
    size = tensor.size or 0
    raw = _typed(np.fromfile(tensor.path, np.uint8, size, offset=tensor.offset), kind)
    # Row by row: gguf-py's temporaries are as large as what it is given at once.
    rows = raw.reshape(math.prod(tensor.shape[1:]), -1)
    values = dequantize(rows, kind).astype(np.float32, copy=False)
    return values.reshape(tensor.shape[::-1])


def _typed(raw: np.ndarray, kind: GGMLQuantizationType) -> np.ndarray:
    """Plain types as themselves, blocks as bytes: what ``gguf.dequantize`` wants."""
    plain: Mapping[GGMLQuantizationType, type] = {
        GGMLQuantizationType.F32: np.float32,
        GGMLQuantizationType.F16: np.float16,
    }
    return raw.view(plain[kind]) if kind in plain else raw
