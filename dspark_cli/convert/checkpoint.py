"""A checkpoint of DeepSpec, SpecForge, speculators or EasyDeL in mainline's terms.

The rules are those of llama.cpp's ``conversion/qwen.py`` (DSparkModel) and, for EasyDeL, of the
fork's ``conversion/dspark.py``. Unlike the former, a head of the checkpoint's own is kept.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np

from dspark_cli.contract import read_target
from dspark_cli.convert.config import Config
from dspark_cli.convert.geometry import Geometry, Stretch
from dspark_cli.convert.mask_embedding import read_mask_embedding
from dspark_cli.convert.recipe import Recipe, heads
from dspark_cli.convert.semantics import checkpoint_network
from dspark_cli.convert.shards import ShardRows, read_checkpoint_tensors
from dspark_cli.convert.tables import CONDITIONING, INCOMPLETE, TABLES, Tables, lent_tables
from dspark_cli.convert.weights import PartedHeads, Weight
from dspark_cli.errors import DsparkError
from dspark_cli.metadata import Metadata
from dspark_cli.storing import Key

RENAMED = {
    "norm.weight": "output_norm.weight",
    "fc.weight": "fc.weight",
    "hidden_norm.weight": "enc.output_norm.weight",
}
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
    borrows = bool({*TABLES} - found.keys()) or config.flag("has_embed_tokens") is False
    lent = lent_tables(target) if borrows else {}
    tables = Tables.of(path, config, found, lent, mask_row)
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
    yield from _stretch_keys(geometry.stretch)
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


def _stretch_keys(stretch: Stretch) -> Iterator[Key]:
    scaling = "dflash.rope.scaling."
    if stretch.trained is not None:
        yield Key(scaling + "type", "yarn", "str")
        yield Key(scaling + "factor", stretch.factor, "f32")
        yield Key(scaling + "original_context_length", stretch.trained, "u32")
        yield Key(scaling + "yarn_beta_fast", stretch.fast, "f32")
        yield Key(scaling + "yarn_beta_slow", stretch.slow, "f32")
    elif stretch.factor != 1.0:
        yield Key(scaling + "type", "linear", "str")
        yield Key(scaling + "factor", stretch.factor, "f32")
