"""Every size is planned before anything is allocated, and llama.cpp then allocates just that."""

import re

import pytest

from dspark_cli.contract import AttentionShape, DrafterShape, TargetShape
from dspark_cli.errors import DsparkError, UsageError
from dspark_cli.options import KV_TYPES, MemoryOptions
from dspark_cli.sizes import KV_BYTES, check_memory, context_limit, kv_bytes, plan_sizes

GIB = 2**30


def a_target(*, trained_for: int = 8192, head: int = 64, **changes) -> TargetShape:
    """A target of 4 layers, width 256, 1000 tokens, with 2 K/V heads in each layer."""
    facts = {
        "name": "target.gguf",
        "architecture": "llama",
        "layers": 4,
        "width": 256,
        "context_length": trained_for,
        "tokens": None,
        "has_embeddings": True,
        "has_head": True,
        "names_end": True,
        "attention": AttentionShape(4, (2,) * 4, head, head),
        "weight_bytes": 10_000_000,
    }
    return TargetShape(**(facts | changes))


def a_drafter(*, block_size: int = 5, taps=(1, 2, 3), head: int = 64) -> DrafterShape:
    """A DSpark drafter of one layer with 2 K/V heads."""
    return DrafterShape(
        name="drafter.gguf",
        architecture="dflash",
        dialect="dspark",
        block_size=block_size,
        taps=taps,
        layers=1,
        width=256,
        context_length=4096,
        tokens=None,
        mask_token=3,
        markov_rank=8,
        has_confidence=True,
        has_embeddings=False,
        has_head=False,
        draft_vocabulary=None,
        sample_from_anchor=True,
        causal=False,
        mrope=False,
        temperatures=(),
        attention=AttentionShape(4, (2,), head, head),
        weight_bytes=1_000_000,
    )


# --- contexts and batches -----------------------------------------------------------------------

CONTEXTS = {
    # -c, positions the model was trained for: where the run stops, what llama.cpp allocates
    "-c 256": (256, 8192, 256, 256),
    "-c 1000": (1000, 8192, 1000, 1024),
    "-c 4096": (4096, 8192, 4096, 4096),
    "-c 4097": (4097, 8192, 4097, 4352),
    "-c 1": (1, 8192, 1, 256),
    "-c 0, trained for 8192": (0, 8192, 8192, 8192),
    "-c 0, trained for 512": (0, 512, 512, 512),
    "no -c, trained for 8192": (None, 8192, 4096, 4096),
    "no -c, trained for 512": (None, 512, 512, 512),
    "no -c, trained for 1000": (None, 1000, 1000, 1024),
    "-c 4096, trained for 512": (4096, 512, 4096, 4096),
    "no -c, and the model does not say": (None, 0, 4096, 4096),
}


@pytest.mark.parametrize(
    ("ctx_size", "trained_for", "limit", "n_ctx"), CONTEXTS.values(), ids=CONTEXTS
)
def test_the_run_stops_where_it_was_asked_to(ctx_size, trained_for, limit, n_ctx):
    """llama.cpp rounds a context up to 256 positions; the run keeps to the requested ones."""
    target, memory = a_target(trained_for=trained_for), MemoryOptions(ctx_size=ctx_size)

    sizes = plan_sizes(target, None, memory)

    assert context_limit(target, memory) == limit
    assert sizes.limit == limit
    assert sizes.target.n_ctx == n_ctx
    assert sizes.drafter is None


@pytest.mark.parametrize("block_size", [1, 4, 5, 16])
@pytest.mark.parametrize(
    ("ctx_size", "trained_for", "limit", "n_ctx"), CONTEXTS.values(), ids=CONTEXTS
)
def test_the_drafter_holds_a_full_context_and_one_block(
    ctx_size, trained_for, limit, n_ctx, block_size
):
    """Its n_batch is the target's padded n_ctx plus block_size, its context no smaller."""
    sizes = plan_sizes(
        a_target(trained_for=trained_for),
        a_drafter(block_size=block_size),
        MemoryOptions(ctx_size=ctx_size, draft_window=0),
    )

    assert sizes.limit == limit
    assert sizes.draft_window is None
    assert sizes.target.n_ctx == n_ctx
    assert sizes.drafter.n_batch == n_ctx + block_size
    assert sizes.drafter.n_batch_requested == n_ctx + block_size
    assert sizes.drafter.n_ctx >= n_ctx + block_size
    assert sizes.drafter.n_ctx % 256 == 0


@pytest.mark.parametrize(
    ("ctx_size", "draft_window", "window"),
    [
        (4096, None, None),  # as many positions as the drafter was trained on
        (4097, None, 3072),  # three quarters of them
        (131_072, None, 3072),
        (131_072, 0, None),
        (131_072, 500, 500),
        (400, 500, None),
        (400, 50, 50),
    ],
)
def test_the_drafter_keeps_a_window_of_a_long_context(ctx_size, draft_window, window):
    """Its memory is that of the window and one block, however long the context."""
    sizes = plan_sizes(
        a_target(),
        a_drafter(block_size=4),
        MemoryOptions(ctx_size=ctx_size, draft_window=draft_window),
    )

    assert sizes.draft_window == window
    assert sizes.drafter.n_ctx_requested == (window or sizes.target.n_ctx) + 4
    assert sizes.drafter.n_batch == sizes.drafter.n_ctx_requested


@pytest.mark.parametrize("ctx_size", [256, 4096, 131_072])
@pytest.mark.parametrize("block_size", [1, 4, 16, 63, 64, 200])
def test_the_drafters_ubatch_holds_a_block_but_not_a_context(ctx_size, block_size):
    """A block is decoded at once; anything wider would only grow the buffer of logits.

    A drafter whose ubatch follows its context takes gigabytes at 131072 positions.
    """
    drafter = plan_sizes(
        a_target(), a_drafter(block_size=block_size), MemoryOptions(ctx_size=ctx_size)
    ).drafter

    assert drafter.n_ubatch >= block_size + 1
    assert drafter.n_ubatch >= 64
    assert drafter.n_ubatch <= 512


@pytest.mark.parametrize(("batch", "ubatch"), [(1, 1), (2, 2), (5, 1), (6, 6), (512, 2)])
def test_a_small_batch_grows_to_hold_the_block(batch, ubatch):
    """-b 2 with a block of 5 means chunks of 6: the last token and the whole draft."""
    sizes = plan_sizes(
        a_target(), a_drafter(), MemoryOptions(batch_size=batch, ubatch_size=ubatch)
    )

    assert sizes.target.n_batch == max(batch, 6)
    assert sizes.target.n_ubatch >= 6
    assert sizes.target.n_outputs_max >= 6


def test_a_batch_is_no_larger_than_the_context():
    """llama.cpp clamps it, and so does the plan."""
    sizes = plan_sizes(a_target(), None, MemoryOptions(ctx_size=100, batch_size=512))

    assert sizes.target.n_batch == 100
    assert sizes.target.n_ubatch == 100


# --- bytes --------------------------------------------------------------------------------------


@pytest.mark.parametrize(("ctx_size", "batch"), [(256, 2), (256, 512), (1000, 512), (4096, 2048)])
@pytest.mark.parametrize("taps", [(1,), (1, 2, 3)])
def test_tap_buffers_take_a_float_per_tap_and_row(ctx_size, batch, taps):
    """n_taps x n_embd x n_batch x 4 bytes, which is why n_batch is a chunk and not a context."""
    target = plan_sizes(
        a_target(), a_drafter(taps=taps), MemoryOptions(ctx_size=ctx_size, batch_size=batch)
    ).target

    assert target.tap_bytes == len(taps) * 256 * target.n_batch * 4


def test_five_taps_of_a_large_model_fit_only_in_chunks():
    """Five taps of width 4096 take 2.5 GiB at 32k rows, 40 MiB at the default 512."""
    sizes = plan_sizes(
        a_target(width=4096), a_drafter(taps=(1, 2, 3, 4, 5)), MemoryOptions(ctx_size=32_768)
    )

    assert sizes.target.tap_bytes == 40 * 2**20


def test_without_a_drafter_nothing_is_tapped():
    """Plain decoding takes no tap buffers and one row of logits."""
    sizes = plan_sizes(a_target(), None, MemoryOptions())

    assert sizes.target.tap_bytes == 0
    assert sizes.target.n_outputs_max == 1


@pytest.mark.parametrize(
    ("type_k", "type_v", "expected"),
    [
        # 30 layers x 3 K/V heads x 4096 positions x 64 elements, keys and values
        ("f16", "f16", 30 * 3 * 4096 * (64 * 2 + 64 * 2)),
        ("f32", "f16", 30 * 3 * 4096 * (64 * 4 + 64 * 2)),
        # q8_0 packs 32 elements into 34 bytes: two blocks of them per head
        ("q8_0", "q8_0", 30 * 3 * 4096 * (2 * 34 + 2 * 34)),
        ("q8_0", "q4_0", 30 * 3 * 4096 * (2 * 34 + 2 * 18)),
    ],
)
def test_a_cache_takes_what_its_heads_take(type_k, type_v, expected):
    """With grouped queries only the K/V heads count: SmolLM2's 3, not its 9."""
    assert kv_bytes(AttentionShape(9, (3,) * 30, 64, 64), 4096, type_k, type_v) == expected


def test_keys_and_values_and_layers_may_differ():
    """Each layer counts with its own K/V heads, keys and values with their own lengths."""
    attention = AttentionShape(8, (8, 0, 2), 192, 128)

    assert kv_bytes(attention, 256, "f16", "f16") == 10 * 256 * (192 + 128) * 2


def test_both_caches_are_planned_with_their_own_types():
    """-ctk and -ctv are the target's, -ctkd and -ctvd the drafter's."""
    sizes = plan_sizes(
        a_target(),
        a_drafter(),
        MemoryOptions(ctx_size=1024, cache_type_k="q8_0", cache_type_v="q8_0"),
    )

    assert sizes.target.kv_bytes == 4 * 2 * 1024 * 2 * (2 * 34)
    assert sizes.drafter.kv_bytes == 2 * 1280 * 2 * (64 * 2)


def test_every_cache_type_has_a_size():
    """What the command line accepts can be planned."""
    assert set(KV_BYTES) == set(KV_TYPES)


def test_the_sum_holds_weights_caches_and_buffers_of_both():
    """Nothing that is planned is left out of what is compared with memory."""
    sizes = plan_sizes(a_target(), a_drafter(), MemoryOptions())

    assert sizes.weight_bytes == 11_000_000
    assert sizes.bytes == sizes.weight_bytes + sum(
        part.kv_bytes + part.tap_bytes + part.logits_bytes + part.attention_bytes
        for part in (sizes.target, sizes.drafter)
    )


# --- refusals -----------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["q8_0", "q4_0", "q4_1", "q5_0", "q5_1", "iq4_nl"])
@pytest.mark.parametrize(
    ("option", "field"),
    [
        ("-ctk", "cache_type_k"),
        ("-ctv", "cache_type_v"),
        ("-ctkd", "cache_type_k_draft"),
        ("-ctvd", "cache_type_v_draft"),
    ],
)
def test_a_quantised_cache_wants_heads_of_whole_blocks(option, field, kind):
    """A head of 80 elements cannot be packed by 32, where llama.cpp would abort."""
    odd_target, odd_drafter = a_target(head=80), a_drafter(head=80)
    ours = odd_target if option in {"-ctk", "-ctv"} else a_target()
    theirs = a_drafter() if option in {"-ctk", "-ctv"} else odd_drafter

    with pytest.raises(UsageError, match=f"{option} {kind} packs 32 .* has 80"):
        plan_sizes(ours, theirs, MemoryOptions(**{field: kind}))
    plan_sizes(a_target(), a_drafter(), MemoryOptions(**{field: kind}))


@pytest.mark.parametrize("kind", ["f32", "f16", "bf16"])
def test_an_unpacked_cache_takes_any_head(kind):
    """Only quantised types come in blocks."""
    plan_sizes(a_target(head=80), None, MemoryOptions(cache_type_k=kind, cache_type_v=kind))


def test_a_plan_beyond_memory_is_refused_with_both_figures():
    """The sentence says what is needed and what there is, the hint how to need less."""
    sizes = plan_sizes(a_target(), a_drafter(), MemoryOptions(ctx_size=2**21))

    # 4 layers x 2 heads x 64 elements x 2 bytes, twice, are 2 KiB a position: 4 GiB, and a mask
    # of 512 rows x 2 bytes makes it 6.
    with pytest.raises(DsparkError, match=r"needs 6\.\d GiB .* 1\.5 GiB are available") as refusal:
        check_memory(sizes, GIB * 3 // 2)

    assert "-c 2097152" in str(refusal.value)
    assert "smaller -c" in refusal.value.hint


@pytest.mark.parametrize("spare", [0, 1, GIB])
def test_a_plan_within_memory_passes(spare):
    """To the last byte, and also where the system does not say how much there is."""
    sizes = plan_sizes(a_target(), a_drafter(), MemoryOptions())

    check_memory(sizes, sizes.bytes + spare)
    check_memory(sizes, None)
    with pytest.raises(DsparkError):
        check_memory(sizes, sizes.bytes - 1)


def test_scores_of_attention_are_planned_where_they_are_laid_out():
    """Without flash attention a float per head, position and row, and a mask of floats."""
    plans = {
        kind: plan_sizes(a_target(), None, MemoryOptions(ctx_size=131_072, flash_attention=kind))
        for kind in ("on", "auto", "off")
    }

    assert plans["off"].target.attention_bytes == (4 + 1) * 131_072 * 512 * 4
    assert plans["on"].target.attention_bytes == 131_072 * 512 * 2
    assert plans["auto"] == plans["on"]
    with pytest.raises(DsparkError) as refusal:
        check_memory(plans["off"], GIB)
    assert "flash attention (-fa auto)" in refusal.value.hint
    check_memory(plans["on"], GIB)


# --- llama.cpp ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("ctx_size", "batch"),
    [(3, 512), (256, 2), (256, 512), (1000, 100), (1000, 512), (4096, 2), (4096, 512)],
)
def test_llama_cpp_makes_what_was_planned(dspark, target, drafter, ctx_size, batch):
    """What inspect announces is what a run then has."""
    pair = ("-m", target.path, "-md", drafter.path, "-c", ctx_size, "-b", batch)

    planned = dspark("inspect", *pair, "--json").document["sizes"]
    real = dspark("run", *pair, "-p", "a", "-n", 1, "--json").document["sizes"]

    assert real["limit"] == planned["limit"] == ctx_size
    for which in ("target", "drafter"):
        for name in ("n_ctx", "n_batch", "n_ubatch"):
            assert real[which][name] == planned[which][name], (which, name)
    assert real["drafter"]["n_batch"] == real["target"]["n_ctx"] + drafter.block_size


@pytest.mark.parametrize("flash", ["on", "off"])
@pytest.mark.parametrize("ctx_size", [4096, 65_536])
def test_llama_cpp_takes_the_buffers_that_were_planned(dspark, target, ctx_size, flash):
    """Its compute buffer holds what is planned for attention and logits, and little else."""
    options = ("-m", target.path, "-c", ctx_size, "-fa", flash)
    planned = dspark("inspect", *options, "--json").document["sizes"]["target"]

    said = dspark("run", *options, "--no-draft", "-p", "a", "-n", 1, "--verbose").err
    taken = max(float(size) for size in re.findall(r"compute buffer size = +([\d.]+) MiB", said))

    beside = taken * 2**20 - planned["attention_bytes"] - planned["logits_bytes"]
    activations = planned["n_ubatch"] * target.shape.n_embd * 4  # bytes of one matrix of them
    assert 0 <= beside < 16 * activations
