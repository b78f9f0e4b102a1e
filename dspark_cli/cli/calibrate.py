"""``dspark calibrate``: what a pair costs on this machine, and what its confidences are worth."""

from contextlib import ExitStack
from dataclasses import replace
from itertools import islice
from typing import TYPE_CHECKING, Annotated

from dspark_cli.cli import params
from dspark_cli.cli.llama import require_llama
from dspark_cli.cli.models import pair_paths
from dspark_cli.errors import INTERRUPTED_EXIT_CODE, DsparkError, InterruptedRunError, UsageError
from dspark_cli.options import (
    GenerationOptions,
    MemoryOptions,
    PairOptions,
    SamplingOptions,
)
from dspark_cli.prompts import read_jsonl
from dspark_cli.render.calibration import calibration_table
from dspark_cli.render.jsonl import JsonWriter
from dspark_cli.render.messages import note, show_answer, warn
from dspark_cli.render.streams import answer_stream
from dspark_cli.render.training import training_progress
from dspark_cli.stats import JsonObject

if TYPE_CHECKING:
    from dspark_cli.confidence import PositionCalibration
    from dspark_cli.pair import Pair
    from dspark_cli.schedule import Costs

PROMPTS = 60  # of the built-in ones, unless told otherwise


def calibrate(
    model: params.Model = None,
    model_draft: params.Draft = None,
    prompts: params.PromptsFile = None,
    limit: params.Limit = None,
    n_predict: Annotated[
        int,
        params.option("-n", "--n-predict", help="Tokens per prompt.", panel=params.LENGTH, min=1),
    ] = 64,
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
    json_document: params.Json = False,
) -> int:
    """Measure a pair on this machine for --schedule auto, and keep what was found."""
    target, drafter = pair_paths(model, model_draft)
    options = PairOptions(
        model=target,
        draft=drafter,
        memory=MemoryOptions(
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
        ),
    )
    texts = None if prompts is None else [prompt.text for prompt in read_jsonl(prompts)][:limit]
    require_llama()
    from dspark_cli.calibration import Calibration, calibration_path, save_calibration
    from dspark_cli.confidence import calibrate_crosswise
    from dspark_cli.measure import measure_confidences, measure_costs, measure_growth
    from dspark_cli.native.interrupt import ctrl_c_sets_flag
    from dspark_cli.pair import open_pair

    with ExitStack() as owned:
        owned.enter_context(ctrl_c_sets_flag())
        pair = owned.enter_context(open_pair(options))
        shape = pair.plan.drafter
        if pair.drafter is None or shape is None:
            raise UsageError("there is no drafter to be calibrated")
        positions: list[PositionCalibration] = []
        try:
            with training_progress("measuring costs", "") as progress:
                costs = measure_costs(pair, progress=lambda done, all_: progress(done, all_, ""))
            with training_progress("measuring a longer context", "") as progress:
                growth = measure_growth(pair, progress=lambda done, all_: progress(done, all_, ""))
            costs = replace(costs, growth=growth)
            if shape.has_confidence:
                questions = tokenized(pair, texts, limit or PROMPTS)
                with training_progress("measuring confidences", "") as progress:
                    halves = measure_confidences(
                        pair,
                        questions,
                        n_predict,
                        progress=lambda done, all_: progress(done, all_, f"{done:.0f} prompts"),
                    )
                positions = calibrate_crosswise(*halves, shape.temperatures)
        except InterruptedRunError:
            note("interrupted; nothing was kept")
            return INTERRUPTED_EXIT_CODE
    path = calibration_path(pair.plan)
    found = Calibration(costs, tuple(item.temperature for item in positions))
    if save_calibration(path, found):
        note(f"kept in {path}")
    else:
        warn(f"{path} cannot be written to, so nothing is kept")
    document = as_json(costs, positions)
    if json_document:
        JsonWriter(answer_stream()).write(document)
    else:
        show_answer(calibration_table(document))
    return 0


def tokenized(pair: "Pair", texts: list[str] | None, count: int) -> list[list[int]]:
    """Prompts as the target wants them: in its chat template where it has one.

    Without texts the built-in prompts; a target that cannot chat goes on with openings of its own.
    """
    from dspark_cli.generate import own_tokens
    from dspark_cli.train.templates import written_prompts

    if texts is None and pair.vocabulary.chat_template() is None:
        return [opening(pair, seed) for seed in range(count)]
    if texts is None:
        texts = [prompt.text for prompt in islice(written_prompts(1), count)]
    prompts = [own_tokens(pair.vocabulary, text) for text in texts]
    fitting = [prompt for prompt in prompts if 0 < len(prompt) < pair.room]
    if not fitting:
        raise DsparkError(f"none of {len(texts)} prompts fits into a context of {pair.room}")
    return fitting


def opening(pair: "Pair", seed: int) -> list[int]:
    """The first tokens of a text that the target makes up."""
    from dspark_cli.generate import Generation
    from dspark_cli.train.dataset import OPENING_TOKENS

    bos = pair.vocabulary.bos
    if bos < 0:
        raise UsageError(
            "the target has neither a chat template nor a BOS token: nothing to begin from",
            hint="give it something to go on with, --prompts FILE",
        )
    sampling = SamplingOptions(temperature=1.0, seed=seed)
    run = Generation(pair, [bos], GenerationOptions(OPENING_TOKENS, sampling))
    for _ in run:
        pass
    return [bos, *(token for token in run.tokens if not pair.vocabulary.is_eog(token))]


def as_json(costs: "Costs", positions: "list[PositionCalibration]") -> JsonObject:
    """The document of ``dspark calibrate --json``; seconds, and one entry per position."""
    return {
        "score_seconds": [*costs.score],
        "draft_seconds": [*costs.draft],
        "inject_seconds": [*costs.inject],
        "depth": costs.depth,
        "score_seconds_per_position": [*costs.growth.score] if costs.growth else None,
        "draft_seconds_per_position": [*costs.growth.draft] if costs.growth else None,
        "temperatures": [item.temperature for item in positions],
        "labels": [item.labels for item in positions],
        "calibration_error_before": [item.error_before for item in positions],
        "calibration_error_after": [item.error_after for item in positions],
    }
