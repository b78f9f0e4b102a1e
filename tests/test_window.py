"""Drafters at length: a window over the last positions, and layers with windows of their own.

Whatever a drafter has dropped, kept or taken back on the way, it must propose what a fresh one
proposes that is given the taps which it should still hold.
"""

import json
import signal
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import pytest
from pairs import (
    Drafter,
    Mutation,
    Shape,
    Target,
    write_random_drafter,
    write_random_target,
)
from reference import DrafterReference, TargetReference

from dspark_cli import MemoryOptions, Pair, PairOptions, UsageError, open_pair
from dspark_cli.compare import compare
from dspark_cli.decode import Decoding
from dspark_cli.engine.drafter import Draft
from dspark_cli.engine.sampler import argmax
from dspark_cli.events import Round
from dspark_cli.pair import plan_pair

TRAINED = 32  # positions that the drafters here were trained on
WINDOW = 24  # three quarters of them
PROMPT = list(b"The rain in Spain stays")
LONG = (PROMPT * 9)[:190]


def memory(**options: object) -> MemoryOptions:
    kinds = dict.fromkeys(
        ("cache_type_k", "cache_type_v", "cache_type_k_draft", "cache_type_v_draft"), "f32"
    )
    return MemoryOptions(threads=1, flash_attention="off", **({"ctx_size": 256} | kinds | options))


@pytest.fixture(scope="module")
def target(tmp_path_factory) -> Target:
    return write_random_target(tmp_path_factory.mktemp("window") / "target.gguf")


@pytest.fixture(scope="module")
def drafter(target) -> Drafter:
    return write_random_drafter(
        target.path.with_name("drafter.gguf"), target, context_length=TRAINED
    )


@dataclass(frozen=True)
class Proposal:
    last: int
    position: int
    first: int  # oldest position in the drafter's memory
    draft: Draft


@dataclass
class Witness:
    """Writes down what a drafter is given and says; from time to time its draft is made right."""

    drafter: object
    proposals: list[Proposal] = field(default_factory=list)
    observed: list[np.ndarray] = field(default_factory=list)

    def propose(self, last: int, position: int, most: int) -> Draft:
        draft = self.drafter.propose(last, position, most)
        self.proposals.append(Proposal(last, position, self.drafter.first, draft))
        return draft

    def observe(self, taps: np.ndarray, position: int) -> float:
        self.observed.append(taps.copy())
        return self.drafter.observe(taps, position)


def decoded(pair: Pair, prompt: Sequence[int], limit: int) -> tuple[Witness, list[Round]]:
    pair.clear(len(prompt) - 1)
    witness = Witness(pair.drafter)
    loop = Decoding(pair.target, witness, prompt, argmax, room=pair.room, limit=limit)
    return witness, [event for event in loop if isinstance(event, Round)]


# --- the window of --draft-window ---------------------------------------------------------------


@pytest.mark.parametrize("prompt", [PROMPT, LONG], ids=["short", "long"])
def test_a_drafter_with_a_window_proposes_from_it_alone(target, drafter, prompt):
    """It forgets the oldest positions, in steps; the others stay where they are."""
    reference = DrafterReference(drafter, target)
    with open_pair(PairOptions(target.path, drafter.path, memory=memory())) as pair:
        assert pair.plan.sizes.draft_window == WINDOW
        witness, rounds = decoded(pair, prompt, 60)
    text = [*prompt, *(token for round_ in rounds for token in round_.tokens)]
    taps = TargetReference(target).forward(text).taps(drafter.taps)

    assert len(witness.proposals) > 20
    for item in witness.proposals:
        assert item.last == text[item.position]
        assert item.position - item.first <= WINDOW
        assert item.first == 0 or item.position - item.first >= WINDOW - WINDOW // 8
        rows = len(item.draft.tokens)
        block = reference.propose(taps[item.first : item.position], item.last, rows)
        assert list(item.draft.tokens) == block.proposals
    assert len({item.first for item in witness.proposals}) < len(witness.proposals) / 2


def test_a_prompt_is_not_injected_where_the_window_would_drop_it(target, drafter):
    """Of 190 rows, the last 24 are; and a run without a window injects all."""
    rows = {}
    for window in (None, 0):
        options = PairOptions(target.path, drafter.path, memory=memory(draft_window=window))
        with open_pair(options) as pair:
            rows[window] = injected = []
            decode = pair.drafter.context.decode
            pair.drafter.context.decode = lambda batch, decode=decode, injected=injected: (
                injected.append(int(batch.native.n_tokens)),
                decode(batch),
            )[1]
            pair.clear(len(LONG) - 1)
            list(Decoding(pair.target, pair.drafter, LONG, argmax, room=256, limit=0))

    assert sum(rows[None]) == WINDOW
    assert sum(rows[0]) == len(LONG) - 1


@pytest.mark.parametrize("window", [1, 2, 5, 23])
def test_any_window_will_do(target, drafter, window):
    """Even one that holds a single position; the text does not change."""
    options = PairOptions(target.path, drafter.path, memory=memory(draft_window=window))
    with open_pair(options) as pair:
        assert pair.drafter.context.n_ctx == 256  # llama.cpp's smallest
        witness, _ = decoded(pair, PROMPT, 40)
        result = compare(pair, PROMPT, limit=40)

    assert all(item.position - item.first <= window for item in witness.proposals)
    assert result.verdict == "identical"


def test_the_drafter_s_memory_does_not_grow_with_the_context(target, drafter):
    """A context of 131,072 tokens is planned with a drafter of the window and one block."""
    plans = {
        size: plan_pair(PairOptions(target.path, drafter.path, memory=memory(ctx_size=size)))
        for size in (64, 131_072)
    }

    assert plans[64].sizes.drafter == plans[131_072].sizes.drafter
    assert plans[131_072].sizes.drafter.n_ctx_requested == WINDOW + 4


def test_a_drafter_that_keeps_more_than_it_learned_is_warned_of(target, drafter):
    """Without its window it guesses worse the farther it gets."""
    options = PairOptions(target.path, drafter.path, memory=memory(draft_window=0))

    assert any("was trained on 32 positions" in warning for warning in plan_pair(options).warnings)
    quiet = PairOptions(target.path, drafter.path, memory=memory())
    assert not any("positions and keeps" in warning for warning in plan_pair(quiet).warnings)


def test_a_negative_window_is_refused():
    with pytest.raises(UsageError, match="--draft-window wants auto, 0 or a number"):
        MemoryOptions(draft_window=-1)


@pytest.mark.parametrize(("said", "window"), [("auto", WINDOW), ("0", None), ("7", 7)])
def test_the_window_is_an_option(dspark, target, drafter, said, window):
    """``inspect`` shows what a run would keep."""
    document = dspark(
        "inspect", "-m", target.path, "-md", drafter.path, "-c", 256, "--draft-window", said,
        "--json",
    ).document  # fmt: skip

    assert document["sizes"]["draft_window"] == window


def test_a_window_that_is_no_number_is_a_usage_error(dspark, target, drafter):
    outcome = dspark(
        "run", "-m", target.path, "-md", drafter.path, "-p", "a", "--draft-window", "wide"
    )

    assert outcome.code == 2
    assert "--draft-window" in outcome.err


# --- a prompt of 32 thousand tokens --------------------------------------------------------------

DEEP = 33_000  # tokens


@pytest.fixture(scope="module")
def deep(tmp_path_factory) -> list[object]:
    """Options of a run with a narrow pair that reads fast, and such a prompt."""
    folder = tmp_path_factory.mktemp("deep")
    narrow = Shape(
        n_embd=32, n_head=2, n_head_kv=1, head_dim=16, n_layer=2, n_ff=48, context_length=65_536
    )
    target = write_random_target(folder / "target.gguf", shape=narrow)
    drafter = write_random_drafter(folder / "drafter.gguf", target, taps=(0, 1))
    tokens = folder / "tokens"
    tokens.write_text(" ".join(map(str, (PROMPT * DEEP)[:DEEP])))
    return [
        "run", "-m", target.path, "-md", drafter.path, "--token-ids", tokens, "-c", 40_000,
        "-fa", "off", "--schedule", "fixed",
    ]  # fmt: skip


def test_a_long_prompt_is_read_and_gone_on_from(deep, dspark):
    """What came of its drafts is told at their depth; the drafter held its window alone."""
    done = dspark(*deep, "-n", 40, "--json")

    assert done.code == 0, done.err
    found = done.document
    assert (found["n_prompt"], found["n_predict"]) == (DEEP, 40)
    (depth,) = found["acceptance_by_depth"]
    assert (depth["from_position"], depth["to_position"]) == (32_768, 65_536)
    assert depth["num_spec_steps"] == found["num_spec_steps"] > 0
    assert found["sizes"]["drafter"]["n_ctx"] == 3328  # three quarters of 4096, a block, padded


def test_a_long_prompt_can_be_interrupted_while_it_is_read(deep):
    """Ctrl-C ends it with the next chunk at the latest, with a report of what was read."""
    command = [sys.executable, "-m", "dspark_cli", *map(str, deep), "--jsonl"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        first = json.loads(process.stdout.readline())
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)

    assert first["event"] == "prefill"
    assert first["done"] < DEEP
    result = json.loads(out.splitlines()[-1])
    assert process.returncode == 130
    assert (result["finish_reason"], result["n_predict"]) == ("interrupted", 0)
    assert b"Traceback" not in err


# --- what llama.cpp's dflash graph knows beside -------------------------------------------------

SECTIONS = {"dflash.rope.dimension_sections": [8, 0, 0, 0]}
SLIDING = {
    "dflash.attention.sliding_window": 8,
    "dflash.attention.sliding_window_pattern": [True, False],
}
SCALES = {
    "dflash.embedding_scale": 8.0,
    "dflash.attention.scale": 0.2,
    "dflash.logit_scale": 0.5,
    "dflash.final_logit_softcapping": 20.0,
    "dflash.hidden_activation": "gelu_pytorch_tanh",
}
SINKS = {f"blk.{layer}.attn_sinks.weight": np.linspace(-1, 2, 4, dtype="f4") for layer in (0, 1)}
SHARED_KV = {f"blk.{layer}.attn_v.weight": None for layer in (0, 1)}

KINDS = {
    "plain": Mutation(),
    "sliding": Mutation(metadata=SLIDING),
    "sections": Mutation(metadata=SECTIONS),
    "sliding with sections and sinks": Mutation(metadata=SLIDING | SECTIONS, tensors=SINKS),
    "scaled": Mutation(metadata=SCALES),
    "shared keys and values": Mutation(tensors=SHARED_KV),
}


@pytest.mark.parametrize("window", [None, 0], ids=["windowed", "whole"])
@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_drafter_is_as_good_as_a_fresh_one(target, tmp_path, kind, window):
    """After a run beyond every window, a clean memory with the same taps proposes the same."""
    drafter = write_random_drafter(
        tmp_path / "d.gguf", target, context_length=TRAINED, mutation=KINDS[kind]
    )
    options = PairOptions(target.path, drafter.path, memory=memory(draft_window=window))
    with open_pair(options) as pair:
        witness, _ = decoded(pair, PROMPT, 80)
        taps = np.concatenate(witness.observed)
        for item in witness.proposals[::7]:
            pair.drafter.clear(item.position)
            # As if all before were dropped.
            pair.drafter.first = pair.drafter._fed = item.first  # noqa: SLF001
            pair.drafter.observe(taps[item.first : item.position], item.first)
            fresh = pair.drafter.propose(item.last, item.position, len(item.draft.tokens))
            assert fresh.tokens == item.draft.tokens
            np.testing.assert_allclose(fresh.confidences, item.draft.confidences, atol=1e-3)
        result = compare(pair, PROMPT, limit=80)

    assert result.verdict == "identical"


def test_each_of_these_keys_changes_what_is_proposed(target, tmp_path):
    """So that the test above says something: no kind is the plain one in disguise."""
    said = {}
    for kind, mutation in KINDS.items():
        drafter = write_random_drafter(tmp_path / "d.gguf", target, mutation=mutation)
        with open_pair(PairOptions(target.path, drafter.path, memory=memory())) as pair:
            witness, _ = decoded(pair, LONG, 20)
        said[kind] = [
            (item.draft.tokens, np.round(item.draft.confidences, 3).tolist())
            for item in witness.proposals
        ]

    assert said["sections"] == said["plain"]  # for text, that is
    assert all(said[kind] != said["plain"] for kind in KINDS if kind not in {"plain", "sections"})
