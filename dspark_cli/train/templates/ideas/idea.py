"""An idea for a function: its names, its sentences and its answer.

``{0}`` and ``{1}`` in a sentence are the arguments, ``{k}`` is a constant that is drawn for each
prompt and comes first in the lambda.
"""

from collections.abc import Callable
from dataclasses import dataclass
from itertools import groupby
from typing import Any


@dataclass(frozen=True, slots=True)
class Idea:
    names: tuple[str, ...]
    kinds: tuple[str, ...]
    returns: str
    sentences: tuple[str, ...]
    answer: Callable[..., Any]
    constant: tuple[int, int]


def idea(
    names: str,
    kinds: str,
    returns: str,
    sentences: str,
    answer: Callable[..., Any],
    k: tuple[int, int] = (2, 9),
) -> Idea:
    """An idea as one entry of a table: names and kinds by spaces, sentences by bars."""
    return Idea(
        tuple(names.split()),
        tuple(kinds.split()),
        returns,
        tuple(sentence.strip() for sentence in sentences.split("|")),
        answer,
        k,
    )


def runs(values: list[Any]) -> list[list[Any]]:
    """Neighbours that are equal, together."""
    return [list(group) for _, group in groupby(values)]
