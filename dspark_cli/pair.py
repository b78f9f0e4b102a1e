"""Open a target and its drafter, check that they belong together, close both.

The composition root: the only place that knows which object is built from which. Everything that
metadata can decide is decided before any weights are loaded (``plan``).
"""

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from typing import TypeAlias

from dspark_cli.engine.context import Context, ContextSettings, open_context
from dspark_cli.engine.drafter import Drafter
from dspark_cli.engine.model import gpu_offload_supported, open_model
from dspark_cli.engine.taps import Taps
from dspark_cli.engine.target import Target
from dspark_cli.engine.vocab import Vocabulary
from dspark_cli.errors import LlamaError
from dspark_cli.options import MemoryOptions, PairOptions
from dspark_cli.plan import Plan, check_room, survey_pair

LoadProgress: TypeAlias = Callable[[str, float], None]
"""Called with "target" or "drafter" and the loaded share, 0 to 1."""


@dataclass(slots=True, eq=False)
class Pair:
    """A loaded target, its drafter (None for plain decoding), and the plan they follow.

    Its memory serves one run at a time: the newest.
    """

    plan: Plan
    target: Target
    drafter: Drafter | None
    vocabulary: Vocabulary
    load_seconds: float
    _runs: int = field(init=False, default=0)

    @property
    def room(self) -> int:
        """Positions that a run may fill: the requested ``-c``."""
        return self.plan.sizes.limit

    def clear(self, coming: int = 0) -> int:
        """Forget the last run, to begin another; returns the new one's number.

        ``coming`` positions are read before the first draft: of those that the drafter's window
        would drop at once, taps are not injected.
        """
        self.target.clear()
        if self.drafter is not None:
            self.drafter.clear(coming)
        self._runs += 1
        return self._runs

    def check_newest(self, run: int) -> None:
        """Raise RuntimeError where another run has taken the memory since."""
        if run != self._runs:
            raise RuntimeError("another run has begun on this pair: this one cannot go on")


def plan_pair(options: PairOptions) -> Plan:
    """Read both files' metadata and decide everything that it decides.

    Raises UsageError, DsparkError or ContractError; no weights are loaded and nothing is
    allocated.
    """
    plan = survey_pair(options).plan()
    return replace(plan, warnings=(*plan.warnings, *_offload_warnings(options.memory)))


@contextmanager
def open_pair(options: PairOptions, *, progress: LoadProgress | None = None) -> Iterator[Pair]:
    """Load what ``options`` name and close it in reverse order at the end of the block.

    Raises UsageError for options that cannot be met or a missing file, ContractError where the two
    do not belong together, LlamaError where llama.cpp refuses, and DsparkError for an unreadable
    file or too little memory.
    """
    with open_planned(plan_pair(options), progress=progress) as pair:
        yield pair


@contextmanager
def open_planned(plan: Plan, *, progress: LoadProgress | None = None) -> Iterator[Pair]:
    """Load a pair whose plan is already made; raises DsparkError where memory does not suffice."""
    check_room(plan.sizes, plan.options.memory, gpu_offload_supported)
    with ExitStack() as owned:
        yield _open(plan, owned, progress or (lambda _what, _share: None))


def _open(plan: Plan, owned: ExitStack, progress: LoadProgress) -> Pair:
    began = time.perf_counter()
    memory = plan.options.memory
    model = owned.enter_context(
        open_model(
            plan.options.model,
            gpu_layers=memory.gpu_layers,
            progress=lambda share: progress("target", share),
        )
    )
    vocabulary = Vocabulary(model)
    context = owned.enter_context(
        open_context(
            model,
            "target",
            len(vocabulary),
            plan.sizes.target,
            ContextSettings(
                memory.target_threads,
                memory.cache_type_k,
                memory.cache_type_v,
                memory.flash_attention,
            ),
        )
    )
    if plan.drafter is None or plan.options.draft is None:
        target = Target(context, None, widest_score=1)
        return Pair(plan, target, None, vocabulary, time.perf_counter() - began)
    drafter = _open_drafter(plan, owned, progress, context, len(vocabulary))
    taps = Taps(context, plan.drafter.taps or (), plan.target.width)
    target = Target(context, taps, widest_score=plan.drafter.draft_max + 1)
    return Pair(plan, target, drafter, vocabulary, time.perf_counter() - began)


def _open_drafter(
    plan: Plan, owned: ExitStack, progress: LoadProgress, target: Context, vocabulary: int
) -> Drafter:
    memory = plan.options.memory
    shape, sizes, path = plan.drafter, plan.sizes.drafter, plan.options.draft
    if shape is None or sizes is None or path is None:
        raise ValueError("the plan has no drafter")
    model = owned.enter_context(
        open_model(
            path,
            gpu_layers=memory.gpu_layers_draft,
            progress=lambda share: progress("drafter", share),
        )
    )
    settings = ContextSettings(
        memory.drafter_threads,
        memory.cache_type_k_draft,
        memory.cache_type_v_draft,
        memory.flash_attention,
    )
    context = owned.enter_context(
        open_context(model, "drafter", vocabulary, sizes, settings, other=target)
    )
    if context.n_batch < sizes.n_batch:
        raise LlamaError(
            f"llama.cpp gave the drafter n_batch {context.n_batch}, wanted {sizes.n_batch} "
            "(all that it keeps, and one block)"
        )
    return Drafter(context, shape, plan.sizes.draft_window)


def _offload_warnings(memory: MemoryOptions) -> Iterator[str]:
    for name, layers in (("-ngl", memory.gpu_layers), ("-ngld", memory.gpu_layers_draft)):
        if layers and not gpu_offload_supported():
            yield (
                f"{name} {layers} has no effect: this llama-cpp-python was built for the CPU "
                "alone (reinstall it with CMAKE_ARGS, see the README)"
            )
