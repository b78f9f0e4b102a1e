"""The commands, and the one door through which every failure leaves.

A command returns its exit code; failures are exceptions that carry theirs. Under ``--json`` and
``--jsonl`` errors are JSON on stdout, otherwise sentences on stderr.
"""

import sys
import traceback
from collections.abc import Sequence
from contextlib import redirect_stdout
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup
from typer.main import get_command

from dspark_cli import __version__
from dspark_cli.cli.bench import bench
from dspark_cli.cli.calibrate import calibrate
from dspark_cli.cli.check import check
from dspark_cli.cli.convert import convert
from dspark_cli.cli.doctor import doctor
from dspark_cli.cli.inspect import inspect
from dspark_cli.cli.quantize import quantize
from dspark_cli.cli.run import run
from dspark_cli.cli.train import train
from dspark_cli.errors import (
    INTERRUPTED_EXIT_CODE,
    BugError,
    DsparkError,
    InterruptedRunError,
    ReaderGoneError,
    UsageError,
)
from dspark_cli.render.jsonl import JsonWriter
from dspark_cli.render.messages import JsonMessages, Page, PlainMessages
from dspark_cli.render.streams import answer_stream, leave_streams


class Helpful:
    """A command whose help goes to stdout with the care that an answer gets."""

    def format_help(self, ctx: Any, formatter: Any) -> None:
        page = Page(sys.stdout)
        with redirect_stdout(page):
            super().format_help(ctx, formatter)  # type: ignore[misc]
        page.write("\n")
        page.show()
        raise typer.Exit  # before Typer writes a last empty line by itself


class HelpfulCommand(Helpful, TyperCommand):
    """One command."""


class HelpfulGroup(Helpful, TyperGroup):
    """All of them."""


app = typer.Typer(
    name="dspark",
    cls=HelpfulGroup,
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="Run DSpark drafters: a small model proposes, the target decides, "
    "the answer stays the same.",
)
for command in (run, check, inspect, doctor, train, convert, quantize, calibrate, bench):
    app.command(cls=HelpfulCommand)(command)


def _version(wanted: bool) -> None:
    if wanted:
        JsonWriter(answer_stream()).write_line(f"dspark {__version__}")
        raise typer.Exit


@app.callback()
def dspark(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_version, is_eager=True, help="Say which version."),
    ] = False,
) -> None:
    """Take the options that belong to no command."""


def main(argv: Sequence[str] | None = None) -> None:
    """Run one command and leave with its exit code; see ``dspark_cli.errors`` for the codes."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    code = _run(arguments)
    leave_streams()
    raise SystemExit(code)


def _run(arguments: list[str]) -> int:
    group = get_command(app)
    messages = JsonMessages() if _wants_json(arguments, group) else PlainMessages()
    try:
        code = group(args=arguments, prog_name="dspark", standalone_mode=False)
    except DsparkError as error:
        messages.error(error)
        return error.exit_code
    except ReaderGoneError:
        return 0
    except (KeyboardInterrupt, InterruptedRunError):
        return INTERRUPTED_EXIT_CODE
    except Exception as error:  # noqa: BLE001  the last door
        if (usage := _usage_error(error)) is not None:
            messages.error(usage)
            return usage.exit_code
        messages.bug(traceback.format_exc())
        return BugError.exit_code
    return code if isinstance(code, int) else 0


def _wants_json(arguments: Sequence[str], group: Any) -> bool:
    """Whether --json or --jsonl stands there as an option, not as another option's value."""
    command = next((group.commands[word] for word in arguments if word in group.commands), group)
    options = [entry for entry in command.params if entry.param_type_name == "option"]
    valued = {name for option in options if not option.is_flag for name in option.opts}
    words = iter(arguments)
    for word in words:
        if word in {"--json", "--jsonl"}:
            return True
        if word in valued:
            next(words, None)
    return False


def _usage_error(error: Exception) -> UsageError | None:
    """Typer's own complaint about the command line as ours; None for anything else.

    Its classes have moved between modules from version to version, its methods have not.
    """
    format_message = getattr(error, "format_message", None)
    if format_message is None:
        return None
    context = getattr(error, "ctx", None)
    command = context.command_path if context is not None else "dspark"
    return UsageError(format_message(), hint=f"see {command} --help")
