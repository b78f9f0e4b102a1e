"""The target as a PyTorch module, and its way into a GGUF file and back.

Every parameter carries the name that llama.cpp gives its tensor, so the state dict is the list of
tensors. Queries and keys are rotated in neighbouring pairs, as llama.cpp does for the llama
architecture (its "NORM" RoPE); nothing has to be permuted on the way out.

This module knows weights and files; it knows nothing of texts or training.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import gguf
import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional
from vocabulary import BOS, EOS, MASK, PRE_TOKENIZER, Vocabulary


@dataclass(frozen=True, slots=True)
class Shape:
    """Hyper-parameters of the target."""

    n_vocab: int = 2048
    n_embd: int = 256
    n_layer: int = 6
    n_head: int = 4
    n_head_kv: int = 2
    head_dim: int = 64
    n_ff: int = 704
    context_length: int = 2048
    rms_eps: float = 1e-5
    rope_base: float = 10000.0


# --- the transformer ----------------------------------------------------------------------------


class Layer(nn.Module):
    """Attention and feed-forward, each behind its norm and added to the residual stream."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.shape = shape
        queries, keys = shape.n_head * shape.head_dim, shape.n_head_kv * shape.head_dim
        self.attn_norm = nn.RMSNorm(shape.n_embd, shape.rms_eps)
        self.attn_q = nn.Linear(shape.n_embd, queries, bias=False)
        self.attn_k = nn.Linear(shape.n_embd, keys, bias=False)
        self.attn_v = nn.Linear(shape.n_embd, keys, bias=False)
        self.attn_output = nn.Linear(queries, shape.n_embd, bias=False)
        self.ffn_norm = nn.RMSNorm(shape.n_embd, shape.rms_eps)
        self.ffn_gate = nn.Linear(shape.n_embd, shape.n_ff, bias=False)
        self.ffn_up = nn.Linear(shape.n_embd, shape.n_ff, bias=False)
        self.ffn_down = nn.Linear(shape.n_ff, shape.n_embd, bias=False)

    def forward(self, state: Tensor, turns: Tensor) -> Tensor:
        state = state + self.attention(self.attn_norm(state), turns)
        normed = self.ffn_norm(state)
        return state + self.ffn_down(functional.silu(self.ffn_gate(normed)) * self.ffn_up(normed))

    def attention(self, normed: Tensor, turns: Tensor) -> Tensor:
        rows, length, _ = normed.shape

        def heads(projected: Tensor) -> Tensor:
            return projected.view(rows, length, -1, self.shape.head_dim).transpose(1, 2)

        sharing = self.shape.n_head // self.shape.n_head_kv
        queries = rotated(heads(self.attn_q(normed)), turns)
        keys = rotated(heads(self.attn_k(normed)), turns).repeat_interleave(sharing, dim=1)
        values = heads(self.attn_v(normed)).repeat_interleave(sharing, dim=1)
        mixed = functional.scaled_dot_product_attention(queries, keys, values, is_causal=True)
        return self.attn_output(mixed.transpose(1, 2).reshape(rows, length, -1))


class Target(nn.Module):
    """A llama whose head is its embedding table."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.shape = shape
        self.token_embd = nn.Embedding(shape.n_vocab, shape.n_embd)
        self.blk = nn.ModuleList(Layer(shape) for _ in range(shape.n_layer))
        self.output_norm = nn.RMSNorm(shape.n_embd, shape.rms_eps)
        self.register_buffer("turns", rotations(shape), persistent=False)
        self.initialise()

    def initialise(self) -> None:
        """Draw small weights, smaller still where they are added to the residual stream."""
        for name, weight in self.named_parameters():
            if weight.ndim > 1:
                adds = name.endswith(("attn_output.weight", "ffn_down.weight"))
                nn.init.normal_(
                    weight, std=0.02 / (2 * self.shape.n_layer) ** 0.5 if adds else 0.02
                )

    def hidden_states(self, tokens: Tensor) -> list[Tensor]:
        """Compute what enters each layer, and at the end what leaves the last."""
        states = [self.token_embd(tokens)]
        turns = self.turns[:, : tokens.shape[1]]
        for layer in self.blk:
            states.append(layer(states[-1], turns))
        return states

    def forward(self, tokens: Tensor) -> Tensor:
        """Compute the logits of every row."""
        return functional.linear(
            self.output_norm(self.hidden_states(tokens)[-1]), self.token_embd.weight
        )


def rotations(shape: Shape) -> Tensor:
    """Lay out cosines and sines, ``[2, position, pair]``."""
    pairs = torch.arange(0, shape.head_dim, 2) / shape.head_dim
    angles = torch.outer(torch.arange(shape.context_length), shape.rope_base**-pairs)
    return torch.stack((angles.cos(), angles.sin()))


def rotated(heads: Tensor, turns: Tensor) -> Tensor:
    """Turn each pair of neighbours by the angle of its position."""
    cosine, sine = turns.to(heads.dtype)
    even, odd = heads[..., 0::2], heads[..., 1::2]
    pairs = (even * cosine - odd * sine, even * sine + odd * cosine)
    return torch.stack(pairs, dim=-1).flatten(-2)


# --- GGUF ---------------------------------------------------------------------------------------


ABOUT = {
    "name": "dspark-builtin",
    "license": "MIT",
    "description": (
        "A small target for trying speculative decoding: tells stories, does sums, writes tiny "
        "functions. Trained from nothing on text from a grammar; see examples/builtin_pair."
    ),
}


def write_gguf(path: Path, model: Target, vocabulary: Vocabulary) -> None:
    """Store matrices as Q8_0 and norms as F32."""
    shape = model.shape
    writer = gguf.GGUFWriter(path, "llama")
    for key, value in ABOUT.items():
        writer.add_string(f"general.{key}", value)
    writer.add_file_type(gguf.LlamaFileType.MOSTLY_Q8_0)
    writer.add_quantization_version(gguf.GGML_QUANT_VERSION)

    writer.add_vocab_size(shape.n_vocab)
    writer.add_context_length(shape.context_length)
    writer.add_embedding_length(shape.n_embd)
    writer.add_block_count(shape.n_layer)
    writer.add_feed_forward_length(shape.n_ff)
    writer.add_head_count(shape.n_head)
    writer.add_head_count_kv(shape.n_head_kv)
    writer.add_key_length(shape.head_dim)
    writer.add_value_length(shape.head_dim)
    writer.add_rope_dimension_count(shape.head_dim)
    writer.add_rope_freq_base(shape.rope_base)
    writer.add_layer_norm_rms_eps(shape.rms_eps)

    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(PRE_TOKENIZER)
    writer.add_token_list(vocabulary.tokens)
    writer.add_token_types(vocabulary.kinds)
    writer.add_token_merges(vocabulary.merges)
    writer.add_bos_token_id(BOS)
    writer.add_eos_token_id(EOS)
    writer.add_mask_token_id(MASK)
    writer.add_add_bos_token(True)
    writer.add_add_eos_token(False)

    for name, weight in model.state_dict().items():
        array = weight.float().numpy()
        if array.ndim > 1:
            quantised = gguf.quants.quantize(array, gguf.GGMLQuantizationType.Q8_0)
            writer.add_tensor(name, quantised, raw_dtype=gguf.GGMLQuantizationType.Q8_0)
        else:
            writer.add_tensor(name, array)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def read_gguf(path: Path) -> Target:
    """Load a target with the very weights that llama.cpp sees."""
    reader = gguf.GGUFReader(path)
    model = Target(read_shape(reader.fields))
    weights = {
        tensor.name: gguf.quants.dequantize(tensor.data, tensor.tensor_type)
        for tensor in reader.tensors
    }
    model.load_state_dict(
        {name: torch.from_numpy(array.astype(np.float32)) for name, array in weights.items()}
    )
    return model.eval()


def read_shape(fields: Mapping[str, gguf.ReaderField]) -> Shape:
    def value(key: str) -> float:
        return fields[f"llama.{key}"].contents()

    return Shape(
        n_vocab=value("vocab_size"),
        n_embd=value("embedding_length"),
        n_layer=value("block_count"),
        n_head=value("attention.head_count"),
        n_head_kv=value("attention.head_count_kv"),
        head_dim=value("attention.key_length"),
        n_ff=value("feed_forward_length"),
        context_length=value("context_length"),
        rms_eps=value("attention.layer_norm_rms_epsilon"),
        rope_base=value("rope.freq_base"),
    )
