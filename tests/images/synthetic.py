"""Images made by hand: layers from a few words, written as OCI layouts, `docker save` files or pushed to a registry."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import tarfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import zstandard

LAYER = "application/vnd.oci.image.layer.v1.tar"
SUFFIX = {"gzip": "+gzip", "zstd": "+zstd", "none": ""}
CLOCK = 1_700_000_000


def digest(content: bytes) -> str:
    return f"sha256:{hashlib.sha256(content).hexdigest()}"


class Tar:
    """A layer's tar stream, written entry by entry with Python's own tarfile: an independent writer."""

    def __init__(self, form: int = tarfile.PAX_FORMAT) -> None:
        self._buffer = io.BytesIO()
        self._tar = tarfile.open(fileobj=self._buffer, mode="w", format=form, encoding="utf-8")  # noqa: SIM115 - closed in bytes()

    def add(self, path: str, kind: bytes, content: bytes = b"", **attributes: Any) -> Tar:
        member = tarfile.TarInfo(path)
        member.type, member.size, member.mtime = kind, len(content), CLOCK
        member.mode = 0o755 if kind == tarfile.DIRTYPE else 0o644
        for name, value in attributes.items():
            setattr(member, name, value)
        self._tar.addfile(member, io.BytesIO(content) if content else None)
        return self

    def file(self, path: str, content: bytes = b"x", **attributes: Any) -> Tar:
        return self.add(path, tarfile.REGTYPE, content, **attributes)

    def folder(self, path: str, **attributes: Any) -> Tar:
        return self.add(path, tarfile.DIRTYPE, **attributes)

    def symlink(self, path: str, target: str, **attributes: Any) -> Tar:
        return self.add(path, tarfile.SYMTYPE, linkname=target, mode=0o777, **attributes)

    def link(self, path: str, target: str, **attributes: Any) -> Tar:
        return self.add(path, tarfile.LNKTYPE, linkname=target, **attributes)

    def white_out(self, path: str) -> Tar:
        folder, _, name = path.rpartition("/")
        return self.file(f"{folder}/.wh.{name}" if folder else f".wh.{name}", b"")

    def opaque(self, folder: str) -> Tar:
        return self.file(f"{folder}/.wh..wh..opq", b"")

    def bytes(self) -> bytes:
        self._tar.close()
        return self._buffer.getvalue()


@dataclass
class MadeImage:
    """An image in memory."""

    layers: Sequence[tuple[bytes, str]]
    """Tar stream and codec of each."""
    config: dict[str, Any] = field(default_factory=dict)
    docker: bool = False
    blobs: dict[str, bytes] = field(default_factory=dict)
    manifest: bytes = b""

    def __post_init__(self) -> None:
        listed = []
        for tar, codec in self.layers:
            stored = compress(tar, codec)
            self.blobs[digest(stored)] = stored
            media_type = LAYER + SUFFIX[codec]
            if self.docker:
                media_type = "application/vnd.docker.image.rootfs.diff.tar" + (".gzip" if codec == "gzip" else "")
            listed.append({"mediaType": media_type, "digest": digest(stored), "size": len(stored)})
        config = {
            "architecture": "amd64",
            "os": "linux",
            "created": "2026-01-02T03:04:05Z",
            "config": {"Entrypoint": ["/bin/serve"], "Env": ["A=b"], "Labels": {"who": "me"}, "WorkingDir": "/app"},
            "rootfs": {"type": "layers", "diff_ids": [digest(tar) for tar, _ in self.layers]},
            "history": [{"created_by": f"step {index}"} for index in range(len(self.layers))],
        } | self.config
        content = json.dumps(config).encode()
        self.blobs[digest(content)] = content
        kind = "vnd.docker.container.image" if self.docker else "vnd.oci.image.config"
        document = {
            "schemaVersion": 2,
            "mediaType": "application/vnd.docker.distribution.manifest.v2+json"
            if self.docker
            else "application/vnd.oci.image.manifest.v1+json",
            "config": {"mediaType": f"application/{kind}.v1+json", "digest": digest(content), "size": len(content)},
            "layers": listed,
        }
        self.manifest = json.dumps(document).encode()

    @property
    def digest(self) -> str:
        return digest(self.manifest)

    def write_layout(self, folder: Path, tag: str = "v1") -> Path:
        blobs = folder / "blobs" / "sha256"
        blobs.mkdir(parents=True, exist_ok=True)
        for name, content in [*self.blobs.items(), (self.digest, self.manifest)]:
            (blobs / name.partition(":")[2]).write_bytes(content)
        entry = {
            "mediaType": json.loads(self.manifest)["mediaType"],
            "digest": self.digest,
            "size": len(self.manifest),
            "annotations": {"org.opencontainers.image.ref.name": tag},
        }
        (folder / "index.json").write_text(json.dumps({"schemaVersion": 2, "manifests": [entry]}))
        (folder / "oci-layout").write_text('{"imageLayoutVersion": "1.0.0"}')
        return folder

    def write_archive(self, path: Path, tag: str = "thing:v1") -> Path:
        """As `docker save` wrote it for years: plain layers in folders of their own."""
        config = next(
            content for name, content in self.blobs.items() if name == json.loads(self.manifest)["config"]["digest"]
        )
        with tarfile.open(path, "w") as archive:
            names = []
            for index, (tar, _) in enumerate(self.layers):
                names.append(f"{index:064d}/layer.tar")
                _member(archive, names[-1], tar)
            _member(archive, "config.json", config)
            listed = [{"Config": "config.json", "RepoTags": [tag], "Layers": names}]
            _member(archive, "manifest.json", json.dumps(listed).encode())
        return path


def _member(archive: tarfile.TarFile, name: str, content: bytes) -> None:
    member = tarfile.TarInfo(name)
    member.size = len(content)
    archive.addfile(member, io.BytesIO(content))


def compress(tar: bytes, codec: str) -> bytes:
    if codec == "gzip":
        return gzip.compress(tar, 6, mtime=0)
    return zstandard.ZstdCompressor().compress(tar) if codec == "zstd" else tar


def image(*layers: Tar | bytes, codec: str = "gzip", **more: Any) -> MadeImage:
    streams: Iterable[bytes] = (layer.bytes() if isinstance(layer, Tar) else layer for layer in layers)
    return MadeImage([(stream, codec) for stream in streams], **more)


def write_layout_of(folder: Path, listed: list[dict[str, Any]], diff_ids: list[str], **config: Any) -> Path:
    """The documents of an image whose layers are in the layout's blobs already."""
    made = MadeImage([], config={"rootfs": {"type": "layers", "diff_ids": diff_ids}, "history": []} | config)
    document = json.loads(made.manifest) | {"layers": listed}
    made.manifest = json.dumps(document).encode()
    return made.write_layout(folder)
