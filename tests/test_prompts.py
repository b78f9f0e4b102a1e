"""Prompts of every kind arrive as they were written, or a sentence says where they went wrong."""

import pytest

from dspark_cli.errors import DsparkError, UsageError
from dspark_cli.prompts import (
    Prompt,
    decode_text,
    from_file,
    read_bytes,
    read_jsonl,
    read_token_ids,
    unescape,
)


@pytest.fixture
def written(tmp_path):
    """Write a file and return its path."""

    def write(data: str | bytes, name: str = "prompts.jsonl"):
        path = tmp_path / name
        path.write_bytes(data.encode() if isinstance(data, str) else data)
        return path

    return write


def texts(path) -> list[str]:
    return [prompt.text for prompt in read_jsonl(path)]


# --- files --------------------------------------------------------------------------------------


def test_a_file_s_bytes_are_read_as_they_are(written):
    """No newline is translated, no byte interpreted."""
    assert read_bytes(written(b"a\r\n\xff")) == b"a\r\n\xff"


@pytest.mark.parametrize(
    ("name", "complaint"),
    [
        ("missing.txt", "missing.txt: no such file"),
        (".", "is a directory, wanted a file"),
        ("file.txt/below.txt", "below.txt: cannot be read: Not a directory"),
    ],
)
def test_a_file_that_cannot_be_read_is_named(tmp_path, written, name, complaint):
    """It is a matter of the command line: a path that leads nowhere."""
    written("text", "file.txt")

    with pytest.raises(UsageError, match=complaint) as refused:
        read_bytes(tmp_path / name)
    assert str(tmp_path) in str(refused.value)


def test_a_text_that_is_not_utf8_is_refused_at_its_first_bad_byte():
    """The user can look there."""
    with pytest.raises(DsparkError, match=r"^letter.txt: is not UTF-8: byte 0xe9 at offset 3$"):
        decode_text(b"caf\xe9 \xff", "letter.txt")


@pytest.mark.parametrize(
    ("raw", "text"),
    [
        (b"Hello", "Hello"),
        (b"Hello\n", "Hello"),
        (b"Hello\n\n", "Hello\n"),
        (b"\nHello ", "\nHello "),
        (b"", ""),
        (b"\n", ""),
        ("日本\n語".encode(), "日本\n語"),
    ],
)
def test_a_file_is_one_prompt_without_its_last_newline(raw, text):
    """An editor puts one there; all other space is the user's."""
    assert from_file(raw, "letter.txt") == Prompt(text, "letter.txt")


@pytest.mark.parametrize(
    ("written_as", "meant"),
    [
        (r"a\nb", "a\nb"),
        (r"\t\r", "\t\r"),
        (r"\"quoted\" \'so\'", "\"quoted\" 'so'"),
        (r"C:\\new", r"C:\new"),
        (r"\x41\x7a", "Az"),
        (r"\q \x4", r"\q \x4"),
        ("\\", "\\"),
        (r"\\\n", "\\\n"),
        ("日\n", "日\n"),
    ],
)
def test_the_known_escapes_are_replaced(written_as, meant):
    """Each once; everything else is left alone."""
    assert unescape(written_as) == meant


# --- one prompt per line ------------------------------------------------------------------------


def test_every_kind_of_line_holds_one_prompt(written):
    """A prompt, the first of several turns, or a JSON text, with whatever else the line has."""
    path = written(
        '{"prompt": "one"}\n'
        '{"turns": ["two", "not this"], "question_id": 81}\n'
        '"three\\nlines"\n'
        '{"category": "x", "prompt": "日本"}\n'
    )

    assert texts(path) == ["one", "two", "three\nlines", "日本"]


def test_plain_lines_are_prompts_as_they_stand(written):
    """A file whose first line is no JSON has none further down either."""
    path = written('First question?\n\n  {"prompt": "kept"}\n[b]\n', "plain.txt")

    assert texts(path) == ["First question?", '  {"prompt": "kept"}', "[b]"]


def test_a_prompt_knows_its_line(written):
    """Empty lines are skipped, and counted."""
    path = written('\n{"prompt": "one"}\n\n\n{"prompt": "two"}')

    assert [prompt.source for prompt in read_jsonl(path)] == [f"{path}, line {n}" for n in (2, 5)]


def test_only_newlines_end_a_line(written):
    """Other separators of Unicode may stand inside a JSON text, unescaped."""
    assert texts(written('{"prompt": "one\u2028two\x85three"}\n')) == ["one\u2028two\x85three"]


@pytest.mark.parametrize("line", ['{"prompt": "one"}\r\n{"prompt": "two"}\r\n', "one\r\ntwo\r\n"])
def test_lines_may_end_as_on_windows(written, line):
    """The carriage return is the editor's, not the prompt's."""
    assert texts(written(line)) == ["one", "two"]


def test_a_byte_order_mark_is_no_part_of_a_prompt(written):
    """Some editors begin every file with one; JSON behind it is JSON."""
    path = written('\ufeff{"prompt": "one"}\n{"prompt": "two"}\n')

    assert texts(path) == ["one", "two"]


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        ("{broken", r"line 2: is no JSON: .* at column 2$"),
        ('{"text": "x"}', r'line 2: wanted \{"prompt": text\} or \{"turns": \[text, ...\]\}$'),
        ('{"prompt": 5}', "line 2: wanted"),
        ('{"prompt": null}', "line 2: wanted"),
        ('{"turns": []}', "line 2: wanted"),
        ('{"turns": "text"}', "line 2: wanted"),
        ("[1, 2]", "line 2: wanted"),
        ("5", "line 2: wanted"),
        ("plain text", "line 2: is no JSON"),
        pytest.param('{"prompt": "\\ud800"}', "line 2: ", id="half a surrogate pair"),
    ],
)
def test_a_line_that_holds_no_prompt_is_named(written, line, complaint):
    """The lines before it are prompts nonetheless."""
    prompts = read_jsonl(written('{"prompt": "one"}\n' + line))

    assert next(prompts).text == "one"
    with pytest.raises(DsparkError, match=complaint):
        next(prompts)


@pytest.mark.parametrize("content", ["", "\n", " \n\t\n"])
def test_a_file_without_a_prompt_is_refused(written, content):
    """Rather than doing nothing in silence."""
    with pytest.raises(UsageError, match=r"prompts.jsonl: holds no prompt$"):
        texts(written(content))


def test_a_jsonl_file_that_is_not_utf8_is_refused(written):
    """With the same sentence as any other text."""
    with pytest.raises(DsparkError, match="is not UTF-8: byte 0xff at offset 12"):
        texts(written(b'{"prompt": "\xff"}'))


# --- token ids ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "content",
    ["[1, 20, 3]", "1 20 3", "1,20,3\n", "1\n20\n3\n", " [1,20,\n 3 ]\n", "1 20, 3,"],
)
def test_token_ids_are_numbers_between_spaces_or_a_json_array(written, content):
    """As another program prints them."""
    assert read_token_ids(written(content), 100) == [1, 20, 3]


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        ("1 2 x", "wanted token ids, found 'x'$"),
        ("[1, 2.5]", "wanted token ids, found '2.5'$"),
        ('["1"]', "wanted token ids, found '\"1\"'$"),
        ("1, , x", "wanted token ids, found 'x'$"),
        (", x", "wanted token ids, found 'x'$"),
        ("1 100", "token 100 lies outside the vocabulary of 100$"),
        ("1 -1", "token -1 lies outside the vocabulary of 100$"),
        pytest.param("9" * 5000, "(outside the vocabulary|wanted token ids)", id="5000 digits"),
    ],
)
def test_what_is_no_token_of_this_model_is_named(written, content, complaint):
    """Before anything is decoded: llama.cpp would only say no."""
    with pytest.raises(DsparkError, match=complaint):
        read_token_ids(written(content), 100)


@pytest.mark.parametrize("content", ["", " \n", "[]", "[ ]"])
def test_a_file_without_token_ids_is_refused(written, content):
    """There is nothing to go on from."""
    with pytest.raises(UsageError, match=r"holds no token ids$"):
        read_token_ids(written(content), 100)


def test_the_whole_vocabulary_may_be_used(written):
    """From the first token to the last."""
    assert read_token_ids(written("0 99"), 100) == [0, 99]
