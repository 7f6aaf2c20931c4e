"""`coldstart image repack`: the same image in layers that pull fast."""

from __future__ import annotations

from typing import Any

import click

from scripts.images.index import LayerIndex
from scripts.images.places import target_of
from scripts.images.progress import Meter
from scripts.images.repack import Wish, repack
from scripts.images.repack_view import repacked_document, repacked_lines
from scripts.images.speech import instance_option, json_option, say
from scripts.images.subject import Subject, subject_of
from scripts.images.zstd_support import refuse_unsupported_zstd
from scripts.registry import HttpRegistry


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


@click.command(name="repack")
@click.argument("reference", metavar="STACK|IMAGE")
@click.option(
    "--to", "to", required=True, metavar="IMAGE2", help="Where the new image goes; never the source's own tag."
)
@click.option(
    "--layers",
    type=LayerCount(),
    default="auto",
    show_default=True,
    help="How many new ones, beside those kept; auto asks the simulator.",
)
@click.option("--codec", type=click.Choice(["gzip", "zstd"]), help="Of the new layers; the image's own unless given.")
@click.option(
    "--keep", type=click.IntRange(0, 126), default=0, show_default=True, help="Layers at the top left as they are."
)
@click.option("--drop-waste", is_flag=True, help="Leave out what a finding marks as safe to remove.")
@instance_option
@json_option
def command(reference: str, *, to: str, instance: str | None, as_json: bool, **wish: Any) -> None:  # noqa: ANN401 - fields of Wish, typed by click
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
    say(repacked_document(made), repacked_lines(made), as_json=as_json)


def _release(subject: Subject) -> str | None:
    """The Bottlerocket release of the stack's nodes; None for a bare image."""
    if subject.stack is None or subject.stack.model is None:
        return None
    return subject.stack.model.nodes.bottlerocket_release or subject.stack.environment.bottlerocket_release
