"""`coldstart image mirror`: images copied by digest into a registry of the region, and only what is not there."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, cast

from budget.problems import bad_input
from scripts.failure import Failure
from scripts.images.environment_images import Needed
from scripts.images.layer import Steps
from scripts.images.places import is_reference, reference_of
from scripts.images.remote import RemoteSource, RemoteTarget
from scripts.registry import DOCKER_HUB, HttpRegistry, Manifest, Reference, platform

BLOBS_AT_ONCE = 4
Prepare = Callable[[Reference], bool]
"""Makes the repository that a reference names, if it must be; returns whether it did."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Mirrored:
    """One image in its new place.

    Attributes:
        source: as it was written.
        target: as it is to be written now, by digest.
        there: it was there before, whole.
        sent_bytes: of blobs that were missing.
        made_repository: the repository was made for it.
    """

    source: str
    target: str
    of: str
    there: bool
    sent_bytes: int
    made_repository: bool


def target_reference(source: Reference, registry: str, prefix: str) -> Reference:
    """Where an image goes: under the prefix by its own full name, so that no two can meet."""
    host = "docker.io" if source.registry == DOCKER_HUB else source.registry.replace(":", "-")
    parts = [part for part in (prefix, host, source.repository) if part]
    return Reference(registry=registry, repository="/".join(parts), tag=source.tag)


def split_destination(text: str) -> tuple[str, str]:
    """Registry and prefix of `--to`.

    Raises:
        BadInput: it is no registry.
    """
    host, _, prefix = text.removeprefix("docker://").partition("/")
    if not any(mark in host for mark in ".:") and host != "localhost":
        raise bad_input("--to", f"{text!r} is not a registry", "Give HOST[/PREFIX], such as your account's ECR.")
    if not is_reference(f"{host}/{prefix.strip('/') or 'x'}:check"):
        raise bad_input("--to", f"{text!r} is not a registry", "Give HOST[/PREFIX], such as your account's ECR.")
    return host, prefix.strip("/")


def mirror(
    images: Sequence[Needed], destination: str, registry: HttpRegistry, *, prepare: Prepare, meter: Steps
) -> Sequence[Mirrored]:
    """Copies images. One architecture is copied as that manifest alone; several as the whole index.

    Args:
        images: what is needed.
        destination: registry and prefix.
        registry: reads and writes.
        prepare: makes repositories.
        meter: makes the meter of one image.

    Raises:
        BadInput: a name that is no image, or a destination that is no registry.
        Failure: an image can't be read or written; those before it are whole.
    """
    host, prefix = split_destination(destination)
    sources = [reference_of(image.reference) for image in images]
    # All of them are asked for before the first is sent.
    tops = [_top(image, source, registry) for image, source in zip(images, sources, strict=True)]
    return [
        _one(image, top, source, target_reference(source, host, prefix), registry, prepare, meter)
        for image, top, source in zip(images, tops, sources, strict=True)
    ]


def _top(image: Needed, source: Reference, registry: HttpRegistry) -> Manifest:
    """What is copied: the manifest of the one architecture that is needed, or the whole index."""
    top = registry.manifest(source)
    if "manifests" not in top.document:
        found = RemoteSource(source, registry).architecture()
        if found not in image.architectures:
            raise Failure(f"{source} is made for {found}, not for {' or '.join(sorted(image.architectures))}")
        return top
    if len(image.architectures) > 1:
        return top
    (architecture,) = image.architectures
    return registry.manifest(source, platform(str(source), top.document, architecture))


def _one(
    image: Needed,
    top: Manifest,
    source: Reference,
    target: Reference,
    registry: HttpRegistry,
    prepare: Prepare,
    meter: Steps,
) -> Mirrored:
    made = prepare(target)
    there = not made and registry.has_manifest(target, top.digest)
    sent = 0 if there else _copy(top, source, target, registry, meter)
    if not registry.has_manifest(target, top.digest):
        raise Failure(f"{target}: took {top.digest} and doesn't have it now")
    return Mirrored(
        source=image.reference,
        target=f"{target.registry}/{target.repository}:{target.tag}@{top.digest}",
        of=image.of,
        there=there,
        sent_bytes=sent,
        made_repository=made,
    )


def _copy(top: Manifest, source: Reference, target: Reference, registry: HttpRegistry, meter: Steps) -> int:
    """Blobs first, then the manifests that name them, the tag last."""
    listed = cast("Sequence[Mapping[str, Any]]", top.document.get("manifests", ()))
    children = [registry.manifest(source, str(entry["digest"])) for entry in listed]
    blobs = {digest: size for each in (children or [top]) for digest, size in _blobs(each)}
    with meter(f"copying {source.repository}", sum(blobs.values())) as progress:
        to = RemoteTarget(target, registry)

        def copy(item: tuple[str, int]) -> int:
            digest, size = item
            missing = not to.has_blob(digest)
            if missing:
                to.put_stream(digest, size, registry.blob(source, digest, size), source)
            progress(size)
            return size if missing else 0

        with ThreadPoolExecutor(BLOBS_AT_ONCE, thread_name_prefix="copy") as pool:
            sent = sum(pool.map(copy, blobs.items()))
    for child in children:
        registry.put_manifest(target, child.digest, child)
    registry.put_manifest(target, target.tag, top)
    return sent


def _blobs(manifest: Manifest) -> list[tuple[str, int]]:
    document = manifest.document
    described = [document.get("config"), *cast("Sequence[Mapping[str, Any]]", document.get("layers", ()))]
    return [(str(blob["digest"]), int(blob["size"])) for blob in described if blob]


def mirrored_document(images: Sequence[Mirrored]) -> dict[str, Any]:
    """What `--json` prints."""
    return {
        "images": [
            {
                "source": each.source,
                "target": each.target,
                "of": each.of,
                "there": each.there,
                "sent_bytes": each.sent_bytes,
                "made_repository": each.made_repository,
            }
            for each in images
        ]
    }
