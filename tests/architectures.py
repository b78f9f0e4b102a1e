"""Tiny targets of every architecture that llama.cpp can tap, with random weights.

The keys are written here, architecture by architecture. Which tensors belong to them, and their
shapes, llama.cpp is asked (``llama_model_init_from_user``), so that a tensor that a new version
adds is in the file too. The weights are this module's own, and so is the file.
"""

import ctypes
from pathlib import Path

import llama_cpp.llama_cpp as bindings
import numpy as np
from gguf.gguf_writer import GGUFValue
from pairs import (
    FAITHFUL,
    VOCABULARY,
    Mutation,
    Shape,
    Target,
    is_printable,
    typed,
    write_gguf,
)

from dspark_cli.engine.model import start_llama
from dspark_cli.native.log import log
from dspark_cli.native.symbols import symbol

WIDTH, HEADS, KV_HEADS, HEAD, LAYERS, HIDDEN, CONTEXT = 64, 4, 2, 16, 4, 96, 4096
WINDOW = 16  # positions that a layer with a sliding window sees

EXPERTS = {
    "expert_count": 4,
    "expert_used_count": 2,
    "expert_feed_forward_length": 32,
}
SHARED_EXPERTS = {
    "expert_shared_count": 1,
    "expert_shared_feed_forward_length": 32,
}
SLIDING = {"attention.sliding_window": WINDOW}
EVERY_OTHER = {"attention.sliding_window_pattern": [True, False, True, False]}
SECTIONS = {"rope.dimension_sections": [2, 3, 3, 0]}  # of HEAD / 2 pairs
HYBRID_HEADS = {  # attention in layers 1 and 3
    "attention.head_count_kv": [0, KV_HEADS, 0, KV_HEADS],
}
DELTA_NET = {
    "ssm.conv_kernel": 4,
    "ssm.inner_size": 32,
    "ssm.state_size": 16,
    "ssm.time_step_rank": 2,
    "ssm.group_count": 2,
    "full_attention_interval": 2,
}
MAMBA = {
    "ssm.conv_kernel": 4,
    "ssm.inner_size": 64,
    "ssm.state_size": 16,
    "ssm.time_step_rank": 4,
    "ssm.group_count": 2,
    "attention.layer_norm_epsilon": 1e-5,
    "attention.head_count_kv": [0, KV_HEADS, 0, 0, KV_HEADS],
    "feed_forward_length": [0, 0, HIDDEN, 0, 0],
    "block_count": 5,
}
KIMI = {
    "attention.head_count": 2,
    "attention.head_count_kv": [0, 1, 0, 1],
    "attention.key_length": 32,
    "attention.value_length": 24,
    "rope.dimension_count": 8,
    "attention.key_length_mla": 24,
    "attention.value_length_mla": 16,
    "attention.kv_lora_rank": 24,
    "attention.q_lora_rank": 16,
    "ssm.conv_kernel": 4,
    "kda.head_dim": 32,
    "kda.safe_gate": True,
    "kda.gate_lower_bound": -5.0,
    "leading_dense_block_count": 1,
    "expert_gating_func": 2,
}

HYPER_CONNECTIONS = {
    "hyper_connection.count": 4,
    "hyper_connection.sinkhorn_iterations": 2,
    "hyper_connection.epsilon": 1e-6,
}
INDEXER = {
    "attention.indexer.head_count": 4,
    "attention.indexer.key_length": 32,
    "attention.indexer.top_k": 1 << 17,  # selects everything: near-ties decide nothing
}

# Keys beside those that every architecture has, without their prefix.
ARCHITECTURES: dict[str, dict[str, object]] = {
    "bailingmoe3": EXPERTS | SHARED_EXPERTS | KIMI,
    "deepseek4": EXPERTS
    | SHARED_EXPERTS
    | SLIDING
    | HYPER_CONNECTIONS
    | INDEXER
    | {
        "attention.head_count_kv": 1,
        "attention.key_length": 64,  # it is turned by a Hadamard matrix, the smallest has 64 rows
        "attention.value_length": 64,
        "rope.dimension_count": 32,
        "attention.q_lora_rank": 16,
        "attention.output_group_count": 2,
        "attention.output_lora_rank": 16,
        "attention.compress_ratios": [0, 0, 4, 128],
        "attention.compress_rope_freq_base": 160000.0,
        "attention.indexer.key_length": 128,
        "hash_layer_count": 0,
        "swiglu_clamp_exp": 10.0,
        "expert_weights_scale": 1.0,
        "expert_weights_norm": True,
        "expert_gating_func": 4,
    },
    "gemma4": SLIDING
    | EVERY_OTHER
    | {
        "embedding_length_per_layer_input": 8,
        "attention.shared_kv_layers": 2,
        "attention.key_length_swa": HEAD,
        "attention.value_length_swa": HEAD,
        "rope.freq_base_swa": 10000.0,
        "rope.dimension_count_swa": HEAD,
        "final_logit_softcapping": 30.0,
    },
    "gpt-oss": EXPERTS | SLIDING,
    "hunyuan-dense": {},
    "hunyuan_vl": SECTIONS,
    "lfm2": {"shortconv.l_cache": 3} | HYBRID_HEADS,
    "lfm2moe": EXPERTS
    | {"shortconv.l_cache": 3, "leading_dense_block_count": 1, "expert_gating_func": 2}
    | HYBRID_HEADS,
    "llama": {},
    "mimo2": EXPERTS | SLIDING | EVERY_OTHER | {"expert_gating_func": 2},
    "minimax-01": EXPERTS | {"full_attention_interval": 2, "residual_scale": 1.5},
    "minimax-m2": EXPERTS | {"expert_gating_func": 2},
    "muse-glimmer": SLIDING | EVERY_OTHER | {"logit_scale": 1.0},
    "nanbeige": {"num_loops": 2},
    "nemotron_h": MAMBA,
    "nemotron_h_moe": EXPERTS | SHARED_EXPERTS | MAMBA | {"expert_gating_func": 2},
    "qwen3": {},
    "qwen35": DELTA_NET | SECTIONS,
    "qwen35moe": EXPERTS | SHARED_EXPERTS | DELTA_NET | SECTIONS,
    "qwen3moe": EXPERTS,
    "qwen3next": EXPERTS | SHARED_EXPERTS | DELTA_NET,
}

# Those whose taps abort the process, although their graphs publish something.
ABORTING: dict[str, dict[str, object]] = {
    "qwen4exp": EXPERTS
    | SHARED_EXPERTS
    | DELTA_NET
    | SECTIONS
    | HYPER_CONNECTIONS
    | INDEXER
    | {
        "hyper_connection.low_rank": 4,
        "attention.compress_ratios": [4, 4, 4, 4],
        "attention.indexer.key_length": HEAD,
    },
}

# Keys for an architecture about which nothing is said here: those of all others, and what some
# loaders want beside. Most are content with them, and ignore the rest.
ELSEWHERE = {
    key: value for keys in (ARCHITECTURES | ABORTING).values() for key, value in keys.items()
} | {
    "block_count": LAYERS,
    "feed_forward_length": HIDDEN,
    "attention.head_count": HEADS,
    "attention.head_count_kv": KV_HEADS,
    "attention.key_length": HEAD,
    "attention.value_length": HEAD,
    "rope.dimension_count": HEAD,
    "attention.layer_norm_epsilon": 1e-5,
    "attention.group_norm_epsilon": 1e-5,
    "attention.group_norm_groups": 4,
    "attention.clamp_kqv": 1.0,
    "attention.max_alibi_bias": 8.0,
    "attention.relative_buckets_count": 8,
    "use_parallel_residual": False,
    "interleave_moe_layer_step": 2,
    "expert_gating_func": 2,
    "logit_scale": 1.0,
    "features_length": WIDTH,
    "wkv.head_size": HEAD,
    "time_mix_extra_dim": 16,
    "time_decay_extra_dim": 16,
}


def keys_of(arch: str) -> dict[str, GGUFValue]:
    """All keys of a tiny target of ``arch``, the vocabulary included."""
    common = {
        "block_count": LAYERS,
        "context_length": CONTEXT,
        "embedding_length": WIDTH,
        "feed_forward_length": HIDDEN,
        "attention.head_count": HEADS,
        "attention.head_count_kv": KV_HEADS,
        "attention.key_length": HEAD,
        "attention.value_length": HEAD,
        "attention.layer_norm_rms_epsilon": 1e-5,
        "rope.dimension_count": HEAD,
        "rope.freq_base": 10000.0,
    }
    special = (ARCHITECTURES | ABORTING).get(arch, ELSEWHERE)
    values = {f"{arch}.{key}": typed(value) for key, value in (common | special).items()}
    return {"general.architecture": typed(arch), **values, **VOCABULARY.metadata()}


# struct gguf_context * gguf_init_from_file(const char * fname, struct gguf_init_params params);
class _InitParams(ctypes.Structure):
    _fields_ = (("no_alloc", ctypes.c_bool), ("ctx", ctypes.c_void_p))


_open_keys = symbol(
    "gguf_init_from_file", arguments=[ctypes.c_char_p, _InitParams], returns=ctypes.c_void_p
)
_free_keys = symbol("gguf_free", arguments=[ctypes.c_void_p], returns=None)
_name_of = symbol("ggml_get_name", arguments=[ctypes.c_void_p], returns=ctypes.c_char_p)


class _TensorHead(ctypes.Structure):
    """The first fields of ``struct ggml_tensor`` (ggml.h)."""

    _fields_ = (
        ("type", ctypes.c_int),
        ("buffer", ctypes.c_void_p),
        ("ne", ctypes.c_int64 * 4),
    )


def shapes_of(keys: Path) -> dict[str, tuple[int, ...]]:
    """The tensors that llama.cpp wants for the keys of a file, row-major."""
    start_llama()
    log.install()
    found: dict[str, tuple[int, ...]] = {}

    def note(tensor: int, _: object) -> None:
        ne = list(_TensorHead.from_address(tensor).ne)
        while len(ne) > 1 and ne[-1] == 1:
            ne.pop()
        found[_name_of(tensor).decode()] = tuple(reversed(ne))

    metadata = _open_keys(str(keys).encode(), _InitParams(True, None))
    callback = bindings.llama_model_set_tensor_data_t(note)
    log.clear()
    model = bindings.llama_model_init_from_user(
        metadata, callback, None, bindings.llama_model_default_params()
    )
    _free_keys(metadata)
    if model is None:
        raise ValueError(f"llama.cpp refuses these keys: {log.complaints()}")
    bindings.llama_model_free(model)
    return found


def write_target_of(
    path: Path, arch: str, *, seed: int = 0, mutation: Mutation = FAITHFUL
) -> Target:
    """Write a random target of ``arch``; greedily it speaks printable ASCII and never ends."""
    keys = keys_of(arch)
    path.parent.mkdir(exist_ok=True)
    write_gguf(path, keys, {}, dtype=np.float32, mutation=mutation)
    random = np.random.default_rng(seed)
    weights = {name: random_tensor(random, name, shape) for name, shape in shapes_of(path).items()}
    stored = write_gguf(path, keys, weights, dtype=np.float32, mutation=mutation)
    shape = Shape(WIDTH, HEADS, KV_HEADS, HEAD, LAYERS, HIDDEN, CONTEXT)
    return Target(path, arch, shape, VOCABULARY, stored)


def random_tensor(random: np.random.Generator, name: str, shape: tuple[int, ...]) -> np.ndarray:
    """Numbers that keep the residual stream of the order of 1, and all of which matter."""
    noise = random.normal(size=shape)
    if "token_embd" in name:
        return 4 * noise
    if name == "output.weight":
        head = 4 * noise / np.sqrt(shape[-1])
        silent = [index for index, text in enumerate(VOCABULARY.tokens) if not is_printable(text)]
        head[silent] = 0
        return head
    if "ssm_a" in name:  # a state decays
        return -np.exp(0.5 * noise)
    if "norm" in name and name.endswith(".weight"):
        return 1 + 0.1 * noise
    if name.endswith(".bias") or len(shape) == 1:
        return 0.1 * noise + name.endswith((".scale", "rope_freqs.weight", "ssm_d"))
    return 1.5 * noise / np.sqrt(shape[-1])
