"""``dspark run`` as a shell and a terminal see it: bytes, streams, signals and exit codes."""

import json
import os
import pty
import re
import select
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from pairs import EOS, Vocabulary, write_rigged_drafter, write_rigged_target

DSPARK = [sys.executable, "-m", "dspark_cli"]
TEXT = "[b]\N{GRINNING FACE}é"
ANSWER = TEXT.encode()


def shadowing(folder: Path) -> str:
    """A PYTHONPATH on which the modules in ``folder`` come before those that are installed."""
    return os.pathsep.join([str(folder), *filter(None, [os.environ.get("PYTHONPATH")])])


def chain(token: int) -> int | None:
    """A newline is answered with TEXT and the end."""
    return dict(zip([ord("\n"), *ANSWER], [*ANSWER, EOS], strict=True)).get(token)


def endless(token: int) -> int:
    """a, b, ... z, newline, a, ... and no end."""
    if token == ord("z"):
        return ord("\n")
    return token + 1 if ord("a") <= token < ord("z") else ord("a")


@pytest.fixture(scope="module")
def speaking(tmp_path_factory) -> list[str]:
    """Options of a pair that says TEXT after a newline."""
    folder = tmp_path_factory.mktemp("speaking")
    vocabulary = Vocabulary(chat_template="{{ messages[-1]['content'] }}")
    target = write_rigged_target(folder / "t.gguf", next_token=chain, vocabulary=vocabulary)
    drafter = write_rigged_drafter(folder / "d.gguf", target, knows=chain, block_size=3)
    return ["-m", str(target.path), "-md", str(drafter.path), "-t", "1"]


@pytest.fixture(scope="module")
def talking(tmp_path_factory) -> list[str]:
    """Options of a pair that never ends."""
    folder = tmp_path_factory.mktemp("talking")
    target = write_rigged_target(folder / "t.gguf", next_token=endless, context_length=32768)
    drafter = write_rigged_drafter(
        folder / "d.gguf", target, knows=endless, block_size=3, context_length=32768
    )
    return ["-m", str(target.path), "-md", str(drafter.path), "-t", "1", "-c", "32768"]


def dspark(*arguments: str, stdin: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        [*DSPARK, "run", *arguments], input=stdin, capture_output=True, check=False, timeout=120
    )


def test_stdout_is_the_answer_byte_for_byte(speaking):
    """Nothing else is there: no markup read, no character broken, no newline added."""
    done = dspark(*speaking, "-p", "\n")

    assert done.returncode == 0
    assert done.stdout == ANSWER
    assert b"n_accept" in done.stderr


def test_a_successful_run_says_nothing_of_errors(speaking):
    """Public report: a spurious error line on success teaches people to ignore them."""
    done = dspark(*speaking, "-p", "\n", "--stats", "none")

    assert done.returncode == 0
    assert done.stderr == b""


@pytest.mark.parametrize("source", ["-p", "-f", "stdin", "-f -", "--token-ids", "--token-ids -"])
def test_a_prompt_comes_from_wherever_it_is(speaking, tmp_path, source):
    """A file's last newline belongs to the editor, so two make a prompt of one."""
    file = tmp_path / "prompt"
    file.write_bytes(b"\n\n")
    ids = tmp_path / "ids"
    ids.write_text("[10]")
    arguments, stdin = {
        "-p": (["-p", r"\n", "-e"], b""),
        "-f": (["-f", str(file)], b""),
        "stdin": ([], b"\n\n"),
        "-f -": (["-f", "-"], b"\n\n"),
        "--token-ids": (["--token-ids", str(ids)], b""),
        "--token-ids -": (["--token-ids", "-"], b"[10]"),
    }[source]

    done = dspark(*speaking, *arguments, "--stats", "none", stdin=stdin)

    assert (done.returncode, done.stdout) == (0, ANSWER)


def test_the_json_document_is_all_of_stdout(speaking):
    done = dspark(*speaking, "-p", "\n", "--json")

    document = json.loads(done.stdout)
    assert done.returncode == 0
    assert done.stderr == b""
    assert document["text"] == TEXT
    assert document["tokens"] == [*ANSWER, EOS]
    assert document["finish_reason"] == "eog"
    # Rounds of 4, 4 and 2 tokens: the end is the third round's second draft token.
    assert document["num_accepted_draft_tokens"] == 3 + 3 + 2
    assert document["num_ignored_draft_tokens"] == 1


def test_json_lines_tell_every_round_as_it_happens(speaking):
    done = dspark(*speaking, "-p", "\n", "--jsonl")

    events = [json.loads(line) for line in done.stdout.splitlines()]
    kinds = [event["event"] for event in events]
    assert kinds[0] == "round"
    assert kinds[-2:] == ["finish", "result"]
    assert events[-1]["source"] == "-p"
    assert "".join(event["text"] for event in events if event["event"] == "text") == TEXT
    tokens = [token for event in events if event["event"] == "round" for token in event["tokens"]]
    assert tokens == events[-1]["tokens"]


def test_many_prompts_are_answered_with_one_load_and_one_line_each(speaking, tmp_path):
    """A prompt that fails is that prompt's line alone, and the exit code tells."""
    file = tmp_path / "prompts.jsonl"
    file.write_text('{"prompt": "\\n"}\n{"turns": ["\\n", "more"]}\n')
    done = dspark(*speaking, "--prompts", str(file), "--stats", "none")
    assert done.returncode == 0
    assert [json.loads(line)["text"] for line in done.stdout.splitlines()] == [TEXT, TEXT]

    file.write_text(json.dumps({"prompt": "x" * 50}) + '\n{"prompt": "\\n"}\n')
    done = dspark(*speaking, "--prompts", str(file), "--stats", "none", "-c", "40")
    first, second = [json.loads(line) for line in done.stdout.splitlines()]
    assert done.returncode == 1
    assert first == {
        "source": f"{file}, line 1",
        "error": {
            "message": "the prompt has 50 tokens, the context holds 40",
            "messages": ["the prompt has 50 tokens, the context holds 40"],
            "hint": "use -c 50 or more, or a shorter prompt",
            "exit_code": 1,
            "log": [],
        },
    }
    assert (second["source"], second["text"]) == (f"{file}, line 2", TEXT)


@pytest.fixture(scope="module")
def breaking(tmp_path_factory) -> list[str]:
    """Options of a pair that goes through the alphabet and has no numbers behind f."""
    folder = tmp_path_factory.mktemp("breaking")
    target = write_rigged_target(folder / "t.gguf", next_token=endless, nan_token=ord("f"))
    drafter = write_rigged_drafter(folder / "d.gguf", target, knows=endless, block_size=2)
    return ["-m", str(target.path), "-md", str(drafter.path), "-t", "1", "-n", "8"]


@pytest.mark.parametrize("option", ["--json", "--jsonl"])
def test_a_prompt_that_fails_on_the_way_leaves_the_others_their_turn(breaking, tmp_path, option):
    """Its line is the error, its rounds are counted, and the exit code is the failure's."""
    file = tmp_path / "prompts.jsonl"
    file.write_text('"a"\n"g"\n')

    done = dspark(*breaking, "--prompts", str(file), option, "--stats", "json")

    documents = [json.loads(line) for line in done.stdout.splitlines()]
    first, second = [document for document in documents if "source" in document]
    statistics = json.loads(done.stderr)
    assert done.returncode == 5
    assert "are not finite" in first["error"]["message"]
    assert first["error"]["exit_code"] == 5
    assert (second["text"], second["finish_reason"]) == ("hijklmno", "length")
    assert statistics["n_prompt"] == 2
    assert statistics["n_predict"] > second["n_predict"]


def test_a_run_that_fails_on_the_way_shows_the_statistics_so_far(breaking):
    """The text came, the numbers come, then the reason and its exit code."""
    done = dspark(*breaking, "-p", "a")

    assert done.returncode == 5
    assert done.stdout == b"bcdef"
    assert b"tokens, end: failed" in done.stderr
    assert done.stderr.index(b"n_accept") < done.stderr.index(b"error: the target's logits")


def test_of_many_prompts_every_event_line_is_an_event(speaking, tmp_path):
    """Each prompt ends in a result or an error that names it."""
    file = tmp_path / "prompts.jsonl"
    file.write_text(json.dumps({"prompt": "x" * 50}) + '\n{"prompt": "\\n"}\n')

    done = dspark(*speaking, "--prompts", str(file), "--jsonl", "-c", "40")

    first, *others, last = [json.loads(line) for line in done.stdout.splitlines()]
    assert done.returncode == 1
    assert done.stderr == b""
    assert (first["event"], first["source"]) == ("error", f"{file}, line 1")
    assert first["error"]["exit_code"] == 1
    assert {event["event"] for event in others} == {"round", "text", "finish"}
    assert (last["event"], last["source"]) == ("result", f"{file}, line 2")
    assert last["text"] == TEXT


@pytest.mark.parametrize(
    ("option", "table"), [(None, True), ("--json", False), ("--jsonl", False)]
)
def test_many_prompts_have_a_table_unless_stdout_is_for_programs(
    speaking, tmp_path, option, table
):
    """As --help says of --stats, with one prompt or with many."""
    file = tmp_path / "prompts.jsonl"
    file.write_text('{"prompt": "\\n"}\n')

    done = dspark(*speaking, "--prompts", str(file), *([option] if option else []))

    assert done.returncode == 0
    assert (b"n_accept" in done.stderr) is table
    assert (done.stderr == b"") is not table


def test_statistics_can_be_json_on_stderr(speaking):
    done = dspark(*speaking, "-p", "\n", "--stats", "json")

    assert done.stdout == ANSWER
    assert json.loads(done.stderr)["num_accepted_draft_tokens"] == 8


def test_tau_is_named_for_what_it_is(speaking):
    """The last of these three rounds was cut by the end and has no bonus: 10 tokens, not 11."""
    done = dspark(*speaking, "-p", "\n")

    assert re.search(rb"tau +3\.67 +1 \+ accepted per scored draft *\n", done.stderr)
    assert re.search(rb"n_predict +10 ", done.stderr)


def test_a_stop_text_is_not_shown(speaking):
    done = dspark(*speaking, "-p", "\n", "--stop", "b]", "--stats", "none")

    assert done.stdout == b"["


def test_a_reader_that_has_seen_enough_ends_the_run_quietly(talking):
    """``dspark run ... | head -1`` is no error and no traceback."""
    script = f"{' '.join(map(sh_quote, [*DSPARK, 'run', *talking, '-p', 'a']))} | head -1"
    done = subprocess.run(
        ["bash", "-c", f"set -o pipefail; {script}"],
        capture_output=True,
        check=False,
        timeout=120,
    )

    assert done.returncode == 0
    assert done.stdout == b"bcdefghijklmnopqrstuvwxyz\n"
    assert done.stderr == b""


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs the device that is always full")
@pytest.mark.parametrize("options", [[], ["--json"], ["--jsonl"]])
def test_a_full_disk_is_one_sentence(speaking, options):
    with Path("/dev/full").open("wb") as full:
        done = subprocess.run(
            [*DSPARK, "run", *speaking, "-p", "\n", *options],
            stdout=full,
            stderr=subprocess.PIPE,
            check=False,
            timeout=120,
        )

    assert done.returncode == 1
    assert done.stderr.decode() == (
        "error: the answer cannot be written to stdout: No space left on device\n"
    )


def sh_quote(word: str) -> str:
    return "'" + word.replace("'", "'\\''") + "'"


def interrupt_after_output(arguments: list[str]) -> tuple[int, bytes, bytes]:
    """Start a run, press Ctrl-C when its first bytes are there, and collect what it says."""
    with subprocess.Popen(
        [*DSPARK, "run", *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        head = process.stdout.read(5)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=120)
        return process.returncode, head + out, err


def test_ctrl_c_ends_the_run_and_shows_the_statistics_so_far(talking):
    code, out, err = interrupt_after_output([*talking, "-p", "a"])

    assert code == 130
    assert out.startswith(b"bcdef")
    assert b"end: interrupted" in err
    assert b"n_accept" in err
    assert b"Traceback" not in err


def test_ctrl_c_under_json_gives_a_document_that_says_so(talking):
    with subprocess.Popen(
        [*DSPARK, "run", *talking, "-p", "a", "--jsonl"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        process.stdout.readline()
        process.send_signal(signal.SIGINT)
        out, _ = process.communicate(timeout=120)

    result = json.loads(out.splitlines()[-1])
    assert process.returncode == 130
    assert result["event"] == "result"
    assert result["finish_reason"] == "interrupted"


# Each range is as long as the sandbox allows; together they take days.
ENDLESS_TEMPLATE = (
    "{{ messages[-1]['content'] }}"
    "{% if messages[-1]['content'] == 'slow' %}"
    "{% for _ in range(99999) %}{% for _ in range(99999) %}{% endfor %}{% endfor %}{% endif %}"
)


@pytest.mark.parametrize("command", ["run", "check"])
def test_ctrl_c_ends_a_chat_template_that_does_not(talking, tmp_path, command):
    """A template is a foreign program, and no decode; prompts before it keep their answers."""
    template, prompts = tmp_path / "template", tmp_path / "prompts"
    template.write_text(ENDLESS_TEMPLATE)
    prompts.write_text("a\nslow\nb\n")
    with subprocess.Popen(
        [*DSPARK, command, *talking, "--chat", "--chat-template-file", template,
         "--prompts", prompts, "-n", "3", *(["--verbose"] if command == "check" else [])],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:  # fmt: skip
        if command == "run":
            assert json.loads(process.stdout.readline())["text"] == "bcd"
        else:
            assert any(b"DFlash extract_layers" in line for line in process.stderr)
        time.sleep(1)
        process.send_signal(signal.SIGINT)
        try:
            out, err = process.communicate(timeout=20)
        finally:
            process.kill()

    assert (process.returncode, out) == (130, b"")
    assert b"Traceback" not in err
    if command == "run":
        assert b"n_accept" in err


def test_ctrl_c_before_anything_has_begun_is_no_traceback(tmp_path):
    """The first third of a second belongs to imports, and to the user as well."""
    (tmp_path / "typer.py").write_text(
        "import os, signal, time\nos.kill(os.getpid(), signal.SIGINT)\ntime.sleep(60)\n"
    )
    done = subprocess.run(
        [*DSPARK, "--help"],
        capture_output=True,
        check=False,
        timeout=60,
        env={**os.environ, "PYTHONPATH": shadowing(tmp_path)},
    )

    assert (done.returncode, done.stdout, done.stderr) == (130, b"", b"")


def in_a_terminal(arguments: list[str], columns: int = 80) -> tuple[int, str]:
    """Run with a terminal for stdin, stdout and stderr; returns the exit code and the screen."""
    pid, terminal = pty.fork()
    if pid == 0:
        os.environ |= {"COLUMNS": str(columns), "TERM": "xterm-256color"}
        os.environ.pop("NO_COLOR", None)
        os.execvp(DSPARK[0], [*DSPARK, "run", *arguments])  # noqa: S606  it is the test
    screen = b""
    while select.select([terminal], [], [], 120)[0]:
        try:
            chunk = os.read(terminal, 65536)
        except OSError:  # Linux: the other side is closed
            break
        if not chunk:
            break
        screen += chunk
    _, status = os.waitpid(pid, 0)
    os.close(terminal)
    return os.waitstatus_to_exitcode(status), screen.decode()


def without_colour(screen: str) -> str:
    return re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", screen).replace("\r", "")


def test_accepted_tokens_are_coloured_on_a_terminal_that_wants_it(speaking):
    """A character is coloured as a whole, by the token that completes it."""
    code, screen = in_a_terminal([*speaking, "-p", "\n", "--color", "--stats", "none"])

    green = "".join(f"\x1b[32m{character}\x1b[0m" for character in TEXT)
    assert code == 0
    assert green in screen


def test_without_color_a_terminal_gets_the_plain_text_on_a_line_of_its_own(speaking):
    code, screen = in_a_terminal([*speaking, "-p", "\n"])

    plain = without_colour(screen)
    assert code == 0
    assert "\x1b[32m[" not in screen
    assert f"{TEXT}\n" in plain
    assert "tau" in plain


def test_a_terminal_without_a_prompt_is_a_usage_error(speaking):
    """Not a program that waits for nobody knows what."""
    code, screen = in_a_terminal(speaking)

    assert code == 2
    assert "error: no prompt" in without_colour(screen)


def test_color_does_nothing_in_a_pipe(speaking):
    done = dspark(*speaking, "-p", "\n", "--color", "--stats", "none")

    assert done.stdout == ANSWER


def test_verbose_shows_llama_cpp_s_log_and_the_drafter_s_batch(speaking):
    done = dspark(*speaking, "-p", "\n", "-c", "256", "--verbose", "--stats", "none")

    assert done.stdout == ANSWER
    assert b"DFlash extract_layers" in done.stderr
    assert b'"n_batch": 259' in done.stderr


def test_context_shift_is_refused_with_a_warning_and_the_run_goes_on(speaking):
    done = dspark(*speaking, "-p", "\n", "--context-shift", "--stats", "none")

    assert done.returncode == 0
    assert done.stdout == ANSWER
    assert done.stderr.decode() == (
        "warning: ctx_shift is not supported with draft-dspark capture, it will be disabled\n"
    )


def test_a_first_token_that_ends_the_text_hints_at_chat(tmp_path):
    """Public report: a raw prompt stops at once on a model made for conversations."""
    target = write_rigged_target(
        tmp_path / "t.gguf",
        next_token=lambda _: EOS,
        vocabulary=Vocabulary(chat_template="{{ messages[-1]['content'] }}"),
    )
    plain = ["-m", str(target.path), "--no-draft", "-p", "a", "--stats", "none", "-t", "1"]

    assert b"hint: the first token ended the text" in dspark(*plain).stderr
    assert b"hint" not in dspark(*plain, "--chat").stderr


def test_a_stranger_of_a_drafter_is_named_once(tmp_path):
    target = write_rigged_target(tmp_path / "t.gguf", next_token=endless)
    drafter = write_rigged_drafter(tmp_path / "d.gguf", target, knows=lambda _: ord("!"))
    done = dspark(
        "-m", str(target.path), "-md", str(drafter.path), "-p", "a", "-n", "40", "-t", "1"
    )

    assert done.returncode == 0
    assert done.stderr.count(b"does not seem to belong to this target") == 1
    assert b"accepted in 0% of 39 rounds" in done.stderr


def test_the_last_line_says_whether_drafting_paid(talking):
    done = dspark(*talking, "-p", "a", "-n", "64")

    last = done.stderr.decode().strip().splitlines()[-1]
    assert re.match(r"Drafting (saved|cost) \d+\.\d\d s: 64 tokens took", last)


@pytest.mark.parametrize(
    ("redirection", "code", "sentence"),
    [
        (">&-", 1, "the answer cannot be written to stdout: it is closed"),
        ("<&-", 2, "no prompt"),
        ("-f - <&-", 2, "no prompt"),
        ("--token-ids - <&-", 2, "no prompt"),
        ("--json <&-", 2, '"exit_code": 2'),
    ],
)
def test_closed_streams_are_explained(speaking, redirection, code, sentence):
    """A shell can close any of them before the program begins."""
    prompt = "-p a " if redirection == ">&-" else ""
    command = " ".join(map(sh_quote, [*DSPARK, "run", *speaking]))
    done = subprocess.run(
        ["bash", "-c", f"{command} {prompt}{redirection}"],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )

    assert done.returncode == code
    assert sentence in done.stderr + done.stdout
    assert "Traceback" not in done.stderr


def without_a_run(speaking: list[str]) -> list[list[str]]:
    return [
        [],
        ["--help"],
        ["run", "--help"],
        ["--version"],
        ["doctor"],
        ["inspect", *speaking[:4]],
    ]


def test_help_and_tables_may_be_read_in_part(speaking):
    """``dspark run --help | head -1`` is no error either."""
    for arguments in without_a_run(speaking):
        reader, writer = os.pipe()
        os.close(reader)
        done = subprocess.run(
            [*DSPARK, *arguments], stdout=writer, stderr=subprocess.PIPE, check=False, timeout=60
        )
        os.close(writer)

        assert (done.returncode, done.stderr) == (0, b""), arguments


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs the device that is always full")
@pytest.mark.parametrize(
    ("redirection", "reason"),
    [(">/dev/full", "No space left on device"), (">&-", "it is closed")],
)
def test_help_and_tables_that_cannot_be_written_say_so(speaking, redirection, reason):
    for arguments in without_a_run(speaking):
        done = subprocess.run(
            ["bash", "-c", f"{shlex.join([*DSPARK, *arguments])} {redirection}"],
            stderr=subprocess.PIPE,
            text=True,
            check=False,
            timeout=60,
        )

        sentence = f"error: the answer cannot be written to stdout: {reason}\n"
        assert (done.returncode, done.stderr) == (1, sentence), arguments


def test_dspark_alone_shows_what_there_is():
    """No command is a question, not a mistake."""
    alone = subprocess.run(DSPARK, capture_output=True, text=True, check=False, timeout=60)

    assert (alone.returncode, alone.stderr) == (0, "")
    assert all(command in alone.stdout for command in ("run", "check", "inspect", "doctor"))


STDERR = {"closed": "2>&-", "full": "2>/dev/full", "unread": "2>&{unread}"}


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs the device that is always full")
@pytest.mark.parametrize("redirection", STDERR.values(), ids=STDERR)
@pytest.mark.parametrize(
    ("options", "code"),
    [
        ("-p a -n 2", 0),
        ("-p a -n 2 --verbose --stats json", 0),
        ("-p a -n 2 --context-shift --stats none", 0),
        ("-p a -n -7", 2),
        ("-p a -n 2 --no-such-option", 2),
        ("-p a -n 2 --json --jsonl", 2),
    ],
)
def test_what_cannot_be_heard_on_stderr_changes_no_exit_code(talking, options, code, redirection):
    """The answer comes all the same, whole."""
    reader, writer = os.pipe()
    os.close(reader)
    command = shlex.join([*DSPARK, "run", *talking]) + f" {options} "
    done = subprocess.run(
        ["bash", "-c", command + redirection.format(unread=writer)],
        stdout=subprocess.PIPE,
        check=False,
        timeout=60,
        pass_fds=[writer],
    )
    os.close(writer)

    assert done.returncode == code
    if not code:
        assert done.stdout == b"bc"


def test_a_bug_is_exit_code_3_with_nobody_to_tell(speaking, tmp_path):
    """Its traceback has no place to go, and its exit code does not need one."""
    (tmp_path / "llama_cpp.py").write_text("1 / 0\n")
    command = shlex.join([*DSPARK, "run", *speaking, "-p", "a"])
    for streams in ("2>&-", "2>/dev/full", "--json 2>/dev/full", "--json >/dev/full 2>&-"):
        done = subprocess.run(
            ["bash", "-c", f"{command} {streams}"],
            stdout=subprocess.PIPE,
            check=False,
            timeout=60,
            env={**os.environ, "PYTHONPATH": shadowing(tmp_path)},
        )
        assert done.returncode == 3


def test_a_terminal_of_seven_bits_gets_its_table_too(speaking):
    """No character of ours is worth a traceback."""
    done = subprocess.run(
        [*DSPARK, "run", *speaking, "-p", "\n"],
        capture_output=True,
        check=False,
        timeout=60,
        env={**os.environ, "PYTHONIOENCODING": "ascii"},
    )

    assert (done.returncode, done.stdout) == (0, ANSWER)
    assert b"tau" in done.stderr
    assert done.stderr.isascii()
