"""Whether what is staged is still what its manifest says."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial

from budget.staged import Manifest, StagedFile
from scripts.failure import Failure
from scripts.staging import checksum
from scripts.staging.bucket import Bucket
from scripts.staging.buffers import Buffers
from scripts.staging.meter import Meter
from scripts.staging.reading import Hashes, Reader
from scripts.staging.refusal import CredentialsRefused
from scripts.staging.source import Source, SourceFile
from scripts.staging.transfer import FILES_AT_ONCE, MEMORY_BYTES, SENDERS


@dataclass(frozen=True, kw_only=True, slots=True)
class Finding:
    """One thing that is not as the manifest says.

    Attributes:
        key: path below the model's prefix.
    """

    key: str
    what: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Verdict:
    """What verifying found.

    Attributes:
        depth: `quick` asked S3 for sizes and checksums; `full` read every byte.
        findings: none when everything is intact.
    """

    manifest: Manifest
    depth: str
    findings: Sequence[Finding]

    def document(self) -> Mapping[str, object]:
        """For `--json`."""
        return {
            "model": self.manifest.model.name,
            "revision": self.manifest.model.revision,
            "depth": self.depth,
            "intact": not self.findings,
            "files": len(self.manifest.files),
            "total_bytes": self.manifest.total_bytes,
            "findings": [{"key": finding.key, "what": finding.what} for finding in self.findings],
        }


def quick(bucket: Bucket, manifest: Manifest) -> Verdict:
    """Compares sizes, names and the checksums that S3 holds; reads no object."""
    findings = [*_listing(bucket, manifest)]
    with ThreadPoolExecutor(SENDERS) as pool:
        for found in pool.map(partial(_held, bucket, manifest), manifest.files):
            findings.extend(found)
    return Verdict(manifest=manifest, depth="quick", findings=findings)


def full(bucket: Bucket, manifest: Manifest, *, meter: Meter) -> Verdict:
    """Reads every object with ranged requests in parallel and compares its hash.

    Raises:
        Failure: the credentials were refused meanwhile: nothing is known of the weights then.
    """
    findings = [*_listing(bucket, manifest), *compare(_BucketSource(bucket, manifest), manifest, meter=meter)]
    return Verdict(manifest=manifest, depth="full", findings=findings)


def compare(source: Source, manifest: Manifest, *, meter: Meter) -> Sequence[Finding]:
    """Reads every file of a manifest from a source, in bounded memory, and compares its hash.

    Raises:
        Failure: the credentials were refused meanwhile.
    """
    with ExitStack() as stack:
        threads = stack.enter_context(ThreadPoolExecutor(SENDERS))
        pool = stack.enter_context(ThreadPoolExecutor(FILES_AT_ONCE))
        reader = Reader(threads=threads, buffers=Buffers(MEMORY_BYTES), ahead_bytes=MEMORY_BYTES // FILES_AT_ONCE)
        stack.callback(reader.buffers.close)
        found = pool.map(partial(_read, source, reader, meter), manifest.files)
        return [finding for findings in found for finding in findings]


class _BucketSource:
    """A staged model as a source: the same reading, the other way round."""

    requested_revision = ""

    def __init__(self, bucket: Bucket, manifest: Manifest) -> None:
        self._bucket = bucket
        self._model = manifest.model
        self.name, self.revision = manifest.model.name, manifest.model.revision
        self.identity = manifest.model.uri(bucket.name)
        self.files = [SourceFile(path=file.path, bytes=file.bytes) for file in manifest.files]

    def read_into(self, file: SourceFile, offset: int, buffer: memoryview) -> None:
        self._bucket.get_range(self._model.key(file.path), offset, buffer)

    def check_unchanged(self) -> None:
        """Nothing to look at: hashes were compared."""


def _listing(bucket: Bucket, manifest: Manifest) -> Iterator[Finding]:
    """Objects that are not of the model, and files that are not there or of another size."""
    prefix = manifest.model.prefix
    held = {entry.key.removeprefix(prefix): entry.bytes for entry in bucket.listed(prefix)}
    for file in manifest.files:
        found = held.pop(file.path, None)
        if found is None:
            yield Finding(key=file.path, what="is missing")
        elif found != file.bytes:
            yield Finding(key=file.path, what=f"has {found:,} bytes where the manifest says {file.bytes:,}")
    for path in sorted(held):
        yield Finding(key=path, what="is not of this model: an engine would fetch it too")


def _held(bucket: Bucket, manifest: Manifest, file: StagedFile) -> Sequence[Finding]:
    held = bucket.head(manifest.model.key(file.path))
    if held is None or held.bytes != file.bytes:
        return ()  # the listing said so already
    if held.crc32 is None:
        return (Finding(key=file.path, what="has no checksum that S3 could be asked for; verify without --quick"),)
    if checksum.to_hex(held.crc32) != file.crc32:
        return (Finding(key=file.path, what="has another checksum than the manifest: it was overwritten"),)
    return ()


def _read(source: Source, reader: Reader, meter: Meter, staged: StagedFile) -> Sequence[Finding]:
    file = SourceFile(path=staged.path, bytes=staged.bytes)
    hashes = Hashes(file)
    try:
        for piece in reader.pieces(source, file):
            hashes.add(piece)
            reader.buffers.give_back(piece.buffer)
            meter.advance(file.path, piece.part.bytes, sent=False)
    except CredentialsRefused as error:
        raise Failure(f"not verified, which says nothing about the weights: {error}") from error
    except Failure as error:
        return (Finding(key=file.path, what=f"cannot be read: {error}"),)
    meter.finish(file.path, file.bytes)
    if hashes.sha256 != staged.sha256:
        return (Finding(key=file.path, what="has another content than was staged (sha256 differs)"),)
    return ()
