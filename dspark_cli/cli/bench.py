"""``dspark bench``: plain and speculative decoding of the same prompts, in turn."""

import os
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from dspark_cli.cli import params
from dspark_cli.cli.llama import require_llama
from dspark_cli.cli.models import pair_paths
from dspark_cli.cli.schedules import Scheduler
from dspark_cli.errors import INTERRUPTED_EXIT_CODE, InterruptedRunError, UsageError
from dspark_cli.options import MemoryOptions, PairOptions
from dspark_cli.prompts import Prompt, read_jsonl
from dspark_cli.render.bench import bench_table
from dspark_cli.render.jsonl import JsonWriter
from dspark_cli.render.messages import note, show_answer, warn
from dspark_cli.render.streams import answer_stream
from dspark_cli.render.training import training_progress
from dspark_cli.schedule import FIXED, ScheduleKind, ScheduleOptions
from dspark_cli.stats import JsonObject

if TYPE_CHECKING:
    from dspark_cli.bench import Arm, Bench, BenchPrompt
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
    depth: Annotated[
        int,
        params.option(
            "--depth",
            help="Tokens of other text before every prompt: speed at that depth of the context.",
            panel=params.LENGTH,
            min=0,
        ),
    ] = 0,
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
    oracle: Annotated[
        bool,
        params.option(
            "--oracle",
            help="Also a drafter that takes as long and is always right: what training could win.",
            panel=params.SPECULATION,
        ),
    ] = False,
    peer: Annotated[
        Path | None,
        params.option(
            "--peer",
            help="Also llama.cpp's own llama-speculative-simple, this binary of it, on the same "
            "files, prompts and threads.",
            panel=params.SPECULATION,
            metavar="PATH",
        ),
    ] = None,
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
    if peer is not None and not (peer.is_file() and os.access(peer, os.X_OK)):
        raise UsageError(f"--peer {peer}: wanted a program that can be run")
    require_llama()
    from dspark_cli.native.interrupt import ctrl_c_sets_flag
    from dspark_cli.pair import open_pair

    with ExitStack() as owned:
        owned.enter_context(ctrl_c_sets_flag())
        pair = owned.enter_context(open_pair(PairOptions(target, drafter, memory=memory)))
        # A context of its own, without taps: plain decoding pays for nothing that it does not use.
        alone = owned.enter_context(open_pair(PairOptions(target, None, memory=memory)))
        comparison = Comparison(
            pair, alone, kinds, trials, n_predict, depth, oracle=oracle, peer=peer
        )
        scheduler = Scheduler(pair, ScheduleOptions("auto"), kept=not no_calibration)
        auto = scheduler.reaching(pair.room)
        try:
            found = comparison.run(texts, auto)
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


@dataclass(frozen=True, slots=True)
class Comparison:
    """Which sides are compared, and how thoroughly."""

    pair: "Pair"
    alone: "Pair"  # the target without a drafter
    kinds: Sequence[ScheduleKind]
    trials: int
    tokens: int
    depth: int  # tokens of other text before every prompt
    oracle: bool
    peer: Path | None

    def run(self, texts: list[Prompt], auto: ScheduleOptions) -> "Bench":
        """Measure; raises InterruptedRunError after Ctrl-C."""
        from dspark_cli.bench import find_bounds, fitting, run_bench

        questions = tokenized(self.pair, texts, depth=self.depth)
        prompts, dropped = fitting(questions, self.pair.room, self.tokens)
        if dropped:
            warn(f"{dropped} prompts leave no room for {self.tokens} tokens and are left out")
        with training_progress("measuring", "") as progress:
            found = run_bench(
                self._arms(auto),
                prompts,
                tokens=self.tokens,
                trials=self.trials,
                progress=progress,
            )
        if auto.costs is not None:
            with training_progress("looking back", "") as progress:
                found.bounds = find_bounds(
                    self.pair, auto.costs, prompts, tokens=self.tokens, progress=progress
                )
        return found

    def _arms(self, auto: ScheduleOptions) -> "list[Arm]":
        from dspark_cli.bench import PLAIN, OracleArm, PeerArm, ScheduleArm
        from dspark_cli.peer import Peer

        drafter = self.pair.drafter
        if drafter is None:
            raise UsageError("there is no drafter to be compared with plain decoding")
        schedules = {"fixed": FIXED, "auto": auto}
        arms: list[Arm] = [
            ScheduleArm(PLAIN, self.alone, FIXED),
            *(ScheduleArm(kind, self.pair, schedules[kind]) for kind in self.kinds),
        ]
        if self.oracle:
            arms.append(OracleArm(self.pair, drafter, auto))
        if self.peer is not None:
            arms.append(PeerArm(Peer(self.peer, self.pair.plan, self.pair.vocabulary)))
        return arms


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


def tokenized(pair: "Pair", prompts: list[Prompt], *, depth: int = 0) -> "list[BenchPrompt]":
    """Prompts as the target wants them: in its chat template where it has one.

    ``depth`` tokens of built-in texts stand before each.
    """
    from dspark_cli.bench import BenchPrompt
    from dspark_cli.generate import own_tokens

    before = filler(pair, depth)
    return [
        BenchPrompt((*before, *own_tokens(pair.vocabulary, prompt.text)), prompt.category or OTHER)
        for prompt in prompts
    ]


def filler(pair: "Pair", length: int) -> list[int]:
    """So many tokens of built-in texts, one after the other."""
    from dspark_cli.generate import raw_tokens
    from dspark_cli.train.templates import written_prompts

    texts = (raw_tokens(pair.vocabulary, f"{prompt.text}\n") for prompt in written_prompts(SEED))
    return list(islice(chain.from_iterable(texts), length))


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
