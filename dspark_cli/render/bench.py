"""What a bench measured, as tables."""

from rich import box
from rich.console import Group, RenderableType
from rich.table import Table

from dspark_cli.stats import JsonObject, JsonValue


def bench_table(document: JsonObject) -> RenderableType:
    """Speeds and ratios by schedule and category; ``document`` is that of ``bench --json``."""
    arms = _object(document["arms"])
    return Group(_speeds(arms), _categories(arms))


def _speeds(arms: JsonObject) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for column in (
        "",
        "tokens/s",
        "to plain",
        "spread",
        "tau",
        "accept",
        "draft",
        "score",
        "other",
    ):
        table.add_column(column, justify="left" if not column else "right")
    for name, value in arms.items():
        arm = _object(value)
        timings = _object(arm["timings"])
        whole = timings["decode_seconds"]
        shares = [
            _share(timings[key], whole)
            for key in ("draft_seconds", "score_seconds", "other_seconds")
        ]
        table.add_row(
            name,
            _number(arm["tokens_per_second"], 1),
            _number(arm["ratio_to_plain"], 2),
            _spread(arm["ratio_spread"]),
            _number(arm["mean_acceptance_length"], 2),
            _percent(arm["draft_acceptance_rate"]),
            *shares,
        )
    return table


def _categories(arms: JsonObject) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("times plain decoding")
    rows = {name: _object(_object(value)["by_category"]) for name, value in arms.items()}
    for category in next(iter(rows.values()), {}):
        table.add_column(category, justify="right")
    for name, ratios in rows.items():
        table.add_row(name, *(_number(value, 2) for value in ratios.values()))
    return table


def _object(value: JsonValue) -> JsonObject:
    return value if isinstance(value, dict) else {}


def _number(value: JsonValue, digits: int) -> str:
    return f"{value:.{digits}f}" if isinstance(value, float | int) else "n/a"


def _percent(value: JsonValue) -> str:
    return f"{value:.1%}" if isinstance(value, float | int) else "n/a"


def _share(part: JsonValue, whole: JsonValue) -> str:
    if isinstance(part, float | int) and isinstance(whole, float | int) and whole:
        return f"{part / whole:.1%}"
    return "n/a"


def _spread(value: JsonValue) -> str:
    if isinstance(value, list) and len(value) == 2:  # noqa: PLR2004  the least and the largest
        return f"{_number(value[0], 2)} to {_number(value[1], 2)}"
    return "n/a"
