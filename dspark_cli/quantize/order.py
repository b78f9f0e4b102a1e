"""What is to be quantised into what, and everything that metadata alone says against it."""

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from gguf import GGMLQuantizationType

from dspark_cli.errors import UsageError
from dspark_cli.metadata import DEFAULT_ALIGNMENT, Metadata, Tensor
from dspark_cli.quantize.types import FileType

DRAFTER = "dflash"  # the architecture of drafters
# Small and decisive: they choose each token of a draft by the one before. (conf_proj, the third
# head, is a vector to ggml, and vectors are never quantised.)
HEADS = ("markov_w1.weight", "markov_w2.weight")
NEVER_BELOW = GGMLQuantizationType.Q8_0
UNQUANTIZED = frozenset({"F32", "F16", "BF16", "F64", "I8", "I16", "I32", "I64"})


@dataclass(frozen=True, slots=True)
class Order:
    """One file to be written; ``pure`` gives every matrix the main type of ``type``."""

    source: Metadata
    out: Path
    type: FileType
    threads: int
    pure: bool = False
    allow_requantize: bool = False

    @property
    def is_drafter(self) -> bool:
        return self.source.architecture == DRAFTER

    @property
    def realign(self) -> bool:
        """Whether the input is padded otherwise than llama.cpp's quantiser pads its output."""
        return self.source.values.get("general.alignment") not in {None, DEFAULT_ALIGNMENT}

    @property
    def kept(self) -> dict[str, int]:
        """Tensors that get a type of their own (``enum ggml_type``): a drafter's small heads.

        They become Q8_0. One that is quantised already stays as it is: nothing would be won.
        """
        if self.pure or not self.is_drafter or not self.type.quantizes:
            return {}
        heads = (self.source.tensors[name] for name in HEADS if name in self.source.tensors)
        return {
            head.name: head.type_id if is_quantized(head) else NEVER_BELOW.value for head in heads
        }

    @property
    def patterns(self) -> dict[str, int]:
        """The same as llama.cpp takes it: searched for in each name, as a regular expression."""
        return {f"^{re.escape(name)}$": type_id for name, type_id in self.kept.items()}


def check_order(order: Order) -> None:
    """Raise UsageError for what would destroy its input, or lose more than is asked for."""
    source = order.source.path
    files = {tensor.path for tensor in order.source.tensors.values()} | {source}
    for path in (order.out, order.out.with_name(order.out.name + ".part")):
        if any(_same_file(path, file) for file in files):
            raise UsageError(
                f"{order.out}: is written beside its input {source} only under another name"
            )
    if order.allow_requantize:
        return
    left_alone = order.kept
    lossy = [
        tensor
        for tensor in order.source.tensors.values()
        if is_quantized(tensor) and tensor.name not in left_alone
    ]
    if lossy:
        raise UsageError(
            f"{source}: is quantised already ({type_counts(lossy)}), and quantising it again "
            "loses more than quantising once",
            hint="take the F16 or F32 file that it was made from, or --allow-requantize",
        )


def is_quantized(tensor: Tensor) -> bool:
    return tensor.type_name not in UNQUANTIZED


def type_counts(tensors: Iterable[Tensor]) -> str:
    """How many tensors have which type, as ``43 Q8_0, 13 F32``."""
    counts = Counter(tensor.type_name for tensor in tensors)
    return ", ".join(f"{count} {name}" for name, count in counts.most_common())


def _same_file(one: Path, other: Path) -> bool:
    try:
        return one.samefile(other)
    except OSError:  # one of them is not there
        return False
