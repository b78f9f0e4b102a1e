"""The decode loop: any drafter, the same text; every token counted, every position in order."""

import random
from itertools import pairwise

import numpy as np
import pytest
from fakes import (
    VOCABULARY,
    WRONG,
    ChainDrafter,
    Clock,
    CountingTarget,
    CtrlC,
    greedy,
    half_knowing,
    perfect,
    successor,
    wrong,
)

from dspark_cli.decode import Decoding, NoDrafter
from dspark_cli.errors import LlamaError
from dspark_cli.events import Finish, Prefill, Round

CHUNK = 8
DRAFTERS = {"perfect": perfect, "half knowing": half_knowing, "wrong": wrong}
LIMITS = [0, 1, 2, 3, 7, 12]
BLOCK_SIZES = [1, 4, 7, 16]
PROMPT_LENGTHS = [1, CHUNK - 1, CHUNK, CHUNK + 1, 3 * CHUNK + 1]

every_drafter = pytest.mark.parametrize("drafter_of", DRAFTERS.values(), ids=DRAFTERS)


def counted(length: int) -> list[int]:
    """The prompt 1, 2, 3, ...: what follows it is known."""
    return list(range(1, length + 1))


def decoding(drafter=None, prompt=(1, 2, 3), *, room=VOCABULARY, **options) -> Decoding:
    target = options.pop("target", None) or CountingTarget(chunk=CHUNK, room=room)
    return Decoding(
        target,
        drafter or NoDrafter(),
        list(prompt),
        options.pop("choose", greedy),
        room,
        **options,
    )


def rounds_of(events) -> list[Round]:
    return [event for event in events if isinstance(event, Round)]


def text_of(events) -> list[int]:
    return [token for round_ in rounds_of(events) for token in round_.tokens]


def end_at(token: int, reason: str = "eog"):
    return lambda committed: reason if committed == token else None


# --- the text -----------------------------------------------------------------------------------


@pytest.mark.parametrize("block_size", BLOCK_SIZES)
@pytest.mark.parametrize("limit", LIMITS)
@every_drafter
def test_the_text_does_not_depend_on_the_drafter(drafter_of, limit, block_size):
    """A drafter changes how fast the text comes, never which text, and -n is kept exactly."""
    events = list(decoding(drafter_of(block_size=block_size), limit=limit))

    assert text_of(events) == list(range(4, 4 + limit))
    assert events[-1] == Finish("length", 2 + limit)


@pytest.mark.parametrize("limit", LIMITS)
def test_plain_decoding_is_the_same_loop_without_drafts(limit):
    """Without a drafter each round scores one token and commits one."""
    events = list(decoding(limit=limit))

    assert text_of(events) == list(range(4, 4 + limit))
    assert [round_.scored for round_ in rounds_of(events)] == [0] * limit
    assert events[-1] == Finish("length", 2 + limit)


@pytest.mark.parametrize("length", PROMPT_LENGTHS)
@every_drafter
def test_the_text_does_not_depend_on_where_the_prompt_is_cut(drafter_of, length):
    """A prompt may be shorter than a chunk, longer, or exactly as long."""
    events = list(decoding(drafter_of(), counted(length), limit=12))

    assert text_of(events) == list(range(length + 1, length + 13))


@pytest.mark.parametrize("seed", range(20))
def test_a_moody_drafter_changes_nothing_either(seed):
    """Drafts of any length, none included, right and wrong by chance."""
    mood = random.Random(seed)

    class Moody(ChainDrafter):
        def length(self, most: int) -> int:
            return mood.randint(0, min(most, 9))

    drafter = Moody(lambda token: successor(token) if mood.random() < 0.7 else WRONG)

    assert text_of(decoding(drafter, limit=40)) == list(range(4, 44))


@every_drafter
def test_a_sampled_text_does_not_depend_on_the_drafter(drafter_of):
    """The chooser draws once per committed token: the same seed, the same draws."""

    def sampled(drafter) -> list[int]:
        draw = np.random.default_rng(5)
        # Noise of the logits' own size: now the drafter is right, now it is not.
        return text_of(
            decoding(
                drafter,
                limit=60,
                choose=lambda row: int((4 * row[:8] + draw.gumbel(size=8)).argmax()),
                target=CountingTarget(next_token=lambda token: (token + 1) % 8),
            )
        )

    plain = sampled(None)

    assert sampled(drafter_of()) == plain
    assert any(later != (former + 1) % 8 for former, later in pairwise(plain))


# --- the counts ---------------------------------------------------------------------------------


def test_a_perfect_drafter_gains_its_whole_block_each_round():
    """Block of 4, 12 tokens: twice 4 and a bonus, then the one that leaves room for a bonus."""
    rounds = rounds_of(decoding(perfect(), limit=12))

    assert [round_.tokens for round_ in rounds] == [
        (4, 5, 6, 7, 8),
        (9, 10, 11, 12, 13),
        (14, 15),
    ]
    assert [(r.scored, r.accepted, r.rejected) for r in rounds] == [
        (4, 4, 0),
        (4, 4, 0),
        (1, 1, 0),
    ]


def test_a_half_knowing_drafter_gains_one_token_each_round():
    """It knows what follows 3, 5, 7: one accepted, the bonus odd again."""
    rounds = rounds_of(decoding(half_knowing(), limit=12))

    assert [round_.tokens for round_ in rounds] == [
        (4, 5), (6, 7), (8, 9), (10, 11), (12, 13), (14, 15),
    ]  # fmt: skip
    assert [round_.accepted for round_ in rounds] == [1] * 6
    assert [round_.scored for round_ in rounds] == [4, 4, 4, 4, 3, 1]


def test_a_wrong_drafter_gains_nothing_and_loses_nothing():
    """Every round still brings the target's own token."""
    rounds = rounds_of(decoding(wrong(), limit=6))

    assert [round_.tokens for round_ in rounds] == [(4,), (5,), (6,), (7,), (8,), (9,)]
    assert [round_.rejected for round_ in rounds] == [4, 4, 3, 2, 1, 0]
    assert [round_.accepted for round_ in rounds] == [0] * 6


def test_a_round_says_where_it_began_and_what_the_drafter_trusted():
    """Position of the token before the draft, and one confidence per proposed token."""
    first, second, _ = rounds_of(decoding(perfect(), limit=12))

    assert (first.position, second.position) == (2, 7)
    assert first.proposed == 4
    assert first.confidences == (1 / 2, 1 / 3, 1 / 4, 1 / 5)


@pytest.mark.parametrize("end", [None, 4, 5, 9, 10])
@pytest.mark.parametrize("block_size", BLOCK_SIZES)
@every_drafter
def test_every_scored_token_is_accepted_rejected_or_ignored(drafter_of, block_size, end):
    """In every round, however it ends, and none of the three is ever negative."""
    for round_ in rounds_of(
        decoding(drafter_of(block_size=block_size), limit=12, ends=end_at(end))
    ):
        parts = (round_.accepted, round_.rejected, round_.ignored)
        assert sum(parts) == round_.scored == round_.proposed
        assert min(parts) >= 0


@pytest.mark.parametrize("limit", LIMITS)
@pytest.mark.parametrize("block_size", BLOCK_SIZES)
def test_no_draft_is_longer_than_what_may_still_be_committed(block_size, limit):
    """The bonus needs one token of the limit: a draft of all of it would be for nothing."""
    drafter = perfect(block_size=block_size)

    rounds = rounds_of(decoding(drafter, limit=limit))

    left, lefts = limit, []
    for round_ in rounds:
        lefts.append(left)
        assert round_.scored <= left - 1
        left -= len(round_.tokens)
    assert drafter.asked == [left - 1 for left in lefts if left > 1]


@every_drafter
def test_no_draft_is_asked_for_when_one_token_is_left(drafter_of):
    """That token is the target's own choice, with or without a draft."""
    drafter = drafter_of()

    (round_,) = rounds_of(decoding(drafter, limit=1))

    assert drafter.asked == []
    assert (round_.proposed, round_.scored, round_.tokens) == (0, 0, (4,))


# --- the context --------------------------------------------------------------------------------


@pytest.mark.parametrize("room", [9, 10, 11, 16, 17])
@pytest.mark.parametrize("length", [1, 2, 8, 9])
@every_drafter
def test_the_context_is_filled_to_its_last_position(drafter_of, length, room):
    """The last position is used too, and the token it yields needs none of its own."""
    run = decoding(drafter_of(), counted(length), room=room)

    events = list(run)

    assert text_of(events) == list(range(length + 1, room + 2))
    assert events[-1] == Finish("context_full", room)
    assert run.target.tokens == list(range(1, room + 1))


def test_no_draft_reaches_past_the_context():
    """With three positions left a draft has two tokens, with one left none."""
    drafter = perfect()

    rounds = rounds_of(decoding(drafter, room=5))

    assert drafter.asked == [2]
    assert [round_.tokens for round_ in rounds] == [(4, 5, 6)]


# --- the end ------------------------------------------------------------------------------------


def test_an_end_token_inside_the_draft_cuts_its_tail():
    """What the draft has behind the end is ignored: neither right nor wrong."""
    events = list(decoding(perfect(block_size=7), limit=12, ends=end_at(6)))

    (round_,) = rounds_of(events)
    assert round_.tokens == (4, 5, 6)
    assert (round_.scored, round_.accepted, round_.rejected, round_.ignored) == (7, 3, 0, 4)
    assert events[-1] == Finish("eog", 5)


def test_an_end_token_as_the_last_of_the_accepted_takes_no_bonus():
    """Nothing follows the end, not even the target's own next choice."""
    events = list(decoding(perfect(), limit=12, ends=end_at(7)))

    (round_,) = rounds_of(events)
    assert round_.tokens == (4, 5, 6, 7)
    assert (round_.scored, round_.accepted, round_.rejected, round_.ignored) == (4, 4, 0, 0)


def test_wrong_tokens_behind_an_accepted_end_are_ignored_too():
    """The target parted from the draft right behind the end: that is no rejection any more."""
    (round_,) = rounds_of(decoding(half_knowing(), limit=12, ends=end_at(4)))

    assert round_.tokens == (4,)
    assert (round_.scored, round_.accepted, round_.rejected, round_.ignored) == (4, 1, 0, 3)


def test_an_end_token_as_the_bonus_leaves_the_counts_as_they_are():
    """The draft was judged to its end: what it got wrong is rejected, not ignored."""
    events = list(decoding(half_knowing(), limit=12, ends=end_at(5)))

    (round_,) = rounds_of(events)
    assert round_.tokens == (4, 5)
    assert (round_.scored, round_.accepted, round_.rejected, round_.ignored) == (4, 1, 3, 0)


@every_drafter
@pytest.mark.parametrize("end", range(4, 12))
def test_the_text_ends_with_the_end_token_whoever_proposed_it(drafter_of, end):
    """Wherever the end falls in a block, it is the last token."""
    run = decoding(drafter_of(), limit=12, ends=end_at(end))

    events = list(run)

    assert text_of(events) == list(range(4, end + 1))
    assert events[-1] == Finish("eog", end - 1)
    assert run.target.tokens == list(range(1, end))


@pytest.mark.parametrize("reason", ["eog", "stop"])
@every_drafter
def test_the_text_s_own_end_comes_before_limit_and_context(drafter_of, reason):
    """When the last token allowed is also the end, the run ended because of the text."""
    limited = list(decoding(drafter_of(), limit=6, ends=end_at(9, reason)))
    filled = list(decoding(drafter_of(), room=8, ends=end_at(9, reason)))

    assert text_of(limited) == text_of(filled) == list(range(4, 10))
    assert limited[-1].reason == filled[-1].reason == reason


def test_the_limit_comes_before_the_context():
    """Who asked for exactly as many tokens as fit was given them."""
    assert list(decoding(perfect(), room=8, limit=6))[-1] == Finish("length", 8)


@every_drafter
def test_every_committed_token_is_asked_about_once_and_in_order(drafter_of):
    """A stop text is fed token by token: no draft that was rejected, nothing behind the end."""
    asked = []

    def ends(token: int) -> str | None:
        asked.append(token)
        return "stop" if token == 10 else None

    assert text_of(decoding(drafter_of(), limit=12, ends=ends)) == asked == list(range(4, 11))


# --- taps and memory ----------------------------------------------------------------------------


@pytest.mark.parametrize("length", PROMPT_LENGTHS)
@pytest.mark.parametrize("block_size", BLOCK_SIZES)
@every_drafter
def test_the_drafter_sees_every_position_once_and_in_order(drafter_of, block_size, length):
    """Prompt and text alike, rejected drafts never; the newest token is not decoded yet."""
    drafter = drafter_of(block_size=block_size)

    list(decoding(drafter, counted(length), limit=12))

    assert drafter.observed == [(at, at + 1) for at in range(length + 11)]


@every_drafter
def test_the_target_s_memory_holds_the_text_and_nothing_else(drafter_of):
    """After every round all is forgotten that was not committed."""
    run = decoding(drafter_of(), limit=12)

    for event in run:
        if isinstance(event, Round):
            assert run.target.memory == [(at, at + 1) for at in range(event.tokens[-1] - 1)]
            assert run.position == len(run.target.memory)


def test_one_pass_scores_the_last_token_and_the_draft():
    """Never a pass more than a round has, never a row more than the draft and one."""
    run = decoding(perfect(), limit=12)

    list(run)

    assert run.target.widths == [5, 5, 2]


@pytest.mark.parametrize(
    ("length", "done"),
    [
        (1, []),
        (2, [1]),
        (CHUNK, [7]),
        (CHUNK + 1, [8]),
        (CHUNK + 2, [8, 9]),
        (3 * CHUNK + 1, [8, 16, 24]),
    ],
)
def test_the_prompt_is_read_in_chunks_but_for_its_last_token(length, done):
    """The first round scores the last one; every chunk is reported with its progress."""
    events = list(decoding(perfect(), counted(length), limit=1))

    chunks = [event for event in events if isinstance(event, Prefill)]
    assert [chunk.done for chunk in chunks] == done
    assert {chunk.total for chunk in chunks} <= {length - 1}
    assert events[: len(chunks)] == chunks


@pytest.mark.parametrize(
    ("breach", "refusal"),
    [
        (lambda target: target.score([4], 4), "a gap: 4 follows 3 positions"),
        (lambda target: target.score([4], 2), "position 2 is in memory still"),
        (lambda target: target.taps(4), "taps of 4 rows, the last decode had 3"),
        (lambda target: target.rewind(4), "rewound to 4, memory ends at 3"),
        (lambda target: target.read([4] * 9, 3), "9 tokens in one decode, which takes 8"),
        (lambda target: target.score([4] * 8, 3), "11 positions, there is room for 10"),
    ],
    ids=["gap", "not rewound", "taps", "rewound ahead", "chunk", "room"],
)
def test_the_fake_target_refuses_what_llama_cpp_would_refuse(breach, refusal):
    """So every test above says as well that the loop keeps to the order."""
    target = CountingTarget(chunk=8, room=10)
    target.read([1, 2, 3], 0)

    with pytest.raises(ValueError, match=refusal):
        breach(target)


# --- time ---------------------------------------------------------------------------------------


def timed_decoding(**options) -> tuple[Decoding, Clock]:
    clock = Clock()
    target = CountingTarget(clock=clock, read_seconds=8.0, score_seconds=2.0)
    drafter = perfect(block_size=1, clock=clock, draft_seconds=1.0, inject_seconds=0.5)
    return decoding(drafter, target=target, clock=clock, **options), clock


def test_a_round_s_seconds_are_its_own():
    """Whatever its reader does with it, such as writing to a slow pipe, is no cost of drafting."""
    run, clock = timed_decoding(limit=6)

    seconds = []
    for event in run:
        if isinstance(event, Round):
            seconds.append(event.seconds)
        clock.spend(10.0)

    assert seconds == [3.5, 3.5, 3.5]


def test_every_part_of_a_round_says_its_own_seconds():
    """Drafting, scoring and injecting as the models measured them; reading by the chunk."""
    run, _ = timed_decoding(limit=2)

    prefill, round_, _ = run

    assert (prefill.score_seconds, prefill.inject_seconds) == (8.0, 0.5)
    assert (round_.draft_seconds, round_.score_seconds, round_.inject_seconds) == (1.0, 2.0, 0.5)


# --- stopping early -----------------------------------------------------------------------------


@pytest.mark.parametrize("chunks", [0, 1, 2])
def test_ctrl_c_in_the_prompt_ends_the_run(chunks):
    """Three chunks to read: what was read is reported, and the end says interrupted."""
    target = CountingTarget(chunk=CHUNK, ctrl_c=CtrlC(at=chunks + 1))

    events = list(decoding(perfect(), counted(3 * CHUNK + 1), target=target))

    assert [event.done for event in events[:-1]] == [8, 16, 24][:chunks]
    assert events[-1] == Finish("interrupted", 8 * chunks)


@pytest.mark.parametrize("before", [0, 1, 3])
@pytest.mark.parametrize("where", ["propose", "score"])
def test_ctrl_c_in_a_round_keeps_all_rounds_before(where, before):
    """The text so far stands, and so do its statistics."""
    at = CtrlC(before + 1)
    target = CountingTarget(ctrl_c=at if where == "score" else None)
    drafter = perfect(ctrl_c=at if where == "propose" else None)

    events = list(decoding(drafter, prompt=[1], target=target))

    assert len(rounds_of(events)) == before
    assert text_of(events) == list(range(2, 2 + 5 * before))
    assert events[-1] == Finish("interrupted", 5 * before)


@pytest.mark.parametrize("before", [0, 1, 3])
def test_ctrl_c_while_taps_are_injected_reports_what_was_asked_about(before):
    """Whoever was asked whether a token ends the text finds that token in the rounds."""
    asked = []
    drafter = perfect(ctrl_c_observing=CtrlC(before + 1))

    events = list(decoding(drafter, prompt=[1], ends=asked.append))

    assert events[-1].reason == "interrupted"
    assert text_of(events)[: 5 * before] == list(range(2, 2 + 5 * before))
    assert asked == text_of(events)


@pytest.mark.parametrize("events_read", [1, 2, 4, 6])
@every_drafter
def test_a_reader_may_stop_half_way(drafter_of, events_read):
    """Closing the iterator ends the run; the target serves the next one after a rewind."""
    run = decoding(drafter_of(), counted(2 * CHUNK + 1))
    events = iter(run)
    for _ in range(events_read):
        next(events)
    events.close()

    assert list(events) == []
    run.target.rewind(0)
    assert text_of(decoding(drafter_of(), target=run.target, limit=7)) == list(range(4, 11))


def test_a_run_counts_what_it_produced_while_it_goes_on():
    """Position, count and newest token can be read between events."""
    run = decoding(perfect(), limit=12)

    seen = [(run.position, run.produced, run.last) for event in run if isinstance(event, Round)]

    assert seen == [(7, 5, 8), (12, 10, 13), (14, 12, 15)]


class Broken(CountingTarget):
    """Its logits after the token 6 are no numbers."""

    def row(self, token: int) -> np.ndarray:
        return super().row(token) * (np.nan if token == 6 else 1)


@pytest.mark.parametrize(
    ("drafter", "counts"),
    [(perfect(), [(4, 3, 0, 1)]), (half_knowing(), [(4, 1, 3, 0), (4, 1, 0, 3)]), (None, [])],
    ids=["perfect", "half knowing", "none"],
)
def test_what_was_chosen_before_logits_that_are_no_numbers_stands(drafter, counts):
    """Its round is reported, then the sentence names the position they were for."""
    run = decoding(drafter, target=Broken())
    events = []

    with pytest.raises(LlamaError, match="logits for position 6 are not finite") as refused:
        events.extend(run)  # a list keeps what came before
    assert refused.value.hint
    assert text_of(events) == [4, 5, 6]
    drafted = [round_ for round_ in rounds_of(events) if round_.scored]
    assert [(r.scored, r.accepted, r.rejected, r.ignored) for r in drafted] == counts
    assert run.produced == 3


def test_an_end_before_logits_that_are_no_numbers_is_an_end():
    """Nobody needs what stands behind it."""
    events = list(decoding(perfect(), target=Broken(), ends=end_at(6)))

    assert text_of(events) == [4, 5, 6]
    assert events[-1].reason == "eog"
