"""Errors, warnings and hints, in words or as JSON."""

import json
import sys
from typing import Protocol

from rich.console import Console, RenderableType
from rich.text import Text

from dspark_cli.errors import BugError, DsparkError
from dspark_cli.render.streams import writing_answer
from dspark_cli.stats import JsonObject


class Messages(Protocol):
    """Where sentences go."""

    def error(self, error: DsparkError) -> None: ...
    def bug(self, traceback: str) -> None: ...


def stderr_console() -> Console:
    """Made anew for each use, so that it follows whatever stderr is at that moment.

    A terminal's lines break between words; a file's lines are sentences, whole for grep.
    """
    return Console(
        stderr=True, highlight=False, soft_wrap=sys.stderr is None or not sys.stderr.isatty()
    )


def show_answer(table: RenderableType) -> None:
    """Print the answer of a command whose answer is a table."""
    with writing_answer():
        Console(highlight=False).print(table)


def say(kind: str, message: str, style: str) -> None:
    """One line on stderr: a coloured word and a sentence that is never markup."""
    stderr_console().print(Text.assemble((f"{kind}: ", style), message))


def warn(message: str) -> None:
    say("warning", message, "bold yellow")


def hint(message: str) -> None:
    say("hint", message, "dim")


def note(message: str) -> None:
    say("note", message, "dim")


class PlainMessages:
    """Sentences on stderr."""

    def error(self, error: DsparkError) -> None:
        for message in error.messages:
            say("error", message, "bold red")
        for line in error.log:
            say("llama.cpp", line, "dim")
        if error.hint:
            hint(error.hint)

    def bug(self, traceback: str) -> None:
        sys.stderr.write(traceback)
        say("error", "this is a bug in dspark; the lines above say where", "bold red")


class JsonMessages:
    """One JSON object on stdout, for programs that read it anyway."""

    def error(self, error: DsparkError) -> None:
        try:
            print(json.dumps({"error": error_as_json(error)}), flush=True)
        except OSError:  # nobody can read stdout, so the sentence goes where it may be seen
            say("error", str(error), "bold red")

    def bug(self, traceback: str) -> None:
        last = traceback.strip().rsplit("\n", 1)[-1]
        sys.stderr.write(traceback)
        self.error(BugError(f"this is a bug in dspark: {last}"))


def error_as_json(error: DsparkError) -> JsonObject:
    """The error's keys as the README documents them."""
    return {
        "message": str(error),
        "messages": list(error.messages),
        "hint": error.hint,
        "exit_code": error.exit_code,
        "log": list(error.log),
    }
