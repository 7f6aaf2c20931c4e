"""The verbs of the console command: finds one, and turns its errors into a message and an exit code."""

from __future__ import annotations

import importlib
import io
import re
from collections.abc import Sequence

import click

from budget.problems import BadInput, did_you_mean
from scripts import interrupt
from scripts.cli import READER_LEFT, VERBS
from scripts.failure import Failure
from scripts.plain_text import plain

LINES = "\n\t"
"""What messages of ours are set with; nothing else in them may move a cursor or change a colour."""
LEAVES_NOTHING = frozenset({"explain", "new", "pin", "plan", "render"})
"""Verbs that have nothing to clean up: Ctrl-C ends them at once.

Raised in the middle of an evaluation, an interrupt may be swallowed by the Pulumi SDK, whose loop then waits forever.
"""


class _Verbs(click.Group):
    """Imports a verb's module only when that verb is run: `--help` and `explain` must not wait for an SDK."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        del ctx
        return sorted(VERBS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        del ctx
        if cmd_name not in VERBS:
            return None
        command = importlib.import_module(f"scripts.{cmd_name}").command
        if cmd_name not in LEAVES_NOTHING:
            interrupt.verb_begins()
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and args[0] not in VERBS:
            ctx.fail(f"no verb {args[0]!r}. {did_you_mean(args[0], VERBS)}")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        del ctx
        with formatter.section("Verbs"):
            formatter.write_dl(sorted(VERBS.items()))


@click.group(cls=_Verbs, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="coldstart")
def cli() -> None:
    """LLM inference cold starts on AWS EKS: predicted, provisioned, measured.

    Exit codes: 0 success, 1 a finding or a failure, 2 bad input, 130 interrupted.
    """


def run(arguments: Sequence[str]) -> int:
    """Runs one command line and returns its exit code.

    Raises:
        BrokenPipeError: nobody reads the messages any more.
        BaseException: an interrupt, or a fault of ours.
    """
    try:
        return cli.main(list(arguments), prog_name="coldstart", standalone_mode=False) or 0
    except click.exceptions.Exit as error:
        return error.exit_code
    except SystemExit:
        return READER_LEFT  # no verb exits so: it's what click and rich make of a pipe that nobody reads
    except Exception as error:
        if interrupt.is_behind(error):
            raise
        return _told(error)


def _told(error: Exception) -> int:
    """Says what went wrong and returns the exit code; a fault of ours is raised again."""
    match error:
        case click.ClickException():
            click.echo(_usage(error), err=True, nl=False)
            return 2
        case BadInput():
            for problem in error.problems:
                click.echo(f"error: {plain(str(problem), keep=LINES)}", err=True)
            return 2
        case Failure() | OSError():
            click.echo(f"failed: {plain(_words(error), keep=LINES)}", err=True)
            return 1
        case click.Abort():
            click.echo("stopped: not confirmed", err=True)
            return 1
        case _:
            raise error


def _usage(error: click.ClickException) -> str:
    """What click says of a wrong command line, its hint included, with the last line in the words of this command."""
    shown = io.StringIO()
    error.show(file=shown)
    return re.sub(r"^Error: (?:Invalid value for (.+?): )?", _place, shown.getvalue(), count=1, flags=re.MULTILINE)


def _place(begins: re.Match[str]) -> str:
    """`Invalid value for '-o' / '--output':` is `error: -o / --output:`, as other bad input names its place."""
    return f"error: {begins[1].replace(chr(39), '')}: " if begins[1] else "error: "


def _words(error: Failure | OSError) -> str:
    """A failure in words; the system's own (a full disk, a closed pipe) name the file where they know it."""
    if isinstance(error, OSError) and error.strerror:
        return f"{error.filename}: {error.strerror}" if error.filename else error.strerror
    return str(error)
