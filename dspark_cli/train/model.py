"""The drafter in PyTorch: the same function of the same tensors as llama.cpp's ``dflash`` graph.

Source: the paper's section 3.1 to 3.3 and llama.cpp ``src/models/dflash.cpp``. Taps are fused once
(``fc``, RMSNorm); each block's keys and values come from the fused context before the anchor and
from the block's own rows, which see each other in both directions; queries come from the rows
only. The target's embedding and head are given and stay as they are.
"""

from dataclasses import dataclass
from typing import cast

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from dspark_cli.train.design import DrafterDesign
from dspark_cli.train.weights import Weights, shapes_of

FUSION = "fc.weight"
CONFIDENCE_WEIGHT, CONFIDENCE_BIAS = "conf_proj.weight", "conf_proj.bias"


class TrainedDrafter(nn.Module):
    """Parameters are named as in the GGUF, with dots as slashes.

    ``embedding`` [vocabulary, width] and ``head`` [draft vocabulary, width] are the target's;
    ``draft_tokens`` [draft vocabulary] are the target ids of the head's rows.
    ``tap_scale`` [n_taps x width] is the usual size of each tap's channels, which differ a
    thousandfold: the fusion is learned for channels of size one, and takes the scale into its
    weights when they are exported.
    """

    def __init__(
        self,
        design: DrafterDesign,
        weights: Weights,
        *,
        embedding: np.ndarray,
        head: np.ndarray,
        draft_tokens: np.ndarray,
        tap_scale: np.ndarray,
    ) -> None:
        super().__init__()
        self.design = design
        weights = {**weights, FUSION: (weights[FUSION] * tap_scale).astype(np.float32)}
        shapes = shapes_of(design, len(head))
        self.weights = nn.ParameterDict(
            {
                name.replace(".", "/"): nn.Parameter(
                    torch.from_numpy(np.ascontiguousarray(weights[name].reshape(shape)))
                )
                for name, shape in shapes.items()
            }
        )
        self.embedding: Tensor
        self.head: Tensor
        self.frequencies: Tensor
        self.tap_scale: Tensor
        self.draft_tokens: Tensor
        self.register_buffer("embedding", torch.from_numpy(embedding), persistent=False)
        self.register_buffer("head", torch.from_numpy(head), persistent=False)
        self.register_buffer("draft_tokens", torch.from_numpy(draft_tokens), persistent=False)
        scale = torch.from_numpy(tap_scale.astype(np.float32))
        self.register_buffer("tap_scale", scale, persistent=False)
        half = torch.arange(0, design.head_length, 2, dtype=torch.float32) / design.head_length
        self.register_buffer("frequencies", design.rope_base**-half, persistent=False)

    def get(self, name: str) -> Tensor:
        return cast("Tensor", self.weights[name.replace(".", "/")])

    def export(self) -> Weights:
        """The trained tensors as float32 arrays, as the GGUF wants them."""
        weights = {
            name.replace("/", "."): parameter.detach().float().cpu().numpy()
            for name, parameter in self.weights.items()
        }
        return {**weights, FUSION: weights[FUSION] / self.tap_scale.cpu().numpy()}

    @torch.no_grad()
    def set_confidence(self, weight: np.ndarray, bias: float) -> None:
        """Replace the confidence head: ``weight`` [width + rank]."""
        self.get(CONFIDENCE_WEIGHT).copy_(torch.from_numpy(weight)[None])
        self.get(CONFIDENCE_BIAS).fill_(bias)

    def forward(self, taps: Tensor, anchors: Tensor, tokens: Tensor, lengths: Tensor) -> Tensor:
        """Hidden rows of some blocks.

        ``taps`` [n, t, n_taps x width]; ``anchors`` [n, m] are positions within t, context before
        them is seen; ``tokens`` [n, m] are the anchors' own tokens; ``lengths`` [n, m] are rows
        per block. Returns rows [n, m, block, width] behind the output norm; those past a block's
        length are to be ignored.
        """
        design = self.design
        n, m = anchors.shape
        rows = torch.arange(design.block_size, device=anchors.device)
        positions = anchors[..., None] + rows
        if not torch.is_autocast_enabled(taps.device.type):
            taps = taps.float()
        # The scale goes into the weights: they are fewer than the taps of a batch.
        fused = functional.linear(taps, self.get(FUSION) / self.tap_scale)
        context = self._norm(fused, "enc.output_norm")
        ids = torch.full((n, m, design.block_size), design.mask_token, device=anchors.device)
        ids[..., 0] = tokens
        x = self.embedding[ids].float()
        seen = torch.arange(taps.shape[1], device=anchors.device) < anchors[..., None]
        bias = torch.cat(
            [
                seen[:, :, None, :].expand(n, m, design.block_size, -1),
                (rows < lengths.clamp(min=1)[..., None])[:, :, None, :].expand(
                    n, m, design.block_size, design.block_size
                ),
            ],
            dim=-1,
        )
        blocked = torch.zeros(bias.shape, device=anchors.device).masked_fill(~bias, -torch.inf)
        for layer in range(design.layers):
            x = x + self._attention(layer, x, context, positions, blocked)
            x = x + self._feed_forward(layer, x)
        return self._norm(x, "output_norm")

    def markov(self, previous: Tensor) -> Tensor:
        """W1 of the tokens before each row: ``previous`` [...] to [..., rank]."""
        return functional.embedding(previous, self.get("markov_w1.weight"))

    def logits(self, hidden: Tensor, markov: Tensor) -> Tensor:
        """Logits [..., draft vocabulary]: the head's plus W2 W1[previous]."""
        base = functional.linear(hidden, self.head)
        return base + functional.linear(markov, self.get("markov_w2.weight"))

    def confidence(self, hidden: Tensor, markov: Tensor) -> Tensor:
        """Logit [...] of the chance that the row's token is accepted, if all before it were."""
        features = torch.cat([hidden, markov], dim=-1)
        weight, bias = self.get(CONFIDENCE_WEIGHT), self.get(CONFIDENCE_BIAS)
        return functional.linear(features, weight, bias)[..., 0]

    def _norm(self, x: Tensor, name: str) -> Tensor:
        x = x.float()
        scale = torch.rsqrt(x.square().mean(-1, keepdim=True) + self.design.rms_epsilon)
        return x * scale * self.get(name + ".weight")

    def _rotate(self, x: Tensor, positions: Tensor) -> Tensor:
        """NEOX rotary embedding of x [..., heads, head_length] at positions [...]."""
        angles = positions[..., None, None].float() * self.frequencies
        cos, sin = angles.cos(), angles.sin()
        first, second = x.chunk(2, dim=-1)
        return torch.cat([first * cos - second * sin, second * cos + first * sin], dim=-1)

    def _keys(self, layer: int, x: Tensor, positions: Tensor) -> tuple[Tensor, Tensor]:
        design, block = self.design, f"blk.{layer}."
        shape = (*x.shape[:-1], design.kv_heads, design.head_length)
        keys = functional.linear(x, self.get(block + "attn_k.weight")).view(shape)
        values = functional.linear(x, self.get(block + "attn_v.weight")).view(shape)
        return self._rotate(self._norm(keys, block + "attn_k_norm"), positions), values

    def _attention(
        self, layer: int, x: Tensor, context: Tensor, positions: Tensor, blocked: Tensor
    ) -> Tensor:
        design, block = self.design, f"blk.{layer}."
        n, m, size, _ = x.shape
        groups = design.heads // design.kv_heads
        h = self._norm(x, block + "attn_norm")
        queries = functional.linear(h, self.get(block + "attn_q.weight"))
        queries = queries.view(n, m, size, design.heads, design.head_length)
        queries = self._rotate(self._norm(queries, block + "attn_q_norm"), positions)
        queries = queries * design.head_length**-0.5
        # [n, kv heads, m, size x groups, head]: the heads of one group share keys and values.
        queries = queries.view(n, m, size, design.kv_heads, groups, design.head_length)
        queries = queries.permute(0, 3, 1, 4, 2, 5)
        where = torch.arange(context.shape[1], device=x.device).expand(n, -1)
        past_keys, past_values = self._keys(layer, context, where)
        own_keys, own_values = self._keys(layer, h, positions)
        past_keys, past_values = past_keys.transpose(1, 2), past_values.transpose(1, 2)
        own_keys = own_keys.permute(0, 3, 1, 2, 4)
        own_values = own_values.permute(0, 3, 1, 2, 4)
        flat = queries.reshape(n, design.kv_heads, m * groups * size, design.head_length)
        past = torch.matmul(flat, past_keys.transpose(-1, -2))
        past = past.view(n, design.kv_heads, m, groups, size, -1)
        own = torch.matmul(queries, own_keys.transpose(-1, -2)[:, :, :, None])
        scores = torch.cat([past, own], dim=-1).float() + blocked[:, None, :, None]
        chances = scores.softmax(-1)
        of_past, of_own = chances[..., :-size], chances[..., -size:]
        mixed = torch.matmul(
            of_past.reshape(n, design.kv_heads, m * groups * size, -1), past_values
        ).view(queries.shape)
        mixed = mixed + torch.matmul(of_own, own_values[:, :, :, None])
        mixed = mixed.permute(0, 2, 4, 1, 3, 5).reshape(n, m, size, -1)
        return functional.linear(mixed, self.get(block + "attn_output.weight"))

    def _feed_forward(self, layer: int, x: Tensor) -> Tensor:
        block = f"blk.{layer}."
        h = self._norm(x, block + "ffn_norm")
        gate = functional.silu(functional.linear(h, self.get(block + "ffn_gate.weight")))
        up = functional.linear(h, self.get(block + "ffn_up.weight"))
        return functional.linear(gate * up, self.get(block + "ffn_down.weight"))

    @torch.no_grad()
    def propose(self, taps: Tensor, anchors: Tensor, tokens: Tensor) -> "Proposals":
        """Draft whole blocks as llama.cpp does: the likeliest token, row after row.

        ``taps`` [1, t, n_taps x width], ``anchors`` and ``tokens`` [1, m].
        """
        size = self.design.block_size
        hidden = self(taps, anchors, tokens, torch.full_like(anchors, size))
        previous, drafts, gaps, confidences = tokens[0], [], [], []
        for row in range(size):
            markov = self.markov(previous)
            top = self.logits(hidden[0, :, row], markov).float().topk(2, dim=-1)
            confidences.append(self.confidence(hidden[0, :, row], markov).sigmoid())
            drafts.append(top.indices[:, 0])
            gaps.append(top.values[:, 0] - top.values[:, 1])
            previous = self.draft_tokens[drafts[-1]]
        return Proposals(
            tokens=self.draft_tokens[torch.stack(drafts, 1)].cpu().numpy(),
            gaps=torch.stack(gaps, 1).cpu().numpy(),
            confidences=torch.stack(confidences, 1).float().cpu().numpy(),
        )


@dataclass(frozen=True, slots=True)
class Proposals:
    """Drafts of m blocks, all [m, block]."""

    tokens: np.ndarray  # target ids
    gaps: np.ndarray  # logits between the likeliest and the second
    confidences: np.ndarray  # chances
