"""A person's yes, before something that costs money or goes for good."""

from __future__ import annotations

import sys

import click

from budget.problems import bad_input


def say(line: str) -> None:
    """Tells the person, beside the document on stdout."""
    click.echo(line, err=True)


def agree(what: str, why: str, *, yes: bool) -> None:
    """Says what would happen, and asks.

    Args:
        what: would happen.
        why: it is asked, for who can't be.
        yes: it was agreed on the command line.

    Raises:
        BadInput: nobody can be asked.
        Abort: the person said no.
    """
    say(what)
    if yes:
        return
    if not sys.stdin.isatty():
        raise bad_input("--yes", f"{why}, and nobody can be asked here", "Add --yes.")
    click.confirm("Go on?", abort=True, err=True)
