"""``dspark quantize``: a smaller file of the same model."""

import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from dspark_cli.cli import params
from dspark_cli.cli.llama import require_llama
from dspark_cli.cli.out import check_out
from dspark_cli.errors import INTERRUPTED_EXIT_CODE, InterruptedRunError, UsageError
from dspark_cli.metadata import Metadata, read_metadata
from dspark_cli.models import find_drafter, find_target
from dspark_cli.options import MemoryOptions, PairOptions
from dspark_cli.plan import survey_pair
from dspark_cli.render.jsonl import JsonWriter
from dspark_cli.render.messages import note, show_answer
from dspark_cli.render.quantization import quantization_table, remarks
from dspark_cli.render.streams import answer_stream
from dspark_cli.render.training import training_progress

if TYPE_CHECKING:
    from dspark_cli.quantize.order import Order
    from dspark_cli.quantize.report import Measured

PROMPTS = 12  # built-in ones that --measure decodes
TOKENS = 64  # of each


def quantize(
    source: Annotated[
        str,
        params.argument(
            "IN",
            help="Target or drafter GGUF, or [b]smollm2[/b] or [b]builtin[/b]: the target of that "
            "name, with -m its drafter.",
        ),
    ],
    out: Annotated[Path, params.argument("OUT", help="The file to write.")],
    type_name: Annotated[
        str, params.argument("TYPE", help="What to store weights as: Q8_0, Q4_K_M, Q4_0, F16, ...")
    ],
    model: Annotated[
        str | None,
        params.option(
            "-m",
            "--model",
            help="The target of the drafter IN, which must fit it before and after.",
            panel=params.MODELS,
            metavar="FILE",
        ),
    ] = None,
    measure: Annotated[
        bool,
        params.option(
            "--measure",
            help="Decode built-in prompts with both drafters, and compare tau; needs -m.",
            panel=params.QUANTIZING,
        ),
    ] = False,
    pure: Annotated[
        bool,
        params.option(
            "--pure",
            help="Every matrix in the main type of TYPE, a drafter's small heads too.",
            panel=params.QUANTIZING,
        ),
    ] = False,
    allow_requantize: Annotated[
        bool,
        params.option(
            "--allow-requantize",
            help="Take an IN that is quantised already.",
            panel=params.QUANTIZING,
        ),
    ] = False,
    force: Annotated[
        bool, params.option("--force", help="Replace OUT.", panel=params.QUANTIZING)
    ] = False,
    threads: params.Threads = None,
    json_document: params.Json = False,
) -> int:
    """Write IN with smaller weights to OUT, by llama.cpp's own quantiser."""
    from dspark_cli.quantize.order import Order, check_order
    from dspark_cli.quantize.types import find_type

    wanted = find_type(type_name)
    memory = MemoryOptions(threads=threads)
    target = None if model is None else find_target(model)
    metadata = read_metadata(find_target(source) if target is None else find_drafter(source))
    order = Order(metadata, out, wanted, memory.target_threads, pure, allow_requantize)
    check_order(order)
    check_out(out, force=force, name="OUT")
    check_measurable(order, target, measure=measure)
    if target is not None:
        survey_pair(PairOptions(target, metadata.path, memory=memory)).plan()
    require_llama()
    from dspark_cli.native.interrupt import ctrl_c_sets_flag
    from dspark_cli.quantize.process import carry_out
    from dspark_cli.quantize.report import QuantizationReport

    def fits(written: Metadata) -> None:
        if target is not None:
            survey_pair(PairOptions(target, written.path, memory=memory)).plan()

    began = time.perf_counter()
    with training_progress("quantising", "") as progress:
        written = carry_out(order, fits, progress)
    report = QuantizationReport(order, written, time.perf_counter() - began)
    if measure and target is not None:
        try:
            with ctrl_c_sets_flag():
                report = replace(report, measured=measured(order, target, memory))
        except InterruptedRunError:
            note(f"interrupted; {out} is written, and not measured")
            return INTERRUPTED_EXIT_CODE
    document = report.as_json()
    if json_document:
        JsonWriter(answer_stream()).write(document, indent=2)
    else:
        for remark in remarks(document):
            note(remark)
        show_answer(quantization_table(document))
    return 0


def check_measurable(order: "Order", target: Path | None, *, measure: bool) -> None:
    """Raise UsageError where a target is given for no drafter, or none to measure with."""
    source = order.source
    if target is not None and not order.is_drafter:
        raise UsageError(
            f"-m names the target of a drafter, and {source.path} is none: its architecture is "
            f"{source.architecture}"
        )
    if measure and target is None:
        raise UsageError(
            "--measure decodes with a drafter and its target", hint="give its target with -m FILE"
        )


def measured(order: "Order", target: Path, memory: MemoryOptions) -> "Measured":
    """Tau before and after on the same prompts; raises InterruptedRunError after Ctrl-C."""
    from dspark_cli.cli.calibrate import tokenized
    from dspark_cli.generate import run_to_end
    from dspark_cli.pair import open_pair
    from dspark_cli.quantize.report import Measured
    from dspark_cli.stats import Statistics

    prompts: list[list[int]] = []
    found: list[Statistics] = []
    with training_progress("measuring", "") as progress:
        for drafter in (order.source.path, order.out):
            total = Statistics()
            with open_pair(PairOptions(target, drafter, memory=memory)) as pair:
                prompts = prompts or tokenized(pair, None, PROMPTS)
                for done, prompt in enumerate(prompts, start=1 + len(prompts) * len(found)):
                    total.merge(run_to_end(pair, prompt, TOKENS))
                    progress(done, 2 * len(prompts), drafter.name)
            found.append(total)
    before, after = found
    return Measured(len(prompts), TOKENS, before, after)
