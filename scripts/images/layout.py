"""An image in an OCI layout folder, read and written."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

from budget.problems import bad_input
from scripts.failure import Failure
from scripts.image_document import document
from scripts.images.source import Image, LayerBlob, check_platform, image_of
from scripts.registry import Manifest, Reference, platform

REF_NAME = "org.opencontainers.image.ref.name"
READ_BYTES = 1 << 18


class LayoutSource:
    """Reads `oci:FOLDER[:TAG]`; without a tag the folder must hold one image."""

    def __init__(self, folder: Path, tag: str | None) -> None:
        self.name = f"oci:{folder}" + (f":{tag}" if tag else "")
        self._folder, self._tag = folder, tag

    def image(self, architecture: str) -> Image:
        """See `Source`."""
        if not (self._folder / "oci-layout").is_file():
            raise bad_input(self.name, "is not an OCI layout folder", "One holds the files oci-layout and index.json.")
        digest = self._digest()
        manifest = document(self.name, "manifest", self._checked(digest))
        if "manifests" in manifest:
            digest = platform(self.name, manifest, architecture)
            manifest = document(self.name, "manifest", self._checked(digest))
        described = cast("Mapping[str, Any]", manifest.get("config") or {})
        config = document(self.name, "configuration", self._checked(str(described.get("digest", ""))))
        check_platform(self.name, config, architecture)
        return image_of(self.name, digest, manifest, config)

    def _digest(self) -> str:
        index = document(self.name, "index", _read(self.name, self._folder / "index.json"))
        listed = cast("Sequence[Mapping[str, Any]]", index.get("manifests", ()))
        tags = {_tag_of(entry): str(entry["digest"]) for entry in listed}
        if self._tag is not None:
            if self._tag not in tags:
                raise Failure(f"{self.name}: the folder holds {', '.join(sorted(filter(None, tags))) or 'no tag'}")
            return tags[self._tag]
        if len(listed) != 1:
            raise bad_input(self.name, f"holds {len(listed)} images", "Name one: oci:FOLDER:TAG.")
        return str(listed[0]["digest"])

    def _checked(self, digest: str) -> bytes:
        content = _read(self.name, blob_path(self._folder, digest))
        if f"sha256:{hashlib.sha256(content).hexdigest()}" != digest:
            raise Failure(f"{self.name}: the bytes of {digest} do not match it: not trusted")
        return content

    def open(self, layer: LayerBlob) -> Iterator[bytes]:
        """See `Source`."""
        return pieces_of(self.name, blob_path(self._folder, layer.digest))

    def moved(self, image: Image) -> bool:
        """See `Source`. The manifest that the tag names may be an index that leads to the image."""
        return not self.names(image.digest)

    def names(self, digest: str) -> bool:
        """Whether the tag stands for this manifest, or for an index that lists it."""
        found = self._digest()
        return digest in (found, *_listed(document(self.name, "manifest", self._checked(found))))


class LayoutTarget:
    """Writes `oci:FOLDER:TAG`; blobs and index appear whole or not at all."""

    def __init__(self, folder: Path, tag: str) -> None:
        self.name = f"oci:{folder}:{tag}"
        self._folder, self._tag = folder, tag

    def names(self, digest: str) -> bool:
        """Whether the tag is there and stands for this manifest, or for an index that lists it."""
        try:
            return LayoutSource(self._folder, self._tag).names(digest)
        except Failure:
            return False

    def has_blob(self, digest: str) -> bool:
        """Whether the blob is there."""
        return blob_path(self._folder, digest).is_file()

    def put_file(self, digest: str, path: Path) -> None:
        """Copies a file as a blob, by a link where the file system allows it."""
        target = self._room(digest)
        try:
            os.link(path, target)
        except OSError:
            with self._written_whole(target) as partial:
                shutil.copyfile(path, partial)

    def put_bytes(self, digest: str, content: bytes) -> None:
        """Writes bytes as a blob."""
        self.put_stream(digest, len(content), iter((content,)))

    def put_stream(self, digest: str, size: int, pieces: Iterator[bytes], origin: Reference | None = None) -> None:
        """Writes a blob as it comes, and checks it.

        Raises:
            Failure: the bytes don't match the digest.
        """
        del origin
        seen, written = hashlib.sha256(), 0
        with self._written_whole(self._room(digest)) as partial:
            with partial.open("wb") as file:
                for piece in pieces:
                    seen.update(piece)
                    written += file.write(piece)
            if f"sha256:{seen.hexdigest()}" != digest or written != size:
                raise Failure(f"{self.name}: the bytes sent do not match {digest}")

    @contextmanager
    def _written_whole(self, target: Path) -> Generator[Path]:
        """A file beside the target that takes its place in the end, and is gone if anything went wrong."""
        partial = target.with_suffix(".part")
        try:
            yield partial
            partial.replace(target)
        except OSError as error:
            raise Failure(f"{self.name}: cannot be written: {error.strerror}") from error
        finally:
            partial.unlink(missing_ok=True)

    def put_manifest(self, manifest: Manifest) -> None:
        """Writes the manifest, then the index that names it."""
        self.put_bytes(manifest.digest, manifest.content)
        path = self._folder / "index.json"
        index = dict(document(self.name, "index", path.read_bytes())) if path.is_file() else {"schemaVersion": 2}
        others = [
            entry
            for entry in cast("Sequence[Mapping[str, Any]]", index.get("manifests", ()))
            if _tag_of(entry) != self._tag
        ]
        entry = {
            "mediaType": manifest.media_type,
            "digest": manifest.digest,
            "size": len(manifest.content),
            "annotations": {REF_NAME: self._tag},
        }
        texts = {
            path: json.dumps(index | {"manifests": [*others, entry]}, indent=2) + "\n",
            self._folder / "oci-layout": '{"imageLayoutVersion": "1.0.0"}\n',
        }
        for place, text in texts.items():
            with self._written_whole(place) as partial:
                partial.write_text(text, encoding="utf-8")

    def _room(self, digest: str) -> Path:
        path = blob_path(self._folder, digest)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise Failure(f"{self.name}: cannot be written: {error.strerror}") from error
        return path


def _tag_of(entry: Mapping[str, Any]) -> str:
    """The tag of an entry of an index; empty if it has none."""
    return cast("Mapping[str, str]", entry.get("annotations") or {}).get(REF_NAME, "")


def _listed(manifest: Mapping[str, Any]) -> Sequence[str]:
    """Manifests of an index; none of anything else."""
    return [str(entry["digest"]) for entry in cast("Sequence[Mapping[str, Any]]", manifest.get("manifests") or ())]


def blob_path(folder: Path, digest: str) -> Path:
    """Where a layout keeps a blob. The digest comes from a document, so it must not lead out of the folder."""
    algorithm, _, value = digest.partition(":")
    if algorithm != "sha256" or not value.isalnum():
        raise Failure(f"{folder}: {digest!r} is not a sha256 digest")
    return folder / "blobs" / algorithm / value


def pieces_of(name: str, path: Path, offset: int = 0, size: int | None = None) -> Iterator[bytes]:
    """A file's bytes, or a range of them, in pieces."""
    if not path.is_file():
        raise Failure(f"{name}: {path.name} is missing, or not a file")
    try:
        with path.open("rb") as file:
            file.seek(offset)
            left = size
            while piece := file.read(READ_BYTES if left is None else min(READ_BYTES, left)):
                left = None if left is None else left - len(piece)
                yield piece
    except OSError as error:
        raise Failure(f"{name}: {path.name} cannot be read: {error.strerror}") from error


def _read(name: str, path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise Failure(f"{name}: {path.name} cannot be read: {error.strerror}") from error
