"""Killed at any moment, run again: the same manifest, only what was in flight sent twice, nothing left behind."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from budget.staged import StagedModel
from scripts.staging import checksum
from scripts.staging.bucket import Bucket, client_config
from scripts.staging.folder import open_folder
from scripts.staging.inventory import inventory
from scripts.staging.run import read_manifest, stage
from scripts.staging.verify import quick
from tests.aws import seaweed
from tests.aws.faulty_proxy import Fault, FaultyProxy
from tests.aws.hub_server import HubServer
from tests.aws.made_models import model_files, write
from tests.toolchain.waiting import wait_until

SHARD = 30_000_000
"""Four parts."""
PARTS = r"^PUT .*partNumber="
COMPLETIONS = r"^POST .*uploadId="


@pytest.fixture
def proxy(s3: seaweed.S3Server) -> Iterator[FaultyProxy]:
    with FaultyProxy.running(("127.0.0.1", s3.port)) as running:
        yield running


class Run:
    """`coldstart stage` as a process of its own."""

    def __init__(self, s3: seaweed.S3Server, proxy: FaultyProxy, bucket: str, *source: str, hub: str = "") -> None:
        argv = [str(Path(sys.executable).with_name("coldstart")), "stage", *source, "--to", f"s3://{bucket}", "--json"]
        environment = {**os.environ, **s3.environment(proxy.endpoint), "HF_ENDPOINT": hub or "http://127.0.0.1:9"}
        self.process = subprocess.Popen(
            argv, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
        )

    def end(self) -> tuple[int, str, str]:
        out, err = self.process.communicate(timeout=120)
        return self.process.returncode, out, err

    def kill(self, how: signal.Signals, held: Fault) -> tuple[int, str, str]:
        """Ended while it waits for something that the proxy holds: it can't have finished before."""
        self.process.send_signal(how)
        held.times = 0
        held.released.set()
        return self.end()


def sent_parts(proxy: FaultyProxy) -> int:
    return proxy.count(PARTS)


@pytest.mark.parametrize(
    ("how", "after_parts"),
    [
        (signal.SIGKILL, 0),
        (signal.SIGKILL, 1),
        (signal.SIGKILL, 4),
        (signal.SIGKILL, 7),
        (signal.SIGINT, 1),
        (signal.SIGINT, 5),
    ],
)
def test_killed_and_run_again(
    s3: seaweed.S3Server, bucket: Bucket, proxy: FaultyProxy, tmp_path: Path, after_parts: int, how: signal.Signals
) -> None:
    files = model_files(shards=2, shard_bytes=SHARD)
    folder = write(tmp_path / "model", files)
    proxy.limit_bytes_s = 20e6  # slow enough to be caught half-way
    arguments = ("--source", str(folder), "--name", "org/tuned")
    held = proxy.fault("stall", COMPLETIONS, times=1_000)
    first = Run(s3, proxy, bucket.name, *arguments)
    wait_until(lambda: sent_parts(proxy) >= after_parts, what="parts", patience_s=60)
    code, out, err = first.kill(how, held)
    assert code == (130 if how is signal.SIGINT else -signal.SIGKILL), err
    assert out == ""
    assert not any(entry.staged for entry in inventory(bucket))
    if how is signal.SIGINT:
        assert "interrupted" in err
    proxy.limit_bytes_s = None
    code, out, err = Run(s3, proxy, bucket.name, *arguments).end()
    assert code == 0, err
    document = json.loads(out)
    model = StagedModel(name="org/tuned", revision=document["revision"])
    manifest = read_manifest(bucket, model)
    assert manifest is not None
    assert not quick(bucket, manifest).findings
    assert {file.path: bucket.get(model.key(file.path)) for file in manifest.files} == {
        file.path: files[file.path] for file in manifest.files
    }
    assert bucket.uploads("models/") == []


def test_the_manifest_does_not_depend_on_how_often_it_was_interrupted(
    s3: seaweed.S3Server, proxy: FaultyProxy, tmp_path: Path
) -> None:
    folder = write(tmp_path / "model", model_files(shards=2, shard_bytes=SHARD))
    arguments = ("--source", str(folder), "--name", "org/tuned")
    texts = []
    for kills in (0, 3):
        name = f"resumed-{kills}-{os.getpid()}-{random.getrandbits(32):x}"
        s3.client().create_bucket(Bucket=name)
        for _ in range(kills):
            proxy.limit_bytes_s = 20e6
            held = proxy.fault("stall", COMPLETIONS, times=1_000)
            already = proxy.count(f"{PARTS}|{COMPLETIONS}")
            run = Run(s3, proxy, name, *arguments)
            wait_until(lambda: proxy.count(f"{PARTS}|{COMPLETIONS}") >= already + 2, what="work", patience_s=60)  # noqa: B023 - read at once
            run.kill(signal.SIGKILL, held)
        proxy.limit_bytes_s = None
        code, out, err = Run(s3, proxy, name, *arguments).end()
        assert code == 0, err
        document = json.loads(out)
        bucket = Bucket(name, s3.client(config=client_config()))
        texts.append(bucket.get(f"manifests/org/tuned/{document['revision']}.json"))
    assert texts[0] == texts[1]


def test_parts_that_arrived_are_not_sent_again(
    s3: seaweed.S3Server, bucket: Bucket, proxy: FaultyProxy, tmp_path: Path
) -> None:
    folder = write(tmp_path / "model", model_files(shards=1, shard_bytes=60_000_000))
    model_name = "org/tuned"
    source = open_folder(folder, name=model_name)
    model = StagedModel(name=model_name, revision=source.revision)
    shard = next(file for file in source.files if file.path.endswith(".safetensors"))
    proxy.limit_bytes_s = 20e6
    arguments = ("--source", str(folder), "--name", model_name)
    held = proxy.fault("stall", COMPLETIONS, times=1_000)
    run = Run(s3, proxy, bucket.name, *arguments)

    def arrived() -> int:
        uploads = bucket.uploads(model.prefix)
        return len(bucket.sent_parts(*uploads[0]) or ()) if uploads else 0

    wait_until(lambda: arrived() >= 3, what="three parts in the bucket", patience_s=60)
    run.kill(signal.SIGKILL, held)
    kept = arrived()
    proxy.limit_bytes_s = None
    proxy.seen.clear()
    code, out, err = Run(s3, proxy, bucket.name, *arguments).end()
    assert code == 0, err
    # What the proxy had whole when the run was killed still arrived after we looked.
    assert sent_parts(proxy) <= 8 - kept
    assert json.loads(out)["sent_bytes"] < shard.bytes


def test_a_whole_object_from_the_hub_is_not_even_read_again(
    s3: seaweed.S3Server, bucket: Bucket, proxy: FaultyProxy, hub: HubServer
) -> None:
    hub.add("org/name", model_files(shards=2, shard_bytes=SHARD))
    arguments = ("--source", "hf:org/name@main")
    proxy.fault("status", r"^PUT /[^/]+/manifests/", status=403, code="AccessDenied", times=100)
    code, _, err = Run(s3, proxy, bucket.name, *arguments, hub=hub.endpoint).end()
    assert code == 1
    assert "access denied: s3:PutObject" in err
    proxy.faults.clear()
    served = hub.state.served_bytes
    code, out, err = Run(s3, proxy, bucket.name, *arguments, hub=hub.endpoint).end()
    assert code == 0, err
    assert json.loads(out)["sent_bytes"] == 0
    assert hub.state.served_bytes - served < 100_000  # headers and small files only


def test_parts_of_an_upload_that_hold_other_bytes_are_sent_again(bucket: Bucket, tmp_path: Path) -> None:
    files = model_files(shards=1, shard_bytes=SHARD)
    source = open_folder(write(tmp_path, files), name="org/tuned")
    model = StagedModel(name="org/tuned", revision=source.revision)
    key = model.key("model-00001-of-00001.safetensors")
    upload = bucket.start_upload(key, metadata={"coldstart-source": source.identity})
    wrong = bytes(8 * 2**20)
    bucket.send_part(key, upload, 1, wrong, checksum.crc32(wrong))
    outcome = stage(source, bucket, trust_remote_code=False)
    assert outcome.sent_bytes == outcome.manifest.total_bytes
    assert bucket.get(key) == files["model-00001-of-00001.safetensors"]
