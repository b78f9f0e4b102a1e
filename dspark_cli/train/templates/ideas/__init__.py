"""What the functions to be completed do, by the kind of their arguments."""

from dspark_cli.train.templates.ideas.days import DAYS
from dspark_cli.train.templates.ideas.idea import Idea
from dspark_cli.train.templates.ideas.lists import LISTS
from dspark_cli.train.templates.ideas.numbers import NUMBERS
from dspark_cli.train.templates.ideas.tables import TABLES
from dspark_cli.train.templates.ideas.texts import TEXTS

__all__ = ["IDEAS", "Idea"]

IDEAS: tuple[Idea, ...] = (*LISTS, *TEXTS, *NUMBERS, *TABLES, *DAYS)
