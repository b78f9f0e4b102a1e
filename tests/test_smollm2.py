"""The real pair: SmolLM2-135M-Instruct as Q4_1, and the drafter in the package's assets."""

import json
import os
import subprocess
import sys
from contextlib import closing

import llama_cpp
import llama_cpp.llama_cpp as bindings
import numpy as np
import pytest
from test_compare import FAULTS, first_difference

from dspark_cli import (
    Generation,
    GenerationOptions,
    MemoryOptions,
    PairOptions,
    SamplingOptions,
    chat_prompt,
    find_drafter,
    find_target,
    open_pair,
    raw_prompt,
)
from dspark_cli.compare import compare
from dspark_cli.engine.model import repacking_is_safe
from dspark_cli.engine.taps import Taps
from dspark_cli.equivalence import Summary
from dspark_cli.models import installed_smollm2

pytestmark = [
    pytest.mark.model,
    pytest.mark.skipif(installed_smollm2() is None, reason="needs the extra smollm2"),
]

RAINBOWS = "Explain rainbows to a child."
SUBJECTS = [
    "the sea",
    "a clock",
    "bread",
    "winter",
    "a bridge",
    "the moon",
    "salt",
    "a violin",
    "rust",
]
PROMPTS = [
    *(f"Tell me something about {subject}." for subject in SUBJECTS),
    *(f"The most important fact about {subject} is" for subject in SUBJECTS),
    "def fibonacci(n):\n",
    "1, 2, 4, 8, 16,",
]


@pytest.fixture(scope="module")
def pair():
    options = PairOptions(
        find_target("smollm2"), find_drafter("smollm2"), memory=MemoryOptions(ctx_size=512)
    )
    with open_pair(options) as opened:
        yield opened


@pytest.fixture(scope="module")
def plain():
    options = PairOptions(find_target("smollm2"), memory=MemoryOptions(ctx_size=512))
    with open_pair(options) as opened:
        yield opened


def finish(pair, prompt: list[int], n_predict: int, **options: object) -> Generation:
    run = Generation(pair, prompt, GenerationOptions(n_predict=n_predict, **options))
    for _ in run:
        pass
    return run


def test_the_drafter_is_credited_with_real_work(pair, plain):
    """Some drafts of a sensible answer are accepted, and the answer is the plain one's."""
    prompt = chat_prompt(pair, RAINBOWS)
    run = finish(pair, prompt, 64)

    assert "rainbow" in run.text.lower()
    assert run.statistics.num_accepted_draft_tokens > 0
    assert 1 < run.statistics.mean_acceptance_length < 6
    assert 0 < run.statistics.mean_confidence < 1
    assert len(run.statistics.acceptance_rate_per_pos) == 5
    assert run.tokens == finish(plain, prompt, 64).tokens


def test_the_chat_template_is_the_target_s_own(pair):
    """Special tokens are parsed, and the template's own system message stands in front."""
    vocabulary = pair.vocabulary
    tokens = chat_prompt(pair, RAINBOWS)

    text = "".join(map(vocabulary.text, tokens))
    assert text.startswith("<|im_start|>system\nYou are a helpful AI assistant named SmolLM")
    assert text.endswith(f"<|im_start|>user\n{RAINBOWS}<|im_end|>\n<|im_start|>assistant\n")
    assert tokens.count(vocabulary.bos) == 3, "its BOS is <|im_start|>, once per message"


def test_the_same_seed_gives_the_same_text_with_and_without_the_drafter(pair, plain):
    sampling = SamplingOptions(temperature=0.8, seed=11)
    prompt = chat_prompt(pair, RAINBOWS)

    ours = finish(pair, prompt, 40, sampling=sampling)

    assert ours.tokens == finish(plain, prompt, 40, sampling=sampling).tokens
    assert ours.tokens != finish(plain, prompt, 40).tokens


@pytest.mark.parametrize("flash_attention", ["auto", "off"])
def test_plain_greedy_text_is_that_of_llama_cpp_python_s_own_loop(flash_attention, monkeypatch):
    """Twenty prompts, another implementation of the same job, the same attention kernel.

    The kernels differ by up to 0.3 in logits on this file, enough to part at a near-tie;
    ``Llama`` leaves flash attention off unless told, llama.cpp's runners choose by themselves.
    """
    defaults = bindings.llama_model_default_params

    def without_repacking():
        # ``Llama`` has no such option, and its AMX kernels end the process (see engine/model).
        params = defaults()
        params.use_extra_bufts = repacking_is_safe(bindings.llama_print_system_info().decode())
        return params

    monkeypatch.setattr(bindings, "llama_model_default_params", without_repacking)
    memory = MemoryOptions(ctx_size=512, flash_attention=flash_attention)
    llama = llama_cpp.Llama(
        str(find_target("smollm2")),
        n_ctx=512,
        flash_attn=flash_attention == "auto",
        verbose=False,
    )
    with closing(llama), open_pair(PairOptions(find_target("smollm2"), memory=memory)) as plain:
        assert len(PROMPTS) == 20
        for prompt in PROMPTS:
            theirs = llama.create_completion(prompt, max_tokens=24, temperature=0.0)
            ours = finish(plain, raw_prompt(plain, prompt), 24)
            assert ours.text == theirs["choices"][0]["text"]


def test_python_takes_little_of_the_decode_time(pair):
    """The JSON shows what is spent outside llama.cpp; its parts add up to the whole."""
    timings = finish(pair, chat_prompt(pair, RAINBOWS), 32).as_json()["timings"]

    names = ("draft", "score", "inject", "rollback", "other")
    parts = [timings[f"{name}_seconds"] for name in names]
    assert sum(parts) == pytest.approx(timings["decode_seconds"])
    assert timings["other_share"] == timings["other_seconds"] / timings["decode_seconds"]


def test_a_wrong_n_max_is_refused_with_the_seed_s_sentence():
    done = subprocess.run(
        [sys.executable, "-m", "dspark_cli", "run", "-m", "smollm2", "-p", "x",
         "--spec-draft-n-max", "3"],
        capture_output=True, text=True, check=False, env=os.environ,
    )  # fmt: skip

    assert done.returncode == 4
    assert done.stdout == ""
    assert done.stderr == (
        "error: draft-dspark: --spec-draft-n-max (3) must equal the drafter's block_size (5)\n"
    )


def test_inspect_finds_that_the_pair_fits():
    done = subprocess.run(
        [sys.executable, "-m", "dspark_cli", "inspect", "-m", "smollm2", "--json"],
        capture_output=True, text=True, check=True, env=os.environ,
    )  # fmt: skip

    document = json.loads(done.stdout)
    assert document["fits"] is True
    assert document["drafter"]["taps"] == [2, 8, 15, 22, 29]
    # It was trained on texts of up to 448 tokens, and keeps three quarters of that.
    assert document["sizes"]["draft_window"] == 336
    assert document["sizes"]["drafter"]["n_batch"] == 336 + 5
    # 5 taps of 576 floats for each of the 512 rows of a prefill chunk
    assert document["sizes"]["target"]["tap_bytes"] == 5 * 576 * 512 * 4


@pytest.mark.parametrize("fault", FAULTS)
def test_a_planted_fault_is_found_on_a_real_pair(pair, fault):
    """Where it first shows, with the token that the target would have said."""
    found = compare(pair, chat_prompt(pair, RAINBOWS), limit=32, loop=fault)

    assert found.verdict == "diverged"
    assert found.parting.position == first_difference(found)
    assert found.parting.plain == found.plain.tokens[found.parting.position]
    assert found.parting.gap > found.tolerance


def test_a_sound_loop_is_equivalent_on_a_real_pair(pair):
    for prompt in PROMPTS[:4]:
        found = compare(pair, chat_prompt(pair, prompt), limit=32)
        assert found.verdict in {"identical", "tie"}
        assert found.largest_gap <= (found.tolerance or 0)


def test_wrong_taps_lower_tau_and_leave_the_verdict(pair, monkeypatch):
    """Fed with its taps in reverse order or with noise, the drafter only gets worse."""
    read = Taps.read
    noise = np.random.default_rng(0)

    def reversed_taps(self, rows: int) -> np.ndarray:
        taps = read(self, rows)
        return taps.reshape(rows, 5, -1)[:, ::-1].reshape(taps.shape)

    def random_taps(self, rows: int) -> np.ndarray:
        taps = read(self, rows)
        return (taps.std() * noise.standard_normal(taps.shape)).astype(np.float32)

    def tau(taps) -> float:
        monkeypatch.setattr(Taps, "read", taps)
        summary = Summary()
        for prompt in PROMPTS[:6]:
            summary.add(compare(pair, chat_prompt(pair, prompt), limit=48))
        assert summary.diverged == 0
        return summary.tau

    right = tau(read)
    assert tau(reversed_taps) < right
    assert tau(random_taps) < right
