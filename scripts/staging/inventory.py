"""What lies in the weight bucket: staged models, and what stagings that never finished left behind."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from budget.staged import MANIFESTS, MODELS, StagedModel, model_of_manifest_key
from scripts.staging.bucket import Bucket, Listed

UNTOUCHED = timedelta(days=2)
"""A staging that has written nothing for so long is dead: the bucket's own rule aborts its uploads then."""

_PREFIX = re.compile(rf"{MODELS}/([^/]+/[^/]+)/([0-9a-f]{{40}})/.+")


@dataclass(frozen=True, kw_only=True, slots=True)
class Entry:
    """One model revision in the bucket.

    Attributes:
        staged: it has a manifest.
        keys: of its objects, without the manifest.
        uploads: (key, id) of uploads that were never finished.
        touched: when something of it was last written; None when only uploads are left.
    """

    model: StagedModel
    staged: bool
    keys: Sequence[str]
    bytes: int
    uploads: Sequence[tuple[str, str]]
    touched: datetime | None

    def document(self) -> Mapping[str, object]:
        """For `--json`."""
        return {
            "model": self.model.name,
            "revision": self.model.revision,
            "state": "staged" if self.staged else "unfinished",
            "objects": len(self.keys),
            "bytes": self.bytes,
            "unfinished_uploads": len(self.uploads),
            "touched": self.touched.isoformat() if self.touched else None,
        }


def inventory(bucket: Bucket) -> Sequence[Entry]:
    """Everything under `models/` and `manifests/`, sorted by name."""
    manifests = {
        model: entry for entry in bucket.listed(f"{MANIFESTS}/") if (model := model_of_manifest_key(entry.key))
    }
    objects: defaultdict[StagedModel, list[Listed]] = defaultdict(list)
    for entry in bucket.listed(f"{MODELS}/"):
        if model := _model_of(entry.key):
            objects[model].append(entry)
    uploads: defaultdict[StagedModel, list[tuple[str, str]]] = defaultdict(list)
    for key, upload in bucket.uploads(f"{MODELS}/"):
        if model := _model_of(key):
            uploads[model].append((key, upload))
    models = manifests.keys() | objects.keys() | uploads.keys()
    return [
        _entry(model, manifests.get(model), objects[model], uploads[model])
        for model in sorted(models, key=lambda model: (model.name, model.revision))
    ]


def unused(
    entries: Sequence[Entry], *, in_use: Collection[StagedModel], now: datetime | None = None
) -> Iterator[Entry]:
    """What can go: models that no stack names, and unfinished stagings that nobody continues."""
    at = now or datetime.now(tz=UTC)
    for entry in entries:
        if entry.model in in_use and entry.staged:
            continue
        if not entry.staged and entry.touched is not None and at - entry.touched < UNTOUCHED:
            continue
        yield entry


def remove(bucket: Bucket, entry: Entry) -> None:
    """Deletes a model: the manifest first, so that it is not staged from that moment on.

    Raises:
        Failure: something could not be deleted; run it again.
    """
    if entry.staged:
        bucket.delete([entry.model.manifest_key])
    for key, upload in entry.uploads:
        bucket.abort_upload(key, upload)
    bucket.delete(entry.keys)


def _model_of(key: str) -> StagedModel | None:
    match = _PREFIX.fullmatch(key)
    return StagedModel(name=match[1], revision=match[2]) if match else None


def _entry(
    model: StagedModel, manifest: Listed | None, objects: Sequence[Listed], uploads: Sequence[tuple[str, str]]
) -> Entry:
    written = [entry.modified for entry in [*objects, *([manifest] if manifest else [])]]
    return Entry(
        model=model,
        staged=manifest is not None,
        keys=[entry.key for entry in objects],
        bytes=sum(entry.bytes for entry in objects),
        uploads=uploads,
        touched=max(written, default=None),
    )
