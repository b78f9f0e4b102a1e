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
FILLING_SECONDS = 2.5  # ... and on making a longer context, to see what that costs
COARSE_TURNS = 3
NEAR = 1024  # positions; costs of a short context do up to here
FAR = 4096  # positions; told of


class Scheduler:
    """Gives every run on a pair its schedule; what it takes to decide is measured once.

    Nothing wanted is ``auto`` where there is something to decide by: a confidence head, or a
    calibration. ``kept`` allows to use and to keep a table in the user's cache.
    """

    def __init__(self, pair: "Pair", wanted: ScheduleOptions | None, *, kept: bool) -> None:
        """Raises UsageError where ``auto`` is wanted in a context too small to measure in."""
        self.pair = pair
        self._kept = kept
        self._found: Calibration | None = None  # for auto
        self._options = FIXED if pair.drafter is None else self._chosen(wanted)

    def reaching(self, position: int) -> ScheduleOptions:
        """The schedule of a run that goes up to ``position`` at most."""
        found = self._found
        if found is not None and position > NEAR and found.costs.growth is None:
            self._found = found = self._with_growth(found)
        if found is None or self.pair.plan.drafter is None:
            return self._options
        return replace(
            self._options,
            costs=found.costs,
            temperatures=found.temperatures or self.pair.plan.drafter.temperatures,
        )

    def _chosen(self, wanted: ScheduleOptions | None) -> ScheduleOptions:
        if wanted is not None and wanted.kind != "auto":
            return wanted
        found = self._known() if self._kept else None
        drafter = self.pair.plan.drafter
        if wanted is None and found is None and not (drafter and drafter.has_confidence):
            return FIXED
        try:
            self._found = found or self._measured()
        except UsageError as error:
            if wanted is not None:
                raise
            note(f"{error}; every draft is scored whole, --schedule fixed")
            return FIXED
        return wanted or ScheduleOptions("auto")

    def _known(self) -> "Calibration | None":
        """What is known of the pair; a file that is damaged is as good as none, and warned of."""
        from dspark_cli.calibration import calibration_path, load_calibration

        if self.pair.drafter is None:
            return None
        path = calibration_path(self.pair.plan)
        try:
            return load_calibration(path, self.pair.drafter.draft_max)
        except ValueError as error:
            warn(f"{path}: {error}; measuring anew")
            return None

    def _measured(self) -> "Calibration":
        """What a second's measuring finds; raises UsageError where the context is too small."""
        from dspark_cli.calibration import Calibration
        from dspark_cli.measure import measure_costs

        costs = measure_costs(self.pair, seconds=COARSE_SECONDS)
        note(
            f"--schedule auto: measured this pair on this machine, {costs.score[0] * 1e3:.1f} ms "
            f"for a token, {costs.score[-1] * 1e3:.1f} ms for {len(costs.score)}; "
            "dspark calibrate does it thoroughly"
        )
        return self._keep(Calibration(costs))

    def _with_growth(self, found: "Calibration") -> "Calibration":
        """Find out what a longer context adds, where this one is long enough."""
        from dspark_cli.measure import measure_growth

        growth = measure_growth(self.pair, seconds=FILLING_SECONDS, turns=COARSE_TURNS)
        if growth is None:
            return found
        costs = replace(found.costs, growth=growth)
        far = costs.at(FAR)
        said = (
            f"at {FAR} tokens of context {far.score[0] * 1e3:.1f} ms for a token, "
            f"{far.score[-1] * 1e3:.1f} ms for {len(far.score)}, as far as a look at fewer says"
        )
        if not any(growth.score):
            said = (
                "what a longer context costs, dspark calibrate finds out; here it takes too long"
            )
        note(f"--schedule auto: {said}")
        return self._keep(replace(found, costs=costs))

    def _keep(self, found: "Calibration") -> "Calibration":
        from dspark_cli.calibration import calibration_path, save_calibration

        if self._kept:
            save_calibration(calibration_path(self.pair.plan), found)
        return found
