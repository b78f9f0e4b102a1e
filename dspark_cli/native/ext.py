"""Bindings of llama.cpp's ``src/llama-ext.h`` and of the ggml functions that DSpark needs.

One prototype, one binding, one line of meaning. All of ``llama-ext.h`` is declared unstable by
llama.cpp itself, hence the search for names in ``symbols``.
"""

import ctypes
from ctypes import POINTER, c_bool, c_char_p, c_float, c_int, c_size_t, c_uint32, c_void_p

from dspark_cli.native.symbols import symbol

# LLAMA_API void llama_set_embeddings_layer_inp(
#     struct llama_context * ctx, uint32_t lid, bool value);
set_embeddings_layer_inp = symbol(
    "llama_set_embeddings_layer_inp",
    "_Z30llama_set_embeddings_layer_inpP13llama_contextjb",
    "?llama_set_embeddings_layer_inp@@YAXPEAUllama_context@@I_N@Z",
    arguments=[c_void_p, c_uint32, c_bool],
    returns=None,
)
"""Turn the tap at the input of layer ``lid`` on or off."""

# LLAMA_API float * llama_get_embeddings_layer_inp(struct llama_context * ctx, uint32_t lid);
get_embeddings_layer_inp = symbol(
    "llama_get_embeddings_layer_inp",
    "_Z30llama_get_embeddings_layer_inpP13llama_contextj",
    "?llama_get_embeddings_layer_inp@@YAPEAMPEAUllama_context@@I@Z",
    arguments=[c_void_p, c_uint32],
    returns=POINTER(c_float),
)
"""Input of layer ``lid`` for every row of the last batch, n_embd floats each; until the next
decode."""

# LLAMA_API void llama_set_embeddings_nextn(struct llama_context * ctx, bool value, bool masked);
set_embeddings_nextn = symbol(
    "llama_set_embeddings_nextn",
    "_Z26llama_set_embeddings_nextnP13llama_contextbb",
    "?llama_set_embeddings_nextn@@YAXPEAUllama_context@@_N1@Z",
    arguments=[c_void_p, c_bool, c_bool],
    returns=None,
)
"""Hand out the "nextn" rows, in which a DSpark drafter carries its confidences."""

# LLAMA_API float * llama_get_embeddings_nextn(struct llama_context * ctx);
get_embeddings_nextn = symbol(
    "llama_get_embeddings_nextn",
    "_Z26llama_get_embeddings_nextnP13llama_context",
    "?llama_get_embeddings_nextn@@YAPEAMPEAUllama_context@@@Z",
    arguments=[c_void_p],
    returns=POINTER(c_float),
)
"""One row of n_embd floats per output row; column 0 is the confidence."""

# typedef void (*ggml_abort_callback_t)(const char * error_message);
AbortCallback = ctypes.CFUNCTYPE(None, c_char_p)

# GGML_API ggml_abort_callback_t ggml_set_abort_callback(ggml_abort_callback_t callback);
set_abort_callback = symbol("ggml_set_abort_callback", arguments=[AbortCallback], returns=c_void_p)
"""Have the last word before GGML_ASSERT and GGML_ABORT end the process."""

TerminateHandler = ctypes.CFUNCTYPE(None)

# std::terminate_handler std::set_terminate(std::terminate_handler f) noexcept;
set_terminate = symbol(
    "set_terminate",
    "_ZSt13set_terminatePFvvE",
    "?set_terminate@@YAP6AXXZP6AXXZ@Z",
    arguments=[TerminateHandler],
    returns=c_void_p,
)
"""Have the last word when a C++ exception leaves llama.cpp."""

# GGML_API const char * ggml_version(void); GGML_API const char * ggml_commit(void);
ggml_version = symbol("ggml_version", arguments=[], returns=c_char_p)
ggml_commit = symbol("ggml_commit", arguments=[], returns=c_char_p)

# LLAMA_API const char * llama_version(void);
llama_version = symbol("llama_version", arguments=[], returns=c_char_p)

# GGML_API size_t ggml_backend_dev_count(void);
dev_count = symbol("ggml_backend_dev_count", arguments=[], returns=c_size_t)

# GGML_API ggml_backend_dev_t ggml_backend_dev_get(size_t index);
dev_get = symbol("ggml_backend_dev_get", arguments=[c_size_t], returns=c_void_p)

# GGML_API const char * ggml_backend_dev_name(ggml_backend_dev_t device);
dev_name = symbol("ggml_backend_dev_name", arguments=[c_void_p], returns=c_char_p)

# GGML_API const char * ggml_backend_dev_description(ggml_backend_dev_t device);
dev_description = symbol("ggml_backend_dev_description", arguments=[c_void_p], returns=c_char_p)

# GGML_API enum ggml_backend_dev_type ggml_backend_dev_type(ggml_backend_dev_t device);
dev_type = symbol("ggml_backend_dev_type", arguments=[c_void_p], returns=c_int)
"""0 is a CPU, 1 a GPU, 2 an integrated GPU, 3 an accelerator used beside the CPU."""
