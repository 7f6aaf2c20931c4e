"""An image in a registry."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

from scripts.failure import Failure
from scripts.image_document import document
from scripts.images.source import MOST_CONFIG_BYTES, Image, LayerBlob, check_platform, image_of
from scripts.registry import HttpRegistry, Manifest, NotThere, Reference, platform

SEND_BYTES = 1 << 20


class RemoteSource:
    """Reads an image from a registry; a tag is resolved once, everything after goes by digest."""

    def __init__(self, reference: Reference, registry: HttpRegistry) -> None:
        self.name = str(reference)
        self.reference = reference
        self._registry = registry
        self._asked: str | None = None

    def image(self, architecture: str) -> Image:
        """See `Source`."""
        manifest = self._registry.manifest(self.reference)
        self._asked = manifest.digest
        if "manifests" in manifest.document:
            child = platform(self.name, manifest.document, architecture)
            manifest = self._registry.manifest(self.reference, child)
        config = self._configuration(manifest)
        check_platform(self.name, config, architecture)
        return image_of(self.name, manifest.digest, manifest.document, config)

    def architecture(self) -> str:
        """What a name that leads to one manifest is made for.

        Raises:
            Failure: not there, or not readable.
        """
        return str(self._configuration(self._registry.manifest(self.reference)).get("architecture"))

    def _configuration(self, manifest: Manifest) -> Mapping[str, Any]:
        described = manifest.document.get("config")
        if not described:
            raise Failure(f"{self.name}: the manifest names no configuration: is it a container image?")
        return document(self.name, "configuration", self._small(str(described["digest"]), int(described["size"])))

    def _small(self, digest: str, size: int) -> bytes:
        if size > MOST_CONFIG_BYTES:
            raise Failure(f"{self.name}: a configuration of {size} bytes: not trusted")
        content = b""
        for piece in self._registry.blob(self.reference, digest, size):
            content += piece
            if len(content) > size:
                break
        if f"sha256:{hashlib.sha256(content).hexdigest()}" != digest:
            raise Failure(f"{self.name}: the configuration's bytes do not match {digest}: not trusted")
        return content

    def open(self, layer: LayerBlob) -> Iterator[bytes]:
        """See `Source`."""
        return self._registry.blob(self.reference, layer.digest, layer.bytes)

    def moved(self, image: Image) -> bool:
        """See `Source`."""
        del image
        return self.reference.digest is None and self._registry.manifest(self.reference).digest != self._asked


class RemoteTarget:
    """Writes an image to a registry, and only what is not there."""

    def __init__(self, reference: Reference, registry: HttpRegistry) -> None:
        self.name = str(reference)
        self.reference = reference
        self._registry = registry

    def names(self, digest: str) -> bool:
        """Whether the tag is there and stands for this manifest, or for an index that lists it."""
        try:
            found = self._registry.manifest(self.reference)
        except NotThere:
            return False
        listed = cast("Sequence[Mapping[str, Any]]", found.document.get("manifests") or ())
        return digest in (found.digest, *(entry["digest"] for entry in listed))

    def has_blob(self, digest: str) -> bool:
        """Whether the blob is there."""
        return self._registry.has_blob(self.reference, digest)

    def put_file(self, digest: str, path: Path) -> None:
        """Sends a file as a blob."""
        with path.open("rb") as file:
            self._registry.put_blob(
                self.reference, digest, path.stat().st_size, iter(lambda: file.read(SEND_BYTES), b"")
            )

    def put_bytes(self, digest: str, content: bytes) -> None:
        """Sends bytes as a blob."""
        self._registry.put_blob(self.reference, digest, len(content), iter((content,)))

    def put_stream(self, digest: str, size: int, pieces: Iterator[bytes], origin: Reference | None = None) -> None:
        """Sends a blob as it comes; from a repository of the same registry without its bytes, where it allows that."""
        same = origin is not None and origin.registry == self.reference.registry
        if same and origin is not None and self._registry.mount_blob(self.reference, digest, origin):
            return
        self._registry.put_blob(self.reference, digest, size, pieces)

    def put_manifest(self, manifest: Manifest) -> None:
        """Writes the manifest under the tag; the last act, so that a tag never names half an image."""
        self._registry.put_manifest(self.reference, self.reference.name, manifest)
