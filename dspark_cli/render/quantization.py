"""What a quantisation did, as a table and in words."""

from collections import Counter
from collections.abc import Iterator

from rich import box
from rich.table import Table

from dspark_cli.stats import JsonObject, JsonValue


def quantization_table(document: JsonObject) -> Table:
    """Sizes, types and tau; ``document`` is that of ``dspark quantize --json``."""
    before, after = _object(document["before"]), _object(document["after"])
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("", style="bold")
    table.add_column("before", justify="right")
    table.add_column("after", justify="right")
    table.add_column("", style="dim")
    table.add_row("size", _megabytes(before["size"]), _megabytes(after["size"]), "MB")
    bits = (_number(file["bits_per_weight"]) for file in (before, after))
    table.add_row("bits", *bits, "of the file per weight")
    types = _object(before["types"]), _object(after["types"])
    for name in dict.fromkeys(name for counts in types for name in counts):
        table.add_row(name, *(str(counts.get(name, "")) for counts in types), "tensors")
    if document["measured"] is not None:
        found = _object(document["measured"])
        table.add_row(
            "tau",
            _number(found["tau_before"]),
            _number(found["tau_after"]),
            f"{found['prompts']} built-in prompts, up to {found['tokens']} tokens each",
        )
    return table


def remarks(document: JsonObject) -> Iterator[str]:
    """What became of tensors that did not get the type that was asked for."""
    kept = _object(document["kept"])
    if kept:
        heads = ", ".join(f"{name} {kind}" for name, kind in kept.items())
        yield f"the small heads are kept: {heads} (--pure quantises them too)"
    fallbacks = document["fallbacks"]
    rows = map(_object, fallbacks if isinstance(fallbacks, list) else ())
    for (row, kind), count in Counter((item["row"], item["type"]) for item in rows).items():
        yield (
            f"{count} tensor{'s' * (count > 1)} with rows of {row} became {kind}: such rows are "
            f"no whole blocks of {document['type']}"
        )


def _object(value: JsonValue) -> JsonObject:
    return value if isinstance(value, dict) else {}


def _megabytes(value: JsonValue) -> str:
    return f"{value / 1e6:,.2f}" if isinstance(value, int) else "n/a"


def _number(value: JsonValue) -> str:
    return f"{value:.2f}" if isinstance(value, float) else "n/a"
