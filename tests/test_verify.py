"""How much of a draft survives, for one draft and its rows of logits."""

import numpy as np
import pytest
from fakes import greedy

from dspark_cli.verify import Verdict, verify

VOCABULARY = 8


def rows_choosing(*tokens: int) -> np.ndarray:
    """One row of logits per token, in which that token is the likeliest."""
    return np.eye(VOCABULARY, dtype=np.float32)[list(tokens)]


class WatchedRows:
    """Rows that remember which of them were looked at."""

    def __init__(self, rows: np.ndarray) -> None:
        self._rows = rows
        self.seen: list[int] = []

    def __len__(self) -> int:
        return len(self._rows)

    def __getitem__(self, row: int) -> np.ndarray:
        self.seen.append(row)
        return self._rows[row]


@pytest.mark.parametrize(
    ("draft", "choices", "verdict"),
    [
        ([], [5], Verdict(accepted=0, bonus=5)),
        ([1], [1, 2], Verdict(accepted=1, bonus=2)),
        ([1], [3, 2], Verdict(accepted=0, bonus=3)),
        ([1, 2, 3], [1, 2, 3, 4], Verdict(accepted=3, bonus=4)),
        ([1, 2, 3], [1, 2, 7, 4], Verdict(accepted=2, bonus=7)),
        ([1, 2, 3], [1, 7, 3, 4], Verdict(accepted=1, bonus=7)),
        ([1, 2, 3], [7, 2, 3, 4], Verdict(accepted=0, bonus=7)),
        ([0, 0, 0], [0, 0, 0, 0], Verdict(accepted=3, bonus=0)),
        ([1, 2, 3], [2, 3, 4, 5], Verdict(accepted=0, bonus=2)),
    ],
)
def test_the_draft_is_kept_as_far_as_the_target_agrees(draft, choices, verdict):
    """Later agreement does not count, and the bonus is the target's word where they part."""
    assert verify(draft, rows_choosing(*choices), greedy) == verdict


@pytest.mark.parametrize(("agreeing", "draws"), [(0, 1), (1, 2), (2, 3), (3, 4)])
def test_a_chooser_draws_once_per_committed_token(agreeing, draws):
    """No row behind the first mismatch is looked at, so a seed gives the same text always."""
    choices = [1, 2, 3, 4]
    draft = [*choices[:agreeing], *[7] * (3 - agreeing)]
    rows = WatchedRows(rows_choosing(*choices))
    chosen = []

    def choose(row: np.ndarray) -> int:
        chosen.append(greedy(row))
        return chosen[-1]

    verdict = verify(draft, rows, choose)

    assert verdict == Verdict(agreeing, choices[agreeing])
    assert chosen == choices[:draws]
    assert rows.seen == list(range(draws))


@pytest.mark.parametrize(
    "spoil",
    [
        pytest.param(lambda row: np.where(np.arange(VOCABULARY) == 4, np.nan, row), id="one NaN"),
        pytest.param(lambda row: row * np.nan, id="all NaN"),
        pytest.param(lambda row: np.where(np.arange(VOCABULARY) == 4, np.inf, row), id="+inf"),
        pytest.param(lambda row: np.full_like(row, -np.inf), id="all -inf"),
    ],
)
@pytest.mark.parametrize("broken", [0, 1, 2])
def test_logits_that_are_no_numbers_choose_nothing(broken, spoil):
    """Never a silent token 0: what was chosen before them stands, and no bonus follows."""
    rows = rows_choosing(1, 2, 3)
    rows[broken] = spoil(rows[broken])

    verdict = verify([1, 2], rows, greedy)

    assert verdict == Verdict(broken, None)
    assert verdict.tokens([1, 2]) == (1, 2)[:broken]


def test_broken_rows_behind_the_first_mismatch_do_no_harm():
    """They follow a token that the target never said."""
    rows = rows_choosing(1, 7, 3, 4)
    rows[2:] = np.nan

    assert verify([1, 2, 3], rows, greedy) == Verdict(1, 7)


def test_a_token_may_be_forbidden():
    """Single entries of -inf are how a model, or --ignore-eos, forbids a token."""
    rows = rows_choosing(1, 2, 3)
    rows[:, [0, 6]] = -np.inf

    assert verify([1, 2], rows, greedy) == Verdict(2, 3)


@pytest.mark.parametrize("seed", range(50))
def test_any_draft_is_judged_as_a_plain_comparison_would(seed):
    """Random rows over a small vocabulary: agreement of every length occurs."""
    random = np.random.default_rng(seed)
    rows = random.normal(size=(random.integers(1, 9), 3)).astype(np.float32)
    draft = random.integers(0, 3, len(rows) - 1).tolist()

    choices = [int(np.argmax(row)) for row in rows]
    parted = [i for i, token in enumerate(draft) if token != choices[i]]
    accepted = parted[0] if parted else len(draft)
    assert verify(draft, rows, greedy) == Verdict(accepted, choices[accepted])
