"""`coldstart measure --record-answer`, `--forget-answer` on a real S3 server: the next start reads what they write."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from budget.staged import Manifest, StagedFile, StagedModel, parse_manifest
from scripts.failure import Failure
from scripts.ledger.known_answer import answer_of, forget, record
from scripts.staging.bucket import SOURCE, Bucket
from tests.aws.seaweed import S3Server
from tests.unit.serving.pod import Pod, environment, launcher_config

MODEL = StagedModel(name="acme/tiny", revision="a" * 40)
MANIFEST = Manifest(
    model=MODEL,
    source="folder:1",
    requested_revision="a" * 40,
    files=(StagedFile(path="model.safetensors", bytes=8, sha256="0" * 64, crc32="0" * 8),),
    facts=None,
)
OTHER = {"prompt": "2 + 2 =", "token_ids": [5, 9, 7, 8], "text": "x", "firm_tokens": 3}


def never(what: str) -> None:
    """Nothing may be replaced."""
    raise Failure(what)


@pytest.fixture
def staged(bucket: Bucket) -> Bucket:
    assert bucket.put_new(MODEL.manifest_key, MANIFEST.text().encode(), metadata={SOURCE: MANIFEST.source})
    return bucket


def started(folder: Path, s3: S3Server, bucket: Bucket) -> dict[str, Any]:
    """The ledger of a pod that looks into the manifest."""
    config = launcher_config(answer={"manifest": MODEL.manifest_uri(bucket.name)})
    with Pod.started(folder, config, env=environment(**s3.environment())) as pod:
        pod.until("/startup", 200)
        return pod.ledger()


def test_the_first_start_records_and_the_next_is_compared(tmp_path: Path, s3: S3Server, staged: Bucket) -> None:
    first = started(tmp_path / "first", s3, staged)
    assert (first["state"], first["answer"]["check"]) == ("ready", "sanity")
    answer = answer_of(first)
    assert record(staged, MODEL, answer, agreed=never)
    second = started(tmp_path / "second", s3, staged)
    assert (second["state"], second["answer"]["check"]) == ("ready", "known")
    assert not record(staged, MODEL, answer_of(second), agreed=never)


def test_a_manifest_stays_what_it_was(staged: Bucket) -> None:
    record(staged, MODEL, OTHER, agreed=never)
    body = staged.get(MODEL.manifest_key) or b""
    assert parse_manifest(body, where="m") == MANIFEST
    document = json.loads(body)
    assert document.pop("answer") == OTHER
    assert document == json.loads(MANIFEST.text())
    held = staged.head(MODEL.manifest_key)
    assert held is not None
    assert held.source == MANIFEST.source


def test_another_answer_is_replaced_only_when_that_is_agreed(staged: Bucket) -> None:
    record(staged, MODEL, OTHER, agreed=never)
    new = OTHER | {"token_ids": [5, 6, 7, 8], "text": "y"}
    with pytest.raises(Failure, match="has a recorded answer, 'x'; it becomes 'y'"):
        record(staged, MODEL, new, agreed=never)
    assert json.loads(staged.get(MODEL.manifest_key) or b"")["answer"] == OTHER
    assert record(staged, MODEL, new, agreed=lambda _: None)
    assert json.loads(staged.get(MODEL.manifest_key) or b"")["answer"] == new


def test_of_two_writers_the_second_is_told(staged: Bucket) -> None:
    record(staged, MODEL, OTHER, agreed=never)

    def meanwhile(_: str) -> None:
        record(staged, MODEL, OTHER | {"text": "z"}, agreed=lambda _: None)

    with pytest.raises(Failure, match="somebody else wrote"):
        record(staged, MODEL, OTHER | {"text": "y"}, agreed=meanwhile)
    assert json.loads(staged.get(MODEL.manifest_key) or b"")["answer"]["text"] == "z"


def test_what_was_recorded_can_be_forgotten(tmp_path: Path, s3: S3Server, staged: Bucket) -> None:
    record(staged, MODEL, OTHER, agreed=never)
    with pytest.raises(Failure, match="has a recorded answer, 'x'; it is removed"):
        forget(staged, MODEL, agreed=never)
    assert json.loads(staged.get(MODEL.manifest_key) or b"")["answer"] == OTHER
    assert forget(staged, MODEL, agreed=lambda _: None) == OTHER
    assert staged.get(MODEL.manifest_key) == MANIFEST.text().encode()
    held = staged.head(MODEL.manifest_key)
    assert held is not None
    assert held.source == MANIFEST.source
    after = started(tmp_path, s3, staged)
    assert (after["state"], after["answer"]["check"]) == ("ready", "sanity")


def test_nothing_is_forgotten_where_nothing_is_recorded(staged: Bucket) -> None:
    assert forget(staged, MODEL, agreed=never) is None
    assert staged.get(MODEL.manifest_key) == MANIFEST.text().encode()


def test_an_answer_that_is_written_meanwhile_is_not_forgotten(staged: Bucket) -> None:
    record(staged, MODEL, OTHER, agreed=never)

    def meanwhile(_: str) -> None:
        record(staged, MODEL, OTHER | {"text": "z"}, agreed=lambda _: None)

    with pytest.raises(Failure, match="somebody else wrote"):
        forget(staged, MODEL, agreed=meanwhile)
    assert json.loads(staged.get(MODEL.manifest_key) or b"")["answer"]["text"] == "z"


def test_a_model_that_is_not_staged(bucket: Bucket) -> None:
    with pytest.raises(Failure, match="is not staged in s3://"):
        forget(bucket, MODEL, agreed=never)
    with pytest.raises(Failure, match="is not staged in s3://"):
        record(bucket, MODEL, OTHER, agreed=never)
