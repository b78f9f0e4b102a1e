"""Files that are either whole or not there."""

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from dspark_cli.errors import DsparkError


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Give a name beside ``path`` to write under, which becomes ``path`` when the block ends.

    Whatever ends the block early, Ctrl-C included, leaves nothing behind. Raises DsparkError,
    naming the reason, where the disk refuses.
    """
    beside = path.with_name(path.name + ".part")
    try:
        yield beside
        beside.replace(path)
    except OSError as error:
        # numpy's tofile says what it wrote and has no errno.
        raise DsparkError(f"{path}: cannot be written: {error.strerror or error}") from None
    finally:
        with suppress(OSError):
            beside.unlink(missing_ok=True)


def write_atomically(path: Path, data: bytes) -> None:
    """Write a file that is either whole or not there; raises DsparkError, naming the reason."""
    with replacing(path) as beside, beside.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
