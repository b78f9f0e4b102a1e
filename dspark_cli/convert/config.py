"""A checkpoint's ``config.json``: its values are believed only where they have the right type."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from dspark_cli.errors import DsparkError, UsageError

LONGEST = 64 * 2**20  # bytes; the index of a large checkpoint has a few
MOST = 2**31 - 1
LARGEST = 1e30  # fits into F32, which is what keys hold


def read_json(path: Path) -> dict[str, object]:
    """A file that holds one JSON object; raises UsageError or DsparkError."""
    try:
        if not path.exists():
            raise UsageError(f"{path}: no such file")
        if not path.is_file():
            raise DsparkError(f"{path}: is no regular file, wanted JSON")
        if (size := path.stat().st_size) > LONGEST:
            raise DsparkError(f"{path}: has {size} bytes, wanted at most {LONGEST}")
        found = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise DsparkError(f"{path}: cannot be read: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise DsparkError(f"{path}: is not UTF-8 at byte {error.start}") from None
    except (ValueError, RecursionError) as error:
        raise DsparkError(f"{path}: is no JSON: {' '.join(str(error).split())[:120]}") from None
    if not isinstance(found, dict):
        raise DsparkError(f"{path}: holds no JSON object")
    return found


@dataclass(frozen=True, slots=True)
class Config:
    """Values by name, looked up in the first part that has them."""

    path: Path
    parts: tuple[Mapping[str, object], ...]

    @classmethod
    def read(cls, path: Path) -> "Config":
        """``config.json`` in all the shapes of the frameworks.

        What SpecForge nests in ``dflash_config`` and speculators in ``transformer_layer_config``
        comes before what stands beside it.
        """
        top = read_json(path)
        nested = ("dflash_config", "transformer_layer_config", "text_config")
        first, *rest = (_part(path, top, name) for name in nested)
        return cls(path, (first, rest[0], top, rest[1]))

    def get(self, name: str) -> object:
        return next((part[name] for part in self.parts if part.get(name) is not None), None)

    def integer(
        self, *names: str, default: int | None = None, least: int = 1, most: int = MOST
    ) -> int:
        """A number under the first of ``names`` that is there; raises DsparkError."""
        name, value = self._first(names)
        if value is None and default is not None:
            return default
        whole = isinstance(value, float) and value.is_integer()
        if isinstance(value, bool) or not (isinstance(value, int) or whole):
            raise self._wrong(name, f"a number from {least} to {most}", value)
        if not least <= value <= most:  # type: ignore[operator]
            raise self._wrong(name, f"a number from {least} to {most}", value)
        return int(value)  # type: ignore[call-overload, no-any-return]

    def number(self, *names: str, default: float | None = None) -> float:
        """A finite number above 0; raises DsparkError."""
        name, value = self._first(names)
        if value is None and default is not None:
            return default
        sound = isinstance(value, int | float) and not isinstance(value, bool)
        if not sound or not 0 < value < LARGEST:  # type: ignore[operator]
            raise self._wrong(name, "a number above 0", value)
        return float(value)  # type: ignore[arg-type]

    def flag(self, *names: str) -> bool | None:
        name, value = self._first(names)
        if value is not None and not isinstance(value, bool):
            raise self._wrong(name, "true or false", value)
        return value

    def text(self, name: str) -> str | None:
        value = self.get(name)
        if value is not None and not isinstance(value, str):
            raise self._wrong(name, "a text", value)
        return value

    def integers(self, name: str, *, least: int, most: int) -> tuple[int, ...] | None:
        value = self.get(name)
        if value is None:
            return None
        listed = value if isinstance(value, list) else [None]
        if not listed or not all(
            isinstance(item, int) and not isinstance(item, bool) and least <= item <= most
            for item in listed
        ):
            raise self._wrong(name, f"a list of numbers from {least} to {most}", value)
        return tuple(listed)

    def texts(self, name: str) -> tuple[str, ...]:
        value = self.get(name)
        if value is None:
            return ()
        if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
            raise self._wrong(name, "a list of texts", value)
        return tuple(value)

    def part(self, name: str) -> Mapping[str, object]:
        """A nested object, empty where there is none."""
        value = self.get(name)
        if value is not None and not isinstance(value, dict):
            raise self._wrong(name, "an object", value)
        return value or {}

    def _first(self, names: tuple[str, ...]) -> tuple[str, object]:
        found = ((name, self.get(name)) for name in names)
        return next(
            ((name, value) for name, value in found if value is not None), (names[0], None)
        )

    def _wrong(self, name: str, wanted: str, value: object) -> DsparkError:
        shown = "nothing" if value is None else repr(value)[:60]
        return DsparkError(f"{self.path}: {name} wants {wanted}, got {shown}")


def _part(path: Path, top: Mapping[str, object], name: str) -> Mapping[str, object]:
    part = top.get(name)
    if part is not None and not isinstance(part, dict):
        raise DsparkError(f"{path}: {name} wants an object, got {repr(part)[:60]}")
    return part or {}
