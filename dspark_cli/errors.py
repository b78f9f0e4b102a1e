"""Failures that a user can act on, each with the exit code that scripts see.

::

    DsparkError               1    explained: an unreadable GGUF, a prompt longer than the context
    ├── StdoutError           1    the answer cannot be written: a full disk, a closed stdout
    ├── UsageError            2    the command line asks for the impossible, or a file is missing
    ├── ContractError         4    drafter and target do not belong together
    ├── LlamaError            5    llama.cpp refused, aborted, or computed nonsense
    └── BugError              3    a bug in dspark: what a traceback turns into at the door

Exit code 130 is Ctrl-C. This module knows sentences and numbers; it prints nothing.
"""

from collections.abc import Sequence

INTERRUPTED_EXIT_CODE = 130


class DsparkError(Exception):
    """A failure that the user can act on; the message is one sentence with its facts."""

    exit_code = 1

    def __init__(self, message: str, *, hint: str | None = None, log: Sequence[str] = ()) -> None:
        super().__init__(message)
        self.hint = hint
        self.log = tuple(log)

    @property
    def messages(self) -> tuple[str, ...]:
        """Every sentence to be shown, most errors have one."""
        return (str(self),)


class StdoutError(DsparkError):
    """The answer cannot be written, so no other answer can follow."""


class UsageError(DsparkError):
    exit_code = 2


class ContractError(DsparkError):
    """All disagreements between a drafter and a target, at once."""

    exit_code = 4

    def __init__(self, problems: Sequence[str], *, hint: str | None = None) -> None:
        super().__init__("; ".join(problems), hint=hint)
        self.problems = tuple(problems)

    @property
    def messages(self) -> tuple[str, ...]:
        return self.problems


class LlamaError(DsparkError):
    """llama.cpp said no; ``log`` holds its last words, oldest first."""

    exit_code = 5


class BugError(DsparkError):
    """Nothing that the user can act on: the message names the exception."""

    exit_code = 3


class ReaderGoneError(Exception):
    """Nobody reads stdout any more, as with ``| head -1``: not a failure, an early end."""


class InterruptedRunError(Exception):
    """Ctrl-C reached llama.cpp in the middle of a decode: not a failure, an end of the run."""
