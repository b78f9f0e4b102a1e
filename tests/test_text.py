"""Pieces of bytes become text: whole characters at once, nothing of a stop text, no byte lost."""

import random
from itertools import combinations, pairwise

import pytest

from dspark_cli.text import Segment, TextStream, incomplete_tail

TEXTS = [
    "plain",
    "é",
    "aé日😀z",
    "😀😀",
    "👩‍👩‍👧 family",
    "日本語のテキスト",
    "[b]bold[/b] [/b]",
    "\N{REPLACEMENT CHARACTER} is a character",
]


def splits(data: bytes, most_cuts: int) -> list[list[bytes]]:
    """Every way to cut ``data`` in up to so many places."""
    inside = range(1, len(data))
    return [
        [data[start:end] for start, end in pairwise([0, *cuts, len(data)])]
        for count in range(most_cuts + 1)
        for cuts in combinations(inside, count)
    ]


def random_pieces(data: bytes, chance: random.Random) -> list[bytes]:
    pieces = []
    while data:
        size = chance.randint(0, 4)  # control tokens bring no bytes
        pieces.append(data[:size])
        data = data[size:]
    return pieces


def joined(segments: list[Segment]) -> bytes:
    return b"".join(segment.data for segment in segments)


def shown(
    pieces: list[bytes], stops: list[str] | tuple[str, ...] = ()
) -> tuple[list[bytes], bool]:
    """What each piece and the end let through, and whether a stop text was met."""
    stream = TextStream(stops)
    released = []
    for piece in pieces:
        released.append(joined(stream.feed(piece)))
        if stream.stopped:
            break
    return [*released, joined(stream.flush())], stream.stopped


def fed_until_stopped(pieces: list[bytes], stops: list[str]) -> tuple[bytes, bool]:
    """The same, by looking at all that was said after every piece."""
    text = b""
    for piece in pieces:
        text += piece
        if found := [at for stop in stops if (at := text.find(stop.encode())) >= 0]:
            return text[: min(found)], True
    return text, False


# --- whole characters ---------------------------------------------------------------------------


@pytest.mark.parametrize("text", TEXTS)
def test_however_a_text_is_cut_only_whole_characters_come(text):
    """A byte-level vocabulary may split one character over several tokens."""
    for pieces in splits(text.encode(), most_cuts=2):
        released, _ = shown(pieces)
        assert "".join(part.decode() for part in released) == text
        assert released[-1] == b""


@pytest.mark.parametrize("text", TEXTS)
def test_a_text_may_come_byte_by_byte(text):
    """Each character comes with its last byte, and not later."""
    released, _ = shown([bytes([byte]) for byte in text.encode()])

    assert [part.decode() for part in released if part] == list(text)


@pytest.mark.parametrize("text", ["plain text", "日本語", "[b] and [/b]"])
def test_whole_characters_are_not_held_back(text):
    """Without a stop text nothing waits that is certain."""
    pieces = [character.encode() for character in text]

    assert shown(pieces) == ([*pieces, b""], False)


@pytest.mark.parametrize(
    ("data", "held"),
    [
        (b"", 0),
        (b"a", 0),
        ("é".encode(), 0),
        ("é".encode()[:1], 1),
        ("日".encode()[:1], 1),
        ("日".encode()[:2], 2),
        ("日".encode(), 0),
        ("😀".encode()[:1], 1),
        ("😀".encode()[:2], 2),
        ("😀".encode()[:3], 3),
        ("😀".encode(), 0),
        ("a😀".encode()[:-1], 3),
        ("😀é".encode()[:-1], 1),
        pytest.param(b"\x80", 0, id="a continuation of nothing"),
        pytest.param(b"\x80\x80\x80\x80", 0, id="four of them"),
        pytest.param(b"\xc0", 0, id="C0 begins no character"),
        pytest.param(b"\xc1", 0, id="nor does C1"),
        pytest.param(b"\xf5", 0, id="nor F5"),
        pytest.param(b"\xff", 0, id="nor FF"),
        pytest.param(b"\xe6a", 0, id="interrupted by a letter"),
        pytest.param(b"\xc3\xa9\xa9", 0, id="a continuation too many"),
    ],
)
def test_an_incomplete_tail_is_the_beginning_of_one_character(data, held):
    """Up to three bytes; bytes that can begin nothing are no beginning."""
    assert incomplete_tail(data) == held


@pytest.mark.parametrize("seed", range(100))
def test_invalid_bytes_pass_unharmed(seed):
    """What the model says reaches the user as it is, even where it is no UTF-8."""
    chance = random.Random(seed)
    interesting = [0x41, 0x80, 0xBF, 0xC0, 0xC3, 0xE0, 0xE6, 0xED, 0xF0, 0xF4, 0xF5, 0xFF]
    data = bytes(chance.choice(interesting) for _ in range(40))
    stream, released = TextStream(), b""

    for fed, byte in enumerate(data, 1):
        released += joined(stream.feed(bytes([byte])))
        assert data.startswith(released)
        assert fed - len(released) <= 3  # never held for longer than a character is long

    assert released + joined(stream.flush()) == data


def test_half_a_character_at_the_end_stays_half():
    """The text is over: what was held is given up as it is."""
    assert shown([b"a", b"\xf0\x9f"]) == ([b"a", b"", b"\xf0\x9f"], False)


# --- stop texts ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("pieces", "stops", "text"),
    [
        pytest.param(["one", "###", "two"], ["###"], "one", id="a token of its own"),
        pytest.param(["one#", "#", "#two"], ["###"], "one", id="over three tokens"),
        pytest.param(["one###two"], ["###"], "one", id="inside a token"),
        pytest.param(["###"], ["###"], "", id="nothing before it"),
        pytest.param(["a", "b", "c"], ["abc"], "", id="all of the text"),
        pytest.param(["x###", "y"], ["never", "###"], "x", id="the second of two"),
        pytest.param(["a###b@@@"], ["@@@", "###"], "a", id="the earlier in the text"),
        pytest.param(["xabcd"], ["bc", "abcd"], "x", id="one inside the other"),
        pytest.param(["aab"], ["ab"], "a", id="a false start of the same letter"),
        pytest.param(["a", "a", "b"], ["ab"], "a", id="the same over tokens"),
        pytest.param(["ababa", "c"], ["abac"], "ab", id="overlapping itself"),
        pytest.param(["日", "本"], ["本"], "日", id="a long character"),
        pytest.param(["Zeile\n", "\nmehr"], ["\n\n"], "Zeile", id="newlines"),
    ],
)
def test_a_stop_text_ends_the_text_before_itself(pieces, stops, text):
    """Wherever token and block boundaries fall, nothing of it and nothing behind it is shown."""
    released, stopped = shown([piece.encode() for piece in pieces], stops)

    assert b"".join(released).decode() == text
    assert stopped


def test_the_beginning_of_a_stop_text_is_held_until_it_is_certain():
    """And comes as soon as it turns out to be something else."""
    pieces = [b"a#", b"#", b"b", b"#"]

    assert shown(pieces, ["###"]) == ([b"a", b"", b"##b", b"", b"#"], False)


def test_a_false_beginning_may_hold_a_true_one():
    """Of ###, four are one false and three true ones."""
    assert shown([b"#", b"#", b"x#", b"##"], ["###"]) == ([b"", b"", b"##x", b"", b""], True)


def test_a_stop_text_cut_inside_a_character_is_found():
    """Bytes are compared, so a token boundary inside a character hides nothing."""
    data = "a日b".encode()
    for pieces in splits(data, most_cuts=3):
        released, stopped = shown(pieces, ["日"])
        assert stopped
        assert b"".join(released) == b"a"


def test_nothing_is_held_behind_a_stop_text():
    """The flush at the end has nothing to add."""
    stream = TextStream(["###"])

    assert joined(stream.feed(b"one###two")) == b"one"
    assert stream.flush() == []


def test_a_stop_text_that_never_comes_changes_nothing():
    """All of the text arrives, at the latest with the flush."""
    released, stopped = shown([b"the ", b"en"], ["end"])

    assert released == [b"the ", b"", b"en"]
    assert not stopped


@pytest.mark.parametrize("seed", range(300))
def test_stop_texts_agree_with_looking_at_the_whole_text(seed):
    """Short texts of few letters, where beginnings, repeats and overlaps abound."""
    chance = random.Random(seed)
    text = "".join(chance.choice("ab日😀") for _ in range(24))
    stops = [
        "".join(chance.choice("ab日😀") for _ in range(chance.randint(1, 5)))
        for _ in range(chance.randint(1, 3))
    ]
    pieces = random_pieces(text.encode(), chance)

    released, stopped = shown(pieces, stops)

    assert (b"".join(released), stopped) == fed_until_stopped(pieces, stops)
    for part in released[:-1]:
        part.decode()


# --- whose bytes they are -----------------------------------------------------------------------


def test_segments_know_which_token_brought_them():
    """Counted from 0, so that a renderer can colour what was drafted."""
    stream = TextStream()

    assert stream.feed(b"a") == [Segment(b"a", 0)]
    assert stream.feed(b"bc") == [Segment(b"bc", 1)]


def test_a_character_belongs_to_the_token_that_completes_it():
    """A colour that began between its bytes would destroy it."""
    stream = TextStream()

    assert stream.feed(b"b\xc3") == [Segment(b"b", 0)]
    assert stream.feed(b"\xa9c") == [Segment("éc".encode(), 1)]


def test_a_token_without_bytes_counts_as_a_token():
    """Control tokens show nothing, yet the count goes on."""
    stream = TextStream()

    assert stream.feed(b"") == []
    assert stream.feed(b"a") == [Segment(b"a", 1)]


def test_what_was_held_for_a_stop_text_keeps_its_tokens():
    """Released late, and by a later token, it is still the first tokens' own."""
    stream = TextStream(["###"])

    assert stream.feed(b"a#") == [Segment(b"a", 0)]
    assert stream.feed(b"#") == []
    assert stream.feed(b"b") == [Segment(b"#", 0), Segment(b"#", 1), Segment(b"b", 2)]
    assert stream.feed(b"#") == []
    assert stream.flush() == [Segment(b"#", 3)]


@pytest.mark.parametrize("stops", [[], ["##!"], ["日#", "a日😀b!"]])
@pytest.mark.parametrize("seed", range(50))
def test_every_segment_is_whole_and_every_character_with_its_token(seed, stops):
    """Random pieces, with and without beginnings of stop texts among them."""
    chance = random.Random(seed)
    text = "".join(chance.choice("ab#日😀") for _ in range(24))
    pieces = random_pieces(text.encode(), chance)
    owner_of_byte = [token for token, piece in enumerate(pieces) for _ in piece]
    stream, segments = TextStream(stops), []

    for piece in pieces:
        segments += stream.feed(piece)
        if stream.stopped:
            break
    segments += stream.flush()

    end = 0
    for segment in segments:
        assert segment.data
        for character in segment.data.decode():
            end += len(character.encode())
            assert segment.token == owner_of_byte[end - 1]


def test_half_a_character_at_the_end_belongs_to_its_last_token():
    """There is none that completes it."""
    stream = TextStream()
    stream.feed(b"\xf0")
    stream.feed(b"\x9f")

    assert stream.flush() == [Segment(b"\xf0\x9f", 1)]
