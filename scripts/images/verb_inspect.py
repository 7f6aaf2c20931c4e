"""`coldstart image inspect`: what a pull costs and why."""

from __future__ import annotations

import errno
import json
from pathlib import Path

import click
from rich.console import Console

from budget.problems import bad_input
from scripts.failure import Failure
from scripts.images.index import LayerIndex
from scripts.images.inspection import inspect
from scripts.images.inspection_view import document, page, show
from scripts.images.progress import Meter
from scripts.images.speech import instance_option, json_option
from scripts.images.stack_facts import write_image_facts
from scripts.images.subject import subject_of
from scripts.registry import HttpRegistry


@click.command(name="inspect")
@click.argument("reference", metavar="STACK|IMAGE")
@instance_option
@click.option("--write", is_flag=True, help="Write what was found into the stack file, for every later plan.")
@click.option("--html", "html_path", type=click.Path(path_type=Path), help="Write a page.")
@json_option
def command(reference: str, *, instance: str | None, write: bool, html_path: Path | None, as_json: bool) -> None:
    """Read IMAGE, or the image of STACK, and explain what pulling it takes and what does not belong in it."""
    with HttpRegistry() as registry:
        subject = subject_of(reference, instance, registry)
        if write and subject.stack_path is None:
            raise bad_input("--write", f"{reference} is an image, not a stack", "Name the stack whose image it is.")
        image = subject.source.image(subject.architecture)
        with Meter("reading", image.bytes) as meter:
            found = inspect(
                subject.source, image, subject.architecture, subject.puller, index=LayerIndex(), meter=meter
            )
    if html_path is not None:
        _write_text(html_path, page(found))
    if write and subject.stack_path is not None:
        write_image_facts(subject.stack_path, found.sizes, found.waste, found.codec)
        click.echo(f"wrote model.image_facts into {subject.stack_path.name}", err=True)
    if as_json:
        click.echo(json.dumps(document(found), indent=2))
        return
    show(found, Console(highlight=False))


def _write_text(path: Path, text: str) -> None:
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        if error.errno == errno.ENOSPC:
            path.unlink(missing_ok=True)
            raise Failure(f"{path}: {error.strerror}") from error
        raise bad_input(str(path), f"cannot be written: {error.strerror}", "Give a writable path.") from error
    click.echo(f"wrote {path}", err=True)
