"""One llama context and its memory: decode, read rows, rewind; every return code is checked."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import llama_cpp.llama_cpp as bindings
import numpy as np
from gguf import GGMLQuantizationType

from dspark_cli.engine.model import Model
from dspark_cli.errors import InterruptedRunError, LlamaError
from dspark_cli.native.batch import EmbeddingBatch, LaneBatch, TokenBatch, view_row
from dspark_cli.native.interrupt import abort_check, interrupted
from dspark_cli.native.log import log
from dspark_cli.native.state import restore_state, save_state
from dspark_cli.options import FlashAttention
from dspark_cli.sizes import ContextSizes

ABORTED = 2  # llama_decode: "aborted", the abort callback said so
NO_SLOT = 1  # llama_decode: "could not find a KV slot for the batch"

FLASH_ATTENTION = {
    "auto": bindings.LLAMA_FLASH_ATTN_TYPE_AUTO,
    "on": bindings.LLAMA_FLASH_ATTN_TYPE_ENABLED,
    "off": bindings.LLAMA_FLASH_ATTN_TYPE_DISABLED,
}


@dataclass(frozen=True, slots=True)
class ContextSettings:
    """Everything about a context but its sizes."""

    threads: int
    cache_type_k: str
    cache_type_v: str
    flash_attention: FlashAttention


class Context:
    """A context whose sequence 0 is the run; ``what`` names it in messages."""

    def __init__(self, handle: Any, what: str, vocabulary: int) -> None:
        self._handle = handle
        self._what = what
        self._vocabulary = vocabulary
        self._clock: Callable[[], float] = time.perf_counter
        # Effective sizes outlive the context: a report may be written after it is closed.
        self.n_ctx = int(bindings.llama_n_ctx(handle))
        self.n_batch = int(bindings.llama_n_batch(handle))
        self.n_ubatch = int(bindings.llama_n_ubatch(handle))
        self.n_rs_seq = int(bindings.llama_n_rs_seq(handle))
        model = bindings.llama_get_model(handle)
        self.recurrent = bool(
            bindings.llama_model_is_recurrent(model) or bindings.llama_model_is_hybrid(model)
        )

    @property
    def handle(self) -> Any:
        """llama.cpp's pointer; raises ValueError once the context is closed."""
        if self._handle is None:
            raise ValueError(f"the {self._what}'s context is closed: its pair's block has ended")
        return self._handle

    def close(self) -> None:
        """Free the context; a second time does nothing."""
        if self._handle is not None:
            bindings.llama_free(self._handle)
            self._handle = None

    def decode(self, batch: TokenBatch | EmbeddingBatch | LaneBatch) -> float:
        """Run one batch to its end and return the seconds it took.

        Raises InterruptedRunError after Ctrl-C, LlamaError when llama.cpp refuses the batch.
        """
        began = self._clock()
        code = bindings.llama_decode(self.handle, batch.native)
        bindings.llama_synchronize(self.handle)
        seconds = self._clock() - began
        # A GPU backend does not ask the abort callback, hence the second look.
        if code == ABORTED or interrupted:
            raise InterruptedRunError
        if code == NO_SLOT:
            raise LlamaError(
                f"the {self._what}'s memory has no room for the batch", log=log.complaints()
            )
        if code != 0:
            raise LlamaError(
                f"llama.cpp refused a batch of the {self._what} (llama_decode = {code})",
                log=log.errors(),
            )
        return seconds

    def logits_row(self, row: int) -> np.ndarray:
        """A copy of one row of logits [n_vocab]; ``row`` counts the rows that asked for logits."""
        logits = bindings.llama_get_logits(self.handle)
        return np.array(view_row(logits, row, self._vocabulary), dtype=np.float32)

    def logits_argmax(self, rows: range) -> np.ndarray:
        """The likeliest token of each of ``rows``, without copying any; shape [len(rows)]."""
        logits = bindings.llama_get_logits(self.handle)
        return np.array(
            [view_row(logits, row, self._vocabulary).argmax() for row in rows], dtype=np.int32
        )

    def rewind(self, position: int, *, sequence: int = 0) -> None:
        """Forget everything of one sequence from ``position`` on."""
        if not bindings.llama_memory_seq_rm(
            bindings.llama_get_memory(self.handle), sequence, position, -1
        ):
            raise LlamaError(
                f"the {self._what}'s memory cannot be rewound to position {position}: "
                "llama_memory_seq_rm says no"
            )

    def forget_before(self, position: int) -> None:
        """Forget everything of the run before ``position``; what follows stays where it is."""
        if not bindings.llama_memory_seq_rm(
            bindings.llama_get_memory(self.handle), 0, 0, position
        ):
            raise LlamaError(
                f"the {self._what}'s memory cannot forget what stands before position {position}: "
                "llama_memory_seq_rm says no"
            )

    def save_state(self) -> np.ndarray:
        """The recurrent part of the run's memory, as bytes; attention cells are not in it."""
        log.clear()
        state = save_state(self.handle)
        if state is None:
            raise LlamaError(
                f"llama.cpp could not save the {self._what}'s recurrent state", log=log.errors()
            )
        return state

    def restore_state(self, state: np.ndarray) -> None:
        """Make the recurrent part of the memory what it was when ``state`` was saved."""
        log.clear()
        if not restore_state(self.handle, state):
            raise LlamaError(
                f"llama.cpp could not restore the {self._what}'s recurrent state",
                log=log.errors(),
            )

    def clear(self) -> None:
        """Forget the whole run."""
        bindings.llama_memory_clear(bindings.llama_get_memory(self.handle), True)

    @property
    def held(self) -> int:
        """Positions in memory."""
        return (
            int(bindings.llama_memory_seq_pos_max(bindings.llama_get_memory(self.handle), 0)) + 1
        )


@contextmanager
def open_context(
    model: Model,
    what: str,
    vocabulary: int,
    sizes: ContextSizes,
    settings: ContextSettings,
    *,
    other: Context | None = None,
) -> Iterator[Context]:
    """Make a context of ``model``; ``other`` is the one it may borrow tensors from (ctx_other)."""
    params = bindings.llama_context_default_params()
    params.n_ctx = sizes.n_ctx_requested
    params.n_batch = sizes.n_batch_requested
    params.n_ubatch = sizes.n_ubatch
    params.n_outputs_max = sizes.n_outputs_max
    params.n_seq_max = sizes.n_sequences
    params.n_rs_seq = sizes.n_rs_seq
    params.n_threads = params.n_threads_batch = settings.threads
    params.flash_attn_type = FLASH_ATTENTION[settings.flash_attention]
    params.type_k = GGMLQuantizationType[settings.cache_type_k.upper()].value
    params.type_v = GGMLQuantizationType[settings.cache_type_v.upper()].value
    params.abort_callback = bindings.ggml_abort_callback(abort_check)
    params.abort_callback_data = interrupted.address
    params.no_perf = True
    if other is not None:
        params.ctx_other = other.handle
    log.clear()
    handle = bindings.llama_init_from_model(model.handle, params)
    if handle is None:
        raise LlamaError(f"llama.cpp could not make the {what}'s context", log=log.errors())
    context = Context(handle, what, vocabulary)
    try:
        yield context
    finally:
        context.close()
