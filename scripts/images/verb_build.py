"""`coldstart image build`: the slim image of a stack's engine."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from scripts.images.building import BuildWish, build
from scripts.images.speech import json_option, say
from scripts.output_folder import OutputFolder


@click.command(name="build")
@click.argument("stack_name", metavar="STACK")
@click.option("--tag", default=None, help="Name of the image; coldstart/STACK unless given.")
@click.option(
    "--base", metavar="IMAGE@DIGEST", help="Slim Python base of both stages; resolved and pinned unless given."
)
@click.option(
    "--requirements",
    type=click.Path(path_type=Path),
    help="All wheels pinned, with hashes; the engine alone otherwise.",
)
@click.option("--wheels", type=click.Path(path_type=Path), help="Folder of wheels, for a build without an index.")
@click.option("-o", "--output", type=OutputFolder(), help="Folder that keeps the build context.")
@click.option("--render-only", is_flag=True, help="Write the build context and stop.")
@click.option(
    "--builder", type=click.Choice(["docker", "podman", "buildah"]), help="The first that is installed unless given."
)
@click.option(
    "--builder-option", "builder_options", multiple=True, help="Passed on to the builder, such as --isolation=chroot."
)
@json_option
def command(stack_name: str, *, as_json: bool, **asked: Any) -> None:  # noqa: ANN401 - fields of BuildWish, typed by click
    """Render the slim Dockerfile of STACK's engine, and build it with the builder at hand."""
    made = build(stack_name, BuildWish(**asked))
    say(made, [f"{key:<12}{value}" for key, value in made.items() if value], as_json=as_json)
