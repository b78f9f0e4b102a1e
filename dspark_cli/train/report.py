"""What a training came to: the numbers, as a page of Markdown and as a picture."""

import io
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import numpy as np
from matplotlib.figure import Figure

from dspark_cli.confidence import BINS, PositionCalibration, chances
from dspark_cli.files import write_atomically
from dspark_cli.stats import JsonObject, Statistics
from dspark_cli.train.design import DrafterDesign, OutType
from dspark_cli.train.faithful import Faithfulness
from dspark_cli.train.fit import Judgement, Moment

DOTS_PER_INCH = 110


@dataclass(frozen=True, slots=True)
class Data:
    """What was learned from."""

    prompts: str
    answers: int
    tokens: int
    held_out: int  # answers


@dataclass(frozen=True, slots=True)
class TrainingReport:
    """One training, from its data to the file that it left."""

    design: DrafterDesign
    out: Path
    out_type: OutType
    data: Data
    draft_vocabulary: int
    curve: tuple[Moment, ...]
    minutes: float  # of fitting, all sessions together
    steps: int
    judgement: Judgement  # PyTorch's, at every anchor of the greedy held-out answers
    calibration: tuple[PositionCalibration, ...]
    faithful: Faithfulness
    drafted: Statistics  # llama.cpp's, decoding held-out prompts
    speed_ratios: tuple[float, ...]  # of each such prompt, to plain decoding

    @property
    def tau(self) -> float:
        return self.judgement.tau

    @property
    def speed_ratio(self) -> float | None:
        return median(self.speed_ratios) if self.speed_ratios else None

    def as_json(self) -> JsonObject:
        """The numbers for scripts."""
        return {
            "drafter": self.out.name,
            "size": self.out.stat().st_size,
            "out_type": self.out_type,
            "target": self.design.fingerprint.name,
            "block_size": self.design.block_size,
            "target_layers": list(self.design.taps),
            "draft_vocabulary": self.draft_vocabulary,
            "dataset_tokens": self.data.tokens,
            "dataset_answers": self.data.answers,
            "fit_minutes": self.minutes,
            "fit_steps": self.steps,
            "held_out_answers": self.data.held_out,
            "held_out_rounds": len(self.judgement.rounds),
            "held_out_tau": self.tau,
            "conditional_acceptance_rate_per_pos": [*self.judgement.conditional],
            "confidence_temperatures": [item.temperature for item in self.calibration],
            "calibration_error_before": [item.error_before for item in self.calibration],
            "calibration_error_after": [item.error_after for item in self.calibration],
            "same_proposals": self.faithful.rate,
            "compared_blocks": self.faithful.blocks,
            "largest_gap_at_difference": max(self.faithful.gaps, default=None),
            "confidence_error": self.faithful.confidence_error,
            "decoded_tau": self.drafted.mean_acceptance_length,
            "speed_ratio_to_plain": self.speed_ratio,
        }


def write_report(report: TrainingReport, folder: Path) -> Path:
    """Write ``report.md`` and ``report.png`` into ``folder``; returns the page's path."""
    draw(report, folder / "report.png")
    page = folder / "report.md"
    write_atomically(page, markdown(report).encode())
    return page


def markdown(report: TrainingReport) -> str:
    """The page, with the numbers of ``as_json`` in words."""
    design, data, faithful = report.design, report.data, report.faithful
    size = report.out.stat().st_size / 1e6
    gaps = ", ".join(f"{gap:.4f}" for gap in faithful.gaps[-5:]) or "none"
    lines = [
        f"# {report.out.name}",
        "",
        (
            f"A DSpark drafter for {design.fingerprint.name}: {design.layers} layers, block of "
            f"{design.block_size}, taps {list(design.taps)}, Markov rank {design.markov_rank}, "
            f"draft vocabulary {report.draft_vocabulary} of {design.vocabulary}, "
            f"{report.out_type.upper()}, {size:.1f} MB."
        ),
        "",
        "| | |",
        "|---|---|",
        f"| prompts | {data.prompts} |",
        f"| data | {data.tokens:,} tokens in {data.answers:,} answers of the target's own |",
        f"| held out | {data.held_out} answers, their prompts in no training batch |",
        f"| fit | {report.minutes:.0f} minutes, {report.steps:,} steps |",
        f"| held-out tau | **{report.tau:.2f}** over {len(report.judgement.rounds):,} rounds |",
        (
            f"| decoded with llama.cpp | tau {_number(report.drafted.mean_acceptance_length)} "
            f"over {report.drafted.num_spec_steps} rounds of held-out prompts |"
        ),
        (
            f"| speed | {_number(report.speed_ratio)} times plain decoding, median of "
            f"{len(report.speed_ratios)} prompts, alternating, on this machine |"
        ),
        (
            f"| PyTorch and llama.cpp | {faithful.same} of {faithful.blocks} held-out blocks "
            f"equal; confidences differ by at most {faithful.confidence_error:.4f} |"
        ),
        f"| where blocks part | gap of the two likeliest tokens, in logits: {gaps} |",
        "",
        (
            "| draft position | accepted if all before were | labels | temperature | "
            "calibration error before | after |"
        ),
        "|---|---|---|---|---|---|",
    ]
    rates = report.judgement.conditional
    for place, (rate, item) in enumerate(zip(rates, report.calibration, strict=True), 1):
        lines.append(
            f"| {place} | {_percent(rate)} | {item.labels:,} | {item.temperature:.2f} | "
            f"{_number(item.error_before, 3)} | {_number(item.error_after, 3)} |"
        )
    lines += ["", "![learning curve, acceptance, calibration](report.png)", ""]
    return "\n".join(lines)


def draw(report: TrainingReport, path: Path) -> None:
    """Learning curve, acceptance by position and calibration, side by side; PNG."""
    figure = Figure(figsize=(12, 3.8), layout="constrained")
    curve, acceptance, calibration = figure.subplots(1, 3)
    minutes = [moment.minutes for moment in report.curve]
    curve.plot(minutes, [moment.tau for moment in report.curve], marker="o", markersize=3)
    curve.set(title="held-out tau while fitting", xlabel="minutes", ylabel="tokens per round")
    curve.grid(alpha=0.3)
    rates = report.judgement.conditional
    bars = acceptance.bar(range(1, len(rates) + 1), [100 * (rate or 0) for rate in rates])
    acceptance.bar_label(bars, fmt="%.0f %%")
    acceptance.set(
        title="accepted, if all before were", xlabel="draft position", ylim=(0, 105), ylabel="%"
    )
    predicted, happened = _first_position(report)
    for temperature in (1.0, report.calibration[0].temperature):
        x, y = reliability(chances(predicted, temperature), happened)
        calibration.plot(x, y, marker="o", markersize=3, label=f"temperature {temperature:.2f}")
    calibration.plot([0, 1], [0, 1], color="grey", linewidth=0.8, linestyle="--")
    calibration.set(
        title="confidence at position 1", xlabel="predicted", ylabel="accepted", xlim=(0, 1),
        ylim=(0, 1),
    )  # fmt: skip
    calibration.legend()
    figure.suptitle(f"{report.out.name}: held-out tau {report.tau:.2f}")
    picture = io.BytesIO()
    figure.savefig(picture, format="png", dpi=DOTS_PER_INCH)
    write_atomically(path, picture.getvalue())


def reliability(
    predicted: np.ndarray, happened: np.ndarray, bins: int = BINS
) -> tuple[list[float], list[float]]:
    """Mean prediction and mean outcome of bins of equal mass."""
    order = predicted.argsort(kind="stable")
    parts = [part for part in np.array_split(order, bins) if len(part)]
    return (
        [float(predicted[part].mean()) for part in parts],
        [float(happened[part].mean()) for part in parts],
    )


def _first_position(report: TrainingReport) -> tuple[np.ndarray, np.ndarray]:
    real = report.judgement.real[:, 0]
    return report.judgement.confidence[real, 0], report.judgement.hits[real, 0]


def _number(value: float | None, digits: int = 2) -> str:
    return "n/a" if value is None else f"{value:.{digits}f}"


def _percent(value: float | None) -> str:
    return "n/a" if value is None else f"{value:.1%}"
