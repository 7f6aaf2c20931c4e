"""After staging: verify, list, prune."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from budget.staged import StagedModel
from scripts.staging import checksum, verify
from scripts.staging.bucket import Bucket
from scripts.staging.folder import open_folder
from scripts.staging.inventory import UNTOUCHED, inventory, remove, unused
from scripts.staging.meter import Meter
from scripts.staging.run import Outcome, stage
from scripts.staging.selection import Selection
from tests.aws.made_models import model_files, write

FIRST = "model-00001-of-00002.safetensors"


@pytest.fixture
def outcome(bucket: Bucket, tmp_path: Path) -> Outcome:
    return staged(bucket, tmp_path / "model", "org/tuned")


def staged(bucket: Bucket, folder: Path, name: str, seed: int = 0) -> Outcome:
    source = open_folder(write(folder, model_files(shard_bytes=20_000_000, seed=seed)), name=name)
    return stage(source, bucket, trust_remote_code=False)


def full(bucket: Bucket, outcome: Outcome) -> dict[str, str]:
    verdict = verify.full(bucket, outcome.manifest, meter=Meter(Selection(choices=())))
    return {finding.key: finding.what for finding in verdict.findings}


def quick(bucket: Bucket, outcome: Outcome) -> dict[str, str]:
    return {finding.key: finding.what for finding in verify.quick(bucket, outcome.manifest).findings}


def overwrite(bucket: Bucket, key: str, content: bytes, *, keep_checksum: bool = True) -> None:
    arguments = {"ChecksumCRC32": checksum.to_base64(checksum.crc32(content))} if keep_checksum else {}
    bucket.client.put_object(Bucket=bucket.name, Key=key, Body=content, **arguments)


def test_what_was_just_staged_is_intact(bucket: Bucket, outcome: Outcome) -> None:
    assert full(bucket, outcome) == {}
    assert quick(bucket, outcome) == {}


def test_one_flipped_bit_is_found(bucket: Bucket, outcome: Outcome) -> None:
    key = outcome.model.key(FIRST)
    content = bytearray(bucket.get(key))
    content[12_345_678] ^= 4
    overwrite(bucket, key, bytes(content))
    assert full(bucket, outcome) == {FIRST: "has another content than was staged (sha256 differs)"}
    assert quick(bucket, outcome) == {FIRST: "has another checksum than the manifest: it was overwritten"}


def test_objects_that_are_missing_shorter_or_too_many(bucket: Bucket, outcome: Outcome) -> None:
    bucket.delete([outcome.model.key("config.json")])
    overwrite(bucket, outcome.model.key("tokenizer.json"), b"{}")
    overwrite(bucket, outcome.model.key("more.bin"), b"x")
    for found in (quick(bucket, outcome), full(bucket, outcome)):
        assert found["config.json"] == "is missing" or "cannot be read" in found["config.json"]
        assert "tokenizer.json" in found
        assert found["more.bin"] == "is not of this model: an engine would fetch it too"


def test_an_object_without_a_checksum_needs_a_full_verification(bucket: Bucket, outcome: Outcome) -> None:
    manifest = outcome.manifest
    key = manifest.model.key("config.json")
    held = bucket.head(key)
    bucket.head = lambda asked: replace(held, crc32=None) if asked == key else Bucket.head(bucket, asked)
    (finding,) = verify.quick(bucket, manifest).findings
    assert "no checksum that S3 could be asked for" in finding.what


def test_what_lies_in_the_bucket(bucket: Bucket, outcome: Outcome) -> None:
    unfinished = StagedModel(name="org/half", revision="ab" * 20)
    bucket.put_new(unfinished.key("config.json"), b"{}", metadata={})
    bucket.start_upload(unfinished.key("model.safetensors"), metadata={})
    half, tuned = inventory(bucket)
    assert (half.model, half.staged, half.bytes, len(half.uploads)) == (unfinished, False, 2, 1)
    assert (tuned.model, tuned.staged, tuned.uploads) == (outcome.model, True, [])
    assert tuned.bytes == outcome.manifest.total_bytes
    assert tuned.document()["state"] == "staged"


def test_only_what_nobody_uses_can_go(bucket: Bucket, outcome: Outcome, tmp_path: Path) -> None:
    other = staged(bucket, tmp_path / "other", "org/other", seed=7)
    fresh = StagedModel(name="org/fresh", revision="ab" * 20)
    bucket.put_new(fresh.key("config.json"), b"{}", metadata={})
    entries = inventory(bucket)
    now = datetime.now(tz=UTC)
    assert [entry.model for entry in unused(entries, in_use={outcome.model}, now=now)] == [other.model]
    later = now + UNTOUCHED + timedelta(minutes=1)
    assert {entry.model for entry in unused(entries, in_use={outcome.model}, now=later)} == {other.model, fresh}


def test_removing_a_model_leaves_the_others(bucket: Bucket, outcome: Outcome, tmp_path: Path) -> None:
    other = staged(bucket, tmp_path / "other", "org/other", seed=7)
    bucket.start_upload(other.model.key("model.safetensors"), metadata={})
    entry = next(entry for entry in inventory(bucket) if entry.model == other.model)
    remove(bucket, entry)
    assert [left.model for left in inventory(bucket)] == [outcome.model]
    assert full(bucket, outcome) == {}
    assert bucket.uploads("models/") == []


def test_a_model_is_not_staged_from_the_first_deletion_on(bucket: Bucket, outcome: Outcome) -> None:
    deleted: list[str] = []
    delete = bucket.delete
    bucket.delete = lambda keys: (deleted.extend(keys), delete(keys))
    (entry,) = inventory(bucket)
    remove(bucket, entry)
    assert deleted[0] == outcome.model.manifest_key
