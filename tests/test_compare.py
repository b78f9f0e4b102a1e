"""Planted faults are found at their place; rounding is not taken for one."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
from pairs import (
    EOS,
    Drafter,
    Target,
    write_random_drafter,
    write_random_target,
    write_rigged_drafter,
    write_rigged_target,
    write_taught_drafter,
)
from reference import TargetReference, greedy

from dspark_cli import MemoryOptions, Pair, PairOptions, SamplingOptions, open_pair
from dspark_cli.compare import compare
from dspark_cli.decode import Decoding
from dspark_cli.engine.taps import Taps
from dspark_cli.engine.target import LogitRows
from dspark_cli.equivalence import Comparison, Summary
from dspark_cli.errors import LlamaError
from dspark_cli.events import Round
from dspark_cli.verify import Verdict, verify

PROMPT = list(b"The rain in Spain stays")
LIMIT = 80
ROUNDING = 0.02  # logits; what widths change by themselves
BLUR = 1.0  # logits; some of the text's choices are closer than that


@contextmanager
def opened(target: Target, drafter: Drafter, ctx_size: int = 256) -> Iterator[Pair]:
    memory = MemoryOptions(ctx_size=ctx_size, threads=1)
    with open_pair(PairOptions(target.path, drafter.path, memory=memory)) as pair:
        yield pair


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    return tmp_path_factory.mktemp("compare")


@pytest.fixture(scope="module")
def sensitive(folder) -> Target:
    """A target whose every next token depends on the whole text."""
    return write_random_target(folder / "target.gguf")


@pytest.fixture(scope="module")
def taught(folder, sensitive) -> Drafter:
    """A drafter that is right about half the time."""
    text = greedy(TargetReference(sensitive), PROMPT, LIMIT)
    return write_taught_drafter(folder / "taught.gguf", sensitive, [[PROMPT[-1], *text]])


@pytest.fixture(scope="module")
def pair(sensitive, taught):
    with opened(sensitive, taught) as both:
        yield both


# --- what is right is identical ------------------------------------------------------------------


@pytest.mark.parametrize("limit", [0, 1, 2, 5, LIMIT])
def test_a_sound_loop_is_identical(pair, limit):
    """The same tokens as plain greedy decoding, and the numbers of the run beside it."""
    found = compare(pair, PROMPT, limit=limit)

    assert found.verdict == "identical"
    assert found.compared == limit
    assert found.parting is None
    assert found.largest_gap == 0
    if limit == LIMIT:
        assert 1.5 < found.statistics.mean_acceptance_length < 5
        assert 0 < found.statistics.draft_acceptance_rate < 1


def test_acceptance_has_no_say_in_the_verdict(folder, sensitive):
    """A drafter that is always wrong changes nothing but the time."""
    stranger = write_random_drafter(folder / "stranger.gguf", sensitive, seed=9)
    with opened(sensitive, stranger) as pair:
        found = compare(pair, PROMPT, limit=LIMIT)

    assert found.verdict == "identical"
    assert found.statistics.looks_foreign


def test_a_full_context_ends_both_runs_alike(sensitive, taught):
    with opened(sensitive, taught, ctx_size=64) as pair:
        found = compare(pair, PROMPT, limit=None)

    assert found.verdict == "identical"
    assert found.plain.reason == found.speculative.reason == "context_full"
    assert found.compared == 64 - len(PROMPT) + 1


# --- planted faults ------------------------------------------------------------------------------


class Faulty(Decoding):
    """The decode loop once more, with places where a fault can be put."""

    def _round(self):
        began = self.position
        draft = self._propose()
        rows = self.rows(self.target.score([self.last, *draft.tokens], began).logits)
        verdict = self.judged(verify(draft.tokens, rows, self.choose), draft.tokens, rows)
        tokens, reason = self._commit(verdict.tokens(draft.tokens))
        kept = self.kept(len(tokens), len(draft.tokens))
        if reason is None:
            self.drafter.observe(self.target.taps(kept), began)
        self.position += kept
        self.forget(self.position)
        self.last = tokens[-1]
        self.produced += len(tokens)
        yield self.told(tokens, began, draft, verdict)
        return reason

    def told(self, tokens, began, draft, verdict):
        accepted = min(verdict.accepted, len(tokens))
        return Round(tokens, began, len(draft.tokens), len(draft.tokens), accepted, 0)

    def rows(self, logits):
        return logits

    def judged(self, verdict, draft, rows):  # noqa: ARG002
        return verdict

    def kept(self, committed, drafted):  # noqa: ARG002
        return committed

    def forget(self, position):
        self.target.rewind(position)


class BonusOfTheRowBefore(Faulty):
    def judged(self, verdict, draft, rows):  # noqa: ARG002
        if not verdict.accepted:
            return verdict
        return Verdict(verdict.accepted, int(rows[verdict.accepted - 1].argmax()))


class OneTokenTooMany(Faulty):
    def judged(self, verdict, draft, rows):
        if verdict.accepted == len(draft):
            return verdict
        return Verdict(verdict.accepted + 1, int(rows[verdict.accepted + 1].argmax()))


class RowsReversed(Faulty):
    def rows(self, logits):
        return [logits[row] for row in reversed(range(len(logits)))]


class KeepsARejectedToken(Faulty):
    """Positions stay consistent: everything later stands one further on."""

    def kept(self, committed, drafted):
        return committed + 1 if committed <= drafted else committed


FAULTS = [BonusOfTheRowBefore, OneTokenTooMany, RowsReversed, KeepsARejectedToken]


def first_difference(found: Comparison) -> int:
    pairs = zip(found.plain.tokens, found.speculative.tokens, strict=False)
    return next(index for index, (one, other) in enumerate(pairs) if one != other)


def test_the_loop_of_the_faults_is_sound_without_one(pair):
    assert compare(pair, PROMPT, limit=LIMIT, loop=Faulty).verdict == "identical"


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_is_found_where_it_first_shows(pair, fault):
    """The first token that is not the target's own, with the one it would have been."""
    found = compare(pair, PROMPT, limit=LIMIT, loop=fault)

    parting = found.parting
    assert found.verdict == "diverged"
    assert parting.position == first_difference(found)
    assert parting.plain == found.plain.tokens[parting.position]
    assert parting.speculative == found.speculative.tokens[parting.position]
    assert parting.plain_logit > parting.speculative_logit
    assert parting.gap > found.tolerance
    assert "prefers another token" in found.why


def test_a_fault_behind_a_tie_is_found(pair, monkeypatch):
    """A tie excuses its own token and nothing that follows."""

    class TieThenFault(Faulty):
        def judged(self, verdict, draft, rows):
            if self.produced > 20:
                return OneTokenTooMany.judged(self, verdict, draft, rows)
            return verdict

    blur(monkeypatch, BLUR)
    tie = compare(pair, PROMPT, limit=LIMIT)
    assert tie.verdict == "tie"
    found = compare(pair, PROMPT, limit=LIMIT, loop=TieThenFault)

    assert found.verdict == "diverged"
    assert found.parting.position > tie.parting.position
    assert found.parting.position > 20


def test_a_token_dropped_at_the_end_of_the_context_is_a_wrong_end(sensitive, taught):
    class OneTooShort(Decoding):
        def _exhausted(self):
            return "context_full" if self.position >= self.room - 1 else None

        def _propose(self):
            self.room -= 1
            draft = super()._propose()
            self.room += 1
            return draft

    with opened(sensitive, taught, ctx_size=64) as pair:
        found = compare(pair, PROMPT, limit=None, loop=OneTooShort)

    count = 64 - len(PROMPT)
    assert found.verdict == "diverged"
    assert found.parting.position == count
    assert (found.parting.plain, found.parting.speculative) == (found.plain.tokens[count], None)
    assert found.why == f"the text ends with context_full after {count} tokens, which is wrong"


def test_an_end_inside_a_draft_that_does_not_end_the_text_is_a_wrong_end(tmp_path):
    class DeafToEnds(Decoding):
        def _commit(self, chosen):
            return chosen, self.ends(chosen[-1])

    def until(token: int) -> int:
        return {ord("e"): EOS, EOS: ord("a")}.get(token, (token + 1) % 256)

    target = write_rigged_target(tmp_path / "t.gguf", next_token=until)
    drafter = write_rigged_drafter(tmp_path / "d.gguf", target, knows=until, block_size=7)
    with opened(target, drafter) as pair:
        assert compare(pair, [ord("a")], limit=30).verdict == "identical"
        found = compare(pair, [ord("a")], limit=30, loop=DeafToEnds)

    assert found.verdict == "diverged"
    assert found.parting.position == 5
    assert found.parting.plain is None
    assert found.parting.speculative == ord("a")
    assert found.why == "an end-of-generation token did not end the text"


def test_more_tokens_than_asked_for_are_a_wrong_end(pair):
    class OneMore(Decoding):
        def __post_init__(self):
            Decoding.__post_init__(self)
            self.limit += 1

    found = compare(pair, PROMPT, limit=12, loop=OneMore)

    assert found.verdict == "diverged"
    assert found.parting.position == 13
    assert found.why == "the text ends with length after 13 tokens, which is wrong"


# --- what llama.cpp refuses, and what only costs speed -------------------------------------------


class NeverRewinds(Faulty):
    def forget(self, position):
        pass


class LeavesAGap(Faulty):
    def kept(self, committed, drafted):
        return committed + drafted + 1


@pytest.mark.parametrize("fault", [NeverRewinds, LeavesAGap])
def test_a_fault_that_llama_cpp_refuses_ends_in_exit_code_5(pair, fault):
    """Never in silence, and never in a verdict."""
    with pytest.raises(LlamaError) as refusal:
        compare(pair, PROMPT, limit=LIMIT, loop=fault)
    assert refusal.value.exit_code == 5


def test_a_block_left_in_the_drafter_s_memory_ends_in_exit_code_5(pair, monkeypatch):
    monkeypatch.setattr(pair.drafter.context, "rewind", lambda _: None)

    with pytest.raises(LlamaError, match="refused a batch of the drafter"):
        compare(pair, PROMPT, limit=LIMIT)


@pytest.mark.parametrize("damage", [np.zeros_like, lambda rows: rows[:, ::-1]])
def test_wrong_taps_cost_speed_alone(folder, sensitive, monkeypatch, damage):
    """The verdict stays identical, whatever the drafter is fed."""
    drafter = write_random_drafter(folder / "random.gguf", sensitive)
    read = Taps.read
    monkeypatch.setattr(Taps, "read", lambda self, rows: damage(read(self, rows)))
    with opened(sensitive, drafter) as pair:
        assert compare(pair, PROMPT, limit=LIMIT).verdict == "identical"


# --- rounding ------------------------------------------------------------------------------------


def blur(monkeypatch, size: float) -> None:
    """Let rows that are scored together come out lower at their peak, as another kernel might."""
    exact = LogitRows.__getitem__

    def rounded(self, row: int) -> np.ndarray:
        logits = exact(self, row)
        if len(self) > 1:
            logits[logits.argmax()] -= size
        return logits

    monkeypatch.setattr(LogitRows, "__getitem__", rounded)


@pytest.mark.parametrize("size", [BLUR, 2 * BLUR])
def test_texts_that_part_by_rounding_are_a_tie(pair, monkeypatch, size):
    """The tolerance is twice what the widths change on this text; the gap at the tie is less."""
    blur(monkeypatch, size)

    found = compare(pair, PROMPT, limit=LIMIT)

    assert found.verdict == "tie"
    assert found.plain.tokens != found.speculative.tokens
    assert found.parting.position == first_difference(found)
    assert found.tolerance == pytest.approx(2 * size, abs=ROUNDING)
    assert 0 <= found.parting.gap <= size + ROUNDING
    assert found.parting.gap <= found.largest_gap <= size + ROUNDING


def test_a_wrong_choice_is_no_tie_however_close_it_is(pair, monkeypatch):
    """Where rounding is coarse, the same batches once more tell a fault from a tie."""

    class TakesTheRunnerUp(Faulty):
        def judged(self, verdict, draft, rows):  # noqa: ARG002
            if self.produced < 10:
                return verdict
            best, second = rows[verdict.accepted].argsort()[:-3:-1]
            closeness = rows[verdict.accepted][best] - rows[verdict.accepted][second]
            return Verdict(verdict.accepted, int(second if closeness < BLUR else best))

    blur(monkeypatch, 4 * BLUR)

    found = compare(pair, PROMPT, limit=LIMIT, loop=TakesTheRunnerUp)

    assert found.verdict == "diverged"
    assert 0 < found.parting.gap < found.tolerance
    assert found.why == "the target prefers another token, alone and in the same batches"


def test_a_given_tolerance_replaces_the_measured_one(pair, monkeypatch):
    """A strict one makes of the tie a divergence, a lax one of a fault a tie."""
    blur(monkeypatch, BLUR)
    strict = compare(pair, PROMPT, limit=LIMIT, tolerance=1e-6)
    assert (strict.verdict, strict.tolerance) == ("diverged", 1e-6)

    monkeypatch.undo()
    lax = compare(pair, PROMPT, limit=LIMIT, tolerance=1e6, loop=OneTokenTooMany)
    assert (lax.verdict, lax.tolerance) == ("tie", 1e6)


def test_on_f32_the_measured_tolerance_is_small(pair):
    """Widths change next to nothing here, so nothing worth a name is excused."""
    found = compare(pair, PROMPT, limit=LIMIT, loop=RowsReversed)

    assert 0.001 <= found.tolerance < 0.05


# --- sampling ------------------------------------------------------------------------------------

SAMPLING = SamplingOptions(temperature=0.8, seed=5)


def test_the_same_seed_draws_the_same_text(pair):
    found = compare(pair, PROMPT, limit=LIMIT, sampling=SAMPLING)

    assert found.verdict == "identical"
    assert found.speculative.tokens != compare(pair, PROMPT, limit=LIMIT).speculative.tokens


def test_sampled_texts_that_part_by_rounding_are_a_tie(pair, monkeypatch):
    """The state of that moment draws both tokens, each from the logits of its own width."""
    blur(monkeypatch, BLUR)

    found = compare(pair, PROMPT, limit=LIMIT, sampling=SAMPLING)

    assert found.verdict == "tie"
    assert found.parting.position == first_difference(found)
    assert found.largest_gap == pytest.approx(BLUR, abs=ROUNDING)
    assert found.tolerance == pytest.approx(2 * BLUR, abs=ROUNDING)


def test_a_draw_too_many_is_a_fault(pair):
    """One draw per committed token: another and the random numbers are no longer the same."""

    class DrawsForEveryRow(Faulty):
        def judged(self, verdict, draft, rows):
            for row in range(verdict.accepted + 1, len(draft) + 1):
                self.choose(rows[row])
            return verdict

    found = compare(pair, PROMPT, limit=LIMIT, sampling=SAMPLING, loop=DrawsForEveryRow)

    assert found.verdict == "diverged"
    assert found.parting.position == first_difference(found)
    assert found.why == "the same sampler state does not draw these two tokens from these logits"


def test_logits_from_a_spoiled_memory_are_a_fault_though_the_sampler_is_sound(pair):
    found = compare(pair, PROMPT, limit=LIMIT, sampling=SAMPLING, loop=KeepsARejectedToken)

    assert found.verdict == "diverged"
    assert found.why == "the logits of the two widths differ by more than rounding explains"


# --- many prompts --------------------------------------------------------------------------------


def test_a_summary_counts_every_verdict(pair, monkeypatch):
    """Passed without a divergence; strictly passed when all are identical."""
    summary = Summary()
    summary.add(compare(pair, PROMPT, limit=20))
    assert summary.passed(strict=True)
    with monkeypatch.context() as patch:
        blur(patch, BLUR)
        summary.add(compare(pair, PROMPT, limit=LIMIT))
    assert summary.passed(strict=False)
    assert not summary.passed(strict=True)
    summary.add(compare(pair, PROMPT, limit=LIMIT, loop=OneTokenTooMany))

    assert not summary.passed(strict=False)
    document = summary.as_json()
    assert [document[kind] for kind in ("prompts", "identical", "tie", "diverged")] == [3, 1, 1, 1]
    assert document["tokens_compared"] == 20 + 2 * LIMIT
    assert 0 < document["largest_gap"] <= BLUR + ROUNDING
