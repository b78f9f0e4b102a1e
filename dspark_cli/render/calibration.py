"""What a calibration found, as a table."""

from rich import box
from rich.table import Table

from dspark_cli.stats import JsonObject, JsonValue


def calibration_table(document: JsonObject) -> Table:
    """Costs and confidences by length; ``document`` is that of ``dspark calibrate --json``."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    columns = {key: value for key, value in document.items() if isinstance(value, list)}
    table.add_column("draft tokens", style="bold")
    for length in range(len(columns["score_seconds"])):
        table.add_column(str(length), justify="right")
    table.add_row("score, ms", *map(_milliseconds, columns["score_seconds"]))
    table.add_row("draft, ms", *map(_milliseconds, columns["draft_seconds"]))
    for name, key in (
        ("score, ms for every 1000 tokens of context", "score_seconds_per_position"),
        ("draft, ms for every 1000 tokens of context", "draft_seconds_per_position"),
    ):
        if key in columns:
            table.add_row(name, *map(_per_thousand, columns[key]))
    for name, key in (
        ("outcomes", "labels"),
        ("temperature", "temperatures"),
        ("calibration error", "calibration_error_before"),
        ("... calibrated", "calibration_error_after"),
    ):
        if columns[key]:
            table.add_row(name, "", *map(_shown, columns[key]))
    return table


def _milliseconds(value: JsonValue) -> str:
    return f"{value * 1e3:.1f}" if isinstance(value, float) else "n/a"


def _per_thousand(value: JsonValue) -> str:
    return f"{value * 1e6:.1f}" if isinstance(value, float) else "n/a"


def _shown(value: JsonValue) -> str:
    if isinstance(value, float):
        return f"{value:.3f}"
    return "n/a" if value is None else str(value)
