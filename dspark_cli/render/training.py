"""How far a training is: a bar on a terminal, a line now and then in a log file."""

import time
from collections.abc import Iterator
from contextlib import contextmanager

from rich import box
from rich.console import Group, RenderableType
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table
from rich.text import Text

from dspark_cli.render.live import stderr_bars
from dspark_cli.render.messages import tell
from dspark_cli.stats import JsonObject

SECONDS_BETWEEN_LINES = 20.0  # where stderr is no terminal


class TrainingProgress:
    """One step under way; called with what is done, what is wanted, and a remark."""

    def __init__(self, bar: Progress, step: str, unit: str) -> None:
        self._bar = bar
        self._unit = unit
        self._step = step
        self._task = bar.add_task(step, total=None, rate="", remark="")
        self._clock = time.monotonic
        self._began: tuple[float, float] | None = None  # seconds, done
        self._next_line = 0.0
        self._complete = False  # what is under way when enough is done goes on

    def __call__(self, done: float, total: float, remark: str) -> None:
        now = self._clock()
        if self._began is None:
            self._began = (now, done)
        rate = (done - self._began[1]) / max(now - self._began[0], 1e-9)
        shown = f"{rate:,.0f} {self._unit}/s" if self._unit and done > self._began[1] else ""
        self._bar.update(self._task, completed=done, total=total, rate=shown, remark=remark)
        complete = done >= total and not self._complete
        if self._bar.disable and (now >= self._next_line or complete):
            self._next_line = now + SECONDS_BETWEEN_LINES
            self._complete = complete
            left = f"{(total - done) / rate / 60:.0f} min left" if rate > 0 else ""
            parts = [f"{self._step} {min(done / total, 1):.0%}", remark, shown, left]
            tell(Text(", ".join(part for part in parts if part)))


@contextmanager
def training_progress(step: str, unit: str) -> Iterator[TrainingProgress]:
    """Show one step on stderr for the length of the block."""
    bar = stderr_bars(
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.percentage:>3.0f} %"),
        TextColumn("{task.fields[rate]}"),
        TextColumn("{task.fields[remark]}", style="dim", markup=False),
        TimeRemainingColumn(),
        transient=False,
    )
    with bar:
        yield TrainingProgress(bar, step, unit)


def training_table(report: JsonObject) -> RenderableType:
    """What came of a training; ``report`` is ``TrainingReport.as_json``."""
    facts = Table(box=box.SIMPLE_HEAD, show_header=False, pad_edge=False)
    facts.add_column(style="bold")
    facts.add_column(justify="right")
    facts.add_column(style="dim")
    for name, key, remark in (
        ("data", "dataset_tokens", "tokens of the target's own words"),
        ("fit", "fit_steps", f"steps in {_shown(report['fit_minutes'])} minutes"),
        (
            "tau",
            "held_out_tau",
            f"held out, {_shown(report['held_out_rounds'])} rounds",
        ),
        ("decoded", "decoded_tau", "tau of held-out prompts in llama.cpp"),
        ("speed", "speed_ratio_to_plain", "times plain decoding here"),
        ("same", "same_proposals", f"of {_shown(report['compared_blocks'])} blocks as in PyTorch"),
        ("gap", "largest_gap_at_difference", "logits between the two likeliest, where not"),
        ("confidence", "confidence_error", "largest difference to PyTorch's"),
        ("size", "size", f"bytes, {report['drafter']}"),
    ):
        facts.add_row(name, _shown(report[key]), Text(remark))  # a file's name is no markup
    rows = (
        ("if all before were", "conditional_acceptance_rate_per_pos"),
        ("temperature", "confidence_temperatures"),
        ("calibration error", "calibration_error_before"),
        ("... calibrated", "calibration_error_after"),
    )
    positions = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    positions.add_column("draft position", style="bold")
    values = {key: value if isinstance(value := report[key], list) else [] for _, key in rows}
    for position in range(len(values["confidence_temperatures"])):
        positions.add_column(str(position + 1), justify="right")
    for name, key in rows:
        positions.add_row(name, *map(_shown, values[key]))
    return Group(facts, positions)


def _shown(value: object) -> str:
    if isinstance(value, float):
        return f"{value:.3g}"
    if isinstance(value, int):
        return f"{value:,}"
    return "n/a" if value is None else str(value)
