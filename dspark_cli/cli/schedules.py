"""A run's schedule, and for ``auto`` the costs that it decides by: kept ones, or measured now."""

from dataclasses import replace
from typing import TYPE_CHECKING

from dspark_cli.errors import UsageError
from dspark_cli.render.messages import note, warn
from dspark_cli.schedule import FIXED, ScheduleOptions

if TYPE_CHECKING:
    from dspark_cli.calibration import Calibration
    from dspark_cli.pair import Pair

COARSE_SECONDS = 1.0  # that a run spends on measuring what nothing is known of


def prepared(pair: "Pair", wanted: ScheduleOptions | None, *, kept: bool) -> ScheduleOptions:
    """The schedule with everything that it needs of this pair and this machine.

    Nothing wanted is ``auto`` where there is something to decide by: a confidence head, or a
    calibration. ``kept`` allows to use and to keep a table in the user's cache. Raises UsageError
    where ``auto`` is wanted in a context too small to measure in.
    """
    drafter = pair.plan.drafter
    if drafter is None:
        return FIXED
    if wanted is not None and wanted.kind != "auto":
        return wanted
    found = _kept(pair) if kept else None
    if wanted is None and found is None and not drafter.has_confidence:
        return FIXED
    try:
        found = found or _measured(pair, kept=kept)
    except UsageError as error:
        if wanted is not None:
            raise
        note(f"{error}; every draft is scored whole, --schedule fixed")
        return FIXED
    return replace(
        wanted or ScheduleOptions("auto"),
        costs=found.costs,
        temperatures=found.temperatures or drafter.temperatures,
    )


def _kept(pair: "Pair") -> "Calibration | None":
    """What is known of the pair; a file that is damaged is as good as none, and warned of."""
    from dspark_cli.calibration import calibration_path, load_calibration

    if pair.drafter is None:
        return None
    path = calibration_path(pair.plan)
    try:
        return load_calibration(path, pair.drafter.draft_max)
    except ValueError as error:
        warn(f"{path}: {error}; measuring anew")
        return None


def _measured(pair: "Pair", *, kept: bool) -> "Calibration":
    """What a second's measuring finds; raises UsageError where the context is too small."""
    from dspark_cli.calibration import Calibration, calibration_path, save_calibration
    from dspark_cli.measure import measure_costs

    costs = measure_costs(pair, seconds=COARSE_SECONDS)
    found = Calibration(costs)
    note(
        f"--schedule auto: measured this pair on this machine, {costs.score[0] * 1e3:.1f} ms "
        f"for a token, {costs.score[-1] * 1e3:.1f} ms for {len(costs.score)}; "
        "dspark calibrate does it thoroughly"
    )
    if kept:
        save_calibration(calibration_path(pair.plan), found)
    return found
