"""What ``dspark convert`` shows: how far it is, and what came of it."""

from collections.abc import Iterator
from contextlib import contextmanager

from rich import box
from rich.console import RenderableType
from rich.progress import (
    BarColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeRemainingColumn,
)
from rich.table import Table
from rich.text import Text

from dspark_cli.render.live import stderr_bars
from dspark_cli.stats import JsonObject

MIB = 2**20


class ConversionProgress:
    """A bar that counts bytes, and vanishes when all is done; silent where nobody looks.

    A step whose total is 0 has no known length: its bar only moves.
    """

    def __init__(self, bars: Progress) -> None:
        self._bars = bars
        self._tasks: dict[str, TaskID] = {}

    @classmethod
    @contextmanager
    def on_stderr(cls) -> Iterator["ConversionProgress"]:
        bars = stderr_bars(
            TextColumn("{task.description}"),
            BarColumn(),
            TextColumn("{task.fields[share]}"),
            TimeRemainingColumn(),
        )
        with bars:
            yield cls(bars)

    def __call__(self, what: str, done: float, total: float) -> None:
        if what not in self._tasks:
            for task in self._tasks.values():
                self._bars.update(task, visible=False)
            self._tasks[what] = self._bars.add_task(what, total=total or None, share="")
        share = f"{done / MIB:,.0f} of {total / MIB:,.0f} MiB" if total else ""
        self._bars.update(self._tasks[what], completed=done, share=share)


def conversion_table(document: JsonObject) -> RenderableType:
    """The result in a few lines; ``document`` is ``Conversion.as_json``."""
    table = Table(box=box.SIMPLE_HEAD, show_header=False, pad_edge=False)
    table.add_column(style="bold")
    table.add_column()
    for name, value in _rows(document):
        table.add_row(name, Text(value))
    return table


def _rows(document: JsonObject) -> Iterator[tuple[str, str]]:
    yield "source", f"{document['source']}, {document['kind']}"
    yield "written", f"{document['out']}"
    size = document["size"]
    mib = size / MIB if isinstance(size, int) else 0.0
    yield "size", f"{mib:,.1f} MiB, {document['tensors']} tensors, {document['out_type']}"
    borrowed = document["borrows"]
    if isinstance(borrowed, list) and borrowed:
        yield "borrows", f"{' and '.join(map(str, borrowed))} of the target"
    blocks = document["compared_blocks"]
    if blocks is None:
        yield "compared", "no"
        return
    ties = document["near_ties"]
    remark = f", {ties} part at a near-tie" if ties else ""
    yield "compared", f"{document['same_proposals']} of {blocks} random blocks draft alike{remark}"
    yield (
        "logits",
        f"{document['logit_error']:.2%} apart, at most {document['logit_tolerance']:.1%} allowed",
    )
    if document["confidence_error"] is not None:
        yield "confidences", f"{document['confidence_error']:.4f} apart"
