"""From ``-m``, ``-md`` and ``--no-draft`` to two paths."""

from pathlib import Path

from dspark_cli.errors import UsageError
from dspark_cli.models import drafter_of, find_drafter, find_target


def pair_paths(
    model: str, draft: str | None, *, no_draft: bool = False
) -> tuple[Path, Path | None]:
    """The target's path and the drafter's, None for plain decoding.

    Plain decoding is never a silent fallback: a target without a drafter needs ``--no-draft``.
    """
    if no_draft and draft is not None:
        raise UsageError("-md and --no-draft contradict each other")
    target = find_target(model)
    if no_draft:
        return target, None
    drafter = drafter_of(model) if draft is None else draft
    if drafter is None:
        raise UsageError(
            f"no drafter for {model}",
            hint="give one with -md, or --no-draft for plain decoding",
        )
    return target, find_drafter(drafter)


def inspected_paths(model: str, draft: str | None, *, no_draft: bool) -> tuple[Path, Path | None]:
    """The same for a look at the files, which may be the target alone."""
    if draft is None and drafter_of(model) is None:
        no_draft = True
    return pair_paths(model, draft, no_draft=no_draft)
