"""From what a person writes to the place of an image: a registry, an OCI layout folder, a file of `docker save`."""

from __future__ import annotations

import re
from pathlib import Path

from budget.problems import BadInput, bad_input
from scripts.images.archive_source import ArchiveSource
from scripts.images.layout import LayoutSource, LayoutTarget
from scripts.images.remote import RemoteSource, RemoteTarget
from scripts.images.source import Image, Source
from scripts.registry import HttpRegistry, Reference, parse

FORMS = "Write REGISTRY/NAME:TAG or @sha256:..., oci:FOLDER[:TAG], or docker-archive:FILE[:NAME]."
_REFERENCE = re.compile(
    r"^(?:[A-Za-z0-9](?:[\w.-]*[A-Za-z0-9])?(?::\d+)?/)?[a-z0-9]+(?:(?:\.|_{1,2}|-+)[a-z0-9]+)*"
    r"(?:/[a-z0-9]+(?:(?:\.|_{1,2}|-+)[a-z0-9]+)*)*(?::\w[\w.-]{0,127})?(?:@sha256:[0-9a-f]{64})?$"
)

_TAG = re.compile(r"^\w[\w.-]{0,127}$", re.ASCII)

Target = RemoteTarget | LayoutTarget


def reference_of(text: str) -> Reference:
    """A registry reference.

    Raises:
        BadInput: it is none.
    """
    name = text.removeprefix("docker://")
    if not _REFERENCE.match(name):
        raise bad_input(text, "is not an image reference", FORMS)
    return parse(name)


def source_of(text: str, registry: HttpRegistry) -> Source:
    """Where an image is read from.

    Raises:
        BadInput: not a place that is known.
    """
    kind, _, rest = text.partition(":")
    if kind == "oci":
        return LayoutSource(*_path_and_tag(text, rest))
    if kind == "docker-archive":
        return ArchiveSource(*_path_and_tag(text, rest))
    return RemoteSource(reference_of(text), registry)


def target_of(text: str, registry: HttpRegistry) -> Target:
    """Where an image is written to: a registry or an OCI layout folder.

    Raises:
        BadInput: neither, or without a tag.
    """
    kind, _, rest = text.partition(":")
    if kind == "oci":
        path, tag = _path_and_tag(text, rest)
        if tag and not _TAG.match(tag):
            raise bad_input(text, f"{tag!r} is not a tag", "Letters, digits, underscores, dots and hyphens.")
        return LayoutTarget(path, tag or "latest")
    if kind == "docker-archive":
        raise bad_input(text, "cannot be written to", "Write to REGISTRY/NAME:TAG or oci:FOLDER:TAG.")
    reference = reference_of(text)
    if reference.digest:
        raise bad_input(text, "names a digest, and a new image gets its own", "Give a tag: REGISTRY/NAME:TAG.")
    return RemoteTarget(reference, registry)


def refuse_same(source: Source, target: Target) -> None:
    """A new image never goes where it is read from. Nothing is asked for.

    Raises:
        BadInput: it would.
    """
    if source.name in (target.name, target.name.rpartition(":")[0]):
        raise _is_the_source(target)


def refuse_source_tag(image: Image, target: Target) -> None:
    """A new image never takes a tag that stands for the one it was made from, however the place is spelled.

    Raises:
        BadInput: it would.
    """
    if target.names(image.digest):
        raise _is_the_source(target)


def _is_the_source(target: Target) -> BadInput:
    return bad_input(
        target.name, "is the source itself, which is never overwritten", "Give another tag, such as TAG-even."
    )


def _path_and_tag(text: str, rest: str) -> tuple[Path, str | None]:
    path, _, tag = rest.partition(":")
    if not path:
        raise bad_input(text, "names no path", FORMS)
    return Path(path), tag or None


def is_reference(text: str) -> bool:
    """Whether a text can be meant as an image rather than as the name of a stack."""
    if text.startswith(("oci:", "docker-archive:", "docker://")):
        return True
    try:
        reference_of(text)
    except BadInput:
        return False
    return any(mark in text for mark in ":/@")
