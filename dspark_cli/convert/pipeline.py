"""From a path to a drafter that is written, loaded and compared; or to nothing at all."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from dspark_cli.contract import limitations, read_target
from dspark_cli.convert.examine import examine
from dspark_cli.convert.plan import Plan
from dspark_cli.convert.verify import Agreement
from dspark_cli.files import replacing
from dspark_cli.stats import JsonObject
from dspark_cli.storing import write_gguf

Progress = Callable[[str, float, float], None]
"""Called with what is done ("writing"), its bytes so far, and all of them (0: not known)."""


@dataclass(frozen=True, slots=True)
class Conversion:
    """What was done."""

    plan: Plan
    out: Path
    size: int  # bytes of the file
    agreement: Agreement | None  # None where it was not compared

    @property
    def notes(self) -> tuple[str, ...]:
        """What was done beyond renaming, and what keeps the pair from running here."""
        unable = limitations(read_target(self.plan.target))
        return (*self.plan.recipe.notes, *(f"it cannot be run here yet: {why}" for why in unable))

    def as_json(self) -> JsonObject:
        agreement = self.agreement
        return {
            "source": self.plan.recipe.path.name,
            "kind": self.plan.recipe.kind,
            "out": str(self.out),
            "size": self.size,
            "tensors": len(self.plan.tensors),
            "out_type": self.plan.out_type,
            "notes": list(self.notes),
            "borrows": list(self.plan.borrows),
            "compared_blocks": agreement.blocks if agreement else None,
            "same_proposals": agreement.same if agreement else None,
            "near_ties": agreement.ties if agreement else None,
            "logit_error": agreement.logit_error if agreement else None,
            "logit_tolerance": agreement.tolerance if agreement else None,
            "confidence_error": agreement.confidence_error if agreement else None,
        }


def carry_out(
    plan: Plan, out: Path, *, verify: bool, threads: int | None, progress: Progress
) -> Conversion:
    """Write ``out`` and hold it against its source; until then it has another name.

    Raises DsparkError for weights that are no numbers, a full disk, or a drafter that drafts
    something else; LlamaError where llama.cpp refuses the file.
    """
    done = 0

    def written(size: int) -> None:
        nonlocal done
        done += size
        progress("writing", done, plan.size)

    with replacing(out) as beside:
        write_gguf(beside, "dflash", plan.keys, plan.tensors, written)
        progress("comparing" if verify else "loading", 0, 0)
        agreement = examine(beside, plan, compare=verify, threads=threads)
        size = beside.stat().st_size
    return Conversion(plan, out, size, agreement)
