"""What the best of all schedules would reach: decided with hindsight, by measured costs.

Arithmetic over what a drafter would have proposed at every position of a text, and what every
length costs.
"""

from collections.abc import Sequence

from dspark_cli.schedule import Costs


def least_seconds(right: Sequence[int], costs: Costs) -> float:
    """The least time for a text, over all choices of plain rounds and lengths of drafts.

    ``right[p]`` is how many leading tokens of a draft made at position p are the text's own. Every
    draft is made exactly as long as it is right: no schedule that decides beforehand does better.
    The tokens' own injection is left out, the batch that carries it is not.
    """
    best = [0.0] * (len(right) + 1)
    for position in reversed(range(len(right))):
        best[position] = costs.score[0] + best[position + 1]
        # A round's bonus token is the text's too, so a draft ends before the last token.
        longest = min(right[position], costs.longest, len(right) - position - 1)
        for k in range(1, longest + 1):
            drafted = costs.draft[k] + costs.injecting(1) + costs.score[k]
            best[position] = min(best[position], drafted + best[position + k + 1])
    return best[0]


def speed_bound(texts: Sequence[Sequence[int]], costs: Sequence[Costs]) -> float | None:
    """The best speed over some texts, each with its costs, as a multiple of plain decoding.

    None without a token.
    """
    plain = sum(len(right) * cost.score[0] for right, cost in zip(texts, costs, strict=True))
    least = sum(least_seconds(right, cost) for right, cost in zip(texts, costs, strict=True))
    return plain / least if least else None
