"""The answer on stdout, byte for byte, and nothing else there."""

from collections.abc import Iterable
from typing import BinaryIO

from dspark_cli.events import Report, Text
from dspark_cli.render.streams import write_answer

GREEN, RESET = b"\x1b[32m", b"\x1b[0m"


class PlainText:
    """Writes text as it comes; ``color`` marks what accepted draft tokens brought."""

    def __init__(self, out: BinaryIO, *, color: bool = False) -> None:
        self._out = out
        self._color = color
        self.newline_needed = False

    def show(self, reports: Iterable[Report]) -> None:
        """Raises ReaderGoneError when nobody reads, StdoutError for any other failure."""
        for report in reports:
            if isinstance(report, Text):
                marked = self._color and report.drafted
                write_answer(self._out, GREEN + report.data + RESET if marked else report.data)
                self.newline_needed = not report.data.endswith(b"\n")

    def end_line(self) -> None:
        """Begin a new line unless the text has."""
        if self.newline_needed:
            write_answer(self._out, b"\n")
            self.newline_needed = False
