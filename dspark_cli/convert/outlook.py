"""What would become of a source, without any weight being read or written."""

from dataclasses import dataclass
from pathlib import Path

from dspark_cli.contract import DrafterShape, limitations, read_drafter, read_target
from dspark_cli.convert.config import Config
from dspark_cli.convert.fork import KIND, read_fork
from dspark_cli.convert.geometry import Geometry
from dspark_cli.convert.plan import plan_from, planned_metadata
from dspark_cli.errors import DsparkError
from dspark_cli.metadata import read_metadata
from dspark_cli.plan import convert_hint, is_checkpoint
from dspark_cli.stats import JsonObject

FORK = "dspark"


@dataclass(frozen=True, slots=True)
class Outlook:
    """A source by its kind, and what converting it would do, or why it cannot be done."""

    kind: str
    drafter: DrafterShape | None  # as it would be written; None without a target, or refused
    size: int | None  # bytes of data
    notes: tuple[str, ...]
    refusal: DsparkError | None
    command: str

    def as_json(self) -> JsonObject:
        refusal = self.refusal
        return {
            "kind": self.kind,
            "converts": None if self.drafter is None and refusal is None else refusal is None,
            "refusal": None if refusal is None else str(refusal),
            "refusal_hint": None if refusal is None else refusal.hint,
            "size": self.size,
            "notes": list(self.notes),
            "command": self.command,
        }


def is_source(path: Path) -> bool:
    """Whether a path is one that ``dspark convert`` is for; raises DsparkError if unreadable."""
    if is_checkpoint(path):
        return True
    return path.is_file() and read_metadata(path).architecture == FORK


def look_ahead(path: Path, target: Path | None) -> Outlook:
    """Say what converting ``path`` for ``target`` would do; raises DsparkError for no source."""
    command = convert_hint(path, target or Path("TARGET.gguf"))
    try:
        kind, notes = _described(path)
    except DsparkError as error:
        kind = "a checkpoint" if is_checkpoint(path) else KIND
        return Outlook(kind, None, None, (), error, command)
    if target is None:
        return Outlook(kind, None, None, notes, None, command)
    try:
        plan = plan_from(path, target, out_type="keep", share_target=False)
    except DsparkError as error:
        return Outlook(kind, None, None, notes, error, command)
    unable = limitations(read_target(plan.target))
    notes = (*plan.recipe.notes, *(f"it cannot be run here yet: {why}" for why in unable))
    drafter = read_drafter(planned_metadata(plan))
    return Outlook(plan.recipe.kind, drafter, plan.size, notes, None, command)


def _described(path: Path) -> tuple[str, tuple[str, ...]]:
    """The kind of a source, and what is known of it without its target."""
    if not is_checkpoint(path):
        recipe = read_fork(read_metadata(path))
        return recipe.kind, recipe.notes
    folder = path if path.is_dir() else path.parent
    geometry = Geometry.of(Config.read(folder / "config.json"))
    return geometry.kind, geometry.notes
