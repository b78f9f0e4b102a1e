"""stdout as the place of the answer, stderr as a courtesy: failures in words, an end in peace."""

import os
import sys
from contextlib import suppress
from typing import BinaryIO

from dspark_cli.errors import ReaderGoneError, StdoutError


def answer_stream() -> BinaryIO:
    """The bytes of stdout; raises StdoutError where the shell has closed it."""
    if sys.stdout is None:
        raise StdoutError("the answer cannot be written to stdout: it is closed")
    return sys.stdout.buffer


def write_answer(out: BinaryIO, data: bytes) -> None:
    """Write to stdout at once.

    Raises ReaderGoneError where nobody reads, StdoutError for a full disk or a lost permission.
    """
    try:
        out.write(data)
        out.flush()
    except BrokenPipeError:
        raise ReaderGoneError from None
    except OSError as error:
        raise StdoutError(f"the answer cannot be written to stdout: {error.strerror}") from None


def write_aside(text: str) -> None:
    """Say something on stderr if it can be heard; no run fails because it cannot."""
    if sys.stderr is None:
        return
    with suppress(OSError):
        sys.stderr.write(text)
        sys.stderr.flush()


def leave_streams() -> None:
    """Write what is left, or let it go: the exit code is decided, nothing may change it now.

    Without this the interpreter's own last flush would fail, print a complaint and exit with 120.
    """
    for stream in (sys.stdout, sys.stderr):
        if stream is None:
            continue
        try:
            stream.flush()
        except OSError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
