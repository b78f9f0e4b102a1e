"""Save and restore the recurrent part of a context's memory; sequence 0 is the run."""

import ctypes
from typing import Any

import llama_cpp.llama_cpp as bindings
import numpy as np

PARTIAL_ONLY = bindings.LLAMA_STATE_SEQ_FLAGS_PARTIAL_ONLY
"""Without attention cells: ``llama_memory_hybrid::state_write`` (src/llama-memory-hybrid.cpp)."""


def save_state(context: Any) -> np.ndarray | None:
    """The state's bytes [size], or None where llama.cpp gives none."""
    size = int(bindings.llama_state_seq_get_size_ext(context, 0, PARTIAL_ONLY))
    state = np.empty(size, np.uint8)
    written = bindings.llama_state_seq_get_data_ext(context, _bytes(state), size, 0, PARTIAL_ONLY)
    return state if size and written == size else None


def restore_state(context: Any, state: np.ndarray) -> bool:
    """Make the recurrent part what it was; False where llama.cpp refuses."""
    size = len(state)
    read = bindings.llama_state_seq_set_data_ext(context, _bytes(state), size, 0, PARTIAL_ONLY)
    return bool(read == size)


def _bytes(state: np.ndarray) -> Any:
    return state.ctypes.data_as(ctypes.POINTER(ctypes.c_uint8))
