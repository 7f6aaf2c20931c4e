"""An image in a file of `docker save`: a tar of layers, a configuration and manifest.json."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

from budget.problems import bad_input
from scripts.failure import Failure
from scripts.image_document import document, saved_images
from scripts.images.entry import Entry
from scripts.images.layout import pieces_of
from scripts.images.source import (
    DOCKER_CONFIG,
    DOCKER_MANIFEST,
    MOST_CONFIG_BYTES,
    Image,
    LayerBlob,
    check_platform,
    image_of,
)
from scripts.images.tar_reader import TarReader
from scripts.registry import parse

PLAIN = "application/vnd.docker.image.rootfs.diff.tar"
MAGIC = {b"\x1f\x8b": f"{PLAIN}.gzip", b"\x28\xb5\x2f\xfd": f"{PLAIN}.zstd"}
BLOBS = "blobs/sha256/"


class ArchiveSource:
    """Reads `docker-archive:FILE[:NAME]`. The file is read in place, never unpacked."""

    def __init__(self, path: Path, tag: str | None) -> None:
        self.name = f"docker-archive:{path}" + (f":{tag}" if tag else "")
        self._path, self._tag = path, tag
        self._members: Mapping[str, Entry] = {}
        self._places: dict[str, Entry] = {}
        self._changed = 0.0

    def image(self, architecture: str) -> Image:
        """See `Source`."""
        self._members = self._listed()
        chosen = self._chosen()
        config_bytes = self._small(str(chosen.get("Config")))
        config = document(self.name, "configuration", config_bytes)
        check_platform(self.name, config, architecture)
        layers = self._layers(cast("Sequence[str]", chosen.get("Layers") or ()), config)
        manifest = {
            "schemaVersion": 2,
            "mediaType": DOCKER_MANIFEST,
            "config": {"mediaType": DOCKER_CONFIG, "digest": _digest(config_bytes), "size": len(config_bytes)},
            "layers": [
                {"mediaType": layer.media_type, "size": layer.bytes, "digest": layer.digest} for layer in layers
            ],
        }
        digest = _digest(json.dumps(manifest).encode())
        image = image_of(self.name, digest, manifest, config)
        return replace(image, stored_compressed=all(layer.media_type != PLAIN for layer in layers))

    def _listed(self) -> Mapping[str, Entry]:
        try:
            self._changed = self._path.stat().st_mtime
        except OSError as error:
            raise bad_input(self.name, f"cannot be read: {error.strerror}", "Give a file of `docker save`.") from error
        entries = TarReader(pieces_of(self.name, self._path), self.name)
        members = {entry.path: entry for entry in entries if entry.kind in ("file", "symlink", "link")}
        if "manifest.json" not in members:
            raise bad_input(self.name, "holds no manifest.json", "Give a file of `docker save`, or oci:FOLDER.")
        return members

    def _chosen(self) -> Mapping[str, Any]:
        listed = saved_images(self.name, self._small("manifest.json"))
        tags = {tag: entry for entry in listed for tag in cast("Sequence[str]", entry.get("RepoTags") or ())}
        if self._tag is not None:
            found = next((entry for tag, entry in tags.items() if parse(tag) == parse(self._tag)), None)
            if found is None:
                raise Failure(f"{self.name}: the file holds {', '.join(sorted(tags)) or 'no tag'}")
            return found
        if not listed:
            raise Failure(f"{self.name} holds no image")
        if len(listed) != 1:
            raise bad_input(self.name, f"holds {len(listed)} images", f"Name one: {', '.join(sorted(tags))}.")
        return listed[0]

    def _layers(self, names: Sequence[str], config: Mapping[str, Any]) -> Sequence[LayerBlob]:
        diff_ids = cast("Sequence[str]", cast("Mapping[str, Any]", config.get("rootfs") or {}).get("diff_ids") or ())
        if len(diff_ids) != len(names):
            raise Failure(f"{self.name}: manifest.json lists {len(names)} layers, the configuration {len(diff_ids)}")
        layers: list[LayerBlob] = []
        for name, diff_id in zip(names, diff_ids, strict=True):
            member = self._member(name)
            start = next(pieces_of(self.name, self._path, member.offset, min(4, member.content_bytes)), b"")
            media_type = next((kind for magic, kind in MAGIC.items() if start.startswith(magic)), PLAIN)
            if media_type != PLAIN and not name.startswith(BLOBS):
                raise Failure(f"{self.name}: {name} is compressed and its digest is nowhere: not trusted")
            digest = diff_id if media_type == PLAIN else f"sha256:{name.removeprefix(BLOBS)}"
            layers.append(LayerBlob(digest=digest, bytes=member.content_bytes, media_type=media_type, diff_id=diff_id))
            self._places[digest] = member
        return layers

    def _member(self, name: str) -> Entry:
        """A member; old archives have a link where a layer occurs a second time."""
        member = self._members.get(name)
        if member is not None and member.target is not None:
            folder = name.rpartition("/")[0].split("/") if member.kind == "symlink" and "/" in name else []
            for part in member.target.split("/"):
                folder = folder[:-1] if part == ".." else [*folder, part]
            member = self._members.get("/".join(folder))
        if member is None or member.kind != "file":
            raise Failure(f"{self.name}: {name} is missing in the file")
        return member

    def _small(self, name: str) -> bytes:
        member = self._member(name)
        if member.content_bytes > MOST_CONFIG_BYTES:
            raise Failure(f"{self.name}: {name} has {member.content_bytes} bytes: not trusted")
        return b"".join(pieces_of(self.name, self._path, member.offset, member.content_bytes))

    def open(self, layer: LayerBlob) -> Iterator[bytes]:
        """See `Source`."""
        member = self._places[layer.digest]
        return pieces_of(self.name, self._path, member.offset, member.content_bytes)

    def moved(self, image: Image) -> bool:
        """See `Source`."""
        del image
        return self._path.stat().st_mtime != self._changed


def _digest(content: bytes) -> str:
    return f"sha256:{hashlib.sha256(content).hexdigest()}"
