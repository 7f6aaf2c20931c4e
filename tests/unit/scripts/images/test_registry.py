"""The registry client: access, broken connections, and what is not trusted."""

from __future__ import annotations

import base64
import json
from pathlib import Path

import boto3
import pytest
from botocore.stub import Stubber

from scripts.failure import Failure
from scripts.registry import DOCKER_HUB, HttpRegistry, parse
from tests.images.loopback_registry import Faults, LoopbackRegistry
from tests.images.synthetic import Tar, image
from tests.images.traps import noise

MADE = image(Tar().file("a", noise(100_000)))
LAYER = json.loads(MADE.manifest)["layers"][0]


@pytest.mark.parametrize(
    ("text", "registry", "repository", "tag"),
    [
        ("vllm/vllm-openai:v1", DOCKER_HUB, "vllm/vllm-openai", "v1"),
        ("python", DOCKER_HUB, "library/python", "latest"),
        ("docker.io/python:3", DOCKER_HUB, "library/python", "3"),
        ("docker.io/vllm/x:3", DOCKER_HUB, "vllm/x", "3"),
        ("localhost:5000/a/b:c", "localhost:5000", "a/b", "c"),
        ("1.dkr.example/x@sha256:" + "a" * 64, "1.dkr.example", "x", "latest"),
    ],
)
def test_references_are_read_as_docker_reads_them(text: str, registry: str, repository: str, tag: str) -> None:
    found = parse(text)
    assert (found.registry, found.repository, found.tag) == (registry, repository, tag)


def test_plain_http_is_for_localhost_alone() -> None:
    assert parse("127.0.0.1:5000/x").url.startswith("http://")
    assert parse("localhost/x").url.startswith("http://")
    assert parse("localhost.example/x").url.startswith("https://")


def test_a_digest_is_what_is_asked_for() -> None:
    with LoopbackRegistry() as server, HttpRegistry() as registry:
        server.add("x", "v1", MADE)
        found = registry.manifest(parse(f"{server.host}/x:other@{MADE.digest}"))
    assert found.digest == MADE.digest


def test_a_pin_of_a_tag() -> None:
    with LoopbackRegistry() as server, HttpRegistry() as registry:
        pin = registry.resolve(server.add("x", "v1", MADE), "amd64")
    assert (pin.digest, pin.layers) == (MADE.digest, (LAYER["size"],))


def test_a_challenge_is_answered_with_a_token() -> None:
    with LoopbackRegistry(Faults(token="abc")) as server, HttpRegistry() as registry:  # noqa: S106 - of this test
        registry.resolve(server.add("x", "v1", MADE), "amd64")
        assert b"".join(registry.blob(parse(f"{server.host}/x"), LAYER["digest"], LAYER["size"]))
        assert server.asked["GET /token"] == 1


def test_a_login_of_docker_is_used(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    login = base64.b64encode(b"me:secret").decode()
    with LoopbackRegistry(Faults(basic=login)) as server, HttpRegistry() as registry:
        reference = server.add("x", "v1", MADE)
        with pytest.raises(Failure, match="refuses access"):
            registry.resolve(reference, "amd64")
        (tmp_path / "config.json").write_text(json.dumps({"auths": {server.host: {"auth": login}}}))
        monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path))
        assert registry.resolve(reference, "amd64").digest == MADE.digest


def test_access_to_ecr_is_asked_of_aws(monkeypatch: pytest.MonkeyPatch) -> None:
    client = boto3.client("ecr", region_name="eu-west-1", aws_access_key_id="x", aws_secret_access_key="x")  # noqa: S106
    stub = Stubber(client)
    stub.add_response("get_authorization_token", {"authorizationData": [{"authorizationToken": "QVdTOng="}]}, {})
    stub.add_client_error("get_authorization_token", "AccessDeniedException")
    asked: list[str] = []
    monkeypatch.setattr("boto3.client", lambda _, region_name: asked.append(region_name) or client)
    from scripts.registry import _ecr_login  # noqa: PLC0415 - private, and only here

    with stub:
        assert _ecr_login("123456789012.dkr.ecr.eu-west-1.amazonaws.com") == "QVdTOng="
        with pytest.raises(Failure, match="no access token from ECR"):
            _ecr_login("123456789012.dkr.ecr.eu-west-1.amazonaws.com")
    assert asked == ["eu-west-1", "eu-west-1"]
    assert _ecr_login("ghcr.io") is None


def test_a_blob_goes_on_where_its_connection_broke() -> None:
    with LoopbackRegistry(Faults(drop_after=30_000, drops=3)) as server, HttpRegistry() as registry:
        server.add("x", "v1", MADE)
        content = b"".join(registry.blob(parse(f"{server.host}/x"), LAYER["digest"], LAYER["size"]))
    assert content == MADE.blobs[LAYER["digest"]]


def test_a_connection_that_never_holds_is_a_failure() -> None:
    with LoopbackRegistry(Faults(drop_after=1, drops=1000)) as server, HttpRegistry() as registry:
        server.add("x", "v1", MADE)
        pieces = registry.blob(parse(f"{server.host}/x"), "sha256:" + "0" * 64, 10)
        with pytest.raises(Failure, match="404"):
            b"".join(pieces)


def test_a_manifest_that_is_not_its_digest_is_not_trusted() -> None:
    with LoopbackRegistry(Faults(wrong_manifest=True)) as server, HttpRegistry() as registry:
        reference = server.add("x", "v1", MADE)
        with pytest.raises(Failure, match="do not match their digest"):
            registry.resolve(reference, "amd64")


def test_what_is_not_there_is_said() -> None:
    with LoopbackRegistry() as server, HttpRegistry() as registry:
        server.add("x", "v1", MADE)
        with pytest.raises(Failure, match="has no x:v2"):
            registry.resolve(f"{server.host}/x:v2", "amd64")
        assert not registry.has_blob(parse(f"{server.host}/y"), LAYER["digest"])
        assert registry.has_blob(parse(f"{server.host}/x"), LAYER["digest"])


def test_an_image_of_other_platforms_names_them() -> None:
    index = {"manifests": [{"digest": "d", "platform": {"os": "linux", "architecture": "arm64"}}], "schemaVersion": 2}
    with LoopbackRegistry() as server, HttpRegistry() as registry:
        server.manifests["x", "v1"] = json.dumps(index).encode()
        with pytest.raises(Failure, match=r"not built for linux/amd64, only for linux/arm64"):
            registry.resolve(f"{server.host}/x:v1", "amd64")
