"""Find functions in libllama that llama-cpp-python does not bind.

``llama-ext.h`` is C++ without ``extern "C"``, so its names are mangled, differently by each
compiler: plain, Itanium and MSVC spellings are tried in turn. ``dspark doctor`` prints which one
was found.
"""

import ctypes
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import llama_cpp.llama_cpp as bindings

from dspark_cli.errors import LlamaError

library: ctypes.CDLL = bindings._lib  # noqa: SLF001  the loaded library, under its only name
"""libllama. ggml's functions are resolved through this handle too: the wheel carries a second copy
of libggml-base, and a callback set in that copy would never be called."""


@dataclass(frozen=True, slots=True)
class Found:
    """Under which name a function was found, or None."""

    function: str
    symbol: str | None


found: list[Found] = []
"""Every symbol looked up so far, for ``dspark doctor``."""


def symbol(*names: str, arguments: Sequence[Any], returns: Any) -> Callable[..., Any]:
    """Bind the first of ``names`` that the library has; a missing one fails when it is called."""
    for name in names:
        try:
            function = getattr(library, name)
        except AttributeError:
            continue
        function.argtypes = list(arguments)
        function.restype = returns
        found.append(Found(names[0], name))
        return function  # type: ignore[no-any-return]
    found.append(Found(names[0], None))

    def missing(*_: object) -> None:
        raise LlamaError(
            f"this build of llama-cpp-python has no {names[0]}, wanted 0.3.36 or a later 0.3",
            hint="run dspark doctor to see what is missing",
        )

    return missing


def missing_symbols() -> list[str]:
    return [entry.function for entry in found if entry.symbol is None]
