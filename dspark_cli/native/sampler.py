"""llama.cpp's own samplers, applied to rows of logits that need no context.

``llama_sampler_sample`` reads its logits from a context; here the candidates are laid out by us,
so that the very same chain can judge a plain row, a scored row and a replayed copy of either.
"""

import ctypes
from collections.abc import Sequence
from typing import Any

import llama_cpp.llama_cpp as bindings
import numpy as np

# typedef struct llama_token_data { llama_token id; float logit; float p; }
TOKEN_DATA = np.dtype([("id", "<i4"), ("logit", "<f4"), ("p", "<f4")])


class Candidates:
    """``llama_token_data_array`` over one vocabulary, laid out anew for every draw."""

    def __init__(self, vocabulary: int) -> None:
        self._ids = np.arange(vocabulary, dtype=np.int32)
        self._data = np.zeros(vocabulary, TOKEN_DATA)
        self.native = bindings.llama_token_data_array()

    def fill(self, logits: np.ndarray) -> None:
        # Samplers sort and shrink the array in place, so ids are written again as well.
        self._data["id"] = self._ids
        self._data["logit"] = logits
        self._data["p"] = 0
        self.native.data = self._data.ctypes.data_as(type(self.native.data))
        self.native.size = len(self._data)
        self.native.selected = -1
        self.native.sorted = False

    def selected(self) -> int:
        index = self.native.selected
        if not 0 <= index < self.native.size:
            raise IndexError(f"the sampler chain selected row {index} of {self.native.size}")
        return int(self.native.data[index].id)


def new_chain() -> Any:
    return bindings.llama_sampler_chain_init(bindings.llama_sampler_chain_default_params())


def add(chain: Any, sampler: Any) -> None:
    """Move ``sampler`` into ``chain``, which frees it."""
    bindings.llama_sampler_chain_add(chain, sampler)


def logit_bias(vocabulary: int, tokens: Sequence[int], bias: float) -> Any:
    entries = (bindings.llama_logit_bias * len(tokens))(
        *[bindings.llama_logit_bias(token, bias) for token in tokens]
    )
    return bindings.llama_sampler_init_logit_bias(vocabulary, len(tokens), entries)


def penalties(vocabulary: int, last: int, repeat: float) -> Any:
    """Divide the logits of the ``last`` accepted tokens by ``repeat``."""
    # LLAMA_API struct llama_sampler * llama_sampler_init_penalties(
    #     int32_t n_vocab, int32_t last_n, float repeat, float freq, float present);
    return bindings.llama_sampler_init_penalties(vocabulary, last, repeat, 0.0, 0.0)


def apply(chain: Any, candidates: Candidates) -> None:
    bindings.llama_sampler_apply(chain, ctypes.byref(candidates.native))
