"""The tensors of a fork's GGUF, held against the room that each has in the file.

A drafter of the fork may hold 2-bit weights in blocks of 128 under the type number that mainline
gives to blocks of 64. Only the distance to the next tensor tells them apart.
"""

from collections.abc import Mapping

from dspark_cli.errors import DsparkError
from dspark_cli.metadata import DEFAULT_ALIGNMENT, Metadata, Tensor
from dspark_cli.tensors import Q2_0, PackedRows, block_sizes

LEGACY_BLOCK = (128, 34)  # elements, bytes: an F16 scale and 2-bit codes
FORK_TYPES = {142: "PQ2_0", 143: "PTQ1_0"}  # what the fork renamed its codecs to
BF16_FILE = (
    "convert the bf16 file of the same drafter (its name ends in -bf16.gguf), and let --out-type "
    "make it small"
)


def weights_of(metadata: Metadata) -> Mapping[str, PackedRows]:
    """Every tensor by its name, ready to be read.

    Raises DsparkError for data in a layout that only the fork knows, and for tensors that overlap.
    """
    alignment = metadata.integer("general.alignment") or DEFAULT_ALIGNMENT
    for path in {tensor.path for tensor in metadata.tensors.values()}:  # one per split
        here = [tensor for tensor in metadata.tensors.values() if tensor.path == path]
        here.sort(key=lambda tensor: tensor.offset)
        ends = [*(tensor.offset for tensor in here[1:]), path.stat().st_size]
        for tensor, end in zip(here, ends, strict=True):
            _check_room(metadata, tensor, end - tensor.offset, alignment)
    return {name: PackedRows.of(metadata, name) for name in metadata.tensors}


def _check_room(metadata: Metadata, tensor: Tensor, room: int, alignment: int) -> None:
    if tensor.type_id in FORK_TYPES:
        raise DsparkError(
            f"{metadata.path}: {tensor.name} is {FORK_TYPES[tensor.type_id]} (type "
            f"{tensor.type_id}), a codec of the fork's own that llama.cpp does not know",
            hint=BF16_FILE,
        )
    try:
        elements, size = block_sizes(tensor.type_id)
    except ValueError:
        return  # which reading it explains
    needed = tensor.elements // elements * size
    legacy = tensor.elements // LEGACY_BLOCK[0] * LEGACY_BLOCK[1]
    if tensor.type_id == Q2_0 and room in {legacy, -(-legacy // alignment) * alignment} - {
        needed,
        -(-needed // alignment) * alignment,
    }:
        raise DsparkError(
            f"{metadata.path}: {tensor.name} is in the fork's old 2-bit layout, blocks of 128 "
            f"under type {Q2_0}, which llama.cpp reads as blocks of 64",
            hint=BF16_FILE,
        )
    if needed > room:
        raise DsparkError(
            f"{metadata.path}: damaged GGUF: {tensor.name} takes {needed} bytes and has {room} "
            "until the next tensor begins"
        )
