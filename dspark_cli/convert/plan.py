"""A recipe, a target and a type become a file that is fully known before any of it is written.

Keys, shapes and types are enough for the contract, so whatever does not fit is said first.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import Literal, TypeAlias

import numpy as np
from gguf import GGML_QUANT_VERSION, GGMLQuantizationType

from dspark_cli.contract import check_target, check_written, read_target
from dspark_cli.convert.recipe import Recipe
from dspark_cli.convert.sources import read_source
from dspark_cli.convert.weights import F32, Weight, row_count, spans
from dspark_cli.errors import DsparkError, UsageError
from dspark_cli.metadata import Fingerprint, Metadata, Tensor, read_metadata
from dspark_cli.storing import (
    STORED_AS,
    Key,
    StoredTensor,
    pack,
    stored_type,
    tokenizer_keys,
)
from dspark_cli.tensors import PackedRows, unpack

OutType: TypeAlias = Literal["f32", "f16", "bf16", "q8_0", "q4_0", "keep"]

F16 = GGMLQuantizationType.F16
F16_MAX = 65504.0
# What computed embeddings may be stored in: coarser types would round what was added to them.
FINE = {
    GGMLQuantizationType.F32,
    GGMLQuantizationType.F16,
    GGMLQuantizationType.BF16,
    GGMLQuantizationType.Q8_0,
}
PLAIN = {kind.value for kind in FINE} - {GGMLQuantizationType.Q8_0.value}
COMPARED_ROWS = 64
SAME = 0.3  # rms apart as a share of the rms: 2-bit codes stay below, other tables reach 1.4
TINY = 1e-30
EMBEDDINGS, HEAD = "token_embd.weight", "output.weight"


@dataclass(frozen=True, slots=True)
class Planned(Metadata):
    """The metadata of a file that is not there yet."""

    draft_tokens: np.ndarray | None = None

    def read_integers(self, tensor: Tensor) -> np.ndarray:  # noqa: ARG002  d2t is the only one
        return np.empty(0, np.int64) if self.draft_tokens is None else self.draft_tokens


@dataclass(frozen=True, slots=True)
class Plan:
    """One file to be written."""

    recipe: Recipe
    target: Metadata
    out_type: OutType
    share_target: bool
    keys: tuple[Key, ...]
    tensors: tuple[StoredTensor, ...]
    kinds: Mapping[str, int]  # enum ggml_type of every tensor but d2t

    @property
    def size(self) -> int:
        """Bytes of data."""
        return sum(tensor.size for tensor in self.tensors)

    @property
    def borrows(self) -> tuple[str, ...]:
        """What llama.cpp takes from the target."""
        if EMBEDDINGS in self.kinds:
            return ()
        return (EMBEDDINGS,) if HEAD in self.kinds else (EMBEDDINGS, HEAD)


def plan_from(path: Path, target: Path, *, out_type: OutType, share_target: bool) -> Plan:
    """All that is decided before any weight is read; raises as its parts do."""
    metadata = read_metadata(target)
    check_target(read_target(metadata))
    recipe = read_source(path, metadata)
    return plan_conversion(recipe, metadata, out_type=out_type, share_target=share_target)


def plan_conversion(
    recipe: Recipe, target: Metadata, *, out_type: OutType, share_target: bool
) -> Plan:
    """Decide every byte's place.

    Raises UsageError for ``share_target`` where it cannot be, ContractError with every way in
    which the drafter does not belong to the target.
    """
    if share_target:
        recipe = _shared(recipe, target)
    kinds = {name: _kind(name, weight, out_type) for name, weight in recipe.weights.items()}
    tensors = [
        StoredTensor(name, _shape(weight), kinds[name], Pieces(name, weight, kinds[name]))
        for name, weight in recipe.weights.items()
    ]
    if (ids := recipe.draft_tokens) is not None:
        tensors.append(StoredTensor("d2t", ids.shape, GGMLQuantizationType.I64, lambda: [ids]))
    keys = (*_keys(recipe, target, kinds),)
    plan = Plan(
        recipe, target, out_type, share_target, keys, tuple(tensors), MappingProxyType(kinds)
    )
    check_written(planned_metadata(plan), read_target(target))
    return plan


def planned_metadata(plan: Plan) -> Planned:
    """What a reader of the file will find, so far as the contract asks."""
    path = Path(plan.recipe.path)
    keys = [Key("general.architecture", "dflash", "str"), *plan.keys]
    return Planned(
        path=path,
        values=MappingProxyType({key.name: key.value for key in keys}),
        types=MappingProxyType({key.name: key.kind for key in keys}),
        tensors=MappingProxyType(
            {
                tensor.name: Tensor(tensor.name, tensor.shape[::-1], int(tensor.type_id), 0, path)
                for tensor in plan.tensors
            }
        ),
        fingerprint=Fingerprint(path.name, plan.size, ""),
        draft_tokens=plan.recipe.draft_tokens,
    )


def borrowed(target: Metadata, name: str) -> PackedRows:
    """The target's own table; its head may be tied to its embeddings."""
    return PackedRows.of(target, name if name in target.tensors else EMBEDDINGS)


def _shared(recipe: Recipe, target: Metadata) -> Recipe:
    """The recipe without embeddings, and without a head where it is a whole one."""
    if recipe.folded:
        raise UsageError(
            f"--share-target: {recipe.path.name} is conditioned on log-SNR, which is folded into "
            "its own embeddings; the target's would draft something else",
            hint="leave --share-target out; --out-type q8_0 makes the file small",
        )
    if recipe.patched:
        raise UsageError(
            f"--share-target: {recipe.path.name} has a mask embedding of its own, which the "
            "target's embeddings lack",
            hint="leave --share-target out; --out-type q8_0 makes the file small",
        )
    dropped = {EMBEDDINGS} if recipe.draft_tokens is not None else {EMBEDDINGS, HEAD}
    for name in sorted(dropped & recipe.weights.keys()):
        _check_same(recipe, target, name)
    kept = {name: weight for name, weight in recipe.weights.items() if name not in dropped}
    return replace(recipe, weights=kept)


def _check_same(recipe: Recipe, target: Metadata, name: str) -> None:
    """Hold some rows of a drafter's table against the target's, which may be quantised."""
    ours, theirs = recipe.weights[name], borrowed(target, name)
    if ours.shape != theirs.shape:
        raise DsparkError(
            f"--share-target: {name} has shape {ours.shape}, the target's {theirs.shape}",
            hint="leave --share-target out",
        )
    rows = np.linspace(0, ours.shape[0] - 1, COMPARED_ROWS).astype(int).tolist()
    mine = np.concatenate([ours.rows(row, row + 1) for row in rows])
    apart = mine - np.concatenate([theirs.rows(row, row + 1) for row in rows])
    share = float(np.sqrt(np.mean(apart**2) / max(float(np.mean(mine**2)), TINY)))
    if not share <= SAME:
        raise DsparkError(
            f"--share-target: {name} of {recipe.path.name} is not the target's, "
            f"{COMPARED_ROWS} rows are {share:.0%} apart",
            hint="leave --share-target out",
        )


@dataclass(frozen=True, slots=True)
class Pieces:
    """One tensor's data as it will be stored, a few rows at a time, held to be numbers."""

    name: str
    weight: Weight
    kind: int

    def __call__(self) -> Iterator[np.ndarray]:
        for begin, end in spans(self.weight):
            packed = self.weight.packed(begin, end) if self.kind == self.weight.type_id else None
            if packed is None:
                values = self.weight.rows(begin, end)
                self._check(values)
                yield pack(values, GGMLQuantizationType(self.kind))
            else:
                self._check(unpack(packed, self.kind))
                yield packed

    def _check(self, values: np.ndarray) -> None:
        largest = float(np.abs(values).max(initial=0.0))
        if not np.isfinite(largest):
            raise DsparkError(
                f"{self.name} holds weights that are no numbers (NaN or infinite)",
                hint="the source is damaged; ask its publisher for a sound file",
            )
        if self.kind == F16 and largest > F16_MAX:
            raise DsparkError(
                f"{self.name} holds {largest:.3g}, more than F16 can ({F16_MAX:.0f})",
                hint="choose --out-type bf16 or f32",
            )


def _kind(name: str, weight: Weight, out_type: OutType) -> int:
    """As what a tensor is stored; what was added to embeddings is not rounded away."""
    if len(weight.shape) == 1:
        return F32
    if out_type != "keep":
        kind = stored_type(name, weight.shape, out_type)
    elif weight.packed(0, 1) is not None:
        return weight.type_id
    else:
        kind = GGMLQuantizationType(weight.type_id) if weight.type_id in FINE else F16
    computed = weight.packed(0, 1) is None
    if name == EMBEDDINGS and computed and kind not in FINE:
        return GGMLQuantizationType.Q8_0.value
    return kind.value


def _shape(weight: Weight) -> tuple[int, ...]:
    return weight.shape if len(weight.shape) == 1 else (row_count(weight), weight.shape[-1])


def _keys(recipe: Recipe, target: Metadata, kinds: Mapping[str, int]) -> Iterator[Key]:
    if not any(key.name == "general.name" for key in recipe.keys):
        yield Key("general.name", recipe.path.stem or recipe.path.name, "str")
    yield from recipe.keys
    for kind, file_type in STORED_AS.values():
        if kinds["fc.weight"] == kind.value:
            yield Key("general.file_type", file_type.value, "u32")
    if {*kinds.values()} - PLAIN:
        yield Key("general.quantization_version", GGML_QUANT_VERSION, "u32")
    yield from tokenizer_keys(target, "tokenizer.")
    yield Key("tokenizer.ggml.mask_token_id", recipe.mask_token, "u32")
