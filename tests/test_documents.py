"""README and examples show what is there: every command, option, key and script of theirs."""

import ast
import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from pairs import write_rigged_drafter, write_rigged_target

from dspark_cli import (
    Generation,
    GenerationOptions,
    MemoryOptions,
    PairOptions,
    __version__,
    open_pair,
)
from dspark_cli.cli.app import main
from dspark_cli.models import installed_smollm2

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text()
EXAMPLES = sorted(path for path in (ROOT / "examples").iterdir() if path.is_file())

needs_smollm2 = pytest.mark.skipif(installed_smollm2() is None, reason="needs the extra smollm2")


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", README, re.DOTALL)


def console_commands() -> list[str]:
    return [
        line[2:] for block in blocks("console") for line in block.splitlines() if line[:2] == "$ "
    ]


def help_of(command: str, capsys) -> str:
    with pytest.raises(SystemExit) as left:
        main([command, "--help"])
    assert left.value.code == 0
    return capsys.readouterr().out


@pytest.fixture
def options_of(capsys, monkeypatch):
    """The options that a command's help names."""
    monkeypatch.setenv("COLUMNS", "200")
    return lambda command: set(re.findall(r"(?<![\w-])--?[a-z][a-z-]*", help_of(command, capsys)))


def test_the_readme_opens_with_two_complete_set_ups():
    """One installs and generates, one installs and tests, each in a fresh environment."""
    first, second = console_commands()[:2]

    assert first.startswith("python3 -m venv .venv && .venv/bin/pip install . && ")
    assert ".venv/bin/dspark run -p " in first
    assert second.startswith("python3 -m venv .venv && .venv/bin/pip install -e '.[test]' && ")
    assert second.endswith(".venv/bin/python -m pytest")


def test_every_command_in_the_readme_takes_the_options_shown(options_of):
    checked = 0
    for line in console_commands():
        for part in line.split("&&"):
            words = shlex.split(part)
            if Path(words[0]).name != "dspark":
                continue
            known = options_of(words[1])
            assert {word for word in words[2:] if word.startswith("-")} <= known
            checked += 1
    assert checked == 15


def test_every_option_in_the_readme_s_table_exists(options_of):
    table = README.split("| option | meaning |")[1].split("\n\n")[0]
    shown = set(re.findall(r"(?<![\w-])--?[a-z][a-z-]*", table))

    assert shown <= options_of("run")
    assert len(shown) > 40


@pytest.mark.parametrize(
    "command", ["run", "check", "inspect", "doctor", "train", "convert", "calibrate", "bench"]
)
def test_every_option_is_in_the_readme(options_of, command):
    """Aliases of a name that is shown may be missing, nothing else."""
    aliases = {
        "--prompt", "--file", "--escape", "-e", "--n-predict", "--predict", "--ctx-size",
        "--context-shift", "--batch-size", "--ubatch-size", "--threads", "--threads-draft",
        "--n-gpu-layers", "--spec-draft-ngl", "--flash-attn", "--cache-type-k", "--cache-type-v",
        "--cache-type-k-draft", "--cache-type-v-draft", "-s", "-v", "-h", "--help",
        "--spec-draft-model",
    }  # fmt: skip
    shown = set(re.findall(r"(?<![\w-])--?[a-z][a-z-]*", README))

    assert options_of(command) - shown <= aliases


def test_every_key_of_the_json_document_is_in_the_readme(tmp_path):
    target = write_rigged_target(tmp_path / "t.gguf", next_token=lambda _: 97)
    drafter = write_rigged_drafter(tmp_path / "d.gguf", target, knows=lambda _: 97)
    options = PairOptions(target.path, drafter.path, memory=MemoryOptions(ctx_size=256, threads=1))
    with open_pair(options) as pair:
        run = Generation(pair, [97], GenerationOptions(n_predict=4))
        assert len(list(run)) > 1
    section = README.split("## The JSON document")[1].split("\n## ")[0]

    for key in run.as_json():
        wildcard = re.sub(r"^num_(accepted|rejected)_draft_tokens$", r"num_\1_…", key)
        assert f"`{wildcard}`" in section, key


def test_the_readme_s_python_is_the_example_s():
    """The block is the beginning of the file that a test runs."""
    (block,) = blocks("python")
    script = (ROOT / "examples" / "generate.py").read_text()

    statements = [ast.unparse(node) for node in ast.parse(script).body[1:]]
    assert [ast.unparse(node) for node in ast.parse(block).body] == statements[
        : len(statements) - 1
    ]


def test_the_changelog_s_newest_entry_is_this_version():
    headings = re.findall(r"^## (.*)$", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)

    assert headings[0] == __version__


def test_every_example_is_run_by_a_test():
    assert [path.name for path in EXAMPLES] == [
        "acceptance.sh",
        "check.sh",
        "generate.py",
        "generate.sh",
    ]


@needs_smollm2
@pytest.mark.model
@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.name)
def test_an_example_does_what_it_says(path):
    """Each finishes with exit code 0 and talks about its subject."""
    runner = [sys.executable] if path.suffix == ".py" else ["bash"]
    scripts = str(Path(sys.executable).parent)
    done = subprocess.run(
        [*runner, str(path)],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PATH": f"{scripts}{os.pathsep}{os.environ['PATH']}"},
    )

    assert done.returncode == 0
    assert all("measured this pair" in line for line in done.stderr.splitlines())
    if path.name == "check.sh":
        assert re.fullmatch(r"2 identical, 0 ties, tau \d\.\d\d\n", done.stdout)
        return
    assert "ainbow" in done.stdout
    if path.name == "acceptance.sh":
        assert len(done.stdout.splitlines()) == 3
        assert all(line.startswith("tau ") for line in done.stdout.splitlines())


def test_the_shell_example_passes_exit_codes_on(tmp_path):
    """A failing dspark is told from a failing script."""
    fake = tmp_path / "dspark"
    script = str(ROOT / "examples" / "generate.sh")
    for code in (1, 2, 3, 4, 5, 130):
        fake.write_text(f"#!/bin/sh\nexit {code}\n")
        fake.chmod(0o755)
        done = subprocess.run(
            ["bash", script],
            capture_output=True,
            check=False,
            env={"PATH": f"{tmp_path}:{os.environ['PATH']}"},
        )
        assert (done.returncode, done.stdout) == (code, b"")
        assert done.stderr


def test_the_statistics_example_has_a_line_for_every_prompt(tmp_path):
    """One that failed and one without a draft as well; the exit code is dspark's."""
    lines = [
        {"source": "p, line 1", "error": {"message": "too long"}},
        {"source": "p, line 2", "mean_acceptance_length": None, "draft_acceptance_rate": None,
         "text": ""},
        {"source": "p, line 3", "mean_acceptance_length": 2.5, "draft_acceptance_rate": 0.5,
         "text": "Rainbows"},
    ]  # fmt: skip
    answers = tmp_path / "answers"
    answers.write_text("".join(json.dumps(line) + "\n" for line in lines))
    fake = tmp_path / "dspark"
    fake.write_text(f"#!/bin/sh\ncat '{answers}'\nexit 1\n")
    fake.chmod(0o755)

    done = subprocess.run(
        ["bash", str(ROOT / "examples" / "acceptance.sh")],
        capture_output=True,
        text=True,
        check=False,
        env={"PATH": f"{tmp_path}:{os.environ['PATH']}"},
    )

    assert (done.returncode, done.stderr) == (1, "")
    assert done.stdout.splitlines() == [
        "p, line 1: too long",
        "no draft  ''",
        "tau 2.50  accept 50.0%  'Rainbows'",
    ]


def test_the_ci_example_stops_at_a_divergence(tmp_path):
    """With set -e the exit code of the check is the script's."""
    fake = tmp_path / "dspark"
    fake.write_text("#!/bin/sh\necho '{}'\nexit 1\n")
    fake.chmod(0o755)

    done = subprocess.run(
        ["bash", str(ROOT / "examples" / "check.sh")],
        capture_output=True,
        check=False,
        env={"PATH": f"{tmp_path}:{os.environ['PATH']}"},
    )

    assert (done.returncode, done.stdout) == (1, b"")
