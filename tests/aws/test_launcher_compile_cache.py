"""The compile cache over a real S3 server: kept once, restored, and never a reason for a start to fail."""

from __future__ import annotations

import hashlib
import io
import json
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from serving.launcher.archive import open_archive
from serving.launcher.compile_cache import CacheJob, cache_key, publish
from serving.launcher.config import Config
from tests.aws.faulty_proxy import FaultyProxy
from tests.aws.seaweed import S3Server
from tests.toolchain.engines import free_port
from tests.toolchain.waiting import wait_until
from tests.unit.serving.pod import LOAD, LOADED, Pod, environment, launcher_config


class Site:
    """A bucket, and pods that keep their compile cache in it. Every pod sees the same path, as in production."""

    def __init__(self, folder: Path, s3: S3Server, bucket: str) -> None:
        self.folder, self.s3, self.bucket = folder, s3, bucket
        self.root = folder / "cache"
        self.artefact = self.root / "vllm/torch_compile_cache/x/model"
        self.count = 0

    def config(self, **changes: Any) -> dict[str, Any]:
        cache = {
            "uri": f"s3://{self.bucket}/cache/acme/tiny/",
            "key": {"image": "sha256:1", "gpu": "none", "model": "s3://b/m/"},
            "root": str(self.root),
            "include": ["vllm/torch_compile_cache"],
            "max_restore_s": 30,
            "max_bytes": 10**8,
        }
        return launcher_config(compile_cache=cache | changes, served_model_name="tiny")

    def pod(
        self, config: dict[str, Any] | None = None, *, fresh: bool = True, endpoint: str | None = None, **options: Any
    ) -> Any:  # the context manager of a pod
        if fresh:
            shutil.rmtree(self.root, ignore_errors=True)
        self.count += 1
        folder = self.folder / f"pod{self.count}"
        script = {"steps": [["out", LOAD], ["out", LOADED], ["compile", str(self.artefact), 300_000]]}
        env = environment(**self.s3.environment(endpoint)) | options.pop("env", {})
        # The engine's command is part of the key, so it must be the same in every pod: the script lies in one place.
        chosen = config or self.config()
        script_file = self.folder / "script.json"
        document = {**script, "port": chosen["engine_port"], **options.pop("script", {})}
        script_file.write_text(json.dumps(document))
        engine = [sys.executable, str(FAKE), "--script", str(script_file), "{weights}"]
        return Pod.started(folder, chosen, engine=engine, env=env, **options)

    def keys(self) -> list[str]:
        listed = self.s3.client().list_objects_v2(Bucket=self.bucket, Prefix="cache/")
        return [item["Key"] for item in listed.get("Contents", [])]

    def fill(self) -> str:
        """A first pod fills the cache; the key of its archive."""
        with self.pod() as pod:
            pod.until("/ready", 200)
            published(pod)
        (key,) = self.keys()
        return key


FAKE = Path(__file__).parents[1] / "unit/serving/fake_engine.py"


@pytest.fixture
def site(tmp_path: Path, s3: S3Server, bucket_name: str) -> Site:
    return Site(tmp_path, s3, bucket_name)


def published(pod: Pod) -> dict[str, Any]:
    """Waits for what became of the publication."""
    return wait_until(lambda: next((e for e in pod.events("compile-cache") if "publish" in e), None), what=pod.said)


def facts(pod: Pod) -> dict[str, Any]:
    pod.until("/ready", 200)
    return pod.ledger()["compile_cache"]


def test_first_pod_publishes_second_one_hits(site: Site) -> None:
    with site.pod() as pod:
        cold = facts(pod)
        assert cold["restore"] == "miss"
        assert cold["hit"] is False
        assert published(pod)["publish"] == "published"
    with site.pod() as pod:
        warm = facts(pod)
        assert warm["restore"] == "restored"
        assert warm["hit"] is True
        assert warm["evidence"].startswith("Directly load AOT compilation from path")
        assert warm["key"] == cold["key"]
        assert warm["archive_bytes"] > 300_000
        assert "coldstart_compile_cache_hit{" in pod.get("/metrics")[1]
    assert len(site.keys()) == 1
    assert not list(site.root.glob(".coldstart-*"))


def test_restore_counts_as_engine_time(site: Site) -> None:
    site.fill()
    with site.pod() as pod:
        pod.until("/ready", 200)
        ledger = pod.ledger()
    (stretch,) = [s for s in ledger["segments"] if s["detail"] == "compile cache restore"]
    assert stretch["phases"] == ["engine"]
    assert ledger["phases_s"]["engine"] >= stretch["end_s"] - stretch["begin_s"]


def test_a_restarted_container_finds_it_on_its_disk(site: Site) -> None:
    site.fill()
    with site.pod(fresh=False) as pod:
        again = facts(pod)
    assert again["restore"] == "local"
    assert again["hit"] is True
    assert not [event for event in pod.events("compile-cache") if "publish" in event]


def test_an_archive_that_is_there_is_never_overwritten(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    key = site.fill()
    before = site.s3.client().head_object(Bucket=site.bucket, Key=key)["ETag"]
    for name, value in site.s3.environment().items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr("boto3.DEFAULT_SESSION", None)  # else whoever asked first in this process decides the keys
    job = CacheJob(
        uri=f"s3://{site.bucket}/cache/acme/tiny/",
        key=key.split("/")[-2],
        root=str(site.root),
        include=("vllm/torch_compile_cache",),
        max_bytes=10**8,
        max_s=10.0,
    )
    assert publish(job) == {"publish": "present", "publish_reason": "another pod wrote it first"}
    assert site.s3.client().head_object(Bucket=site.bucket, Key=key)["ETag"] == before


def replace(site: Site, key: str, body: bytes, *, sha256: str | None = None) -> None:
    metadata = {"sha256": sha256 or hashlib.sha256(body).hexdigest(), "key": key.split("/")[-2]}
    site.s3.client().put_object(Bucket=site.bucket, Key=key, Body=body, Metadata=metadata)


def hostile_archive(folder: Path, key: str) -> bytes:
    """A right header, and a member that climbs out of the cache."""
    path = folder / "hostile.tar.zst"
    with open_archive(path, "wb") as stream, tarfile.open(fileobj=stream, mode="w|") as tar:
        header = json.dumps({"format": 1, "key": key}).encode()
        for name, content in (("coldstart.json", header), ("vllm/torch_compile_cache/../../../../owned", b"bad")):
            member = tarfile.TarInfo(name)
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
    return path.read_bytes()


@pytest.mark.parametrize("damage", ["corrupt", "truncated", "foreign", "climbs out", "no archive"])
def test_a_damaged_archive_never_breaks_a_start_and_is_replaced(site: Site, damage: str) -> None:
    key = site.fill()
    good = site.s3.client().get_object(Bucket=site.bucket, Key=key)["Body"].read()
    right = hashlib.sha256(good).hexdigest()
    match damage:
        case "corrupt":
            replace(site, key, good[:1000] + b"X" + good[1001:], sha256=right)
        case "truncated":
            replace(site, key, good[: len(good) // 2])
        case "foreign":
            replace(site, key, hostile_archive(site.folder, "another key"))
        case "climbs out":
            replace(site, key, hostile_archive(site.folder, key.split("/")[-2]))
        case _:
            replace(site, key, b"this is no archive")
    with site.pod() as pod:
        found = facts(pod)
        assert found["restore"] == "skipped"
        assert found["reason"].startswith("damaged archive: ")
        assert found["hit"] is False
        assert published(pod)["publish"] == "published"
    assert not (site.folder / "owned").exists()
    with site.pod() as pod:
        assert facts(pod)["restore"] == "restored"


def test_an_archive_larger_than_allowed_is_skipped(site: Site) -> None:
    site.fill()
    with site.pod(site.config(max_bytes=1000)) as pod:
        found = facts(pod)
        assert found["restore"] == "skipped"
        assert "unpacks to more than 1000 bytes" in found["reason"]
        assert published(pod)["publish"] == "failed"


def test_no_right_to_read_is_a_miss(site: Site) -> None:
    with site.pod(env={"AWS_SECRET_ACCESS_KEY": "wrong"}) as pod:
        found = facts(pod)
        assert found["restore"] == "miss"
        assert "or no right to read it" in found["reason"]
        assert "403" in published(pod)["reason"] or "SignatureDoesNotMatch" in published(pod)["reason"]


def test_no_s3_at_all_costs_no_more_than_the_limit(site: Site) -> None:
    with site.pod(site.config(max_restore_s=1.5), endpoint=f"http://127.0.0.1:{free_port()}") as pod:
        found = facts(pod)
    assert found["restore"] == "skipped"
    assert found["reason"] == "not done in 2 s" or "EndpointConnectionError" in found["reason"]


def test_s3_that_stalls_costs_no_more_than_the_limit(site: Site) -> None:
    site.fill()
    with FaultyProxy.running(("127.0.0.1", site.s3.port)) as proxy:
        proxy.fault("stall", r"^(GET|HEAD) .*archive", times=100)
        with site.pod(site.config(max_restore_s=2), endpoint=proxy.endpoint) as pod:
            found = facts(pod)
    assert found["restore"] == "skipped"
    assert found["reason"] == "not done in 2 s"
    assert not list(site.root.glob(".coldstart-*"))


def test_a_burst_of_503_is_waited_out(site: Site) -> None:
    site.fill()
    with FaultyProxy.running(("127.0.0.1", site.s3.port)) as proxy:
        proxy.fault("status", r"^GET .*archive", times=3)
        proxy.fault("truncate", r"^GET .*archive", times=2)
        with site.pod(endpoint=proxy.endpoint) as pod:
            assert facts(pod)["restore"] == "restored"


@pytest.fixture
def tiny_disk(site: Site) -> Iterator[Path]:
    """A file system of 200 kB where the cache should be."""
    site.root.mkdir(parents=True)
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=200k", "tmpfs", str(site.root)], capture_output=True, check=False
    )
    if mounted.returncode:
        pytest.skip("mounting a file system takes root")
    yield site.root
    subprocess.run(["umount", "-l", str(site.root)], check=True)


def test_a_full_disk_in_the_cache_directory(site: Site, request: pytest.FixtureRequest) -> None:
    key = site.fill()
    shutil.rmtree(site.root)
    request.getfixturevalue("tiny_disk")
    quiet = {"steps": [["out", LOAD], ["out", LOADED]]}
    with site.pod(fresh=False, script=quiet) as pod:
        found = facts(pod)
    assert found["key"] == key.split("/")[-2]
    assert found["restore"] == "skipped"
    assert "no space left" in found["reason"]


def test_an_engine_that_dies_on_the_restored_cache_starts_again_without(site: Site) -> None:
    """Nothing in an archive is trusted so far that a pod would crash for ever on it."""
    site.fill()
    steps = [
        *(["out", LOAD], ["out", LOADED], ["out", "Dynamo bytecode transform time: 0.01 s\n"]),
        ["exit-if", str(site.artefact), 139],
        ["compile", str(site.artefact), 1000],
    ]
    with site.pod(script={"steps": steps}) as pod:
        pod.until("/ready", 200)
        ledger = pod.ledger()
    assert [attempt["phase"] for attempt in ledger["attempts"]] == ["engine"]
    assert ledger["attempts"][0]["exit_code"] == 139
    assert ledger["compile_cache"]["restore"] == "skipped"
    assert ledger["compile_cache"]["reason"].startswith("the engine died with the cache that was restored")
    assert ledger["compile_cache"]["hit"] is False


def test_a_wrong_answer_publishes_nothing(site: Site) -> None:
    with site.pod(script={"token_ids": [9, 9, 9]}) as pod:
        pod.until("/startup", 200)
    assert site.keys() == []


def key_of(argv: tuple[str, ...] = ("vllm", "m"), env: dict[str, str] | None = None, **key: str) -> str:
    config = launcher_config(
        compile_cache={
            "uri": "s3://b/c/",
            "key": {"image": "i", "gpu": "g", "model": "m"} | key,
            "root": "/cache",
            "include": ["vllm"],
            "max_restore_s": 1,
            "max_bytes": 1,
        }
    )
    cache = Config.from_json(config).compile_cache
    assert cache is not None
    return cache_key(cache, argv, env or {})


def test_the_key_is_of_everything_that_is_compiled_for() -> None:
    keys = [
        key_of(),
        key_of(image="other"),
        key_of(gpu="other"),
        key_of(model="other"),
        key_of(("vllm", "m", "--max-model-len", "9")),
        key_of(env={"VLLM_USE_AOT_COMPILE": "0"}),
        key_of(env={"TORCHINDUCTOR_X": "1"}),
    ]
    assert len(set(keys)) == len(keys)
    assert all(len(key) == 64 for key in keys)


def test_a_port_and_a_secret_are_not_in_the_key() -> None:
    same = key_of(("vllm", "m"))
    assert key_of(("vllm", "m", "--port", "8000")) == same
    assert key_of(("vllm", "--port=8001", "m", "--api-key", "x")) == same
    assert key_of(("vllm", "m", "--port", "8000", "--seed", "1")) != same


@pytest.mark.parametrize("name", ["VLLM_API_KEY", "VLLM_HOST_IP", "VLLM_PORT", "HOSTNAME", "AWS_SESSION_TOKEN"])
def test_the_key_is_the_same_in_every_pod(name: str) -> None:
    assert key_of(env={name: "x"}) == key_of()
