"""``dspark run``: a prompt in, the target's answer out, and how the drafting went."""

import json
import sys
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from dspark_cli.chat import ChatOptions, parse_variables
from dspark_cli.cli import params
from dspark_cli.cli.llama import require_llama
from dspark_cli.cli.models import pair_paths
from dspark_cli.errors import INTERRUPTED_EXIT_CODE, DsparkError, UsageError
from dspark_cli.events import Report
from dspark_cli.options import GenerationOptions, MemoryOptions, PairOptions, SamplingOptions
from dspark_cli.prompts import (
    Prompt,
    from_file,
    read_bytes,
    read_jsonl,
    read_text,
    read_token_ids,
    unescape,
)
from dspark_cli.render.jsonl import JsonLines, JsonWriter, Silent
from dspark_cli.render.live import live_progress
from dspark_cli.render.messages import hint, note, stderr_console, warn
from dspark_cli.render.plain import PlainText
from dspark_cli.render.report import sentence, statistics_table, verdict_sentence
from dspark_cli.stats import Statistics

if TYPE_CHECKING:
    from dspark_cli.generate import Generation
    from dspark_cli.pair import Pair

CONTEXT_SHIFT_REFUSED = "ctx_shift is not supported with draft-dspark capture, it will be disabled"
FOREIGN_DRAFTER = (
    "the drafter does not seem to belong to this target: its first draft token is accepted in "
    "{rate:.0%} of {rounds} rounds (wrong taps, wrong model, or wrong quantisation of the "
    "embeddings)"
)


def run(
    model: params.Model,
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
    temp: params.Temperature = 0.0,
    top_k: params.TopK = 40,
    top_p: params.TopP = 0.95,
    min_p: params.MinP = 0.05,
    repeat_penalty: params.RepeatPenalty = 1.0,
    seed: params.Seed = None,
    no_draft: params.NoDraft = False,
    spec_draft_n_max: params.DraftMax = None,
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
    chat_options = ChatOptions(
        system=system,
        template=read_text(chat_template_file) if chat_template_file else None,
        variables=parse_variables(chat_template_kwargs, no_thinking=no_thinking),
    )
    if not chat and chat_options != ChatOptions():
        raise UsageError("--system, --chat-template-* and --no-thinking need --chat")
    source = PromptSource(prompt, file, prompts, token_ids, escape=escape)
    source.check(chat=chat)
    outlet = choose_outlet(
        json_document=json_document, json_lines=json_lines, many=prompts is not None, color=color
    )
    if context_shift:
        warn(CONTEXT_SHIFT_REFUSED)
    session = Session(pair_options, options, chat_options if chat else None, verbose=verbose)
    return session.run(source, outlet, outlet.default_stats if stats is None else stats)


@dataclass(frozen=True, slots=True)
class PromptSource:
    """Where prompts come from: ``-p``, ``-f``, ``--prompts``, ``--token-ids`` or stdin."""

    text: str | None
    file: Path | None
    many: Path | None
    token_ids: Path | None
    escape: bool

    def check(self, *, chat: bool) -> None:
        """Refuse what cannot be, before anything is loaded."""
        given = [self.text, self.file, self.many, self.token_ids]
        if sum(source is not None for source in given) > 1:
            raise UsageError("give one of -p, -f, --prompts and --token-ids, not several")
        if chat and self.token_ids is not None:
            raise UsageError("--token-ids is a finished prompt, --chat cannot wrap it")
        if self.escape and self.text is None:
            raise UsageError("-e reads the escapes in -p, which is not given")
        if all(source is None for source in given) and sys.stdin.isatty():
            raise UsageError("no prompt", hint="give -p TEXT or -f FILE, or pipe one into stdin")

    def read(self, vocabulary: int) -> list[Prompt | list[int]]:
        """Every prompt, as text or as token ids, read before any weights are."""
        if self.text is not None:
            return [Prompt(unescape(self.text) if self.escape else self.text, "-p")]
        if self.token_ids is not None:
            return [read_token_ids(self.token_ids, vocabulary)]
        if self.many is not None:
            return list(read_jsonl(self.many))
        if self.file is not None and str(self.file) != "-":
            return [from_file(read_bytes(self.file), str(self.file))]
        return [from_file(sys.stdin.buffer.read(), "stdin")]


class Renderer(Protocol):
    def show(self, reports: Iterable[Report]) -> None: ...


@dataclass(frozen=True, slots=True)
class Outlet:
    """Where a run's reports and its result go."""

    renderer: Renderer
    finish: Callable[["Generation"], None]
    default_stats: params.StatsFormat


def choose_outlet(*, json_document: bool, json_lines: bool, many: bool, color: bool) -> Outlet:
    """One outlet for the whole session, from the options that contradict each other least."""
    if json_document and json_lines:
        raise UsageError("--json and --jsonl contradict each other")
    out = sys.stdout.buffer
    writer = JsonWriter(out)
    if many:
        renderer: Renderer = JsonLines(writer) if json_lines else Silent()
        return Outlet(renderer, lambda run: writer.write(run.as_json()), params.StatsFormat.table)
    if json_document:
        return Outlet(
            Silent(), lambda run: writer.write(run.as_json(), indent=2), params.StatsFormat.none
        )
    if json_lines:
        return Outlet(
            JsonLines(writer),
            lambda run: writer.write({"event": "result", **run.as_json()}),
            params.StatsFormat.none,
        )
    plain = PlainText(out, color=color and sys.stdout.isatty())

    def end_line(_: "Generation") -> None:
        # Scripts get the bytes of the answer alone; a person gets the table on its own line.
        if plain.newline_needed and sys.stdout.isatty():
            sys.stdout.write("\n")
            sys.stdout.flush()

    return Outlet(plain, end_line, params.StatsFormat.table)


@dataclass(frozen=True, slots=True)
class Session:
    """One load of the pair, and one run per prompt."""

    pair_options: PairOptions
    options: GenerationOptions
    chat: ChatOptions | None
    verbose: bool

    def run(self, source: PromptSource, outlet: Outlet, stats: params.StatsFormat) -> int:
        require_llama()
        from dspark_cli.generate import Generation, sizes_as_json
        from dspark_cli.native.interrupt import ctrl_c_sets_flag
        from dspark_cli.native.log import log
        from dspark_cli.pair import open_planned, plan_pair

        plan = plan_pair(self.pair_options)
        prompts = source.read(plan.target.vocabulary)
        for warning in plan.warnings:
            warn(warning)
        log.echo = self.verbose
        with ExitStack() as owned:
            owned.enter_context(ctrl_c_sets_flag())
            progress = owned.enter_context(live_progress())
            pair = owned.enter_context(open_planned(plan, progress=progress.loading))
            if self.verbose:
                note(f"sizes {json.dumps(sizes_as_json(pair))}")
            total, exit_code, generation = Statistics(), 0, None
            for prompt in prompts:
                try:
                    generation = Generation(pair, self._tokens(pair, prompt), self.options)
                except DsparkError as error:
                    if source.many is None:
                        raise
                    JsonWriter(sys.stdout.buffer).write({"error": {"message": str(error)}})
                    exit_code = error.exit_code
                    continue
                outlet.renderer.show(progress.watch(generation))
                outlet.finish(generation)
                total.merge(generation.statistics)
                if generation.finish_reason == "interrupted":
                    exit_code = INTERRUPTED_EXIT_CODE
                    break
        if generation is not None:
            self._report(generation, total, stats)
        return exit_code

    def _tokens(self, pair: "Pair", prompt: Prompt | list[int]) -> list[int]:
        from dspark_cli.generate import chat_prompt, raw_prompt

        if isinstance(prompt, list):
            return prompt
        if self.chat is None:
            return raw_prompt(pair, prompt.text)
        return chat_prompt(pair, prompt.text, self.chat)

    def _report(
        self, generation: "Generation", total: Statistics, stats: params.StatsFormat
    ) -> None:
        """Statistics and afterthoughts on stderr, whatever went to stdout."""
        drafting = self.pair_options.draft is not None
        if stats is params.StatsFormat.json:
            ends = {"finish_reason": total.finish_reason, "seed": generation.seed}
            document = {**ends, **total.as_json(), "timings": total.timings_as_json()}
            print(json.dumps(document), file=sys.stderr)
        if total.looks_foreign:
            warn(
                FOREIGN_DRAFTER.format(
                    rate=total.accepted_per_pos[0] / total.judged_per_pos[0],
                    rounds=total.judged_per_pos[0],
                )
            )
        if generation.finish_reason == "eog" and len(generation.tokens) == 1 and self.chat is None:
            hint("the first token ended the text; a model made for conversations wants --chat")
        if stats is not params.StatsFormat.table:
            return
        console = stderr_console()
        console.print(statistics_table(total, drafting=drafting))
        if generation.seed is not None:
            note(f"seed {generation.seed}")
        if (verdict := verdict_sentence(total)) is not None:
            console.print(sentence(verdict))
