"""The keys and tensors that llama.cpp's ``dflash`` loader wants, with their types and shapes.

One surplus tensor, one missing key or one wrong shape makes the load fail after everything was
read; here they are found before, and all of them at once. Source: ``llama_model_dflash`` in
llama.cpp ``src/models/dflash.cpp``, ``load_hparams`` in ``src/llama-model.cpp``.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from dspark_cli.contract.shapes import DrafterShape
from dspark_cli.metadata import Metadata

# The elements that ``get_arr`` takes for target_layers.
TAP_TYPES = ("[i32]", "[u32]")

# Types as ``gguf_type_name`` spells them; an array in brackets.
REQUIRED_KEYS = {
    "dflash.block_count": ("u32",),
    "dflash.context_length": ("u32",),
    "dflash.embedding_length": ("u32",),
    "dflash.feed_forward_length": ("u32", "[u32]", "[i32]"),
    "dflash.attention.head_count": ("u32", "[u32]", "[i32]"),
    "dflash.attention.layer_norm_rms_epsilon": ("f32",),
}
OPTIONAL_KEYS = {
    "dflash.block_size": ("u32",),
    "dflash.attention.causal": ("bool",),
    "dflash.sample_from_anchor": ("bool",),
    "dflash.attention.head_count_kv": ("u32", "[u32]", "[i32]"),
    "dflash.attention.key_length": ("u32",),
    "dflash.attention.value_length": ("u32",),
    "dflash.rope.freq_base": ("f32",),
    "tokenizer.ggml.mask_token_id": ("u32",),
}

# Matrices that a scaled quantisation may bring along a factor for.
SCALED = ("attn_q", "attn_k", "attn_v", "attn_output", "ffn_gate", "ffn_up", "ffn_down")


@dataclass(frozen=True, slots=True)
class Expected:
    """One tensor's shape in ggml order; a 0 is a number that the file does not give."""

    shape: tuple[int, ...]
    needed: bool = True


def key_problems(drafter: Metadata) -> Iterator[str]:
    """Say which keys are missing or have a type that the loader rejects."""
    for key, wanted in (REQUIRED_KEYS | OPTIONAL_KEYS).items():
        found = drafter.types.get(key)
        if found is None and key in REQUIRED_KEYS:
            yield f"keys: {drafter.fingerprint.name} has no {key}"
        elif found is not None and found not in wanted:
            yield f"keys: {key} is {found}, wanted {' or '.join(wanted)}"


def tensor_problems(drafter: Metadata, shape: DrafterShape) -> Iterator[str]:
    """Hold every tensor against the shapes that the loader demands."""
    attention = shape.attention
    if attention.key_length != attention.value_length:
        yield (
            f"attention: key_length {attention.key_length} and value_length "
            f"{attention.value_length} must be equal"
        )
    expected = expected_tensors(drafter, shape)
    if unknown := sorted(drafter.tensors.keys() - expected.keys()):
        headless = shape.markov_rank is None and "conf_proj.weight" in unknown
        why = " (a confidence head needs a Markov head)" if headless else ""
        yield f"tensors: llama.cpp's dflash does not know {', '.join(unknown)}{why}"
    missing = [name for name, wanted in expected.items() if wanted.needed]
    if missing := [name for name in missing if name not in drafter.tensors]:
        yield f"tensors: {shape.name} lacks {', '.join(missing)}"
    for name, wanted in expected.items():
        found = drafter.tensors.get(name)
        if found is None or 0 in wanted.shape:
            continue
        if trimmed(found.shape) != trimmed(wanted.shape):
            yield f"tensors: {name} has shape {found.shape}, wanted {wanted.shape}"


def expected_tensors(drafter: Metadata, shape: DrafterShape) -> dict[str, Expected]:
    """The table of ``load_arch_tensors``, with this drafter's numbers."""
    width, vocabulary, rank = shape.width, shape.vocabulary, shape.markov_rank
    rows = shape.draft_vocabulary or vocabulary
    expected = {
        "fc.weight": Expected((len(shape.taps or ()) * width, width)),
        "fc.scale": Expected((1,), needed=False),
        "enc.output_norm.weight": Expected((width,)),
        "output_norm.weight": Expected((width,)),
        "token_embd.weight": Expected((width, vocabulary), needed=False),
        "output.weight": Expected((width, rows), needed=False),
        "output.scale": Expected((1,), needed=False),
        "output.input_scale": Expected((1,), needed=False),
        "d2t": Expected((rows,), needed=False),
        "rope_freqs.weight": Expected((shape.attention.key_length // 2,), needed=False),
    }
    if rank is not None:
        expected |= {
            "markov_w1.weight": Expected((rank, vocabulary)),
            "markov_w2.weight": Expected((rank, rows)),
            "markov_w2.scale": Expected((1,), needed=False),
            "conf_proj.weight": Expected((width + rank, 1), needed=False),
            "conf_proj.bias": Expected((1,), needed=False),
        }
    for layer in range(shape.layers):
        expected |= _block(f"blk.{layer}.", layer, drafter, shape)
    return expected


def _block(prefix: str, layer: int, drafter: Metadata, shape: DrafterShape) -> dict[str, Expected]:
    """One transformer layer."""
    width, head = shape.width, shape.attention.key_length
    heads = _of_layer(drafter.integers("dflash.attention.head_count"), layer)
    hidden = _of_layer(drafter.integers("dflash.feed_forward_length"), layer)
    queries, keys = heads * head, shape.attention.kv_heads[layer] * head
    weights = {
        "attn_norm": Expected((width,)),
        "attn_q": Expected((width, queries)),
        "attn_k": Expected((width, keys)),
        "attn_v": Expected((width, keys), needed=False),
        "attn_output": Expected((queries, width)),
        "attn_q_norm": Expected((head,)),
        "attn_k_norm": Expected((head,)),
        "attn_sinks": Expected((heads,), needed=False),
        "post_attention_norm": Expected((width,), needed=False),
        "ffn_norm": Expected((width,)),
        "ffn_gate": Expected((width, hidden)),
        "ffn_up": Expected((width, hidden)),
        "ffn_down": Expected((hidden, width)),
        "post_ffw_norm": Expected((width,), needed=False),
        "layer_output_scale": Expected((1,), needed=False),
    }
    block = {f"{prefix}{name}.weight": wanted for name, wanted in weights.items()}
    for name in SCALED:
        for factor in ("scale", "input_scale"):
            block[f"{prefix}{name}.{factor}"] = Expected((1,), needed=False)
    return block


def _of_layer(values: tuple[int, ...] | None, layer: int) -> int:
    """One layer's number, where a file gives one for all, one for each, or (0) none."""
    if not values:
        return 0
    return values[layer] if layer < len(values) else values[0]


def trimmed(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Drop trailing ones, which ggml does not distinguish from absent dimensions."""
    end = len(shape)
    while end > 1 and shape[end - 1] == 1:
        end -= 1
    return shape[:end]
