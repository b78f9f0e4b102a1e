"""llama.cpp's own quantiser: ``llama_model_quantize`` and the two lists that its parameters name.

The structure in llama-cpp-python 0.3.36 is that of ``llama.h``, field by field. It cannot be
stopped and tells nobody how far it is but the log, so it runs in a process of its own
(``dspark_cli.quantize``).
"""

import ctypes
from collections.abc import Mapping
from pathlib import Path

import llama_cpp.llama_cpp as bindings

ALIGNMENT_KEY = "general.alignment"
ALIGNMENT = 32  # GGUF_DEFAULT_ALIGNMENT: what the quantiser pads to, whatever the key says
BUFFER = 2**28  # bytes of rows worked on at once, not the default's 8 GiB; every row is its own
INTEGER = 0  # LLAMA_KV_OVERRIDE_TYPE_INT


def quantize_file(
    source: Path,
    out: Path,
    *,
    ftype: int,
    pure: bool,
    allow_requantize: bool,
    threads: int,
    types: Mapping[str, int],
    realign: bool,
) -> bool:
    """Write ``out``; False where llama.cpp said no, and why to its log.

    ``types`` gives single tensors a type of their own (regular expression -> ``enum ggml_type``);
    llama.cpp asks it only where ``ftype`` itself is a quantisation. ``realign`` states in the
    output how it is padded, for an input that says otherwise.
    """
    params = bindings.llama_model_quantize_default_params()
    params.nthread = threads
    params.ftype = ftype
    params.pure = pure
    params.allow_requantize = allow_requantize
    params.max_buf_size = BUFFER
    # Both lists end with an entry of zeros, which ctypes begins with.
    overrides = (bindings.llama_model_tensor_override * (len(types) + 1))()
    for entry, (pattern, tensor_type) in zip(overrides, types.items(), strict=False):
        entry.pattern = pattern.encode()
        entry.type = tensor_type
    params.tt_overrides = overrides
    keys = (bindings.llama_model_kv_override * 2)()
    if realign:
        keys[0].key = ALIGNMENT_KEY.encode()
        keys[0].tag = INTEGER
        keys[0].value.val_i64 = ALIGNMENT
        params.kv_overrides = keys
    status = bindings.llama_model_quantize(
        str(source).encode(), str(out).encode(), ctypes.byref(params)
    )
    return bool(status == 0)
