"""Catch what llama.cpp says: a quiet ring of lines, echoed to stderr on demand.

A successful run prints nothing of it. A failure quotes the last warnings and errors, which are
where llama.cpp names its reason.
"""

import sys
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import llama_cpp.llama_cpp as bindings

WARN, ERROR, CONTINUED = 3, 4, 5  # enum ggml_log_level (ggml.h)
KEPT_LINES = 200


class LogCapture:
    """The log of the process; llama.cpp has one callback for all models."""

    def __init__(self) -> None:
        self._echo = False
        self._lines: deque[tuple[int, str]] = deque(maxlen=KEPT_LINES)
        self._partial = ""
        self._level = 0
        # llama.cpp keeps the pointer: the callback object must live as long as the process.
        self._callback = bindings.llama_log_callback(self._receive)

    def install(self) -> None:
        """Take llama.cpp's one callback, which other users of the library may have taken since."""
        bindings.llama_log_set(self._callback, None)

    @contextmanager
    def echoing(self, wanted: bool) -> Iterator[None]:
        """Within the block each line goes to stderr as well, if that is wanted."""
        before, self._echo = self._echo, wanted
        try:
            yield
        finally:
            self._echo = before

    def _receive(self, level: int, text: bytes, _: object) -> None:
        if self._echo and sys.stderr is not None:
            with suppress(OSError):  # a lost echo loses nothing else
                sys.stderr.write(text.decode(errors="replace"))
                sys.stderr.flush()
        if level != CONTINUED:
            self._level = level
        self._partial += text.decode(errors="replace")
        while "\n" in self._partial:
            line, self._partial = self._partial.split("\n", 1)
            if line.strip():
                self._lines.append((self._level, line.strip()))

    def clear(self) -> None:
        self._lines.clear()

    def complaints(self, most: int = 3) -> tuple[str, ...]:
        """The last warnings and errors, oldest first."""
        lines = [line for level, line in self._lines if level in {WARN, ERROR}]
        return tuple(lines[-most:])

    def errors(self, most: int = 3) -> tuple[str, ...]:
        """The last errors, or warnings where there was no error, oldest first."""
        lines = [line for level, line in self._lines if level == ERROR]
        return tuple(lines[-most:]) or self.complaints(most)


log = LogCapture()
