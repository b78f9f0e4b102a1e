"""Errors, warnings and hints, in words or as JSON."""

import io
import sys
from typing import Protocol, TextIO

from rich.console import Console, RenderableType
from rich.text import Text

from dspark_cli.errors import BugError, DsparkError, ReaderGoneError, StdoutError
from dspark_cli.render.jsonl import JsonWriter
from dspark_cli.render.streams import answer_stream, write_answer, write_aside
from dspark_cli.stats import JsonObject


class Messages(Protocol):
    """Where sentences go."""

    def error(self, error: DsparkError) -> None: ...
    def bug(self, traceback: str) -> None: ...


def show_answer(table: RenderableType) -> None:
    """Print the answer of a command whose answer is a table."""
    page = Page(sys.stdout)
    Console(file=page, highlight=False).print(table)
    page.show()


class Page(io.StringIO):
    """Takes what Rich writes and looks like the stream that will get it.

    Where nobody reads a stream, Rich itself would end the process, with exit code 1.
    """

    def __init__(self, stream: TextIO | None) -> None:
        super().__init__()
        self._stream = stream

    @property
    def encoding(self) -> str:  # type: ignore[override]
        return getattr(self._stream, "encoding", None) or "utf-8"

    def isatty(self) -> bool:
        return self._stream is not None and self._stream.isatty()

    def show(self) -> None:
        """Put it on stdout, which it was made for."""
        data = self.getvalue().encode(self.encoding, errors="backslashreplace")
        write_answer(answer_stream(), data)


def tell(what: RenderableType) -> None:
    """Print on stderr.

    A terminal's lines break between words; a file's lines are sentences, whole for grep.
    """
    page = Page(sys.stderr)
    Console(file=page, highlight=False, soft_wrap=not page.isatty()).print(what)
    write_aside(page.getvalue())


def say(kind: str, message: str, style: str) -> None:
    """One line on stderr: a coloured word and a sentence that is never markup."""
    tell(Text.assemble((f"{kind}: ", style), message))


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
        write_aside(traceback)
        say("error", "this is a bug in dspark; the lines above say where", "bold red")


class JsonMessages:
    """One JSON object on stdout, for programs that read it anyway."""

    def error(self, error: DsparkError) -> None:
        try:
            JsonWriter(answer_stream()).write({"error": error_as_json(error)})
        except (StdoutError, ReaderGoneError):  # the sentence goes where it may be seen
            say("error", str(error), "bold red")

    def bug(self, traceback: str) -> None:
        last = traceback.strip().rsplit("\n", 1)[-1]
        write_aside(traceback)
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
