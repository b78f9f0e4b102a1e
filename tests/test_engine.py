"""The engine against an independent forward pass, on pairs whose every weight matters.

Counting cannot see a tap that is off by one layer, a row at a wrong position or memory that keeps
a rejected token: the numbers can. K/V caches are F32 and flash attention is off here, since flash
attention rounds to F16.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import numpy as np
import pytest
from pairs import (
    Drafter,
    Mutation,
    Target,
    write_random_drafter,
    write_random_target,
    write_taught_drafter,
)
from reference import DrafterReference, TargetReference, greedy

from dspark_cli import MemoryOptions, Pair, PairOptions, open_pair
from dspark_cli.contract import read_drafter
from dspark_cli.decode import Decoding
from dspark_cli.engine.sampler import argmax
from dspark_cli.errors import LlamaError
from dspark_cli.events import Round
from dspark_cli.metadata import read_metadata

EXACT = MemoryOptions(
    ctx_size=256,
    threads=1,
    flash_attention="off",
    cache_type_k="f32",
    cache_type_v="f32",
    cache_type_k_draft="f32",
    cache_type_v_draft="f32",
)
PROMPT = list(b"The rain in Spain stays")
TOLERANCE = {"rtol": 2e-3, "atol": 2e-3}  # of logits that reach about 10


@contextmanager
def opened(target: Target, drafter: Drafter | None, memory=EXACT) -> Iterator[Pair]:
    options = PairOptions(target.path, drafter.path if drafter else None, memory=memory)
    with open_pair(options) as pair:
        pair.clear()
        yield pair


@dataclass
class Witness:
    """Stands between the loop and a drafter and writes down what passes."""

    drafter: object
    proposals: list[tuple[int, int, object]] = field(default_factory=list)
    observed: list[tuple[int, np.ndarray]] = field(default_factory=list)

    def propose(self, last: int, position: int, most: int):
        draft = self.drafter.propose(last, position, most)
        self.proposals.append((last, position, draft))
        return draft

    def observe(self, taps: np.ndarray, position: int) -> float:
        self.observed.append((position, taps.copy()))
        return self.drafter.observe(taps, position)


def decode(pair: Pair, limit: int) -> tuple[list[int], list[Round], Witness]:
    witness = Witness(pair.drafter)
    rounds = [
        event
        for event in Decoding(pair.target, witness, PROMPT, argmax, room=pair.room, limit=limit)
        if isinstance(event, Round)
    ]
    return [token for round_ in rounds for token in round_.tokens], rounds, witness


def drafters(target: Target, folder) -> dict[str, Drafter]:
    """One drafter of each kind for the same target."""
    few = sorted({*range(32, 127, 2), *PROMPT})
    kinds = {
        "borrowing": {},
        "with its own embeddings": {"own_embeddings": True},
        "without confidence": {"confidence": False},
        "with a draft vocabulary": {"draft_vocab": few},
        "bonus-anchor": {"sample_from_anchor": False},
        "DFlash": {"markov_rank": None},
        "with three taps": {"taps": (0, 2, 3)},
        "of block 1": {"block_size": 1},
        "of block 7": {"block_size": 7},
    }
    return {
        name: write_random_drafter(folder / f"{name}.gguf", target, **options)
        for name, options in kinds.items()
    }


KINDS = [
    "borrowing",
    "with its own embeddings",
    "without confidence",
    "with a draft vocabulary",
    "bonus-anchor",
    "DFlash",
    "with three taps",
    "of block 1",
    "of block 7",
]


@pytest.fixture(scope="module", params=["llama", "qwen3"])
def target(request, tmp_path_factory):
    path = tmp_path_factory.mktemp(request.param) / "target.gguf"
    return write_random_target(path, arch=request.param)


@pytest.fixture(scope="module")
def reference(target):
    return TargetReference(target)


@pytest.fixture(scope="module")
def taught(target, reference, tmp_path_factory):
    """A drafter that is right now and then, so that drafts are rejected in part."""
    text = greedy(reference, PROMPT, 60)
    return write_taught_drafter(
        tmp_path_factory.mktemp("taught") / "drafter.gguf", target, [[PROMPT[-1], *text]]
    )


def check_against_reference(
    target: Target, drafter: Drafter, tokens: list[int], rounds: list[Round], witness: Witness
) -> None:
    """Every draft, confidence and injected row of a run, computed anew from the whole text."""
    text = [*PROMPT, *tokens]
    forward = TargetReference(target).forward(text)
    taps = forward.taps(drafter.taps)
    judge = DrafterReference(drafter, target)
    for last, position, draft in witness.proposals:
        assert last == text[position]
        rows = len(draft.tokens) + drafter.first_row
        block = judge.propose(taps[:position], last, rows)
        assert list(draft.tokens) == block.proposals
        if block.confidences is not None:
            np.testing.assert_allclose(draft.confidences, block.confidences, atol=1e-3)
    due = 0
    for position, rows in witness.observed:
        assert position == due
        np.testing.assert_allclose(rows, taps[position : position + len(rows)], **TOLERANCE)
        due += len(rows)
    assert due == len(text) - 1
    assert sum(len(round_.tokens) for round_ in rounds) == len(tokens)


@pytest.mark.parametrize("kind", KINDS)
def test_drafts_confidences_and_injected_rows_are_the_reference_s(
    target, reference, tmp_path, kind
):
    """Whatever the drafter's kind: the loop feeds it the layer inputs and reads it right."""
    drafter = drafters(target, tmp_path)[kind]
    with opened(target, drafter) as pair:
        tokens, rounds, witness = decode(pair, 24)

    assert tokens == greedy(reference, PROMPT, 24)
    check_against_reference(target, drafter, tokens, rounds, witness)


def test_nothing_of_a_rejected_draft_stays_behind(target, reference, taught):
    """After rounds that kept all or some of a draft, both memories hold the text alone."""
    with opened(target, taught) as pair:
        tokens, rounds, witness = decode(pair, 60)
        assert pair.target.context.held == len(PROMPT) + 60 - 1
        assert pair.drafter.context.held == len(PROMPT) + 60 - 1

    assert any(round_.accepted == round_.scored for round_ in rounds)
    assert any(0 < round_.accepted < round_.scored for round_ in rounds)
    assert tokens == greedy(reference, PROMPT, 60)
    check_against_reference(target, taught, tokens, rounds, witness)


@pytest.mark.parametrize("batch_size", [1, 3, 8, 22, 23, 512])
def test_the_prompt_s_chunks_do_not_show(target, taught, batch_size):
    """Prefill in any pieces injects the same rows at the same positions."""
    memory = MemoryOptions(
        ctx_size=256, threads=1, batch_size=batch_size, flash_attention="off",
        cache_type_k="f32", cache_type_v="f32",
        cache_type_k_draft="f32", cache_type_v_draft="f32",
    )  # fmt: skip
    with opened(target, taught, memory) as pair:
        tokens, rounds, witness = decode(pair, 20)

    check_against_reference(target, taught, tokens, rounds, witness)


def test_a_prompt_longer_than_the_drafter_s_ubatch_is_injected_in_pieces(target, tmp_path):
    """Non-causal attention allows no more rows than n_ubatch in one decode: lc#18757."""
    drafter = write_random_drafter(tmp_path / "d.gguf", target)
    text = (PROMPT * 9)[:150]
    with opened(target, drafter) as pair:
        witness = Witness(pair.drafter)
        list(Decoding(pair.target, witness, text, argmax, room=256, limit=3))

    taps = TargetReference(target).forward(text).taps(drafter.taps)
    last, position, draft = witness.proposals[0]
    block = DrafterReference(drafter, target).propose(taps[:position], last, 2)
    assert (last, position) == (text[-1], 149)
    assert list(draft.tokens) == block.proposals


def test_a_plain_target_s_logits_are_the_reference_s(target, reference):
    """One token at a time, with a past in memory."""
    text = [*PROMPT, *greedy(reference, PROMPT, 4)]
    expected = reference.forward(text).logits
    with opened(target, None) as pair:
        pair.target.read(text[:20], 0)
        for position in range(20, len(text)):
            scored = pair.target.score([text[position]], position)
            np.testing.assert_allclose(scored.logits[0], expected[position], **TOLERANCE)


def test_scored_rows_keep_their_order(target, reference, taught):
    """Row i judges the token after the i-th: checked against the whole text's logits."""
    text = [*PROMPT, *greedy(reference, PROMPT, 12)]
    expected = reference.forward(text).logits
    with opened(target, taught) as pair:
        pair.target.read(text[:20], 0)
        scored = pair.target.score(text[20:25], 20)
        for row in range(5):
            np.testing.assert_allclose(scored.logits[row], expected[20 + row], **TOLERANCE)
        with pytest.raises(IndexError, match="row 5 of 5"):
            scored.logits[5]
        with pytest.raises(IndexError, match="row -1 of 5"):
            scored.logits[-1]


def test_an_mrope_drafter_proposes_what_its_plain_rope_twin_does(target, tmp_path):
    """Sections [head/2, 0, 0, 0] turn text as NEOX does; embedding rows carry four positions."""
    plain = write_random_drafter(tmp_path / "plain.gguf", target)
    sections = [target.shape.head_dim // 2, 0, 0, 0]
    mrope = write_random_drafter(
        tmp_path / "mrope.gguf",
        target,
        mutation=Mutation(metadata={"dflash.rope.dimension_sections": sections}),
    )
    assert read_drafter(read_metadata(mrope.path)).mrope
    with opened(target, mrope) as pair:
        tokens, rounds, witness = decode(pair, 20)

    check_against_reference(target, plain, tokens, rounds, witness)


def test_llama_cpp_refuses_a_memory_that_was_not_rewound(target, taught):
    """Such a fault ends in exit code 5, never in silence."""
    with opened(target, taught) as pair:
        pair.target.read(PROMPT, 0)
        pair.target.score([1, 2, 3], len(PROMPT))

        with pytest.raises(
            LlamaError, match=r"refused a batch of the target \(llama_decode = -1\)"
        ):
            pair.target.score([1], len(PROMPT) + 1)


def test_llama_cpp_refuses_a_gap_in_the_positions(target, taught):
    with opened(target, taught) as pair:
        pair.target.read(PROMPT, 0)

        with pytest.raises(LlamaError, match="refused a batch of the target"):
            pair.target.score([1], len(PROMPT) + 2)


def test_taps_out_of_order_are_refused(target, taught):
    """Rows must come for every position once: a skipped one would draft from a hole."""
    with opened(target, taught) as pair:
        pair.target.read(PROMPT, 0)
        taps = pair.target.taps(len(PROMPT))

        with pytest.raises(LlamaError, match="taps of position 1 came when 0 was due"):
            pair.drafter.observe(taps, 1)
