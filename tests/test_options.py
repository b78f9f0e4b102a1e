"""What the user chose is checked once, and every refusal names the option."""

import dataclasses
import re
from pathlib import Path

import pytest

from dspark_cli.errors import UsageError
from dspark_cli.options import (
    KV_TYPES,
    GenerationOptions,
    MemoryOptions,
    PairOptions,
    SamplingOptions,
    usable_cores,
)

NAN = float("nan")


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"temperature": -0.1}, "--temp wants 0 or more, got -0.1"),
        ({"temperature": NAN}, "--temp wants 0 or more, got nan"),
        ({"top_k": -1}, "--top-k wants 0 or more, got -1"),
        ({"top_p": 0.0}, "--top-p wants more than 0 and at most 1, got 0.0"),
        ({"top_p": 1.01}, "--top-p wants more than 0 and at most 1, got 1.01"),
        ({"top_p": NAN}, "--top-p wants more than 0 and at most 1, got nan"),
        ({"min_p": -0.01}, "--min-p wants 0 to 1, got -0.01"),
        ({"min_p": 1.5}, "--min-p wants 0 to 1, got 1.5"),
        ({"min_p": NAN}, "--min-p wants 0 to 1, got nan"),
        ({"repeat_penalty": 0.0}, "--repeat-penalty wants more than 0, got 0.0"),
        ({"repeat_penalty": -1.0}, "--repeat-penalty wants more than 0, got -1.0"),
        ({"repeat_penalty": NAN}, "--repeat-penalty wants more than 0, got nan"),
        ({"seed": -1}, "--seed wants 0 to 4294967294, got -1"),
        ({"seed": 2**32 - 1}, "--seed wants 0 to 4294967294, got 4294967295"),
    ],
)
def test_sampling_that_cannot_be_is_refused(options, sentence):
    """Each with the option's name, what it wants and what it got; NaN is never wanted."""
    with pytest.raises(UsageError, match=f"^{re.escape(sentence)}"):
        SamplingOptions(**options)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"ctx_size": -1}, "--ctx-size wants 0 or more tokens, got -1"),
        ({"batch_size": 0}, "--batch-size wants at least 1 row, got 0"),
        ({"ubatch_size": -5}, "--ubatch-size wants at least 1 row, got -5"),
        ({"threads": 0}, "--threads wants 1 to 512 threads, got 0"),
        ({"threads_draft": -2}, "-td wants 1 to 512 threads, got -2"),
        ({"cache_type_k": "q9"}, "-ctk: unknown cache type q9, wanted one of f32, f16, "),
        ({"cache_type_v": "q8"}, "-ctv: unknown cache type q8, wanted one of "),
        ({"cache_type_k_draft": "F16"}, "-ctkd: unknown cache type F16, wanted one of "),
        ({"cache_type_v_draft": ""}, "-ctvd: unknown cache type , wanted one of "),
    ],
)
def test_memory_that_cannot_be_is_refused(options, sentence):
    """Each with the option's name, what it wants and what it got."""
    with pytest.raises(UsageError, match=f"^{re.escape(sentence)}"):
        MemoryOptions(**options)


@pytest.mark.parametrize(
    ("options", "names"),
    [
        ({"cache_type_v": "q8_0"}, "-ctv"),
        ({"cache_type_v_draft": "q4_0"}, "-ctvd"),
        ({"cache_type_v": "q8_0", "cache_type_v_draft": "iq4_nl"}, "-ctv, -ctvd"),
    ],
)
def test_a_quantised_v_cache_needs_flash_attention(options, names):
    """Public report lc#25191: llama.cpp aborts on it; here it is said, and only where it is so."""
    with pytest.raises(UsageError, match=rf"V cache \({names}\) needs flash attention") as refused:
        MemoryOptions(flash_attention="off", **options)
    assert "-fa off" in str(refused.value)
    MemoryOptions(flash_attention="auto", **options)
    MemoryOptions(flash_attention="on", **options)


@pytest.mark.parametrize("kind", ["f32", "f16", "bf16"])
def test_an_unquantised_v_cache_goes_without_flash_attention(kind):
    """And a quantised K cache does too."""
    MemoryOptions(flash_attention="off", cache_type_v=kind, cache_type_v_draft=kind)
    MemoryOptions(flash_attention="off", cache_type_k="q8_0", cache_type_k_draft="q4_0")


@pytest.mark.parametrize("kind", KV_TYPES)
def test_every_cache_type_of_llama_cpp_is_known(kind):
    """For all four caches."""
    MemoryOptions(
        cache_type_k=kind, cache_type_v=kind, cache_type_k_draft=kind, cache_type_v_draft=kind
    )


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"n_predict": -2}, "-n wants -1 (no limit) or more tokens, got -2"),
        ({"stops": ("",)}, "--stop wants a text, got an empty one"),
        ({"stops": ("end", "")}, "--stop wants a text, got an empty one"),
    ],
)
def test_a_generation_that_cannot_be_is_refused(options, sentence):
    """An empty stop text would end every run before it began."""
    with pytest.raises(UsageError, match=f"^{re.escape(sentence)}$"):
        GenerationOptions(**options)


@pytest.mark.parametrize(
    ("kind", "options"),
    [
        (SamplingOptions, {"temperature": 0.0, "top_k": 0, "top_p": 1.0, "min_p": 0.0}),
        (SamplingOptions, {"top_p": 0.001, "min_p": 1.0, "repeat_penalty": 0.001}),
        (SamplingOptions, {"seed": 0}),
        (SamplingOptions, {"seed": 2**32 - 2}),
        (MemoryOptions, {"ctx_size": 0, "batch_size": 1, "ubatch_size": 1}),
        (MemoryOptions, {"threads": 1, "threads_draft": 1}),
        (GenerationOptions, {"n_predict": -1}),
        (GenerationOptions, {"n_predict": 0, "stops": (" ", "\n")}),
    ],
)
def test_the_last_values_that_can_be_are_taken(kind, options):
    """Limits belong to what they limit."""
    taken = kind(**options)

    assert {name: getattr(taken, name) for name in options} == options


@pytest.mark.parametrize(
    ("options", "greedy", "argmax"),
    [
        ({}, True, True),
        ({"temperature": 0.1}, False, False),
        ({"repeat_penalty": 1.1}, True, False),
        ({"ignore_eos": True}, True, False),
        ({"top_k": 1, "top_p": 0.1, "min_p": 0.9, "seed": 7}, True, True),
    ],
)
def test_greedy_is_the_default(options, greedy, argmax):
    """At temperature 0 nothing is drawn; only what changes logits makes it more than an argmax."""
    sampling = SamplingOptions(**options)

    assert sampling.greedy is greedy
    assert sampling.argmax is argmax


@pytest.mark.parametrize(
    ("threads", "threads_draft", "of_target", "of_drafter"),
    [
        (None, None, usable_cores(), usable_cores()),
        (3, None, 3, 3),
        (3, 1, 3, 1),
        (None, 2, usable_cores(), 2),
    ],
)
def test_the_drafter_takes_the_target_s_threads(threads, threads_draft, of_target, of_drafter):
    """Unless it was given its own; every usable core where nobody said anything."""
    memory = MemoryOptions(threads=threads, threads_draft=threads_draft)

    assert memory.target_threads == of_target
    assert memory.drafter_threads == of_drafter


def test_there_is_a_core_to_run_on():
    """Whatever the system says about itself."""
    assert usable_cores() >= 1


def test_a_stop_text_that_is_no_unicode_is_refused():
    """A shell hands over any bytes; such a text could not be found in UTF-8."""
    with pytest.raises(UsageError, match=r"^--stop "):
        GenerationOptions(stops=(b"\xff".decode(errors="surrogateescape"),))


@pytest.mark.parametrize(
    "options",
    [SamplingOptions(), MemoryOptions(), PairOptions(Path("model.gguf")), GenerationOptions()],
)
def test_options_do_not_change_once_they_are_checked(options):
    """What was true at the door stays true."""
    first = dataclasses.fields(options)[0].name
    with pytest.raises(dataclasses.FrozenInstanceError):
        setattr(options, first, None)
