"""Load llama.cpp, or say why it cannot be had."""

from dspark_cli.errors import DsparkError


def require_llama() -> None:
    """Import llama-cpp-python; raises DsparkError where it or its library is broken or missing."""
    try:
        import llama_cpp  # noqa: F401
    except (ImportError, OSError, RuntimeError) as error:
        raise DsparkError(
            f"llama-cpp-python cannot be loaded: {error}",
            hint="pip install --force-reinstall 'llama-cpp-python>=0.3.36,<0.4'",
        ) from None
