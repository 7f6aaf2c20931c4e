"""Faults on the way, each injected by a proxy before a real server: staging gets through, or says why it did not."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest
from botocore.config import Config

from budget.staged import StagedModel
from scripts.failure import Failure
from scripts.staging.bucket import Bucket, client_config
from scripts.staging.folder import FolderSource, open_folder
from scripts.staging.hub import open_hub
from scripts.staging.inventory import inventory
from scripts.staging.run import stage
from scripts.staging.verify import quick
from tests.aws import seaweed
from tests.aws.faulty_proxy import FaultyProxy, Kind
from tests.aws.hub_server import HubServer
from tests.aws.made_models import model_files, write

SHARD = 20_000_000
PARTS = r"^PUT .*partNumber="
Proxied = tuple[FaultyProxy, Bucket]


@pytest.fixture
def source(tmp_path: Path) -> FolderSource:
    return open_folder(write(tmp_path, model_files(shard_bytes=SHARD)), name="org/tuned")


def intact(bucket: Bucket, source: FolderSource) -> bool:
    outcome = stage(source, bucket, trust_remote_code=False)
    return outcome.state in {"staged", "already staged"} and not quick(bucket, outcome.manifest).findings


@pytest.mark.parametrize(
    ("kind", "match", "times"),
    [
        ("reset", PARTS, 3),
        ("hang-up", PARTS, 3),
        ("truncate", r"^GET .*list-type", 1),
        ("status", PARTS, 5),
        ("status", r"^POST .*uploads", 4),
        ("status", r"^POST .*uploadId", 2),
        ("status", r"^PUT /[^/]+/manifests/", 2),
        ("status", r"^HEAD ", 3),
        ("slow", PARTS, 2),
        ("corrupt", PARTS, 1),
    ],
)
def test_a_passing_fault_is_survived(
    proxied: Proxied, source: FolderSource, kind: Kind, match: str, times: int
) -> None:
    proxy, bucket = proxied
    fault = proxy.fault(kind, match, times=times)
    if kind == "corrupt":
        with pytest.raises(Failure, match="the data S3 received differs from what was sent"):
            intact(bucket, source)
        assert not any(entry.staged for entry in inventory(bucket))
    assert intact(bucket, source)
    assert fault.times == 0
    assert bucket.uploads("models/") == []


@pytest.mark.parametrize("match", [PARTS, r"^POST .*uploadId", r"^HEAD "])
def test_a_connection_that_stalls_is_given_up_and_tried_again(
    proxied: Proxied, s3: seaweed.S3Server, source: FolderSource, match: str
) -> None:
    proxy, bucket = proxied
    impatient = client_config().merge(Config(connect_timeout=6, read_timeout=6))
    fault = proxy.fault("stall", match)
    assert intact(Bucket(bucket.name, s3.client(endpoint=proxy.endpoint, config=impatient)), source)
    assert fault.times == 0


def test_an_answer_that_was_lost_after_the_object_was_made(proxied: Proxied, source: FolderSource) -> None:
    """The retry of a completed upload finds it gone: the object is there, and it is ours."""
    proxy, bucket = proxied
    proxy.fault("hang-up", r"^POST .*uploadId")
    assert intact(bucket, source)


def test_a_manifest_whose_answer_was_lost_is_ours(proxied: Proxied, source: FolderSource) -> None:
    proxy, bucket = proxied
    proxy.fault("hang-up", r"^PUT /[^/]+/manifests/")
    outcome = stage(source, bucket, trust_remote_code=False)
    assert outcome.state == "staged by another run"
    assert not quick(bucket, outcome.manifest).findings


def test_throttling_without_end_is_said_so_and_nothing_is_published(proxied: Proxied, source: FolderSource) -> None:
    proxy, bucket = proxied
    proxy.fault("status", PARTS, times=10_000)
    with pytest.raises(Failure, match=r"S3 throttles after all retries \(SlowDown, UploadPart"):
        stage(source, bucket, trust_remote_code=False)
    proxy.faults.clear()
    assert not any(entry.staged for entry in inventory(bucket))
    assert intact(bucket, source)


@pytest.mark.parametrize(
    ("status", "code", "match", "said"),
    [
        (403, "AccessDenied", PARTS, "access denied: s3:PutObject on arn:aws:s3:::"),
        (403, "AccessDenied", r"^GET .*list-type", "access denied: s3:ListBucket on arn:aws:s3:::"),
        (403, "AccessDenied", r"^GET .*uploads", "access denied: s3:ListBucketMultipartUploads on arn:aws:s3:::"),
        (403, "AccessDenied", r"^GET /[^/]+/manifests/", "access denied: s3:GetObject on arn:aws:s3:::"),
        (403, "AccessDenied", r"^PUT /[^/]+/manifests/", "access denied: s3:PutObject on .*/manifests/"),
        (403, "InvalidAccessKeyId", r"^GET", r"AWS credentials: not accepted \(InvalidAccessKeyId\)"),
        (400, "ExpiredToken", PARTS, "AWS credentials: expired: .* Sign in again.*run it again: what was sent is kept"),
        (404, "NoSuchBucket", r"^GET", "no such bucket"),
        (507, "InsufficientStorage", PARTS, "no space: UploadPart"),
    ],
)
def test_a_refusal_names_the_cause(
    proxied: Proxied, source: FolderSource, status: int, code: str, match: str, said: str
) -> None:
    proxy, bucket = proxied
    proxy.fault("status", match, status=status, code=code, times=1_000)
    with pytest.raises(Failure, match=said):
        stage(source, bucket, trust_remote_code=False)
    proxy.faults.clear()
    assert not any(entry.staged for entry in inventory(bucket))


def test_a_server_out_of_reach(proxied: Proxied, source: FolderSource) -> None:
    proxy, bucket = proxied
    proxy._close()
    with pytest.raises(Failure, match="S3 cannot be reached"):
        stage(source, bucket, trust_remote_code=False)


def test_what_was_sent_before_a_failure_is_not_sent_again(proxied: Proxied, source: FolderSource) -> None:
    proxy, bucket = proxied
    proxy.fault("status", r"^PUT .*00002-of.*partNumber=3", status=403, code="AccessDenied", times=1_000)
    with pytest.raises(Failure):
        stage(source, bucket, trust_remote_code=False)
    proxy.faults.clear()
    before = {seen.line for seen in proxy.seen if "partNumber" in seen.line and seen.fault is None}
    proxy.seen.clear()
    assert intact(bucket, source)
    again = {seen.line for seen in proxy.seen if "partNumber" in seen.line}
    assert "partNumber=3" in "".join(again)
    assert not before & again


# ---- two at once ---------------------------------------------------------------------------------------------------


def test_two_runs_at_once_end_with_one_manifest(bucket: Bucket, tmp_path: Path) -> None:
    write(tmp_path, model_files(shard_bytes=SHARD))
    ready, outcomes, errors = threading.Barrier(2), [], []

    def run() -> None:
        own = open_folder(tmp_path, name="org/tuned")
        ready.wait(10)
        try:
            outcomes.append(stage(own, bucket, trust_remote_code=False))
        except Failure as error:
            errors.append(error)

    threads = [threading.Thread(target=run) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    states = sorted(outcome.state for outcome in outcomes)
    assert states in (["staged", "staged by another run"], ["already staged", "staged"])
    assert outcomes[0].manifest.files == outcomes[1].manifest.files
    assert not quick(bucket, outcomes[0].manifest).findings
    assert bucket.uploads("models/") == []


def test_a_run_whose_upload_another_finished_takes_the_object_over(proxied: Proxied, source: FolderSource) -> None:
    proxy, bucket = proxied
    model = StagedModel(name=source.name, revision=source.revision)
    fault = proxy.fault("slow", r"^POST .*uploadId")
    outcomes = []
    slow = threading.Thread(target=lambda: outcomes.append(stage(source, bucket, trust_remote_code=False)))
    slow.start()
    other = stage(source, bucket, trust_remote_code=False)
    fault.released.set()
    slow.join()
    assert {other.state, outcomes[0].state} >= {"staged"} or other.state == "staged by another run"
    assert not quick(bucket, other.manifest).findings
    assert bucket.uploads(model.prefix) == []


# ---- the way from the hub ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "times"), [("reset", 2), ("truncate", 4), ("hang-up", 2), ("slow", 1), ("status", 3), ("stall", 2)]
)
def test_faults_between_hub_and_here(
    hub: HubServer, bucket: Bucket, kind: Kind, times: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("scripts.staging.hub.HF_HUB_DOWNLOAD_TIMEOUT", 4)
    files = model_files(shard_bytes=SHARD)
    hub.add("org/name", files)
    port = int(hub.cdn.rsplit(":", 1)[1])
    with FaultyProxy.running(("127.0.0.1", port)) as proxy:
        # The hub redirects to the proxy instead of the content server.
        hub.redirect_to(proxy.endpoint)
        fault = proxy.fault(kind, r"^GET .*safetensors", times=times)
        outcome = stage(open_hub("org/name", "main", endpoint=hub.endpoint), bucket, trust_remote_code=False)
    assert outcome.state == "staged"
    assert fault.times == 0
    assert (
        bucket.get(outcome.model.key("model-00002-of-00002.safetensors")) == files["model-00002-of-00002.safetensors"]
    )
