"""The prompts of our own: what a training may count on."""

import ast
import doctest
import re
from collections import Counter
from itertools import islice
from statistics import median

import pytest

from dspark_cli.train.templates import CATEGORIES, MIXTURE, written_prompts
from dspark_cli.train.templates.completions import KINDS
from dspark_cli.train.templates.ideas import IDEAS
from dspark_cli.train.templates.slots import Writer, with_article
from dspark_cli.train.templates.words import WORDS

SENTENCES = tuple(category for category in CATEGORIES if category != "code")


@pytest.fixture(scope="module")
def prompts():
    return list(islice(written_prompts(), 20_000))


@pytest.fixture(scope="module")
def completions(prompts):
    """The code prompts that end where the body of a function has to begin."""
    code = [prompt.text for prompt in prompts if prompt.category == "code"]
    return [text for text in map(unfenced, code) if text.endswith('    """\n')]


def unfenced(text: str) -> str:
    """What stands between the fences of a chat, or the text itself."""
    _, fence, rest = text.partition("```python\n")
    return rest.removesuffix("```").rstrip() + "\n" if fence else text


def test_there_are_twenty_thousand_different_prompts(prompts):
    """No prompt is asked twice."""
    assert len({prompt.text for prompt in prompts}) == 20_000


@pytest.mark.parametrize("start", [0, 1_000, 4_321, 19_000])
def test_any_thousand_prompts_are_the_same_mixture(prompts, start):
    """Who trains on fewer prompts trains on fewer of each category."""
    counted = Counter(prompt.category for prompt in prompts[start : start + 1_000])

    assert {name: round(count / 10) for name, count in counted.items()} == MIXTURE


@pytest.mark.parametrize("length", [10, 37, 100, 250])
def test_every_beginning_is_balanced(prompts, length):
    """No category is ever more than one prompt from its share."""
    counted = Counter(prompt.category for prompt in prompts[:length])

    assert all(abs(counted[name] - length * MIXTURE[name] / 100) <= 1 for name in CATEGORIES)


def test_the_same_seed_gives_the_same_prompts(prompts):
    """A training can be repeated."""
    assert list(islice(written_prompts(0), 500)) == prompts[:500]


def test_another_seed_gives_other_prompts(prompts):
    """Two seeds share next to nothing in their beginnings."""
    ours = {prompt.text for prompt in prompts[:2_000]}
    theirs = {prompt.text for prompt in islice(written_prompts(1), 2_000)}

    assert len(ours & theirs) < 100


@pytest.mark.parametrize("category", SENTENCES)
def test_no_slot_is_left_open(prompts, category):
    """What a model reads are sentences, not templates."""
    texts = [prompt.text for prompt in prompts if prompt.category == category]

    assert [text for text in texts if re.search(r"[{}]|\|", text)] == []


@pytest.mark.parametrize("category", SENTENCES)
def test_sentences_are_tidy(prompts, category):
    """No blank at the ends, none doubled, no blank before a full stop, no "a" before a vowel."""
    texts = [prompt.text for prompt in prompts if prompt.category == category]
    untidy = re.compile(
        r"^\s|\s$|  | [.,](?!\d|\.)|\b[Aa] [aeio](?!ne|u)|\b[Aa]n (?!faq)[bcdfgjklpqtvwxz]"
    )

    assert [text for text in texts if untidy.search(text)] == []


def test_lengths_are_those_of_questions(prompts):
    """From a line to a page, and mostly a line or two."""
    lengths = [len(prompt.text) for prompt in prompts]

    assert min(lengths) >= 20
    assert max(lengths) <= 900
    assert 80 <= median(lengths) <= 160


def test_some_prompts_need_more_than_ascii(prompts):
    """A drafter must meet characters of several bytes."""
    assert 0.03 < sum(not prompt.text.isascii() for prompt in prompts) / len(prompts) < 0.15


def test_a_completion_lacks_nothing_but_its_body(completions):
    """With a body, the prompt is a module of one function."""
    assert len(completions) > 1_500
    for text in completions:
        assert isinstance(ast.parse(text + "    pass\n").body[-1], ast.FunctionDef)


def test_a_completion_shows_examples(completions):
    """Two at least, of the very function, with results that Python can read."""
    for text in completions:
        function = ast.parse(text + "    pass\n").body[-1]
        shown = doctest.DocTestParser().get_examples(ast.get_docstring(function))
        assert len(shown) >= 2
        for example in shown:
            assert example.source.startswith(f"{function.name}(")
            ast.literal_eval(example.want.strip())


BODIES = {
    "digit_total": "return sum(int(c) for c in str({0}))",
    "reverse_each_word": "return ' '.join(''.join(reversed(w)) for w in {0}.split(' '))",
    "mirror": "return [*{0}, *reversed({0})]",
    "differences": "return [{0}[i + 1] - {0}[i] for i in range(len({0}) - 1)]",
    "count_vowels": "return len([c for c in {0} if c in 'aeiouAEIOU'])",
    "longest_word": "return sorted({0}.split(), key=lambda w: -len(w))[0]",
}


@pytest.mark.parametrize("name", BODIES)
def test_the_examples_are_true(completions, name):
    """A body that was written apart from the reference passes the doctests."""
    mine = [text for text in completions if f"def {name}(" in text]
    assert mine
    for text in mine:
        argument = ast.parse(text + "    pass\n").body[-1].args.args[0].arg
        space: dict[str, object] = {}
        exec(text + "    " + BODIES[name].format(argument), space)  # noqa: S102  our own text
        test = doctest.DocTestFinder().find(space[name], name, module=False, globs=space)[0]
        assert doctest.DocTestRunner(verbose=False).run(test).failed == 0


TYPES = {
    "List": ["list"], "Dict": ["dict"], "Tuple": ["tuple"],
    "Optional": ["int", "tuple", "NoneType"],
    "int": ["int"], "str": ["str"], "bool": ["bool"], "float": ["float"],
}  # fmt: skip


@pytest.mark.parametrize("idea", IDEAS, ids=lambda idea: idea.names[0])
def test_every_idea_has_an_answer_of_its_type(idea):
    """Whatever is drawn as an argument, the reference can compute."""
    writer = Writer(WORDS, seed=7)
    for _ in range(50):
        k = writer.number(*idea.constant)
        found = idea.answer(k, *(KINDS[kind].draw(writer.random) for kind in idea.kinds))
        assert type(found).__name__ in TYPES[re.match(r"\w+", idea.returns)[0]]


@pytest.mark.parametrize(
    ("noun", "phrase"),
    [("owl", "an owl"), ("baker", "a baker"), ("hourglass", "an hourglass"),
     ("university", "a university"), ("umbrella", "an umbrella"), ("undertaker", "an undertaker"),
     ("ukulele", "a ukulele")],
)  # fmt: skip
def test_the_article_follows_the_sound(noun, phrase):
    """An hour, but a house."""
    assert with_article(noun) == phrase


def test_a_label_repeats_a_word_and_its_absence_forbids_it():
    """One template never gets a word twice by chance."""
    writer = Writer({"n": ("one", "two")}, seed=0)

    for _ in range(20):
        first, again, other = writer.fill("{n@x} {n@x} {n}").split()
        assert first == again != other


def test_code_is_shown_as_in_a_chat_too(prompts):
    """Between a request in words and a fence stands a function that compiles with a body."""
    shown = [p.text for p in prompts if p.category == "code" and p.text.endswith("```")]
    functions = [text for text in map(unfenced, shown) if text.endswith('    """\n')]

    assert len(functions) > 1_000
    for function in functions[:300]:
        ast.parse(function + "    pass\n")
