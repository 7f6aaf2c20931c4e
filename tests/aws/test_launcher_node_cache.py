"""Weights on a node, over a real S3 server: filled once, whole or not there, with a way out when the source fails."""

from __future__ import annotations

import hashlib
import json
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from budget.staged import Manifest, StagedFile, staged_model
from serving.launcher import bundle
from serving.launcher.copies import MARKER, entry_name, is_complete, partial_path, read_marker
from tests.aws import made_models
from tests.aws.faulty_proxy import FaultyProxy
from tests.aws.seaweed import S3Server
from tests.toolchain.waiting import wait_until
from tests.unit.serving.pod import FAKE_ENGINE, LOAD, LOADED, Pod, environment, launcher_config

REVISION = "a" * 40


class Site:
    """A bucket with a staged model, and a node with a cache directory."""

    def __init__(self, folder: Path, s3: S3Server, bucket: str) -> None:
        self.folder, self.s3, self.bucket = folder, s3, bucket
        self.node = folder / "node-cache"
        self.count = 0
        self.files = made_models.model_files(shards=2, shard_bytes=40_000_000)
        self.source = self.stage("acme/tiny", self.files)

    def stage(self, name: str, files: Mapping[str, bytes]) -> str:
        """Puts a model where `coldstart stage` puts it; its URI."""
        model = staged_model(name, REVISION)
        for path, content in files.items():
            self.s3.client().put_object(Bucket=self.bucket, Key=model.key(path), Body=content)
        manifest = Manifest(
            model=model,
            source="folder:x",
            requested_revision=REVISION,
            files=tuple(
                StagedFile(path=path, bytes=len(content), sha256=hashlib.sha256(content).hexdigest(), crc32="0" * 8)
                for path, content in sorted(files.items())
            ),
            facts=None,
        )
        self.s3.client().put_object(Bucket=self.bucket, Key=model.manifest_key, Body=manifest.text().encode())
        return model.uri(self.bucket)

    def manifest(self, name: str = "acme/tiny") -> str:
        return staged_model(name, REVISION).manifest_uri(self.bucket)

    @property
    def copy(self) -> Path:
        return self.node / entry_name(self.source)

    def path(self, **changes: Any) -> dict[str, Any]:
        return {
            "kind": "node-cache",
            "source": self.source,
            "engine_args": ["{dir}", "--load-format", "safetensors"],
            "dir": str(self.node),
            "limit_bytes": 10**9,
            "manifest": self.manifest(),
            "fill_timeout_s": 60,
            "connections": 4,
        } | changes

    def pod(self, *paths: dict[str, Any], endpoint: str | None = None) -> Any:  # the context manager of a pod
        self.count += 1
        folder = self.folder / f"pod{self.count}"
        folder.mkdir()
        stream = {
            "kind": "stream",
            "source": self.source,
            "engine_args": [self.source, "--load-format", "runai_streamer"],
        }
        config = launcher_config(weights={"paths": [*(paths or [self.path()]), stream]})
        script = folder / "script.json"
        script.write_text(json.dumps({"port": config["engine_port"], "steps": [["out", LOAD], ["out", LOADED]]}))
        engine = [sys.executable, str(FAKE_ENGINE), "--script", str(script), "{weights}"]
        return Pod.started(folder, config, engine=engine, env=environment(**self.s3.environment(endpoint)))

    def same(self, directory: Path) -> bool:
        """Whether a directory holds exactly the staged files."""
        found = {
            path.relative_to(directory).as_posix(): path.read_bytes()
            for path in directory.rglob("*")
            if path.is_file() and path.name != MARKER
        }
        return found == self.files


@pytest.fixture
def site(tmp_path: Path, s3: S3Server, bucket_name: str) -> Site:
    return Site(tmp_path, s3, bucket_name)


@pytest.fixture
def proxy(site: Site) -> Iterator[FaultyProxy]:
    with FaultyProxy.running(("127.0.0.1", site.s3.port)) as running:
        yield running


def weights(pod: Pod) -> dict[str, Any]:
    pod.until("/ready", 200)
    return pod.ledger()["weights"]


def test_first_pod_fills_second_one_reads_locally(site: Site, proxy: FaultyProxy) -> None:
    with site.pod(endpoint=proxy.endpoint) as first:
        found = weights(first)
        assert (found["kind"], found["origin"]) == ("node-cache", "s3")
        assert found["weights_bytes"] == sum(len(c) for name, c in site.files.items() if name.endswith(".safetensors"))
        assert site.same(site.copy)
        argv = first.events("engine-starts")[0]["argv"]
        assert argv[-3:] == [str(site.copy), "--load-format", "safetensors"]
        asked = proxy.count("^GET ")
        with site.pod(endpoint=proxy.endpoint) as second:
            assert weights(second)["origin"] == "node"
        assert proxy.count("^GET ") == asked
    with site.pod(endpoint=proxy.endpoint) as third:
        assert weights(third)["origin"] == "node"


def test_the_copy_outlives_a_restart_of_the_machine_once_flushed(site: Site) -> None:
    with site.pod() as pod:
        weights(pod)
        wait_until(lambda: (read_marker(site.copy) or {}).get("flushed"), what="the flush after Ready")


def test_two_pods_at_once_fill_once(site: Site, proxy: FaultyProxy) -> None:
    proxy.fault("slow", r"^GET .*00001-of-00002.safetensors", times=2)
    with site.pod(endpoint=proxy.endpoint) as one, site.pod(endpoint=proxy.endpoint) as two:
        origins = sorted(weights(pod)["origin"] for pod in (one, two))
    assert origins == ["node", "s3"]
    ranges = -(-40_000_000 // (16 * 1024 * 1024))
    assert 2 * ranges <= proxy.count(r"^GET .*\.safetensors") < 4 * ranges  # twice filled it would be 4
    assert site.same(site.copy)


def test_killed_while_filling_leaves_no_copy_and_the_next_pod_goes_on(site: Site, proxy: FaultyProxy) -> None:
    stalled = proxy.fault("stall", r"^GET .*00002-of-00002.safetensors", times=100)
    with site.pod(endpoint=proxy.endpoint) as pod:
        finished = partial_path(site.copy) / "model-00001-of-00002.safetensors"
        wait_until(finished.exists, what=pod.said)
        for pid in [*descendants(pod.process.pid), pod.process.pid]:
            subprocess.run(["kill", "-9", str(pid)], check=False)
        pod.ended()
    stalled.times = 0
    stalled.released.set()
    assert not site.copy.exists()
    before = proxy.count(r"^GET .*00001-of-00002")
    with site.pod(endpoint=proxy.endpoint) as pod:
        assert weights(pod)["origin"] == "s3"
    assert proxy.count(r"^GET .*00001-of-00002") == before
    assert site.same(site.copy)


def descendants(pid: int) -> list[int]:
    """Processes below a process, the deepest first."""
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return [found for child in children for found in (*descendants(int(child)), int(child))]


@pytest.mark.parametrize("kind", ["status", "truncate", "reset"])
def test_a_source_that_stumbles_is_asked_again(site: Site, proxy: FaultyProxy, kind: str) -> None:
    proxy.fault(kind, r"^GET .*\.safetensors", times=4)  # pyright: ignore[reportArgumentType]
    with site.pod(endpoint=proxy.endpoint) as pod:
        assert weights(pod)["origin"] == "s3"
    assert site.same(site.copy)


def test_access_denied_falls_back_to_streaming(site: Site, proxy: FaultyProxy) -> None:
    proxy.fault("status", r"^GET .*\.safetensors", times=100, status=403, code="AccessDenied")
    with site.pod(endpoint=proxy.endpoint) as pod:
        found = weights(pod)
    assert found["kind"] == "stream"
    assert "AccessDenied" in found["failed"]["node-cache"]
    assert not site.copy.exists()


def test_a_source_that_stalls_falls_back_in_time(site: Site, proxy: FaultyProxy) -> None:
    proxy.fault("stall", r"^GET .*\.safetensors", times=100)
    with site.pod(site.path(fill_timeout_s=3), endpoint=proxy.endpoint) as pod:
        found = weights(pod)
    assert found["kind"] == "stream"
    assert found["failed"]["node-cache"] == "not done in 3 s"
    assert not site.copy.exists()


def test_bytes_that_are_not_what_was_staged_are_refused(site: Site) -> None:
    key = staged_model("acme/tiny", REVISION).key("model-00001-of-00002.safetensors")
    changed = bytearray(site.files["model-00001-of-00002.safetensors"])
    changed[-1] ^= 1
    site.s3.client().put_object(Bucket=site.bucket, Key=key, Body=bytes(changed))
    with site.pod() as pod:
        found = weights(pod)
    assert found["kind"] == "stream"
    assert "SHA-256 is" in found["failed"]["node-cache"]
    assert not is_complete(site.copy)


@pytest.mark.parametrize("what", ["short", "gone", "no manifest"])
def test_a_source_that_is_not_whole_is_refused(site: Site, what: str) -> None:
    client, model = site.s3.client(), staged_model("acme/tiny", REVISION)
    match what:
        case "short":
            client.put_object(Bucket=site.bucket, Key=model.key("config.json"), Body=b"{}")
        case "gone":
            client.delete_object(Bucket=site.bucket, Key=model.key("config.json"))
        case _:
            client.put_object(Bucket=site.bucket, Key=model.manifest_key, Body=b"[]")
    with site.pod() as pod:
        reason = weights(pod)["failed"]["node-cache"]
    assert {
        "short": "staged were",
        "gone": "lacks 1 of the staged files: config.json",
        "no manifest": "is no manifest",
    }[what] in reason


def test_a_cache_that_is_too_small_falls_back(site: Site) -> None:
    with site.pod(site.path(limit_bytes=1000)) as pod:
        found = weights(pod)
    assert found["kind"] == "stream"
    assert "has no room for" in found["failed"]["node-cache"]


def test_a_directory_that_can_not_be_written_falls_back(site: Site) -> None:
    site.node.write_text("a file where the cache should be")
    with site.pod() as pod:
        found = weights(pod)
    assert found["kind"] == "stream"
    assert "can't be used" in found["failed"]["node-cache"]


def test_an_unused_model_makes_room_for_another(site: Site) -> None:
    other = made_models.model_files(shards=1, shard_bytes=30_000_000, seed=9)
    source = site.stage("acme/other", other)
    one = site.path(limit_bytes=100_000_000)
    two = site.path(limit_bytes=100_000_000, source=source, manifest=site.manifest("acme/other"))
    with site.pod(one) as pod:
        weights(pod)
        with site.pod(two) as second:
            assert "what else it holds is in use" in weights(second)["failed"]["node-cache"]
    with site.pod(two) as pod:
        assert weights(pod)["origin"] == "s3"
    assert not site.copy.exists()
    assert is_complete(site.node / entry_name(source))


def fill(site: Site, directory: Path, *options: str) -> subprocess.CompletedProcess[str]:
    """The Job that fills a shared file system."""
    program = site.folder / "launch.py"
    program.write_text(bundle.source())
    argv = [sys.executable, str(program), "--fill", "--source", site.source, "--dir", str(directory), *options]
    env = environment(**site.s3.environment())
    return subprocess.run(argv, env=env, capture_output=True, text=True, check=False, timeout=120)


def test_a_job_fills_a_shared_file_system_and_pods_use_it(site: Site) -> None:
    shared = site.folder / "shared/acme/tiny"
    path = {"kind": "shared-fs", "source": site.source, "engine_args": ["{dir}"], "dir": str(shared)}
    with site.pod(path) as pod:
        assert "holds no complete copy" in weights(pod)["failed"]["shared-fs"]
    first = fill(site, shared, "--manifest", site.manifest())
    assert first.returncode == 0, first.stderr
    assert json.loads(first.stdout)["coldstart"] == "filled"
    assert site.same(shared)
    again = fill(site, shared, "--manifest", site.manifest())
    assert json.loads(again.stdout)["coldstart"] == "complete"
    with site.pod(path) as pod:
        found = weights(pod)
        assert (found["kind"], found["origin"]) == ("shared-fs", "directory")
        assert pod.events("engine-starts")[0]["argv"][-1] == str(shared)


def test_a_fill_that_can_not_be_done_says_why(site: Site) -> None:
    site.source = f"s3://{site.bucket}/models/acme/none/"
    refused = fill(site, site.folder / "shared")
    assert refused.returncode == 1
    assert "holds no objects" in json.loads(refused.stdout)["reason"]


def test_weights_baked_into_the_image(site: Site) -> None:
    baked = made_models.write(site.folder / "baked", site.files)
    path = {"kind": "baked", "source": str(baked), "engine_args": ["{dir}"], "dir": str(baked)}
    with site.pod(path) as pod:
        found = weights(pod)
    assert (found["kind"], found["origin"]) == ("baked", "directory")
    with site.pod(path | {"dir": str(site.folder / "nothing")}) as pod:
        assert "no config.json with *.safetensors" in weights(pod)["failed"]["baked"]


def test_sigterm_while_filling_ends_at_once(site: Site, proxy: FaultyProxy) -> None:
    proxy.fault("stall", r"^GET .*\.safetensors", times=100)
    with site.pod(endpoint=proxy.endpoint) as pod:
        wait_until(lambda: proxy.count(r"^GET .*\.safetensors"), what=pod.said)
        pod.signal(signal.SIGTERM)
        assert pod.ended() == 143
    assert not pod.events("engine-starts")
