"""Embeddings and head of a checkpoint: its own, the target's, and what is added to them."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from dspark_cli.convert import logsnr
from dspark_cli.convert.config import Config
from dspark_cli.convert.weights import Patched, Weight
from dspark_cli.errors import DsparkError
from dspark_cli.metadata import Metadata
from dspark_cli.tensors import PackedRows

TABLES = ("embed_tokens.weight", "lm_head.weight")
CONDITIONING = tuple(f"log_snr_embed.{role}" for role in logsnr.ROLES)
INCOMPLETE = "ask its publisher for a complete checkpoint"


@dataclass(frozen=True, slots=True)
class Tables:
    """Embeddings and head as they are written; what is not there is the target's."""

    weights: dict[str, Weight]
    folded: bool
    notes: tuple[str, ...]

    @classmethod
    def of(
        cls,
        path: Path,
        config: Config,
        found: Mapping[str, Weight],
        lent: Mapping[str, Weight],
        mask_row: np.ndarray | None,
    ) -> "Tables":
        """Embeddings with what is added to them, and the head, which must not be tied to those."""
        notes = []
        own = (
            None if config.flag("has_embed_tokens") is False else found.get("embed_tokens.weight")
        )
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
                notes.append(
                    "it has no head; the target's is written, lest the embeddings become it"
                )
            elif table is not own:
                head = own
                notes.append("its head was tied to the embeddings; it is written as they were")
        if table is None and head is None:
            notes.append("it has no embeddings and no head: llama.cpp borrows the target's")
        weights = {"token_embd.weight": table, "output.weight": head}
        present = {name: weight for name, weight in weights.items() if weight is not None}
        return cls(present, folded, tuple(notes))


def lent_tables(target: Metadata) -> dict[str, Weight]:
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
