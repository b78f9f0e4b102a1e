"""Events as JSON, one per line, and whole results as documents."""

import json
from collections.abc import Iterable
from dataclasses import asdict
from typing import BinaryIO

from dspark_cli.events import Report, Text
from dspark_cli.render.streams import write_answer
from dspark_cli.stats import JsonObject


class JsonWriter:
    """Documents on stdout, one per line or indented."""

    def __init__(self, out: BinaryIO) -> None:
        self._out = out

    def write(self, document: JsonObject, *, indent: int | None = None) -> None:
        """Raises ReaderGoneError when nobody reads, StdoutError for any other failure."""
        self.write_line(json.dumps(document, ensure_ascii=False, allow_nan=False, indent=indent))

    def write_line(self, text: str) -> None:
        """One line of plain text, with the same care."""
        # A lone surrogate in a file's name cannot be UTF-8; JSON's own escape can say it.
        write_answer(self._out, text.encode(errors="backslashreplace") + b"\n")


class JsonLines:
    """``--jsonl``: ``{"event": "round", ...}`` as it happens."""

    def __init__(self, writer: JsonWriter) -> None:
        self._writer = writer

    def show(self, reports: Iterable[Report]) -> None:
        for report in reports:
            self._writer.write(_as_json(report))


def exhaust(reports: Iterable[Report]) -> None:
    """Let the run happen; its result is written afterwards."""
    for _ in reports:
        pass


def _as_json(report: Report) -> JsonObject:
    name = type(report).__name__.lower()
    if isinstance(report, Text):
        return {
            "event": name,
            "text": report.data.decode(errors="replace"),
            "drafted": report.drafted,
        }
    fields = asdict(report)
    return {
        "event": name,
        **{
            key: list(value) if isinstance(value, tuple) else value
            for key, value in fields.items()
        },
    }
