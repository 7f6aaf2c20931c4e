"""Where an image is read from: what every kind of source offers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, cast

from scripts.failure import Failure

OCI_MANIFEST = "application/vnd.oci.image.manifest.v1+json"
OCI_CONFIG = "application/vnd.oci.image.config.v1+json"
DOCKER_MANIFEST = "application/vnd.docker.distribution.manifest.v2+json"
DOCKER_CONFIG = "application/vnd.docker.container.image.v1+json"
MOST_CONFIG_BYTES = 8_000_000
"""Registries take manifests up to 4 MiB; a configuration beyond twice that is no configuration."""


@dataclass(frozen=True, kw_only=True, slots=True)
class LayerBlob:
    """One layer as the manifest lists it.

    Attributes:
        digest: of the bytes as stored.
        bytes: as stored.
        media_type: says how it is compressed.
        diff_id: digest of its tar stream, from the configuration.
    """

    digest: str
    bytes: int
    media_type: str
    diff_id: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Image:
    """One image of one platform.

    Attributes:
        name: as the person wrote it.
        digest: of the manifest.
        manifest: the manifest's own JSON.
        config: the configuration's own JSON.
        stored_compressed: False where the source keeps layers as plain tar streams that a registry would compress.
    """

    name: str
    digest: str
    manifest: Mapping[str, Any]
    config: Mapping[str, Any]
    layers: tuple[LayerBlob, ...]
    stored_compressed: bool = True

    @property
    def bytes(self) -> int:
        """All layers as stored."""
        return sum(layer.bytes for layer in self.layers)

    @property
    def commands(self) -> Sequence[str]:
        """The command that made each layer, as far as the history tells; empty texts where it does not."""
        history = cast("Sequence[Mapping[str, Any]]", self.config.get("history") or ())
        made = [str(entry.get("created_by") or "") for entry in history if not entry.get("empty_layer")]
        return made if len(made) == len(self.layers) else [""] * len(self.layers)


class Source(Protocol):
    """A place that an image is read from."""

    name: str

    def image(self, architecture: str) -> Image:
        """The image for linux and this architecture (`amd64`, `arm64`).

        Raises:
            Failure: not there, not readable, or not made for it.
        """
        ...

    def open(self, layer: LayerBlob) -> Iterator[bytes]:
        """The layer's bytes as stored, in pieces. The reader checks the digest."""
        ...

    def moved(self, image: Image) -> bool:
        """Whether the name stands for something else than when the image was read."""
        ...


def image_of(name: str, digest: str, manifest: Mapping[str, Any], config: Mapping[str, Any]) -> Image:
    """An image from its two documents, which have been checked for their shapes.

    Raises:
        Failure: they don't agree, or there is no layer.
    """
    listed = cast("Sequence[Mapping[str, Any]]", manifest.get("layers") or ())
    diff_ids = cast("Sequence[str]", config["rootfs"]["diff_ids"])
    if not listed:
        raise Failure(f"{name} has no layers")
    if len(listed) != len(diff_ids):
        raise Failure(f"{name}: the manifest lists {len(listed)} layers, the configuration {len(diff_ids)}")
    layers = tuple(
        LayerBlob(digest=layer["digest"], bytes=layer["size"], media_type=layer.get("mediaType") or "", diff_id=diff_id)
        for layer, diff_id in zip(listed, diff_ids, strict=True)
    )
    return Image(name=name, digest=digest, manifest=manifest, config=config, layers=layers)


def check_platform(name: str, config: Mapping[str, Any], architecture: str) -> None:
    """Refuses an image made for something else.

    Raises:
        Failure: it is for another platform.
    """
    found = (config.get("os", "linux"), config.get("architecture", architecture))
    if found != ("linux", architecture):
        raise Failure(f"{name} is made for {found[0]}/{found[1]}, not for linux/{architecture}")
