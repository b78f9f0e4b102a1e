"""Whether a file may be written, said before anything is read."""

from pathlib import Path

from dspark_cli.errors import UsageError


def check_out(out: Path, *, force: bool, name: str = "-o") -> None:
    """Refuse early what could not be written an hour later; ``name`` is the option's."""
    if out.is_dir() or not out.absolute().parent.is_dir():
        raise UsageError(f"{name} {out}: wanted a file in a folder that exists")
    if out.exists() and not out.is_file():
        raise UsageError(f"{name} {out}: is no regular file, which is what a model becomes")
    if out.exists() and not force:
        raise UsageError(f"{out}: exists already", hint="give another name, or --force")
