"""``dspark train``: a drafter for a target of your own, in three steps."""

import math
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from dspark_cli.cli import params
from dspark_cli.cli import train_params as options
from dspark_cli.cli.llama import require_llama, require_torch
from dspark_cli.cli.out import check_out
from dspark_cli.contract import read_drafter, read_target
from dspark_cli.errors import INTERRUPTED_EXIT_CODE, InterruptedRunError, UsageError
from dspark_cli.metadata import read_metadata
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


STEPS = {
    options.StepChoice.all: ("collect", "fit", "export"),
    options.StepChoice.collect: ("collect",),
    options.StepChoice.fit: ("fit",),
    options.StepChoice.export: ("export",),
}


TORCH = {"fit", "export"}  # the steps that need PyTorch


def train(
    model: params.TrainedModel,
    out: options.Out,
    step: options.Step = options.StepChoice.all,
    resume: options.Resume = None,
    work: options.Work = None,
    prompts: options.Prompts = None,
    tokens: options.Tokens = 300_000,
    answer_tokens: options.AnswerTokens = 256,
    lanes: options.Lanes = 32,
    max_disk: options.MaxDisk = None,
    store_taps: options.StoreTaps = True,
    taps: options.Taps = "auto",
    layers: options.Layers = 2,
    block_size: options.BlockSize = 5,
    markov_rank: options.MarkovRank = 64,
    draft_vocab: options.DraftVocab = None,
    start_from: options.StartFrom = None,
    out_type: options.OutType = options.OutTypeChoice.f16,
    minutes: options.Minutes = 30.0,
    learning_rate: options.LearningRate = 1e-3,
    device: options.Device = "auto",
    seed: options.Seed = 0,
    threads: params.Threads = None,
    force: options.Force = False,
    json_document: params.Json = False,
) -> int:
    """Train a drafter for MODEL on the target's own words, and write it to OUT."""
    steps = STEPS[step]
    target = find_target(model)
    folder = training_folder(out, work, resume)
    if "export" in steps:
        check_out(out, force=force)
    require_llama()
    if TORCH & set(steps):
        require_torch()
    from dspark_cli.train.design import DesignOptions, design_drafter
    from dspark_cli.train.pipeline import CollectOptions, ExportOptions
    from dspark_cli.train.questions import read_prompts

    if draft_vocab == 1:
        raise UsageError("--draft-vocab wants 0 (all) or at least 2 tokens, got 1")
    # An hour of collecting is a long wait for a misspelt name.
    if "collect" in steps and prompts is not None:
        read_prompts(prompts)
    if "fit" in steps and start_from is not None:
        check_start(start_from, target)
    fit = None
    if TORCH & set(steps):
        fit = fit_options(minutes, learning_rate, seed, device, threads)
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
            max_disk=bytes_of(max_disk),
            threads=threads,
        ),
        fit=fit,
        export=ExportOptions(out_type=out_type.value, threads=threads),
    )
    return training.run(steps, json_document=json_document)


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
                note(f"interrupted; the same command goes on with --resume {self.folder}")
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
                    begin="fit" in steps,
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
                self.target,
                self.design,
                teaching,
                self.export,
                self.out,
                self.folder,
                progress=progress,
            )
        page = write_report(report, self.folder)
        note(f"report: {page}")
        if json_document:
            JsonWriter(answer_stream()).write(report.as_json())
        else:
            show_answer(training_table(report.as_json()))


def check_start(start: Path, target: Path) -> None:
    """Refuse an earlier drafter that was made for another target."""
    drafter, shape = read_drafter(read_metadata(start)), read_target(read_metadata(target))
    if drafter.dialect not in {"dspark", "dflash"} or drafter.width != shape.width:
        raise UsageError(f"--start-from {start}: is no drafter for {shape.name}")
    if drafter.tokens is None or shape.tokens is None or drafter.tokens.raw != shape.tokens.raw:
        raise UsageError(f"--start-from {start}: has another vocabulary than {shape.name}")


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
    """Check what only PyTorch can check, before anything is collected."""
    from dspark_cli.train.fit import FitOptions, choose_device

    choose_device(device)
    return FitOptions(
        minutes=minutes,
        learning_rate=learning_rate,
        seed=seed,
        device=device,
        threads=threads,
    )


def bytes_of(gib: float | None) -> int | None:
    """``--max-disk`` in bytes."""
    if gib is None:
        return None
    if not 0 < gib < math.inf:
        raise UsageError(f"--max-disk wants more than 0 GiB, got {gib}")
    return int(gib * GIB)


def parse_taps(text: str) -> tuple[int, ...] | None:
    """``auto``, or layer numbers between commas."""
    if text == "auto":
        return None
    try:
        return tuple(int(word) for word in text.split(","))
    except ValueError:
        raise UsageError(f"--taps wants auto or layers as 2,8,15, got {text}") from None
