"""``dspark run``: a prompt in, the target's answer out, and how the drafting went."""

import json
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from dspark_cli.cli import params
from dspark_cli.cli.llama import require_llama
from dspark_cli.cli.models import pair_paths, schedule_options
from dspark_cli.cli.outlet import Outlet, choose_outlet
from dspark_cli.cli.schedules import Scheduler
from dspark_cli.cli.source import PromptSource, chat_options, source_of
from dspark_cli.errors import (
    INTERRUPTED_EXIT_CODE,
    DsparkError,
    InterruptedRunError,
    LlamaError,
    StdoutError,
)
from dspark_cli.options import GenerationOptions, MemoryOptions, PairOptions, SamplingOptions
from dspark_cli.prompts import Prompt
from dspark_cli.render.live import LiveProgress, live_progress
from dspark_cli.render.messages import hint, note, tell, warn
from dspark_cli.render.report import (
    foreign_sentence,
    sentence,
    statistics_table,
    verdict_sentence,
)
from dspark_cli.render.streams import write_aside
from dspark_cli.schedule import ScheduleOptions
from dspark_cli.stats import Statistics

if TYPE_CHECKING:
    from dspark_cli.generate import Generation
    from dspark_cli.plan import Plan

CONTEXT_SHIFT_REFUSED = "ctx_shift is not supported with draft-dspark capture, it will be disabled"


def run(
    model: params.Model = None,
    model_draft: params.Draft = None,
    prompt: params.PromptText = None,
    file: params.PromptFile = None,
    prompts: params.PromptsFile = None,
    token_ids: params.TokenIds = None,
    escape: params.Escape = False,
    chat: params.Chat = False,
    system: params.System = None,
    chat_template_file: params.ChatTemplateFile = None,
    chat_template_kwargs: params.ChatTemplateKwargs = None,
    no_thinking: params.NoThinking = False,
    n_predict: params.NPredict = -1,
    stop: params.Stop = None,
    ignore_eos: params.IgnoreEos = False,
    ctx_size: params.CtxSize = None,
    context_shift: params.ContextShift = False,
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
    repeat_penalty: params.RepeatPenalty = 1.0,
    seed: params.Seed = None,
    no_draft: params.NoDraft = False,
    spec_draft_n_max: params.DraftMax = None,
    schedule: params.ScheduleName = None,
    spec_draft_p_min: params.DraftPMin = None,
    live_costs: params.LiveCosts = False,
    no_calibration: params.NoCalibration = False,
    stats: params.Stats = None,
    json_document: params.Json = False,
    json_lines: params.JsonLines = False,
    color: params.Color = False,
    verbose: params.Verbose = False,
) -> int:
    """Generate text with a target and its drafter."""
    target, drafter = pair_paths(model, model_draft, no_draft=no_draft)
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
    options = GenerationOptions(
        n_predict=n_predict,
        sampling=SamplingOptions(
            temperature=temp,
            top_k=top_k,
            top_p=top_p,
            min_p=min_p,
            repeat_penalty=repeat_penalty,
            seed=seed,
            ignore_eos=ignore_eos,
        ),
        stops=tuple(stop or ()),
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
    outlet = choose_outlet(
        json_document=json_document, json_lines=json_lines, many=prompts is not None, color=color
    )
    if context_shift:
        warn(CONTEXT_SHIFT_REFUSED)
    if stats is None:
        stats = outlet.default_stats
    return Session(
        pair_options,
        options,
        source,
        outlet,
        stats,
        schedule=schedule_options(schedule, spec_draft_p_min, live_costs=live_costs),
        calibrated=not no_calibration,
        verbose=verbose,
    ).run()


@dataclass(slots=True)
class Tally:
    """What the runs of a session add up to."""

    statistics: Statistics = field(default_factory=Statistics)
    last: "Generation | None" = None
    exit_code: int = 0  # the highest of the prompts that failed

    def add(self, run: "Generation") -> None:
        self.statistics.merge(run.statistics)
        self.last = run

    def failed(self, error: DsparkError) -> None:
        self.exit_code = max(self.exit_code, error.exit_code)


@dataclass(frozen=True, slots=True)
class Session:
    """One load of the pair, and one run per prompt."""

    pair_options: PairOptions
    options: GenerationOptions
    source: PromptSource
    outlet: Outlet
    stats: params.StatsFormat
    schedule: ScheduleOptions | None  # None: what suits the pair
    calibrated: bool  # whether costs are kept from run to run
    verbose: bool

    def run(self) -> int:
        """Answer every prompt; what a run did before it failed is in the statistics too."""
        require_llama()
        from dspark_cli.pair import plan_pair
        from dspark_cli.plan import check_schedule

        plan = plan_pair(self.pair_options)
        check_schedule(plan, self.schedule)
        prompts = self.source.read(plan.target.vocabulary)
        for warning in plan.warnings:
            warn(warning)
        tally = Tally()
        try:
            self._answer_all(plan, prompts, tally)
        except InterruptedRunError:
            tally.exit_code = INTERRUPTED_EXIT_CODE
        except LlamaError:
            self._report(tally)
            raise
        self._report(tally)
        return tally.exit_code

    def _answer_all(
        self, plan: "Plan", prompts: Sequence[Prompt | list[int]], tally: Tally
    ) -> None:
        """Load the pair and go through the prompts; raises InterruptedRunError after Ctrl-C."""
        from dspark_cli.generate import sizes_as_json
        from dspark_cli.native.interrupt import ctrl_c_sets_flag
        from dspark_cli.native.log import log
        from dspark_cli.pair import open_planned

        with ExitStack() as owned:
            owned.enter_context(log.echoing(self.verbose))
            owned.enter_context(ctrl_c_sets_flag())
            progress = owned.enter_context(live_progress())
            pair = owned.enter_context(open_planned(plan, progress=progress.loading))
            if self.verbose:
                note(f"sizes {json.dumps(sizes_as_json(pair))}")
            scheduler = Scheduler(pair, self.schedule, kept=self.calibrated)
            for prompt in prompts:
                self._answer(scheduler, prompt, progress, tally)

    def _answer(
        self,
        scheduler: Scheduler,
        prompt: Prompt | list[int],
        progress: LiveProgress,
        tally: Tally,
    ) -> None:
        """One prompt's result or its failure; what ends the whole session is raised."""
        try:
            self._generate(scheduler, prompt, progress, tally)
        except StdoutError:
            raise
        except DsparkError as error:
            tally.failed(error)
            self.outlet.failure(error, source_of(prompt))

    def _generate(
        self,
        scheduler: Scheduler,
        prompt: Prompt | list[int],
        progress: LiveProgress,
        tally: Tally,
    ) -> None:
        from dspark_cli.generate import Generation

        pair = scheduler.pair
        tokens = self.source.tokens(pair, prompt)
        n_predict = self.options.n_predict
        end = pair.room if n_predict < 0 else min(len(tokens) + n_predict, pair.room)
        options = replace(self.options, schedule=scheduler.reaching(end))
        run = Generation(pair, tokens, options)
        try:
            self.outlet.show(progress.watch(run))
        finally:
            tally.add(run)
        self.outlet.result(run, source_of(prompt))
        if run.finish_reason == "interrupted":
            raise InterruptedRunError

    def _report(self, tally: Tally) -> None:
        """Statistics and afterthoughts on stderr, whatever went to stdout."""
        if (last := tally.last) is None:
            return
        total = tally.statistics
        if self.stats is params.StatsFormat.json:
            ends = {"finish_reason": total.finish_reason, "seed": last.seed}
            document = {**ends, **total.as_json(), "timings": total.timings_as_json()}
            write_aside(json.dumps(document) + "\n")
        if (foreign := foreign_sentence(total)) is not None:
            warn(foreign)
        if self.stats is params.StatsFormat.table:
            self._print_table(total, last.seed)
        if last.ended_at_once and self.source.chat is None:
            hint("the first token ended the text; a model made for conversations wants --chat")

    def _print_table(self, total: Statistics, seed: int | None) -> None:
        tell(statistics_table(total, drafting=self.pair_options.draft is not None))
        if seed is not None:
            note(f"seed {seed}")
        if (verdict := verdict_sentence(total)) is not None:
            tell(sentence(verdict))
