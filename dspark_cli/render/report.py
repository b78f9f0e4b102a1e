"""The statistics table, and the sentence that says whether drafting paid."""

from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from dspark_cli.stats import Statistics, ratio

NO_DIFFERENCE = 0.02  # of the time, which two runs of the same differ by


def statistics_table(statistics: Statistics, *, drafting: bool) -> RenderableType:
    """What a run did; without a drafter only what plain decoding has."""
    tables: list[RenderableType] = [_summary(statistics, drafting=drafting)]
    if statistics.judged_per_pos:
        tables.append(_positions(statistics))
    if len(statistics.depths) > 1:
        tables.append(_depths(statistics))
    return Group(*tables)


def verdict_sentence(statistics: Statistics) -> str | None:
    """Whether drafting saved time, in plain words; None where nothing was drafted."""
    saved, plain = statistics.saved_seconds, statistics.plain_seconds_estimate
    if saved is None or plain is None:
        return None
    took = f"{statistics.n_predict} tokens took {statistics.decode_seconds:.2f} s"
    against = f"about {plain:.2f} s one at a time"
    speed = ratio(plain, statistics.decode_seconds)
    factor = f", {speed:.2f} times the speed of plain decoding" if speed else ""
    if abs(saved) <= NO_DIFFERENCE * plain:
        return f"Drafting made no difference: {took}, {against}{factor}."
    if saved > 0:
        return f"Drafting saved {saved:.2f} s: {took}, {against}{factor}."
    return f"Drafting cost {-saved:.2f} s: {took}, {against}{factor}; try --no-draft."


def foreign_sentence(statistics: Statistics) -> str | None:
    """A warning where the drafter seems to have been made for another target."""
    if not statistics.looks_foreign:
        return None
    rounds = statistics.judged_per_pos[0]
    share = f"{statistics.accepted_per_pos[0] / rounds:.0%} of {rounds} rounds"
    return (
        "the drafter does not seem to belong to this target: its first draft token is accepted in "
        f"{share} (wrong taps, wrong model, or wrong quantisation of the embeddings)"
    )


def _summary(statistics: Statistics, *, drafting: bool) -> Table:
    table = Table(box=box.SIMPLE_HEAD, show_header=False, pad_edge=False)
    table.add_column(style="bold")
    table.add_column(justify="right")
    table.add_column(style="dim")
    rows: list[tuple[str, str, str]] = [
        ("n_prompt", str(statistics.n_prompt), "tokens"),
        (
            "n_predict",
            str(statistics.n_predict),
            f"tokens, end: {statistics.finish_reason or 'failed'}",
        ),
        ("rounds", str(statistics.rounds), _rounds(statistics)),
    ]
    if drafting:
        ignored = statistics.num_ignored_draft_tokens
        rows += [
            (
                "n_drafted",
                str(statistics.num_draft_tokens),
                f"scored, {ignored} of them behind the end" if ignored else "scored",
            ),
            ("n_accept", str(statistics.num_accepted_draft_tokens), "kept"),
            ("accept", percent(statistics.draft_acceptance_rate), "n_accept / n_drafted"),
            ("tau", number(statistics.mean_acceptance_length), _tau(statistics)),
        ]
        if statistics.mean_confidence is not None:
            rows.append(("confidence", number(statistics.mean_confidence), "mean"))
    prefill = ratio(statistics.prefill_tokens, statistics.prefill_seconds)
    decode = ratio(statistics.n_predict, statistics.decode_seconds)
    rows += [
        ("prefill", number(prefill, 1), "tokens/s"),
        ("decode", number(decode, 1), "tokens/s"),
        ("time", "", _time_split(statistics, drafting=drafting)),
    ]
    for row in rows:
        table.add_row(*row)
    return table


def _rounds(statistics: Statistics) -> str:
    parts = [f"{statistics.num_plain_steps} without a scored draft"]
    if statistics.num_shadow_steps:
        parts.append(f"{statistics.num_shadow_steps} of them drafted to look on")
    if len(statistics.scored_lengths) > 1:
        lengths = sorted(statistics.scored_lengths.items())
        parts.append("scored " + ", ".join(f"{length}: {count}" for length, count in lengths))
    return "; ".join(parts)


def _tau(statistics: Statistics) -> str:
    meaning = "1 + accepted per scored draft"
    if statistics.expected_acceptance_length is None:
        return meaning
    return f"{meaning}; {number(statistics.expected_acceptance_length)} expected"


def _time_split(statistics: Statistics, *, drafting: bool) -> str:
    parts = {"score": statistics.score_seconds, "other": statistics.other_seconds}
    if drafting:
        parts = {
            "draft": statistics.draft_seconds,
            "score": statistics.score_seconds,
            "inject": statistics.inject_seconds,
            "rollback": statistics.rollback_seconds,
            "other": statistics.other_seconds,
        }
    return ", ".join(
        f"{name} {percent(ratio(seconds, statistics.decode_seconds))}"
        for name, seconds in parts.items()
        if name != "rollback" or statistics.rollback_tokens
    )


def _positions(statistics: Statistics) -> Table:
    """Acceptance by draft position."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("draft position", style="bold")
    for position in range(len(statistics.judged_per_pos)):
        table.add_column(str(position + 1), justify="right")
    cumulative = statistics.acceptance_rate_per_pos
    conditional = statistics.conditional_acceptance_rate_per_pos
    table.add_row("accepted", *map(percent, cumulative))
    table.add_row("if all before were", *map(percent, conditional))
    if statistics.confidence_counts:
        confidences = statistics.mean_confidence_per_pos[: len(cumulative)]
        table.add_row("confidence", *map(percent, confidences))
    return table


def _depths(statistics: Statistics) -> Table:
    """Acceptance by depth of the context; a drafter fades where it was not trained."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("from position", style="bold")
    depths = sorted(statistics.depths.items())
    for begins, _ in depths:
        table.add_column(str(begins), justify="right")
    table.add_row("accept", *(percent(ratio(at.accepted, at.scored)) for _, at in depths))
    table.add_row("tau", *(number(at.mean_acceptance_length) for _, at in depths))
    return table


def percent(share: float | None) -> str:
    return "n/a" if share is None else f"{100 * share:.1f} %"


def number(value: float | None, digits: int = 2) -> str:
    return "n/a" if value is None else f"{value:.{digits}f}"


def sentence(text: str) -> Text:
    """Words for the console that are never markup."""
    return Text(text)
