"""What ``dspark inspect`` shows: two descriptions, the sizes, and the verdict."""

from dataclasses import dataclass

from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from dspark_cli.contract import DrafterShape, TargetShape
from dspark_cli.errors import ContractError, DsparkError
from dspark_cli.plan import Survey
from dspark_cli.render.messages import error_as_json
from dspark_cli.sizes import ContextSizes, Sizes
from dspark_cli.stats import JsonObject

DIALECTS = {
    "dspark": "DSpark (dflash with a Markov head)",
    "dflash": "DFlash (dflash without a Markov head)",
    "fork": "the PrismML fork's dspark",
    "dflash2": "DFlash2",
    "deepseek4": "DeepSeek-V4 stages",
    "none": "no drafter",
}


@dataclass(frozen=True, slots=True)
class Inspection:
    """Everything that metadata says about a pair, or about a target alone."""

    survey: Survey
    problem: DsparkError | None  # what a run would be refused for, by this machine's memory too
    conversion: JsonObject | None = None  # what ``dspark convert`` would do with the drafter
    converted: DrafterShape | None = None  # the drafter that this would give

    @property
    def disagreements(self) -> tuple[str, ...]:
        """Why drafter and target do not belong together."""
        return self.problem.messages if isinstance(self.problem, ContractError) else ()

    @property
    def refusal(self) -> DsparkError | None:
        """What else keeps a run from beginning."""
        return None if self.disagreements else self.problem

    def as_json(self) -> JsonObject:
        survey, drafter = self.survey, self.survey.drafter
        fingerprint = survey.drafter_fingerprint
        return {
            "target": {**survey.target_fingerprint.as_json(), **_target_json(survey.target)},
            "drafter": {
                **(fingerprint.as_json() if fingerprint else {}),
                **_drafter_json(drafter),
            }
            if drafter
            else None,
            "sizes": _sizes_json(survey.sizes) if survey.sizes else None,
            "fits": not self.disagreements if drafter else None,
            "disagreements": list(self.disagreements),
            "refusal": error_as_json(self.refusal) if self.refusal else None,
            "warnings": list(survey.warnings),
            "conversion": self.conversion,
            "converted": _drafter_json(self.converted) if self.converted else None,
        }


def inspection_table(inspection: Inspection) -> RenderableType:
    survey = inspection.survey
    parts: list[RenderableType] = [_target_table(survey.target)]
    if survey.drafter is not None:
        parts.append(_drafter_table(survey.drafter))
    if survey.sizes is not None:
        parts.append(_sizes_table(survey.sizes))
    if inspection.disagreements:
        parts += [
            Text.assemble(("does not fit: ", "bold red"), text)
            for text in inspection.disagreements
        ]
    elif survey.drafter is not None:
        parts.append(Text.assemble(("fits", "bold green")))
    if inspection.converted is not None:
        parts.append(_drafter_table(inspection.converted, "drafter, converted"))
    if inspection.conversion is not None:
        parts += _conversion_parts(inspection.conversion)
        return Group(*parts)
    if inspection.refusal is not None:
        parts.append(Text.assemble(("cannot run: ", "bold red"), str(inspection.refusal)))
    if inspection.problem is not None and inspection.problem.hint:
        parts.append(Text.assemble(("hint: ", "dim"), inspection.problem.hint))
    return Group(*parts)


@dataclass(frozen=True, slots=True)
class SourceInspection:
    """A drafter that must be converted first, with or without a target to hold it against."""

    target: TargetShape | None
    drafter: DrafterShape | None  # as it would be written
    conversion: JsonObject

    def as_json(self) -> JsonObject:
        return {
            "target": _target_json(self.target) if self.target else None,
            "drafter": _drafter_json(self.drafter) if self.drafter else None,
            "conversion": self.conversion,
        }


def source_table(inspection: SourceInspection) -> RenderableType:
    parts: list[RenderableType] = []
    if inspection.target is not None:
        parts.append(_target_table(inspection.target))
    if inspection.drafter is not None:
        parts.append(_drafter_table(inspection.drafter, "drafter, converted"))
    return Group(*parts, *_conversion_parts(inspection.conversion))


def _conversion_parts(conversion: JsonObject) -> list[RenderableType]:
    """What the source is and what converting it would do."""
    rows = [("source", str(conversion["kind"]))]
    if isinstance(size := conversion["size"], int):
        rows.append(("would take", _mib(size)))
    notes = conversion["notes"]
    rows += [("note", str(note)) for note in (notes if isinstance(notes, list) else [])]
    verdict = {True: "yes", False: "no", None: "give its target with -m to know"}
    rows.append(("converts", verdict[conversion["converts"]]))  # type: ignore[index]
    if conversion["converts"] is not False:
        rows.append(("command", str(conversion["command"])))
    parts: list[RenderableType] = [_facts("conversion", rows)]
    if conversion["refusal"] is not None:
        refusal = str(conversion["refusal"])
        parts.append(Text.assemble(("cannot be converted: ", "bold red"), refusal))
        if conversion["refusal_hint"] is not None:
            parts.append(Text.assemble(("hint: ", "dim"), str(conversion["refusal_hint"])))
    return parts


def _facts(title: str, rows: list[tuple[str, str]]) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column(title, style="bold")
    table.add_column()
    for name, value in rows:
        table.add_row(name, Text(value))
    return table


def _tappable(target: TargetShape) -> str:
    support = target.support
    if support is None:
        return "no: llama.cpp's graph publishes no layer inputs"
    last = target.layers if support.final_tap else target.layers - 1
    return f"yes, inputs of layers 0 to {last}"


REWINDS = {
    "cut": "drops cells",
    "ring": "drops cells, keeps earlier recurrent states",
    "replay": "restores a saved recurrent state, decodes accepted tokens again",
}


def _target_table(target: TargetShape) -> Table:
    return _facts(
        "target",
        [
            ("file", target.name),
            ("architecture", target.architecture),
            ("layers", str(target.layers)),
            ("width", str(target.width)),
            ("vocabulary", str(target.vocabulary)),
            ("context", f"{target.context_length} positions"),
            ("weights", _mib(target.weight_bytes)),
            ("can be tapped", _tappable(target)),
            ("rewind", REWINDS[target.support.rewind] if target.support else "unknown"),
        ],
    )


def _drafter_table(drafter: DrafterShape, title: str = "drafter") -> Table:
    heads = []
    if drafter.markov_rank is not None:
        heads.append(f"Markov (rank {drafter.markov_rank})")
    if drafter.has_confidence:
        heads.append("confidence")
    own = "its own" if drafter.has_embeddings else "the target's"
    head = "its own" if drafter.has_head else "the target's"
    return _facts(
        title,
        [
            ("file", drafter.name),
            ("dialect", DIALECTS[drafter.dialect]),
            ("block_size", _known(drafter.block_size)),
            ("drafts per round", str(drafter.draft_max) if drafter.block_size else "unknown"),
            ("taps", ", ".join(map(str, drafter.taps)) if drafter.taps else "unknown"),
            ("layers", str(drafter.layers)),
            ("width", str(drafter.width)),
            ("heads", " and ".join(heads) or "none"),
            ("vocabulary", str(drafter.vocabulary)),
            ("draft vocabulary", str(drafter.draft_vocabulary or drafter.vocabulary)),
            ("mask token", _known(drafter.mask_token)),
            ("embeddings, head", f"{own}, {head}"),
            ("context", f"{drafter.context_length} positions"),
            ("weights", _mib(drafter.weight_bytes)),
        ],
    )


def _sizes_table(sizes: Sizes) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column(f"a run of -c {sizes.limit}", style="bold")
    contexts = [("target", sizes.target)]
    if sizes.drafter is not None:
        contexts.append(("drafter", sizes.drafter))
    for name, _ in contexts:
        table.add_column(name, justify="right")

    def row(name: str, *values: str) -> None:
        table.add_row(name, *values)

    if sizes.draft_window:
        row("window", "", str(sizes.draft_window))
    row("n_ctx", *(str(context.n_ctx) for _, context in contexts))
    row("n_batch", *(str(context.n_batch) for _, context in contexts))
    row("n_ubatch", *(str(context.n_ubatch) for _, context in contexts))
    row("n_outputs_max", *(str(context.n_outputs_max) for _, context in contexts))
    row("K/V cache", *(_mib(context.kv_bytes) for _, context in contexts))
    if sizes.target.state_bytes:
        row("recurrent states", *(_mib(context.state_bytes) for _, context in contexts))
    row("tap buffers", *(_mib(context.tap_bytes) for _, context in contexts))
    row("logits", *(_mib(context.logits_bytes) for _, context in contexts))
    row("attention", *(_mib(context.attention_bytes) for _, context in contexts))
    return table


def _known(value: int | None) -> str:
    return "unknown" if value is None else str(value)


def _mib(size: int) -> str:
    return f"{size / 2**20:.1f} MiB"


def _target_json(target: TargetShape) -> JsonObject:
    return {
        "architecture": target.architecture,
        "layers": target.layers,
        "width": target.width,
        "vocabulary": target.vocabulary,
        "context_length": target.context_length,
        "weight_bytes": target.weight_bytes,
        "tappable": target.support is not None,
        "rewind": target.support.rewind if target.support else None,
    }


def _drafter_json(drafter: DrafterShape) -> JsonObject:
    return {
        "architecture": drafter.architecture,
        "dialect": drafter.dialect,
        "block_size": drafter.block_size,
        "n_max": drafter.draft_max if drafter.block_size else None,
        "taps": list(drafter.taps) if drafter.taps is not None else None,
        "layers": drafter.layers,
        "width": drafter.width,
        "markov_rank": drafter.markov_rank,
        "confidence_head": drafter.has_confidence,
        "own_embeddings": drafter.has_embeddings,
        "own_head": drafter.has_head,
        "vocabulary": drafter.vocabulary,
        "draft_vocabulary": drafter.draft_vocabulary,
        "mask_token": drafter.mask_token,
        "sample_from_anchor": drafter.sample_from_anchor,
        "causal": drafter.causal,
        "context_length": drafter.context_length,
        "weight_bytes": drafter.weight_bytes,
    }


def _sizes_json(sizes: Sizes) -> JsonObject:
    return {
        "limit": sizes.limit,
        "bytes": sizes.bytes,
        "draft_window": sizes.draft_window,
        "target": _context_json(sizes.target),
        "drafter": _context_json(sizes.drafter) if sizes.drafter else None,
    }


def _context_json(sizes: ContextSizes) -> JsonObject:
    return {
        "n_ctx_requested": sizes.n_ctx_requested,
        "n_ctx": sizes.n_ctx,
        "n_batch_requested": sizes.n_batch_requested,
        "n_batch": sizes.n_batch,
        "n_ubatch": sizes.n_ubatch,
        "n_outputs_max": sizes.n_outputs_max,
        "kv_bytes": sizes.kv_bytes,
        "n_rs_seq": sizes.n_rs_seq,
        "state_bytes": sizes.state_bytes,
        "tap_bytes": sizes.tap_bytes,
        "logits_bytes": sizes.logits_bytes,
        "attention_bytes": sizes.attention_bytes,
    }
