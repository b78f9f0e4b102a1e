"""Carry out an order in a child process, and turn each of its ends into a file or a sentence.

The child is killed when this one is interrupted, and ends by itself when this one is killed.
"""

import json
import os
import re
import signal
import subprocess
import sys
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeAlias

from dspark_cli.contract.tensors import trimmed
from dspark_cli.errors import DsparkError, LlamaError
from dspark_cli.files import replacing
from dspark_cli.metadata import Metadata, read_metadata
from dspark_cli.quantize.order import Order

Progress: TypeAlias = Callable[[float, float, str], None]
"""Called with the bytes read so far, those of the whole input, and the newest tensor's name."""

KEPT_LINES = 200
# What llama_model_quantize says of each tensor, of its failure, and guard.py of an abort.
TENSOR = re.compile(r"^\[ *\d+/ *\d+\] (?P<name>\S+) ")
FAILED = re.compile(r"failed to quantize: (?P<reason>.*)")
ABORTED = re.compile(r"^error: (?P<reason>llama\.cpp .*)")
STREAM_ERROR = "iostream"  # std::ios_base::failure, which does not say what went wrong


def carry_out(
    order: Order, check: Callable[[Metadata], None], progress: Progress = lambda *_: None
) -> Metadata:
    """Write ``order.out``, whole or not at all, and return what it says about itself.

    ``check`` sees the finished file before it gets its name. Raises DsparkError where the disk
    refuses, LlamaError where llama.cpp does.
    """
    with replacing(order.out) as beside:
        with beside.open("wb"):
            pass  # a folder that cannot be written to says so now
        _run_worker(order, beside, progress)
        written = read_metadata(beside)
        check_written(order.source, written)
        check(written)
        with beside.open("rb+") as file:
            os.fsync(file.fileno())
    return read_metadata(order.out)


def check_written(source: Metadata, written: Metadata) -> None:
    """Raise DsparkError unless every tensor of ``source`` is there, in its shape."""
    wanted = {(name, trimmed(tensor.shape)) for name, tensor in source.tensors.items()}
    found = {(name, trimmed(tensor.shape)) for name, tensor in written.tensors.items()}
    if wanted != found:
        names = sorted({name for name, _ in wanted ^ found})
        raise DsparkError(
            f"{source.path}: llama.cpp wrote other tensors than it read: {', '.join(names)}"
        )


def _run_worker(order: Order, beside: Path, progress: Progress) -> None:
    lines: deque[str] = deque(maxlen=KEPT_LINES)
    sizes = {tensor.name: tensor.size or 0 for tensor in order.source.tensors.values()}
    done, total = 0, max(sum(sizes.values()), 1)
    child = subprocess.Popen(  # noqa: S603  this interpreter, this package
        [sys.executable, "-m", "dspark_cli.quantize.worker", _as_json(order, beside)],
        stdin=subprocess.PIPE,  # nothing is written: its end tells the child of ours
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
    )
    try:
        for line in _lines(child):
            lines.append(line)
            if found := TENSOR.match(line):
                done += sizes.get(found["name"], 0)
                progress(done, total, found["name"])
        code = child.wait()
    finally:
        child.kill()
        child.communicate()  # reaps it and closes both pipes
    if code:
        raise _failure(order, beside, code, [*lines])


def _lines(child: "subprocess.Popen[str]") -> Iterator[str]:
    if child.stderr is not None:
        yield from (line.strip() for line in child.stderr if line.strip())


def _as_json(order: Order, beside: Path) -> str:
    return json.dumps(
        {
            "source": str(order.source.path),
            "out": str(beside),
            "ftype": order.type.number,
            "pure": order.pure,
            "allow_requantize": order.allow_requantize,
            "threads": order.threads,
            "types": order.patterns,
            "realign": order.realign,
        }
    )


def _failure(order: Order, beside: Path, code: int, lines: list[str]) -> DsparkError:
    """Why the child ended with ``code``, by its last words."""
    source = order.source.path
    for line in reversed(lines):
        if failed := FAILED.search(line):
            if STREAM_ERROR in failed["reason"]:
                return DsparkError(f"{order.out}: cannot be written: {_write_error(beside)}")
            return LlamaError(f"llama.cpp could not quantise {source}: {failed['reason']}")
        if aborted := ABORTED.match(line):
            return LlamaError(f"{source}: {aborted['reason']}")
    if code < 0:
        return LlamaError(
            f"{source}: quantising was ended by {signal.Signals(-code).name}",
            hint="SIGKILL often means that memory ran out" if code == -signal.SIGKILL else None,
        )
    return LlamaError(f"{source}: quantising ended with code {code}", log=lines[-3:])


def _write_error(beside: Path) -> str:
    """The operating system's reason, which a C++ stream swallows: one more block is tried."""
    try:
        with beside.open("ab") as file:
            file.write(bytes(2**16))
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        return error.strerror or str(error)
    return "the disk refused to take all of it"
