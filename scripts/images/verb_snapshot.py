"""`coldstart image snapshot`: the image on a node's data volume, before the node is there."""

from __future__ import annotations

import click

from budget.problems import bad_input
from infra.stack_file import STACKS, read
from scripts.amount import Amount
from scripts.images.snapshot import Place, aws_clients, bake_of, make_snapshot
from scripts.images.snapshot_view import bake_document, bake_lines
from scripts.images.speech import json_option, say


@click.command(name="snapshot")
@click.argument("stack_name", metavar="STACK")
@click.option(
    "--hydrate", metavar="MIB_S|fast-snapshot-restore", help="How the volume's first reads are made fast. Required."
)
@click.option("--usd-per-gib", type=Amount(min=0), help="Your region's price of that rate, from the EBS price page.")
@click.option("--subnet", help="Where the baking node runs: a subnet with a way to the registry and to SSM.")
@click.option("--instance-profile", help="Of the baking node: may pull from ECR, and be reached by SSM.")
@click.option("--yes", is_flag=True, help="Make it. Otherwise only say what it would be and cost.")
@json_option
def command(
    stack_name: str,
    *,
    hydrate: str | None,
    usd_per_gib: float | None,
    subnet: str | None,
    instance_profile: str | None,
    yes: bool,
    as_json: bool,
) -> None:
    """Bake STACK's image onto a node data volume, and keep it as a snapshot."""
    bake = bake_of(read(stack_name, STACKS), hydrate=hydrate, usd_per_gib=usd_per_gib)
    made: str | None = None
    if yes:
        if not subnet or not instance_profile:
            raise bad_input("--yes", "the node needs --subnet and --instance-profile", "Give both.")
        clients = aws_clients(bake.stack)
        place = Place(subnet=subnet, instance_profile=instance_profile)
        made = make_snapshot(bake, place, clients, lambda line: click.echo(line, err=True))
    say(bake_document(bake, made), bake_lines(bake, made), as_json=as_json)
