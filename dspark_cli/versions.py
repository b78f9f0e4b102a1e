"""Which versions made a result, so that it can be repeated."""

import platform
from importlib.metadata import version

from dspark_cli.native import ext


def versions() -> dict[str, str]:
    """Every part whose change could change a token or a time."""
    return {
        "dspark_cli": version("dspark-cli"),
        "llama_cpp_python": version("llama-cpp-python"),
        "llama_cpp": ext.llama_version().decode(),
        "llama_cpp_commit": ext.ggml_commit().decode(),
        "numpy": version("numpy"),
        "gguf": version("gguf"),
        "python": platform.python_version(),
    }
