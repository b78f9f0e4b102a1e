"""``dspark inspect``: what two files are, whether they fit, and how large a run would be."""

from pathlib import Path
from typing import TYPE_CHECKING

from dspark_cli.cli import params
from dspark_cli.cli.llama import require_llama
from dspark_cli.cli.models import inspected_paths
from dspark_cli.contract import read_target
from dspark_cli.errors import DsparkError
from dspark_cli.metadata import read_metadata
from dspark_cli.models import find_target, is_name
from dspark_cli.options import MemoryOptions, PairOptions
from dspark_cli.plan import Survey, check_room, is_checkpoint, survey_pair
from dspark_cli.render.inspection import (
    Inspection,
    SourceInspection,
    inspection_table,
    source_table,
)
from dspark_cli.render.jsonl import JsonWriter
from dspark_cli.render.messages import show_answer, warn
from dspark_cli.render.streams import answer_stream

if TYPE_CHECKING:
    from dspark_cli.convert.outlook import Outlook


def inspect(
    model: params.Model = None,
    model_draft: params.Draft = None,
    no_draft: params.NoDraft = False,
    spec_draft_n_max: params.DraftMax = None,
    ctx_size: params.CtxSize = None,
    batch_size: params.BatchSize = 512,
    ubatch_size: params.UbatchSize = 512,
    flash_attn: params.FlashAttention = params.FlashAttentionChoice.auto,
    cache_type_k: params.CacheTypeK = "f16",
    cache_type_v: params.CacheTypeV = "f16",
    cache_type_k_draft: params.CacheTypeKDraft = "f16",
    cache_type_v_draft: params.CacheTypeVDraft = "f16",
    draft_window: params.DraftWindow = None,
    json_document: params.Json = False,
) -> int:
    """Say whether a drafter fits a target, and the sizes of a run, without loading either."""
    from dspark_cli.convert.outlook import is_source, look_ahead

    source = None if model_draft is None or is_name(model_draft) else Path(model_draft)
    outlook = None
    if source is not None and not no_draft and is_source(source):
        outlook = look_ahead(source, None if model is None else find_target(model))
        if model is None or is_checkpoint(source):
            return _show_source(outlook, model, json_document=json_document)
    target_path, drafter_path = inspected_paths(model, model_draft, no_draft=no_draft)
    memory = MemoryOptions(
        ctx_size=ctx_size,
        batch_size=batch_size,
        ubatch_size=ubatch_size,
        flash_attention=flash_attn.value,
        cache_type_k=cache_type_k,
        cache_type_v=cache_type_v,
        cache_type_k_draft=cache_type_k_draft,
        cache_type_v_draft=cache_type_v_draft,
        draft_window=draft_window,
    )
    survey = survey_pair(PairOptions(target_path, drafter_path, spec_draft_n_max, memory))
    problem = survey.problem or _memory_problem(survey)
    inspection = Inspection(survey, problem)
    if outlook is not None:
        inspection = Inspection(survey, problem, outlook.as_json(), outlook.drafter)
    if json_document:
        JsonWriter(answer_stream()).write(inspection.as_json(), indent=2)
    else:
        for warning in survey.warnings:
            warn(warning)
        show_answer(inspection_table(inspection))
    return problem.exit_code if problem else 0


def _show_source(outlook: "Outlook", model: str | None, *, json_document: bool) -> int:
    """A drafter in another shape, which only its conversion could run."""
    target = None if model is None else read_target(read_metadata(find_target(model)))
    inspection = SourceInspection(target, outlook.drafter, outlook.as_json())
    if json_document:
        JsonWriter(answer_stream()).write(inspection.as_json(), indent=2)
    else:
        show_answer(source_table(inspection))
    return outlook.refusal.exit_code if outlook.refusal else 0


def _memory_problem(survey: Survey) -> DsparkError | None:
    if survey.sizes is None:
        return None
    try:
        check_room(survey.sizes, survey.options.memory, _gpu_offload)
    except DsparkError as error:
        return error
    return None


def _gpu_offload() -> bool:
    """Whether llama.cpp can use a GPU; without llama.cpp nothing can."""
    try:
        require_llama()
    except DsparkError:
        return False
    from dspark_cli.engine.model import gpu_offload_supported

    return gpu_offload_supported()
