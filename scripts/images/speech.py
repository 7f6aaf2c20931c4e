"""What the verbs of `coldstart image` have in common: two options, and an answer for machines or for people."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import click

json_option = click.option("--json", "as_json", is_flag=True, help="One JSON document on stdout.")
instance_option = click.option(
    "--instance", metavar="TYPE", help="Instance type that pulls; a stack's own unless given."
)


def say(answer: Mapping[str, Any], lines: list[str], *, as_json: bool) -> None:
    """Prints an answer."""
    if as_json:
        click.echo(json.dumps(answer, indent=2))
        return
    for line in lines:
        click.echo(line)
