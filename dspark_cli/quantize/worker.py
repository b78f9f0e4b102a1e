"""The process that llama.cpp quantises in: ``python -m dspark_cli.quantize.worker ORDER``.

A quantisation cannot be stopped from within, and an abort inside llama.cpp ends the process that
it happens in. ORDER is a JSON object, the arguments of ``quantize_file``. stderr carries
llama.cpp's log; stdin carries nothing, and its end says that the parent is gone, however it went.
"""

import json
import os
import signal
import sys
import threading
from contextlib import suppress
from pathlib import Path

from dspark_cli.engine.model import start_llama
from dspark_cli.errors import INTERRUPTED_EXIT_CODE, LlamaError
from dspark_cli.native.log import log
from dspark_cli.native.quantizer import quantize_file

STDIN = 0


def main() -> None:
    """Carry out one order; leaves no half file behind when its parent dies."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a terminal's Ctrl-C is for the parent to judge
    order = json.loads(sys.argv[1])
    source, out = Path(order.pop("source")), Path(order.pop("out"))
    threading.Thread(target=_end_with_parent, args=(out,), daemon=True).start()
    log.install()
    start_llama()
    with log.echoing(True):
        done = quantize_file(source, out, **order)
    raise SystemExit(0 if done else LlamaError.exit_code)


def _end_with_parent(out: Path) -> None:
    # Not sys.stdin: its lock would be held when the interpreter ends.
    with suppress(OSError):
        os.read(STDIN, 1)
    with suppress(OSError):
        out.unlink(missing_ok=True)
    os._exit(INTERRUPTED_EXIT_CODE)


if __name__ == "__main__":
    main()
