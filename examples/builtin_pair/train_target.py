"""Train the built-in target from nothing and write it as a GGUF.

The learning rate follows the clock, not a count of steps: training ends when its minutes are over,
on any machine. Texts are told while they are learned, each about once. State is kept in the work
folder; the same command goes on where it was stopped.

    python train_target.py --out target.gguf --minutes 22 --work work
"""

import argparse
import json
import math
import re
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from itertools import islice
from pathlib import Path

import grammar
import torch
from model import Shape, Target, write_gguf
from tokenizers import Tokenizer
from torch import Tensor
from torch.nn import functional
from vocabulary import BOS, EOS, Vocabulary, learn_vocabulary

VOCABULARY_TEXTS = 20_000  # enough that every word of the grammar is common
TOKENS_PER_STEP = 4096
ROW = 256  # a long story fits
LONG_ROW = 2048  # the whole context: many texts, one after the other
LONG_SHARE = 0.06  # of the time, at the end
CUT_SHARE = 0.3  # of the texts
CUT_SPACES = 3
PEAK_RATE = 2e-3
WARM_UP = 0.02  # of the time
LAST_RATE = 0.02  # of the peak
SAVE_SECONDS = 60
HELD_OUT_STEP = 999_999  # never reached
HELD_OUT_ROWS = 32


@dataclass
class Progress:
    """How far training has come."""

    step: int = 0
    seconds: float = 0.0
    loss: float = math.log(Shape().n_vocab)  # a running mean


# --- data ---------------------------------------------------------------------------------------


def rows(tokenizer: Tokenizer, seed: int, length: int) -> Iterator[list[int]]:
    """Fill rows with whole texts from their beginning; only the last text of a row is cut."""
    row: list[int] = []
    chance = grammar.Chance(seed)
    for text in grammar.texts(seed):
        encoded = tokenizer.encode_batch(cut(text, chance))
        row += [BOS, *(token for piece in encoded for token in piece.ids), EOS]
        if len(row) > length:
            yield row[: length + 1]
            row = []


def cut(text: str, chance: grammar.Chance) -> list[str]:
    """Part some texts in two, half of them behind one of their first spaces.

    A prompt may end where the tokens of a whole text never do: in a word, or after ``def ``.
    """
    if not chance.happens(CUT_SHARE):
        return [text]
    spaces = [place.end() for place in islice(re.finditer(" ", text), CUT_SPACES)]
    early = bool(spaces) and chance.happens(0.5)
    at = chance.pick(spaces) if early else chance.number(1, len(text) - 1)
    return [text[:at], text[at:]]


def batch(tokenizer: Tokenizer, seed: int, length: int, count: int) -> Tensor:
    return torch.tensor(list(islice(rows(tokenizer, seed, length), count)))


def held_out(tokenizer: Tokenizer, seed: int) -> Tensor:
    """Texts that no step of this seed is told."""
    return batch(tokenizer, text_seed(seed, HELD_OUT_STEP), ROW, HELD_OUT_ROWS)


def text_seed(seed: int, step: int) -> int:
    """Give each step texts of its own, so that a resumed run needs no memory of them."""
    return seed * 1_000_000 + step


def loss_of(model: Target, tokens: Tensor) -> Tensor:
    """Mean cross entropy of each token after those before it, in nats."""
    with torch.autocast("cpu", torch.bfloat16):
        logits = model(tokens[:, :-1])
    return functional.cross_entropy(logits.flatten(0, 1).float(), tokens[:, 1:].flatten())


# --- training -----------------------------------------------------------------------------------


def learning_rate(part: float) -> float:
    """Rise shortly, then fall as a cosine; ``part`` is how much of the time is over."""
    if part < WARM_UP:
        return PEAK_RATE * part / WARM_UP
    fallen = (1 + math.cos(math.pi * (part - WARM_UP) / (1 - WARM_UP))) / 2
    return PEAK_RATE * (LAST_RATE + (1 - LAST_RATE) * fallen)


def optimiser_of(model: Target) -> torch.optim.AdamW:
    """Let matrices decay, and norms not."""
    weights = list(model.parameters())
    groups = [
        {"params": [weight for weight in weights if weight.ndim > 1], "weight_decay": 0.1},
        {"params": [weight for weight in weights if weight.ndim == 1], "weight_decay": 0.0},
    ]
    return torch.optim.AdamW(groups, lr=PEAK_RATE, betas=(0.9, 0.98), fused=True)


class Training:
    """A model on its way, and the file that keeps it."""

    def __init__(self, tokenizer: Tokenizer, seed: int, checkpoint: Path) -> None:
        torch.manual_seed(seed)
        self.tokenizer, self.seed, self.checkpoint = tokenizer, seed, checkpoint
        self.model = Target(Shape())
        self.optimiser = optimiser_of(self.model)
        # Fused, a step takes 0.6 of the time; the C++ compiler that this needs (and a minute
        # with it) is there, for llama-cpp-python was built with it.
        self.loss_of = torch.compile(loss_of, dynamic=False)
        self.progress = Progress()
        if checkpoint.exists():
            kept = torch.load(checkpoint)
            self.model.load_state_dict(kept["model"])
            self.optimiser.load_state_dict(kept["optimiser"])
            self.progress = Progress(**kept["progress"])

    def save(self) -> None:
        """Replace the checkpoint in one move, so that a kill leaves the old one or the new."""
        fresh = self.checkpoint.with_suffix(".new")
        torch.save(
            {
                "model": self.model.state_dict(),
                "optimiser": self.optimiser.state_dict(),
                "progress": asdict(self.progress),
            },
            fresh,
        )
        fresh.replace(self.checkpoint)

    def run(self, seconds: float) -> None:
        saved = self.progress.seconds
        while self.progress.seconds < seconds:
            began = time.monotonic()
            self.step(self.progress.seconds / seconds)
            self.progress.seconds += time.monotonic() - began
            if self.progress.seconds - saved > SAVE_SECONDS:
                saved = self.progress.seconds
                self.save()
                print(self.line(), flush=True)
        self.save()

    def step(self, part: float) -> None:
        progress = self.progress
        progress.step += 1
        length = ROW if part < 1 - LONG_SHARE else LONG_ROW
        tokens = batch(
            self.tokenizer,
            text_seed(self.seed, progress.step),
            length,
            TOKENS_PER_STEP // length,
        )
        for group in self.optimiser.param_groups:
            group["lr"] = learning_rate(part)
        loss = self.loss_of(self.model, tokens)
        self.optimiser.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimiser.step()
        progress.loss += (loss.item() - progress.loss) * max(0.02, 1 / progress.step)

    def line(self) -> str:
        progress = self.progress
        return (
            f"{progress.seconds / 60:5.1f} min  step {progress.step}  loss {progress.loss:.3f}  "
            f"held out {self.held_out_loss():.3f}  "
            f"{progress.step * TOKENS_PER_STEP / progress.seconds:.0f} tokens/s"
        )

    def held_out_loss(self) -> float:
        with torch.no_grad():
            return loss_of(self.model, held_out(self.tokenizer, self.seed)).item()


def vocabulary_in(work: Path, seed: int) -> Vocabulary:
    """Learn the vocabulary once, and keep it."""
    kept = work / "vocabulary.json"
    if not kept.exists():
        texts = islice(grammar.texts(text_seed(seed, 0)), VOCABULARY_TEXTS)
        kept.write_text(json.dumps(asdict(learn_vocabulary(texts, Shape().n_vocab))))
    return Vocabulary(**json.loads(kept.read_text()))


def main() -> None:
    parser = argparse.ArgumentParser(description="Train the built-in target.")
    parser.add_argument("--out", type=Path, required=True, help="GGUF to write")
    parser.add_argument("--minutes", type=float, required=True, help="of training, in all")
    parser.add_argument("--work", type=Path, required=True, help="folder for the checkpoint")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()

    torch.set_num_threads(options.threads)
    options.work.mkdir(parents=True, exist_ok=True)
    vocabulary = vocabulary_in(options.work, options.seed)
    training = Training(
        vocabulary.tokenizer(), options.seed, options.work / "target-checkpoint.pt"
    )
    training.run(options.minutes * 60)
    print(training.line())
    write_gguf(options.out, training.model, vocabulary)
    print(f"{options.out}: {options.out.stat().st_size / 1e6:.1f} MB")


if __name__ == "__main__":
    main()
