"""`coldstart image ...`: what a pull costs and why, the same image in layers that pull fast, copied, built, baked."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click
from rich.console import Console

from budget.problems import bad_input
from infra.stack_file import STACKS, read
from scripts.images.building import BuildWish, build
from scripts.images.index import LayerIndex
from scripts.images.inspection import explained
from scripts.images.inspection_view import document, page, show
from scripts.images.mirror import mirror, mirrored_document
from scripts.images.mirroring import mirror_jobs, mirrored_lines, write_places
from scripts.images.places import target_of
from scripts.images.progress import Meter
from scripts.images.repack import Wish, repack
from scripts.images.repack_view import repacked_document, repacked_lines
from scripts.images.snapshot import Place, aws_clients, bake_of, make_snapshot
from scripts.images.snapshot_view import bake_document, bake_lines
from scripts.images.stack_facts import write_facts
from scripts.images.subject import Subject, subject_of
from scripts.images.zstd_support import refuse_unsupported_zstd
from scripts.registry import HttpRegistry

json_option = click.option("--json", "as_json", is_flag=True, help="One JSON document on stdout.")
instance_option = click.option(
    "--instance", metavar="TYPE", help="Instance type that pulls; a stack's own unless given."
)


@click.group()
def command() -> None:
    """Images: what a pull costs, better layers, copies, builds, snapshots."""


def _say(answer: Mapping[str, Any], lines: list[str], *, as_json: bool) -> None:
    if as_json:
        click.echo(json.dumps(answer, indent=2))
        return
    for line in lines:
        click.echo(line)


@command.command("inspect")
@click.argument("reference", metavar="STACK|IMAGE")
@instance_option
@click.option("--write", is_flag=True, help="Write the layers into the stack file, for every later plan.")
@click.option("--html", "html_path", type=click.Path(path_type=Path), help="Write a page.")
@json_option
def inspect_verb(reference: str, *, instance: str | None, write: bool, html_path: Path | None, as_json: bool) -> None:
    """Read IMAGE, or the image of STACK, and explain what pulling it takes and what does not belong in it."""
    with HttpRegistry() as registry:
        subject = subject_of(reference, instance, registry)
        if write and subject.stack_path is None:
            raise bad_input("--write", f"{reference} is an image, not a stack", "Name the stack whose image it is.")
        image = subject.source.image(subject.architecture)
        with Meter("reading", image.bytes) as meter:
            found = explained(
                subject.source, image, subject.architecture, subject.puller, index=LayerIndex(), meter=meter
            )
    if html_path is not None:
        _write_text(html_path, page(found))
    if write and subject.stack_path is not None:
        write_facts(subject.stack_path, found.sizes)
        click.echo(f"wrote model.image_facts into {subject.stack_path.name}", err=True)
    if as_json:
        click.echo(json.dumps(document(found), indent=2))
        return
    show(found, Console(highlight=False))


def _write_text(path: Path, text: str) -> None:
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise bad_input(str(path), f"cannot be written: {error.strerror}", "Give a writable path.") from error
    click.echo(f"wrote {path}", err=True)


class LayerCount(click.ParamType[int | None]):
    """`auto` or a number."""

    name = "auto|N"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int | None:  # noqa: ANN401 - click's own signature
        """None for `auto`."""
        if value in ("auto", None):
            return None
        if isinstance(value, str) and value.isdigit() and 1 <= int(value) <= 127:  # noqa: PLR2004 - what overlay takes
            return int(value)
        return self.fail(f"found {value!r}. Allowed: auto, or 1 to 127.", param, ctx)


@command.command("repack")
@click.argument("reference", metavar="STACK|IMAGE")
@click.option(
    "--to", "to", required=True, metavar="IMAGE2", help="Where the new image goes; never the source's own tag."
)
@click.option(
    "--layers", type=LayerCount(), default="auto", show_default=True, help="How many; auto asks the simulator."
)
@click.option("--codec", type=click.Choice(["gzip", "zstd"]), help="Of the new layers; the image's own unless given.")
@click.option(
    "--keep", type=click.IntRange(0, 126), default=0, show_default=True, help="Layers at the top left as they are."
)
@click.option("--drop-waste", is_flag=True, help="Leave out what a finding marks as safe to remove.")
@instance_option
@json_option
def repack_verb(reference: str, *, to: str, instance: str | None, as_json: bool, **wish: Any) -> None:  # noqa: ANN401 - fields of Wish, typed by click
    """Write the same root file system as IMAGE2, in layers that the node pulls fastest."""
    asked = Wish(**wish)
    with HttpRegistry() as registry:
        subject = subject_of(reference, instance, registry)
        if asked.codec == "zstd":
            refuse_unsupported_zstd(_release(subject))
        made = repack(
            subject.source,
            target_of(to, registry),
            subject.architecture,
            subject.puller,
            asked,
            index=LayerIndex(),
            meter=Meter,
        )
    _say(repacked_document(made), repacked_lines(made), as_json=as_json)


def _release(subject: Subject) -> str | None:
    """The Bottlerocket release of the stack's nodes; None for a bare image."""
    if subject.stack is None or subject.stack.model is None:
        return None
    return subject.stack.model.nodes.bottlerocket_release or subject.stack.environment.bottlerocket_release


@command.command("mirror")
@click.argument("names", metavar="STACK|IMAGE...", nargs=-1, required=True)
@click.option(
    "--to", "to", metavar="HOST[/PREFIX]", help="Registry to copy to; a stack's own account and region unless given."
)
@click.option(
    "--architecture", type=click.Choice(["amd64", "arm64"]), default="amd64", show_default=True, help="Of a bare IMAGE."
)
@click.option("--write", is_flag=True, help="Write the new place into the model's stack file.")
@json_option
def mirror_verb(names: tuple[str, ...], *, to: str | None, architecture: str, write: bool, as_json: bool) -> None:
    """Copy images by digest into the region: an environment's engines and controllers, a model's engine, any IMAGE."""
    jobs = mirror_jobs(names, to, architecture)
    with HttpRegistry() as registry:
        done = [
            copied
            for job in jobs
            for copied in mirror(job.images, job.destination, registry, prepare=job.prepare, meter=Meter)
        ]
    if write:
        write_places(done)
    _say(mirrored_document(done), mirrored_lines(done), as_json=as_json)


@command.command("build")
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
@click.option(
    "-o", "--output", type=click.Path(file_okay=False, path_type=Path), help="Folder that keeps the build context."
)
@click.option("--render-only", is_flag=True, help="Write the build context and stop.")
@click.option(
    "--builder", type=click.Choice(["docker", "podman", "buildah"]), help="The first that is installed unless given."
)
@click.option(
    "--builder-option", "builder_options", multiple=True, help="Passed on to the builder, such as --isolation=chroot."
)
@json_option
def build_verb(stack_name: str, *, as_json: bool, **asked: Any) -> None:  # noqa: ANN401 - fields of BuildWish, typed by click
    """Render the slim Dockerfile of STACK's engine, and build it with the builder at hand."""
    made = build(stack_name, BuildWish(**asked))
    _say(made, [f"{key:<12}{value}" for key, value in made.items() if value], as_json=as_json)


@command.command("snapshot")
@click.argument("stack_name", metavar="STACK")
@click.option("--hydrate", metavar="MIB_S|fast-snapshot-restore", help="How first reads become fast; refused without.")
@click.option(
    "--usd-per-gib", type=click.FloatRange(min=0), help="Your region's price of that rate, from the EBS price page."
)
@click.option("--subnet", help="Where the baking node runs: a subnet with a way to the registry and to SSM.")
@click.option("--instance-profile", help="Of the baking node: may pull from ECR, and be reached by SSM.")
@click.option("--yes", is_flag=True, help="Make it; without, only what it would be and cost.")
@json_option
def snapshot_verb(
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
    _say(bake_document(bake, made), bake_lines(bake, made), as_json=as_json)
