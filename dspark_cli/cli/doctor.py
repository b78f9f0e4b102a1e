"""``dspark doctor``: what is installed, what was found in it, and what is missing."""

from dspark_cli.cli import params
from dspark_cli.cli.llama import require_llama
from dspark_cli.errors import LlamaError
from dspark_cli.render.diagnosis import Diagnosis, diagnosis_table
from dspark_cli.render.jsonl import JsonWriter
from dspark_cli.render.messages import show_answer
from dspark_cli.render.streams import answer_stream


def doctor(json_document: params.Json = False) -> int:
    """Print versions, symbols, devices and CPU features, and what is missing."""
    diagnosis = diagnose()
    if json_document:
        JsonWriter(answer_stream()).write(diagnosis.as_json(), indent=2)
    else:
        show_answer(diagnosis_table(diagnosis))
    return LlamaError.exit_code if diagnosis.missing_symbols else 0


def diagnose() -> Diagnosis:
    """Ask llama.cpp about itself; raises DsparkError where it cannot be loaded at all."""
    require_llama()
    from dspark_cli.engine.devices import cpu_features, devices
    from dspark_cli.engine.model import gpu_offload_supported
    from dspark_cli.machine import available_memory
    from dspark_cli.models import installed_smollm2
    from dspark_cli.native.symbols import found
    from dspark_cli.options import usable_cores
    from dspark_cli.versions import versions

    return Diagnosis(
        versions=versions(),
        symbols={entry.function: entry.symbol for entry in found},
        devices=devices(),
        cpu_features=cpu_features(),
        gpu_offload=gpu_offload_supported(),
        cores=usable_cores(),
        available_bytes=available_memory(),
        smollm2=installed_smollm2() is not None,
    )
