"""The compile cache between pods: keyed, restored, published once."""

from __future__ import annotations

import concurrent.futures
import hashlib
import json
import os
import shutil
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from serving.launcher.archive import Damaged, archive_errors, codec, pack, unpack
from serving.launcher.config import FORMAT, CompileCache
from serving.launcher.machine import cpu_features, gpu_models
from serving.launcher.refusal import Refused, explain
from serving.launcher.s3 import S3, fetch_range, s3_client, s3_status, split_uri, transfer_errors

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_RANGE_BYTES = 8 * 1024 * 1024

CACHE_CONNECTIONS = 16

_PATIENCE_S = 1.0
"""A rate is only judged after this long."""

_KEYED_ENV = ("VLLM_", "TORCH", "TRITON_", "FLASHINFER_", "CUDA_", "OMP_NUM_THREADS")

_UNKEYED_ENV = frozenset(("VLLM_API_KEY", "VLLM_HOST_IP", "VLLM_PORT", "VLLM_LOGGING_LEVEL", "CUDA_VISIBLE_DEVICES"))
_UNKEYED_OPTIONS = frozenset(("--port", "--host", "--api-key"))
"""Values of one pod, or secret, or without influence on what is compiled."""


def cache_key(cache: CompileCache, argv: Sequence[str], environ: Mapping[str, str]) -> str:
    """64 hex digits that name the archive of exactly this engine on exactly this machine.

    Over what the configuration says of image, GPU and model; the engine's arguments; the environment that changes what
    is compiled; the GPUs and the CPU features that are really here (host code is compiled for them).
    """
    keyed = {k: v for k, v in environ.items() if k.startswith(_KEYED_ENV) and k not in _UNKEYED_ENV}
    parts = {
        "format": FORMAT,
        "key": dict(cache.key),
        "argv": _keyed_arguments(argv),
        "env": keyed,
        "root": str(cache.root),
        "include": list(cache.include),
        "gpus": gpu_models(),
        "cpu": cpu_features(),
    }
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


def _keyed_arguments(argv: Sequence[str]) -> list[str]:
    kept: list[str] = []
    value_follows = False
    for argument in argv:
        name, equals, _ = argument.partition("=")
        if name in _UNKEYED_OPTIONS:
            value_follows = not equals
        elif value_follows:
            value_follows = False
        else:
            kept.append(argument)
    return kept


@dataclass(frozen=True, kw_only=True, slots=True)
class CacheJob:
    """A restore or a publication. `etag`: of the damaged archive that a publication may replace."""

    uri: str
    key: str
    root: str
    include: Sequence[str]
    max_bytes: int
    max_s: float
    etag: str = ""

    def place(self) -> tuple[str, str]:
        """Bucket and key of the archive."""
        bucket, prefix = split_uri(self.uri)
        return bucket, f"{prefix}{self.key}/archive.tar.{codec()}"

    def scratch(self) -> Path:
        """A directory of this job's own, on the disk of the cache."""
        return Path(self.root) / f".coldstart-{self.key[:12]}"


def restore(job: CacheJob) -> dict[str, object]:
    """Puts an archive's directories in place, each in one step, or leaves everything as it was and says why.

    Returns:
        `restore` (`restored`, `miss` or `skipped`), `reason`, `archive_bytes`; `etag` of an archive that is damaged.
    """
    bucket, key = job.place()
    client = s3_client(CACHE_CONNECTIONS)
    try:
        head = client.head_object(Bucket=bucket, Key=key)
    except transfer_errors() as error:
        if s3_status(error) in {403, 404}:  # without s3:ListBucket, S3 answers 403 for a key that is not there
            return {"restore": "miss", "reason": f"no archive at s3://{bucket}/{key}, or no right to read it"}
        return {"restore": "skipped", "reason": explain(error)}
    reason, damaged = "", False
    try:
        _bring(client, job, head)
    except (Damaged, *archive_errors()) as error:
        reason, damaged = f"damaged archive: {explain(error)}", True
    except Refused as error:
        reason = str(error)
    except (OSError, *transfer_errors()) as error:
        reason = explain(error)
    finally:
        shutil.rmtree(job.scratch(), ignore_errors=True)
    if reason:
        return {"restore": "skipped", "reason": reason, "etag": str(head["ETag"]) if damaged else ""}
    return {"restore": "restored", "reason": "", "archive_bytes": int(head["ContentLength"])}


def _bring(client: S3, job: CacheJob, head: Mapping[str, Any]) -> None:
    """Downloads, verifies, unpacks, and puts in place.

    Raises:
        Damaged: not an archive that this key may use.
        Refused: too slow.
    """
    scratch = job.scratch()
    shutil.rmtree(scratch, ignore_errors=True)
    scratch.mkdir(parents=True)
    archive = scratch / f"archive.tar.{codec()}"
    place = (*job.place(), str(head["ETag"]))
    download_archive(client, place, int(head["ContentLength"]), archive, job.max_s)
    with archive.open("rb") as file:
        if hashlib.file_digest(file, "sha256").hexdigest() != head.get("Metadata", {}).get("sha256"):
            raise Damaged("its SHA-256 is not the one recorded")
    unpack(archive, scratch / "new", job.include, job.key, job.max_bytes)
    for name in job.include:
        fresh, kept = scratch / "new" / name, Path(job.root) / name
        if fresh.is_dir() and not has_content(kept):
            kept.parent.mkdir(parents=True, exist_ok=True)
            fresh.rename(kept)  # an empty directory is replaced


def has_content(directory: Path) -> bool:
    """Whether a directory is there with something in it."""
    return next(directory.glob("*"), None) is not None


def download_archive(client: S3, place: tuple[str, str, str], size: int, archive: Path, max_s: float) -> None:
    """Fetches an archive in parallel ranges, and gives up as soon as its rate can't make it in `max_s`.

    Raises:
        Refused: too slow.
    """
    began, done = time.monotonic(), 0
    fd = os.open(archive, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        with concurrent.futures.ThreadPoolExecutor(CACHE_CONNECTIONS) as pool:
            ranges = {
                pool.submit(fetch_range, client, place, offset, length, fd): length
                for offset in range(0, size, _RANGE_BYTES)
                for length in [min(_RANGE_BYTES, size - offset)]
            }
            for finished in concurrent.futures.as_completed(ranges):
                finished.result()
                done += ranges[finished]
                spent = time.monotonic() - began
                if spent > _PATIENCE_S and spent / done * size > max_s:
                    pool.shutdown(wait=False, cancel_futures=True)
                    raise Refused(
                        f"too slow: {size} bytes would take {spent / done * size:.0f} s, more than {max_s:.0f} s"
                    )
    finally:
        os.close(fd)


def publish(job: CacheJob) -> dict[str, object]:
    """Packs what the engine compiled and writes it once: the first pod of a key wins, the others find it there.

    Returns:
        `publish` (`published`, `present` or `failed`) and `publish_reason`.
    """
    bucket, key = job.place()
    scratch = job.scratch()
    shutil.rmtree(scratch, ignore_errors=True)
    try:
        scratch.mkdir(parents=True)
        archive = scratch / f"archive.tar.{codec()}"
        files, total = pack(Path(job.root), job.include, job.key, archive, job.max_bytes)
        if not files:
            return {"publish": "failed", "publish_reason": "the engine left nothing to keep"}
        with archive.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
            file.seek(0)
            condition = {"IfMatch": job.etag} if job.etag else {"IfNoneMatch": "*"}
            metadata = {"sha256": digest, "key": job.key}
            s3_client(4).put_object(Bucket=bucket, Key=key, Body=file, Metadata=metadata, **condition)
        reason = f"{files} files, {total} bytes, {archive.stat().st_size} packed"
    except Refused as error:
        return {"publish": "failed", "publish_reason": str(error)}
    except (OSError, *transfer_errors()) as error:
        if s3_status(error) in {409, 412}:  # the condition failed, or another write was on its way
            return {"publish": "present", "publish_reason": "another pod wrote it first"}
        return {"publish": "failed", "publish_reason": explain(error)}
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    return {"publish": "published", "publish_reason": reason}
