"""What llama.cpp can compute on."""

import llama_cpp.llama_cpp as bindings

from dspark_cli.native import ext

KINDS = {0: "CPU", 1: "GPU", 2: "integrated GPU", 3: "accelerator"}  # enum ggml_backend_dev_type


def devices() -> tuple[str, ...]:
    """Every device as "kind name: description"."""
    described = []
    for index in range(ext.dev_count()):
        device = ext.dev_get(index)
        kind = KINDS.get(ext.dev_type(device), "device")
        name, description = ext.dev_name(device).decode(), ext.dev_description(device).decode()
        described.append(f"{kind} {name}: {description}")
    return tuple(described)


def cpu_features() -> tuple[str, ...]:
    """The features that this build was compiled to use, such as AVX2."""
    text = bindings.llama_print_system_info().decode()
    pairs = (part.split("=") for part in text.split(":", 1)[-1].split("|") if "=" in part)
    return tuple(name.strip() for name, value in pairs if value.strip() != "0")
