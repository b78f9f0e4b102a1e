"""Progress on a terminal's stderr: loading and a long prompt; silent anywhere else."""

import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    TaskID,
    TaskProgressColumn,
    TextColumn,
    TimeRemainingColumn,
)

from dspark_cli.events import Prefill, Report


class LiveProgress:
    """Bars that vanish when the text begins."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self._tasks: dict[str, TaskID] = {}

    def loading(self, what: str, share: float) -> None:
        """Show how much of a model is loaded."""
        self._show(f"loading {what}", share, 1.0)

    def watch(self, reports: Iterable[Report]) -> Iterator[Report]:
        """Pass reports on, showing the prompt's progress and stepping aside for the text."""
        aside = False
        for report in reports:
            if isinstance(report, Prefill):
                self._show("reading the prompt", report.done, report.total)
            elif not aside:
                self._progress.stop()
                aside = True
            yield report

    def _show(self, what: str, done: float, total: float) -> None:
        if what not in self._tasks:
            for task in self._tasks.values():
                self._progress.update(task, visible=False)
            self._tasks[what] = self._progress.add_task(what, total=total)
        self._progress.update(self._tasks[what], completed=done)


class CheckProgress:
    """One bar over many prompts: how many are done, tau so far, the time that is left."""

    def __init__(self, progress: Progress, prompts: int) -> None:
        self._progress = progress
        self._task = progress.add_task("checking", total=prompts, tau="n/a")

    @contextmanager
    def stepping_aside(self) -> Iterator[None]:
        """Clear the line for what is written to the same terminal."""
        self._progress.stop()
        try:
            yield
        finally:
            self._progress.start()

    def advance(self, tau: float | None) -> None:
        """One more prompt is done."""
        shown = "n/a" if tau is None else f"{tau:.2f}"
        self._progress.update(self._task, advance=1, tau=shown)


def stderr_bars(*columns: ProgressColumn, transient: bool = True) -> Progress:
    """Bars on stderr where that is a terminal, and nothing anywhere else."""
    return Progress(
        *columns,
        console=Console(stderr=True, highlight=False),
        transient=transient,
        disable=sys.stderr is None or not sys.stderr.isatty(),
    )


@contextmanager
def check_progress(prompts: int) -> Iterator[CheckProgress]:
    """A bar on stderr for the length of the block; nothing where stderr is no terminal."""
    bar = stderr_bars(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("tau {task.fields[tau]}"),
        TimeRemainingColumn(),
    )
    with bar:
        yield CheckProgress(bar, prompts)


@contextmanager
def live_progress() -> Iterator[LiveProgress]:
    """Bars on stderr for the length of the block; nothing at all where stderr is no terminal."""
    bars = stderr_bars(
        TextColumn("{task.description}"),
        BarColumn(),
        TaskProgressColumn(),
    )
    with bars:
        yield LiveProgress(bars)
