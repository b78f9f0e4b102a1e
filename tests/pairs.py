"""Tiny GGUF pairs, written in milliseconds, whose answers are known before llama.cpp gives them.

A *rigged* model does what it was told: the target follows a table of next tokens, the drafter
proposes from a table of what it knows. A *random* model has weights that all matter: what it says
depends on everything before, and only computing it tells. A *taught* drafter has learned the
successors of one random target; a quarter to a half of its drafts survive.

Every writer returns the weights it wrote, so that ``reference`` computes with the same numbers.
This module knows GGUF and the tensors of three architectures; it never loads llama.cpp.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path

import numpy as np
from gguf import GGUFValueType, GGUFWriter, TokenType
from gguf.gguf_writer import GGUFValue

# --- the vocabulary -----------------------------------------------------------------------------

BOS, EOS, MASK, IM_START, IM_END, UNUSED = range(256, 262)
SPECIAL_TOKENS = ("<s>", "</s>", "<mask>", "<|im_start|>", "<|im_end|>", "<unused>")

# Each merge makes one token, in this order; Ġ is how GPT-2 writes a space.
MERGES = (
    *("t h", "i n", "e r", "a n", "o n", "r e", "h e", "Ġ t", "Ġ a", "o u", "s t", "e n", "i s"),
    *("i t", "o r", "a t", "e s", "Ġ s", "Ġ w", "th e", "Ġt he", "an d", "Ġa nd", "in g", "l l"),
    *("e d",),
)


def byte_to_unicode() -> list[str]:
    """List the character that stands for each byte in a GPT-2 vocabulary."""
    printable = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    spare = iter(range(0x100, 0x200))
    return [chr(byte if byte in printable else next(spare)) for byte in range(256)]


TOKENS = (*byte_to_unicode(), *SPECIAL_TOKENS, *(merge.replace(" ", "") for merge in MERGES))
VOCABULARY_SIZE = len(TOKENS)  # 288


@dataclass(frozen=True)
class Vocabulary:
    """A byte-level vocabulary in which the id of a single-byte token is the byte itself.

    So ``list(b"abc")`` is a prompt. ``eos`` and ``eot`` both end a text.
    """

    tokens: tuple[str, ...] = TOKENS
    merges: tuple[str, ...] = MERGES
    bos: int = BOS
    eos: int = EOS
    eot: int = IM_END
    add_bos: bool = False
    chat_template: str | None = None

    def renamed(self, token: int, text: str) -> "Vocabulary":
        """Spell one token differently, as in a vocabulary of another model."""
        return replace(self, tokens=(*self.tokens[:token], text, *self.tokens[token + 1 :]))

    def metadata(self) -> dict[str, GGUFValue]:
        kinds = {UNUSED: TokenType.UNUSED}
        kinds |= dict.fromkeys((BOS, EOS, MASK, IM_START, IM_END), TokenType.CONTROL)
        types = [int(kinds.get(token, TokenType.NORMAL)) for token in range(len(self.tokens))]
        values = {
            "tokenizer.ggml.model": "gpt2",
            "tokenizer.ggml.pre": "gpt-2",
            "tokenizer.ggml.tokens": list(self.tokens),
            "tokenizer.ggml.token_type": types,
            "tokenizer.ggml.merges": list(self.merges),
            "tokenizer.ggml.bos_token_id": self.bos,
            "tokenizer.ggml.eos_token_id": self.eos,
            "tokenizer.ggml.eot_token_id": self.eot,
            "tokenizer.ggml.add_bos_token": self.add_bos,
        }
        if self.chat_template is not None:
            values["tokenizer.chat_template"] = self.chat_template
        return {key: typed(value) for key, value in values.items()}


VOCABULARY = Vocabulary()


# --- what a written model is --------------------------------------------------------------------


@dataclass(frozen=True)
class Shape:
    """Hyper-parameters of a stack of transformer layers."""

    n_embd: int
    n_head: int
    n_head_kv: int
    head_dim: int
    n_layer: int
    n_ff: int
    context_length: int = 4096
    rms_eps: float = 1e-5
    rope_base: float = 10000.0

    def metadata(self, arch: str) -> dict[str, GGUFValue]:
        values = {
            "block_count": self.n_layer,
            "context_length": self.context_length,
            "embedding_length": self.n_embd,
            "feed_forward_length": self.n_ff,
            "attention.head_count": self.n_head,
            "attention.head_count_kv": self.n_head_kv,
            "attention.key_length": self.head_dim,
            "attention.value_length": self.head_dim,
            "attention.layer_norm_rms_epsilon": self.rms_eps,
            "rope.dimension_count": self.head_dim,
            "rope.freq_base": self.rope_base,
        }
        return {f"{arch}.{key}": typed(value) for key, value in values.items()}


@dataclass(frozen=True)
class Target:
    """A target as written: ``weights`` are row-major ``[out, in]`` and hold the stored values."""

    path: Path
    arch: str
    shape: Shape
    vocabulary: Vocabulary
    weights: Mapping[str, np.ndarray]


@dataclass(frozen=True)
class Drafter:
    """A drafter as written; see `Target` for ``weights``."""

    path: Path
    shape: Shape
    vocabulary: Vocabulary
    block_size: int
    taps: tuple[int, ...]
    mask: int
    sample_from_anchor: bool
    weights: Mapping[str, np.ndarray]

    @property
    def is_dspark(self) -> bool:
        return "markov_w1.weight" in self.weights

    @property
    def first_row(self) -> int:
        """The first row of a block that proposes a token."""
        return 0 if self.is_dspark and self.sample_from_anchor else 1


@dataclass(frozen=True)
class Mutation:
    """What to change in a file that is otherwise as it should be.

    ``metadata`` replaces or adds keys; a value keeps the type of the key it replaces unless it is
    a ``GGUFValue``, which states its own. ``drop`` leaves keys out. ``tensors`` replaces or adds
    tensors in the dtype they come in, and leaves out those given as None.
    """

    metadata: Mapping[str, object] = field(default_factory=dict)
    drop: Collection[str] = ()
    tensors: Mapping[str, np.ndarray | None] = field(default_factory=dict)


FAITHFUL = Mutation()

# A table over token ids; None where it has nothing to say.
Successors = Callable[[int], int | None] | Sequence[int | None]


# --- targets ------------------------------------------------------------------------------------


def write_rigged_target(
    path: Path,
    *,
    next_token: Successors,
    sharpness: float = 17.0,
    nan_token: int | None = None,
    n_layer: int = 3,
    context_length: int = 4096,
    arch: str = "llama",
    vocabulary: Vocabulary = VOCABULARY,
    dtype: type[np.floating] = np.float32,
    mutation: Mutation = FAITHFUL,
) -> Target:
    """Write a target that continues a text with ``next_token`` of its last token.

    That token's logit is ``sharpness`` and all others are 0. After ``nan_token`` every logit is
    NaN; rows before and after it in the text stay as they were. ``arch`` also names the keys:
    llama and qwen3 run, any other makes a file that llama.cpp cannot be expected to load.
    """
    shape = replace(RIGGED_SHAPE, n_layer=n_layer, context_length=context_length)
    n_vocab = len(vocabulary.tokens)
    head = np.zeros((n_vocab, shape.n_embd))
    # The residual stream is one-hot, and the final RMSNorm scales its 1 to this.
    peak = 1 / np.sqrt(1 / shape.n_embd + shape.rms_eps)
    for last, token in successor_pairs(next_token, shape.n_embd):
        head[token, last] = sharpness / peak
    weights = {
        "token_embd.weight": np.eye(n_vocab, shape.n_embd),
        "output_norm.weight": np.ones(shape.n_embd),
        "output.weight": head,
        **silent_layers(shape, head_norms=arch == "qwen3"),
    }
    if nan_token is not None:
        # A NaN embedding would reach keys and values and spoil every row that can see the cell,
        # masked or rewound ones too. The last feed-forward speaks after all of them are written:
        # its gate overflows for this token alone, and infinity times the zeros of ffn_down is NaN.
        for name in ("ffn_gate", "ffn_up"):
            weights[f"blk.{n_layer - 1}.{name}.weight"][0, nan_token] = np.finfo(dtype).max
        # The largest F16 alone overflows only on CPUs that multiply F16 by F16.
        weights[f"blk.{n_layer - 1}.ffn_norm.weight"][nan_token] = 1e30
    return write_target(
        path, arch, shape, weights, vocabulary=vocabulary, dtype=dtype, mutation=mutation
    )


def write_random_target(
    path: Path,
    *,
    seed: int = 0,
    arch: str = "llama",
    shape: Shape | None = None,
    vocabulary: Vocabulary = VOCABULARY,
    dtype: type[np.floating] = np.float32,
    mutation: Mutation = FAITHFUL,
) -> Target:
    """Write a target, llama or qwen3, whose next token depends on the whole text before.

    Greedily it speaks printable ASCII and never ends: other tokens have logit 0, far below the
    best of the printable ones.
    """
    shape = shape or RANDOM_SHAPE
    random = np.random.default_rng(seed)
    head = 4 * normal_matrix(random, len(vocabulary.tokens), shape.n_embd)
    head[[token for token, text in enumerate(vocabulary.tokens) if not is_printable(text)]] = 0
    weights = {
        "token_embd.weight": random_embeddings(random, len(vocabulary.tokens), shape.n_embd),
        "output_norm.weight": norm_near_one(random, shape.n_embd),
        "output.weight": head,
        **random_layers(random, shape, head_norms=arch == "qwen3"),
    }
    return write_target(
        path, arch, shape, weights, vocabulary=vocabulary, dtype=dtype, mutation=mutation
    )


# --- drafters -----------------------------------------------------------------------------------


def write_rigged_drafter(
    path: Path,
    target: Target,
    *,
    knows: Successors,
    confidence: Callable[[int], float] | None = None,
    block_size: int = 4,
    taps: Sequence[int] = (1, 2),
    own_embeddings: bool = False,
    draft_vocab: Sequence[int] | None = None,
    sample_from_anchor: bool = True,
    mask: int = MASK,
    n_layer: int = 1,
    context_length: int = 4096,
    vocabulary: Vocabulary | None = None,
    dtype: type[np.floating] = np.float32,
    mutation: Mutation = FAITHFUL,
) -> Drafter:
    """Write a DSpark drafter that proposes ``knows`` of each token along the chain.

    The proposal has logit 10 and all others 0, whatever the taps. Where ``knows`` has no answer,
    or one outside ``draft_vocab``, all are 0. ``confidence`` is the probability it states after
    the given previous token. Everything else is borrowed from the target unless
    ``own_embeddings``; a ``draft_vocab`` (target ids) needs a head of its own in any case.
    """
    shape = replace(
        target.shape, n_layer=n_layer, n_ff=RIGGED_SHAPE.n_ff, context_length=context_length
    )
    table = np.zeros((len(target.vocabulary.tokens),) * 2)
    for previous, token in successor_pairs(knows, len(table)):
        table[token, previous] = 10.0
    weights = {
        "fc.weight": np.zeros((shape.n_embd, len(taps) * shape.n_embd)),
        "enc.output_norm.weight": np.ones(shape.n_embd),
        "output_norm.weight": np.zeros(shape.n_embd),
        **silent_layers(shape, head_norms=True),
        **table_head(table, confidence, shape.n_embd),
        **embeddings_of(target, own=own_embeddings),
    }
    return write_drafter(
        path,
        shape,
        narrowed(weights, target, draft_vocab),
        block_size=block_size,
        taps=taps,
        mask=mask,
        sample_from_anchor=sample_from_anchor,
        vocabulary=vocabulary or target.vocabulary,
        dtype=dtype,
        mutation=mutation,
    )


def write_rigged_dflash(
    path: Path,
    target: Target,
    *,
    mask_says: int,
    anchor_says: int,
    block_size: int = 4,
    taps: Sequence[int] = (1, 2),
    mask: int = MASK,
    context_length: int = 4096,
    vocabulary: Vocabulary | None = None,
    dtype: type[np.floating] = np.float32,
    mutation: Mutation = FAITHFUL,
) -> Drafter:
    """Write a plain DFlash drafter, its own embeddings and head included.

    Rows with the mask propose ``mask_says``. Row 0, which nobody should read, proposes
    ``anchor_says``.
    """
    shape = replace(target.shape, n_layer=1, n_ff=RIGGED_SHAPE.n_ff, context_length=context_length)
    n_vocab = len(target.vocabulary.tokens)
    embeddings, head = np.zeros((2, n_vocab, shape.n_embd))
    embeddings[:, 0] = 1
    embeddings[mask] = np.eye(shape.n_embd)[1]
    head[anchor_says, 0] = head[mask_says, 1] = 1
    weights = {
        "token_embd.weight": embeddings,
        "output.weight": head,
        "fc.weight": np.zeros((shape.n_embd, len(taps) * shape.n_embd)),
        "enc.output_norm.weight": np.ones(shape.n_embd),
        "output_norm.weight": np.ones(shape.n_embd),
        **silent_layers(shape, head_norms=True),
    }
    return write_drafter(
        path,
        shape,
        weights,
        block_size=block_size,
        taps=taps,
        mask=mask,
        sample_from_anchor=False,
        vocabulary=vocabulary or target.vocabulary,
        dtype=dtype,
        mutation=mutation,
    )


def write_random_drafter(
    path: Path,
    target: Target,
    *,
    seed: int = 1,
    block_size: int = 4,
    taps: Sequence[int] = (1, 3),
    markov_rank: int | None = 8,
    confidence: bool = True,
    own_embeddings: bool = False,
    draft_vocab: Sequence[int] | None = None,
    sample_from_anchor: bool = True,
    mask: int = MASK,
    n_layer: int = 2,
    context_length: int = 4096,
    vocabulary: Vocabulary | None = None,
    dtype: type[np.floating] = np.float32,
    mutation: Mutation = FAITHFUL,
) -> Drafter:
    """Write a drafter in which every weight is random and every input matters.

    ``markov_rank=None`` makes it plain DFlash, without Markov head and confidence.
    """
    shape = replace(target.shape, n_layer=n_layer, context_length=context_length)
    n_vocab = len(target.vocabulary.tokens)
    random = np.random.default_rng(seed)
    weights = random_trunk(random, shape, n_taps=len(taps))
    if markov_rank is not None:
        weights["markov_w1.weight"] = random.normal(size=(n_vocab, markov_rank))
        weights["markov_w2.weight"] = 4 * normal_matrix(random, n_vocab, markov_rank)
        if confidence:
            width = shape.n_embd + markov_rank
            weights["conf_proj.weight"] = 1.5 * normal_matrix(random, 1, width)
            weights["conf_proj.bias"] = random.normal(size=1)
    if own_embeddings:
        weights["token_embd.weight"] = random_embeddings(random, n_vocab, shape.n_embd)
        weights["output.weight"] = 4 * normal_matrix(random, n_vocab, shape.n_embd)
    return write_drafter(
        path,
        shape,
        narrowed(weights, target, draft_vocab),
        block_size=block_size,
        taps=taps,
        mask=mask,
        sample_from_anchor=sample_from_anchor,
        vocabulary=vocabulary or target.vocabulary,
        dtype=dtype,
        mutation=mutation,
    )


def write_taught_drafter(
    path: Path,
    target: Target,
    texts: Iterable[Sequence[int]],
    *,
    seed: int = 1,
    block_size: int = 4,
    taps: Sequence[int] = (1, 3),
    confidence: bool = True,
    sample_from_anchor: bool = True,
    mask: int = MASK,
    n_layer: int = 2,
    context_length: int = 4096,
    dtype: type[np.floating] = np.float32,
    mutation: Mutation = FAITHFUL,
) -> Drafter:
    """Write a DSpark drafter that proposes the likeliest successor it saw in ``texts``.

    Its confidence is how often that successor followed. Embeddings and head are the target's;
    the random trunk is quiet and decides only after tokens the texts never showed.
    """
    shape = replace(target.shape, n_layer=n_layer, context_length=context_length)
    n_vocab = len(target.vocabulary.tokens)
    followers = [Counter() for _ in range(n_vocab)]
    for text in texts:
        for previous, token in pairwise(text):
            followers[previous][token] += 1
    table = np.zeros((n_vocab, n_vocab))
    certainty = np.full(n_vocab, 0.1)
    for previous, seen in enumerate(followers):
        for token, count in seen.most_common(1):
            table[token, previous] = 10.0
            certainty[previous] = count / seen.total()
    weights = random_trunk(np.random.default_rng(seed), shape, n_taps=len(taps))
    weights["output_norm.weight"] *= 0.05
    weights |= table_head(table, certainty.__getitem__ if confidence else None, shape.n_embd)
    return write_drafter(
        path,
        shape,
        weights,
        block_size=block_size,
        taps=taps,
        mask=mask,
        sample_from_anchor=sample_from_anchor,
        vocabulary=target.vocabulary,
        dtype=dtype,
        mutation=mutation,
    )


# --- weights ------------------------------------------------------------------------------------

# As wide as the vocabulary, so that an embedding can be one-hot.
RIGGED_SHAPE = Shape(
    n_embd=VOCABULARY_SIZE, n_head=9, n_head_kv=3, head_dim=32, n_layer=3, n_ff=32
)
RANDOM_SHAPE = Shape(n_embd=64, n_head=4, n_head_kv=2, head_dim=16, n_layer=4, n_ff=128)


def layers(
    shape: Shape,
    matrix: Callable[[int, int, float], np.ndarray],
    norm: Callable[[int], np.ndarray],
    *,
    head_norms: bool,
) -> dict[str, np.ndarray]:
    """Fill every layer with ``matrix(rows, columns, gain)`` and ``norm(width)``."""
    queries, keys = shape.n_head * shape.head_dim, shape.n_head_kv * shape.head_dim
    weights = {}
    for layer in range(shape.n_layer):
        tensors = {
            "attn_norm": norm(shape.n_embd),
            "attn_q": matrix(queries, shape.n_embd, 1.5),
            "attn_k": matrix(keys, shape.n_embd, 1.5),
            "attn_v": matrix(keys, shape.n_embd, 2.0),
            "attn_output": matrix(shape.n_embd, queries, 2.0),
            "ffn_norm": norm(shape.n_embd),
            "ffn_gate": matrix(shape.n_ff, shape.n_embd, 1.5),
            "ffn_up": matrix(shape.n_ff, shape.n_embd, 1.5),
            "ffn_down": matrix(shape.n_embd, shape.n_ff, 1.5),
        }
        if head_norms:
            tensors |= {"attn_q_norm": norm(shape.head_dim), "attn_k_norm": norm(shape.head_dim)}
        weights |= {f"blk.{layer}.{name}.weight": array for name, array in tensors.items()}
    return weights


def silent_layers(shape: Shape, *, head_norms: bool) -> dict[str, np.ndarray]:
    """Make layers that add nothing to the residual stream."""
    return layers(shape, lambda m, n, _: np.zeros((m, n)), np.ones, head_norms=head_norms)


def random_layers(
    random: np.random.Generator, shape: Shape, *, head_norms: bool
) -> dict[str, np.ndarray]:
    """Make layers whose attention picks sharply and whose output moves the residual stream."""
    return layers(
        shape,
        lambda rows, columns, gain: gain * normal_matrix(random, rows, columns),
        lambda width: norm_near_one(random, width),
        head_norms=head_norms,
    )


def random_trunk(
    random: np.random.Generator, shape: Shape, *, n_taps: int
) -> dict[str, np.ndarray]:
    """Make a drafter's layers with what joins them to the taps and to the head."""
    return {
        "fc.weight": normal_matrix(random, shape.n_embd, n_taps * shape.n_embd),
        "enc.output_norm.weight": norm_near_one(random, shape.n_embd),
        "output_norm.weight": norm_near_one(random, shape.n_embd),
        **random_layers(random, shape, head_norms=True),
    }


def table_head(
    table: np.ndarray, confidence: Callable[[int], float] | None, n_embd: int
) -> dict[str, np.ndarray]:
    """Make a Markov head that adds ``table[:, previous]``, with a confidence per previous token.

    W1 is one-hot, so each previous token has a weight of its own in W2 and in the confidence.
    """
    weights = {"markov_w1.weight": np.eye(len(table)), "markov_w2.weight": table}
    if confidence is not None:
        chances = np.array([confidence(previous) for previous in range(len(table))])
        # An infinite weight would be NaN for the others; sigmoid(±50) is 1 and 0 to 1e-21.
        with np.errstate(divide="ignore"):
            logits = np.clip(np.log(chances) - np.log1p(-chances), -50, 50)
        weights["conf_proj.weight"] = np.concatenate([np.zeros(n_embd), logits])[None]
        weights["conf_proj.bias"] = np.zeros(1)
    return weights


def embeddings_of(target: Target, *, own: bool) -> dict[str, np.ndarray]:
    """Copy the target's embeddings and head for a drafter that keeps its own, else nothing."""
    names = ("token_embd.weight", "output.weight")
    return {name: target.weights[name] for name in names} if own else {}


def narrowed(
    weights: dict[str, np.ndarray], target: Target, draft_vocab: Sequence[int] | None
) -> dict[str, np.ndarray]:
    """Keep only the rows of head and Markov table that ``draft_vocab`` names, in its order."""
    if draft_vocab is None:
        return weights
    rows = np.asarray(draft_vocab, dtype=np.int64)
    head = weights.get("output.weight", target.weights["output.weight"])
    narrow = weights | {"d2t": rows, "output.weight": head[rows]}
    if "markov_w2.weight" in weights:
        narrow["markov_w2.weight"] = weights["markov_w2.weight"][rows]
    return narrow


def random_embeddings(random: np.random.Generator, n_vocab: int, n_embd: int) -> np.ndarray:
    """Draw embeddings loud enough that the last token counts for about half of what follows.

    Four times unit variance, measured: the likeliest successor of a token is then right for half
    of the tokens a random target says, while a changed first token still changes the answer.
    """
    return 4 * random.normal(size=(n_vocab, n_embd))


def normal_matrix(random: np.random.Generator, rows: int, columns: int) -> np.ndarray:
    """Draw a matrix that maps vectors of unit variance to vectors of unit variance."""
    return random.normal(size=(rows, columns)) / np.sqrt(columns)


def norm_near_one(random: np.random.Generator, width: int) -> np.ndarray:
    return 1 + 0.1 * random.normal(size=width)


def is_printable(text: str) -> bool:
    """Say whether a token's spelling stands for printable ASCII and is no special token."""
    return text not in SPECIAL_TOKENS and all("!" <= sign <= "~" or sign == "Ġ" for sign in text)


def successor_pairs(successors: Successors, size: int) -> list[tuple[int, int]]:
    """List ``(token, successor)`` for every token below ``size`` that has one."""
    look_up = successors if callable(successors) else successors.__getitem__
    pairs = [(token, look_up(token)) for token in range(size)]
    return [(token, following) for token, following in pairs if following is not None]


# --- files --------------------------------------------------------------------------------------


def write_target(
    path: Path,
    arch: str,
    shape: Shape,
    weights: Mapping[str, np.ndarray],
    *,
    vocabulary: Vocabulary,
    dtype: type[np.floating],
    mutation: Mutation,
) -> Target:
    metadata = {
        "general.architecture": typed(arch),
        "general.name": typed(path.stem),
        **shape.metadata(arch),
        **vocabulary.metadata(),
    }
    stored = write_gguf(path, metadata, weights, dtype=dtype, mutation=mutation)
    return Target(path, arch, shape, vocabulary, stored)


def write_drafter(
    path: Path,
    shape: Shape,
    weights: Mapping[str, np.ndarray],
    *,
    block_size: int,
    taps: Sequence[int],
    mask: int,
    sample_from_anchor: bool,
    vocabulary: Vocabulary,
    dtype: type[np.floating],
    mutation: Mutation,
) -> Drafter:
    metadata = {
        "general.architecture": typed("dflash"),
        "general.name": typed(path.stem),
        **shape.metadata("dflash"),
        "dflash.block_size": typed(block_size),
        "dflash.target_layers": typed(list(taps)),
        "dflash.sample_from_anchor": typed(sample_from_anchor),
        "dflash.has_confidence_head": typed("conf_proj.weight" in weights),
        **vocabulary.metadata(),
        "tokenizer.ggml.mask_token_id": typed(mask),
    }
    stored = write_gguf(path, metadata, weights, dtype=dtype, mutation=mutation)
    return Drafter(
        path, shape, vocabulary, block_size, tuple(taps), mask, sample_from_anchor, stored
    )


def write_gguf(
    path: Path,
    metadata: Mapping[str, GGUFValue],
    weights: Mapping[str, np.ndarray],
    *,
    dtype: type[np.floating],
    mutation: Mutation,
) -> dict[str, np.ndarray]:
    """Write one file, mutated, and return its tensors as a reader would find them."""
    values = dict(metadata)
    for key, value in mutation.metadata.items():
        values[key] = typed(value, like=values.get(key))
    tensors = {name: as_stored(array, dtype) for name, array in weights.items()} | mutation.tensors
    tensors = {name: array for name, array in tensors.items() if array is not None}

    writer = GGUFWriter(path, arch="")
    writer.kv_data[0].clear()  # the architecture is a key like the others, and may be left out
    for key, value in values.items():
        if key not in mutation.drop:
            writer.add_key_value(key, value.value, value.type, value.sub_type)
    for name, array in tensors.items():
        writer.add_tensor(name, np.ascontiguousarray(array))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return tensors


def as_stored(array: np.ndarray, dtype: type[np.floating]) -> np.ndarray:
    """Convert to what GGUF files hold: matrices in ``dtype``, vectors in F32, ids as they are."""
    if np.issubdtype(array.dtype, np.integer):
        return array
    return array.astype(dtype if array.ndim > 1 else np.float32)


def typed(value: object, *, like: GGUFValue | None = None) -> GGUFValue:
    """Give a value its GGUF type: unsigned for a number, int32 for numbers in a list."""
    if isinstance(value, GGUFValue):
        return value
    if like is not None:
        return GGUFValue(value, like.type, like.sub_type)
    if isinstance(value, int) and not isinstance(value, bool):
        return GGUFValue(value, GGUFValueType.UINT32)
    return GGUFValue(value, GGUFValueType.get_type(value))
