"""Who plays which role in a source's forward pass: the names, read a second time.

The mapping has tables of its own; that both agree is what the verification shows.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np

from dspark_cli.convert.config import Config
from dspark_cli.convert.reference import Network, Rotary, Yarn
from dspark_cli.convert.shards import ShardRows
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
        rotary=_fork_rotary(metadata, length),
        block_size=_either(metadata, "block_size"),
        mask_token=_either(metadata, "mask_token_id"),
        tensors=tensors,
    )


def _fork_rotary(metadata: Metadata, length: int) -> Rotary:
    prefix = "dspark.rope.scaling."
    kind = metadata.text(prefix + "type") or "none"
    odd = {"yarn_ext_factor", "yarn_attn_factor", "attn_factor", "yarn_log_multiplier"}
    odd = {name for name in odd if prefix + name in metadata.values}
    if kind not in {"none", "linear", "yarn"} or (kind == "yarn" and odd):
        raise DsparkError(
            f"{metadata.path}: its rotary positions are scaled by "
            f"{' '.join([kind[:40], *sorted(odd)])}, whose forward pass is not known here"
        )
    yarn = Yarn(
        trained=metadata.integer(prefix + "original_context_length")
        or metadata.integer("dspark.context_length")
        or 1,
        fast=metadata.number(prefix + "yarn_beta_fast") or 32.0,
        slow=metadata.number(prefix + "yarn_beta_slow") or 1.0,
    )
    factor = metadata.number(prefix + "factor") or 1.0
    return Rotary(
        base=metadata.number("dspark.rope.freq_base") or 10_000.0,
        length=metadata.integer("dspark.rope.dimension_count") or length,
        stretch=1.0 if kind == "none" else factor,
        yarn=yarn if kind == "yarn" else None,
    )


CHECKPOINT_ROLES = MappingProxyType(
    {
        "embeddings": "embed_tokens.weight",
        "head": "lm_head.weight",
        "fuse": "fc.weight",
        "fused_norm": "hidden_norm.weight",
        "final_norm": "norm.weight",
        "markov_in": "markov_head.markov_w1.weight",
        "markov_out": "markov_head.markov_w2.weight",
        "confidence": "confidence_head.proj.weight",
        "confidence_bias": "confidence_head.proj.bias",
        "condition_in": "log_snr_embed.fc1.weight",
        "condition_in_bias": "log_snr_embed.fc1.bias",
        "condition_out": "log_snr_embed.fc2.weight",
        "condition_out_bias": "log_snr_embed.fc2.bias",
    }
)
CHECKPOINT_LAYER_ROLES = MappingProxyType(
    {
        "attention_norm": "input_layernorm",
        "query": "self_attn.q_proj",
        "key": "self_attn.k_proj",
        "value": "self_attn.v_proj",
        "attention_out": "self_attn.o_proj",
        "query_norm": "self_attn.q_norm",
        "key_norm": "self_attn.k_norm",
        "feed_norm": "post_attention_layernorm",
        "gate": "mlp.gate_proj",
        "up": "mlp.up_proj",
        "down": "mlp.down_proj",
    }
)


def checkpoint_network(
    config: Config,
    weights: Mapping[str, Weight],
    *,
    lent: Mapping[str, Weight],
    mask: np.ndarray | None,
) -> Network:
    """The forward pass of a checkpoint, its config read once more.

    ``lent`` are the target's tables, for what the checkpoint leaves to it; ``mask`` [width] is an
    embedding of the mask token that stands beside the table.
    """
    layers = config.integer("num_hidden_layers")
    width = config.integer("hidden_size")
    length = config.integer("head_dim", default=width // config.integer("num_attention_heads"))
    rope = {**config.part("rope_scaling"), **config.part("rope_parameters")}
    partial = rope.get("partial_rotary_factor") or config.get("partial_rotary_factor") or 1
    kind = rope.get("rope_type") or rope.get("type")
    tensors = {role: weights[name] for role, name in CHECKPOINT_ROLES.items() if name in weights}
    for number in range(layers):
        for role, name in CHECKPOINT_LAYER_ROLES.items():
            tensors[f"{number}.{role}"] = weights[f"layers.{number}.{name}.weight"]
    if config.flag("has_embed_tokens") is False:
        tensors.pop("embeddings", None)
    if "head" not in tensors and config.flag("tie_word_embeddings") and "embeddings" in tensors:
        tensors["head"] = tensors["embeddings"]
    for role, name in (("embeddings", "token_embd.weight"), ("head", "output.weight")):
        if role not in tensors and name in lent:
            tensors[role] = lent[name]
    mask_token = config.integer("mask_token_id", least=0)
    if mask is not None:
        tensors["embeddings"] = _WithRow(tensors["embeddings"], mask_token, mask)
    nested = "transformer_layer_config" in config.parts[2]
    nested |= "aux_hidden_state_layer_ids" in config.parts[2]
    anchor = config.flag("sample_from_anchor")
    return Network(
        layers=layers,
        width=width,
        head_length=length,
        epsilon=config.number("rms_norm_eps"),
        rotary=Rotary(
            base=float(str(rope.get("rope_theta") or config.get("rope_theta") or 10_000)),
            length=int(length * float(str(partial))),
            interleaved=config.flag("rope_is_neox_style") is False,
            stretch=float(str(rope["factor"])) if kind in {"linear", "yarn"} else 1.0,
            yarn=_yarn(config, rope) if kind == "yarn" else None,
        ),
        block_size=config.integer("block_size", default=7 if _is_easydel(config) else 16),
        mask_token=mask_token,
        tensors=tensors,
        reads_anchor_row=not nested if anchor is None else anchor,
        causal=bool(config.flag("is_causal", "causal")),
        windows=_windows(config, layers),
        draft_tokens=_targets_of_rows(weights),
    )


def _yarn(config: Config, rope: Mapping[str, object]) -> Yarn:
    trained = rope.get("original_max_position_embeddings")
    return Yarn(
        trained=int(str(trained or config.integer("max_position_embeddings"))),
        fast=float(str(rope.get("beta_fast") or 32)),
        slow=float(str(rope.get("beta_slow") or 1)),
    )


def _is_easydel(config: Config) -> bool:
    names = {"DSparkForCausalLM", "DsparkSpeculator"} & {*config.texts("architectures")}
    return bool(names) or config.get("log_snr_conditioning") is not None


def _windows(config: Config, layers: int) -> dict[int, int]:
    """Layer -> positions it looks back, the row's own included."""
    if config.flag("use_swa"):
        return dict.fromkeys(range(layers), config.integer("swa_window_size", "sliding_window"))
    if not config.flag("use_sliding_window") or config.get("sliding_window") is None:
        return {}
    window = config.integer("swa_window_size", "sliding_window")
    kinds = config.texts("layer_types")
    if not kinds:
        first = config.integer("max_window_layers", default=28, least=0)
        return dict.fromkeys(range(first, layers), window)
    return {number: window for number, kind in enumerate(kinds) if kind.startswith("sliding")}


def _targets_of_rows(weights: Mapping[str, Weight]) -> np.ndarray | None:
    """Target ids, from the distances between each and its row."""
    distances = weights.get("d2t")
    if not isinstance(distances, ShardRows):
        return None
    steps = distances.integers().ravel()
    return np.array([row + step for row, step in enumerate(steps.tolist())], np.int64)


@dataclass(frozen=True, slots=True)
class _WithRow:
    """A table whose mask token has an embedding of its own."""

    table: Weight
    token: int
    row: np.ndarray

    @property
    def shape(self) -> tuple[int, ...]:
        return self.table.shape

    @property
    def type_id(self) -> int:
        return self.table.type_id

    def rows(self, begin: int, end: int) -> np.ndarray:
        rows = [self.table.rows(row, row + 1)[0] for row in range(begin, end)]
        return np.stack([self.row if begin + i == self.token else r for i, r in enumerate(rows)])

    def packed(self, begin: int, end: int) -> np.ndarray | None:  # noqa: ARG002
        return None


def _either(metadata: Metadata, name: str) -> int:
    """A number under the fork's doubled prefix, or under the single one of other tools."""
    doubled = metadata.integer(f"dspark.dspark.{name}")
    return (metadata.integer(f"dspark.{name}") or 0) if doubled is None else doubled
