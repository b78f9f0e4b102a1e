"""The prompts of our own: templates that ask a target for its own words.

``dspark train`` lets a target answer thousands of prompts and learns from the answers. Where the
user brings no prompts, these are used: sentences of our own, filled from word lists, in five
categories. Nothing here knows a model, a file or the network.

The mixture is that of the prompts a drafter meets later: of every hundred, 40 chat, 25 ask for
code, 13 rewrite a given text, 12 tell a story and 10 are sums. The categories take turns, so that
any beginning of the sequence is the same mixture: who trains on fewer prompts trains on fewer of
each.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Literal

from dspark_cli.train.templates.chat import chat_prompt
from dspark_cli.train.templates.code import code_prompt
from dspark_cli.train.templates.maths import maths_prompt
from dspark_cli.train.templates.rewrite import rewrite_prompt
from dspark_cli.train.templates.slots import Writer
from dspark_cli.train.templates.story import story_prompt
from dspark_cli.train.templates.words import WORDS

__all__ = ["CATEGORIES", "MIXTURE", "PROMPTS", "Category", "WrittenPrompt", "written_prompts"]

Category = Literal["chat", "code", "maths", "story", "rewrite"]
CATEGORIES: tuple[Category, ...] = ("chat", "code", "maths", "story", "rewrite")

MIXTURE: dict[Category, int] = {"chat": 40, "code": 25, "maths": 10, "story": 12, "rewrite": 13}
"""Prompts of each category in a hundred."""

PROMPTS = 40_000
"""How many prompts are written: enough for any training, and an end for who asks for all."""

SHORTEST, LONGEST = 20, 900
"""Characters of a prompt; what falls outside is not used."""

WRITERS: dict[Category, Callable[[Writer], str]] = {
    "chat": chat_prompt,
    "code": code_prompt,
    "maths": maths_prompt,
    "story": story_prompt,
    "rewrite": rewrite_prompt,
}


@dataclass(frozen=True, slots=True)
class WrittenPrompt:
    text: str
    category: Category


def turns() -> Iterator[Category]:
    """The categories in turn, for ever: next comes whichever is furthest behind its share."""
    due = dict.fromkeys(CATEGORIES, 0)
    while True:
        for category, share in MIXTURE.items():
            due[category] += share
        first = max(CATEGORIES, key=due.__getitem__)
        due[first] -= sum(MIXTURE.values())
        yield first


def written_prompts(seed: int = 0) -> Iterator[WrittenPrompt]:
    """Distinct prompts in the proportions of ``MIXTURE``; the same seed, the same sequence."""
    writer = Writer(WORDS, seed)
    seen: set[str] = set()
    for category in islice(turns(), PROMPTS):
        text = WRITERS[category](writer)
        while text in seen or not SHORTEST <= len(text) <= LONGEST:
            text = WRITERS[category](writer)
        seen.add(text)
        yield WrittenPrompt(text, category)
