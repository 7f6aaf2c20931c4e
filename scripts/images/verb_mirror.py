"""`coldstart image mirror`: images copied by digest into the region's private registry."""

from __future__ import annotations

import click

from scripts.images.mirror import mirror, mirrored_document
from scripts.images.mirroring import mirror_jobs, mirrored_lines, write_places
from scripts.images.progress import Meter
from scripts.images.speech import json_option, say
from scripts.registry import HttpRegistry


@click.command(name="mirror")
@click.argument("names", metavar="STACK|IMAGE...", nargs=-1, required=True)
@click.option(
    "--to", "to", metavar="HOST[/PREFIX]", help="Registry to copy to; a stack's own account and region unless given."
)
@click.option(
    "--architecture", type=click.Choice(["amd64", "arm64"]), default="amd64", show_default=True, help="Of a bare IMAGE."
)
@click.option("--write", is_flag=True, help="Write the new place into the model's stack file.")
@json_option
def command(names: tuple[str, ...], *, to: str | None, architecture: str, write: bool, as_json: bool) -> None:
    """Copy images by digest into the region: an environment's engines and controllers, a model's engine, any IMAGE."""
    jobs = mirror_jobs(names, to, architecture, write=write)
    with HttpRegistry() as registry:
        done = [
            copied
            for job in jobs
            for copied in mirror(job.images, job.destination, registry, prepare=job.prepare, meter=Meter)
        ]
    if write:
        write_places(done)
    say(mirrored_document(done), mirrored_lines(done), as_json=as_json)
