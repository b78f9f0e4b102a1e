"""How large everything will be: contexts, batches, tap buffers and caches, all planned first.

The drafter's context holds a full context of the target plus one block, and its ``n_batch`` covers
both, as llama.cpp's own driver of PrismML PR #67 sizes it; where the context is longer than the
drafter's window, it holds the window and one block. All arithmetic, no model.
"""

from dataclasses import dataclass

from dspark_cli.contract import AttentionShape, DrafterShape, TargetShape
from dspark_cli.errors import DsparkError, UsageError
from dspark_cli.options import DEFAULT_CTX_SIZE, MemoryOptions

CTX_PADDING = 256  # llama_context pads n_ctx to a multiple of this (src/llama-context.cpp)
F32, F16 = 4, 2  # bytes
MIN_DRAFTER_UBATCH = 64  # rows; as fast as 512 for injection, an eighth of the logits buffer
WINDOW_PERCENT = 75  # of the drafter's own context_length: the window by default
LANE_BATCH = 512  # rows; prompts of a collection are read in such chunks
QUANT_BLOCK = 32  # elements; every quantised cache type shares one scale among so many

# Bytes per element: block bytes / block elements of ggml's type traits.
KV_BYTES = {
    "f32": 4.0,
    "f16": 2.0,
    "bf16": 2.0,
    "q8_0": 34 / 32,
    "q4_0": 18 / 32,
    "q4_1": 20 / 32,
    "iq4_nl": 18 / 32,
    "q5_0": 22 / 32,
    "q5_1": 24 / 32,
}


@dataclass(frozen=True, slots=True)
class ContextSizes:
    """What one llama context is asked for, and what it will take."""

    n_ctx_requested: int
    n_ctx: int  # after llama.cpp's padding
    n_batch_requested: int
    n_batch: int  # after llama.cpp's clamping to the requested n_ctx
    n_ubatch: int
    n_outputs_max: int
    kv_bytes: int
    tap_bytes: int  # of the target: n_taps x width x n_batch floats
    logits_bytes: int
    n_sequences: int = 1
    n_rs_seq: int = 0  # tokens that a ring of recurrent states can go back
    state_bytes: int = 0  # of the recurrent states, a ring's or a saved one among them
    attention_bytes: int = 0  # the mask, and the scores where they are laid out

    @property
    def bytes(self) -> int:
        return sum(
            (
                self.kv_bytes,
                self.state_bytes,
                self.tap_bytes,
                self.logits_bytes,
                self.attention_bytes,
            )
        )


@dataclass(frozen=True, slots=True)
class Sizes:
    """The plan of one run."""

    limit: int  # tokens: the run stops here, at the requested -c
    target: ContextSizes
    drafter: ContextSizes | None
    weight_bytes: int
    draft_window: int | None = None  # positions that the drafter keeps; None: all

    @property
    def bytes(self) -> int:
        return self.weight_bytes + self.target.bytes + (self.drafter.bytes if self.drafter else 0)


def plan_sizes(target: TargetShape, drafter: DrafterShape | None, memory: MemoryOptions) -> Sizes:
    """Plan both contexts; raises UsageError where the options cannot be met."""
    limit = context_limit(target, memory)
    _check_quantised_cache(target, drafter, memory)
    block = (drafter.block_size or 0) if drafter else 0
    taps = len(drafter.taps or ()) if drafter else 0
    rewind = target.support.rewind if target.support and drafter else "cut"
    # A block must fit into one batch; llama.cpp clamps both to the requested context.
    n_batch = min(limit, max(memory.batch_size, block + 1))
    n_ctx = _pad(limit)
    n_ubatch = min(n_batch, max(memory.ubatch_size, block + 1))
    target_sizes = ContextSizes(
        n_ctx_requested=limit,
        n_ctx=n_ctx,
        n_batch_requested=max(memory.batch_size, block + 1),
        n_batch=n_batch,
        n_ubatch=n_ubatch,
        n_outputs_max=block + 1,
        kv_bytes=kv_bytes(target.attention, n_ctx, memory.cache_type_k, memory.cache_type_v),
        tap_bytes=taps * target.width * n_batch * F32,
        logits_bytes=(block + 1) * target.vocabulary * F32,
        n_rs_seq=block if rewind == "ring" else 0,
        state_bytes=target.state_bytes * (1 + {"cut": 0, "ring": block, "replay": 1}[rewind]),
        attention_bytes=attention_bytes(target.attention, n_ctx, n_ubatch, memory),
    )
    if drafter is None:
        return Sizes(limit, target_sizes, None, target.weight_bytes)
    # llama.cpp pads the drafter's context again; the block of the last round reaches past the
    # target's.
    window = draft_window(drafter, memory, limit)
    wanted = (window or n_ctx) + block
    ubatch = max(MIN_DRAFTER_UBATCH, block + 1)
    drafter_sizes = ContextSizes(
        n_ctx_requested=wanted,
        n_ctx=_pad(wanted),
        n_batch_requested=wanted,
        n_batch=wanted,
        n_ubatch=ubatch,
        n_outputs_max=wanted,  # llama.cpp sets it to n_batch for models with an encoder
        kv_bytes=kv_bytes(
            drafter.attention, _pad(wanted), memory.cache_type_k_draft, memory.cache_type_v_draft
        ),
        tap_bytes=0,
        logits_bytes=ubatch * target.vocabulary * F32,
        attention_bytes=attention_bytes(drafter.attention, _pad(wanted), ubatch, memory),
    )
    return Sizes(
        limit,
        target_sizes,
        drafter_sizes,
        target.weight_bytes + drafter.weight_bytes,
        draft_window=window,
    )


def plan_lanes(target: TargetShape, *, lanes: int, positions: int, taps: int) -> ContextSizes:
    """Plan a context of ``lanes`` sequences of up to ``positions`` tokens each, F16 caches."""
    n_ctx = lanes * _pad(positions)  # each sequence gets its own, padded share
    return ContextSizes(
        n_ctx_requested=n_ctx,
        n_ctx=n_ctx,
        n_batch_requested=LANE_BATCH,
        n_batch=min(LANE_BATCH, n_ctx),
        n_ubatch=min(LANE_BATCH, n_ctx),
        n_outputs_max=lanes,
        kv_bytes=kv_bytes(target.attention, n_ctx, "f16", "f16"),
        tap_bytes=taps * target.width * LANE_BATCH * F32,
        logits_bytes=lanes * target.vocabulary * F32,
        n_sequences=lanes,
    )


def context_limit(target: TargetShape, memory: MemoryOptions) -> int:
    """Tokens that the run may hold: ``-c``, or the model's own length, at most 4096 by default."""
    trained = target.context_length or DEFAULT_CTX_SIZE
    if memory.ctx_size is None:
        return min(trained, DEFAULT_CTX_SIZE)
    return memory.ctx_size or trained


def draft_window(drafter: DrafterShape, memory: MemoryOptions, limit: int) -> int | None:
    """How many of the last positions the drafter keeps; None where it keeps all ``limit``.

    By default all where it was trained on as many, and otherwise three quarters of what it was
    trained on, so that no query sees a distance that it never learned: what lies farther back
    makes it guess worse, not better.
    """
    window, trained = memory.draft_window, drafter.context_length
    if window is None:
        window = trained * WINDOW_PERCENT // 100 if limit > trained else 0
    return window if 0 < window < limit else None


def kv_bytes(attention: AttentionShape, n_ctx: int, type_k: str, type_v: str) -> int:
    """Bytes of a full K/V cache of ``n_ctx`` positions."""
    per_head = attention.key_length * KV_BYTES[type_k] + attention.value_length * KV_BYTES[type_v]
    return int(sum(attention.kv_heads) * per_head * n_ctx)


def attention_bytes(
    attention: AttentionShape, n_ctx: int, n_ubatch: int, memory: MemoryOptions
) -> int:
    """Bytes of the mask of a pass, and of its scores: flash attention lays out none."""
    if memory.flash_attention == "off":
        return (attention.heads + 1) * n_ctx * n_ubatch * F32
    return n_ctx * n_ubatch * F16


def check_memory(sizes: Sizes, available: int | None) -> None:
    """Refuse a plan that the machine cannot hold, before it is allocated.

    Weights are mapped from the file and count as well, since every pass reads them all.
    ``available`` is in bytes; None (unknown) lets the plan pass.
    """
    if available is None or sizes.bytes <= available:
        return
    smaller = "a quantised cache (-ctk q8_0 -ctv q8_0)"
    if sizes.target.attention_bytes > sizes.target.kv_bytes:
        smaller = "a smaller -ub, or flash attention (-fa auto)"
    raise DsparkError(
        f"-c {sizes.limit}: the run needs {_gib(sizes.bytes)} (weights "
        f"{_gib(sizes.weight_bytes)}, the rest caches and buffers), "
        f"{_gib(available)} are available",
        hint=f"use a smaller -c, or {smaller}",
    )


def _pad(n_ctx: int) -> int:
    return -(-n_ctx // CTX_PADDING) * CTX_PADDING


def _gib(size: int) -> str:
    return f"{size / 2**30:.1f} GiB"


def _check_quantised_cache(
    target: TargetShape, drafter: DrafterShape | None, memory: MemoryOptions
) -> None:
    rows = [
        ("-ctk", memory.cache_type_k, "key", target.attention.key_length),
        ("-ctv", memory.cache_type_v, "value", target.attention.value_length),
    ]
    if drafter is not None:
        rows += [
            ("-ctkd", memory.cache_type_k_draft, "key", drafter.attention.key_length),
            ("-ctvd", memory.cache_type_v_draft, "value", drafter.attention.value_length),
        ]
    for name, kind, what, length in rows:
        if KV_BYTES[kind] < KV_BYTES["f16"] and length % QUANT_BLOCK:
            raise UsageError(
                f"{name} {kind} packs {QUANT_BLOCK} elements together, "
                f"but a {what} head has {length}"
            )
