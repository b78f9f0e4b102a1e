"""A drafter of the PrismML fork (architecture ``dspark``) in mainline's terms.

Keys and tensors are those of the fork's ``dspark`` model of July 2026 and of its converter; tools
of others write the keys with a single prefix. The maths is mainline's, but for log-SNR
conditioning, which is folded (``logsnr``).
"""

from collections.abc import Mapping

from dspark_cli.contract.shapes import MAX_LAYERS
from dspark_cli.convert import logsnr
from dspark_cli.convert.fork_keys import (
    INCOMPLETE,
    ForkShape,
    mainline_keys,
    number,
    own_key,
)
from dspark_cli.convert.layout import weights_of
from dspark_cli.convert.recipe import (
    LAYER_TENSORS,
    Recipe,
    heads,
)
from dspark_cli.convert.semantics import fork_network
from dspark_cli.convert.weights import RowsOf, Weight
from dspark_cli.errors import DsparkError
from dspark_cli.metadata import Metadata

KIND = "a drafter of the PrismML fork (architecture dspark)"

RENAMED = {
    "dspark.fc.weight": "fc.weight",
    "dspark.hidden_norm.weight": "enc.output_norm.weight",
    "output_norm.weight": "output_norm.weight",
    "token_embd.weight": "token_embd.weight",
    "output.weight": "output.weight",
}
HEADS = {
    "dspark.markov_head_a.weight": "markov_w1.weight",
    "dspark.markov_head_b.weight": "markov_w2.weight",
    "dspark.confidence_head.weight": "conf_proj.weight",
    "dspark.confidence_head.bias": "conf_proj.bias",
}
CONDITIONING = tuple(f"dspark.log_snr_{role}" for role in logsnr.ROLES)
BORROWED = ("token_embd.weight", "output.weight")

CORRECTION = ("hidden_correction", "markov_deploy_exposure", "correction_")


def read_fork(metadata: Metadata) -> Recipe:
    """The recipe of a fork's file; raises DsparkError for what mainline cannot express."""
    _check_keys(metadata)
    layers = number(metadata, "dspark.block_count", most=MAX_LAYERS)
    _check_tensors(metadata, layers)
    shape = ForkShape.of(metadata)
    weights = weights_of(metadata)
    mapped: dict[str, Weight] = {
        new: weights[old] for old, new in RENAMED.items() if old in weights
    }
    for layer in range(layers):
        mapped |= _layer(metadata, weights, f"blk.{layer}.", shape)
    vocabulary = _vocabulary(metadata, weights)
    found = {new: weights[old] for old, new in HEADS.items() if old in weights}
    made, notes = heads(metadata.path, found, vocabulary, vocabulary, shape.width)
    mapped |= made
    folded = _is_conditioned(metadata)
    if folded:
        table = weights.get("token_embd.weight")
        conditioning = [weights[name] for name in CONDITIONING]
        mapped["token_embd.weight"] = logsnr.fold(metadata.path, table, conditioning, shape.mask)
        # llama.cpp ties the head to embeddings that stand alone, and these are folded.
        if table is not None:
            mapped.setdefault("output.weight", table)
        notes.append(logsnr.folded_note(shape.mask))
        if "output.weight" not in weights:
            notes.append("its head was tied to the embeddings; it is written unfolded")
    elif not {*BORROWED} & mapped.keys():
        notes.append("it has no embeddings and no head: llama.cpp borrows the target's")
    return Recipe(
        path=metadata.path,
        kind=KIND,
        keys=(*mainline_keys(metadata, shape, confidence="conf_proj.weight" in mapped),),
        mask_token=shape.mask,
        weights=mapped,
        network=fork_network(metadata, weights),
        folded=folded,
        notes=tuple(notes),
    )


def _check_keys(metadata: Metadata) -> None:
    for key in metadata.values:
        if any(part.startswith(CORRECTION) for part in key.split(".")):
            raise DsparkError(
                f"{metadata.path}: has a hidden correction ({key}), which corrects the hidden "
                "state ahead of the head; llama.cpp's dflash cannot express it",
                hint="ask its publisher for a drafter without hidden_correction",
            )
    for name in ("block_size", "mask_token_id", "target_layers"):
        if own_key(metadata, name) is None:
            raise DsparkError(
                f"{metadata.path}: has no key dspark.dspark.{name} (nor dspark.{name})",
                hint=INCOMPLETE,
            )


def _check_tensors(metadata: Metadata, layers: int) -> None:
    """Refuse what is missing or unknown, with the reason where there is one."""
    known = {*RENAMED, *HEADS, *CONDITIONING}
    required = {*RENAMED} - {*BORROWED}
    for layer in range(layers):
        block = {f"blk.{layer}.{name}.weight" for name in LAYER_TENSORS}
        fused = f"blk.{layer}.attn_qkv.weight"
        if fused in metadata.tensors:
            parts = {f"blk.{layer}.attn_{part}.weight" for part in "qkv"}
            if both := sorted(parts & metadata.tensors.keys()):
                raise DsparkError(f"{metadata.path}: has both {fused} and {', '.join(both)}")
            block = block - parts | {fused}
        known |= block
        required |= block
    unknown = sorted(metadata.tensors.keys() - known)
    for name in unknown:
        if "correction" in name:
            raise DsparkError(
                f"{metadata.path}: has a hidden correction (tensor {name}), which llama.cpp's "
                "dflash cannot express",
                hint="ask its publisher for a drafter without hidden_correction",
            )
        if name.endswith(".bias") and ".attn_" in name:
            raise DsparkError(
                f"{metadata.path}: its attention has biases ({name}), which llama.cpp's dflash "
                "cannot express",
                hint="only drafters trained without attention biases can be converted",
            )
    if unknown:
        raise DsparkError(
            f"{metadata.path}: {len(unknown)} tensors are not known here, such as {unknown[0]}",
            hint="a newer version of dspark-cli may know them",
        )
    if missing := sorted(required - metadata.tensors.keys()):
        raise DsparkError(
            f"{metadata.path}: lacks {len(missing)} tensors, such as {missing[0]}",
            hint=INCOMPLETE,
        )


def _layer(
    metadata: Metadata, weights: Mapping[str, Weight], block: str, shape: ForkShape
) -> dict[str, Weight]:
    """One layer's tensors, a fused projection taken apart."""
    fused = weights.get(block + "attn_qkv.weight")
    if fused is None:
        names = [f"{block}{name}.weight" for name in LAYER_TENSORS]
        return {name: weights[name] for name in names}
    wanted = (shape.queries + 2 * shape.keys, shape.width)
    if fused.shape != wanted:
        raise DsparkError(
            f"{metadata.path}: {block}attn_qkv.weight has shape {fused.shape}, wanted {wanted}"
        )
    parts = {
        "attn_q": RowsOf(fused, 0, shape.queries),
        "attn_k": RowsOf(fused, shape.queries, shape.keys),
        "attn_v": RowsOf(fused, shape.queries + shape.keys, shape.keys),
    }
    rest = [name for name in LAYER_TENSORS if name not in parts]
    whole: dict[str, Weight] = {f"{block}{name}.weight": part for name, part in parts.items()}
    return whole | {f"{block}{name}.weight": weights[f"{block}{name}.weight"] for name in rest}


def _vocabulary(metadata: Metadata, weights: Mapping[str, Weight]) -> int:
    """Tokens: rows of the first table that has one for each."""
    for name in ("token_embd.weight", "dspark.markov_head_a.weight", "output.weight"):
        if name in weights:
            return weights[name].shape[0]
    raise DsparkError(
        f"{metadata.path}: has neither embeddings nor a head, so nothing says how many tokens "
        "it knows",
        hint=INCOMPLETE,
    )


def _is_conditioned(metadata: Metadata) -> bool:
    """Whether log-SNR conditioning is part of the drafter; raises where keys and tensors part."""
    key = own_key(metadata, "log_snr_conditioning")
    said = bool(metadata.flag(key)) if key else False
    present = [name for name in CONDITIONING if name in metadata.tensors]
    if said and len(present) < len(CONDITIONING):
        missing = ", ".join(sorted({*CONDITIONING} - {*present}))
        raise DsparkError(
            f"{metadata.path}: is conditioned on log-SNR but lacks {missing}", hint=INCOMPLETE
        )
    if present and not said:
        raise DsparkError(
            f"{metadata.path}: has {present[0]} but does not say log_snr_conditioning, so it is "
            "not known whether the drafter was trained with it",
            hint=INCOMPLETE,
        )
    if said:
        bounds = (own_key(metadata, name) for name in ("min_log_snr", "max_log_snr"))
        logsnr.check_bounds(metadata.path, *(metadata.number(key or "") for key in bounds))
    return said
