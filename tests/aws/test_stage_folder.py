"""A folder into a real S3 server: every byte, every hash, and nothing visible before the end."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest

from budget.staged import StagedModel, parse_manifest
from scripts.failure import Failure
from scripts.staging.bucket import Bucket
from scripts.staging.folder import open_folder
from scripts.staging.inventory import inventory
from scripts.staging.run import Outcome, stage
from tests.aws.made_models import model_files, staged_paths, write

MIB = 2**20
SHARD = 20_000_000
"""Three parts."""
FIRST = "model-00001-of-00002.safetensors"


def staged(folder: Path, bucket: Bucket) -> Outcome:
    return stage(open_folder(folder, name="org/tuned"), bucket, trust_remote_code=False)


def objects(bucket: Bucket, model: StagedModel) -> dict[str, bytes]:
    return {entry.key.removeprefix(model.prefix): bucket.get(entry.key) for entry in bucket.listed(model.prefix)}


def test_every_byte_arrives_and_the_manifest_says_so(bucket: Bucket, tmp_path: Path) -> None:
    files = model_files(shard_bytes=SHARD)
    outcome = staged(write(tmp_path, files), bucket)
    expected = {path: files[path] for path in staged_paths(files)}
    assert objects(bucket, outcome.model) == expected
    manifest = parse_manifest(bucket.get(outcome.model.manifest_key), where="manifest")
    assert manifest == outcome.manifest
    assert {file.path: file.sha256 for file in manifest.files} == {
        path: hashlib.sha256(content).hexdigest() for path, content in expected.items()
    }
    assert manifest.total_bytes == sum(map(len, expected.values()))
    assert manifest.facts.parameters == 20_000_000
    assert outcome.state == "staged"
    assert outcome.sent_bytes == manifest.total_bytes
    assert [choice.file.path for choice in outcome.dropped] == [".gitattributes", "README.md"]


def test_s3_holds_the_checksum_of_each_whole_object(bucket: Bucket, tmp_path: Path) -> None:
    outcome = staged(write(tmp_path, model_files(shard_bytes=SHARD)), bucket)
    for file in outcome.manifest.files:
        held = bucket.head(outcome.model.key(file.path))
        assert (held.bytes, f"{held.crc32:08x}") == (file.bytes, file.crc32)
        assert held.source == outcome.manifest.source


def test_staging_again_sends_nothing(bucket: Bucket, tmp_path: Path) -> None:
    first = staged(write(tmp_path, model_files(shard_bytes=SHARD)), bucket)
    second = staged(tmp_path, bucket)
    assert (second.state, second.sent_bytes) == ("already staged", 0)
    assert second.manifest == first.manifest


def test_no_upload_is_left_behind(bucket: Bucket, tmp_path: Path) -> None:
    source = open_folder(write(tmp_path, model_files(shard_bytes=SHARD)), name="org/tuned")
    model = StagedModel(name=source.name, revision=source.revision)
    bucket.start_upload(model.key("model-00001-of-00002.safetensors"), metadata={})
    bucket.start_upload(model.key("model-00001-of-00002.safetensors"), metadata={})
    stage(source, bucket, trust_remote_code=False)
    assert bucket.uploads("models/") == []


def test_a_prefix_that_holds_something_else_is_not_touched(bucket: Bucket, tmp_path: Path) -> None:
    source = open_folder(write(tmp_path, model_files()), name="org/tuned")
    model = StagedModel(name=source.name, revision=source.revision)
    bucket.put_new(model.key("pytorch_model.bin"), b"theirs", metadata={})
    with pytest.raises(Failure, match=r"holds 1 objects that are not of this model .*pytorch_model.bin, 6 bytes"):
        stage(source, bucket, trust_remote_code=False)
    assert objects(bucket, model) == {"pytorch_model.bin": b"theirs"}
    assert bucket.get(model.manifest_key) is None


def test_an_object_of_the_same_name_and_size_by_somebody_else_is_not_overwritten(
    bucket: Bucket, tmp_path: Path
) -> None:
    files = model_files()
    source = open_folder(write(tmp_path, files), name="org/tuned")
    model = StagedModel(name=source.name, revision=source.revision)
    bucket.put_new(model.key("config.json"), b"x" * len(files["config.json"]), metadata={})
    with pytest.raises(Failure, match="is another file than the one to stage; it is not overwritten"):
        stage(source, bucket, trust_remote_code=False)
    assert bucket.get(model.manifest_key) is None


def test_a_folder_that_changes_meanwhile_is_not_published(bucket: Bucket, tmp_path: Path) -> None:
    files = model_files()
    source = open_folder(write(tmp_path, files), name="org/tuned")

    def change(_: object) -> None:
        write(tmp_path, {"config.json": files["config.json"] + b" "})

    with pytest.raises(Failure, match="changed while it was staged"):
        stage(source, bucket, trust_remote_code=False, watch=change)
    assert not any(entry.staged for entry in inventory(bucket))


def test_a_folder_with_the_fingerprint_of_another_is_told_apart_by_its_hashes(bucket: Bucket, tmp_path: Path) -> None:
    """40 MB are looked at in 1,024 pieces: a change between two pieces keeps the fingerprint, not the hash."""
    first = staged(write(tmp_path, model_files(shard_bytes=40_000_000)), bucket)
    with (tmp_path / FIRST).open("r+b") as stream:
        stream.seek(20_000)
        stream.write(b"0123456789")
    source = open_folder(tmp_path, name="org/tuned")
    assert source.revision == first.model.revision
    with pytest.raises(Failure, match=f"is staged already, with other files .*{FIRST}"):
        stage(source, bucket, trust_remote_code=False)


def test_what_cannot_be_staged_leaves_nothing(bucket: Bucket, tmp_path: Path) -> None:
    folder = write(tmp_path, model_files() | {FIRST: b""})
    with pytest.raises(ValueError, match="is empty"):
        staged(folder, bucket)
    assert list(bucket.listed("")) == []


def test_the_document_of_an_outcome(bucket: Bucket, tmp_path: Path) -> None:
    document = json.loads(json.dumps(staged(write(tmp_path, model_files()), bucket).document()))
    assert document["uri"] == f"s3://{bucket.name}/models/org/tuned/{document['revision']}/"
    assert document["manifest"] == f"s3://{bucket.name}/manifests/org/tuned/{document['revision']}.json"
    assert document["state"] == "staged"
    assert document["files"] == 7
    assert {entry["path"] for entry in document["dropped"]} == {".gitattributes", "README.md"}
