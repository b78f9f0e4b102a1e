"""Fill the slots of a template, with words that are dealt rather than thrown.

A template is a sentence with slots in braces:

``{city}``           a word of the list of that name
``{a:job}``          likewise with its article: "a baker", "an engineer"
``{^:topic}``        likewise with a capital
``{3-9}``            a whole number from 3 to 9
``{now|then|}``      one of the alternatives, here perhaps none
``{city@home}``      the same city wherever the template says ``@home``

Slots may stand in alternatives. Words come from a shuffled deck, so that every word of a list is
dealt once before one comes again; a template never gets the same word twice from one list, unless
it asks for it with ``@``.
"""

import random
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

T = TypeVar("T")

SLOT = re.compile(r"\{([^{}]*)\}")
NUMBER = re.compile(r"(\d+)-(\d+)")
SOUNDS_CONSONANT = re.compile(r"uni(?!n|m)|use|usu|uk|eu|one\b|once|ura", re.IGNORECASE)
SOUNDS_VOWEL = re.compile(r"hour|honest|heir|honou?r|[aeiou]|8|11\b|18\b", re.IGNORECASE)


def with_article(noun: str) -> str:
    """The noun after the indefinite article that its sound asks for."""
    vowel = SOUNDS_VOWEL.match(noun) and not SOUNDS_CONSONANT.match(noun)
    return f"an {noun}" if vowel else f"a {noun}"


def capitalised(text: str) -> str:
    return text[:1].upper() + text[1:]


def followed(text: str, after: str) -> str:
    """``after`` behind ``text``, which gets its full stop first if another sentence comes."""
    unfinished = text[-1].isalnum() and after[:1] == " "
    return f"{text}.{after}" if unfinished else text + after


class Writer:
    """Fills templates from word lists; the same seed writes the same text."""

    def __init__(self, words: Mapping[str, Sequence[str]], seed: int) -> None:
        self.random = random.Random(seed)  # noqa: S311  an order, not a secret
        self._words = words
        self._decks: dict[Sequence[Any], list[Any]] = {}

    def deal(self, choices: Sequence[T], dealt: Sequence[T] = ()) -> T:
        """The next of ``choices`` in a shuffled order that is not among the ``dealt``."""
        key = tuple(choices)
        while True:
            deck = self._decks.get(key)
            if not deck:
                deck = self._decks[key] = list(key)
                self.random.shuffle(deck)
            card: T = deck.pop()
            if card not in dealt:
                return card

    def number(self, low: int, high: int) -> int:
        return self.random.randint(low, high)

    def chance(self, share: float) -> bool:
        return self.random.random() < share

    def fill(self, template: str) -> str:
        """The template with every slot filled."""
        kept: dict[str, str] = {}
        dealt: dict[str, list[str]] = {}

        def word(slot: re.Match[str]) -> str:
            inside: str = slot[1]
            if "|" in inside:
                return self.random.choice(inside.split("|"))
            form, _, rest = inside.rpartition(":")
            name, _, label = rest.partition("@")
            found = kept.get(rest) or self._one(name, dealt)
            if label:
                kept[rest] = found
            return FORMS[form](found)

        while SLOT.search(template):
            template = SLOT.sub(word, template)
        return template

    def _one(self, name: str, dealt: dict[str, list[str]]) -> str:
        if span := NUMBER.fullmatch(name):
            return str(self.number(int(span[1]), int(span[2])))
        used = dealt.setdefault(name, [])
        used.append(self.deal(self._words[name], used))
        return used[-1]


FORMS: dict[str, Callable[[str], str]] = {
    "": str,
    "a": with_article,
    "A": lambda noun: capitalised(with_article(noun)),
    "^": capitalised,
}
