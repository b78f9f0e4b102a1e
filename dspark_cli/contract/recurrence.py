"""The recurrent part of a hybrid target's memory, as its metadata gives it.

Its size does not grow with the context: every recurrent layer keeps one state, and one more for
each token that a ring (``n_rs_seq``) can go back. Sources: ``n_embd_r`` and ``n_embd_s`` in
llama.cpp ``src/llama-hparams.cpp``; ``src/llama-memory-recurrent.cpp`` keeps both as F32.
"""

import re
from collections.abc import Iterator

from dspark_cli.metadata import Metadata

F32 = 4  # bytes

# Tensors that only a recurrent layer has: Mamba and delta nets, KDA, short convolutions, and the
# norm behind the lightning attention of minimax-01.
RECURRENT_TENSOR = re.compile(
    r"^blk\.(\d+)\.(?:ssm_conv1d\.weight|ssm_conv1d_q\.weight|shortconv\.conv\.weight"
    r"|attn_norm_2\.weight)$"
)


def recurrent_layers(metadata: Metadata, layers: int) -> frozenset[int]:
    """Indices below ``layers`` of the layers that keep a state instead of cells."""
    return frozenset(index for index in _marked(metadata) if index < layers)


def _marked(metadata: Metadata) -> Iterator[int]:
    for name in metadata.tensors:
        if (found := RECURRENT_TENSOR.match(name)) is not None:
            yield int(found[1])


def state_bytes(metadata: Metadata) -> int:
    """Bytes of one state of one recurrent layer of this architecture."""
    arch = metadata.architecture

    def number(key: str) -> int:
        found = metadata.integers(f"{arch}.{key}")
        return found[0] if found else 0

    width, heads = number("embedding_length"), number("attention.head_count")
    taps = max(number("ssm.conv_kernel") - 1, 0)  # inputs that a convolution looks back
    if cache := number("shortconv.l_cache"):
        return F32 * width * (cache - 1)
    if head := number("kda.head_dim"):
        return F32 * heads * head * (3 * taps + head)
    inner, state = number("ssm.inner_size"), number("ssm.state_size")
    if not inner:  # lightning attention: a matrix per head
        return F32 * heads * (number("attention.key_length") or width // max(heads, 1)) ** 2
    return F32 * (taps * (inner + 2 * number("ssm.group_count") * state) + state * inner)
