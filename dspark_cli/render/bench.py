"""What a bench measured, as tables."""

from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from dspark_cli.stats import JsonObject, JsonValue

PEER = "peer"  # the arm that is another program


def bench_table(document: JsonObject) -> RenderableType:
    """Speeds and ratios by schedule and category; ``document`` is that of ``bench --json``."""
    arms = _object(document["arms"])
    return Group(_speeds(arms), _categories(arms), Text(_bounds(document)))


def _speeds(arms: JsonObject) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for column in (
        "",
        "tokens/s",
        "x plain",
        *(("x peer",) if PEER in arms else ()),
        "tau",
        "accept",
        "draft",
        "score",
        "other",
    ):
        table.add_column(column, justify="right" if column else "left", no_wrap=True)
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
            *((_number(arm["ratio_to_peer"], 2),) if PEER in arms else ()),
            _number(arm["mean_acceptance_length"], 2),
            _percent(arm["draft_acceptance_rate"]),
            *shares,
        )
    return table


def _categories(arms: JsonObject) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("x plain")
    rows = {name: _object(value) for name, value in arms.items()}
    for category in _object(next(iter(rows.values()))["by_category"]):
        table.add_column(category, justify="right")
    table.add_column("prompts", justify="right")
    for name, arm in rows.items():
        ratios = _object(arm["by_category"])
        table.add_row(
            name,
            *(_number(value, 2) for value in ratios.values()),
            _spread(arm["ratio_spread"]),
        )
    return table


def _bounds(document: JsonObject) -> str:
    """What no schedule exceeds, in words; empty where no costs are known."""
    hindsight, perfect = (document[f"{name}_ratio_to_plain"] for name in ("hindsight", "perfect"))
    if hindsight is None or perfect is None:
        return ""
    return (
        f"By the measured costs, {_number(hindsight, 2)} is the most that hindsight could make of "
        f"this drafter, and {_number(perfect, 2)} what a drafter that is always right would reach."
    )


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
