"""The console command `coldstart`: finds the verb, and turns errors into a message and an exit code."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Sequence
from typing import NoReturn

import click

from budget.problems import BadInput, did_you_mean
from scripts.failure import Failure

VERBS = {
    "audit": "What exists in the account, which of it is ours, why, and what it costs",
    "explain": "What a setting means, its default and why",
    "extend": "Move the moment at which a stack's GPU nodes go to zero",
    "image": "What an image's pull costs and why; the same files in layers that pull fast; mirror, build, snapshot",
    "measure": "What a start really took, phase by phase, and which lever was on",
    "new": "Write a model stack file from a plan's chosen instance, revision pinned",
    "pause": "GPU nodes of a stack to zero; weights, cluster and stack stay",
    "pin": "Resolve revision and image digest and write them into the stack file",
    "plan": "What a cold start will take and cost, phase by phase, before anything is bought",
    "preflight": "Can this deployment exist, here, now? Asked before anything is paid for",
    "prices": "The prices that plan and audit count with; --refresh asks AWS",
    "regress": "Fail when a phase has become slower than its baseline beyond noise",
    "rehearse": "The whole chain on this machine, with the real engine: no AWS, no GPU",
    "render": "Everything a stack would create, as files",
    "resume": "The GPU nodes of a paused stack back at their recorded sizes",
    "stage": "One pinned model revision into the weight bucket, verified, all or nothing",
    "teardown": "Destroy a stack in the right order and prove that nothing of it bills",
}
"""Verb → the line that `coldstart --help` shows. The verb `x` is the click command `command` of `scripts.x`."""


class _Verbs(click.Group):
    """Imports a verb's module only when that verb is run: `--help` and `explain` must not wait for an SDK."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        del ctx
        return sorted(VERBS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        del ctx
        if cmd_name not in VERBS:
            return None
        return importlib.import_module(f"scripts.{cmd_name}").command

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

    Exit codes: 0 success, 1 a finding or a failure, 2 bad input.
    """


def run(arguments: Sequence[str]) -> int:
    """Runs one command line and returns its exit code; nothing a person can cause ends in a traceback."""
    try:
        return cli.main(list(arguments), prog_name="coldstart", standalone_mode=False) or 0
    except click.exceptions.Exit as error:
        return error.exit_code
    except click.ClickException as error:
        error.show()
        return 2
    except BadInput as error:
        for problem in error.problems:
            click.echo(f"error: {problem}", err=True)
        return 2
    except (Failure, OSError) as error:
        click.echo(f"failed: {_words(error)}", err=True)
        return 1
    except (click.Abort, KeyboardInterrupt):
        click.echo("interrupted", err=True)
        return 1


def _words(error: Failure | OSError) -> str:
    """A failure in words; the system's own (a full disk, a closed pipe) name the file where they know it."""
    if isinstance(error, OSError) and error.strerror:
        return f"{error.filename}: {error.strerror}" if error.filename else error.strerror
    return str(error)


def main() -> NoReturn:
    """Entry point of the installed `coldstart`."""
    sys.exit(run(sys.argv[1:]))
