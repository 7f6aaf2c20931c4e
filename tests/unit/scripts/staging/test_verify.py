"""Verifying what is staged, against an S3 that stops answering half-way."""

from __future__ import annotations

import io
import json
from types import SimpleNamespace
from typing import Any

import pytest
from botocore.exceptions import ClientError
from botocore.response import StreamingBody

from budget.staged import Manifest, StagedFile, StagedModel
from scripts import stage
from scripts.cli import run
from scripts.staging.bucket import Bucket

MODEL = StagedModel(name="org/name", revision="ab" * 20)
FILES = {"config.json": b"{}", "model.safetensors": b"weights"}
MANIFEST = Manifest(
    model=MODEL,
    source="hf:org/name",
    requested_revision="main",
    files=tuple(StagedFile(path=path, bytes=len(body), sha256="0" * 64, crc32="0" * 8) for path, body in FILES.items()),
    facts=None,
)


class _Expiring:
    """A client whose credentials are good for the manifest and the listing, and for no object."""

    meta = SimpleNamespace(partition="aws")

    def __init__(self, code: str) -> None:
        self._code = code

    def get_object(self, *, Bucket: str, Key: str, **_: Any) -> Any:  # noqa: N803 - S3's names
        del Bucket
        if Key == MODEL.manifest_key:
            text = MANIFEST.text().encode()
            return {"Body": StreamingBody(io.BytesIO(text), len(text))}
        said = {"Code": self._code, "Message": "The provided token has expired."}
        raise ClientError({"Error": said}, "GetObject")

    def get_paginator(self, operation: str) -> Any:
        assert operation == "list_objects_v2"
        held = [{"Key": MODEL.key(path), "Size": len(body)} for path, body in FILES.items()]
        return SimpleNamespace(paginate=lambda **_: [{"Contents": held}])


def verify(monkeypatch: pytest.MonkeyPatch, code: str) -> int:
    client: Any = _Expiring(code)
    monkeypatch.setattr(stage, "connect", lambda name, **_: Bucket(name, client))
    return run(["stage", "--verify", f"{MODEL}", "--to", "s3://weights/models", "--json"])


def test_credentials_that_expire_meanwhile_are_no_finding_about_the_weights(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert verify(monkeypatch, "ExpiredToken") == 1
    said = capsys.readouterr()
    assert said.out == ""
    assert (
        "failed: not verified, which says nothing about the weights: AWS credentials: expired: "
        "The provided token has expired. Sign in again"
    ) in " ".join(said.err.split())


def test_an_object_that_may_not_be_read_is_a_finding(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert verify(monkeypatch, "NoSuchKey") == 1
    document = json.loads(capsys.readouterr().out)
    assert [finding["key"] for finding in document["findings"]] == list(FILES)
