"""Who plays which role in a source's forward pass: the names, read a second time.

The mapping has tables of its own; that both agree is what the verification shows.
"""

from collections.abc import Mapping
from types import MappingProxyType

from dspark_cli.convert.reference import Network, Rotary
from dspark_cli.convert.weights import Weight
from dspark_cli.errors import DsparkError
from dspark_cli.metadata import Metadata

FORK_ROLES = MappingProxyType(
    {
        "embeddings": "token_embd.weight",
        "head": "output.weight",
        "fuse": "dspark.fc.weight",
        "fused_norm": "dspark.hidden_norm.weight",
        "final_norm": "output_norm.weight",
        "markov_in": "dspark.markov_head_a.weight",
        "markov_out": "dspark.markov_head_b.weight",
        "confidence": "dspark.confidence_head.weight",
        "confidence_bias": "dspark.confidence_head.bias",
        "condition_in": "dspark.log_snr_fc1.weight",
        "condition_in_bias": "dspark.log_snr_fc1.bias",
        "condition_out": "dspark.log_snr_fc2.weight",
        "condition_out_bias": "dspark.log_snr_fc2.bias",
    }
)
FORK_LAYER_ROLES = MappingProxyType(
    {
        "attention_norm": "attn_norm",
        "query": "attn_q",
        "key": "attn_k",
        "value": "attn_v",
        "query_key_value": "attn_qkv",
        "attention_out": "attn_output",
        "query_norm": "attn_q_norm",
        "key_norm": "attn_k_norm",
        "feed_norm": "ffn_norm",
        "gate": "ffn_gate",
        "up": "ffn_up",
        "down": "ffn_down",
    }
)


def fork_network(metadata: Metadata, weights: Mapping[str, Weight]) -> Network:
    """The forward pass of a file of the fork; raises DsparkError where it is not known here."""
    layers = metadata.integer("dspark.block_count") or 0
    width = metadata.integer("dspark.embedding_length") or 0
    heads = metadata.integer("dspark.attention.head_count") or 1
    length = metadata.integer("dspark.attention.key_length") or width // heads
    scaling = metadata.text("dspark.rope.scaling.type") or "none"
    if scaling not in {"none", "linear"}:
        raise DsparkError(
            f"{metadata.path}: its rotary positions are scaled by {scaling}, whose forward pass "
            "is not known here"
        )
    factor = metadata.number("dspark.rope.scaling.factor") or 1.0
    tensors = {role: weights[name] for role, name in FORK_ROLES.items() if name in weights}
    for number in range(layers):
        for role, name in FORK_LAYER_ROLES.items():
            if (weight := weights.get(f"blk.{number}.{name}.weight")) is not None:
                tensors[f"{number}.{role}"] = weight
    if "head" not in tensors and "embeddings" in tensors:
        tensors["head"] = tensors["embeddings"]
    return Network(
        layers=layers,
        width=width,
        head_length=length,
        epsilon=metadata.number("dspark.attention.layer_norm_rms_epsilon") or 0.0,
        rotary=Rotary(
            base=metadata.number("dspark.rope.freq_base") or 10_000.0,
            length=metadata.integer("dspark.rope.dimension_count") or length,
            stretch=factor if scaling == "linear" else 1.0,
        ),
        block_size=_either(metadata, "block_size"),
        mask_token=_either(metadata, "mask_token_id"),
        tensors=tensors,
    )


def _either(metadata: Metadata, name: str) -> int:
    """A number under the fork's doubled prefix, or under the single one of other tools."""
    doubled = metadata.integer(f"dspark.dspark.{name}")
    return (metadata.integer(f"dspark.{name}") or 0) if doubled is None else doubled
