"""Text to tokens and back: byte-level BPE, learned from the grammar's own texts.

The `tokenizers` library learns the merges, and the GGUF keeps everything that is needed to build
the same tokenizer again. Digits stand alone, so a sum is told digit by digit.

This module knows tokens; it knows nothing of models.
"""

import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import gguf
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

CONTROL_TOKENS = ("<s>", "</s>", "<mask>")
BOS, EOS, MASK = range(len(CONTROL_TOKENS))
UNUSED_TOKENS = ("<unused0>", "<unused1>", "<unused2>", "<unused3>", "<unused4>")

# llama.cpp's name for: every digit alone, then as GPT-2 splits.
PRE_TOKENIZER = "smollm"


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """Tokens in the spelling of GPT-2, where Ġ is a space, and the merges that make them."""

    tokens: list[str]
    merges: list[str]

    @property
    def kinds(self) -> list[gguf.TokenType]:
        kinds = dict.fromkeys(CONTROL_TOKENS, gguf.TokenType.CONTROL)
        kinds |= dict.fromkeys(UNUSED_TOKENS, gguf.TokenType.UNUSED)
        return [kinds.get(token, gguf.TokenType.NORMAL) for token in self.tokens]

    def tokenizer(self) -> Tokenizer:
        return tokenizer_of(
            models.BPE(
                vocab={token: index for index, token in enumerate(self.tokens)},
                merges=[tuple(merge.split(" ")) for merge in self.merges],
            )
        )


def tokenizer_of(model: models.BPE) -> Tokenizer:
    """Split as `PRE_TOKENIZER` says before the merges apply."""
    tokenizer = Tokenizer(model)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Digits(individual_digits=True),
            pre_tokenizers.ByteLevel(add_prefix_space=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer


def learn_vocabulary(texts: Iterable[str], size: int) -> Vocabulary:
    """Learn the merges; the special tokens come first, then the 256 bytes."""
    tokenizer = tokenizer_of(models.BPE())
    trainer = trainers.BpeTrainer(
        vocab_size=size,
        special_tokens=[*CONTROL_TOKENS, *UNUSED_TOKENS],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    learned = json.loads(tokenizer.to_str())["model"]
    vocabulary = Vocabulary(
        sorted(learned["vocab"], key=learned["vocab"].__getitem__),
        [" ".join(merge) for merge in learned["merges"]],
    )
    if len(vocabulary.tokens) != size:
        raise ValueError(f"{len(vocabulary.tokens)} tokens learned, wanted {size}")
    return vocabulary


def read_vocabulary(path: Path) -> Vocabulary:
    """Read tokens and merges out of a GGUF."""
    fields = gguf.GGUFReader(path).fields
    return Vocabulary(
        fields["tokenizer.ggml.tokens"].contents(), fields["tokenizer.ggml.merges"].contents()
    )
