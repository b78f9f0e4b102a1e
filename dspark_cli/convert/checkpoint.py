"""A checkpoint of DeepSpec, SpecForge, speculators or EasyDeL in mainline's terms.

The rules are those of llama.cpp's ``conversion/qwen.py`` (DSparkModel) and, for EasyDeL, of the
fork's ``conversion/dspark.py``. Unlike the former, a head of the checkpoint's own is kept.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from dspark_cli.contract import read_target
from dspark_cli.convert import logsnr
from dspark_cli.convert.config import Config
from dspark_cli.convert.geometry import Geometry
from dspark_cli.convert.mask_embedding import read_mask_embedding
from dspark_cli.convert.recipe import Recipe, heads
from dspark_cli.convert.semantics import checkpoint_network
from dspark_cli.convert.shards import ShardRows, read_checkpoint_tensors
from dspark_cli.convert.weights import PartedHeads, Patched, Weight
from dspark_cli.errors import DsparkError
from dspark_cli.metadata import Metadata
from dspark_cli.storing import Key
from dspark_cli.tensors import PackedRows

RENAMED = {
    "norm.weight": "output_norm.weight",
    "fc.weight": "fc.weight",
    "hidden_norm.weight": "enc.output_norm.weight",
}
TABLES = ("embed_tokens.weight", "lm_head.weight")
HEADS = {
    "markov_head.markov_w1.weight": "markov_w1.weight",
    "markov_head.markov_w2.weight": "markov_w2.weight",
    "confidence_head.proj.weight": "conf_proj.weight",
    "confidence_head.proj.bias": "conf_proj.bias",
}
LAYER = {
    "input_layernorm": "attn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm",
    "post_attention_layernorm": "ffn_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}
ROTATED = ("attn_q", "attn_k", "attn_q_norm", "attn_k_norm")
CONDITIONING = tuple(f"log_snr_embed.{role}" for role in logsnr.ROLES)
PREFIXES = ("model.", "drafter.", "dspark.")
ALIASES = {  # of EasyDeL's exports
    "markov_head.down.weight": "markov_head.markov_w1.weight",
    "markov_head.up.weight": "markov_head.markov_w2.weight",
    "confidence_head.weight": "confidence_head.proj.weight",
    "confidence_head.bias": "confidence_head.proj.bias",
    "final_norm.weight": "norm.weight",
    "tok_embeddings.weight": "embed_tokens.weight",
}
UNUSED = ("t2d", "rotary_emb.inv_freq")  # at inference
DRAFT_TOKENS = "d2t"
GATED = ("markov_head.gate_proj", "markov_head.joint_proj")
INCOMPLETE = "ask its publisher for a complete checkpoint"


def read_checkpoint(path: Path, target: Metadata) -> Recipe:
    """The recipe of a folder or file; raises DsparkError for what mainline cannot express.

    ``target`` gives the vocabulary, and the head where the checkpoint leaves it to the target but
    brings embeddings, to which llama.cpp would tie it.
    """
    folder = path if path.is_dir() else path.parent
    config = Config.read(folder / "config.json")
    geometry = Geometry.of(config)
    found = _named(path, read_checkpoint_tensors(path))
    _check_names(path, found, geometry.layers)
    width, vocabulary = geometry.width, read_target(target).vocabulary
    ids = _draft_tokens(path, config, found, vocabulary)
    mapped: dict[str, Weight] = {}
    for number in range(geometry.layers):
        mapped |= _layer(found, number, geometry)
    mapped |= {new: found[old] for old, new in RENAMED.items() if old in found}
    made, notes = heads(
        path,
        {new: found[old] for old, new in HEADS.items() if old in found},
        vocabulary,
        vocabulary if ids is None else len(ids),
        width,
    )
    mapped |= made
    mask_row = read_mask_embedding(folder, geometry.mask_token, width)
    lent = _lent(target)
    tables = _tables(path, config, found, lent, mask_row)
    mapped |= tables.weights
    notes += tables.notes
    return Recipe(
        path=path,
        kind=geometry.kind,
        keys=(*_keys(path, geometry, target, confidence="conf_proj.weight" in mapped),),
        mask_token=geometry.mask_token,
        weights=mapped,
        network=checkpoint_network(config, found, lent=lent, mask=mask_row),
        draft_tokens=ids,
        folded=tables.folded,
        patched=mask_row is not None,
        notes=(*geometry.notes, *notes),
    )


@dataclass(frozen=True, slots=True)
class _Tables:
    """Embeddings and head as they are written; what is not there is the target's."""

    weights: dict[str, Weight]
    folded: bool
    notes: tuple[str, ...]


def _tables(
    path: Path,
    config: Config,
    found: Mapping[str, Weight],
    lent: Mapping[str, Weight],
    mask_row: np.ndarray | None,
) -> _Tables:
    """Embeddings with what is added to them, and the head, which must not be tied to those."""
    notes = []
    own = None if config.flag("has_embed_tokens") is False else found.get("embed_tokens.weight")
    head = found.get("lm_head.weight")
    mask = config.integer("mask_token_id", least=0)
    table: Weight | None = own
    if mask_row is not None:
        base = own or lent.get("token_embd.weight")
        if base is None:
            raise DsparkError(f"{path}: neither it nor the target has embeddings")
        table = Patched(base, mask, mask_row)
        notes.append(f"the mask's embedding, row {mask}, comes from mask_embedding.pt")
    folded = _is_conditioned(path, config, found)
    if folded:
        table = logsnr.fold(path, table, [found[name] for name in CONDITIONING], mask)
        notes.append(logsnr.folded_note(mask))
    if table is not None and head is None:
        tied = own is not None and bool(config.flag("tie_word_embeddings"))
        if not tied:
            head = lent.get("output.weight")
            notes.append("it has no head; the target's is written, lest the embeddings become it")
        elif table is not own:
            head = own
            notes.append("its head was tied to the embeddings; it is written as they were")
    if table is None and head is None:
        notes.append("it has no embeddings and no head: llama.cpp borrows the target's")
    weights = {"token_embd.weight": table, "output.weight": head}
    present = {name: weight for name, weight in weights.items() if weight is not None}
    return _Tables(present, folded, tuple(notes))


def _lent(target: Metadata) -> dict[str, Weight]:
    """The target's tables, which a checkpoint without its own was trained with."""
    names = ("token_embd.weight", "output.weight")
    present = [name for name in names if name in target.tensors]
    lent: dict[str, Weight] = {name: PackedRows.of(target, name) for name in present}
    if present == ["token_embd.weight"]:
        lent["output.weight"] = lent["token_embd.weight"]
    return lent


def _is_conditioned(path: Path, config: Config, found: Mapping[str, Weight]) -> bool:
    """Whether log-SNR conditioning is part of it; raises where config and tensors part."""
    said = bool(config.flag("log_snr_conditioning"))
    present = [name for name in CONDITIONING if name in found]
    if said != bool(present) or 0 < len(present) < len(CONDITIONING):
        raise DsparkError(
            f"{path}: log_snr_conditioning is {str(said).lower()} and {len(present)} of its "
            f"{len(CONDITIONING)} tensors are there",
            hint=INCOMPLETE,
        )
    if said:
        low, high = (_number(config.get(name)) for name in ("min_log_snr", "max_log_snr"))
        logsnr.check_bounds(path, low, high)
    return said


def _number(value: object) -> float | None:
    sound = isinstance(value, int | float) and not isinstance(value, bool)
    return float(value) if sound else None  # type: ignore[arg-type]


def _named(path: Path, tensors: Mapping[str, ShardRows]) -> dict[str, ShardRows]:
    """Tensors without prefixes and aliases; raises DsparkError where two become one."""
    found: dict[str, ShardRows] = {}
    for name, tensor in tensors.items():
        plain = name
        while plain.startswith(PREFIXES):
            plain = plain.split(".", 1)[1]
        plain = ALIASES.get(plain, plain)
        if plain.endswith(UNUSED):
            continue
        if plain in found:
            raise DsparkError(f"{path}: {name} and {found[plain].name} are the same tensor")
        found[plain] = tensor
    return found


def _check_names(path: Path, found: Mapping[str, ShardRows], layers: int) -> None:
    """Refuse what is missing or unknown, with the reason where there is one."""
    block = {f"layers.{number}.{name}.weight" for number in range(layers) for name in LAYER}
    known = {*TABLES, *RENAMED, *HEADS, *CONDITIONING, DRAFT_TOKENS, *block}
    for name in sorted(found.keys() - known):
        if name.startswith(GATED):
            raise DsparkError(
                f"{path}: its Markov head is gated or recurrent ({name}), which llama.cpp's "
                "dflash cannot express",
                hint="only drafters with markov_head_type vanilla can be converted",
            )
        if name.endswith(".bias") and ".self_attn." in name:
            raise DsparkError(
                f"{path}: its attention has biases ({name}), which llama.cpp's dflash cannot "
                "express",
                hint="only drafters trained without attention biases can be converted",
            )
    if unknown := sorted(found.keys() - known):
        raise DsparkError(
            f"{path}: {len(unknown)} tensors are not known here, such as {unknown[0]}",
            hint="a newer version of dspark-cli may know them",
        )
    required = block | {*RENAMED}
    if missing := sorted(required - found.keys()):
        raise DsparkError(
            f"{path}: lacks {len(missing)} tensors, such as {missing[0]}", hint=INCOMPLETE
        )


def _layer(found: Mapping[str, ShardRows], number: int, geometry: Geometry) -> dict[str, Weight]:
    layer: dict[str, Weight] = {}
    for old, new in LAYER.items():
        weight: Weight = found[f"layers.{number}.{old}.weight"]
        if geometry.interleaved and new in ROTATED:
            rows = weight.shape[0]
            if rows % geometry.head_length:
                raise DsparkError(
                    f"layers.{number}.{old}.weight has {rows} rows, wanted whole heads of "
                    f"{geometry.head_length}"
                )
            weight = PartedHeads(weight, geometry.head_length, geometry.rope_length)
        layer[f"blk.{number}.{new}.weight"] = weight
    return layer


def _draft_tokens(
    path: Path, config: Config, found: dict[str, ShardRows], vocabulary: int
) -> np.ndarray | None:
    """Target ids of the rows of a reduced head; ``d2t`` holds their distances from the row."""
    said = config.integer("vocab_size", default=vocabulary)
    if said != vocabulary:
        raise DsparkError(
            f"{path}: was made for a vocabulary of {said} tokens, the target has {vocabulary}",
            hint="give the target that this drafter was trained for with -m",
        )
    rows = config.integer("draft_vocab_size", default=vocabulary)
    table = found.get(DRAFT_TOKENS)
    if rows > vocabulary:
        raise DsparkError(f"{path}: draft_vocab_size {rows} exceeds the vocabulary {vocabulary}")
    if table is None:
        if rows < vocabulary:
            raise DsparkError(
                f"{path}: its head has {rows} of {vocabulary} rows and no d2t says which",
                hint=INCOMPLETE,
            )
        return None
    if table.shape not in {(rows,), (rows, 1), (1, rows)}:
        raise DsparkError(f"{path}: d2t has shape {table.shape}, wanted ({rows},)")
    ids = table.integers().reshape(-1) + np.arange(rows, dtype=np.int64)
    if outside := int(((ids < 0) | (ids >= vocabulary)).sum()):
        raise DsparkError(
            f"{path}: d2t: {outside} of {rows} ids lie outside the vocabulary of {vocabulary}"
        )
    if repeated := rows - len(np.unique(ids)):
        raise DsparkError(f"{path}: d2t: {repeated} of {rows} ids stand more than once")
    if "lm_head.weight" not in found and rows < vocabulary:
        raise DsparkError(
            f"{path}: has a draft vocabulary of {rows} tokens and no lm_head", hint=INCOMPLETE
        )
    return None if rows == vocabulary and (ids == np.arange(rows)).all() else ids


def _keys(path: Path, geometry: Geometry, target: Metadata, *, confidence: bool) -> Iterator[Key]:
    """Every key of the output but architecture and tokenizer."""
    yield Key("general.name", path.name if path.is_dir() else path.stem, "str")
    for name, number in (
        ("block_count", geometry.layers),
        ("context_length", geometry.context_length),
        ("embedding_length", geometry.width),
        ("feed_forward_length", geometry.feed_forward),
        ("attention.head_count", geometry.heads),
        ("attention.head_count_kv", geometry.kv_heads),
        ("attention.key_length", geometry.head_length),
        ("attention.value_length", geometry.head_length),
        ("rope.dimension_count", geometry.rope_length),
        ("block_size", geometry.block_size),
    ):
        yield Key(f"dflash.{name}", number, "u32")
    yield Key("dflash.attention.layer_norm_rms_epsilon", geometry.epsilon, "f32")
    yield Key("dflash.rope.freq_base", geometry.rope_base, "f32")
    if geometry.rope_stretch != 1.0:
        yield Key("dflash.rope.scaling.type", "linear", "str")
        yield Key("dflash.rope.scaling.factor", geometry.rope_stretch, "f32")
    if any(name.endswith(".rope.dimension_sections") for name in target.values):
        # The draft is text: only the first of the four coordinates turns anything.
        yield Key("dflash.rope.dimension_sections", (geometry.head_length // 2, 0, 0, 0), "[i32]")
    if geometry.window is not None:
        yield Key("dflash.attention.sliding_window", geometry.window, "u32")
        yield Key("dflash.attention.sliding_window_pattern", geometry.sliding, "[bool]")
    yield Key("dflash.target_layers", geometry.taps, "[i32]")
    yield Key("dflash.sample_from_anchor", geometry.reads_anchor_row, "bool")
    yield Key("dflash.has_confidence_head", confidence, "bool")
    if geometry.causal is not None:
        yield Key("dflash.attention.causal", geometry.causal, "bool")
