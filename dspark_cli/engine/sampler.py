"""How the target chooses a token from a row of logits: argmax, or llama.cpp's sampler chain.

One chooser serves plain, scored and replayed rows, with one draw per committed token, so that the
same seed gives the same text with and without a drafter.
"""

import secrets
import weakref
from collections.abc import Iterable
from typing import Any, Protocol

import llama_cpp.llama_cpp as bindings
import numpy as np

from dspark_cli.engine.vocab import Vocabulary
from dspark_cli.native import sampler as native
from dspark_cli.options import SamplingOptions

PENALTY_LAST_N = 64  # tokens that --repeat-penalty looks back on, llama.cpp's default
UNSEEDED = 2**32 - 1  # LLAMA_DEFAULT_SEED, which llama.cpp replaces by a seed it does not tell


class Chooser(Protocol):
    """Turns a row of logits into the target's own next token.

    Of a row that holds NaN, +inf or nothing but -inf it takes numpy's argmax, whose logit then
    says so: no sampler has to make sense of it.
    """

    def __call__(self, logits: np.ndarray) -> int: ...


def argmax(logits: np.ndarray) -> int:
    """The likeliest token; the first of several equals, as llama.cpp's greedy sampler."""
    return int(logits.argmax())


class SamplerChain:
    """penalties, top-k, top-p, min-p, temperature, then one draw: llama.cpp's own order.

    Every draw is remembered by the penalties, so a chain belongs to one run. llama.cpp's memory is
    freed with the object.
    """

    def __init__(self, chain: Any, candidates: native.Candidates) -> None:
        self._chain = chain
        self._candidates = candidates
        weakref.finalize(self, bindings.llama_sampler_free, chain)

    def clone(self) -> "SamplerChain":
        """Another chain in the same state, random numbers included."""
        # Candidates are laid out anew for every draw, so both can use the same memory.
        return SamplerChain(bindings.llama_sampler_clone(self._chain), self._candidates)

    def __call__(self, logits: np.ndarray) -> int:
        likeliest = argmax(logits)
        if not np.isfinite(logits[likeliest]):
            return likeliest
        self._candidates.fill(logits)
        native.apply(self._chain, self._candidates)
        token = self._candidates.selected()
        bindings.llama_sampler_accept(self._chain, token)
        return token

    def remember(self, tokens: Iterable[int]) -> None:
        """Let the penalties know the prompt."""
        for token in tokens:
            bindings.llama_sampler_accept(self._chain, token)


def chooser_for(options: SamplingOptions, vocabulary: Vocabulary, prompt: list[int]) -> Chooser:
    """The chooser that ``options`` describe, for one run that continues ``prompt``."""
    if options.argmax:
        return argmax
    size = len(vocabulary)
    chain = native.new_chain()
    sampler = SamplerChain(chain, native.Candidates(size))
    if options.ignore_eos and (ends := vocabulary.eog_tokens()):
        native.add(chain, native.logit_bias(size, ends, float("-inf")))
    if options.repeat_penalty != 1.0:
        native.add(chain, native.penalties(size, PENALTY_LAST_N, options.repeat_penalty))
    if options.greedy:
        native.add(chain, bindings.llama_sampler_init_greedy())
    else:
        native.add(chain, bindings.llama_sampler_init_top_k(options.top_k))
        native.add(chain, bindings.llama_sampler_init_top_p(options.top_p, 1))
        native.add(chain, bindings.llama_sampler_init_min_p(options.min_p, 1))
        native.add(chain, bindings.llama_sampler_init_temp(options.temperature))
        native.add(chain, bindings.llama_sampler_init_dist(options.seed))
    sampler.remember(prompt[-PENALTY_LAST_N:])
    return sampler


def random_seed() -> int:
    """A seed to report, so that a sampled run can be repeated."""
    return secrets.randbelow(UNSEEDED)
