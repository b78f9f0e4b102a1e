"""The arithmetic of a training: taps, anchors, draft vocabularies, rounds, calibration."""

import numpy as np
import pytest
from pairs import UNUSED, VOCABULARY, Mutation, write_random_target

from dspark_cli.confidence import (
    FEWEST_LABELS,
    Outcomes,
    apply,
    calibrate,
    calibrate_crosswise,
    calibration_error,
    chances,
    fit_temperature,
)
from dspark_cli.errors import DsparkError
from dspark_cli.metadata import read_metadata
from dspark_cli.train.batches import (
    IGNORED,
    accepted_lengths,
    anchors_of,
    choose_draft_tokens,
    draw_anchors,
    greedy_anchors,
    make_batch,
    rounds_of,
    tap_scale,
)
from dspark_cli.train.dataset import Answer
from dspark_cli.train.design import automatic_taps, choose_mask_token


def answer(n_prompt=3, n_answer=6, width=4) -> Answer:
    n = n_prompt + n_answer
    return Answer(
        prompt=0,
        n_prompt=n_prompt,
        temperature=0.0,
        tokens=np.arange(100, 100 + n, dtype=np.int32),
        top_ids=np.arange(100 + n_prompt, 100 + n)[:, None] + np.arange(2),
        top_logprobs=np.log(np.tile([0.75, 0.25], (n_answer, 1))).astype(np.float16),
        taps=np.tile(np.arange(n - 1)[:, None], (1, width)).astype(np.float16),
    )


# --- taps and tokens ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("layers", "taps"),
    [(1, (0,)), (2, (0, 1)), (3, (0, 1, 2)), (6, (2, 4, 5)), (30, (2, 9, 16, 22, 29))],
)
def test_taps_reach_from_the_first_formed_states_to_the_last_layer(layers, taps):
    """Five where the target is deep, fewer where it is shallow, never one twice."""
    assert automatic_taps(layers) == taps


@pytest.mark.parametrize("layers", range(1, 130))
def test_automatic_taps_are_layers_in_order(layers):
    taps = automatic_taps(layers)

    assert sorted(set(taps)) == list(taps)
    assert 0 <= taps[0] <= taps[-1] == layers - 1


def test_the_mask_token_stands_in_no_text(tmp_path):
    """The target's own mask; else an unused token; else there can be no drafter."""
    path = write_random_target(tmp_path / "target.gguf").path
    assert choose_mask_token(read_metadata(path)) == UNUSED

    own = Mutation(metadata={"tokenizer.ggml.mask_token_id": 7})
    named = write_random_target(tmp_path / "named.gguf", mutation=own).path
    assert choose_mask_token(read_metadata(named)) == 7


def test_without_a_spare_token_there_is_no_drafter(tmp_path):
    """Every token has a use: one sentence."""
    kinds = Mutation(metadata={"tokenizer.ggml.token_type": [1] * len(VOCABULARY.tokens)})
    path = write_random_target(tmp_path / "full.gguf", mutation=kinds).path

    with pytest.raises(DsparkError, match="every token of its vocabulary has a use"):
        choose_mask_token(read_metadata(path))


def test_the_draft_vocabulary_holds_the_frequent_tokens():
    """As many as make up 99 % of the answers, in steps of 512."""
    counts = np.zeros(50_000, np.int64)
    counts[7000:7600] = 1000
    counts[100:200] = 1

    chosen = choose_draft_tokens(counts, None)

    assert len(chosen) == 1024
    assert set(range(7000, 7600)) <= set(chosen.tolist())
    assert chosen.tolist() == sorted(chosen.tolist())


@pytest.mark.parametrize(("size", "wanted"), [(2000, None), (50_000, 0), (50_000, 60_000)])
def test_pruning_is_left_out_where_it_gains_nothing(size, wanted):
    """A small vocabulary is kept whole, and 0 keeps any."""
    counts = np.ones(size, np.int64)

    assert choose_draft_tokens(counts, wanted).tolist() == list(range(size))


# --- batches ------------------------------------------------------------------------------------


def test_a_round_can_start_from_the_prompt_s_last_token_to_the_last_but_one():
    """The last token is proposed, never proposed from."""
    assert anchors_of(answer(n_prompt=3, n_answer=4)).tolist() == [2, 3, 4, 5]
    assert anchors_of(answer(n_prompt=1, n_answer=4)).tolist() == [1, 2, 3]


def test_every_row_is_labelled_with_the_token_it_proposes():
    """Row i of an anchor's block: the token i + 1 places on, after the one before it."""
    batch = make_batch([answer()], [(np.array([2, 6]), np.array([3, 3]))], 3)

    assert batch.tokens[0].tolist() == [102, 106]
    assert batch.labels[0].tolist() == [[103, 104, 105], [107, 108, IGNORED]]
    assert batch.previous[0].tolist()[0] == [102, 103, 104]
    assert batch.greedy[0].tolist()[0] == [103, 104, 105]
    assert batch.top_ids[0, 0].tolist() == [[103, 104], [104, 105], [105, 106]]
    np.testing.assert_allclose(batch.top_chances[0, 0], [[0.75, 0.25]] * 3, atol=1e-3)


def test_rows_past_a_short_block_are_ignored():
    """A run may draft fewer rows than a block has; training does so too."""
    batch = make_batch([answer()], [(np.array([2]), np.array([1]))], 3)

    assert batch.labels[0].tolist() == [[103, IGNORED, IGNORED]]


def test_half_of_the_blocks_are_whole_and_every_length_occurs():
    random = np.random.default_rng(0)
    lengths = np.concatenate(
        [draw_anchors(answer(n_answer=60), 5, 50, random)[1] for _ in range(40)]
    )

    assert 0.5 < (lengths == 5).mean() < 0.7
    assert set(lengths.tolist()) == {1, 2, 3, 4, 5}


def test_the_scale_of_a_tap_leaves_the_attention_sink_out():
    """The first position's states are huge and say nothing about the others."""
    item = answer()
    taps = item.taps.copy()
    taps[0], taps[1:] = 60_000, 3
    taps[1:, 0] = 0

    scale = tap_scale(
        [Answer(**{**{n: getattr(item, n) for n in Answer.__slots__}, "taps": taps})]
    )

    np.testing.assert_allclose(scale[1:], 3)
    assert 0 < scale[0] < 0.01


def test_rounds_go_on_behind_what_was_accepted():
    """Accepted drafts and one bonus token a round, as in decoding."""
    hits = np.array([[1, 1, 0], [1, 1, 1], [0, 1, 1], [1, 0, 1], [1, 1, 1], [0, 0, 0]], bool)
    accepted = accepted_lengths(hits)

    assert accepted.tolist() == [2, 3, 0, 1, 3, 0]
    assert rounds_of(accepted) == [2, 1, 0]


# --- calibration --------------------------------------------------------------------------------


def drawn(temperature, n=20_000, seed=0):
    """Logits and outcomes whose true temperature is known."""
    random = np.random.default_rng(seed)
    logits = random.normal(0, 2, n)
    return logits, random.random(n) < chances(logits, temperature)


@pytest.mark.parametrize("temperature", [0.3, 1.0, 2.5])
def test_the_true_temperature_is_found(temperature):
    logits, happened = drawn(temperature)

    assert fit_temperature(logits, happened) == pytest.approx(temperature, rel=0.1)
    assert calibration_error(chances(logits, temperature), happened) < 0.02


def test_the_calibration_error_is_the_mean_gap_of_equal_bins():
    """Two bins by hand: predicted 0.2 and 0.9, happened 0.5 and 1."""
    predicted, happened = np.array([0.2, 0.2, 0.9, 0.9]), np.array([True, False, True, True])

    assert calibration_error(predicted, happened, bins=2) == pytest.approx((0.3 + 0.1) / 2)


def test_a_confidence_counts_only_where_all_before_it_were_accepted():
    """Later positions see fewer labels, and their own temperature all the same."""
    first, second = drawn(1.0, seed=1), drawn(3.0, seed=2)
    confidence = np.stack([first[0], second[0]], 1)
    hits = np.stack([first[1], second[1]], 1)
    real = np.ones_like(hits)

    found = calibrate(Outcomes(confidence, hits, real))

    assert found[0].labels == 20_000
    assert found[1].labels == first[1].sum()
    assert found[0].temperature == pytest.approx(1.0, rel=0.1)
    assert found[1].temperature == pytest.approx(3.0, rel=0.15)
    assert found[1].error_after < found[1].error_before
    outcomes = Outcomes(confidence, hits, real)
    assert apply([item.temperature for item in found], outcomes) == found


def test_a_drafter_s_own_temperature_stays_where_labels_are_few():
    """A short calibration must not throw away a long training's."""
    logits, happened = drawn(2.0, n=FEWEST_LABELS - 1)
    outcomes = Outcomes(logits[:, None], happened[:, None], np.ones_like(happened)[:, None])

    (found,) = calibrate(outcomes, (0.7,))

    assert found.temperature == 0.7


def test_a_position_with_few_labels_takes_its_neighbour_s_temperature():
    """Fewer than 200 outcomes say little about a temperature."""
    logits, happened = drawn(2.0, n=FEWEST_LABELS)
    hits = np.stack([happened, happened], 1)

    first, second = calibrate(Outcomes(np.stack([logits, logits], 1), hits, np.ones_like(hits)))

    assert second.labels < FEWEST_LABELS
    assert second.temperature == first.temperature


def test_errors_are_those_of_blocks_that_no_temperature_saw():
    """Each half is judged with the other half's temperature; the file gets that of all."""
    (a, a_hits), (b, b_hits) = drawn(0.5, seed=1), drawn(2.0, seed=2)
    one, other = (
        Outcomes(logits[:, None], hits[:, None], np.ones_like(hits)[:, None])
        for logits, hits in ((a, a_hits), (b, b_hits))
    )

    (found,) = calibrate_crosswise(one, other)

    (fooled,) = calibrate(other)
    assert found.labels == 40_000
    assert 0.6 < found.temperature < 1.8
    assert found.error_after > 5 * fooled.error_after


def test_an_opening_that_was_drawn_is_not_judged_as_greedy():
    """Drafts are judged from the last token on that the target would not have said."""
    item = answer(n_prompt=1, n_answer=8)
    top = item.top_ids.copy()
    top[:, 0] = item.tokens[1:]
    greedy = Answer(**{**{n: getattr(item, n) for n in Answer.__slots__}, "top_ids": top})
    assert greedy_anchors(greedy).tolist() == anchors_of(greedy).tolist()

    top = top.copy()
    top[3, 0] = 7  # the token at position 4 was drawn

    strayed = Answer(**{**{n: getattr(item, n) for n in Answer.__slots__}, "top_ids": top})
    assert greedy_anchors(strayed).tolist() == [4, 5, 6, 7]


def test_a_position_that_was_never_reached_has_no_error():
    """Nothing was accepted: null, not NaN."""
    hits = np.zeros((300, 2), bool)

    (_, second) = calibrate(Outcomes(np.zeros((300, 2)), hits, np.ones_like(hits)))

    assert (second.labels, second.error_before, second.error_after) == (0, None, None)
