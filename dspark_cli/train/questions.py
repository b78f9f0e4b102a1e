"""What the target is asked: prompts in its own chat template, raw prompts, or nothing at all.

A target without a chat template that is given no prompts writes texts of its own, from its BOS on.
"""

import hashlib
import itertools
from collections.abc import Sequence
from pathlib import Path

from dspark_cli.engine.vocab import NO_TOKEN, Vocabulary
from dspark_cli.errors import UsageError
from dspark_cli.generate import own_tokens
from dspark_cli.prompts import read_jsonl
from dspark_cli.train.templates import written_prompts

LONGEST_PROMPT = 256  # tokens, the chat template included; longer prompts are not asked
FEWEST_PROMPTS = 20  # of a file: a part of them is held out to judge the drafter
WRITTEN_PROMPTS = 40_000  # all of the built-in ones


class Questions:
    """The prompts of one collection, by index; a finite list is gone through again and again.

    Raises UsageError where the target can be asked nothing.
    """

    def __init__(self, vocabulary: Vocabulary, texts: Sequence[str] | None, label: str) -> None:
        self.label = label
        self._vocabulary = vocabulary
        self._texts = texts
        if texts is None and vocabulary.bos == NO_TOKEN:
            raise UsageError(
                "the target has neither a chat template nor a BOS token: nothing to begin from",
                hint="give it something to continue with --prompts FILE",
            )

    @property
    def from_nothing(self) -> bool:
        """Whether texts begin at the BOS, so that only chance tells them apart."""
        return self._texts is None

    @property
    def count(self) -> int | None:
        """Distinct prompts; None where every index is one of its own."""
        return None if self._texts is None else len(self._texts)

    def group(self, index: int) -> int:
        """Which distinct prompt ``index`` is: what must not be in both training and held out."""
        return index if self._texts is None else index % len(self._texts)

    def greedy_allowed(self, index: int) -> bool:
        """A prompt is answered greedily once at most: the answer would be the same again."""
        return self._texts is None or index < len(self._texts)

    def tokens(self, index: int) -> list[int] | None:
        """Tokens of one prompt, None where it is longer than ``LONGEST_PROMPT``."""
        if self._texts is None:
            return [self._vocabulary.bos]
        text = self._texts[self.group(index)]
        tokens = own_tokens(self._vocabulary, text)
        return tokens if 0 < len(tokens) <= LONGEST_PROMPT else None


def questions_for(vocabulary: Vocabulary, prompts: Path | None, *, seed: int) -> Questions:
    """The prompts of a file, the built-in ones, or none where the target is no chat model."""
    if prompts is not None:
        texts = read_prompts(prompts)
        digest = hashlib.sha256("\0".join(texts).encode()).hexdigest()[:16]
        return Questions(vocabulary, texts, f"{prompts.name} ({digest})")
    if vocabulary.chat_template() is None:
        return Questions(vocabulary, None, "texts of the target's own")
    written = itertools.islice(written_prompts(seed), WRITTEN_PROMPTS)
    return Questions(vocabulary, [prompt.text for prompt in written], f"built-in, seed {seed}")


def read_prompts(path: Path) -> list[str]:
    """The distinct prompts of a file; raises UsageError where too few can be held out."""
    texts = list(dict.fromkeys(prompt.text for prompt in read_jsonl(path)))
    if len(texts) < FEWEST_PROMPTS:
        raise UsageError(
            f"{path}: holds {len(texts)} distinct prompts, wanted at least "
            f"{FEWEST_PROMPTS}: a part is held out to judge the drafter",
        )
    return texts
