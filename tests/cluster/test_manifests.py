"""What a model stack renders, on a real API server: accepted strictly, admitted, scheduled on a GPU node, Ready."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from moto.ec2.models.instance_types import INSTANCE_TYPES

from infra.specs import ModelSpecs, model_specs
from infra.stack_file import read
from serving.manifests import objects
from serving.placement import GPU_TAINT, MODEL_LABEL
from tests.standin.simulated_nodes import allocatable
from tests.toolchain.control_plane import ControlPlane
from tests.toolchain.kube_api import ApiError, KubeApi
from tests.toolchain.waiting import wait_until

OPTIONS: dict[str, dict[str, Any]] = {
    "spare places": {"scaling.spare_replicas": 1},
    "node cache": {"weights.path": "node-cache"},
    "shared file system": {
        "weights.path": "shared-fs",
        "weights.shared_fs": {
            "driver": "efs.csi.aws.com",
            "throughput_mb_s": 500,
            "volume_handle": "fs-0123456789abcdef0",
        },
    },
    "presharded": {"weights.path": "presharded"},
    "baked": {"weights.path": "baked", "weights.directory": "/models/m"},
    "fallback": {"weights.fallback": ["node-cache"]},
    "API key": {"engine.require_api_key": True},
    "time slicing": {"nodes.gpu_sharing": {"time_slicing": 2}},
    "pod monitor": {"pod_monitor": True},
}
"""What a model may ask for beyond the shipped stacks: each renders other objects."""
MODELS = ("dev-llama-3-1-8b", "dev-qwen2-5-0-5b", "dev-qwen3-32b")
FORBIDDEN = 403
NEEDED_BY_OTHERS = ("Namespace", "ServiceAccount", "PriorityClass")


def specs_of(name: str, stacks: Path, changes: dict[str, Any] | None = None) -> ModelSpecs:
    """The specs of a shipped model stack, with a few settings changed."""
    file = stacks / f"Pulumi.{name}.yaml"
    document = yaml.safe_load(file.read_text(encoding="utf-8"))
    for path, value in (changes or {}).items():
        here, *parts = document["config"]["coldstart:model"], *path.split(".")
        for part in parts[:-1]:
            here = here.setdefault(part, {})
        here[parts[-1]] = value
    file.write_text(yaml.safe_dump(document), encoding="utf-8")
    stack = read(name, stacks)
    assert stack.model is not None
    return model_specs(stack, stack.model)


@pytest.fixture(params=MODELS)
def specs(request: pytest.FixtureRequest, stacks: Path) -> ModelSpecs:
    return specs_of(request.param, stacks)


@pytest.fixture
def manifests(specs: ModelSpecs) -> list[dict[str, Any]]:
    """The rendered objects; one replica is asked for, as KEDA would."""
    rendered = [copy.deepcopy(dict(manifest)) for manifest in objects(specs.serving)]
    for manifest in rendered:
        if manifest["kind"] == "Deployment":
            manifest["spec"]["replicas"] = 1
    return rendered


@pytest.fixture
def nodes(plane: ControlPlane) -> Iterator[None]:
    """Nodes that a test joins go after its pods: a pod without its node lingers until it's collected."""
    yield
    for node in plane.api.items("/api/v1/nodes"):
        plane.api.delete(f"/api/v1/nodes/{node['metadata']['name']}")


@pytest.fixture
def applied(
    plane: ControlPlane,
    specs: ModelSpecs,
    manifests: list[dict[str, Any]],
    nodes: None,  # noqa: ARG001 - ends after this one
) -> Iterator[list[dict[str, Any]]]:
    """The objects on the server; the namespace goes with everything in it."""
    for manifest in manifests:
        plane.api.apply(manifest)
    yield manifests
    remove_namespace(plane.api, specs.serving.namespace)


@pytest.fixture
def gpu_node(plane: ControlPlane, specs: ModelSpecs, nodes: None) -> dict[str, Any]:  # noqa: ARG001 - removes it
    """A node of the model's group, as big as EC2 says that its instance type is."""
    return plane.join_node(
        f"{specs.serving.name}-node",
        labels={MODEL_LABEL: specs.serving.name, "node.kubernetes.io/instance-type": specs.node.instance.name},
        taints=[{"key": GPU_TAINT.key, "value": GPU_TAINT.value, "effect": GPU_TAINT.effect.pod}],
        allocatable=allocatable(INSTANCE_TYPES[specs.node.instance.name]),
    )


def remove_namespace(api: KubeApi, name: str) -> None:
    """Deletes a namespace and waits until it's gone with everything in it."""
    path = f"/api/v1/namespaces/{name}"
    api.delete(path)
    # The namespace's own controller would grant the pods their whole time to end, and look again only after it.
    api.request("DELETE", f"{path}/pods?gracePeriodSeconds=0")
    wait_until(lambda: api.get(path) is None, what=lambda: f"{name} is gone: {api.get(path)}")


def pods(api: KubeApi, specs: ModelSpecs) -> list[dict[str, Any]]:
    """The model's pods."""
    namespace, name = specs.serving.namespace, specs.serving.name
    return api.items(f"/api/v1/namespaces/{namespace}/pods?labelSelector={MODEL_LABEL}={name}")


def deployment_path(specs: ModelSpecs) -> str:
    return f"/apis/apps/v1/namespaces/{specs.serving.namespace}/deployments/{specs.serving.name}"


def test_every_object_is_accepted_strictly(plane: ControlPlane, manifests: list[dict[str, Any]]) -> None:
    accepted(plane.api, manifests)


@pytest.mark.parametrize("option", OPTIONS)
def test_what_an_option_adds_is_accepted_strictly_too(plane: ControlPlane, stacks: Path, option: str) -> None:
    rendered = objects(specs_of("dev-llama-3-1-8b", stacks, OPTIONS[option]).serving)
    accepted(plane.api, [dict(manifest) for manifest in rendered])


def accepted(api: KubeApi, manifests: list[dict[str, Any]]) -> None:
    """Applies what the rest refers to, and asks the server whether it would take the rest and the pods it asks for."""
    needed = [manifest for manifest in manifests if manifest["kind"] in NEEDED_BY_OTHERS]
    for manifest in needed:
        api.apply(manifest)
    for obj in [*manifests, *(pod for manifest in manifests for pod in pods_of(manifest))]:
        answered = api.apply(obj, dry_run=True)
        assert answered["metadata"]["name"] == obj["metadata"]["name"]
    for manifest in reversed(needed):
        if manifest["kind"] == "Namespace":
            remove_namespace(api, manifest["metadata"]["name"])
        elif "namespace" not in manifest["metadata"]:
            api.delete(api.path_of(manifest))


def pods_of(manifest: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The pod that a workload would make: Pod Security refuses pods, not what makes them."""
    template = manifest.get("spec", {}).get("template")
    if template is None:
        return
    about = {part: manifest["metadata"][part] for part in ("name", "namespace")}
    yield {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {**template.get("metadata", {}), **about},
        "spec": template["spec"],
    }


def test_a_misspelt_field_is_refused(
    plane: ControlPlane, applied: list[dict[str, Any]], manifests: list[dict[str, Any]]
) -> None:
    (deployment,) = [manifest for manifest in manifests if manifest["kind"] == "Deployment"]
    wrong = copy.deepcopy(deployment)
    wrong["spec"]["template"]["spec"]["containers"][0]["startUpProbe"] = {}
    with pytest.raises(ApiError, match="startUpProbe: field not declared in schema"):
        plane.api.apply(wrong, dry_run=True)
    (scaled,) = [manifest for manifest in applied if manifest["kind"] == "ScaledObject"]
    wrong = copy.deepcopy(scaled)
    wrong["spec"]["maxReplicaCount"] = "many"
    with pytest.raises(ApiError, match="maxReplicaCount"):
        plane.api.apply(wrong, dry_run=True)


@pytest.mark.usefixtures("applied")
def test_the_namespace_admits_restricted_pods_only(plane: ControlPlane, specs: ModelSpecs) -> None:
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "root", "namespace": specs.serving.namespace},
        "spec": {"containers": [{"name": "shell", "image": "busybox"}], "hostNetwork": True},
    }
    with pytest.raises(ApiError, match=r'violates PodSecurity "restricted:latest": host namespaces') as refused:
        plane.api.apply(pod, dry_run=True)
    assert refused.value.code == FORBIDDEN


@pytest.fixture
def plain_node(plane: ControlPlane, nodes: None) -> None:  # noqa: ARG001 - removes it
    """A large node without a GPU."""
    plane.join_node("plain", allocatable={"cpu": "96", "memory": "1000Gi"})


@pytest.mark.usefixtures("applied", "plain_node")
def test_the_deployment_waits_for_a_gpu_node_and_is_ready_on_it(
    plane: ControlPlane, specs: ModelSpecs, request: pytest.FixtureRequest
) -> None:
    def unschedulable() -> str:
        conditions = [each for pod in pods(plane.api, specs) for each in pod["status"].get("conditions", [])]
        return next((each["message"] for each in conditions if each.get("reason") == "Unschedulable"), "")

    # Not for its size: the pod wants a node of its model.
    wait_until(
        lambda: "didn't match Pod's node affinity/selector" in unschedulable(),
        what=lambda: f"the scheduler refuses the plain node: {unschedulable()}",
    )
    node = request.getfixturevalue("gpu_node")
    path = deployment_path(specs)
    wait_until(
        lambda: plane.api.get(path)["status"].get("readyReplicas") == 1,
        what=lambda: f"the deployment is Ready; {unschedulable()}",
        patience_s=30,
    )
    (pod,) = pods(plane.api, specs)
    assert pod["spec"]["nodeName"] == node["metadata"]["name"]


@pytest.mark.usefixtures("applied", "gpu_node")
def test_a_second_replica_does_not_fit_on_the_same_node(plane: ControlPlane, specs: ModelSpecs) -> None:
    plane.api.request(
        "PATCH",
        f"{deployment_path(specs)}/scale",
        body={"spec": {"replicas": 2}},
        headers={"Content-Type": "application/merge-patch+json"},
    )

    def waiting() -> list[str]:
        conditions = [each for pod in pods(plane.api, specs) for each in pod["status"].get("conditions", [])]
        return [each["message"] for each in conditions if each.get("reason") == "Unschedulable"]

    wait_until(
        lambda: len(waiting()) == 1 and "Insufficient nvidia.com/gpu" in waiting()[0],
        what=lambda: f"one pod waits for a GPU: {waiting()}",
    )


@pytest.mark.usefixtures("applied")
def test_the_service_and_the_budget_select_the_pods(plane: ControlPlane, specs: ModelSpecs) -> None:
    namespace, name = specs.serving.namespace, specs.serving.name
    template = plane.api.get(deployment_path(specs))["spec"]["template"]["metadata"]["labels"]
    service = plane.api.get(f"/api/v1/namespaces/{namespace}/services/{name}")
    budget = plane.api.get(f"/apis/policy/v1/namespaces/{namespace}/poddisruptionbudgets/{name}")
    assert service["spec"]["selector"].items() <= template.items()
    assert budget["spec"]["selector"]["matchLabels"].items() <= template.items()
