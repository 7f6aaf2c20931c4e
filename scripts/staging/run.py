"""The story of a staging: look, check, move, look again, and only then say so."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from budget.staged import MODELS, Manifest, StagedFile, StagedModel, parse_manifest, staged_model
from scripts.failure import Failure
from scripts.staging.bucket import SOURCE, Bucket, Listed
from scripts.staging.layout import Checked, check
from scripts.staging.meter import Meter
from scripts.staging.selection import Choice
from scripts.staging.source import Source
from scripts.staging.transfer import transfer
from scripts.staging.verify import compare

State = Literal["staged", "already staged", "staged by another run"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Outcome:
    """How a staging ended.

    Attributes:
        state: who published the manifest, and when.
        dropped: files that were left out, with the reason.
        sent_bytes: sent by this run.
        elapsed_s: from the first byte to the manifest.
    """

    state: State
    bucket: str
    manifest: Manifest
    dropped: Sequence[Choice]
    sent_bytes: int
    elapsed_s: float

    @property
    def model(self) -> StagedModel:
        """What was staged."""
        return self.manifest.model

    def document(self) -> Mapping[str, object]:
        """For `--json`."""
        facts = self.manifest.facts
        return {
            "state": self.state,
            "model": self.model.name,
            "revision": self.model.revision,
            "requested_revision": self.manifest.requested_revision,
            "source": self.manifest.source,
            "uri": self.model.uri(self.bucket),
            "manifest": self.model.manifest_uri(self.bucket),
            "files": len(self.manifest.files),
            "total_bytes": self.manifest.total_bytes,
            "weights_bytes": self.manifest.weights_bytes,
            "parameters": facts.parameters if facts else None,
            "sent_bytes": self.sent_bytes,
            "elapsed_s": round(self.elapsed_s, 3),
            "dropped": [{"path": choice.file.path, "reason": choice.reason} for choice in self.dropped],
        }


def stage(
    source: Source,
    bucket: Bucket,
    *,
    trust_remote_code: bool,
    watch: Callable[[Meter], None] = lambda _: None,
) -> Outcome:
    """Stages a source: every file in the bucket and hashed, then the manifest.

    Args:
        source: a model at one revision.
        bucket: where it goes.
        trust_remote_code: stage its Python files too.
        watch: handed the meter when bytes begin to move.

    Raises:
        BadInput: the source is not a model that can be staged.
        Failure: the world refused; no manifest was written, and what was sent waits for the next run.
    """
    model = staged_model(source.name, source.revision, where="source")
    checked = check(source, trust_remote_code=trust_remote_code)
    meter = Meter(checked.selection)
    published = read_manifest(bucket, model)
    if published is not None:
        confirm(bucket, published, source, checked, meter)
        return _outcome("already staged", bucket, published, checked, meter)
    refuse_foreign(bucket, model, bucket.listed(model.prefix), checked)
    watch(meter)
    files = transfer(
        source, checked.selection.kept, bucket=bucket, model=model, unfinished=unfinished(bucket, model), meter=meter
    )
    source.check_unchanged()
    check_whole(bucket, model, files)
    abort_unfinished(bucket, model)
    manifest = Manifest(
        model=model,
        source=source.identity,
        requested_revision=source.requested_revision,
        files=tuple(files),
        facts=checked.facts,
    )
    return _outcome(publish(bucket, manifest), bucket, manifest, checked, meter)


def read_manifest(bucket: Bucket, model: StagedModel) -> Manifest | None:
    """The manifest of a staged model; None when it is not staged.

    Raises:
        BadInput: there is one that cannot be read.
    """
    text = bucket.get(model.manifest_key)
    return None if text is None else parse_manifest(text, where=model.manifest_uri(bucket.name))


def confirm(bucket: Bucket, manifest: Manifest, source: Source, checked: Checked, meter: Meter) -> None:
    """Makes sure that what is staged is what was asked for now.

    A commit cannot have changed. A folder's fingerprint looks at pieces only, so the folder is read and compared.

    Raises:
        Failure: another source, other files, or another content.
    """
    kept = checked.selection.kept
    wanted = {file.path: file.bytes for file in kept}
    held = {file.path: file.bytes for file in manifest.files}
    different = sorted(path for path in wanted.keys() | held.keys() if wanted.get(path) != held.get(path))
    if not different and any(file.sha256 is None and file.git_blob is None for file in kept):
        different = [finding.key for finding in compare(source, manifest, meter=meter)]
    if manifest.source != source.identity or different:
        what = f"with other files ({', '.join(different[:3])})" if different else f"from {manifest.source}"
        raise Failure(
            f"{manifest.model} is staged already, {what}. If nobody needs it, remove it first: "
            f"{command('--prune', manifest.model, bucket)} --yes"
        )


def refuse_foreign(bucket: Bucket, model: StagedModel, listed: Iterable[Listed], checked: Checked) -> None:
    """An unfinished prefix may hold only what this staging would put there.

    Raises:
        Failure: something else lies there.
    """
    wanted = {model.key(file.path): file.bytes for file in checked.selection.kept}
    foreign = [entry for entry in listed if wanted.get(entry.key) != entry.bytes]
    if foreign:
        raise Failure(
            f"{model.uri(bucket.name)} is not empty and holds {len(foreign)} objects that are not of this model "
            f"({foreign[0].key}, {foreign[0].bytes:,} bytes). Nothing is overwritten: look at it, and if nobody needs "
            f"it, remove it: {command('--prune', model, bucket)} --yes"
        )


def unfinished(bucket: Bucket, model: StagedModel) -> Mapping[str, str]:
    """Key → upload that an earlier run left and this one continues: the oldest, which holds the most."""
    found: dict[str, str] = {}
    for key, upload in bucket.uploads(model.prefix):
        found.setdefault(key, upload)
    return found


def check_whole(bucket: Bucket, model: StagedModel, files: Sequence[StagedFile]) -> None:
    """The prefix holds exactly the files, before anybody is told that it does.

    Raises:
        Failure: something is missing, or something appeared.
    """
    wanted = {model.key(file.path): file.bytes for file in files}
    held = {entry.key: entry.bytes for entry in bucket.listed(model.prefix)}
    different = sorted(key for key in wanted.keys() | held.keys() if wanted.get(key) != held.get(key))
    if different:
        raise Failure(
            f"{model.uri(bucket.name)} changed while it was filled ({different[0]}). Nothing was published; "
            "find out who else writes there"
        )


def abort_unfinished(bucket: Bucket, model: StagedModel) -> None:
    """Throws away uploads that no object came of: they bill, and nothing shows them."""
    for key, upload in bucket.uploads(model.prefix):
        bucket.abort_upload(key, upload)


def publish(bucket: Bucket, manifest: Manifest) -> State:
    """Writes the manifest unless there is one: of two runs, one wins.

    Raises:
        Failure: another run published something else.
    """
    if bucket.put_new(manifest.model.manifest_key, manifest.text().encode(), metadata={SOURCE: manifest.source}):
        return "staged"
    other = read_manifest(bucket, manifest.model)
    if other is None or other.files != manifest.files:
        raise Failure(
            f"another run published a different manifest of {manifest.model}. Verify it: "
            f"{command('--verify', manifest.model, bucket)}"
        )
    return "staged by another run"


def command(option: str, model: StagedModel, bucket: Bucket) -> str:
    """What a person runs to look at, or to remove, what lies there."""
    return f"coldstart stage {option} {model} --to s3://{bucket.name}/{MODELS}"


def _outcome(state: State, bucket: Bucket, manifest: Manifest, checked: Checked, meter: Meter) -> Outcome:
    progress = meter.snapshot()
    return Outcome(
        state=state,
        bucket=bucket.name,
        manifest=manifest,
        dropped=checked.selection.dropped,
        sent_bytes=progress.sent_bytes,
        elapsed_s=progress.elapsed_s,
    )
