"""``dspark inspect``: what two files are, whether they fit, and how large a run would be."""

from dspark_cli.cli import params
from dspark_cli.cli.models import inspected_paths
from dspark_cli.contract import check_target, disagreements, read_drafter, read_target
from dspark_cli.errors import ContractError
from dspark_cli.metadata import read_metadata
from dspark_cli.options import MemoryOptions
from dspark_cli.render.inspection import Inspection, inspection_table
from dspark_cli.render.jsonl import JsonWriter
from dspark_cli.render.messages import show_answer
from dspark_cli.render.streams import answer_stream
from dspark_cli.sizes import plan_sizes


def inspect(
    model: params.Model,
    model_draft: params.Draft = None,
    no_draft: params.NoDraft = False,
    spec_draft_n_max: params.DraftMax = None,
    ctx_size: params.CtxSize = None,
    batch_size: params.BatchSize = 512,
    ubatch_size: params.UbatchSize = 512,
    cache_type_k: params.CacheTypeK = "f16",
    cache_type_v: params.CacheTypeV = "f16",
    cache_type_k_draft: params.CacheTypeKDraft = "f16",
    cache_type_v_draft: params.CacheTypeVDraft = "f16",
    json_document: params.Json = False,
) -> int:
    """Say whether a drafter fits a target, and the sizes of a run, without loading either."""
    target_path, drafter_path = inspected_paths(model, model_draft, no_draft=no_draft)
    memory = MemoryOptions(
        ctx_size=ctx_size,
        batch_size=batch_size,
        ubatch_size=ubatch_size,
        cache_type_k=cache_type_k,
        cache_type_v=cache_type_v,
        cache_type_k_draft=cache_type_k_draft,
        cache_type_v_draft=cache_type_v_draft,
    )
    target = read_target(target_metadata := read_metadata(target_path))
    check_target(target)
    drafter_metadata = read_metadata(drafter_path) if drafter_path else None
    drafter = read_drafter(drafter_metadata) if drafter_metadata else None
    problems: tuple[str, ...] = ()
    if drafter is not None and drafter_metadata is not None:
        problems = tuple(disagreements(drafter_metadata, drafter, target, spec_draft_n_max))
    inspection = Inspection(
        target=target,
        target_fingerprint=target_metadata.fingerprint,
        drafter=drafter,
        drafter_fingerprint=drafter_metadata.fingerprint if drafter_metadata else None,
        sizes=None if problems else plan_sizes(target, drafter, memory),
        disagreements=problems,
    )
    if json_document:
        JsonWriter(answer_stream()).write(inspection.as_json(), indent=2)
    else:
        show_answer(inspection_table(inspection))
    return ContractError.exit_code if problems else 0
