"""How far a training is: a bar on a terminal, a line now and then in a log file."""

import time
from collections.abc import Iterator
from contextlib import contextmanager

from rich import box
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

    def __call__(self, done: float, total: float, remark: str) -> None:
        now = self._clock()
        if self._began is None:
            self._began = (now, done)
        rate = (done - self._began[1]) / max(now - self._began[0], 1e-9)
        shown = f"{rate:,.0f} {self._unit}/s" if self._unit and done > self._began[1] else ""
        self._bar.update(self._task, completed=done, total=total, rate=shown, remark=remark)
        if self._bar.disable and (now >= self._next_line or done >= total):
            self._next_line = now + SECONDS_BETWEEN_LINES
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
        TextColumn("[dim]{task.fields[remark]}[/]"),
        TimeRemainingColumn(),
        transient=False,
    )
    with bar:
        yield TrainingProgress(bar, step, unit)


def training_table(report: JsonObject) -> Table:
    """What came of a training, one fact a row."""
    table = Table(box=box.SIMPLE_HEAD, show_header=False, pad_edge=False)
    table.add_column(style="bold")
    table.add_column()
    for key, value in report.items():
        table.add_row(key, _shown(value))
    return table


def _shown(value: object) -> str:
    if isinstance(value, list):
        return "  ".join(map(_shown, value))
    if isinstance(value, float):
        return f"{value:.4g}"
    return "n/a" if value is None else str(value)
