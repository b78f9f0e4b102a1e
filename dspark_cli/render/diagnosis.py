"""What ``dspark doctor`` shows."""

from collections.abc import Mapping
from dataclasses import dataclass

from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from dspark_cli.stats import JsonObject


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """The state of an installation."""

    versions: Mapping[str, str]
    symbols: Mapping[str, str | None]  # function -> the name it was found under
    devices: tuple[str, ...]
    cpu_features: tuple[str, ...]
    gpu_offload: bool
    cores: int
    available_bytes: int | None
    smollm2: bool

    @property
    def missing_symbols(self) -> tuple[str, ...]:
        return tuple(name for name, symbol in self.symbols.items() if symbol is None)

    @property
    def missing(self) -> tuple[str, ...]:
        """One sentence for each thing that is not there, with what to do."""
        sentences = [
            f"{name} is not in this build of llama-cpp-python, wanted 0.3.36 or a later 0.3"
            for name in self.missing_symbols
        ]
        if not self.gpu_offload:
            sentences.append(
                "no GPU support in this build: reinstall llama-cpp-python with CMAKE_ARGS for one"
            )
        if not self.smollm2:
            sentences.append("no smollm2 target: pip install 'dspark-cli[smollm2]'")
        return tuple(sentences)

    def as_json(self) -> JsonObject:
        return {
            "versions": dict(self.versions),
            "symbols": dict(self.symbols),
            "devices": list(self.devices),
            "cpu_features": list(self.cpu_features),
            "gpu_offload": self.gpu_offload,
            "cores": self.cores,
            "available_bytes": self.available_bytes,
            "smollm2": self.smollm2,
            "missing": list(self.missing),
        }


def diagnosis_table(diagnosis: Diagnosis) -> RenderableType:
    facts = Table(box=box.SIMPLE_HEAD, show_header=False, pad_edge=False)
    facts.add_column(style="bold")
    facts.add_column(overflow="fold")
    for name, version in diagnosis.versions.items():
        facts.add_row(name, Text(version))
    for device in diagnosis.devices:
        facts.add_row("device", Text(device))
    facts.add_row("CPU features", Text(" ".join(diagnosis.cpu_features)))
    facts.add_row("cores", str(diagnosis.cores))
    if diagnosis.available_bytes is not None:
        facts.add_row("memory", f"{diagnosis.available_bytes / 2**30:.1f} GiB available")
    symbols = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    symbols.add_column("function", style="bold")
    symbols.add_column("found as", overflow="fold")
    for name, symbol in diagnosis.symbols.items():
        symbols.add_row(name, Text(symbol) if symbol else Text("missing", "bold red"))
    parts: list[RenderableType] = [facts, symbols]
    if diagnosis.missing:
        parts += [Text.assemble(("missing: ", "bold yellow"), what) for what in diagnosis.missing]
    else:
        parts.append(Text("nothing is missing", "bold green"))
    return Group(*parts)
