"""What metadata decides about a pair: whether it fits, how large a run is, what to be warned of.

``run`` and ``inspect`` ask here, so that the one says what the other does. This module reads the
heads of two files and computes; it loads no weights, and no llama.cpp either.
"""

import shlex
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from dspark_cli.contract import (
    DrafterShape,
    TargetShape,
    check_pair,
    check_target,
    read_drafter,
    read_target,
)
from dspark_cli.errors import ContractError, DsparkError, UsageError
from dspark_cli.machine import available_memory
from dspark_cli.metadata import Fingerprint, read_metadata
from dspark_cli.options import MemoryOptions, PairOptions
from dspark_cli.schedule import ScheduleOptions
from dspark_cli.sizes import Sizes, check_memory, plan_sizes


@dataclass(frozen=True, slots=True)
class Plan:
    """A pair that fits, and how large it will be."""

    options: PairOptions
    target: TargetShape
    target_fingerprint: Fingerprint
    drafter: DrafterShape | None
    drafter_fingerprint: Fingerprint | None
    sizes: Sizes
    warnings: tuple[str, ...]


def check_schedule(plan: Plan, schedule: ScheduleOptions | None) -> None:
    """Refuse a schedule that the drafter gives no grounds for; raises ContractError."""
    drafter = plan.drafter
    if schedule is None or drafter is None:
        return
    if schedule.needs_confidence and not drafter.has_confidence:
        raise ContractError(
            [
                (
                    f"confidence: {drafter.name} has no confidence head, which --schedule "
                    "confidence (--spec-draft-p-min) cuts by"
                )
            ],
            hint="use --schedule fixed",
        )


@dataclass(frozen=True, slots=True)
class Survey:
    """All that can be known of a pair, whether or not it can be run."""

    options: PairOptions
    target: TargetShape
    target_fingerprint: Fingerprint
    drafter: DrafterShape | None
    drafter_fingerprint: Fingerprint | None
    sizes: Sizes | None  # None where there is a problem
    problem: DsparkError | None  # what a run would be refused for

    @property
    def warnings(self) -> tuple[str, ...]:
        """What a run would be warned of."""
        return tuple(_warnings(self.target, self.drafter, self.sizes))

    def plan(self) -> Plan:
        """The plan of a run; raises what keeps it from being one."""
        if self.problem is not None or self.sizes is None:
            raise self.problem or ValueError("a survey without sizes names its problem")
        return Plan(
            options=self.options,
            target=self.target,
            target_fingerprint=self.target_fingerprint,
            drafter=self.drafter,
            drafter_fingerprint=self.drafter_fingerprint,
            sizes=self.sizes,
            warnings=self.warnings,
        )


def survey_pair(options: PairOptions) -> Survey:
    """Read both files' metadata and find out everything that it decides.

    Raises UsageError, DsparkError or ContractError where there is nothing to describe: a file that
    cannot be read, or that is no target.
    """
    if options.draft is not None and _same_file(options.model, options.draft):
        raise UsageError(
            f"{options.model}: is given both as target (-m) and as drafter (-md)",
            hint="a drafter is a model of its own, trained for its target",
        )
    if options.draft is not None and is_checkpoint(options.draft):
        raise UsageError(
            f"{options.draft}: is a checkpoint, which llama.cpp cannot load",
            hint=convert_hint(options.draft, options.model),
        )
    target_metadata = read_metadata(options.model)
    target = read_target(target_metadata)
    drafter_metadata = read_metadata(options.draft) if options.draft else None
    check_target(target)
    drafter = read_drafter(drafter_metadata) if drafter_metadata else None
    sizes, problem = None, None
    try:
        if drafter_metadata is not None:
            check_pair(drafter_metadata, target, draft_max=options.draft_max)
        sizes = plan_sizes(target, drafter, options.memory)
    except DsparkError as error:
        problem = error
    if options.draft is not None and drafter is not None and drafter.dialect == "fork":
        hint = convert_hint(options.draft, options.model)
        problem = ContractError(problem.messages if problem else (), hint=hint)
    return Survey(
        options=options,
        target=target,
        target_fingerprint=target_metadata.fingerprint,
        drafter=drafter,
        drafter_fingerprint=drafter_metadata.fingerprint if drafter_metadata else None,
        sizes=sizes,
        problem=problem,
    )


def is_checkpoint(path: Path) -> bool:
    """Whether a path is that of weights as frameworks save them, by its outside."""
    return path.suffix == ".safetensors" or (path / "config.json").exists()


def convert_hint(draft: Path, target: Path) -> str:
    """The command that makes a drafter for llama.cpp of one in another shape."""
    name = draft.name if draft.is_dir() else draft.stem
    return shlex.join(
        ["dspark", "convert", str(draft), "-m", str(target), "-o", f"{name}-dflash.gguf"]
    )


def check_room(sizes: Sizes, memory: MemoryOptions, gpu_offload: Callable[[], bool]) -> None:
    """Raise DsparkError where this machine's memory does not suffice.

    ``gpu_offload`` says whether this llama.cpp can use a GPU: with layers there, most of the plan
    is the device's memory, which llama.cpp itself checks.
    """
    try:
        check_memory(sizes, available_memory())
    except DsparkError:
        if memory.gpu_layers == 0 or not gpu_offload():
            raise


def _same_file(one: Path, other: Path) -> bool:
    try:
        return one.samefile(other)
    except OSError:  # one of them cannot be looked at, which its reader will explain
        return False


def _warnings(
    target: TargetShape, drafter: DrafterShape | None, sizes: Sizes | None
) -> Iterator[str]:
    if sizes is not None and target.context_length and sizes.limit > target.context_length:
        yield (
            f"-c {sizes.limit} is more than the {target.context_length} positions that "
            f"{target.name} was trained on: expect the text to degrade beyond them"
        )
    if sizes is not None and drafter is not None and drafter.context_length:
        kept = sizes.draft_window or sizes.limit
        if kept > drafter.context_length:
            yield (
                f"{drafter.name} was trained on {drafter.context_length} positions and keeps up "
                f"to {kept}: expect fewer accepted drafts beyond them (--draft-window auto)"
            )
    if not target.names_end:
        yield (
            f"{target.name} names no end-of-generation token (tokenizer.ggml.eos_token_id): "
            "llama.cpp guesses one, and the text may not end by itself"
        )
