"""The compile cache's archives: written with care, read with suspicion."""

from __future__ import annotations

import contextlib
import gzip
import importlib
import io
import json
import os
import shutil
import stat
import tarfile
import zlib
from pathlib import Path, PurePosixPath
from typing import IO, TYPE_CHECKING, Any, Literal, cast

from serving.launcher.config import FORMAT
from serving.launcher.fields import is_inside, json_object
from serving.launcher.refusal import Refused

if TYPE_CHECKING:
    from collections.abc import Sequence

_HEADER = "coldstart.json"
"""First member: what the archive is for."""

_MOST_FILES = 200_000
"""Two orders of magnitude above what a large model's compile leaves: more is no compile cache."""

_ZSTD_LEVEL = 3
"""zstd's default: unpacking is as fast as at any level, and packing runs beside the first users."""


def codec() -> str:
    """The compression this interpreter has: `zst` where it can, else `gz`. One image always answers the same."""
    return "gz" if _zstd() is None else "zst"


def _zstd() -> Any:  # noqa: ANN401 - one of two modules, neither of which has to be there
    """The standard library's module (Python 3.14), or the `zstandard` package; nothing without both."""
    for name in ("compression.zstd", "zstandard"):
        with contextlib.suppress(ImportError):
            return importlib.import_module(name)
    return None


def open_archive(path: Path, mode: Literal["rb", "wb"]) -> IO[bytes]:
    """A compressed file, by its suffix."""
    if path.suffix != ".zst":
        return cast("IO[bytes]", gzip.open(path, mode, compresslevel=1))
    zstd = _zstd()
    if mode == "rb":
        return zstd.open(path, mode)
    if zstd.__name__ == "zstandard":
        return zstd.open(path, mode, cctx=zstd.ZstdCompressor(level=_ZSTD_LEVEL))
    return zstd.open(path, mode, level=_ZSTD_LEVEL)


class Damaged(Refused):
    """An archive that can't be used: corrupt, foreign, or for another key."""


def archive_errors() -> tuple[type[Exception], ...]:
    """What reading a damaged archive can end with."""
    zstd = _zstd()
    own = () if zstd is None else (cast("type[Exception]", zstd.ZstdError),)
    return (tarfile.TarError, gzip.BadGzipFile, zlib.error, EOFError, ValueError, *own)


def pack(root: Path, include: Sequence[str], key: str, archive: Path, max_bytes: int) -> tuple[int, int]:
    """Writes an archive of the regular files below `root`/`include`.

    Returns:
        How many files, and their bytes.

    Raises:
        Refused: more than `max_bytes`.
    """
    files: list[tuple[str, Path]] = []
    for name in include:
        found = (path for path in sorted((root / name).rglob("*")) if path.is_file() and not path.is_symlink())
        files.extend((path.relative_to(root).as_posix(), path) for path in found)
    total = sum(path.stat().st_size for _, path in files)
    if total > max_bytes:
        raise Refused(f"{total} bytes of compile artefacts, more than max_bytes ({max_bytes})")
    header = json.dumps({"format": FORMAT, "key": key, "files": len(files), "bytes": total}).encode()
    with open_archive(archive, "wb") as stream, tarfile.open(fileobj=stream, mode="w|") as tar:
        member = tarfile.TarInfo(_HEADER)
        member.size = len(header)
        tar.addfile(member, io.BytesIO(header))
        for name, path in files:
            with path.open("rb") as file:
                member = tarfile.TarInfo(name)
                member.size = os.fstat(file.fileno()).st_size
                member.mode = 0o755 if path.stat().st_mode & stat.S_IXUSR else 0o644
                tar.addfile(member, file)
    return len(files), total


def unpack(archive: Path, into: Path, include: Sequence[str], key: str, max_bytes: int) -> int:
    """Unpacks an archive of ours, and only that.

    Every member must be a regular file below one of `include`, none may appear twice, and the first must be the header
    with this key: links, devices, absolute paths and `..` end it.

    Returns:
        Bytes written.

    Raises:
        Damaged: foreign, too large, or for another key.
    """
    written, count = 0, 0
    with open_archive(archive, "rb") as stream, tarfile.open(fileobj=stream, mode="r|") as tar:
        for member in tar:
            source = tar.extractfile(member) if member.isreg() else None
            if count == 0:
                _check_header(member, source, key)
            else:
                written += member.size
                if source is None or not is_inside(member.name) or not _below(member.name, include):
                    raise Damaged(f"foreign: it holds {member.name!r}")
                if written > max_bytes or count > _MOST_FILES:
                    raise Damaged(f"it unpacks to more than {max_bytes} bytes or {_MOST_FILES} files")
                _write_member(into / member.name, source, member.mode)
            count += 1
    if not count:
        raise Damaged("it is empty")
    return written


def _check_header(member: tarfile.TarInfo, source: IO[bytes] | None, key: str) -> None:
    header = json_object(source.read(4096)) if source is not None and member.name == _HEADER else {}
    if header.get("format") != FORMAT or header.get("key") != key:
        raise Damaged(f"foreign: made for {str(header.get('key'))[:16]!r}, not for {key[:16]!r}")


def _below(name: str, include: Sequence[str]) -> bool:
    return any(PurePosixPath(name).is_relative_to(prefix) for prefix in include)


def _write_member(path: Path, source: IO[bytes], mode: int) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    with os.fdopen(os.open(path, flags, 0o755 if mode & stat.S_IXUSR else 0o644), "wb") as file:
        shutil.copyfileobj(source, file)
