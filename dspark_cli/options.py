"""What the user chose, checked once and frozen.

Names and defaults follow llama.cpp's own options where they exist. This module knows values, not
where they came from.
"""

import math
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeAlias

from dspark_cli.errors import UsageError
from dspark_cli.schedule import FIXED, ScheduleOptions

MAX_THREADS = 512  # GGML_MAX_N_THREADS
INT32_END = 2**31  # llama.cpp counts in 32-bit integers

FlashAttention: TypeAlias = Literal["auto", "on", "off"]

DEFAULT_CTX_SIZE = 4096  # tokens; a model trained for fewer gets its own length

# The KV cache types that llama.cpp's own -ctk and -ctv accept (common/arg.cpp).
KV_TYPES = ("f32", "f16", "bf16", "q8_0", "q4_0", "q4_1", "iq4_nl", "q5_0", "q5_1")


def usable_cores() -> int:
    """Cores this process may run on, which a container or taskset can make fewer than exist."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


@dataclass(frozen=True, slots=True)
class SamplingOptions:
    """How the target picks a token; the defaults are llama.cpp's, but greedy."""

    temperature: float = 0.0  # 0 picks the likeliest token
    top_k: int = 40  # keep this many likeliest tokens; 0 keeps all
    top_p: float = 0.95  # keep the smallest set holding this much probability
    min_p: float = 0.05  # drop tokens below this share of the likeliest one
    repeat_penalty: float = 1.0  # divides the logits of the last 64 tokens; 1 changes nothing
    seed: int | None = None  # None: a random one, which the run reports
    ignore_eos: bool = False  # never sample an end-of-generation token

    def __post_init__(self) -> None:
        if not 0 <= self.temperature < math.inf:
            raise UsageError(f"--temp wants 0 or more, got {self.temperature}")
        if self.top_k < 0:
            raise UsageError(f"--top-k wants 0 or more, got {self.top_k}")
        if self.top_k >= INT32_END:
            raise UsageError(f"--top-k wants less than {INT32_END}, got {self.top_k}")
        if not 0 < self.top_p <= 1:
            raise UsageError(f"--top-p wants more than 0 and at most 1, got {self.top_p}")
        if not 0 <= self.min_p <= 1:
            raise UsageError(f"--min-p wants 0 to 1, got {self.min_p}")
        if not 0 < self.repeat_penalty < math.inf:
            raise UsageError(f"--repeat-penalty wants more than 0, got {self.repeat_penalty}")
        if self.seed is not None and not 0 <= self.seed < 2**32 - 1:
            raise UsageError(f"--seed wants 0 to {2**32 - 2}, got {self.seed}")

    @property
    def greedy(self) -> bool:
        return self.temperature == 0.0

    @property
    def argmax(self) -> bool:
        """Whether the choice is the plain argmax of the logits, with nothing before it."""
        return self.greedy and self.repeat_penalty == 1.0 and not self.ignore_eos


@dataclass(frozen=True, slots=True)
class MemoryOptions:
    """Context length, batches, cache types, threads and devices of both models."""

    ctx_size: int | None = None  # None: the model's own length, at most 4096; 0: the model's own
    batch_size: int = 512  # rows of the target's prefill chunk; its tap buffers grow with it
    ubatch_size: int = 512
    threads: int | None = None  # None: every usable core
    threads_draft: int | None = None  # None: as the target
    gpu_layers: int | None = None  # None: all that llama.cpp can offload
    gpu_layers_draft: int | None = None
    flash_attention: FlashAttention = "auto"
    cache_type_k: str = "f16"
    cache_type_v: str = "f16"
    cache_type_k_draft: str = "f16"
    cache_type_v_draft: str = "f16"
    draft_window: int | None = None  # positions that the drafter keeps; 0: all; None: see sizes

    def __post_init__(self) -> None:
        if self.ctx_size is not None and self.ctx_size < 0:
            raise UsageError(f"--ctx-size wants 0 or more tokens, got {self.ctx_size}")
        if self.draft_window is not None and self.draft_window < 0:
            raise UsageError(
                f"--draft-window wants auto, 0 or a number of positions, got {self.draft_window}"
            )
        for name, value in (
            ("--batch-size", self.batch_size),
            ("--ubatch-size", self.ubatch_size),
        ):
            if value < 1:
                raise UsageError(f"{name} wants at least 1 row, got {value}")
        for name, threads in (("--threads", self.threads), ("-td", self.threads_draft)):
            if threads is not None and not 1 <= threads <= MAX_THREADS:
                raise UsageError(f"{name} wants 1 to {MAX_THREADS} threads, got {threads}")
        for name, kind in (
            ("-ctk", self.cache_type_k),
            ("-ctv", self.cache_type_v),
            ("-ctkd", self.cache_type_k_draft),
            ("-ctvd", self.cache_type_v_draft),
        ):
            if kind not in KV_TYPES:
                raise UsageError(
                    f"{name}: unknown cache type {kind}, wanted one of {', '.join(KV_TYPES)}"
                )
        quantised_v = [
            name
            for name, kind in (("-ctv", self.cache_type_v), ("-ctvd", self.cache_type_v_draft))
            if kind not in {"f32", "f16", "bf16"}
        ]
        if self.flash_attention == "off" and quantised_v:
            raise UsageError(
                f"a quantised V cache ({', '.join(quantised_v)}) needs flash attention, "
                "which -fa off forbids"
            )

    @property
    def target_threads(self) -> int:
        return self.threads or usable_cores()

    @property
    def drafter_threads(self) -> int:
        return self.threads_draft or self.target_threads


@dataclass(frozen=True, slots=True)
class PairOptions:
    """Which two files, and how to hold them in memory."""

    model: Path
    draft: Path | None = None  # None: plain decoding
    draft_max: int | None = None  # --spec-draft-n-max; None: what the drafter was trained for
    memory: MemoryOptions = MemoryOptions()

    def __post_init__(self) -> None:
        if self.draft is None and self.draft_max is not None:
            raise UsageError(
                f"--spec-draft-n-max {self.draft_max} wants a drafter, and there is none"
            )


@dataclass(frozen=True, slots=True)
class GenerationOptions:
    """How long to go on, how to pick, and what ends the text."""

    n_predict: int = -1  # tokens; -1 goes on until something else ends the run
    sampling: SamplingOptions = SamplingOptions()
    stops: tuple[str, ...] = ()
    schedule: ScheduleOptions = FIXED

    def __post_init__(self) -> None:
        if self.n_predict < -1:
            raise UsageError(f"-n wants -1 (no limit) or more tokens, got {self.n_predict}")
        if any(not stop for stop in self.stops):
            raise UsageError("--stop wants a text, got an empty one")
        try:
            "".join(self.stops).encode()
        except UnicodeEncodeError:
            raise UsageError(f"--stop wants UTF-8, got {' '.join(self.stops)!a}") from None
