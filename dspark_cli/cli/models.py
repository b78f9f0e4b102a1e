"""From ``-m``, ``-md`` and ``--no-draft`` to two paths."""

from pathlib import Path

from dspark_cli.cli.params import ScheduleChoice
from dspark_cli.errors import UsageError
from dspark_cli.models import BUILTIN, drafter_of, find_drafter, find_target
from dspark_cli.render.messages import note
from dspark_cli.schedule import ScheduleOptions

DEMONSTRATION = (
    "no -m given: this is the built-in demonstration pair, a model of 5 million weights that "
    "tells little stories; -m FILE -md FILE runs your own"
)


def pair_paths(
    model: str | None, draft: str | None, *, no_draft: bool = False
) -> tuple[Path, Path | None]:
    """The target's path and the drafter's, None for plain decoding.

    No model at all means the built-in pair, and says so. Plain decoding is never a silent
    fallback: a target without a drafter needs ``--no-draft``.
    """
    if model is None:
        if draft is not None:
            raise UsageError("-md was given without -m", hint="give its target with -m FILE")
        note(DEMONSTRATION)
        model = BUILTIN
    if no_draft and draft is not None:
        raise UsageError("-md and --no-draft contradict each other")
    target = find_target(model)
    if no_draft:
        return target, None
    drafter = drafter_of(model) if draft is None else draft
    if drafter is None:
        raise UsageError(
            f"no drafter for {model}",
            hint="give one with -md, or --no-draft for plain decoding",
        )
    return target, find_drafter(drafter)


def schedule_options(
    name: ScheduleChoice | None, p_min: float | None, *, live_costs: bool = False
) -> ScheduleOptions | None:
    """The schedule that was asked for, None where that is left to the pair.

    A threshold alone means that it is used, as in llama.cpp; live costs alone mean ``auto``.
    """
    if name is not None:
        return ScheduleOptions(name.value, p_min, live_costs=live_costs)
    if p_min is not None:
        return ScheduleOptions("confidence", p_min, live_costs=live_costs)
    return ScheduleOptions("auto", live_costs=True) if live_costs else None


def inspected_paths(
    model: str | None, draft: str | None, *, no_draft: bool
) -> tuple[Path, Path | None]:
    """The same for a look at the files, which may be the target alone."""
    if model is not None and draft is None and drafter_of(model) is None:
        no_draft = True
    return pair_paths(model, draft, no_draft=no_draft)
