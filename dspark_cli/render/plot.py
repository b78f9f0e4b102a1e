"""What a bench measured, as a picture; needs matplotlib, which the extra ``plot`` installs."""

import io
from pathlib import Path

from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from dspark_cli.errors import DsparkError
from dspark_cli.stats import JsonObject, JsonValue

DOTS_PER_INCH = 110
ROOM_FOR_LEGEND = 1.15  # times the highest bar


def draw(document: JsonObject, path: Path) -> None:
    """Speed by category, acceptance by position, cost by length, side by side; PNG."""
    arms = document["arms"]
    if not isinstance(arms, dict):
        raise TypeError("a bench document has arms")
    figure = Figure(figsize=(14, 4), layout="constrained")
    speed, acceptance, costs = figure.subplots(1, 3, width_ratios=(1.4, 1, 1))
    drafted = {
        name: arm for name, arm in arms.items() if isinstance(arm, dict) and name != "plain"
    }
    width = 0.8 / max(len(drafted), 1)
    for index, (name, arm) in enumerate(drafted.items()):
        ratios = {"all": arm["ratio_to_plain"], **_object(arm["by_category"])}
        places = [place + (index - (len(drafted) - 1) / 2) * width for place in range(len(ratios))]
        bars = speed.bar(places, [_number(value) for value in ratios.values()], width, label=name)
        speed.bar_label(bars, fmt="%.2f", fontsize=8)
        speed.set_xticks(range(len(ratios)), list(ratios))
        rates = arm["conditional_acceptance_rate_per_pos"]
        if isinstance(rates, list) and rates:
            acceptance.plot(
                range(1, len(rates) + 1),
                [100 * _number(rate) for rate in rates],
                marker="o",
                label=name,
            )
    speed.axhline(1, color="grey", linewidth=0.8, linestyle="--")
    speed.set(title="speed, plain decoding = 1", ylabel="times")
    speed.set_ylim(top=speed.get_ylim()[1] * ROOM_FOR_LEGEND)
    acceptance.set(
        title="accepted, if all before were", xlabel="draft position", ylabel="%", ylim=(0, 105)
    )
    acceptance.grid(alpha=0.3)
    for name in ("score", "draft"):
        seconds = document[f"{name}_seconds"]
        if isinstance(seconds, list):
            costs.plot([1e3 * _number(value) for value in seconds], marker="o", label=name)
    costs.set(title="cost", xlabel="draft tokens", ylabel="ms")
    costs.set_ylim(bottom=0)
    costs.grid(alpha=0.3)
    for axes in (acceptance, costs):
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    for axes in (speed, acceptance, costs):
        if axes.get_legend_handles_labels()[0]:
            axes.legend(ncols=4 if axes is speed else 1)
    picture = io.BytesIO()
    figure.savefig(picture, format="png", dpi=DOTS_PER_INCH)
    try:
        path.write_bytes(picture.getvalue())
    except OSError as error:
        raise DsparkError(f"{path}: cannot be written: {error.strerror}") from None


def _object(value: JsonValue) -> JsonObject:
    return value if isinstance(value, dict) else {}


def _number(value: JsonValue) -> float:
    return float(value) if isinstance(value, float | int) else float("nan")
