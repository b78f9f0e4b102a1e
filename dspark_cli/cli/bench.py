"""``dspark bench``: plain and speculative decoding of the same prompts, in turn."""

from contextlib import ExitStack
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from dspark_cli.cli import params
from dspark_cli.cli.llama import require_llama
from dspark_cli.cli.models import pair_paths
from dspark_cli.cli.schedules import prepared
from dspark_cli.errors import INTERRUPTED_EXIT_CODE, InterruptedRunError, UsageError
from dspark_cli.options import MemoryOptions, PairOptions
from dspark_cli.prompts import Prompt, read_jsonl
from dspark_cli.render.bench import bench_table
from dspark_cli.render.jsonl import JsonWriter
from dspark_cli.render.messages import note, show_answer, warn
from dspark_cli.render.streams import answer_stream
from dspark_cli.render.training import training_progress
from dspark_cli.schedule import ScheduleKind, ScheduleOptions
from dspark_cli.stats import JsonObject

if TYPE_CHECKING:
    from dspark_cli.bench import BenchPrompt
    from dspark_cli.pair import Pair

PER_CATEGORY = 4  # built-in prompts
SEED = 2  # of the built-in prompts: others than those that a calibration uses
KINDS: tuple[ScheduleKind, ...] = ("fixed", "auto")
OTHER = "prompts"  # the category of those that name none


def bench(
    model: params.Model = None,
    model_draft: params.Draft = None,
    prompts: params.PromptsFile = None,
    limit: params.Limit = None,
    schedules: Annotated[
        str,
        params.option(
            "--schedules", help="Which are compared, between commas.", panel=params.SPECULATION
        ),
    ] = "fixed,auto",
    trials: Annotated[
        int,
        params.option("--trials", help="Runs of every prompt.", panel=params.OUTPUT, min=1),
    ] = 3,
    n_predict: Annotated[
        int,
        params.option("-n", "--n-predict", help="Tokens per run.", panel=params.LENGTH, min=1),
    ] = 128,
    ctx_size: params.CtxSize = None,
    threads: params.Threads = None,
    threads_draft: params.ThreadsDraft = None,
    n_gpu_layers: params.GpuLayers = None,
    n_gpu_layers_draft: params.GpuLayersDraft = None,
    flash_attn: params.FlashAttention = params.FlashAttentionChoice.auto,
    cache_type_k: params.CacheTypeK = "f16",
    cache_type_v: params.CacheTypeV = "f16",
    cache_type_k_draft: params.CacheTypeKDraft = "f16",
    cache_type_v_draft: params.CacheTypeVDraft = "f16",
    draft_window: params.DraftWindow = None,
    no_calibration: params.NoCalibration = False,
    plot: Annotated[
        Path | None,
        params.option("--plot", help="Draw it, as PNG.", panel=params.OUTPUT, metavar="FILE"),
    ] = None,
    json_document: params.Json = False,
) -> int:
    """Compare the speed of plain and of speculative decoding on this machine."""
    kinds = parse_schedules(schedules)
    target, drafter = pair_paths(model, model_draft)
    memory = MemoryOptions(
        ctx_size=ctx_size,
        threads=threads,
        threads_draft=threads_draft,
        gpu_layers=n_gpu_layers,
        gpu_layers_draft=n_gpu_layers_draft,
        flash_attention=flash_attn.value,
        cache_type_k=cache_type_k,
        cache_type_v=cache_type_v,
        cache_type_k_draft=cache_type_k_draft,
        cache_type_v_draft=cache_type_v_draft,
        draft_window=draft_window,
    )
    texts = built_in(limit) if prompts is None else [*read_jsonl(prompts)][:limit]
    if plot is not None and not plot.absolute().parent.is_dir():
        raise UsageError(f"--plot {plot}: wanted a file in a folder that exists")
    require_llama()
    from dspark_cli.bench import PLAIN, Arm, fitting, run_bench
    from dspark_cli.native.interrupt import ctrl_c_sets_flag
    from dspark_cli.pair import open_pair

    with ExitStack() as owned:
        owned.enter_context(ctrl_c_sets_flag())
        pair = owned.enter_context(open_pair(PairOptions(target, drafter, memory=memory)))
        # A context of its own, without taps: plain decoding pays for nothing that it does not use.
        alone = owned.enter_context(open_pair(PairOptions(target, None, memory=memory)))
        arms = [Arm(PLAIN, alone, ScheduleOptions())]
        for kind in kinds:
            schedule = prepared(pair, ScheduleOptions(kind), kept=not no_calibration)
            arms.append(Arm(kind, pair, schedule))
        questions, dropped = fitting(tokenized(pair, texts), pair.room, n_predict)
        if dropped:
            warn(f"{dropped} prompts leave no room for {n_predict} tokens and are left out")
        try:
            with training_progress("measuring", "") as progress:
                found = run_bench(
                    arms, questions, tokens=n_predict, trials=trials, progress=progress
                )
        except InterruptedRunError:
            note("interrupted; there is nothing to compare")
            return INTERRUPTED_EXIT_CODE
    document = found.as_json()
    if plot is not None:
        draw_plot(document, plot)
    if json_document:
        JsonWriter(answer_stream()).write(document)
    else:
        show_answer(bench_table(document))
    return 0


def parse_schedules(text: str) -> list[ScheduleKind]:
    """Names between commas; raises UsageError for others than ``fixed`` and ``auto``."""
    names = [name.strip() for name in text.split(",")]
    if len(set(names)) != len(names) or set(names) - set(KINDS):
        raise UsageError(f"--schedules wants some of {', '.join(KINDS)}, got {text}")
    return [kind for kind in KINDS if kind in names]


def built_in(limit: int | None) -> list[Prompt]:
    """Some built-in prompts of every category."""
    from dspark_cli.train.templates import CATEGORIES, written_prompts

    left = dict.fromkeys(CATEGORIES, PER_CATEGORY)
    chosen = []
    for prompt in written_prompts(SEED):
        if left[prompt.category]:
            left[prompt.category] -= 1
            chosen.append(Prompt(prompt.text, "built-in", prompt.category))
        if not any(left.values()):
            break
    return list(islice(chosen, limit))


def tokenized(pair: "Pair", prompts: list[Prompt]) -> "list[BenchPrompt]":
    """Prompts as the target wants them: in its chat template where it has one."""
    from dspark_cli.bench import BenchPrompt
    from dspark_cli.generate import own_tokens

    return [
        BenchPrompt(tuple(own_tokens(pair.vocabulary, prompt.text)), prompt.category or OTHER)
        for prompt in prompts
    ]


def draw_plot(document: JsonObject, path: Path) -> None:
    """Draw the comparison; raises DsparkError where matplotlib is missing."""
    from dspark_cli.errors import DsparkError

    try:
        from dspark_cli.render.plot import draw
    except ImportError as error:
        raise DsparkError(
            f"--plot needs matplotlib: {error}", hint="pip install 'dspark-cli[plot]'"
        ) from None
    draw(document, path)
