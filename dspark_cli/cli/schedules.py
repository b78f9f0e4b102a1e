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
    from dspark_cli.calibration import (
        Calibration,
        calibration_path,
        load_calibration,
        save_calibration,
    )
    from dspark_cli.measure import measure_costs

    path, found = calibration_path(pair.plan), None
    if kept:
        try:
            found = load_calibration(path, pair.drafter.draft_max)
        except ValueError as error:
            warn(f"{path}: {error}; measuring anew")
    if found is None:
        found = Calibration(measure_costs(pair))
        costs = found.costs
        note(
            f"--schedule auto: measured this pair on this machine, {costs.score[0] * 1e3:.1f} ms "
            f"for a token, {costs.score[-1] * 1e3:.1f} ms for {len(costs.score)}; "
            "dspark calibrate does it thoroughly"
        )
        if kept:
            save_calibration(path, found)
    temperatures = found.temperatures or pair.plan.drafter.temperatures
    return replace(schedule, costs=found.costs, temperatures=temperatures)
