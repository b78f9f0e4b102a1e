"""Every way in which a drafter and a target can fail to belong together.

llama.cpp does not compare the two files: a wrong width, tap or vocabulary aborts the process or
drafts nonsense. So everything here is decided before weights are loaded, and all disagreements are
reported together, each naming the thing, what was wanted and what was found.
"""

from collections.abc import Iterator

from dspark_cli.contract.architectures import TAPPABLE
from dspark_cli.contract.shapes import (
    MAX_LAYERS,
    DrafterShape,
    TargetShape,
    read_drafter,
)
from dspark_cli.contract.tensors import TAP_TYPES, key_problems, tensor_problems
from dspark_cli.errors import ContractError
from dspark_cli.metadata import Metadata, Tensor

DRAFTER_ARCHITECTURES = ("dflash", "dspark", "eagle3", "gemma4-assistant")


def check_target(target: TargetShape) -> None:
    """Refuse a file that is no target at all; raises ContractError."""
    if target.architecture in DRAFTER_ARCHITECTURES:
        raise ContractError(
            [f"{target.name} is a drafter (architecture {target.architecture}), wanted a target"],
            hint="give the target with -m and the drafter with -md",
        )
    if not 1 <= target.layers <= MAX_LAYERS or not target.width or not target.vocabulary:
        raise ContractError(
            [
                (
                    f"{target.name} (architecture {target.architecture}) is no language model: "
                    f"its metadata gives {target.layers} layers, width {target.width}, "
                    f"{target.vocabulary} tokens"
                )
            ]
        )


def check_trainable(target: TargetShape) -> None:
    """Refuse a target that no drafter could serve; raises ContractError."""
    check_target(target)
    problems = list(_architecture_problems(target))
    if target.support is not None and target.support.rewind != "cut":
        problems.append(
            f"architecture: {target.architecture} targets have recurrent memories, whose taps "
            "dspark train cannot collect side by side yet"
        )
    if problems:
        raise ContractError(problems)


def check_pair(
    drafter: Metadata, target: TargetShape, *, draft_max: int | None = None
) -> DrafterShape:
    """Return the drafter's shape, or raise one ContractError with every disagreement."""
    shape = read_drafter(drafter)
    if problems := list(disagreements(drafter, shape, target, draft_max)):
        raise ContractError(problems, hint=_hint(shape))
    return shape


def check_written(drafter: Metadata, target: TargetShape) -> DrafterShape:
    """The same for a drafter that was made for a target which may not run here.

    What this program cannot do with a target yet, such as rewinding a recurrent memory, is no
    fault of the drafter's.
    """
    check_target(target)
    shape = read_drafter(drafter)
    unable = {*_architecture_problems(target)}
    found = disagreements(drafter, shape, target, None)
    if problems := [problem for problem in found if problem not in unable]:
        raise ContractError(problems, hint=_hint(shape))
    return shape


def limitations(target: TargetShape) -> tuple[str, ...]:
    """Why no drafter can serve this target here, whatever the drafter."""
    return tuple(_architecture_problems(target))


def disagreements(
    drafter: Metadata, shape: DrafterShape, target: TargetShape, draft_max: int | None
) -> Iterator[str]:
    """Say everything that keeps this drafter from serving this target."""
    if (refusal := _dialect_refusal(shape)) is not None:
        yield refusal
        return
    if not 1 <= shape.layers <= MAX_LAYERS:
        yield f"layers: {shape.name} says {shape.layers}, wanted 1 to {MAX_LAYERS}"
        return
    yield from key_problems(drafter)
    yield from _block_problems(shape, draft_max)
    yield from _tap_problems(drafter, shape, target)
    yield from _vocabulary_problems(drafter, shape, target)
    yield from _borrowing_problems(shape, target)
    yield from tensor_problems(drafter, shape)


def _dialect_refusal(shape: DrafterShape) -> str | None:
    match shape.dialect:
        case "dspark" | "dflash":
            return None
        case "fork":
            return (
                f"{shape.name} is in the dialect of the PrismML fork (architecture dspark), which "
                "llama.cpp cannot load, wanted architecture dflash"
            )
        case "dflash2":
            return (
                f"{shape.name} is a DFlash2 drafter (it has a selector), wanted DSpark or DFlash"
            )
        case "deepseek4":
            return (
                f"{shape.name} is made of DeepSeek-V4 stages (hyper_connection keys), "
                "wanted DSpark or DFlash"
            )
        case "none":
            return f"{shape.name} is no drafter: architecture {shape.architecture}, wanted dflash"


def _hint(shape: DrafterShape) -> str | None:
    if shape.dialect == "fork":
        return "dspark convert makes a mainline (dflash) drafter of it"
    if shape.dialect == "none":
        return "give the target with -m and the drafter with -md"
    return None


def _block_problems(shape: DrafterShape, draft_max: int | None) -> Iterator[str]:
    if shape.block_size is None:
        yield f"block_size: {shape.name} has no key dflash.block_size"
        return
    if shape.draft_max < 1:
        yield (
            f"block_size: {shape.name} says {shape.block_size}, which leaves nothing to propose "
            f"(row {shape.first_draft_row} is the first that does)"
        )
    elif draft_max is not None and draft_max != shape.draft_max:
        capability = "block_size" if shape.first_draft_row == 0 else "block_size - 1"
        yield (
            f"{shape.type_name}: --spec-draft-n-max ({draft_max}) must equal the drafter's "
            f"{capability} ({shape.draft_max})"
        )


def _architecture_problems(target: TargetShape) -> Iterator[str]:
    if target.support is None:
        yield (
            f"architecture: llama.cpp cannot tap {target.architecture} targets, wanted one of "
            f"{', '.join(TAPPABLE)}"
        )


def _tap_problems(drafter: Metadata, shape: DrafterShape, target: TargetShape) -> Iterator[str]:
    yield from _architecture_problems(target)
    support = target.support
    if shape.width != target.width:
        yield f"width: the drafter expects {shape.width}, the target has {target.width}"
    kind = drafter.types.get("dflash.target_layers", TAP_TYPES[0])
    if kind not in TAP_TYPES:
        yield f"taps: dflash.target_layers is {kind}, wanted {' or '.join(TAP_TYPES)}"
        return
    if not shape.taps:
        yield f"taps: {shape.name} has no key dflash.target_layers"
        return
    last = target.layers if support and support.final_tap else target.layers - 1
    for tap in sorted({tap for tap in shape.taps if not 0 <= tap <= last}):
        yield f"taps: the drafter reads the input of layer {tap}, the target's go from 0 to {last}"
    for tap in sorted({tap for tap in shape.taps if shape.taps.count(tap) > 1}):
        yield f"taps: layer {tap} stands {shape.taps.count(tap)} times in dflash.target_layers"


def _vocabulary_problems(
    drafter: Metadata, shape: DrafterShape, target: TargetShape
) -> Iterator[str]:
    if shape.tokens is None:
        yield (
            f"vocabulary: {shape.name} carries no tokenizer, "
            f"the target has {target.vocabulary} tokens"
        )
    elif shape.vocabulary != target.vocabulary:
        yield (
            f"vocabulary: the drafter has {shape.vocabulary} tokens, "
            f"the target {target.vocabulary}"
        )
    elif target.tokens is not None and shape.tokens.raw != target.tokens.raw:
        pairs = zip(shape.tokens, target.tokens, strict=True)
        index, (ours, theirs) = next(
            (index, pair) for index, pair in enumerate(pairs) if pair[0] != pair[1]
        )
        yield (
            f"vocabulary: token {index} is {ours.decode(errors='replace')!r} in the drafter and "
            f"{theirs.decode(errors='replace')!r} in the target"
        )
    if shape.mask_token is None:
        yield f"mask token: {shape.name} has no key tokenizer.ggml.mask_token_id"
    elif shape.tokens is not None and not 0 <= shape.mask_token < shape.vocabulary:
        yield f"mask token: {shape.mask_token} lies outside the vocabulary of {shape.vocabulary}"
    if (d2t := drafter.tensors.get("d2t")) is not None:
        yield from _draft_vocabulary_problems(drafter, d2t, target.vocabulary)


def _draft_vocabulary_problems(drafter: Metadata, d2t: Tensor, vocabulary: int) -> Iterator[str]:
    if d2t.type_name != "I64" or len(d2t.shape) != 1:
        yield f"d2t: {d2t.type_name} of shape {d2t.shape}, wanted a vector of I64"
        return
    ids = drafter.read_integers(d2t)
    if outside := int(((ids < 0) | (ids >= vocabulary)).sum()):
        yield f"d2t: {outside} of {len(ids)} ids lie outside the vocabulary of {vocabulary}"
    if repeated := len(ids) - len(set(ids.tolist())):
        yield f"d2t: {repeated} of {len(ids)} ids stand more than once"


def _borrowing_problems(shape: DrafterShape, target: TargetShape) -> Iterator[str]:
    if not shape.has_embeddings and not target.has_embeddings:
        yield "embeddings: the drafter borrows the target's token_embd.weight, which has none"
    if not shape.has_head and not target.has_head:
        yield "head: the drafter borrows the target's output.weight, which has none"
    if not shape.has_head and shape.draft_vocabulary not in {None, target.vocabulary}:
        yield (
            f"head: d2t has {shape.draft_vocabulary} rows but the drafter borrows the target's "
            f"head of {target.vocabulary}, wanted an output.weight of its own"
        )
