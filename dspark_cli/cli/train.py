"""``dspark train``: a drafter for a target of your own, in three steps."""

from contextlib import ExitStack
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from dspark_cli.cli import params
from dspark_cli.cli.llama import require_llama, require_torch
from dspark_cli.errors import INTERRUPTED_EXIT_CODE, InterruptedRunError, UsageError
from dspark_cli.models import find_target
from dspark_cli.render.jsonl import JsonWriter
from dspark_cli.render.messages import note, show_answer, warn
from dspark_cli.render.streams import answer_stream
from dspark_cli.render.training import training_progress, training_table

if TYPE_CHECKING:
    from dspark_cli.train.design import DrafterDesign
    from dspark_cli.train.fit import FitOptions
    from dspark_cli.train.pipeline import CollectOptions, ExportOptions, Teaching

GIB = 2**30


class Step(str, Enum):
    all = "all"
    collect = "collect"
    fit = "fit"
    export = "export"


STEPS = {
    Step.all: ("collect", "fit", "export"),
    Step.collect: ("collect",),
    Step.fit: ("fit",),
    Step.export: ("export",),
}


class OutTypeChoice(str, Enum):
    f32 = "f32"
    f16 = "f16"
    q8_0 = "q8_0"
    q4_0 = "q4_0"


def train(
    model: params.TrainedModel,
    out: Annotated[
        Path,
        params.option("-o", "--out", help="The drafter to write.", panel=params.MODELS),
    ],
    step: Annotated[
        Step, params.option("--step", help="Do only this step.", panel=params.TRAINING)
    ] = Step.all,
    resume: Annotated[
        Path | None,
        params.option(
            "--resume",
            help="Go on in this folder of an earlier training.",
            panel=params.TRAINING,
            metavar="DIR",
        ),
    ] = None,
    work: Annotated[
        Path | None,
        params.option(
            "--work",
            help="Folder for dataset, checkpoints and report.  [dim]default: OUT.train[/dim]",
            panel=params.TRAINING,
            metavar="DIR",
        ),
    ] = None,
    prompts: Annotated[
        Path | None,
        params.option(
            "--prompts",
            help="What the target is asked, as in [b]run[/b].  [dim]default: built-in prompts, or "
            "none where the target has no chat template[/dim]",
            panel=params.COLLECT,
            metavar="FILE",
        ),
    ] = None,
    tokens: Annotated[
        int,
        params.option(
            "--tokens", help="Tokens of prompts and answers to collect.", panel=params.COLLECT
        ),
    ] = 300_000,
    answer_tokens: Annotated[
        int, params.option("--answer-tokens", help="The longest answer.", panel=params.COLLECT)
    ] = 256,
    lanes: Annotated[
        int, params.option("--lanes", help="Answers per batch.", panel=params.COLLECT)
    ] = 32,
    max_disk: Annotated[
        float | None,
        params.option(
            "--max-disk", help="The largest dataset.", panel=params.COLLECT, metavar="GIB"
        ),
    ] = None,
    store_taps: Annotated[
        bool,
        params.option(
            "--store-taps/--no-store-taps",
            help="Keep taps on disk, or compute them again while fitting.",
            panel=params.COLLECT,
        ),
    ] = True,
    taps: Annotated[
        str,
        params.option(
            "--taps",
            help="Layers whose inputs the drafter reads, as 2,8,15, or [b]auto[/b].",
            panel=params.DRAFTER,
        ),
    ] = "auto",
    layers: Annotated[
        int, params.option("--layers", help="Blocks of the drafter.", panel=params.DRAFTER)
    ] = 2,
    block_size: Annotated[
        int, params.option("--block-size", help="Tokens per draft.", panel=params.DRAFTER)
    ] = 5,
    markov_rank: Annotated[
        int, params.option("--markov-rank", help="Rank of the Markov head.", panel=params.DRAFTER)
    ] = 64,
    draft_vocab: Annotated[
        int | None,
        params.option(
            "--draft-vocab",
            help="Most frequent tokens that may be proposed; 0 is all.  [dim]default: "
            "as many as make up 99 % of the answers[/dim]",
            panel=params.DRAFTER,
            min=0,
        ),
    ] = None,
    start_from: Annotated[
        Path | None,
        params.option(
            "--start-from",
            help="An earlier drafter of the same target, whose weights are gone on with.",
            panel=params.DRAFTER,
            metavar="FILE",
        ),
    ] = None,
    out_type: Annotated[
        OutTypeChoice,
        params.option("--out-type", help="How weights are stored.", panel=params.DRAFTER),
    ] = OutTypeChoice.f16,
    minutes: Annotated[
        float,
        params.option(
            "--minutes", help="Minutes of fitting, all sessions together.", panel=params.FITTING
        ),
    ] = 30.0,
    learning_rate: Annotated[
        float, params.option("--learning-rate", help="At its highest.", panel=params.FITTING)
    ] = 1e-3,
    device: Annotated[
        str, params.option("--device", help="auto, cpu, cuda or mps.", panel=params.FITTING)
    ] = "auto",
    seed: Annotated[
        int, params.option("--seed", help="Of everything random.", panel=params.TRAINING)
    ] = 0,
    threads: params.Threads = None,
    force: Annotated[
        bool, params.option("--force", help="Replace OUT.", panel=params.TRAINING)
    ] = False,
    json_document: params.Json = False,
) -> int:
    """Train a drafter for MODEL on the target's own words, and write it to OUT."""
    steps = STEPS[step]
    target = find_target(model)
    folder = training_folder(out, work, resume)
    if "export" in steps and out.exists() and not force:
        raise UsageError(f"{out}: exists already", hint="give another name, or --force")
    require_llama()
    if "fit" in steps or "export" in steps:
        require_torch()
    from dspark_cli.train.design import DesignOptions, design_drafter
    from dspark_cli.train.pipeline import CollectOptions, ExportOptions

    training = Training(
        target=target,
        design=design_drafter(
            target, DesignOptions(layers, block_size, parse_taps(taps), markov_rank)
        ),
        out=out,
        folder=folder,
        draft_vocabulary=draft_vocab,
        start=start_from,
        collect=CollectOptions(
            tokens=tokens,
            prompts=prompts,
            answer_tokens=answer_tokens,
            lanes=lanes,
            seed=seed,
            store_taps=store_taps,
            max_disk=None if max_disk is None else int(max_disk * GIB),
            threads=threads,
        ),
        fit=fit_options(minutes, learning_rate, seed, device, threads)
        if TORCH & set(steps)
        else None,
        export=ExportOptions(out_type=out_type.value, threads=threads),
    )
    return training.run(steps, json_document=json_document)


TORCH = {"fit", "export"}  # the steps that need PyTorch


@dataclass(frozen=True, slots=True)
class Training:
    """One training: where it is kept, and the options of its steps."""

    target: Path
    design: "DrafterDesign"
    out: Path
    folder: Path
    draft_vocabulary: int | None
    start: Path | None
    collect: "CollectOptions"
    fit: "FitOptions | None"  # None where no step needs it
    export: "ExportOptions"

    def run(self, steps: tuple[str, ...], *, json_document: bool) -> int:
        from dspark_cli.native.interrupt import ctrl_c_sets_flag

        with ctrl_c_sets_flag():
            try:
                if "collect" in steps:
                    self._collect()
                if self.fit is not None:
                    self._teach(self.fit, steps, json_document=json_document)
            except InterruptedRunError:
                note(f"interrupted; go on with --resume {self.folder}")
                return INTERRUPTED_EXIT_CODE
        return 0

    def _collect(self) -> None:
        from dspark_cli.train.pipeline import DATASET, check_disk, collect, projected_bytes

        projected = projected_bytes(self.design, self.collect)
        note(
            f"the dataset in {self.folder / DATASET} will take {projected / GIB:.2f} GiB for "
            f"{self.collect.tokens:,} tokens of {self.target.name}"
        )
        check_disk(self.design, self.collect, self.folder)
        with training_progress("collect", "tokens") as progress:
            collected = collect(
                self.target, self.design, self.collect, self.folder, progress=progress
            )
        if collected.tokens < self.collect.tokens:
            warn(
                f"the prompts were used up at {collected.tokens:,} tokens, wanted "
                f"{self.collect.tokens:,}: give more --prompts"
            )
        if collected.skipped:
            note(f"{collected.skipped} prompts were too long and not asked")

    def _teach(self, fit: "FitOptions", steps: tuple[str, ...], *, json_document: bool) -> None:
        from dspark_cli.train.pipeline import open_teaching

        with ExitStack() as owned:
            teaching = owned.enter_context(
                open_teaching(
                    self.target,
                    self.design,
                    fit,
                    self.folder,
                    draft_vocabulary=self.draft_vocabulary,
                    start=self.start,
                )
            )
            if "fit" in steps:
                with training_progress("fit", "") as progress:
                    teaching.fit.run(progress)
            if "export" in steps:
                self._export(teaching, json_document=json_document)

    def _export(self, teaching: "Teaching", *, json_document: bool) -> None:
        from dspark_cli.train.pipeline import export
        from dspark_cli.train.report import write_report

        with training_progress("export", "") as progress:
            report = export(
                self.target, self.design, teaching, self.export, self.out, progress=progress
            )
        page = write_report(report, self.folder)
        note(f"report: {page}")
        if json_document:
            JsonWriter(answer_stream()).write(report.as_json())
        else:
            show_answer(training_table(report.as_json()))


def training_folder(out: Path, work: Path | None, resume: Path | None) -> Path:
    """Where a training is kept: a new folder, or that of an earlier one."""
    if work is not None and resume is not None:
        raise UsageError("--work and --resume contradict each other")
    if resume is not None:
        if not resume.is_dir():
            raise UsageError(f"--resume {resume}: no such folder")
        return resume
    folder = work or out.with_name(out.name + ".train")
    if folder.is_dir() and any(folder.iterdir()):
        raise UsageError(
            f"{folder}: holds a training already",
            hint=f"go on with --resume {folder}, or give another folder with --work",
        )
    return folder


def fit_options(
    minutes: float, learning_rate: float, seed: int, device: str, threads: int | None
) -> "FitOptions":
    from dspark_cli.train.fit import FitOptions

    return FitOptions(
        minutes=minutes,
        learning_rate=learning_rate,
        seed=seed,
        device=device,
        threads=threads,
    )


def parse_taps(text: str) -> tuple[int, ...] | None:
    """``auto``, or layer numbers between commas."""
    if text == "auto":
        return None
    try:
        return tuple(int(word) for word in text.split(","))
    except ValueError:
        raise UsageError(f"--taps wants auto or layers as 2,8,15, got {text}") from None
