"""Images copied by digest; ECR's side against moto, the rest against a registry on loopback."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import boto3
import httpx2 as httpx
import pytest
import yaml
from moto import mock_aws

from budget.problems import BadInput
from infra.addons import Chart
from infra.environment_settings import Addons, Egress, Presence, Recorder
from infra.stack_file import read
from scripts.cli import run
from scripts.failure import Failure
from scripts.images import environment_images
from scripts.images.ecr import ensure_repository, owner_of
from scripts.images.environment_images import chart_images, needed_images
from scripts.images.mirror import split_destination, target_reference
from scripts.images.mirroring import mirror_jobs, private_registry, write_places
from scripts.images.places import reference_of
from scripts.registry import parse
from tests.images.loopback_registry import Faults, LoopbackRegistry
from tests.images.synthetic import Tar, digest, image
from tests.images.traps import noise

ENGINE = image(Tar().file("lib/a", noise(40_000)), Tar().file("app/b", noise(2_000)))
OTHER = image(Tar().file("lib/arm", noise(9_000)), config={"architecture": "arm64"})
INDEX = {
    "schemaVersion": 2,
    "mediaType": "application/vnd.oci.image.index.v1+json",
    "manifests": [
        {"digest": made.digest, "size": len(made.manifest), "platform": {"os": "linux", "architecture": architecture}}
        for made, architecture in ((ENGINE, "amd64"), (OTHER, "arm64"))
    ],
}
CHARTS = {
    "entries": {
        "keda": [{"version": "2.20.0", "appVersion": "2.20.0"}, {"version": "2.21.0", "appVersion": "2.21.0"}],
        "cluster-autoscaler": [{"version": "9.59.0", "appVersion": "1.99.0"}],
    }
}


@pytest.fixture
def charts() -> Iterator[str]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            content = yaml.safe_dump(CHARTS).encode()
            self.send_response(200 if self.path.endswith("/index.yaml") else 404)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


def with_index(registry: LoopbackRegistry) -> str:
    registry.add("vllm/engine", "amd", ENGINE)
    registry.add("vllm/engine", "arm", OTHER)
    content = json.dumps(INDEX).encode()
    registry.manifests["vllm/engine", "v1"] = registry.manifests["vllm/engine", digest(content)] = content
    return f"{registry.host}/vllm/engine:v1"


def test_one_architecture_is_copied_as_that_manifest(capsys: pytest.CaptureFixture[str]) -> None:
    with LoopbackRegistry() as registry:
        reference = with_index(registry)
        arguments = ["image", "mirror", reference, "--to", f"{registry.host}/mine", "--json"]
        assert run(arguments) == 0
        (first,) = json.loads(capsys.readouterr().out)["images"]
        assert run(arguments) == 0
        (second,) = json.loads(capsys.readouterr().out)["images"]
        place = f"mine/{registry.host.replace(':', '-')}/vllm/engine"
        assert registry.manifests[place, "v1"] == ENGINE.manifest
        assert not any(name == OTHER.digest for repository, name in registry.manifests if repository == place)
    assert first["target"].endswith(f"/vllm/engine:v1@{ENGINE.digest}")
    assert (first["there"], second["there"]) == (False, True)
    assert second["sent_bytes"] == 0


def test_blobs_come_over_without_their_bytes_within_a_registry() -> None:
    with LoopbackRegistry() as registry:
        assert run(["image", "mirror", with_index(registry), "--to", f"{registry.host}/mine"]) == 0
        assert not any(name.startswith("GET") and "/blobs/" in name for name in registry.asked)


def test_between_registries_every_byte_is_checked(capsys: pytest.CaptureFixture[str]) -> None:
    layer = json.loads(ENGINE.manifest)["layers"][0]["digest"]
    with LoopbackRegistry() as source, LoopbackRegistry() as target:
        reference = with_index(source)
        source.blobs["vllm/engine", layer] = b"x" * len(source.blobs["vllm/engine", layer])
        assert run(["image", "mirror", reference, "--to", f"{target.host}/mine"]) == 1
        assert not target.manifests
    assert "DIGEST_INVALID" in capsys.readouterr().err


def test_another_registry_gets_it_whole() -> None:
    with LoopbackRegistry() as source, LoopbackRegistry(Faults(basic="dTpw")) as target:
        reference = with_index(source)
        folder = Path.home() / ".docker"
        folder.mkdir(parents=True)
        (folder / "config.json").write_text(json.dumps({"auths": {target.host: {"auth": "dTpw"}}}))
        assert run(["image", "mirror", reference, "--to", target.host]) == 0
        held = {name for _, name in target.blobs}
    assert held == {blob for blob in ENGINE.blobs if blob in held}
    assert len(held) == 3


def test_two_architectures_are_copied_as_the_whole_index(stacks: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    del monkeypatch
    with LoopbackRegistry() as registry:
        reference = with_index(registry)
        arm = stacks / "Pulumi.dev-arm.yaml"
        text = (stacks / "Pulumi.dev-qwen2-5-0-5b.yaml").read_text().replace("vllm/vllm-openai:v0.33.0", reference)
        (stacks / "Pulumi.dev-qwen2-5-0-5b.yaml").write_text(text)
        arm.write_text(text.replace("g6.xlarge", "g5g.xlarge"))
        stack = read("dev", stacks)
        addons = stack.environment.addons.model_copy(update={"keda": "present", "cluster_autoscaler": "present"})
        environment = stack.environment.model_copy(update={"addons": addons})
        stack = type(stack)(name="dev", environment=environment, model=None)
        needed = {each.reference: each for each in needed_images(stack, directory=stacks)}
    assert needed[reference].architectures == {"amd64", "arm64"}
    assert needed[reference].of == "dev-arm, dev-qwen2-5-0-5b"


def test_an_environment_needs_its_engines_and_its_controllers(charts: str) -> None:
    with httpx.Client() as client:
        keda = list(chart_images(Chart("keda", "2.21.0", charts, "keda"), client))
        scaler = list(chart_images(Chart("cluster-autoscaler", "9.59.0", charts, "kube-system"), client))
        assert [each.reference for each in keda] == [
            "ghcr.io/kedacore/keda:2.21.0",
            "ghcr.io/kedacore/keda-metrics-apiserver:2.21.0",
            "ghcr.io/kedacore/keda-admission-webhooks:2.21.0",
        ]
        assert [each.reference for each in scaler] == ["registry.k8s.io/autoscaling/cluster-autoscaler:v1.99.0"]
        with pytest.raises(Failure, match=r"has no keda 9\.9\.9"):
            list(chart_images(Chart("keda", "9.9.9", charts, "keda"), client))


@pytest.mark.parametrize(
    ("egress", "presence", "controllers"),
    [("nat", "install", 4), ("nat", "present", 0), ("none", "present", 4)],
)
def test_what_else_an_environment_needs(
    stacks: Path, charts: str, monkeypatch: pytest.MonkeyPatch, egress: str, presence: str, controllers: int
) -> None:
    monkeypatch.setattr(environment_images, "KEDA", Chart("keda", "2.21.0", charts, "keda"))
    monkeypatch.setattr(environment_images, "AUTOSCALER", Chart("cluster-autoscaler", "9.59.0", charts, "kube-system"))
    stack = read("dev", stacks)
    addons = Addons(keda=Presence(presence), cluster_autoscaler=Presence(presence))
    network = stack.environment.network.model_copy(update={"egress": Egress(egress)})
    changed = {"addons": addons, "network": network, "recorder": Recorder(image="example.com/python:3.13")}
    environment = stack.environment.model_copy(update=changed)
    needed = needed_images(replace(stack, environment=environment), directory=stacks)
    of = [each.of for each in needed]
    assert [each.reference for each in needed if each.of == "recorder"] == ["example.com/python:3.13"]
    assert sum("keda" in each or "autoscaler" in each for each in of) == controllers


def test_a_model_needs_its_engine_alone(stacks: Path) -> None:
    (needed,) = needed_images(read("dev-llama-3-1-8b", stacks), directory=stacks)
    assert needed.reference.startswith("vllm/vllm-openai:v0.27.1@sha256:")
    assert needed.architectures == {"amd64"}


def test_a_stacks_images_go_to_its_own_account_and_region(stacks: Path) -> None:
    stack = read("dev-llama-3-1-8b", stacks)
    assert private_registry(stack) == "111122223333.dkr.ecr.us-west-2.amazonaws.com/dev"
    (job,) = mirror_jobs(["dev-llama-3-1-8b"], None, "amd64", directory=stacks)
    assert job.destination == private_registry(stack)


@pytest.mark.parametrize(
    ("source", "target"),
    [
        ("vllm/vllm-openai:v1", "h.example/dev/docker.io/vllm/vllm-openai:v1"),
        ("python:3.12", "h.example/dev/docker.io/library/python:3.12"),
        ("ghcr.io/kedacore/keda:2", "h.example/dev/ghcr.io/kedacore/keda:2"),
        ("localhost:5000/a:1", "h.example/dev/localhost-5000/a:1"),
    ],
)
def test_every_image_has_a_place_of_its_own(source: str, target: str) -> None:
    assert str(target_reference(reference_of(source), "h.example", "dev")) == target


@pytest.mark.parametrize("text", ["", "nodots", "nodots/x", "h.example/UPPER", "https://h.example"])
def test_a_destination_that_is_no_registry(text: str) -> None:
    with pytest.raises(BadInput):
        split_destination(text)


def test_bare_images_need_a_destination(stacks: Path) -> None:
    with pytest.raises(BadInput, match="--to: missing"):
        mirror_jobs(["vllm/vllm-openai:v1"], None, "amd64", directory=stacks)
    with pytest.raises(BadInput, match="Did you mean dev-llama-3-1-8b"):
        mirror_jobs(["dev-lama-3-1-8b"], "h.example", "amd64", directory=stacks)


def test_the_new_place_is_written_into_the_stack_file(stacks: Path, capsys: pytest.CaptureFixture[str]) -> None:
    del capsys
    from scripts.images.mirror import Mirrored  # noqa: PLC0415 - only here

    target = f"111122223333.dkr.ecr.us-west-2.amazonaws.com/dev/docker.io/vllm/vllm-openai:v1@{ENGINE.digest}"
    done = Mirrored(source="x", target=target, of="dev-llama-3-1-8b", there=False, sent_bytes=1, made_repository=True)
    write_places([done], stacks)
    assert read("dev-llama-3-1-8b", stacks).model.image == target


@mock_aws
def test_repositories_are_made_once_immutable_and_scanned(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "testing")
    client = boto3.client("ecr", region_name="us-west-2")
    reference = parse("111122223333.dkr.ecr.us-west-2.amazonaws.com/dev/docker.io/vllm/vllm-openai:v1")
    assert owner_of(reference.registry) == ("111122223333", "us-west-2")
    assert owner_of("ghcr.io") is None
    assert ensure_repository(client, reference, {"stack": "dev"}) is True
    assert ensure_repository(client, reference, {"stack": "dev"}) is False
    (made,) = client.describe_repositories()["repositories"]
    assert made["repositoryName"] == "dev/docker.io/vllm/vllm-openai"
    assert made["imageTagMutability"] == "IMMUTABLE"
    assert made["imageScanningConfiguration"] == {"scanOnPush": True}
    assert client.list_tags_for_resource(resourceArn=made["repositoryArn"])["tags"] == [
        {"Key": "stack", "Value": "dev"}
    ]
