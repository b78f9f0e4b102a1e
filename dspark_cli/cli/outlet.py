"""Where the answers of ``dspark run`` go: text, one document, events, or one line per prompt."""

import sys
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from dspark_cli.cli.params import StatsFormat
from dspark_cli.errors import DsparkError, UsageError
from dspark_cli.events import Report
from dspark_cli.render.jsonl import JsonLines, JsonWriter, exhaust
from dspark_cli.render.messages import error_as_json
from dspark_cli.render.plain import PlainText
from dspark_cli.render.streams import answer_stream

if TYPE_CHECKING:
    from dspark_cli.generate import Generation


class Outlet(Protocol):
    """What becomes of each prompt; ``source`` says where the prompt stood."""

    @property
    def default_stats(self) -> StatsFormat: ...
    def show(self, reports: Iterable[Report], /) -> None: ...
    def result(self, run: "Generation", source: str, /) -> None: ...
    def failure(self, error: DsparkError, source: str, /) -> None:
        """Tell of a prompt that failed; raises ``error`` where no other prompt can follow."""


def choose_outlet(*, json_document: bool, json_lines: bool, many: bool, color: bool) -> Outlet:
    """The outlet for a whole session; raises UsageError where two are asked for."""
    if json_document and json_lines:
        raise UsageError("--json and --jsonl contradict each other")
    out = answer_stream()
    if json_lines:
        return Events(JsonWriter(out), many=many)
    if many:
        return Lines(JsonWriter(out), StatsFormat.none if json_document else StatsFormat.table)
    if json_document:
        return Document(JsonWriter(out))
    return Answer(PlainText(out, color=color and sys.stdout.isatty()))


@dataclass(frozen=True, slots=True)
class Answer:
    """The text as it comes."""

    text: PlainText
    default_stats: StatsFormat = StatsFormat.table

    def show(self, reports: Iterable[Report]) -> None:
        self.text.show(reports)

    def result(self, run: "Generation", source: str) -> None:  # noqa: ARG002
        self._end_line()

    def failure(self, error: DsparkError, source: str) -> None:  # noqa: ARG002
        self._end_line()
        raise error

    def _end_line(self) -> None:
        # Scripts get the bytes of the answer alone; a person gets what follows on its own line.
        if sys.stdout.isatty():
            self.text.end_line()


@dataclass(frozen=True, slots=True)
class Document:
    """``--json``: one document when all is done."""

    writer: JsonWriter
    default_stats: StatsFormat = StatsFormat.none

    def show(self, reports: Iterable[Report]) -> None:
        exhaust(reports)

    def result(self, run: "Generation", source: str) -> None:  # noqa: ARG002
        self.writer.write(run.as_json(), indent=2)

    def failure(self, error: DsparkError, source: str) -> None:  # noqa: ARG002
        raise error


@dataclass(frozen=True, slots=True)
class Lines:
    """``--prompts``: a line per prompt, its result or its error."""

    writer: JsonWriter
    default_stats: StatsFormat

    def show(self, reports: Iterable[Report]) -> None:
        exhaust(reports)

    def result(self, run: "Generation", source: str) -> None:
        self.writer.write({"source": source, **run.as_json()})

    def failure(self, error: DsparkError, source: str) -> None:
        self.writer.write({"source": source, "error": error_as_json(error)})


@dataclass(frozen=True, slots=True)
class Events:
    """``--jsonl``: every event as it happens; the last of a prompt is its result or its error."""

    writer: JsonWriter
    many: bool
    default_stats: StatsFormat = StatsFormat.none

    def show(self, reports: Iterable[Report]) -> None:
        JsonLines(self.writer).show(reports)

    def result(self, run: "Generation", source: str) -> None:
        self.writer.write({"event": "result", "source": source, **run.as_json()})

    def failure(self, error: DsparkError, source: str) -> None:
        if not self.many:
            raise error
        self.writer.write({"event": "error", "source": source, "error": error_as_json(error)})
