"""Sampled text has the target's distribution, with and without a drafter.

Two arms of short continuations, every one with a seed of its own, are compared by a two-sample
chi-square test. Seeds are fixed, so the outcome is; a planted bias shows that the test can fail.
"""

from collections import Counter
from collections.abc import Hashable, Iterable

import pytest
from pairs import write_random_target, write_taught_drafter
from reference import TargetReference, greedy
from scipy.stats import chi2_contingency
from test_compare import OneTokenTooMany

from dspark_cli import (
    MemoryOptions,
    Pair,
    PairOptions,
    SamplingOptions,
    find_drafter,
    find_target,
    open_pair,
    raw_prompt,
)
from dspark_cli.decode import Decoding, NoDrafter
from dspark_cli.engine.sampler import chooser_for
from dspark_cli.events import Round
from dspark_cli.models import installed_smollm2

LENGTH = 3
RARE = 10  # seen less often in both arms together, an outcome is counted among the others
SIGNIFICANT = 1e-3


def continuations(
    pair: Pair, prompt: list[int], seeds: Iterable[int], loop: type[Decoding] | None
) -> list[tuple[int, ...]]:
    """One continuation per seed; without a ``loop`` the drafter stays out of it."""
    drafter = NoDrafter() if loop is None else pair.drafter
    texts = []
    for seed in seeds:
        pair.clear()
        sampling = SamplingOptions(temperature=0.8, seed=seed)
        choose = chooser_for(sampling, pair.vocabulary, prompt)
        run = (loop or Decoding)(
            pair.target, drafter, prompt, choose, room=pair.room, limit=LENGTH
        )
        rounds = [event for event in run if isinstance(event, Round)]
        texts.append(tuple(token for round_ in rounds for token in round_.tokens))
    return texts


def p_value(one: Iterable[Hashable], other: Iterable[Hashable]) -> float:
    """How likely two samples of one distribution differ at least as much as these."""
    counts = Counter(one), Counter(other)
    outcomes = sorted(set(counts[0]) | set(counts[1]))
    common = [what for what in outcomes if counts[0][what] + counts[1][what] >= RARE]
    table = [[count[what] for what in common] for count in counts]
    for row, count in zip(table, counts, strict=True):
        row.append(count.total() - sum(row))
    if not any(row[-1] for row in table):
        table = [row[:-1] for row in table]
    assert len(table[0]) > 1, "only one outcome: nothing to compare"
    return float(chi2_contingency(table).pvalue)


def p_values(one: list[tuple[int, ...]], other: list[tuple[int, ...]]) -> list[float]:
    """Of the second token, of the third, and of both together."""
    return [
        p_value([text[1] for text in one], [text[1] for text in other]),
        p_value([text[2] for text in one], [text[2] for text in other]),
        p_value([text[1:] for text in one], [text[1:] for text in other]),
    ]


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    folder = tmp_path_factory.mktemp("distribution")
    target = write_random_target(folder / "target.gguf", seed=2)
    prompt = list(b"q")
    text = greedy(TargetReference(target), prompt, 60)
    drafter = write_taught_drafter(folder / "drafter.gguf", target, [[*prompt, *text]])
    options = PairOptions(target.path, drafter.path, memory=MemoryOptions(ctx_size=256, threads=1))
    with open_pair(options) as pair:
        yield pair, prompt


@pytest.fixture(scope="module")
def plain(tiny):
    """20,000 continuations without the drafter."""
    return continuations(*tiny, range(20_000), None)


def test_a_drafter_leaves_the_distribution_of_20000_texts_as_it_is(tiny, plain):
    """Tokens 2 and 3, which are drafted, and their pair."""
    drafted = continuations(*tiny, range(20_000, 40_000), Decoding)

    assert len({text[1:] for text in plain}) > 20, "a distribution worth the name"
    assert min(p_values(plain, drafted)) > SIGNIFICANT


def test_a_biased_loop_is_noticed(tiny, plain):
    """One that keeps a rejected draft token now and then."""
    biased = continuations(*tiny, range(20_000, 24_000), OneTokenTooMany)

    assert min(p_values(plain, biased)) < SIGNIFICANT**2


@pytest.mark.model
@pytest.mark.skipif(installed_smollm2() is None, reason="needs the extra smollm2")
def test_smollm2_s_drafter_leaves_the_distribution_as_it_is():
    """1,000 texts in each arm."""
    options = PairOptions(
        find_target("smollm2"), find_drafter("smollm2"), memory=MemoryOptions(ctx_size=64)
    )
    with open_pair(options) as pair:
        prompt = raw_prompt(pair, "The")
        plain = continuations(pair, prompt, range(1_000), None)
        drafted = continuations(pair, prompt, range(1_000, 2_000), Decoding)

    assert min(p_values(plain, drafted)) > SIGNIFICANT
