"""A GGUF loaded into memory, and freed again."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import llama_cpp.llama_cpp as bindings

from dspark_cli.errors import InterruptedRunError, LlamaError
from dspark_cli.native import guard
from dspark_cli.native.interrupt import interrupted
from dspark_cli.native.log import log

Progress = Callable[[float], None]
"""Called with the loaded share, 0 to 1."""


@cache
def start_llama() -> None:
    """Prepare llama.cpp once per process, with both guards against its aborts."""
    bindings.llama_backend_init()
    guard.install()


def repacking_is_safe(system_info: str) -> bool:
    """Whether llama.cpp may lay weights out anew for the CPU that ``system_info`` describes.

    GCC up to 12 drops the stores of the tile configuration in ggml-cpu/amx/mmq.cpp (its
    ``_tile_loadconfig`` tells the optimiser of 8 bytes out of 64), and the first batch of a
    quantised model ends in SIGSEGV. A library does not say what compiled it, so the AMX layout is
    left alone wherever it would be used.
    """
    return "AMX_INT8 = 1" not in system_info


@cache
def repacking_is_allowed() -> bool:
    """The same for the CPU of this machine."""
    return repacking_is_safe(bindings.llama_print_system_info().decode())


def gpu_offload_supported() -> bool:
    return bool(bindings.llama_supports_gpu_offload())


class Model:
    """A loaded model; contexts made from it must be closed first."""

    def __init__(self, handle: Any, path: Path) -> None:
        self.handle = handle
        self.path = path


@contextmanager
def open_model(
    path: Path, *, gpu_layers: int | None = None, progress: Progress | None = None
) -> Iterator[Model]:
    """Load the weights of ``path``; raises LlamaError with llama.cpp's own reason."""
    log.install()
    start_llama()
    params = bindings.llama_model_default_params()
    params.use_extra_bufts = repacking_is_allowed()
    if gpu_layers is not None:
        params.n_gpu_layers = gpu_layers

    def report(share: float, _: object) -> bool:
        if progress is not None:
            progress(share)
        return not interrupted  # false stops the load

    callback = bindings.llama_progress_callback(report)
    params.progress_callback = callback
    log.clear()
    handle = bindings.llama_model_load_from_file(str(path).encode(), params)
    if handle is None:
        if interrupted:
            raise InterruptedRunError
        raise LlamaError(f"llama.cpp could not load {path}", log=log.errors())
    try:
        yield Model(handle, path)
    finally:
        bindings.llama_model_free(handle)
