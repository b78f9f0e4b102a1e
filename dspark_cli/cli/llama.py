"""Load llama.cpp or PyTorch, or say why they cannot be had."""

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


def require_torch() -> None:
    """Import what the extra ``train`` installs; raises DsparkError where it is missing."""
    try:
        import matplotlib as mpl  # noqa: F401
        import torch  # noqa: F401
    except (ImportError, OSError) as error:
        raise DsparkError(
            f"training needs PyTorch and matplotlib: {error}",
            hint="pip install 'dspark-cli[train]'",
        ) from None
