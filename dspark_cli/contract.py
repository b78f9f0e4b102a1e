"""What a drafter demands of its target, read from metadata alone, and every way it can fail.

llama.cpp does not compare the two files: a wrong width, tap or vocabulary aborts the process or
drafts nonsense. So everything here is decided before weights are loaded, and all disagreements are
reported together. Sources: llama.cpp ``src/models/dflash.cpp`` for keys, tensors and shapes,
``src/llama-context.cpp`` for what a tap needs. This module knows two descriptions; it opens no
model and knows no sizes of memory.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, TypeAlias

from dspark_cli.errors import ContractError
from dspark_cli.metadata import Metadata, Strings, Tensor

Dialect: TypeAlias = Literal["dspark", "dflash", "fork", "dflash2", "deepseek4", "none"]
"""``dspark`` and ``dflash`` run here; the others are recognised to be refused by name."""

Rewind: TypeAlias = Literal["cut", "recurrent"]
"""How a target's memory forgets rejected tokens: positions are cut off, or a state must be
restored."""


@dataclass(frozen=True, slots=True)
class ArchitectureSupport:
    """What the installed llama.cpp can do with one target architecture."""

    final_tap: bool = False  # whether the graph publishes the stream after its last layer
    rewind: Rewind = "cut"


# The graphs that publish ``t_layer_inp`` (llama.cpp src/models/*.cpp of llama-cpp-python
# 0.3.36); any other architecture aborts the process with "layer input tensor is null".
# Recurrent: llm_arch_is_hybrid.
TAPPABLE: dict[str, ArchitectureSupport] = {
    "bailingmoe3": ArchitectureSupport(rewind="recurrent"),
    "deepseek4": ArchitectureSupport(final_tap=True, rewind="recurrent"),
    "gemma4": ArchitectureSupport(),
    "gpt-oss": ArchitectureSupport(),
    "hunyuan-dense": ArchitectureSupport(),
    "hunyuan_vl": ArchitectureSupport(),
    "lfm2": ArchitectureSupport(rewind="recurrent"),
    "lfm2moe": ArchitectureSupport(rewind="recurrent"),
    "llama": ArchitectureSupport(),
    "mimo2": ArchitectureSupport(final_tap=True),
    "minimax-01": ArchitectureSupport(rewind="recurrent"),
    "minimax-m2": ArchitectureSupport(),
    "muse-glimmer": ArchitectureSupport(),
    "nanbeige": ArchitectureSupport(),
    "nemotron_h": ArchitectureSupport(final_tap=True, rewind="recurrent"),
    "nemotron_h_moe": ArchitectureSupport(final_tap=True, rewind="recurrent"),
    "qwen3": ArchitectureSupport(),
    "qwen35": ArchitectureSupport(rewind="recurrent"),
    "qwen35moe": ArchitectureSupport(rewind="recurrent"),
    "qwen3moe": ArchitectureSupport(),
    "qwen3next": ArchitectureSupport(rewind="recurrent"),
    "qwen4exp": ArchitectureSupport(rewind="recurrent"),
}

DRAFTER_ARCHITECTURES = ("dflash", "dspark", "eagle3", "gemma4-assistant")

# Every tensor that llama.cpp's dflash loader creates; one more makes the load fail ("wrong
# number of tensors"). ``scale`` belongs to scaled quantisations.
KNOWN_TENSOR = re.compile(
    r"(token_embd|output|output_norm|enc\.output_norm|fc|markov_w1|markov_w2|conf_proj"
    r"|blk\.\d+\.(attn_norm|attn_q|attn_k|attn_v|attn_output|attn_q_norm|attn_k_norm|ffn_norm"
    r"|ffn_gate|ffn_up|ffn_down|post_attention_norm|post_ffw_norm|layer_output_scale|attn_sinks))"
    r"\.(weight|bias|scale|input_scale)|d2t|rope_freqs\.weight"
)


@dataclass(frozen=True, slots=True)
class AttentionShape:
    """What the K/V cache of one model takes per position."""

    kv_heads: tuple[int, ...]  # per layer
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
    attention: AttentionShape
    weight_bytes: int

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
    embeddings = "token_embd.weight" in metadata.tensors
    return TargetShape(
        name=metadata.fingerprint.name,
        architecture=arch,
        layers=layers,
        width=metadata.integer(f"{arch}.embedding_length") or 0,
        context_length=metadata.integer(f"{arch}.context_length") or 0,
        tokens=metadata.strings("tokenizer.ggml.tokens"),
        has_embeddings=embeddings,
        has_head=embeddings or "output.weight" in metadata.tensors,
        attention=_attention(metadata, layers),
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
        attention=_attention(metadata, layers),
        weight_bytes=_weight_bytes(metadata),
    )


def check_target(target: TargetShape) -> None:
    """Refuse a file that is no target at all; raises ContractError."""
    if target.architecture in DRAFTER_ARCHITECTURES:
        raise ContractError(
            [f"{target.name} is a drafter (architecture {target.architecture}), wanted a target"],
            hint="give the target with -m and the drafter with -md",
        )
    if not target.layers or not target.width or not target.vocabulary:
        raise ContractError(
            [
                (
                    f"{target.name} (architecture {target.architecture}) is no language model: "
                    f"its metadata gives {target.layers} layers, width {target.width}, "
                    f"{target.vocabulary} tokens"
                )
            ]
        )


def check_pair(
    drafter: Metadata, target: TargetShape, *, draft_max: int | None = None
) -> DrafterShape:
    """Return the drafter's shape, or raise one ContractError with every disagreement."""
    shape = read_drafter(drafter)
    if problems := list(disagreements(drafter, shape, target, draft_max)):
        raise ContractError(problems, hint=_hint(shape))
    return shape


def disagreements(
    drafter: Metadata, shape: DrafterShape, target: TargetShape, draft_max: int | None
) -> Iterator[str]:
    """Say everything that keeps this drafter from serving this target."""
    if (refusal := _dialect_refusal(shape)) is not None:
        yield refusal
        return
    yield from _block_problems(shape, draft_max)
    yield from _tap_problems(shape, target)
    yield from _vocabulary_problems(drafter, shape, target)
    yield from _borrowing_problems(shape, target)
    yield from _tensor_problems(drafter, shape)


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


def _dialect_refusal(shape: DrafterShape) -> str | None:
    match shape.dialect:
        case "dspark" | "dflash":
            return None
        case "fork":
            return (
                f"{shape.name} is in the dialect of the PrismML fork (architecture dspark), which "
                "llama.cpp cannot load, wanted architecture dflash"
            )
        case "dflash2":
            return (
                f"{shape.name} is a DFlash2 drafter (it has a selector), wanted DSpark or DFlash"
            )
        case "deepseek4":
            return (
                f"{shape.name} is made of DeepSeek-V4 stages (hyper_connection keys), "
                "wanted DSpark or DFlash"
            )
        case "none":
            return f"{shape.name} is no drafter: architecture {shape.architecture}, wanted dflash"


def _hint(shape: DrafterShape) -> str | None:
    if shape.dialect == "fork":
        return "ask its publisher for the mainline (dflash) GGUF"
    if shape.dialect == "none":
        return "give the target with -m and the drafter with -md"
    return None


def _block_problems(shape: DrafterShape, draft_max: int | None) -> Iterator[str]:
    if shape.block_size is None:
        yield f"block_size: {shape.name} has no key dflash.block_size"
        return
    if shape.draft_max < 1:
        yield (
            f"block_size: {shape.name} says {shape.block_size}, which leaves nothing to propose "
            f"(row {shape.first_draft_row} is the first that does)"
        )
    elif draft_max is not None and draft_max != shape.draft_max:
        capability = "block_size" if shape.first_draft_row == 0 else "block_size - 1"
        yield (
            f"{shape.type_name}: --spec-draft-n-max ({draft_max}) must equal the drafter's "
            f"{capability} ({shape.draft_max})"
        )


def _tap_problems(shape: DrafterShape, target: TargetShape) -> Iterator[str]:
    support = target.support
    if support is None:
        yield (
            f"architecture: llama.cpp cannot tap {target.architecture} targets, wanted one of "
            f"{', '.join(TAPPABLE)}"
        )
    elif support.rewind == "recurrent":
        yield (
            f"architecture: the memory of {target.architecture} targets is recurrent and cannot "
            "be rewound in part, so drafts could not be rejected"
        )
    if shape.width != target.width:
        yield f"width: the drafter expects {shape.width}, the target has {target.width}"
    if not shape.taps:
        yield f"taps: {shape.name} has no key dflash.target_layers"
        return
    last = target.layers if support and support.final_tap else target.layers - 1
    for tap in sorted({tap for tap in shape.taps if not 0 <= tap <= last}):
        yield f"taps: the drafter reads the input of layer {tap}, the target's go from 0 to {last}"
    for tap in sorted({tap for tap in shape.taps if shape.taps.count(tap) > 1}):
        yield f"taps: layer {tap} stands {shape.taps.count(tap)} times in dflash.target_layers"


def _vocabulary_problems(
    drafter: Metadata, shape: DrafterShape, target: TargetShape
) -> Iterator[str]:
    if shape.tokens is None:
        yield (
            f"vocabulary: {shape.name} carries no tokenizer, "
            f"the target has {target.vocabulary} tokens"
        )
    elif shape.vocabulary != target.vocabulary:
        yield (
            f"vocabulary: the drafter has {shape.vocabulary} tokens, "
            f"the target {target.vocabulary}"
        )
    elif target.tokens is not None and shape.tokens.raw != target.tokens.raw:
        pairs = zip(shape.tokens, target.tokens, strict=True)
        index, (ours, theirs) = next(
            (index, pair) for index, pair in enumerate(pairs) if pair[0] != pair[1]
        )
        yield (
            f"vocabulary: token {index} is {ours.decode(errors='replace')!r} in the drafter and "
            f"{theirs.decode(errors='replace')!r} in the target"
        )
    if shape.mask_token is None:
        yield f"mask token: {shape.name} has no key tokenizer.ggml.mask_token_id"
    elif shape.tokens is not None and not 0 <= shape.mask_token < shape.vocabulary:
        yield f"mask token: {shape.mask_token} lies outside the vocabulary of {shape.vocabulary}"
    if (d2t := drafter.tensors.get("d2t")) is not None:
        yield from _draft_vocabulary_problems(drafter, d2t, target.vocabulary)


def _draft_vocabulary_problems(drafter: Metadata, d2t: Tensor, vocabulary: int) -> Iterator[str]:
    if d2t.type_name != "I64" or len(d2t.shape) != 1:
        yield f"d2t: {d2t.type_name} of shape {d2t.shape}, wanted a vector of I64"
        return
    ids = drafter.read_integers(d2t)
    if outside := int(((ids < 0) | (ids >= vocabulary)).sum()):
        yield f"d2t: {outside} of {len(ids)} ids lie outside the vocabulary of {vocabulary}"
    if repeated := len(ids) - len(set(ids.tolist())):
        yield f"d2t: {repeated} of {len(ids)} ids stand more than once"


def _borrowing_problems(shape: DrafterShape, target: TargetShape) -> Iterator[str]:
    if not shape.has_embeddings and not target.has_embeddings:
        yield "embeddings: the drafter borrows the target's token_embd.weight, which has none"
    if not shape.has_head and not target.has_head:
        yield "head: the drafter borrows the target's output.weight, which has none"
    if not shape.has_head and shape.draft_vocabulary not in {None, target.vocabulary}:
        yield (
            f"head: d2t has {shape.draft_vocabulary} rows but the drafter borrows the target's "
            f"head of {target.vocabulary}, wanted an output.weight of its own"
        )


def _tensor_problems(drafter: Metadata, shape: DrafterShape) -> Iterator[str]:
    """Hold every tensor against the shapes that the loader demands."""
    if unknown := [name for name in drafter.tensors if not KNOWN_TENSOR.fullmatch(name)]:
        yield f"tensors: llama.cpp's dflash does not know {', '.join(sorted(unknown))}"
    attention = shape.attention
    if attention.key_length != attention.value_length:
        yield (
            f"attention: key_length {attention.key_length} and value_length "
            f"{attention.value_length} must be equal"
        )
    expected = _expected_tensors(drafter, shape)
    if missing := [
        name for name in expected if name not in drafter.tensors and expected[name].needed
    ]:
        yield f"tensors: {shape.name} lacks {', '.join(missing)}"
    for name, wanted in expected.items():
        found = drafter.tensors.get(name)
        if found is not None and _trim(found.shape) != _trim(wanted.shape):
            yield f"tensors: {name} has shape {found.shape}, wanted {wanted.shape}"
    conf = drafter.tensors.get("conf_proj.weight")
    if conf is not None and shape.markov_rank is None:
        yield "tensors: conf_proj.weight stands without a Markov head, llama.cpp would not load it"


@dataclass(frozen=True, slots=True)
class _Expected:
    shape: tuple[int, ...]
    needed: bool = True


def _expected_tensors(drafter: Metadata, shape: DrafterShape) -> dict[str, _Expected]:
    """The table of ``llama_model_dflash::load_arch_tensors``, with this drafter's numbers."""
    width, vocabulary, rank = shape.width, shape.vocabulary, shape.markov_rank
    rows = shape.draft_vocabulary or vocabulary
    head = shape.attention.key_length
    queries = (drafter.integer("dflash.attention.head_count") or 0) * head
    hidden = drafter.integer("dflash.feed_forward_length") or 0
    expected = {
        "fc.weight": _Expected((len(shape.taps or ()) * width, width)),
        "enc.output_norm.weight": _Expected((width,)),
        "output_norm.weight": _Expected((width,)),
        "token_embd.weight": _Expected((width, vocabulary), needed=False),
        "output.weight": _Expected((width, rows), needed=False),
    }
    if rank is not None:
        expected |= {
            "markov_w1.weight": _Expected((rank, vocabulary)),
            "markov_w2.weight": _Expected((rank, rows)),
            "conf_proj.weight": _Expected((width + rank, 1), needed=False),
            "conf_proj.bias": _Expected((1,), needed=False),
        }
    for layer, kv_heads in enumerate(shape.attention.kv_heads):
        block = f"blk.{layer}."
        expected |= {
            block + "attn_norm.weight": _Expected((width,)),
            block + "attn_q.weight": _Expected((width, queries)),
            block + "attn_k.weight": _Expected((width, kv_heads * head)),
            block + "attn_v.weight": _Expected((width, kv_heads * head), needed=False),
            block + "attn_output.weight": _Expected((queries, width)),
            block + "attn_q_norm.weight": _Expected((head,)),
            block + "attn_k_norm.weight": _Expected((head,)),
            block + "ffn_norm.weight": _Expected((width,)),
            block + "ffn_gate.weight": _Expected((width, hidden)),
            block + "ffn_up.weight": _Expected((width, hidden)),
            block + "ffn_down.weight": _Expected((hidden, width)),
        }
    return expected


def _trim(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Drop trailing ones, which ggml does not distinguish from absent dimensions."""
    end = len(shape)
    while end > 1 and shape[end - 1] == 1:
        end -= 1
    return shape[:end]


def _axis(tensor: Tensor, axis: int) -> int:
    return tensor.shape[axis] if axis < len(tensor.shape) else 1


def _attention(metadata: Metadata, layers: int) -> AttentionShape:
    prefix = f"{metadata.architecture}.attention."
    heads = metadata.integers(prefix + "head_count") or (1,)
    kv_heads = metadata.integers(prefix + "head_count_kv") or heads
    width = metadata.integer(f"{metadata.architecture}.embedding_length") or 0
    head_width = width // max(heads[0], 1)
    return AttentionShape(
        kv_heads=kv_heads if len(kv_heads) == layers else (kv_heads[0],) * layers,
        key_length=metadata.integer(prefix + "key_length") or head_width,
        value_length=metadata.integer(prefix + "value_length") or head_width,
    )


def _weight_bytes(metadata: Metadata) -> int:
    return sum(tensor.size or 0 for tensor in metadata.tensors.values())
