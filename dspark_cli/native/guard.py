"""Turn an abort inside llama.cpp into one sentence and exit code 5.

GGML_ASSERT ends in ``abort()`` and a C++ exception that leaves a C function in ``terminate()``:
neither can be survived, and both would leave a core dump and a page of backtrace. The contract
refuses what it can foresee; these two guards have the last word on what remains.
"""

import os
import sys

from dspark_cli.errors import LlamaError
from dspark_cli.native import ext
from dspark_cli.native.log import log


def _last_words(what: str) -> None:
    sys.stdout.flush()
    lines = [f"error: {what}", *(f"llama.cpp: {line}" for line in log.errors())]
    sys.stderr.write("\n".join(lines) + "\n")
    sys.stderr.flush()
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
