"""Does the written file propose what its source does? llama.cpp and ``reference``, side by side.

Both get the same random features and anchors. llama.cpp runs on the CPU with F32 caches, so that
what parts the two is rounding of weights and activations alone, and that is known per type.
"""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from gguf import GGMLQuantizationType

from dspark_cli.contract import DrafterShape, check_written, read_target
from dspark_cli.convert.plan import EMBEDDINGS, HEAD, Plan, borrowed
from dspark_cli.convert.reference import Case, Network, Proposal, propose
from dspark_cli.convert.weights import Weight
from dspark_cli.engine.context import Context, ContextSettings, open_context
from dspark_cli.engine.drafter import Drafter
from dspark_cli.engine.model import open_model
from dspark_cli.errors import DsparkError
from dspark_cli.metadata import read_metadata
from dspark_cli.options import usable_cores
from dspark_cli.sizes import MIN_DRAFTER_UBATCH, ContextSizes
from dspark_cli.storing import pack, stored_type
from dspark_cli.tensors import unpack

CONTEXTS = (1, 5, 12, 33)  # positions before each block
SEED = 20260727
LONGEST_WINDOW = 512  # positions; a longer window is not tried beyond its end

# The largest rms(llama.cpp's logits - ours) / rms(ours) by the coarsest type of the file:
# activations are rounded to F16 or BF16 for such weights, to 8 bits in blocks of 32 for all else.
# Five times what random drafters of 2 layers showed: 0.00 %, 0.05 %, 0.4 % and 1.5 %.
COARSE = 8e-2
TOLERANCES = {
    GGMLQuantizationType.F32.value: 1e-3,
    GGMLQuantizationType.F16.value: 5e-3,
    GGMLQuantizationType.BF16.value: 2e-2,
}
EXEMPT = {"confidence", "condition_in", "condition_out"}  # stored in F32, or not at all
TIE = 4.0


@dataclass(frozen=True, slots=True)
class Agreement:
    """How llama.cpp and the source's own maths agree."""

    blocks: int
    same: int  # blocks whose tokens are all equal
    ties: int  # blocks that part where the two likeliest tokens are within rounding
    logit_error: float  # the largest rms difference of a row, as a share of the row's rms
    confidence_error: float
    tolerance: float

    @property
    def holds(self) -> bool:
        return self.same + self.ties == self.blocks and self.logit_error <= self.tolerance


def check_loads(path: Path, plan: Plan) -> None:
    """Hold a written file against the target's contract and load it; raises as below."""
    check_written(read_metadata(path), read_target(plan.target))
    with open_model(path, gpu_layers=0):
        pass


def check_drafts(path: Path, plan: Plan, *, threads: int | None) -> Agreement:
    """Load a written file and let it draft.

    Raises ContractError where it does not fit the target, LlamaError where llama.cpp refuses it,
    DsparkError where it drafts something else than its source.
    """
    shape = check_written(read_metadata(path), read_target(plan.target))
    network = as_stored(plan)
    cases = random_cases(network, shape)
    vocabulary = shape.vocabulary
    wanted = propose(network, cases, vocabulary)
    with _opened(path, shape, plan, threads or usable_cores()) as drafter:
        found = [_drafted(drafter, case, shape) for case in cases]
    agreement = compare(wanted, found, tolerance_of(plan))
    if not agreement.holds:
        raise DsparkError(
            f"the converted drafter is not what {plan.recipe.path.name} says: "
            f"{agreement.blocks - agreement.same - agreement.ties} of {agreement.blocks} random "
            f"blocks draft other tokens, logits are {agreement.logit_error:.2%} apart, "
            f"wanted at most {agreement.tolerance:.2%}",
            hint="nothing was written; please report it, with the file's name",
        )
    return agreement


def as_stored(plan: Plan) -> Network:
    """The source's network with its matrices rounded as the file rounds them.

    What the drafter borrows is the target's. Folded embeddings are not rounded: the file rounds
    their sums, the source's maths has none.
    """
    network = plan.recipe.network
    tensors = dict(network.tensors)
    if plan.out_type != "keep":
        for role, weight in tensors.items():
            exempt = role in EXEMPT or (role == "embeddings" and plan.recipe.folded)
            if len(weight.shape) > 1 and not exempt:
                tensors[role] = Rounded(weight, stored_type(role, weight.shape, plan.out_type))
    for role, name in (("embeddings", EMBEDDINGS), ("head", HEAD)):
        if name in plan.borrows:
            tensors[role] = borrowed(plan.target, name)
    return replace(network, tensors=tensors)


@dataclass(frozen=True, slots=True)
class Rounded:
    """A weight as it comes back from a file of another type."""

    base: Weight
    kind: GGMLQuantizationType

    @property
    def shape(self) -> tuple[int, ...]:
        return self.base.shape

    @property
    def type_id(self) -> int:
        return self.kind.value

    def rows(self, begin: int, end: int) -> np.ndarray:
        rows = self.base.rows(begin, end)
        if self.base.type_id == self.kind:
            return rows
        return unpack(pack(rows, self.kind).view(np.uint8), self.kind.value)

    def packed(self, begin: int, end: int) -> np.ndarray | None:  # noqa: ARG002
        return None


def random_cases(network: Network, shape: DrafterShape) -> list[Case]:
    """Blocks behind contexts of several lengths; no anchor is the mask token."""
    random = np.random.default_rng(SEED)
    windows = sorted({*(network.windows or {}).values()})
    lengths = [*CONTEXTS, *(window + 2 for window in windows if window <= LONGEST_WINDOW)]
    columns = len(shape.taps or ()) * shape.width
    anchors = random.integers(0, shape.vocabulary - 1, len(lengths))
    anchors += anchors >= network.mask_token
    return [
        Case(random.normal(size=(length, columns)).astype(np.float32), int(anchor))
        for length, anchor in zip(lengths, anchors, strict=True)
    ]


def compare(wanted: Sequence[Proposal], found: Sequence[Proposal], tolerance: float) -> Agreement:
    """Hold llama.cpp's blocks against ours, each up to the first token in which they part.

    They may part at a near-tie: where the gap of the two tokens is within the tolerance.
    """
    same, ties, worst, trust = 0, 0, 0.0, 0.0
    for ours, theirs in zip(wanted, found, strict=True):
        equal = np.array(ours.tokens) == np.array(theirs.tokens)
        agreed = len(equal) if equal.all() else int(equal.argmin())
        rows = min(agreed + 1, len(equal))
        for row in range(rows):
            error, scale = _apart(ours.logits[row], theirs.logits[row])
            worst = max(worst, error / scale)
        if agreed == len(equal):
            same += 1
        else:
            logits = ours.logits[agreed]
            gap = logits[ours.tokens[agreed]] - logits[theirs.tokens[agreed]]
            # Two logits, each wrong by some multiple of the rms.
            ties += bool(gap <= TIE * tolerance * _apart(logits, logits)[1])
        if ours.confidences.size and theirs.confidences.size:
            apart = np.abs(ours.confidences[:rows] - theirs.confidences[:rows])
            trust = max(trust, float(apart.max()))
    return Agreement(len(wanted), same, ties, worst, trust, tolerance)


def tolerance_of(plan: Plan) -> float:
    """What rounding may do, by the coarsest type that is multiplied with."""
    used = [kind for name, kind in plan.kinds.items() if len(plan.recipe.weights[name].shape) > 1]
    used += [borrowed(plan.target, name).type_id for name in plan.borrows]
    return max(TOLERANCES.get(kind, COARSE) for kind in used)


def _apart(ours: np.ndarray, theirs: np.ndarray) -> tuple[float, float]:
    """The rms difference of two rows of logits, and the rms of the first around its mean."""
    there = np.isfinite(ours)
    if not (there == np.isfinite(theirs)).all():
        return np.inf, 1.0
    row = ours[there].astype(np.float64)
    apart = row - theirs[there]
    scale = float(row.std()) or 1.0
    return float(np.sqrt(np.mean(apart**2))), scale


@contextmanager
def _opened(path: Path, shape: DrafterShape, plan: Plan, threads: int) -> Iterator[Drafter]:
    """The written drafter in a context of its own; the target is loaded where it lends tensors."""
    block = shape.block_size or 1
    longest = max(len(case.taps) for case in random_cases(plan.recipe.network, shape)) + block
    settings = ContextSettings(threads, "f32", "f32", "off")
    with ExitStack() as owned:
        other: Context | None = None
        if plan.borrows:
            target = owned.enter_context(open_model(plan.target.path, gpu_layers=0))
            sizes = _sizes(MIN_DRAFTER_UBATCH, 1)
            other = owned.enter_context(
                open_context(target, "target", shape.vocabulary, sizes, settings)
            )
        model = owned.enter_context(open_model(path, gpu_layers=0))
        sizes = _sizes(max(longest, MIN_DRAFTER_UBATCH), max(block + 1, MIN_DRAFTER_UBATCH))
        context = owned.enter_context(
            open_context(model, "drafter", shape.vocabulary, sizes, settings, other=other)
        )
        yield Drafter(context, shape)


def _sizes(positions: int, ubatch: int) -> ContextSizes:
    return ContextSizes(
        n_ctx_requested=positions,
        n_ctx=positions,
        n_batch_requested=positions,
        n_batch=positions,
        n_ubatch=ubatch,
        n_outputs_max=positions,
        kv_bytes=0,
        tap_bytes=0,
        logits_bytes=0,
    )


def _drafted(drafter: Drafter, case: Case, shape: DrafterShape) -> Proposal:
    drafter.clear()
    drafter.observe(case.taps, 0)
    block = shape.block_size or 1
    draft = drafter.propose(case.anchor, len(case.taps), block)
    rows = range(shape.first_draft_row, block)
    return Proposal(
        tokens=draft.tokens,
        logits=np.array([drafter.context.logits_row(row) for row in rows]),
        confidences=np.array(draft.confidences, np.float32),
    )
