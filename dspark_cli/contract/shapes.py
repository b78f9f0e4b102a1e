"""What a target and a drafter are, as far as the other one cares: read from metadata alone.

Source: llama.cpp ``src/models/dflash.cpp`` for keys and tensors.
"""

import math
from dataclasses import dataclass
from typing import Literal, TypeAlias

from dspark_cli.contract.architectures import TAPPABLE, ArchitectureSupport
from dspark_cli.contract.recurrence import recurrent_layers, state_bytes
from dspark_cli.metadata import Metadata, Strings, Tensor

Dialect: TypeAlias = Literal["dspark", "dflash", "fork", "dflash2", "deepseek4", "none"]
"""``dspark`` and ``dflash`` run here; the others are recognised to be refused by name."""

TEMPERATURES_KEY = "dspark_cli.confidence_temperatures"
"""What divides the confidence's logit, per draft position; llama.cpp ignores the key."""
ENDS = ("eos", "eot", "eom")  # keys of the tokens that end a text, a turn, a message
MAX_LAYERS = 512  # LLAMA_MAX_LAYERS; a file that claims more is not believed


@dataclass(frozen=True, slots=True)
class AttentionShape:
    """What attention takes: of the K/V cache per position, and while it is computed."""

    heads: int  # of queries, in the layer that has most
    kv_heads: tuple[int, ...]  # per layer; 0 where a layer keeps no cells
    key_length: int  # per head
    value_length: int


@dataclass(frozen=True, slots=True)
class TargetShape:
    """What a target is, as far as a drafter cares."""

    name: str
    architecture: str
    layers: int
    width: int  # n_embd of the residual stream
    context_length: int  # positions it was trained on
    tokens: Strings | None
    has_embeddings: bool
    has_head: bool  # its own, or tied to the embeddings
    names_end: bool  # whether it says which token ends a text; llama.cpp guesses otherwise
    attention: AttentionShape
    weight_bytes: int
    state_bytes: int = 0  # one state of all recurrent layers together

    @property
    def vocabulary(self) -> int:
        return 0 if self.tokens is None else len(self.tokens)

    @property
    def support(self) -> ArchitectureSupport | None:
        """None where llama.cpp's graph publishes no taps."""
        return TAPPABLE.get(self.architecture)


@dataclass(frozen=True, slots=True)
class DrafterShape:
    """What a drafter is and demands; a field is None where the file does not say."""

    name: str
    architecture: str
    dialect: Dialect
    block_size: int | None
    taps: tuple[int, ...] | None  # inputs of these target layers, in the order of concatenation
    layers: int
    width: int
    context_length: int
    tokens: Strings | None
    mask_token: int | None
    markov_rank: int | None  # None: no Markov head, plain DFlash
    has_confidence: bool
    has_embeddings: bool
    has_head: bool
    draft_vocabulary: int | None  # rows of d2t; None: the whole vocabulary
    sample_from_anchor: bool
    causal: bool
    mrope: bool
    temperatures: tuple[float, ...]  # per draft position, of its confidences; empty: not known
    attention: AttentionShape
    weight_bytes: int

    @property
    def vocabulary(self) -> int:
        return 0 if self.tokens is None else len(self.tokens)

    @property
    def type_name(self) -> str:
        """llama.cpp's --spec-type for this drafter."""
        return "draft-dflash" if self.dialect == "dflash" else "draft-dspark"

    @property
    def first_draft_row(self) -> int:
        """The block row that proposes first: 0, or 1 where the anchor row is not read."""
        return 0 if self.dialect == "dspark" and self.sample_from_anchor else 1

    @property
    def draft_max(self) -> int:
        """Tokens that one whole block proposes."""
        return (self.block_size or 0) - self.first_draft_row


def read_target(metadata: Metadata) -> TargetShape:
    arch = metadata.architecture
    layers = metadata.integer(f"{arch}.block_count") or 0
    # Appended multi-token-prediction layers are no layers of the trunk.
    layers -= metadata.integer(f"{arch}.nextn_predict_layers") or 0
    # nanbeige goes through its layers several times, each time with cells of its own.
    layers *= metadata.integer(f"{arch}.num_loops") or 1
    embeddings = "token_embd.weight" in metadata.tensors
    recurrent = recurrent_layers(metadata, layers)
    return TargetShape(
        name=metadata.fingerprint.name,
        architecture=arch,
        layers=layers,
        width=metadata.integer(f"{arch}.embedding_length") or 0,
        context_length=metadata.integer(f"{arch}.context_length") or 0,
        tokens=metadata.strings("tokenizer.ggml.tokens"),
        has_embeddings=embeddings,
        has_head=embeddings or "output.weight" in metadata.tensors,
        names_end=any(f"tokenizer.ggml.{end}_token_id" in metadata.values for end in ENDS),
        attention=_attention(metadata, layers, recurrent),
        state_bytes=len(recurrent) * state_bytes(metadata) if recurrent else 0,
        weight_bytes=_weight_bytes(metadata),
    )


def read_drafter(metadata: Metadata) -> DrafterShape:
    arch = metadata.architecture
    tensors = metadata.tensors
    layers = metadata.integer(f"{arch}.block_count") or 0
    markov = tensors.get("markov_w1.weight")
    d2t = tensors.get("d2t")
    from_anchor = metadata.flag("dflash.sample_from_anchor")
    return DrafterShape(
        name=metadata.fingerprint.name,
        architecture=arch,
        dialect=_dialect(metadata),
        block_size=metadata.integer("dflash.block_size"),
        taps=metadata.integers("dflash.target_layers"),
        layers=layers,
        width=metadata.integer(f"{arch}.embedding_length") or 0,
        context_length=metadata.integer(f"{arch}.context_length") or 0,
        tokens=metadata.strings("tokenizer.ggml.tokens"),
        mask_token=metadata.integer("tokenizer.ggml.mask_token_id"),
        markov_rank=_axis(markov, 0) if markov else None,
        has_confidence=markov is not None and "conf_proj.weight" in tensors,
        has_embeddings="token_embd.weight" in tensors,
        has_head="token_embd.weight" in tensors or "output.weight" in tensors,
        draft_vocabulary=_axis(d2t, 0) if d2t else None,
        sample_from_anchor=True if from_anchor is None else from_anchor,
        causal=metadata.flag("dflash.attention.causal") or False,
        mrope=metadata.integers("dflash.rope.dimension_sections") is not None,
        temperatures=_temperatures(metadata),
        attention=_attention(metadata, layers),
        weight_bytes=_weight_bytes(metadata),
    )


def _dialect(metadata: Metadata) -> Dialect:
    if metadata.architecture == "dspark":
        return "fork"
    if metadata.architecture != "dflash":
        return "none"
    if any(key.startswith("dflash.hyper_connection.") for key in metadata.values):
        return "deepseek4"
    if "selector_hidden.weight" in metadata.tensors:
        return "dflash2"
    return "dspark" if "markov_w1.weight" in metadata.tensors else "dflash"


def _temperatures(metadata: Metadata) -> tuple[float, ...]:
    """What ``dspark train`` found; nothing where any of them is no temperature."""
    values = metadata.values.get(TEMPERATURES_KEY)
    if not isinstance(values, tuple):
        return ()
    found = tuple(float(value) for value in values if isinstance(value, int | float))
    sound = len(found) == len(values) and all(0 < value < math.inf for value in found)
    return found if sound else ()


def _axis(tensor: Tensor, axis: int) -> int:
    return tensor.shape[axis] if axis < len(tensor.shape) else 1


def _attention(
    metadata: Metadata, layers: int, recurrent: frozenset[int] = frozenset()
) -> AttentionShape:
    prefix = f"{metadata.architecture}.attention."
    heads = metadata.integers(prefix + "head_count") or (1,)
    kv_heads = metadata.integers(prefix + "head_count_kv") or heads
    width = metadata.integer(f"{metadata.architecture}.embedding_length") or 0
    head_width = width // max(heads[0], 1)
    if len(kv_heads) != layers:
        kv_heads = kv_heads[:1] * min(layers, MAX_LAYERS)
    return AttentionShape(
        heads=max(heads),
        kv_heads=tuple(0 if at in recurrent else count for at, count in enumerate(kv_heads)),
        key_length=metadata.integer(prefix + "key_length") or head_width,
        value_length=metadata.integer(prefix + "value_length") or head_width,
    )


def _weight_bytes(metadata: Metadata) -> int:
    return sum(tensor.size or 0 for tensor in metadata.tensors.values())
