"""Files that are either whole or not there."""

import os
from contextlib import suppress
from pathlib import Path

from dspark_cli.errors import DsparkError


def write_atomically(path: Path, data: bytes) -> None:
    """Write a file that is either whole or not there; raises DsparkError, naming the reason."""
    beside = path.with_name(path.name + ".part")
    try:
        with beside.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        beside.replace(path)
    except OSError as error:
        with suppress(OSError):
            beside.unlink(missing_ok=True)
        raise DsparkError(f"{path}: cannot be written: {error.strerror}") from None
