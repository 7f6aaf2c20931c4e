"""`coldstart image ...`: what a pull costs and why, the same image in layers that pull fast, copied, built, baked."""

from __future__ import annotations

import importlib

import click

from budget.problems import did_you_mean

VERBS = {
    "inspect": "What pulling an image takes, what does not belong in it, what to do first",
    "repack": "The same root file system in layers that the node pulls fastest",
    "mirror": "Images copied by digest into the region's private registry",
    "build": "The slim image of a stack's engine, rendered and built",
    "snapshot": "A stack's image baked onto a node data volume",
}
"""Verb → the line that `coldstart image --help` shows. The verb `x` is the command of `scripts.images.verb_x`."""


class _Verbs(click.Group):
    """Imports a verb only when it is run: to inspect an image takes no cloud SDK, and no memory for one."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        del ctx
        return list(VERBS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in VERBS:
            ctx.fail(f"no verb {cmd_name!r}. {did_you_mean(cmd_name, VERBS)}")
        return importlib.import_module(f"scripts.images.verb_{cmd_name}").command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        del ctx
        with formatter.section("Verbs"):
            formatter.write_dl(list(VERBS.items()))


@click.group(cls=_Verbs)
def command() -> None:
    """Images: what a pull costs, better layers, copies, builds, snapshots."""
