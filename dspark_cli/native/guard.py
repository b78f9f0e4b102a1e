"""Turn an abort inside llama.cpp into one sentence and exit code 5.

GGML_ASSERT ends in ``abort()`` and a C++ exception that leaves a C function in ``terminate()``:
neither can be survived, and both would leave a core dump and a page of backtrace. The contract
refuses what it can foresee; these two guards have the last word on what remains.
"""

import os
import sys
from contextlib import suppress

from dspark_cli.errors import LlamaError
from dspark_cli.native import ext
from dspark_cli.native.log import log

STDERR = 2  # the descriptor: Python's own stderr may be half-way through something


def _last_words(what: str) -> None:
    try:
        lines = [f"error: {what}", *(f"llama.cpp: {line}" for line in log.errors())]
        # Either stream may be closed, full or without a reader.
        with suppress(OSError, ValueError):
            if sys.stdout is not None:
                sys.stdout.flush()
        with suppress(OSError):
            if sys.stderr is not None:  # else the descriptor is somebody else's by now
                os.write(STDERR, ("\n".join(lines) + "\n").encode(errors="replace"))
    finally:
        # Nothing of Python can be unwound from here: the frames below are llama.cpp's.
        os._exit(LlamaError.exit_code)


def _on_abort(message: bytes) -> None:
    _last_words(f"llama.cpp aborted: {message.decode(errors='replace').strip()}")


def _on_terminate() -> None:
    _last_words("llama.cpp ended with an uncaught C++ exception")


_abort_callback = ext.AbortCallback(_on_abort)
_terminate_handler = ext.TerminateHandler(_on_terminate)


def install() -> None:
    """Set both guards; the callbacks live as long as this module."""
    ext.set_abort_callback(_abort_callback)
    ext.set_terminate(_terminate_handler)
