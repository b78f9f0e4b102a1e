"""Get ``auto`` the costs that it decides by: kept ones, or measured now and kept."""

from dataclasses import replace
from typing import TYPE_CHECKING

from dspark_cli.render.messages import note, warn
from dspark_cli.schedule import ScheduleOptions

if TYPE_CHECKING:
    from dspark_cli.pair import Pair


def prepared(pair: "Pair", schedule: ScheduleOptions, *, kept: bool) -> ScheduleOptions:
    """The schedule with everything that it needs of this pair and this machine.

    ``kept`` allows to use and to keep a table in the user's cache.
    """
    if schedule.kind != "auto" or pair.drafter is None or pair.plan.drafter is None:
        return schedule if schedule.kind != "auto" else replace(schedule, kind="fixed")
    from dspark_cli.calibration import calibration_path, load_costs, save_costs
    from dspark_cli.measure import measure_costs

    path, costs = calibration_path(pair.plan), None
    if kept:
        try:
            costs = load_costs(path, pair.drafter.draft_max)
        except ValueError as error:
            warn(f"{path}: {error}; measuring anew")
    if costs is None:
        costs = measure_costs(pair)
        note(
            f"--schedule auto: measured this pair on this machine, {costs.score[0] * 1e3:.1f} ms "
            f"for a token, {costs.score[-1] * 1e3:.1f} ms for {len(costs.score)}"
            + (f"; kept in {path}" if kept else "")
        )
        if kept:
            save_costs(path, costs)
    return replace(schedule, costs=costs, temperatures=pair.plan.drafter.temperatures)
