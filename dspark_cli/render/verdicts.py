"""Verdicts of ``dspark check``, one per prompt and all together, in words or as JSON."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from rich import box
from rich.table import Table

from dspark_cli.equivalence import Comparison, Parting, Summary
from dspark_cli.render.jsonl import JsonWriter
from dspark_cli.render.messages import show_answer
from dspark_cli.render.report import number, percent
from dspark_cli.stats import JsonObject, JsonValue


@dataclass(frozen=True, slots=True)
class Judged:
    """A comparison with what a reader needs beside it."""

    comparison: Comparison
    source: str  # where the prompt came from
    spell: Callable[[int], str]  # a token as text
    reproduce: str  # a command line that does it again

    def as_json(self) -> JsonObject:
        found = self.comparison
        parting = found.parting
        return {
            "prompt": self.source,
            "verdict": found.verdict,
            "why": found.why,
            "tokens_compared": found.compared,
            "position": parting.position if parting else None,
            "plain": self._token(parting.plain, parting.plain_logit) if parting else None,
            "speculative": self._token(parting.speculative, parting.speculative_logit)
            if parting
            else None,
            "gap": parting.gap if parting else None,
            "largest_gap": found.largest_gap,
            "tolerance": found.tolerance,
            "finish_reason": {
                "plain": found.plain.reason,
                "speculative": found.speculative.reason,
            },
            "mean_acceptance_length": found.statistics.mean_acceptance_length,
            "draft_acceptance_rate": found.statistics.draft_acceptance_rate,
            "reproduce": self.reproduce if found.verdict == "diverged" else None,
        }

    def _token(self, token: int | None, logit: float | None) -> JsonValue:
        if token is None:
            return None
        return {"token": token, "text": self.spell(token), "logit": logit}

    def line(self) -> str:
        """One line of plain text."""
        found = self.comparison
        statistics = found.statistics
        tail = (
            f"tau {number(statistics.mean_acceptance_length)}, "
            f"accept {percent(statistics.draft_acceptance_rate)}  ({self.source})"
        )
        if found.parting is None:
            return f"{found.verdict:9}  {found.compared} tokens, {tail}"
        parted = self._parted(found.parting)
        tolerance = "" if found.tolerance is None else f", tolerance {found.tolerance:.4f}"
        largest = f"largest gap {found.largest_gap:.4f}{tolerance}"
        why = "" if found.why is None else f": {found.why}"
        return f"{found.verdict:9}  {parted}, {largest}, {tail}{why}"

    def _parted(self, parting: Parting) -> str:
        plain = self._words(parting.plain, parting.plain_logit)
        speculative = self._words(parting.speculative, parting.speculative_logit)
        gap = "" if parting.gap is None else f", gap {parting.gap:.4f}"
        return f"at token {parting.position}: plain {plain}, speculative {speculative}{gap}"

    def _words(self, token: int | None, logit: float | None) -> str:
        if token is None:
            return "has ended"
        scored = "" if logit is None else f" {logit:.4f}"
        return f"{token} {self.spell(token)!r}{scored}"


class Verdicts(Protocol):
    """Where verdicts go."""

    def show(self, judged: Judged) -> None: ...
    def finish(self, summary: Summary, *, strict: bool, interrupted: bool) -> None: ...


class VerdictText:
    """A line per prompt and a table at the end, on stdout."""

    def __init__(self, writer: JsonWriter) -> None:
        self._writer = writer

    def show(self, judged: Judged) -> None:
        self._writer.write_line(judged.line())
        if judged.comparison.verdict == "diverged":
            self._writer.write_line(f"           again: {judged.reproduce}")

    def finish(self, summary: Summary, *, strict: bool, interrupted: bool) -> None:
        show_answer(summary_table(summary))
        passed = summary.passed(strict=strict)
        verdict = "equivalent" if passed else "NOT equivalent"
        done = f"interrupted after {summary.prompts} prompts: " if interrupted else ""
        self._writer.write_line(f"{done}{verdict}{' (strict)' if strict else ''}")


class VerdictJson:
    """One document at the end, or one per prompt and one for all."""

    def __init__(self, writer: JsonWriter, *, lines: bool) -> None:
        self._writer = writer
        self._lines = lines
        self._prompts: list[JsonValue] = []

    def show(self, judged: Judged) -> None:
        if self._lines:
            self._writer.write({"event": "prompt", **judged.as_json()})
        else:
            self._prompts.append(judged.as_json())

    def finish(self, summary: Summary, *, strict: bool, interrupted: bool) -> None:
        document: JsonObject = {
            **summary.as_json(),
            "strict": strict,
            "equivalent": summary.passed(strict=strict),
            "interrupted": interrupted,
        }
        if self._lines:
            self._writer.write({"event": "summary", **document})
        else:
            self._writer.write({"summary": document, "prompts": self._prompts}, indent=2)


def summary_table(summary: Summary) -> Table:
    """How many of each verdict, and what they rest on."""
    statistics = summary.statistics
    table = Table(box=box.SIMPLE_HEAD, show_header=False, pad_edge=False)
    table.add_column(style="bold")
    table.add_column(justify="right")
    table.add_column(style="dim")
    rows = [
        ("identical", str(summary.identical), f"of {summary.prompts} prompts"),
        ("tie", str(summary.ties), "parted where rounding decides"),
        ("diverged", str(summary.diverged), "not the target's own text"),
        ("tokens", str(summary.tokens), "compared"),
        ("largest gap", f"{summary.largest_gap:.4f}", "logits, of the ties"),
        ("tolerance", number(summary.largest_tolerance, 4), "logits, the largest measured"),
    ]
    if statistics is not None:
        rows += [
            ("tau", number(statistics.mean_acceptance_length), "1 + accepted per drafted round"),
            ("accept", percent(statistics.draft_acceptance_rate), "of the scored draft tokens"),
        ]
    for row in rows:
        table.add_row(*row)
    return table
