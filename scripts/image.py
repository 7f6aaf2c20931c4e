"""`coldstart image ...`: what a pull costs and why, the same image in layers that pull fast, copied, built, baked."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click
from rich.console import Console

from budget.problems import bad_input
from scripts.images.index import LayerIndex
from scripts.images.inspection import explained
from scripts.images.inspection_view import document, page, show
from scripts.images.places import target_of
from scripts.images.progress import Meter
from scripts.images.repack import Wish, repack
from scripts.images.repack_view import repacked_document, repacked_lines
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
