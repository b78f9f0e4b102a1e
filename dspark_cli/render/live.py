"""Progress on a terminal's stderr: loading and a long prompt; silent anywhere else."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from rich.progress import BarColumn, Progress, TaskID, TaskProgressColumn, TextColumn

from dspark_cli.events import Prefill, Report
from dspark_cli.render.messages import stderr_console


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
        for report in reports:
            if isinstance(report, Prefill):
                self._show("reading the prompt", report.done, report.total)
            else:
                self._progress.stop()
            yield report

    def _show(self, what: str, done: float, total: float) -> None:
        if what not in self._tasks:
            for task in self._tasks.values():
                self._progress.update(task, visible=False)
            self._tasks[what] = self._progress.add_task(what, total=total)
        self._progress.update(self._tasks[what], completed=done)


@contextmanager
def live_progress() -> Iterator[LiveProgress]:
    """Bars on stderr for the length of the block; nothing at all where stderr is no terminal."""
    console = stderr_console()
    bars = Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        TaskProgressColumn(),
        console=console,
        transient=True,
        disable=not console.is_terminal,
    )
    with bars:
        yield LiveProgress(bars)
