"""Which shape a source has, and its recipe."""

from pathlib import Path

from dspark_cli.convert.checkpoint import read_checkpoint
from dspark_cli.convert.fork import read_fork
from dspark_cli.convert.recipe import Recipe
from dspark_cli.errors import DsparkError
from dspark_cli.metadata import Metadata, read_metadata

FORK = "dspark"


def read_source(path: Path, target: Metadata) -> Recipe:
    """Recognise a source; raises DsparkError where it is none, or one that is not expressible."""
    if path.is_dir() or path.suffix == ".safetensors":
        return read_checkpoint(path, target)
    metadata = read_metadata(path)
    if metadata.architecture == "dflash":
        raise DsparkError(
            f"{path}: is in mainline's dialect already (architecture dflash)",
            hint=f"run it as it is: dspark run -m TARGET -md {path}",
        )
    if metadata.architecture != FORK:
        raise DsparkError(
            f"{path}: is no drafter of the fork: architecture {metadata.architecture}, "
            f"wanted {FORK}"
        )
    return read_fork(metadata)
