"""Teach a drafter: batches, steps, checkpoints, and what held-out answers say of it.

A fit is resumable: its checkpoint holds weights, optimiser, random numbers and the minutes spent,
and is replaced in one move. Minutes, not steps, are what a user has to give; the learning rate
rises at the beginning and falls to nothing over the last part of them.
"""

import math
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from dspark_cli.errors import DsparkError, InterruptedRunError, UsageError
from dspark_cli.native.interrupt import interrupted
from dspark_cli.train.batches import (
    IGNORED,
    Batch,
    accepted_lengths,
    anchors_of,
    draw_anchors,
    greedy_anchors,
    make_batch,
    rounds_of,
)
from dspark_cli.train.dataset import HELD_OUT_EVERY, Answer, Dataset, is_held_out
from dspark_cli.train.design import DrafterDesign
from dspark_cli.train.loss import Labels, loss_of
from dspark_cli.train.model import TrainedDrafter

FEWEST_HELD_OUT = 2  # answers, below which nothing can be judged
WARM_UP_STEPS = 100
FALL = 0.4  # of the minutes: over this last part the learning rate goes to nothing
WEIGHT_DECAY = 0.01
BETAS = (0.9, 0.95)
CLIP = 1.0  # norm of the gradient
SECONDS_BETWEEN_CHECKPOINTS = 120.0
MOMENTS = 12  # of the learning curve, in a fit of ordinary length
SECONDS_BETWEEN_JUDGEMENTS = (15.0, 300.0)  # at least, at most
# The confidence head is a linear probe of rows that it does not change: it may learn faster, and
# its bias has far to go in the few steps of a short fit.
CONFIDENCE_SPEED = 10.0  # times the learning rate
JUDGED_ON_THE_WAY = 48  # answers; all held-out ones are judged at the end
ROWS_AT_ONCE = 2048  # of logits, when held-out answers are judged
BF16_GAIN = 1.3  # times faster, from which bf16 is worth its rounding


TapSource = Callable[[int], Answer]
"""Gives an answer with its taps, wherever they come from."""


@dataclass(frozen=True, slots=True)
class FitOptions:
    """How long and how a drafter is taught."""

    minutes: float = 30.0
    learning_rate: float = 1e-3
    answers: int = 8  # per step
    anchors: int = 32  # per answer
    seed: int = 0
    device: str = "auto"
    threads: int | None = None

    def __post_init__(self) -> None:
        if not 0 < self.minutes < math.inf:
            raise UsageError(f"--minutes wants more than 0, got {self.minutes}")
        if not 0 < self.learning_rate <= 1:
            raise UsageError(
                f"--learning-rate wants more than 0 and at most 1, got {self.learning_rate}"
            )


@dataclass(frozen=True, slots=True)
class Judgement:
    """What held-out answers say: every anchor of every greedy one of them, row by row."""

    confidence: np.ndarray  # float32 [anchors, b], logits
    hits: np.ndarray  # bool [anchors, b], whether the draft is the target's own token
    real: np.ndarray  # bool [anchors, b], whether there was a token to propose
    rounds: tuple[int, ...]  # accepted drafts of each round, walking the answers as decoding does
    features: np.ndarray  # float32 [real rows, width + rank], what the confidence is computed from

    def joined(self, other: "Judgement") -> "Judgement":
        """Both judgements as one."""
        return Judgement(
            confidence=np.concatenate([self.confidence, other.confidence]),
            hits=np.concatenate([self.hits, other.hits]),
            real=np.concatenate([self.real, other.real]),
            rounds=self.rounds + other.rounds,
            features=np.concatenate([self.features, other.features]),
        )

    @property
    def tau(self) -> float:
        """Mean acceptance length: 1 + accepted per round."""
        return 1 + float(np.mean(self.rounds)) if self.rounds else 1.0

    @property
    def conditional(self) -> list[float | None]:
        """Acceptance by position, where all before were accepted."""
        reached = np.ones(len(self.hits), bool)
        rates: list[float | None] = []
        for position in range(self.hits.shape[1]):
            tried = reached & self.real[:, position]
            rates.append(float(self.hits[tried, position].mean()) if tried.any() else None)
            reached = tried & self.hits[:, position]
        return rates


@dataclass(frozen=True, slots=True)
class Moment:
    """One point of the learning curve."""

    minutes: float
    step: int
    loss: float  # mean since the last moment
    hit_rate: float  # of all rows trained on since then
    tau: float  # of held-out answers
    first: float  # held-out acceptance at position 1


def choose_device(name: str) -> torch.device:
    """``auto`` takes CUDA, then MPS, then the CPU; raises UsageError for what is not there."""
    if name == "auto":
        if torch.cuda.is_available():
            return torch.device("cuda")
        return torch.device("mps" if torch.backends.mps.is_available() else "cpu")
    try:
        device = torch.device(name)
        torch.zeros(1, device=device)
    except (RuntimeError, AssertionError, NotImplementedError):
        raise UsageError(
            f"--device {name}: PyTorch has no such device here",
            hint="use auto, cpu, cuda or mps",
        ) from None
    return device


def bf16_helps(device: torch.device) -> bool:
    """Whether products of half-precision matrices are faster, measured for a tenth of a second."""
    seconds = {}
    for kind in (torch.float32, torch.bfloat16):
        a = torch.ones(512, 512, dtype=kind, device=device)
        a @ a
        began = time.perf_counter()
        for _ in range(8):
            b = a @ a
        float(b[0, 0])  # waits for the device
        seconds[kind] = time.perf_counter() - began
    return seconds[torch.float32] > BF16_GAIN * seconds[torch.bfloat16]


def held_out(dataset: Dataset) -> tuple[list[int], list[int]]:
    """Indices of answers to learn from, and of greedy ones to be judged by; split by prompt.

    Raises DsparkError where either part would be too small.
    """
    groups = dataset.groups
    # One token is no answer to learn from: it is never proposed from, and hardly ever to.
    long = [i for i, answer in enumerate(dataset) if len(anchors_of(answer))]
    greedy = {i for i, value in enumerate(dataset.temperatures()) if value == 0}
    judged = [i for i in long if is_held_out(groups[i]) and i in greedy]
    learned = [i for i in long if not is_held_out(groups[i])]
    if len(judged) < FEWEST_HELD_OUT or len(learned) < FEWEST_HELD_OUT:
        raise DsparkError(
            f"{dataset.folder}: {len(dataset)} answers to {len(set(groups))} prompts are too few: "
            f"one prompt in {HELD_OUT_EVERY} is held out, wanted at least {FEWEST_HELD_OUT} "
            f"greedy answers there, found {len(judged)}",
            hint="collect more --tokens, from more prompts",
        )
    return learned, judged


def _parameter_groups(drafter: TrainedDrafter) -> list[dict[str, Any]]:
    """Matrices shrink a little, vectors do not, the confidence head is quick."""
    confidence = {id(drafter.get(name)) for name in ("conf_proj.weight", "conf_proj.bias")}
    others = [p for p in drafter.parameters() if id(p) not in confidence]
    return [
        {
            "params": [p for p in others if p.ndim > 1],
            "weight_decay": WEIGHT_DECAY,
            "speed": 1.0,
        },
        {"params": [p for p in others if p.ndim == 1], "weight_decay": 0.0, "speed": 1.0},
        {
            "params": [p for p in drafter.parameters() if id(p) in confidence],
            "weight_decay": 0.0,
            "speed": CONFIDENCE_SPEED,
        },
    ]


class Fit:
    """One drafter being taught."""

    def __init__(
        self,
        drafter: TrainedDrafter,
        read: TapSource,
        split: tuple[Sequence[int], Sequence[int]],
        options: FitOptions,
        checkpoint: Path,
    ) -> None:
        if options.threads is not None:
            torch.set_num_threads(options.threads)
        self.device = choose_device(options.device)
        self.drafter = drafter.to(self.device)
        self.curve: list[Moment] = []
        self.minutes = 0.0
        self.step = 0
        self._read = read
        self._learned, self._judged = split
        self._options = options
        self._checkpoint = checkpoint
        self._random = np.random.default_rng(options.seed)
        self._draft_index = draft_index(self.drafter)
        self._optimiser = torch.optim.AdamW(
            _parameter_groups(drafter),
            lr=options.learning_rate,
            betas=BETAS,
            fused=True,
        )
        self._half = bf16_helps(self.device)
        if checkpoint.exists():
            self._load()

    def run(self, progress: Callable[[float, float, str], None]) -> None:
        """Go on until the minutes are spent; a checkpoint is written on the way and at the end.

        Raises InterruptedRunError after Ctrl-C, with a checkpoint on disk.
        """
        if self.minutes >= self._options.minutes and self.curve:
            progress(self.minutes, self._options.minutes, self._remark())
            return
        try:
            self._go_on(progress)
        except InterruptedRunError:
            self._save()
            raise

    def _go_on(self, progress: Callable[[float, float, str], None]) -> None:
        wanted = self._options.minutes
        clock = time.monotonic
        last = saved = judged = clock()
        least, most = SECONDS_BETWEEN_JUDGEMENTS
        between = min(max(wanted * 60 / MOMENTS, least), most)
        losses: list[float] = []
        hits: list[float] = []
        while self.minutes < wanted:
            progress(self.minutes, wanted, self._remark())
            loss, hit = self._learn(self._rate())
            if not math.isfinite(loss):
                raise DsparkError(
                    f"the loss of step {self.step} is no number ({loss}): the fit has diverged",
                    hint="use a lower --learning-rate; the checkpoint of before is kept",
                )
            losses.append(loss)
            hits.append(hit)
            now = clock()
            self.minutes += (now - last) / 60
            last = now
            if interrupted:
                raise InterruptedRunError
            if now - judged > between:
                self._judge_moment(losses, hits)
                judged = clock()
            if now - saved > SECONDS_BETWEEN_CHECKPOINTS:
                self._save()
                saved = clock()
        self._judge_moment(losses, hits)
        self._save()
        progress(wanted, wanted, self._remark())

    def judge(self, indices: Sequence[int]) -> Judgement:
        """Judge some held-out answers, every anchor of them."""
        return judge(self.drafter, map(self._read, indices))

    def _remark(self) -> str:
        if not self.curve:
            return f"step {self.step}"
        moment = self.curve[-1]
        return f"step {self.step}, loss {moment.loss:.3f}, held-out tau {moment.tau:.2f}"

    def _judge_moment(self, losses: list[float], hits: list[float]) -> None:
        judgement = self.judge(self._judged[:JUDGED_ON_THE_WAY])
        self.curve.append(
            Moment(
                minutes=self.minutes,
                step=self.step,
                loss=float(np.mean(losses)) if losses else float("nan"),
                hit_rate=float(np.mean(hits)) if hits else float("nan"),
                tau=judgement.tau,
                first=judgement.conditional[0] or 0.0,
            )
        )
        losses.clear()
        hits.clear()

    def _rate(self) -> float:
        """The learning rate: a warm-up, a plateau, a straight fall to nothing."""
        left = 1 - self.minutes / self._options.minutes
        rise = min(1.0, (self.step + 1) / WARM_UP_STEPS)
        return self._options.learning_rate * rise * min(1.0, max(left, 0.0) / FALL)

    def _learn(self, rate: float) -> tuple[float, float]:
        options = self._options
        count = min(options.answers, len(self._learned))
        picked = self._random.choice(self._learned, count, replace=False).tolist()
        answers = [self._read(index) for index in picked]
        size = self.drafter.design.block_size
        chosen = [draw_anchors(a, size, options.anchors, self._random) for a in answers]
        with self._precision():
            rows = self._rows(make_batch(answers, chosen, size))
            loss = loss_of(
                rows.hidden,
                rows.markov,
                rows.confidence,
                rows.labels,
                head=self.drafter.head,
                markov_head=self.drafter.get("markov_w2.weight"),
            )
        for group in self._optimiser.param_groups:
            group["lr"] = rate * group["speed"]
        self._optimiser.zero_grad(set_to_none=True)
        loss.total.backward()  # type: ignore[no-untyped-call]
        torch.nn.utils.clip_grad_norm_(self.drafter.parameters(), CLIP)
        self._optimiser.step()
        self.step += 1
        return float(loss.total.detach()), float(loss.hits.float().mean())

    def _rows(self, batch: Batch) -> "Rows":
        return rows_of(self.drafter, batch, self._draft_index)

    def _precision(self) -> AbstractContextManager[object]:
        if not self._half:
            return nullcontext()
        return torch.autocast(self.device.type, dtype=torch.bfloat16)

    def _save(self) -> None:
        beside = self._checkpoint.with_name(self._checkpoint.name + ".part")
        try:
            beside.parent.mkdir(parents=True, exist_ok=True)
            torch.save(
                {
                    "design": self.drafter.design.as_checkpoint(),
                    "half": self._half,
                    "weights": self.drafter.state_dict(),
                    "draft_tokens": self.drafter.draft_tokens.cpu(),
                    "tap_scale": self.drafter.tap_scale.cpu(),
                    "optimiser": self._optimiser.state_dict(),
                    "random": self._random.bit_generator.state,
                    "minutes": self.minutes,
                    "step": self.step,
                    "curve": [_plain(moment) for moment in self.curve],
                },
                beside,
            )
            beside.replace(self._checkpoint)
        except (OSError, RuntimeError) as error:
            beside.unlink(missing_ok=True)
            raise DsparkError(f"{self._checkpoint}: cannot be written: {error}") from None

    def _load(self) -> None:
        state = load_checkpoint(self._checkpoint, self.drafter.design)
        self.drafter.load_state_dict(state["weights"])
        self._optimiser.load_state_dict(state["optimiser"])
        self._half = bool(state["half"])
        self._random.bit_generator.state = state["random"]
        self.minutes = float(state["minutes"])
        self.step = int(state["step"])
        self.curve = [Moment(**moment) for moment in state["curve"]]


@dataclass(frozen=True, slots=True)
class Rows:
    """The rows of a batch that have something to propose, and what they should propose."""

    hidden: Tensor  # [r, width]
    markov: Tensor  # [r, rank]
    confidence: Tensor  # [r]
    labels: Labels
    where: Tensor  # bool [n, m, b]


def draft_index(drafter: TrainedDrafter) -> Tensor:
    """From target ids [vocabulary] to rows of the drafter's head, ``IGNORED`` where none is."""
    tokens = drafter.draft_tokens
    index = torch.full((drafter.design.vocabulary,), IGNORED, device=tokens.device)
    index[tokens] = torch.arange(len(tokens), device=tokens.device)
    return index


def rows_of(drafter: TrainedDrafter, batch: Batch, draft_index: Tensor) -> Rows:
    """Run the drafter over a batch; ``draft_index`` [vocabulary] maps target ids to head rows."""
    device = draft_index.device

    def on(array: np.ndarray) -> Tensor:
        return torch.from_numpy(array).to(device)

    labels = on(batch.labels)
    where = labels != IGNORED
    hidden = drafter(on(batch.taps), on(batch.anchors), on(batch.tokens), on(batch.lengths))
    hidden = hidden[where]
    markov = drafter.markov(on(batch.previous)[where])
    position = torch.arange(labels.shape[2], device=device).expand(labels.shape)[where]
    return Rows(
        hidden=hidden,
        markov=markov,
        # The confidence reports on the drafter, it must not bend it.
        confidence=drafter.confidence(hidden.detach(), markov.detach()),
        labels=Labels(
            token=draft_index[labels[where]],
            greedy=draft_index[on(batch.greedy)[where]],
            top=draft_index[on(batch.top_ids)[where]],
            chances=on(batch.top_chances)[where],
            position=position,
        ),
        where=where,
    )


@torch.no_grad()
def judge(drafter: TrainedDrafter, answers: Iterable[Answer]) -> Judgement:
    """Propose a whole block at every anchor of some greedy answers, in full precision.

    Half precision would decide near-ties that the served drafter decides otherwise. Raises
    InterruptedRunError after Ctrl-C.
    """
    size = drafter.design.block_size
    index = draft_index(drafter)
    confidence: list[np.ndarray] = []
    hits: list[np.ndarray] = []
    real: list[np.ndarray] = []
    rounds: list[int] = []
    features: list[np.ndarray] = []
    for answer in answers:
        if interrupted:
            raise InterruptedRunError
        every = greedy_anchors(answer)
        if not len(every):
            continue
        of_answer: list[np.ndarray] = []
        for anchors in _pieces(every, max(ROWS_AT_ONCE // size, 1)):
            lengths = np.full(len(anchors), size)
            rows = rows_of(drafter, make_batch([answer], [(anchors, lengths)], size), index)
            logits = drafter.logits(rows.hidden, rows.markov)
            hit = logits.argmax(-1) == rows.labels.greedy
            of_answer.append(_scatter(rows.where, hit))
            confidence.append(_scatter(rows.where, rows.confidence.float()))
            features.append(torch.cat([rows.hidden, rows.markov], -1).float().cpu().numpy())
            real.append(rows.where[0].cpu().numpy())
        hits += of_answer
        rounds += rounds_of(accepted_lengths(np.concatenate(of_answer)))
    if not hits:
        empty = np.empty((0, size))
        nothing = np.empty((0, drafter.design.width + drafter.design.markov_rank), np.float32)
        return Judgement(empty.astype(np.float32), empty > 0, empty > 0, (), nothing)
    return Judgement(
        confidence=np.concatenate(confidence),
        hits=np.concatenate(hits),
        real=np.concatenate(real),
        rounds=tuple(rounds),
        features=np.concatenate(features),
    )


def _scatter(where: Tensor, values: Tensor) -> np.ndarray:
    """Values of the chosen rows, back in their places of the only answer; zeros elsewhere."""
    laid = torch.zeros(where.shape, dtype=values.dtype, device=values.device)
    laid[where] = values
    array: np.ndarray = laid[0].cpu().numpy()
    return array


def _pieces(array: np.ndarray, length: int) -> Iterator[np.ndarray]:
    for begin in range(0, len(array), length):
        yield array[begin : begin + length]


def _plain(moment: Moment) -> dict[str, float]:
    return {name: getattr(moment, name) for name in Moment.__slots__}


def load_checkpoint(path: Path, design: DrafterDesign) -> dict[str, Any]:
    """A checkpoint's contents.

    Raises UsageError where it is missing or of another design, DsparkError where it is damaged.
    """
    try:
        state: dict[str, Any] = torch.load(path, map_location="cpu", weights_only=True)
    except FileNotFoundError:
        raise UsageError(f"{path}: no such file", hint="run the step fit first") from None
    except Exception as error:  # noqa: BLE001  whatever a damaged pickle raises
        raise DsparkError(f"{path}: is no checkpoint of a fit: {error}") from None
    if state.keys() != CHECKPOINT_KEYS:
        raise DsparkError(f"{path}: is no checkpoint of a fit of this version")
    found, wanted = state["design"], design.as_checkpoint()
    if found != wanted:
        differing = [
            f"{name} is {found.get(name)}, wanted {value}"
            for name, value in wanted.items()
            if found.get(name) != value
        ]
        raise UsageError(
            f"{path}: is of a drafter of another design: {'; '.join(differing)}",
            hint="give the same options as before, or another folder",
        )
    return state


CHECKPOINT_KEYS = {
    "design", "half", "weights", "draft_tokens", "tap_scale", "optimiser", "random", "minutes",
    "step", "curve",
}  # fmt: skip
