"""Stop llama.cpp in the middle of a decode when the user presses Ctrl-C.

Python runs signal handlers only between bytecodes, and a decode is one bytecode that can take
minutes. So the signal goes through the wakeup descriptor to a waiting thread, which sets one
byte; llama.cpp asks about that byte after every node of its graph. The question is put by the C
library's own ``strlen``, which answers 0 for an empty string: a Python callback would take the
interpreter lock a thousand times per token (5 % of a small model's time).
"""

import ctypes
import os
import signal
import socket
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from dspark_cli.errors import INTERRUPTED_EXIT_CODE, InterruptedRunError

_libc = ctypes.cdll.msvcrt if sys.platform == "win32" else ctypes.CDLL(None)


class InterruptFlag:
    """One byte that C code can read: an empty C string until somebody sets it."""

    def __init__(self) -> None:
        self._bytes = ctypes.create_string_buffer(2)

    def set(self) -> None:
        self._bytes[0] = b"!"

    def clear(self) -> None:
        self._bytes[0] = b"\0"

    def __bool__(self) -> bool:
        return self._bytes[0] != b"\0"

    @property
    def address(self) -> int:
        return ctypes.addressof(self._bytes)


interrupted = InterruptFlag()

# typedef bool (*ggml_abort_callback)(void * data);  size_t strlen(const char * s);
abort_check = ctypes.cast(_libc.strlen, ctypes.c_void_p).value
"""Address of the function that llama.cpp calls with the flag's address: true means stop."""


@contextmanager
def ctrl_c_sets_flag() -> Iterator[InterruptFlag]:
    """Within the block the first Ctrl-C sets the flag and a second one ends the process at once.

    Outside the main thread, where Python allows no signal handlers, the flag is left alone.
    """
    interrupted.clear()
    if threading.current_thread() is not threading.main_thread():
        yield interrupted
        return
    ours, theirs = socket.socketpair()
    theirs.setblocking(False)
    previous_fd = signal.set_wakeup_fd(theirs.fileno(), warn_on_full_buffer=False)
    previous_handler = signal.signal(signal.SIGINT, _leave_it_to_the_watcher)
    watcher = threading.Thread(target=_watch, args=(ours,), name="ctrl-c", daemon=True)
    watcher.start()
    try:
        yield interrupted
    finally:
        signal.signal(signal.SIGINT, previous_handler)
        signal.set_wakeup_fd(previous_fd)
        theirs.close()  # the watcher reads the end of the stream and returns
        watcher.join()
        ours.close()
        interrupted.clear()


@contextmanager
def ctrl_c_raises() -> Iterator[None]:
    """Within ``ctrl_c_sets_flag``: Ctrl-C ends the block at once, with InterruptedRunError.

    For what asks about no flag, such as a chat template, which is somebody else's program.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    try:
        previous = signal.signal(signal.SIGINT, signal.default_int_handler)
        try:
            if interrupted:
                raise InterruptedRunError
            yield
        finally:
            signal.signal(signal.SIGINT, previous)
    except KeyboardInterrupt:
        raise InterruptedRunError from None


def _leave_it_to_the_watcher(signum: int, frame: FrameType | None) -> None:
    """Exist: without a handler, C's default would end the process first."""


def _watch(stream: socket.socket) -> None:
    while signals := stream.recv(16):
        for number in signals:
            if number != signal.SIGINT:
                continue
            if interrupted:
                os._exit(INTERRUPTED_EXIT_CODE)
            interrupted.set()
