"""The recorded answer, out of the staged model's manifest on a real S3 server: it decides, or the start goes on."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.aws.seaweed import S3Server
from tests.unit.serving.pod import Pod, environment, launcher_config

KEY = "manifests/acme/tiny/aa.json"
GIVEN = [5, 6, 7, 8]
"""What the scripted engine answers."""


class Site:
    """A bucket with a manifest, and pods that look into it."""

    def __init__(self, folder: Path, s3: S3Server, bucket: str) -> None:
        self.folder, self.s3, self.bucket = folder, s3, bucket

    def records(self, answer: object) -> None:
        """Writes a manifest with an answer in it."""
        body = json.dumps({"format": 1, "name": "acme/tiny", "answer": answer}).encode()
        self.s3.client().put_object(Bucket=self.bucket, Key=KEY, Body=body)

    def decided(self) -> tuple[str, dict[str, Any]]:
        """State of a pod once its start is decided, and what became of its answer."""
        config = launcher_config(answer={"manifest": f"s3://{self.bucket}/{KEY}"})
        with Pod.started(self.folder / "pod", config, env=environment(**self.s3.environment())) as pod:
            pod.until("/startup", 200)
            ledger = pod.ledger()
        return ledger["state"], ledger["answer"]


@pytest.fixture
def site(tmp_path: Path, s3: S3Server, bucket_name: str) -> Site:
    return Site(tmp_path, s3, bucket_name)


def answer(tokens: list[int]) -> dict[str, Any]:
    return {"prompt": "2 + 2 =", "token_ids": tokens, "firm_tokens": 3, "text": ""}


def test_the_recorded_answer_is_the_known_one(site: Site) -> None:
    site.records(answer(GIVEN))
    state, seen = site.decided()
    assert (state, seen["check"], seen["prompt"], seen["unknown"]) == ("ready", "known", "2 + 2 =", "")


def test_another_answer_than_the_recorded_one_keeps_the_pod_out(site: Site) -> None:
    site.records(answer([5, 9, 7, 8]))
    state, seen = site.decided()
    assert (state, seen["reason"]) == ("refused", "wrong answer: token 2 of 3 is 6 instead of 9")


@pytest.mark.parametrize(
    ("recorded", "words"),
    [
        (None, "none is recorded in s3://"),
        ({"prompt": "a"}, "answer.token_ids: is missing"),
        ("forty-two", "answer: must be an object"),
    ],
)
def test_without_a_usable_record_it_must_be_sane_and_the_ledger_says_why(
    site: Site, recorded: object, words: str
) -> None:
    site.records(recorded)
    state, seen = site.decided()
    assert (state, seen["check"]) == ("ready", "sanity")
    assert words in seen["unknown"]


def test_without_a_manifest(site: Site) -> None:
    state, seen = site.decided()
    assert (state, seen["check"]) == ("ready", "sanity")
    assert seen["unknown"].startswith("no manifest at s3://")
