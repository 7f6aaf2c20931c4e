"""A copy is made: listed, downloaded, verified, named in one step."""

from __future__ import annotations

import shutil
import time
from pathlib import Path
from typing import Any, cast

from serving.launcher.config import FORMAT
from serving.launcher.copies import boot_id, partial_path, write_marker
from serving.launcher.download import Download, FillJob, Remote
from serving.launcher.fields import is_inside, json_object
from serving.launcher.refusal import Refused, explain
from serving.launcher.room import make_room
from serving.launcher.s3 import S3, s3_client, split_uri


def list_remote(client: S3, job: FillJob) -> list[Remote]:
    """What the copy is made of: the objects of the prefix, held against the manifest when there is one.

    Raises:
        Refused: nothing there, a name that would leave the copy, or not what was staged.
    """
    bucket, prefix = split_uri(job.source)
    prefix = prefix.rstrip("/") + "/"
    staged = _staged(client, job.manifest) if job.manifest else None
    found: list[Remote] = []
    for page in client.get_paginator("list_objects_v2").paginate(Bucket=bucket, Prefix=prefix):
        for item in page.get("Contents", []):
            name = str(item["Key"]).removeprefix(prefix)
            if not name or name.endswith("/") or (staged is not None and name not in staged):
                continue
            if not is_inside(name):
                raise Refused(f"s3://{bucket}/{item['Key']} has a name that leaves the copy")
            size, digest = staged[name] if staged is not None else (int(item["Size"]), None)
            if size != int(item["Size"]):
                raise Refused(f"s3://{bucket}/{item['Key']} has {item['Size']} bytes, staged were {size}")
            found.append(Remote(name=name, key=item["Key"], size=size, etag=item["ETag"], sha256=digest))
    if missing := sorted(set(staged or {}) - {remote.name for remote in found}):
        raise Refused(f"{job.source} lacks {len(missing)} of the staged files: {', '.join(missing[:3])}")
    if not found:
        raise Refused(f"{job.source} holds no objects")
    return found


def _staged(client: S3, manifest: str) -> dict[str, tuple[int, str]]:
    """Path below the prefix → bytes and SHA-256 of every file of a staged manifest (`budget.staged` writes it).

    Raises:
        Refused: it is none.
    """
    bucket, key = split_uri(manifest)
    document = json_object(client.get_object(Bucket=bucket, Key=key)["Body"].read())
    try:
        entries = cast("list[dict[str, Any]]", document["files"])
        return {str(entry["path"]): (int(entry["bytes"]), str(entry["sha256"])) for entry in entries}
    except (KeyError, TypeError, ValueError) as error:
        raise Refused(f"{manifest} is no manifest of a staged model: {explain(error)}") from error


def fill(job: FillJob) -> dict[str, object]:
    """Makes a copy: lists, makes room, downloads, verifies, and gives it its name in one step. The lock is held above.

    Files that an interrupted fill has finished are kept.

    Raises:
        Refused: not possible, for a reason that a person can read.
    """
    copy = Path(job.copy)
    remotes = list_remote(s3_client(job.connections), job)
    needed = sum(remote.size for remote in remotes)
    removed = make_room(copy, needed, job.limit_bytes) if job.limit_bytes is not None else []
    partial = partial_path(copy)
    for remote in remotes:
        (partial / remote.name).parent.mkdir(parents=True, exist_ok=True)
    began = time.monotonic()
    left = [remote for remote in remotes if not _has(partial / remote.name, remote.size)]
    Download(job, partial, left).run()
    marker = {"format": FORMAT, "source": job.source, "bytes": needed, "files": {r.name: r.size for r in remotes}}
    write_marker(partial, {**marker, "boot_id": boot_id(), "flushed": False})
    if copy.exists():
        copy.rename(copy.parent / f".{copy.name}.removed")
    partial.rename(copy)
    shutil.rmtree(copy.parent / f".{copy.name}.removed", ignore_errors=True)
    return {
        "bytes": needed,
        "fetched_bytes": sum(r.size for r in left),
        "s": time.monotonic() - began,
        "removed": removed,
    }


def _has(path: Path, size: int) -> bool:
    return path.is_file() and path.stat().st_size == size
