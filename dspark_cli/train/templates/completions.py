"""Python functions to be completed: a signature, a docstring, and examples that are true.

An idea says in data what a function does and in a lambda how it is computed. The examples are
drawn, and their results come from the lambda, so that a docstring never lies.
"""

import textwrap
from collections.abc import Callable
from dataclasses import dataclass
from random import Random

from dspark_cli.train.templates.ideas import IDEAS, Idea
from dspark_cli.train.templates.slots import Writer

PLAIN_WORDS = (
    "amber", "basket", "cloud", "drum", "ember", "fern", "goblet", "harbor", "island", "jacket",
    "kettle", "lemon", "mirror", "noon", "orbit", "pepper", "quilt", "river", "saddle", "tulip",
    "umbra", "velvet", "willow", "yard", "zebra", "level", "radar", "bee", "apple", "oak", "ice",
    "moon", "tree", "book", "Anna", "Oslo", "Lima", "kayak", "letter", "glass",
)  # fmt: skip


def some(draw: Callable[[Random], object], low: int, high: int) -> Callable[[Random], object]:
    """A list of ``low`` to ``high`` drawn things."""
    return lambda random: [draw(random) for _ in range(random.randint(low, high))]


def a_word(random: Random) -> str:
    return random.choice(PLAIN_WORDS)


def a_text(random: Random) -> str:
    return " ".join(random.sample(PLAIN_WORDS, random.randint(2, 5)))


def an_amount(random: Random) -> float:
    return random.randint(1, 400) / 4


def a_time(random: Random) -> str:
    return f"{random.randint(0, 23):02}:{random.randint(0, 59):02}"


def a_date(random: Random) -> str:
    year, month, day = random.randint(1950, 2040), random.randint(1, 12), random.randint(1, 28)
    return f"{year}-{month:02}-{day:02}"


def counts(random: Random) -> dict[str, int]:
    return {
        word: random.randint(0, 20) for word in random.sample(PLAIN_WORDS, random.randint(2, 4))
    }


def a_grid(random: Random) -> list[list[int]]:
    width = random.randint(2, 3)
    return [[random.randint(0, 9) for _ in range(width)] for _ in range(random.randint(2, 3))]


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of argument: its annotation, the names it may bear, and how an example is drawn."""

    annotation: str
    names: tuple[str, ...]
    draw: Callable[[Random], object]


KINDS = {
    "ints": Kind(
        "List[int]",
        ("numbers", "values", "items", "scores", "readings", "points", "levels", "heights"),
        some(lambda random: random.randint(-9, 20), 3, 6),
    ),
    "naturals": Kind(
        "List[int]",
        ("amounts", "sizes", "ages", "steps", "prices", "weights", "lengths", "counts"),
        some(lambda random: random.randint(1, 15), 3, 6),
    ),
    "floats": Kind(
        "List[float]",
        ("amounts", "measurements", "distances", "prices", "samples", "temperatures"),
        some(an_amount, 2, 5),
    ),
    "words": Kind(
        "List[str]",
        ("words", "names", "labels", "tags", "entries", "tokens", "keys", "titles"),
        some(a_word, 2, 5),
    ),
    "word": Kind("str", ("word", "name", "label", "token", "key", "tag"), a_word),
    "text": Kind("str", ("text", "sentence", "line", "phrase", "message", "title"), a_text),
    "small": Kind(
        "int", ("n", "count", "size", "step", "width", "k"), lambda random: random.randint(1, 4)
    ),
    "int": Kind("int", ("n", "number", "value", "x"), lambda random: random.randint(1, 200)),
    "digits": Kind("int", ("n", "number", "code"), lambda random: random.randint(10, 99999)),
    "bound": Kind(
        "int", ("limit", "bound", "threshold", "cap"), lambda random: random.randint(0, 12)
    ),
    "amount": Kind("float", ("amount", "price", "value", "distance"), an_amount),
    "counts": Kind("Dict[str, int]", ("counts", "stock", "votes", "scores", "points"), counts),
    "pairs": Kind(
        "List[Tuple[int, int]]",
        ("pairs", "points", "intervals", "edges", "ranges"),
        some(lambda random: (low := random.randint(0, 9), low + random.randint(1, 6)), 2, 4),
    ),
    "grid": Kind("List[List[int]]", ("grid", "matrix", "rows", "table", "board"), a_grid),
    "lists": Kind(
        "List[List[int]]",
        ("groups", "lists", "batches", "chunks"),
        some(some(lambda random: random.randint(0, 9), 1, 3), 2, 4),
    ),
    "time": Kind("str", ("time", "clock", "start", "moment"), a_time),
    "times": Kind("List[str]", ("times", "departures", "alarms", "stamps"), some(a_time, 2, 4)),
    "date": Kind("str", ("date", "day", "when"), a_date),
    "dates": Kind("List[str]", ("dates", "days", "deadlines"), some(a_date, 2, 4)),
    "flags": Kind(
        "List[bool]",
        ("flags", "answers", "checks", "states"),
        some(lambda random: random.random() < 0.5, 2, 5),  # noqa: PLR2004  a coin
    ),
}


def arguments(idea: Idea, writer: Writer) -> tuple[str, ...]:
    """A name for each argument, no two alike."""
    names: list[str] = []
    for kind in idea.kinds:
        free = [name for name in KINDS[kind].names if name not in names]
        names.append(writer.random.choice(free))
    return tuple(names)


def examples(idea: Idea, name: str, k: int, writer: Writer) -> list[str]:
    """Two or three calls, no two alike, each with its true result below.

    An example that repeats a result says little, so a few more are drawn before one is kept.
    """
    lines: list[str] = []
    wanted = writer.number(2, 3)
    patience = 8
    while len(lines) < 2 * wanted:
        drawn = [KINDS[kind].draw(writer.random) for kind in idea.kinds]
        call = f">>> {name}({', '.join(map(repr, drawn))})"
        result = repr(idea.answer(k, *drawn))
        patience -= 1
        if call not in lines and (result not in lines or patience < 0):
            lines += [call, result]
    return lines


def completion(writer: Writer) -> str:
    """The beginning of a Python module whose last function lacks its body."""
    idea = writer.deal(IDEAS)
    k = writer.number(*idea.constant)
    names = arguments(idea, writer)
    name = writer.random.choice(idea.names).format(k=k)
    said = writer.random.choice(idea.sentences).format(*names, k=k)
    signature = ", ".join(
        f"{name}: {KINDS[kind].annotation}" for name, kind in zip(names, idea.kinds, strict=True)
    )
    types = sorted(
        hint
        for hint in ("Dict", "List", "Optional", "Tuple")
        if f"{hint}[" in signature + idea.returns
    )
    head = f"from typing import {', '.join(types)}\n\n\n" if types else ""
    opening = writer.deal((" ", "", "\n    ", ""))
    doc = textwrap.fill(said, 88, subsequent_indent="    ")
    gap = writer.deal(("\n", "\n\n"))
    shown = textwrap.indent("\n".join(examples(idea, name, k, writer)), "    ")
    return f'{head}def {name}({signature}) -> {idea.returns}:\n    """{opening}{doc}{gap}{shown}\n    """\n'
