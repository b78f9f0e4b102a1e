"""The three steps of a training, each a function that opens what it needs and closes it again.

``collect`` fills a dataset with the target's own words, ``fit`` teaches the drafter, ``export``
writes its GGUF and measures it. They share a folder and nothing else, so each can be run alone, be
killed, and be run again.
"""

import itertools
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from dspark_cli.contract import TargetShape
from dspark_cli.engine.context import ContextSettings, open_context
from dspark_cli.engine.lanes import Lanes
from dspark_cli.engine.model import Model, open_model
from dspark_cli.engine.taps import Taps
from dspark_cli.engine.vocab import Vocabulary
from dspark_cli.errors import DsparkError, UsageError
from dspark_cli.generate import run_to_end
from dspark_cli.machine import available_memory
from dspark_cli.metadata import Metadata, read_metadata
from dspark_cli.options import MemoryOptions, PairOptions, usable_cores
from dspark_cli.pair import Pair, open_pair
from dspark_cli.sizes import plan_lanes
from dspark_cli.stats import Statistics
from dspark_cli.tensors import read_weights
from dspark_cli.train.batches import choose_draft_tokens, tap_scale
from dspark_cli.train.collect import Collection, Manner, manner_of
from dspark_cli.train.dataset import (
    F16_MAX,
    OPENING_TOKENS,
    Answer,
    Dataset,
    DatasetWriter,
    Header,
    is_held_out,
)
from dspark_cli.train.design import DrafterDesign, OutType
from dspark_cli.train.export import as_stored, write_drafter
from dspark_cli.train.questions import LONGEST_PROMPT, Questions, questions_for
from dspark_cli.train.weights import initial_weights

if TYPE_CHECKING:  # PyTorch is imported by the steps that need it, not by ``collect``
    from dspark_cli.train.faithful import Faithfulness
    from dspark_cli.train.fit import Fit, FitOptions
    from dspark_cli.train.model import TrainedDrafter
    from dspark_cli.train.report import TrainingReport

Progress = Callable[[float, float, str], None]
"""Called with what is done, what is wanted, and a remark."""

DATASET = "dataset"  # folder of the collected answers, within the training's own
CHECKPOINT = "checkpoint.pt"
EXPORTED = "exported.gguf"  # until it has proved to be what was trained
EXPORT_STEPS = 4
EXACT_TYPES = {"f32", "f16"}  # files of these must propose what PyTorch does
NEAR_TIE = 0.05  # logits, a hundred times the rounding of F16 weights on an ordinary pair
FAR_BLOCKS = 0.01  # of the blocks may part by more than that
FAR_CONFIDENCE = 0.02
SCALE_ANSWERS = 64  # whose taps say how large each channel usually is
MAX_PASSES = 64  # over a finite list of prompts, each sampled anew


@dataclass(frozen=True, slots=True)
class CollectOptions:
    """How much is collected, and how."""

    tokens: int = 300_000  # of prompts and answers together
    prompts: Path | None = None  # None: the built-in ones
    answer_tokens: int = 256  # the longest answer
    lanes: int = 32  # sequences per batch
    top: int = 32  # entries kept of each distribution
    seed: int = 0
    store_taps: bool = True
    max_disk: int | None = None  # bytes; None: what the disk has
    threads: int | None = None

    def __post_init__(self) -> None:
        for name, value, least, most in (
            ("--tokens", self.tokens, 1000, 10**10),
            ("--answer-tokens", self.answer_tokens, 16, 1 << 20),
            ("--lanes", self.lanes, 1, 256),
            ("--seed", self.seed, 0, 2**31),
        ):
            if not least <= value <= most:
                raise UsageError(f"{name} wants {least} to {most}, got {value}")


@dataclass(frozen=True, slots=True)
class Collected:
    """What a dataset holds after ``collect``."""

    tokens: int
    answers: int
    skipped: int  # prompts that were too long


def projected_bytes(design: DrafterDesign, options: CollectOptions) -> int:
    """Bytes of the dataset that ``options`` ask for."""
    header = _header(design, options, label="", distinct=0)
    # Answers that are under way when the dataset is large enough are finished.
    under_way = options.lanes * (LONGEST_PROMPT + options.answer_tokens)
    return header.bytes_per_token() * (options.tokens + under_way)


def check_disk(design: DrafterDesign, options: CollectOptions, folder: Path) -> None:
    """Refuse a dataset that is larger than ``max_disk`` or than the disk; raises UsageError."""
    projected = projected_bytes(design, options)
    if options.max_disk is not None and projected > options.max_disk:
        raise UsageError(
            f"{options.tokens} tokens take {_gib(projected)}, --max-disk allows "
            f"{_gib(options.max_disk)}",
            hint="collect fewer --tokens, or --no-store-taps, which computes taps while fitting",
        )
    present = sum(path.stat().st_size for path in (folder / DATASET).glob("shard-*"))
    there = next(path for path in (folder, *folder.absolute().parents) if path.exists())
    free = shutil.disk_usage(there).free
    if projected - present > free:
        raise UsageError(
            f"{options.tokens} tokens take {_gib(projected)}, {there} has {_gib(free)} left "
            f"beside the {_gib(present)} that are there",
            hint="collect fewer --tokens, or --no-store-taps, which computes taps while fitting",
        )


def collect(
    model: Path,
    design: DrafterDesign,
    options: CollectOptions,
    folder: Path,
    *,
    progress: Progress,
) -> Collected:
    """Let the target answer until the dataset holds ``options.tokens`` tokens.

    Goes on where an earlier call stopped. Raises InterruptedRunError after Ctrl-C, with everything
    that was answered on disk; UsageError where the folder holds another dataset.
    """
    with ExitStack() as owned:
        loaded = owned.enter_context(open_model(model))
        vocabulary = Vocabulary(loaded)
        questions = questions_for(vocabulary, options.prompts, seed=options.seed)
        header = _header(design, options, label=questions.label, distinct=questions.count or 0)
        writer = owned.enter_context(DatasetWriter(folder / DATASET, header))
        lanes = _open_lanes(owned, loaded, design, options, len(vocabulary))
        collection = Collection(
            lanes,
            questions.tokens,
            manner=_manner(questions, options.seed),
            ends=vocabulary.is_eog,
            answer_tokens=options.answer_tokens,
            positions=_positions(design.target, options.answer_tokens),
            top=header.top,
            seed=options.seed,
            store_taps=options.store_taps,
        )
        todo = _todo(writer, questions, options.tokens)
        progress(writer.tokens, options.tokens, f"{writer.answers} answers")
        for answer in collection.answers(todo):
            writer.add(answer)
            progress(writer.tokens, options.tokens, f"{writer.answers} answers")
        return Collected(writer.tokens, writer.answers, collection.skipped)


def _todo(writer: DatasetWriter, questions: Questions, tokens: int) -> Iterator[int]:
    """Indices of prompts without an answer, until the dataset is large enough."""
    done = writer.prompts
    last = None if questions.count is None else MAX_PASSES * questions.count
    for index in itertools.count():
        if writer.tokens >= tokens or index == last:
            return
        again = not questions.greedy_allowed(index)
        if index not in done and not (again and is_held_out(questions.group(index))):
            yield index


def _manner(questions: Questions, seed: int) -> Callable[[int], Manner]:
    return lambda index: manner_of(
        index,
        seed,
        held_out=not questions.from_nothing and is_held_out(questions.group(index)),
        greedy_allowed=questions.greedy_allowed(index),
        from_nothing=questions.from_nothing,
    )


def _header(
    design: DrafterDesign, options: CollectOptions, *, label: str, distinct: int
) -> Header:
    return Header(
        target=design.fingerprint.metadata_sha256,
        target_name=design.fingerprint.name,
        vocabulary=design.vocabulary,
        width=design.width,
        taps=design.taps,
        top=min(options.top, design.vocabulary),
        stores_taps=options.store_taps,
        prompts=label,
        distinct_prompts=distinct,
        answer_tokens=options.answer_tokens,
        seed=options.seed,
    )


def _open_lanes(
    owned: ExitStack,
    model: Model,
    design: DrafterDesign,
    options: CollectOptions,
    vocabulary: int,
) -> Lanes:
    positions = _positions(design.target, options.answer_tokens)
    sizes = plan_lanes(
        design.target, lanes=options.lanes, positions=positions, taps=len(design.taps)
    )
    available = available_memory()
    needed = sizes.bytes + design.target.weight_bytes
    if available is not None and needed > available:
        raise DsparkError(
            f"--lanes {options.lanes}: collecting needs {_gib(needed)}, "
            f"{_gib(available)} are available",
            hint="use fewer --lanes, or a smaller --answer-tokens",
        )
    threads = options.threads or usable_cores()
    settings = ContextSettings(threads, "f16", "f16", "auto")
    context = owned.enter_context(open_context(model, "target", vocabulary, sizes, settings))
    taps = Taps(context, design.taps, design.width)
    return Lanes(context, taps, options.lanes, vocabulary)


def _positions(target: TargetShape, answer_tokens: int) -> int:
    """Positions of one lane: a prompt and its answer, within what the target was trained on."""
    wanted = LONGEST_PROMPT + answer_tokens
    return min(wanted, target.context_length or wanted)


@dataclass(frozen=True, slots=True)
class Teaching:
    """Everything a fit is made of."""

    fit: "Fit"
    target: Metadata
    embedding: np.ndarray  # float32 [vocabulary, width]
    head: np.ndarray  # float32 [draft vocabulary, width]
    draft_tokens: np.ndarray  # int64 [draft vocabulary]
    dataset: Dataset
    read: Callable[[int], Answer]  # an answer with its taps
    judged: list[int]  # held-out answers


@contextmanager
def open_teaching(
    model: Path,
    design: DrafterDesign,
    options: "FitOptions",
    folder: Path,
    *,
    draft_vocabulary: int | None = None,
    start: Path | None = None,
    begin: bool = True,
) -> Iterator[Teaching]:
    """A fit on the dataset in ``folder``, from its checkpoint where there is one.

    Without a checkpoint a fit may ``begin``, from the drafter ``start`` where one is given. Raises
    UsageError for a dataset of another target or other taps, and for a checkpoint that is missing
    or of another design; DsparkError for a dataset too small.
    """
    from dspark_cli.train.fit import Fit, held_out, load_checkpoint
    from dspark_cli.train.model import TrainedDrafter

    dataset = Dataset(folder / DATASET)
    _check_dataset(dataset, design)
    learned, judged = held_out(dataset)
    target = read_metadata(model)
    embedding = read_weights(target, "token_embd.weight")
    output = (
        read_weights(target, "output.weight") if "output.weight" in target.tensors else embedding
    )
    checkpoint = folder / CHECKPOINT
    with ExitStack() as owned:
        read = _tap_source(owned, model, design, dataset)
        if checkpoint.exists():
            state = load_checkpoint(checkpoint, design)
            draft_tokens = state["draft_tokens"].numpy()
            _check_draft_vocabulary(checkpoint, draft_tokens, draft_vocabulary, design)
            scale = state["tap_scale"].numpy()
            weights = {
                name.removeprefix("weights.").replace("/", "."): values.numpy()
                for name, values in state["weights"].items()
            }
        elif not begin:
            raise UsageError(f"{checkpoint}: no such file", hint="run the step fit first")
        else:
            draft_tokens = choose_draft_tokens(dataset.token_counts(), draft_vocabulary)
            scale = tap_scale(read(index) for index in learned[:SCALE_ANSWERS])
            weights = initial_weights(
                design,
                target,
                draft_tokens,
                scale,
                seed=options.seed,
                start=read_metadata(start) if start else None,
            )
        whole = len(draft_tokens) == len(output)
        head = output if whole else output[draft_tokens]
        drafter = TrainedDrafter(
            design,
            weights,
            embedding=embedding,
            head=head,
            draft_tokens=draft_tokens,
            tap_scale=scale,
        )
        fit = Fit(drafter, read, (learned, judged), options, checkpoint)
        yield Teaching(fit, target, embedding, head, draft_tokens, dataset, read, judged)


def _tap_source(
    owned: ExitStack, model: Path, design: DrafterDesign, dataset: Dataset
) -> Callable[[int], Answer]:
    """Answers with their taps: from the disk, or computed again by the target."""
    if dataset.header.stores_taps:
        return dataset.__getitem__
    loaded = owned.enter_context(open_model(model))
    options = CollectOptions(lanes=1, answer_tokens=dataset.header.answer_tokens)
    lanes = _open_lanes(owned, loaded, design, options, design.vocabulary)

    def read(index: int) -> Answer:
        answer = dataset[index]
        taps = lanes.begin(0, answer.tokens[:-1].tolist()).taps
        return replace(answer, taps=taps.clip(-F16_MAX, F16_MAX).astype(np.float16))

    return read


def _check_draft_vocabulary(
    checkpoint: Path, found: np.ndarray, wanted: int | None, design: DrafterDesign
) -> None:
    """A head has its rows from the beginning on."""
    if wanted is not None and (wanted or design.vocabulary) != len(found):
        raise UsageError(
            f"{checkpoint}: proposes {len(found)} tokens, --draft-vocab wants "
            f"{wanted or design.vocabulary}",
            hint="leave --draft-vocab out, or begin in another folder",
        )


def _check_dataset(dataset: Dataset, design: DrafterDesign) -> None:
    header = dataset.header
    if header.target != design.fingerprint.metadata_sha256:
        raise UsageError(
            f"{dataset.folder}: holds answers of {header.target_name}, wanted those of "
            f"{design.fingerprint.name}"
        )
    if header.taps != design.taps:
        raise UsageError(
            f"{dataset.folder}: holds taps of layers {header.taps}, wanted {design.taps}",
            hint="give the same --taps, or collect again",
        )


@dataclass(frozen=True, slots=True)
class ExportOptions:
    """What is written, and how much is tried on it."""

    out_type: OutType = "f16"
    faithful_blocks: int = 500  # held-out blocks proposed by both implementations
    timed_prompts: int = 6  # held-out prompts generated with and without the drafter
    timed_tokens: int = 96  # per prompt
    threads: int | None = None


def export(
    model: Path,
    design: DrafterDesign,
    teaching: Teaching,
    options: ExportOptions,
    out: Path,
    folder: Path,
    *,
    progress: Progress,
) -> "TrainingReport":
    """Write the drafter, hold the file against what was trained, calibrate it, and measure it.

    The file gets its name when all of that is done; until then it is in ``folder``. Raises
    InterruptedRunError after Ctrl-C, DsparkError where llama.cpp computes something else.
    """
    from dspark_cli.train.faithful import compare_proposals
    from dspark_cli.train.fit import judge
    from dspark_cli.train.model import CONFIDENCE_BIAS, CONFIDENCE_WEIGHT
    from dspark_cli.train.report import Data, TrainingReport
    from dspark_cli.train.trust import ConfidenceHead, learn_trust

    trained = teaching.fit.drafter
    stored = _as_stored(teaching, design, options.out_type)
    halves = [judge(stored, map(teaching.read, teaching.judged[half::2])) for half in range(2)]
    progress(1, EXPORT_STEPS, "calibrating")
    weights = trained.export()
    trusted = learn_trust(
        halves[0],
        halves[1],
        ConfidenceHead(weights[CONFIDENCE_WEIGHT][0], float(weights[CONFIDENCE_BIAS][0])),
    )
    trained.set_confidence(trusted.head.weight, trusted.head.bias)
    judgement = halves[0].joined(halves[1])
    judgement = replace(judgement, confidence=trusted.head.logits(judgement))
    written = folder / EXPORTED
    write_drafter(
        written,
        design,
        teaching.target,
        trained.export(),
        draft_tokens=teaching.draft_tokens,
        head=teaching.head,
        context_length=teaching.dataset.longest,
        out_type=options.out_type,
        temperatures=[position.temperature for position in trusted.calibration],
        name=out.stem,
    )
    progress(2, EXPORT_STEPS, "comparing with PyTorch")
    positions = _positions(design.target, teaching.dataset.header.answer_tokens)
    # PyTorch sees the whole of every answer.
    memory = MemoryOptions(threads=options.threads, ctx_size=positions, draft_window=0)
    with open_pair(PairOptions(model, written, memory=memory)) as pair:
        if pair.drafter is None:
            raise ValueError("a pair with a drafter came without it")
        faithful = compare_proposals(
            trained, pair.drafter, map(teaching.read, teaching.judged), options.faithful_blocks
        )
        _check_faithful(faithful, options.out_type)
        progress(3, EXPORT_STEPS, "measuring")
        timed = [teaching.dataset.read(i, taps=False) for i in teaching.judged]
        drafted, ratios = _side_by_side(pair, timed[: options.timed_prompts], options)
    move(written, out)
    progress(EXPORT_STEPS, EXPORT_STEPS, f"wrote {out.name}")
    fit = teaching.fit
    return TrainingReport(
        design=design,
        out=out,
        out_type=options.out_type,
        data=Data(
            prompts=teaching.dataset.header.prompts,
            answers=len(teaching.dataset),
            tokens=teaching.dataset.tokens,
            held_out=len(teaching.judged),
        ),
        draft_vocabulary=len(teaching.draft_tokens),
        curve=tuple(fit.curve),
        minutes=fit.minutes,
        steps=fit.step,
        judgement=judgement,
        calibration=tuple(trusted.calibration),
        faithful=faithful,
        drafted=drafted,
        speed_ratios=tuple(ratios),
    )


def _as_stored(teaching: Teaching, design: DrafterDesign, out_type: OutType) -> "TrainedDrafter":
    """The drafter as its file will say it, rounding included."""
    from dspark_cli.train.model import TrainedDrafter

    trained = teaching.fit.drafter
    pruned = len(teaching.draft_tokens) < design.vocabulary
    head = as_stored({"output.weight": teaching.head}, out_type)["output.weight"]
    return TrainedDrafter(
        design,
        as_stored(trained.export(), out_type),
        embedding=teaching.embedding,
        head=head if pruned else teaching.head,
        draft_tokens=teaching.draft_tokens,
        tap_scale=np.ones(design.tap_width, np.float32),
    ).to(trained.head.device)


def _check_faithful(faithful: "Faithfulness", out_type: OutType) -> None:
    """Refuse a file that is not what was trained; a quantised one only says how much it is."""
    if out_type not in EXACT_TYPES or not faithful.blocks:
        return
    parted = [gap for gap in faithful.gaps if gap > NEAR_TIE]
    if len(parted) > FAR_BLOCKS * faithful.blocks or faithful.confidence_error > FAR_CONFIDENCE:
        raise DsparkError(
            f"the exported drafter is not what was trained: {len(parted)} of {faithful.blocks} "
            f"held-out blocks differ by more than {NEAR_TIE} logits, confidences by up to "
            f"{faithful.confidence_error:.3f}",
            hint="this llama.cpp computes the drafter in another way; please report it",
        )


def move(source: Path, out: Path) -> None:
    """Give a finished file its name, on another disk too; raises DsparkError."""
    beside = out.with_name(out.name + ".part")
    try:
        shutil.move(source, beside)
        beside.replace(out)
    except OSError as error:
        beside.unlink(missing_ok=True)
        raise DsparkError(f"{out}: cannot be written: {error.strerror or error}") from None


def _side_by_side(
    pair: Pair, answers: Sequence[Answer], options: ExportOptions
) -> tuple[Statistics, list[float]]:
    """Decode held-out prompts with and without the drafter, in turn.

    Returns the drafted runs' statistics together, and each prompt's speed as a multiple of plain
    decoding.
    """
    total, ratios = Statistics(), []
    alone = replace(pair, drafter=None)
    for answer in answers:
        # A text that began from nothing begins with its opening: without it, all are the same.
        begun = max(answer.n_prompt, OPENING_TOKENS + 1)
        prompt = answer.tokens[:begun].tolist()
        drafted = run_to_end(pair, prompt, options.timed_tokens)
        plain = run_to_end(alone, prompt, options.timed_tokens)
        total.merge(drafted)
        if drafted.decode_seconds and plain.n_predict:
            speed = drafted.n_predict / drafted.decode_seconds
            ratios.append(speed / (plain.n_predict / plain.decode_seconds))
    return total, ratios


def _gib(size: int) -> str:
    return f"{size / 2**30:.2f} GiB"
