"""``dspark check``: prove that the drafter changes nothing."""

import math
import shlex
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from dspark_cli.cli import params
from dspark_cli.cli.llama import require_llama
from dspark_cli.cli.models import pair_paths, schedule_options
from dspark_cli.cli.schedules import Scheduler
from dspark_cli.cli.source import PromptSource, chat_options, source_of
from dspark_cli.equivalence import Comparison, Summary
from dspark_cli.errors import (
    INTERRUPTED_EXIT_CODE,
    DsparkError,
    InterruptedRunError,
    UsageError,
)
from dspark_cli.options import MemoryOptions, PairOptions, SamplingOptions
from dspark_cli.prompts import Prompt, select
from dspark_cli.render.jsonl import JsonWriter
from dspark_cli.render.live import CheckProgress, check_progress, live_progress
from dspark_cli.render.messages import warn
from dspark_cli.render.report import foreign_sentence
from dspark_cli.render.streams import answer_stream
from dspark_cli.render.verdicts import Judged, VerdictJson, Verdicts, VerdictText
from dspark_cli.schedule import FIXED, ScheduleOptions

if TYPE_CHECKING:
    from dspark_cli.pair import Pair

NOT_EQUIVALENT_EXIT_CODE = 1


def check(
    model: params.Model = None,
    model_draft: params.Draft = None,
    prompt: params.PromptText = None,
    file: params.PromptFile = None,
    prompts: params.PromptsFile = None,
    token_ids: params.TokenIds = None,
    limit: params.Limit = None,
    shuffle: params.Shuffle = None,
    escape: params.Escape = False,
    chat: params.Chat = False,
    system: params.System = None,
    chat_template_file: params.ChatTemplateFile = None,
    chat_template_kwargs: params.ChatTemplateKwargs = None,
    no_thinking: params.NoThinking = False,
    n_predict: params.NPredict = 128,
    ctx_size: params.CtxSize = None,
    batch_size: params.BatchSize = 512,
    ubatch_size: params.UbatchSize = 512,
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
    temp: params.Temperature = 0.0,
    top_k: params.TopK = 40,
    top_p: params.TopP = 0.95,
    min_p: params.MinP = 0.05,
    seed: params.Seed = None,
    spec_draft_n_max: params.DraftMax = None,
    schedule: params.CheckedSchedule = None,
    spec_draft_p_min: params.DraftPMin = None,
    no_calibration: params.NoCalibration = False,
    tolerance: params.Tolerance = None,
    strict: params.Strict = False,
    json_document: params.Json = False,
    json_lines: params.JsonLines = False,
    verbose: params.Verbose = False,
) -> int:
    """Say whether a drafter leaves the target's text as it is, prompt by prompt."""
    if json_document and json_lines:
        raise UsageError("--json and --jsonl contradict each other")
    if temp > 0 and seed is None:
        raise UsageError("--temp compares two runs of one seed, give it with --seed")
    target, drafter = pair_paths(model, model_draft)
    pair_options = PairOptions(
        model=target,
        draft=drafter,
        draft_max=spec_draft_n_max,
        memory=MemoryOptions(
            ctx_size=ctx_size,
            batch_size=batch_size,
            ubatch_size=ubatch_size,
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
        ),
    )
    source = PromptSource(
        text=prompt,
        file=file,
        many=prompts,
        token_ids=token_ids,
        escape=escape,
        chat=chat_options(
            wanted=chat,
            system=system,
            template_file=chat_template_file,
            variables=chat_template_kwargs,
            no_thinking=no_thinking,
        ),
    )
    source.check()
    if tolerance is not None and not math.isfinite(tolerance):
        raise UsageError(f"--tolerance wants a number of logits, got {tolerance}")
    if n_predict < -1:
        raise UsageError(f"-n wants -1 (no limit) or more tokens, got {n_predict}")
    examination = Examination(
        pair_options,
        limit=None if n_predict < 0 else n_predict,
        sampling=SamplingOptions(
            temperature=temp, top_k=top_k, top_p=top_p, min_p=min_p, seed=seed
        ),
        tolerance=tolerance,
        schedule=schedule_options(schedule, spec_draft_p_min) or FIXED,
        calibrated=not no_calibration,
        strict=strict,
        verbose=verbose,
    )
    writer = JsonWriter(answer_stream())
    if json_document or json_lines:
        verdicts: Verdicts = VerdictJson(writer, lines=json_lines)
    else:
        verdicts = VerdictText(writer)
    return examination.run(source, Selection(limit, shuffle), verdicts)


@dataclass(frozen=True, slots=True)
class Selection:
    """Which of many prompts are taken."""

    limit: int | None
    shuffle: int | None

    def of(self, prompts: list[Prompt | list[int]]) -> list[Prompt | list[int]]:
        texts = [prompt for prompt in prompts if isinstance(prompt, Prompt)]
        return prompts if not texts else [*select(texts, limit=self.limit, shuffle=self.shuffle)]


@dataclass(frozen=True, slots=True)
class Examination:
    """One load of the pair, and one comparison per prompt."""

    pair_options: PairOptions
    limit: int | None
    sampling: SamplingOptions
    tolerance: float | None
    schedule: ScheduleOptions
    calibrated: bool  # whether costs are kept from run to run
    strict: bool
    verbose: bool

    def run(self, source: PromptSource, selection: Selection, verdicts: Verdicts) -> int:
        require_llama()
        from dspark_cli.compare import compare
        from dspark_cli.native.interrupt import ctrl_c_sets_flag
        from dspark_cli.native.log import log
        from dspark_cli.pair import open_planned, plan_pair
        from dspark_cli.plan import check_schedule

        plan = plan_pair(self.pair_options)
        check_schedule(plan, self.schedule)
        prompts = selection.of(source.read(plan.target.vocabulary))
        for warning in plan.warnings:
            warn(warning)
        summary, interrupted = Summary(), False
        with ExitStack() as owned:
            owned.enter_context(log.echoing(self.verbose))
            owned.enter_context(ctrl_c_sets_flag())
            with live_progress() as loading:
                pair = owned.enter_context(open_planned(plan, progress=loading.loading))
            tokenized = [self._tokens(pair, source, prompt) for prompt in prompts]
            schedule = Scheduler(pair, self.schedule, kept=self.calibrated).reaching(pair.room)
            progress = owned.enter_context(check_progress(len(prompts)))
            try:
                for prompt, tokens in zip(prompts, tokenized, strict=True):
                    comparison = compare(
                        pair,
                        tokens,
                        limit=self.limit,
                        sampling=self.sampling,
                        tolerance=self.tolerance,
                        schedule=schedule,
                    )
                    summary.add(comparison)
                    self._show(pair, prompt, tokens, comparison, verdicts, progress)
                    progress.advance(summary.tau)
            except InterruptedRunError:
                interrupted = True
        verdicts.finish(summary, strict=self.strict, interrupted=interrupted)
        if summary.statistics and (foreign := foreign_sentence(summary.statistics)) is not None:
            warn(foreign)
        return self._exit_code(summary, interrupted=interrupted)

    def _exit_code(self, summary: Summary, *, interrupted: bool) -> int:
        if not summary.passed(strict=self.strict):
            return NOT_EQUIVALENT_EXIT_CODE
        return INTERRUPTED_EXIT_CODE if interrupted else 0

    def _tokens(self, pair: "Pair", source: PromptSource, prompt: Prompt | list[int]) -> list[int]:
        tokens = source.tokens(pair, prompt)
        name = source_of(prompt)
        if not tokens:
            raise UsageError(f"{name}: the prompt is empty, and this model puts no BOS before it")
        if len(tokens) > pair.room:
            raise DsparkError(
                f"{name}: the prompt has {len(tokens)} tokens, the context holds {pair.room}",
                hint=f"use -c {len(tokens)} or more",
            )
        return tokens

    def _show(
        self,
        pair: "Pair",
        prompt: Prompt | list[int],
        tokens: Sequence[int],
        comparison: Comparison,
        verdicts: Verdicts,
        progress: CheckProgress,
    ) -> None:
        judged = Judged(
            comparison=comparison,
            source=source_of(prompt),
            spell=pair.vocabulary.text,
            reproduce=self._command(tokens),
        )
        with progress.stepping_aside():
            verdicts.show(judged)

    def _command(self, tokens: Sequence[int]) -> str:
        """A line for bash that checks this very prompt again."""
        sampling = self.sampling
        words = ["dspark", "check", "-m", str(self.pair_options.model)]
        words += ["-md", str(self.pair_options.draft)]
        words += ["-n", str(-1 if self.limit is None else self.limit)]
        words += memory_words(self.pair_options.memory)
        if self.tolerance is not None:
            words += ["--tolerance", str(self.tolerance)]
        if self.schedule.kind == "auto":
            words += ["--schedule", "auto"]
        if self.schedule.p_min is not None:
            words += ["--spec-draft-p-min", str(self.schedule.p_min)]
        if not sampling.greedy:
            words += ["--temp", str(sampling.temperature), "--seed", str(sampling.seed)]
            words += ["--top-k", str(sampling.top_k), "--top-p", str(sampling.top_p)]
            words += ["--min-p", str(sampling.min_p)]
        ids = " ".join(map(str, tokens))
        return f"{shlex.join(words)} --token-ids <(echo {ids})"


MEMORY_FLAGS = {
    "ctx_size": "-c",
    "batch_size": "-b",
    "ubatch_size": "-ub",
    "threads": "-t",
    "threads_draft": "-td",
    "gpu_layers": "-ngl",
    "gpu_layers_draft": "-ngld",
    "flash_attention": "-fa",
    "cache_type_k": "-ctk",
    "cache_type_v": "-ctv",
    "cache_type_k_draft": "-ctkd",
    "cache_type_v_draft": "-ctvd",
    "draft_window": "--draft-window",
}


def memory_words(memory: MemoryOptions) -> list[str]:
    """The options that differ from their defaults, and the threads, which this machine decides."""
    given = replace(memory, threads=memory.target_threads)
    usual = MemoryOptions()
    words = []
    for name, flag in MEMORY_FLAGS.items():
        if (value := getattr(given, name)) != getattr(usual, name):
            words += [flag, str(value)]
    return words
