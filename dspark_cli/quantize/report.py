"""What became of a file: read from the one that was written, not from what was asked for."""

from collections import Counter
from dataclasses import dataclass

from dspark_cli.metadata import Metadata, Tensor
from dspark_cli.quantize.order import Order
from dspark_cli.stats import JsonObject, Statistics
from dspark_cli.versions import versions


@dataclass(frozen=True, slots=True)
class Measured:
    """A drafter's work on the same prompts before and after."""

    prompts: int
    tokens: int  # most per prompt
    before: Statistics
    after: Statistics

    def as_json(self) -> JsonObject:
        return {
            "prompts": self.prompts,
            "tokens": self.tokens,
            "tau_before": self.before.mean_acceptance_length,
            "tau_after": self.after.mean_acceptance_length,
            "rounds_before": self.before.num_spec_steps,
            "rounds_after": self.after.num_spec_steps,
        }


@dataclass(frozen=True, slots=True)
class QuantizationReport:
    """An order that was carried out."""

    order: Order
    written: Metadata
    seconds: float
    measured: Measured | None = None

    @property
    def kept(self) -> dict[str, str]:
        """The small heads and the types they have now."""
        return {name: self.written.tensors[name].type_name for name in self.order.kept}

    @property
    def fallbacks(self) -> tuple[Tensor, ...]:
        """Tensors as written whose rows are no whole blocks of the type that was asked for."""
        source, block = self.order.source.tensors, self.order.type.block
        return tuple(
            tensor
            for tensor in self.written.tensors.values()
            if tensor.type_id != source[tensor.name].type_id
            and tensor.shape[0] % block
            and tensor.name not in self.order.kept
        )

    def as_json(self) -> JsonObject:
        """The document of ``dspark quantize --json``."""
        before, after = self.order.source, self.written
        return {
            "type": self.order.type.name,
            "pure": self.order.pure,
            "before": _described(before),
            "after": _described(after),
            "kept": dict(self.kept),
            "fallbacks": [
                {"tensor": tensor.name, "row": tensor.shape[0], "type": tensor.type_name}
                for tensor in self.fallbacks
            ],
            "seconds": self.seconds,
            "measured": self.measured.as_json() if self.measured else None,
            "versions": dict(versions()),
        }


def _described(metadata: Metadata) -> JsonObject:
    """A file's fingerprint, its types, and what a weight takes in it."""
    tensors = metadata.tensors.values()
    weights = sum(tensor.elements for tensor in tensors)
    size = metadata.fingerprint.size
    return {
        **metadata.fingerprint.as_json(),
        "types": dict(Counter(tensor.type_name for tensor in tensors).most_common()),
        "bits_per_weight": 8 * size / weights if weights else None,
    }
