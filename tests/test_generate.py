"""Rigged pairs through the whole library: what is counted is known before it happens."""

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from pairs import (
    EOS,
    Vocabulary,
    write_rigged_dflash,
    write_rigged_drafter,
    write_rigged_target,
)

from dspark_cli import (
    Generation,
    GenerationOptions,
    MemoryOptions,
    Pair,
    PairOptions,
    chat_prompt,
    open_pair,
    raw_prompt,
)
from dspark_cli.errors import DsparkError, LlamaError
from dspark_cli.events import Finish
from dspark_cli.options import KV_TYPES, SamplingOptions

BLOCKS = [1, 4, 7, 16]
LIMITS = [0, 1, 2, 5, 8, 34, 40]


def alphabet(token: int) -> int:
    """a, b, c, ... z, a: the parity of the token alternates."""
    return token + 1 if ord("a") <= token < ord("z") else ord("a")


def every_second(token: int) -> int:
    return alphabet(token) if token % 2 == 0 else ord("!")


def never(_token: int) -> int:
    return ord("!")


def spell(start: str, count: int) -> list[int]:
    """The alphabet's continuation of ``start``."""
    tokens, last = [], ord(start)
    for _ in range(count):
        last = alphabet(last)
        tokens.append(last)
    return tokens


@pytest.fixture(scope="module")
def target(tmp_path_factory):
    return write_rigged_target(
        tmp_path_factory.mktemp("alphabet") / "target.gguf", next_token=alphabet
    )


@contextmanager
def opened(target, drafter=None, *, ctx_size: int = 256, **memory: object) -> Iterator[Pair]:
    options = PairOptions(
        model=target.path,
        draft=drafter.path if drafter else None,
        memory=MemoryOptions(ctx_size=ctx_size, threads=1, **memory),
    )
    with open_pair(options) as pair:
        yield pair


def finish(pair: Pair, prompt: list[int], n_predict: int = -1, **options: object) -> Generation:
    run = Generation(pair, prompt, GenerationOptions(n_predict=n_predict, **options))
    for _ in run:
        pass
    return run


@pytest.mark.parametrize("block_size", BLOCKS)
def test_a_perfect_drafter_has_every_draft_accepted(tmp_path, target, block_size):
    """A drafter that knows the target's next token reaches tau = block_size + 1."""
    drafter = write_rigged_drafter(
        tmp_path / "d.gguf", target, knows=alphabet, block_size=block_size
    )
    with opened(target, drafter) as pair:
        for limit in LIMITS:
            run = finish(pair, [ord("a")], limit)

            whole, rest = divmod(limit, block_size + 1)
            assert run.tokens == spell("a", limit)
            assert run.statistics.num_spec_steps == whole + (rest > 1)
            assert run.statistics.num_plain_steps == (rest == 1)
            assert run.statistics.num_accepted_draft_tokens == limit - run.statistics.rounds
            assert run.statistics.num_draft_tokens == run.statistics.num_accepted_draft_tokens
        run = finish(pair, [ord("a")], 5 * (block_size + 1))
        assert run.statistics.mean_acceptance_length == block_size + 1
        assert run.statistics.histogram == {block_size: 5}


@pytest.mark.parametrize("block_size", BLOCKS)
def test_a_drafter_that_knows_every_second_token_doubles_the_steps(tmp_path, target, block_size):
    """From an even token one draft is accepted and the next is wrong, so each step commits two."""
    drafter = write_rigged_drafter(
        tmp_path / "d.gguf", target, knows=every_second, block_size=block_size
    )
    with opened(target, drafter) as pair:
        for limit in LIMITS:
            run = finish(pair, [ord("b")], limit)

            assert run.tokens == spell("b", limit)
            assert run.statistics.num_spec_steps == limit // 2
            assert run.statistics.num_plain_steps == limit % 2
            assert run.statistics.num_accepted_draft_tokens == limit // 2


@pytest.mark.parametrize("block_size", BLOCKS)
def test_a_wrong_drafter_costs_time_and_nothing_else(tmp_path, target, block_size):
    """No draft is accepted, and the text is the target's all the same."""
    drafter = write_rigged_drafter(tmp_path / "d.gguf", target, knows=never, block_size=block_size)
    with opened(target, drafter) as pair:
        for limit in LIMITS:
            run = finish(pair, [ord("a")], limit)

            assert run.tokens == spell("a", limit)
            assert run.statistics.num_accepted_draft_tokens == 0
            assert run.statistics.num_spec_steps == max(limit - 1, 0)
            assert run.statistics.num_plain_steps == min(limit, 1)
            scored = sum(min(block_size, left - 1) for left in range(limit, 1, -1))
            assert run.statistics.num_draft_tokens == scored
            assert run.statistics.num_rejected_draft_tokens == scored


def test_a_slow_reader_is_not_held_against_the_drafter(tmp_path, target):
    """Whether drafting paid is a matter of its own passes, not of who reads the text."""
    drafter = write_rigged_drafter(tmp_path / "d.gguf", target, knows=alphabet, block_size=4)
    with opened(target, drafter) as pair:
        run = Generation(pair, [ord("a")], GenerationOptions(n_predict=50))
        slept = 0.0
        for _ in run:
            time.sleep(0.02)
            slept += 0.02

        assert run.statistics.decode_seconds < slept / 2
        assert run.statistics.saved_seconds > -slept / 2


def test_a_wrong_drafter_is_called_a_stranger_after_32_rounds(tmp_path, target):
    """Nobody has to notice by themselves that a drafter belongs to another model."""
    drafter = write_rigged_drafter(tmp_path / "d.gguf", target, knows=never)
    with opened(target, drafter) as pair:
        assert not finish(pair, [ord("a")], 32).statistics.looks_foreign
        assert finish(pair, [ord("a")], 33).statistics.looks_foreign


@pytest.mark.parametrize("knows", [alphabet, every_second, never])
@pytest.mark.parametrize("prompt_length", [1, 2, 7, 16])
def test_the_context_is_filled_to_its_last_token(tmp_path, target, knows, prompt_length):
    """The last position is used, none behind it, and the run says that it is full."""
    drafter = write_rigged_drafter(tmp_path / "d.gguf", target, knows=knows, block_size=7)
    prompt = [ord("b")] * prompt_length
    with opened(target, drafter, ctx_size=40) as pair, opened(target, ctx_size=40) as plain:
        run = finish(pair, prompt)

        assert run.finish_reason == "context_full"
        assert len(run.tokens) == 40 - prompt_length + 1
        assert run.tokens == finish(plain, prompt).tokens


@pytest.mark.parametrize("ctx_size", [256, 1000, 4096])
def test_every_context_length_can_be_filled(tmp_path, target, ctx_size):
    """The drafter's context holds a full one of the target and a block behind it."""
    drafter = write_rigged_drafter(tmp_path / "d.gguf", target, knows=alphabet, block_size=16)
    with opened(target, drafter, ctx_size=ctx_size) as pair:
        n_ctx = pair.target.context.n_ctx
        assert n_ctx == -(-ctx_size // 256) * 256
        assert pair.drafter.context.n_batch == n_ctx + 16

        run = finish(pair, [ord("a")] * (ctx_size - 100))

        assert run.finish_reason == "context_full"
        assert run.tokens == spell("a", 101)


def test_a_prompt_as_long_as_the_context_gets_one_token(target):
    """Its last token is decoded, and there is no room for another."""
    with opened(target, ctx_size=20) as pair:
        run = finish(pair, [ord("a")] * 20)

        assert (run.tokens, run.finish_reason) == ([ord("b")], "context_full")


@pytest.mark.parametrize("length", [7, 8, 9, 10, 16, 17, 25, 50])
def test_a_prompt_longer_than_a_batch_is_read_in_chunks(tmp_path, target, length):
    """Public reports lc#10670 and lc#9963: runners abort or stay silent there."""
    drafter = write_rigged_drafter(tmp_path / "d.gguf", target, knows=alphabet)
    with opened(target, drafter, batch_size=8, ubatch_size=4) as pair:
        run = finish(pair, [ord("a")] * length, 10)

        assert run.tokens == spell("a", 10)
        assert run.statistics.mean_acceptance_length == 5
        assert pair.drafter.context.held == length + 9 - 1 + 1


@pytest.mark.parametrize("own_embeddings", [True, False])
@pytest.mark.parametrize("confidence", [None, lambda token: 0.25 if token % 2 else 0.75])
@pytest.mark.parametrize("draft_vocab", [None, range(ord("a"), ord("z") + 1)])
@pytest.mark.parametrize("sample_from_anchor", [True, False])
def test_every_kind_of_drafter_is_read_right(
    tmp_path, target, own_embeddings, confidence, draft_vocab, sample_from_anchor
):
    """Own or borrowed embeddings, with or without confidences and d2t, both block layouts."""
    drafter = write_rigged_drafter(
        tmp_path / "d.gguf",
        target,
        knows=alphabet,
        own_embeddings=own_embeddings,
        confidence=confidence,
        draft_vocab=draft_vocab and list(draft_vocab),
        sample_from_anchor=sample_from_anchor,
        block_size=5,
    )
    drafts = 5 if sample_from_anchor else 4
    with opened(target, drafter) as pair:
        run = finish(pair, [ord("b")], 3 * (drafts + 1))

        assert pair.drafter.draft_max == drafts
        assert run.tokens == spell("b", 3 * (drafts + 1))
        assert run.statistics.mean_acceptance_length == drafts + 1
        per_position = run.statistics.mean_confidence_per_pos
        assert len(per_position) == (drafts if confidence else 0)
        if confidence:
            first = [ord("b"), *run.tokens[drafts :: drafts + 1]][:3]
            expected = sum(map(confidence, first)) / 3
            assert per_position[0] == pytest.approx(expected, abs=1e-5)


@pytest.mark.parametrize("block_size", [2, 5, 8])
def test_a_dflash_block_is_read_from_its_second_row(tmp_path, block_size):
    """Its first row speaks for the anchor, and what it says must not be proposed."""
    target = write_rigged_target(tmp_path / "t.gguf", next_token=lambda _: ord("x"))
    drafter = write_rigged_dflash(
        tmp_path / "d.gguf",
        target,
        mask_says=ord("x"),
        anchor_says=ord("!"),
        block_size=block_size,
    )
    with opened(target, drafter) as pair:
        run = finish(pair, [ord("a")], 4 * block_size)

        assert pair.plan.drafter.type_name == "draft-dflash"
        assert run.tokens == [ord("x")] * (4 * block_size)
        assert run.statistics.mean_acceptance_length == block_size


@pytest.mark.parametrize("letters", [1, 2, 3, 4, 5, 6, 7, 8])
def test_an_end_token_in_the_draft_ends_the_text(tmp_path, letters):
    """Public report md (8192 tokens instead of 14): what stands behind the end is ignored."""
    last = ord("a") + letters

    def until(token: int) -> int:
        return EOS if token == last else alphabet(token)

    target = write_rigged_target(tmp_path / "t.gguf", next_token=until)
    drafter = write_rigged_drafter(tmp_path / "d.gguf", target, knows=until, block_size=4)
    with opened(target, drafter) as pair:
        run = finish(pair, [ord("a")], 100)

        statistics = run.statistics
        assert run.finish_reason == "eog"
        assert run.tokens == [*spell("a", letters), EOS]
        assert run.text == "bcdefghij"[:letters]
        assert statistics.num_draft_tokens == (
            statistics.num_accepted_draft_tokens
            + statistics.num_rejected_draft_tokens
            + statistics.num_ignored_draft_tokens
        )
        assert statistics.num_rejected_draft_tokens == 0
        # Steps of five tokens: the end is the draft's token letters % 5 (from 0), or the bonus.
        behind_the_end = max(3 - letters % 5, 0)
        assert statistics.num_ignored_draft_tokens == behind_the_end


def test_ignoring_the_end_goes_on_to_the_limit(tmp_path):
    """--ignore-eos forbids every end-of-generation token, with and without a drafter alike."""
    target = write_rigged_target(tmp_path / "t.gguf", next_token=lambda _: EOS)
    drafter = write_rigged_drafter(tmp_path / "d.gguf", target, knows=lambda _: EOS)
    sampling = SamplingOptions(ignore_eos=True)
    with opened(target, drafter) as pair, opened(target) as plain:
        run = finish(pair, [ord("a")], 20, sampling=sampling)

        assert len(run.tokens) == 20
        assert EOS not in run.tokens
        assert run.finish_reason == "length"
        assert run.tokens == finish(plain, [ord("a")], 20, sampling=sampling).tokens


@pytest.mark.parametrize("stop", ["f", "fg", "ghij", "jk", "mno"])
def test_a_stop_text_ends_the_run_before_itself(tmp_path, target, stop):
    """Wherever block boundaries fall, nothing of the stop text and nothing behind it is shown."""
    drafter = write_rigged_drafter(tmp_path / "d.gguf", target, knows=alphabet, block_size=4)
    with opened(target, drafter) as pair:
        run = finish(pair, [ord("a")], 100, stops=("never", stop))

        alphabet_text = "bcdefghijklmnopqrstuvwxyz"
        assert run.finish_reason == "stop"
        assert run.text == alphabet_text[: alphabet_text.index(stop)]
        assert bytes(run.tokens).decode() == run.text + stop


@pytest.mark.parametrize("text", ["[b]😀é", "[/b]", "日é😀", "a\N{COMBINING ACUTE ACCENT}z"])
def test_text_arrives_whole_and_byte_for_byte(tmp_path, text):
    """A character split over several tokens, here one per byte, is never shown in halves."""
    data = text.encode()
    assert len(set(data)) == len(data), "a rigged target can say each byte once"
    chain = dict(zip([ord("\n"), *data], [*data, EOS], strict=True))
    target = write_rigged_target(tmp_path / "t.gguf", next_token=chain.get)
    drafter = write_rigged_drafter(tmp_path / "d.gguf", target, knows=chain.get, block_size=4)
    with opened(target, drafter) as pair:
        run = Generation(pair, [ord("\n")])

        pieces = list(run.text_pieces())

        assert "".join(pieces) == text
        assert all("\N{REPLACEMENT CHARACTER}" not in piece for piece in pieces)
        assert run.data == data


def test_the_same_seed_gives_the_same_text_with_and_without_a_drafter(tmp_path):
    """Each position is sampled by the target, one draw per token, whatever was drafted."""
    soft = write_rigged_target(tmp_path / "t.gguf", next_token=alphabet, sharpness=2.0)
    sampled = SamplingOptions(temperature=0.8, seed=7)
    texts = set()
    for knows in (alphabet, every_second, never, None):
        drafter = knows and write_rigged_drafter(tmp_path / "d.gguf", soft, knows=knows)
        with opened(soft, drafter) as pair:
            texts.add(tuple(finish(pair, [ord("a")], 60, sampling=sampled).tokens))
    assert len(texts) == 1
    assert texts != {tuple(spell("a", 60))}, "a temperature that never strays shows nothing"


def test_a_random_seed_is_reported_and_repeats_the_text(tmp_path):
    """Without --seed the run draws one, and says which."""
    soft = write_rigged_target(tmp_path / "t.gguf", next_token=alphabet, sharpness=2.0)
    with opened(soft) as pair:
        first = finish(pair, [ord("a")], 40, sampling=SamplingOptions(temperature=1.0))
        other = finish(pair, [ord("a")], 40, sampling=SamplingOptions(temperature=1.0))
        again = finish(
            pair, [ord("a")], 40, sampling=SamplingOptions(temperature=1.0, seed=first.seed)
        )

        assert first.tokens == again.tokens
        assert first.tokens != other.tokens


def test_a_repeat_penalty_is_the_same_with_and_without_a_drafter(tmp_path):
    """Public report lattice#528: one sampler object serves both loops, prompt included."""
    target = write_rigged_target(tmp_path / "t.gguf", next_token=lambda _: ord("x"), sharpness=1.0)
    drafter = write_rigged_drafter(tmp_path / "d.gguf", target, knows=lambda _: ord("x"))
    sampling = SamplingOptions(repeat_penalty=1.5, temperature=0.7, seed=3)
    with opened(target, drafter) as pair, opened(target) as plain:
        ours = finish(pair, [ord("a"), ord("x")], 50, sampling=sampling)

        assert ours.tokens == finish(plain, [ord("a"), ord("x")], 50, sampling=sampling).tokens
        assert ours.statistics.num_spec_steps > 0


@pytest.mark.parametrize(
    "sampling",
    [
        SamplingOptions(),
        SamplingOptions(temperature=0.5, seed=1),
        SamplingOptions(repeat_penalty=1.1),
        SamplingOptions(ignore_eos=True),
    ],
)
def test_logits_that_are_no_numbers_end_the_run_with_their_position(tmp_path, sampling):
    """Never a silent token 0: the sentence says where the target broke."""
    target = write_rigged_target(tmp_path / "t.gguf", next_token=alphabet, nan_token=ord("f"))
    drafter = write_rigged_drafter(tmp_path / "d.gguf", target, knows=alphabet)
    with opened(target, drafter) as pair:
        run = Generation(pair, [ord("a")], GenerationOptions(sampling=sampling))

        # a stands at position 0, f at 5: the logits that predict position 6 are broken.
        with pytest.raises(LlamaError, match="logits for position 6 are not finite"):
            list(run)
        # The first round takes b, c, d and e, the second one f as the first of its draft.
        assert run.tokens == spell("a", 5)
        assert run.text == "bcdef"
        assert run.statistics.n_predict == 5
        assert run.finish_reason is None


def test_a_pair_serves_one_run_after_another(tmp_path, target):
    """Nothing of a run is left for the next, even when its reader stopped half-way."""
    drafter = write_rigged_drafter(tmp_path / "d.gguf", target, knows=every_second)
    with opened(target, drafter) as pair:
        first = finish(pair, [ord("b")], 21)
        reports = iter(Generation(pair, [ord("q")] * 9))
        for _ in range(4):
            next(reports)
        reports.close()
        second = finish(pair, [ord("b")], 21)

        assert first.tokens == second.tokens
        assert first.statistics.as_json() == second.statistics.as_json()


@pytest.mark.parametrize("reports", [1, 3, 5])
def test_an_older_run_cannot_go_on_with_a_newer_one_s_memory(tmp_path, target, reports):
    """It says so instead of mixing two texts; the newer one is not disturbed."""
    drafter = write_rigged_drafter(tmp_path / "d.gguf", target, knows=every_second)
    options = GenerationOptions(n_predict=20)
    with opened(target, drafter) as pair:
        older, newer = Generation(pair, [ord("a")], options), Generation(pair, [ord("b")], options)
        steps = iter(older)
        for _ in range(reports):
            next(steps)
        others = iter(newer)
        next(others)

        with pytest.raises(RuntimeError, match="another run has begun on this pair"):
            list(steps)
        assert len(older.tokens) < 20
        assert len(list(others)) > 1
        assert newer.tokens == spell("b", 20)


def test_a_finished_run_is_not_in_the_way_of_the_next(target):
    """Whoever has seen the end may ask once more, and finds nothing."""
    with opened(target) as pair:
        steps = iter(Generation(pair, [ord("a")], GenerationOptions(n_predict=2)))
        while not isinstance(next(steps), Finish):
            pass
        run = finish(pair, [ord("b")], 3)

        assert list(steps) == []
        assert run.tokens == spell("b", 3)


def test_a_result_outlives_its_pair_and_a_run_does_not(target):
    """The document can be written later; going on, or again, is refused in words."""
    with opened(target) as pair:
        run, late = finish(pair, [ord("a")], 5), Generation(pair, [ord("a")])
        with pytest.raises(RuntimeError, match="make a new Generation"):
            list(run)

    assert run.as_json()["sizes"]["target"]["n_ctx"] == 256
    with pytest.raises(ValueError, match="the target's context is closed"):
        list(late)


def test_the_json_document_has_the_documented_keys_and_no_nan(tmp_path, target):
    """Programs read it: every number is a number or null, and both files are named."""
    drafter = write_rigged_drafter(tmp_path / "d.gguf", target, knows=alphabet)
    with opened(target, drafter) as pair:
        document = json.loads(json.dumps(finish(pair, [ord("a")], 0).as_json(), allow_nan=False))

        assert document["mean_acceptance_length"] is None
        assert document["draft_acceptance_rate"] is None
        assert document["finish_reason"] == "length"
        assert document["tokens"] == []
        assert document["target"]["size"] == target.path.stat().st_size
        assert len(document["drafter"]["metadata_sha256"]) == 64
        assert document["sizes"]["drafter"]["n_batch"] == 256 + 4
        assert document["speculation"] == "draft-dspark"


@pytest.mark.parametrize("kind", KV_TYPES)
def test_every_cache_type_serves_both_models(tmp_path, target, kind):
    """Whatever -ctk, -ctv, -ctkd and -ctvd accept, llama.cpp computes with."""
    drafter = write_rigged_drafter(tmp_path / "d.gguf", target, knows=alphabet)
    types = {
        f"cache_type_{part}{suffix}": kind for part in ("k", "v") for suffix in ("", "_draft")
    }
    with opened(target, drafter, **types) as pair:
        assert finish(pair, [ord("a")], 10).tokens == spell("a", 10)


@pytest.mark.parametrize(("gpu", "gpu_layers"), [(False, None), (True, 0), (True, None)])
def test_memory_is_checked_where_it_is_this_machine_s(target, monkeypatch, gpu, gpu_layers):
    """What lies on a GPU is not held against the memory of the host."""
    monkeypatch.setattr("dspark_cli.plan.available_memory", lambda: 1000)
    monkeypatch.setattr("dspark_cli.pair.gpu_offload_supported", lambda: gpu)
    if gpu and gpu_layers is None:
        with opened(target, gpu_layers=gpu_layers) as pair:
            assert finish(pair, [ord("a")], 2).tokens == spell("a", 2)
        return

    with (
        pytest.raises(DsparkError, match="the run needs"),
        opened(target, gpu_layers=gpu_layers),
    ):
        pass


def test_plain_decoding_says_that_it_is_plain(target):
    """Public report bd#105: speculation never goes off in silence."""
    with opened(target) as pair:
        assert finish(pair, [ord("a")], 3).as_json()["speculation"] == "off (--no-draft)"


def test_a_bos_is_put_before_a_raw_text_once(tmp_path):
    """The model's own wish decides, and an empty text is then a prompt."""
    target = write_rigged_target(
        tmp_path / "t.gguf", next_token=alphabet, vocabulary=Vocabulary(add_bos=True)
    )
    with opened(target) as pair:
        bos = pair.vocabulary.bos

        assert raw_prompt(pair, "ab") == [bos, ord("a"), ord("b")]
        assert raw_prompt(pair, "") == [bos]
        assert finish(pair, raw_prompt(pair, ""), 2).tokens == [ord("a"), ord("b")]


def test_a_template_that_begins_with_the_bos_gets_no_second_one(tmp_path):
    """Two of them derail some models."""
    vocabulary = Vocabulary(
        add_bos=True, chat_template="{{ bos_token }}{{ messages[0]['content'] }}"
    )
    target = write_rigged_target(tmp_path / "t.gguf", next_token=alphabet, vocabulary=vocabulary)
    with opened(target) as pair:
        assert chat_prompt(pair, "ab") == [pair.vocabulary.bos, ord("a"), ord("b")]
