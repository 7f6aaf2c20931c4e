"""Each way to the weights: the objects it needs, what the launcher is told, and what is restricted."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

from budget.scenario import Scenario
from infra.forecast import scenario
from infra.offline import evaluate
from infra.specs import ModelSpecs, model_specs
from infra.stack_file import read
from serving.launcher.config import Config
from serving.manifests import launcher_config, objects
from serving.weights import NODE_CACHE_HOST_DIR, NODE_CACHE_MOUNT, SHARED_FS_MOUNT
from tests.unit.infra.changed_stacks import change

SHARED = {"driver": "fsx.csi.aws.com", "volume_handle": "fs-0123456789abcdef0", "throughput_mb_s": 500}
PATHS: dict[str, dict[str, Any]] = {
    "stream": {"path": "stream"},
    "node-cache": {"path": "node-cache", "fallback": ["stream"]},
    "shared-fs": {"path": "shared-fs", "fallback": ["stream"], "shared_fs": SHARED},
    "baked": {"path": "baked"},
    "presharded": {"path": "presharded"},
}
CUSTOM = ("ScaledObject", "PodMonitor")


@pytest.fixture
def specs_of(stacks: Path) -> Any:
    def make(path: str, **more: Any) -> ModelSpecs:
        name = "dev-qwen3-32b" if path == "presharded" else "dev-llama-3-1-8b"
        file = stacks / f"Pulumi.{name}.yaml"
        document = yaml.safe_load(file.read_text(encoding="utf-8"))
        document["config"]["coldstart:model"] |= {"weights": PATHS[path]} | more
        file.write_text(yaml.safe_dump(document), encoding="utf-8")
        stack = read(name, stacks)
        assert stack.model is not None
        evaluate(name, directory=stacks)
        return model_specs(stack, stack.model)

    return make


@pytest.mark.parametrize("path", PATHS)
def test_every_object_is_valid_and_the_launcher_accepts_its_configuration(specs_of: Any, path: str) -> None:
    specs = specs_of(path)
    for manifest in objects(specs.serving):
        if manifest["kind"] not in CUSTOM:
            kubernetes_validate.validate(dict(manifest), "1.35", strict=True)
    config = launcher_config(specs.serving)
    Config.from_json(config)
    assert [entry["kind"] for entry in config["weights"]["paths"]] == [
        PATHS[path]["path"],
        *PATHS[path].get("fallback", []),
    ]


def kinds(specs: ModelSpecs) -> list[str]:
    return [manifest["kind"] for manifest in objects(specs.serving)]


def the(specs: ModelSpecs, kind: str, name: str = "") -> dict[str, Any]:
    (found,) = (
        dict(manifest)
        for manifest in objects(specs.serving)
        if manifest["kind"] == kind and manifest["metadata"]["name"].endswith(name)
    )
    return found


def engine_pod(specs: ModelSpecs) -> dict[str, Any]:
    return the(specs, "Deployment", specs.serving.name)["spec"]["template"]["spec"]


def test_the_node_cache_is_a_claim_of_the_pod_and_a_host_path_of_the_node_alone(specs_of: Any) -> None:
    specs = specs_of("node-cache")
    pod = engine_pod(specs)
    assert {"name": "node-cache", "mountPath": NODE_CACHE_MOUNT} in pod["containers"][0]["volumeMounts"]
    assert not any("hostPath" in volume for volume in pod["volumes"])
    volume = the(specs, "PersistentVolume")
    assert volume["spec"]["hostPath"] == {"path": NODE_CACHE_HOST_DIR, "type": "Directory"}
    assert volume["spec"]["claimRef"] == {
        "name": the(specs, "PersistentVolumeClaim")["metadata"]["name"],
        "namespace": specs.serving.namespace,
    }


def test_the_one_that_prepares_the_node_has_a_namespace_of_its_own_and_no_more_power_than_it_needs(
    specs_of: Any,
) -> None:
    specs = specs_of("node-cache")
    daemon = the(specs, "DaemonSet")
    assert daemon["metadata"]["namespace"] != specs.serving.namespace
    (prepare,) = daemon["spec"]["template"]["spec"]["initContainers"]
    assert prepare["securityContext"]["capabilities"] == {"drop": ["ALL"], "add": ["CHOWN", "FOWNER"]}
    assert "privileged" not in prepare["securityContext"]
    (wait,) = daemon["spec"]["template"]["spec"]["containers"]
    assert wait["securityContext"]["runAsNonRoot"] is True
    assert wait["image"] == specs.serving.image


def test_a_shared_file_system_is_read_by_pods_and_written_by_one_job(specs_of: Any) -> None:
    specs = specs_of("shared-fs")
    mount = {"name": "models", "mountPath": SHARED_FS_MOUNT, "readOnly": True}
    assert mount in engine_pod(specs)["containers"][0]["volumeMounts"]
    job = the(specs, "Job")["spec"]["template"]["spec"]
    assert {"name": "models", "mountPath": SHARED_FS_MOUNT} in job["containers"][0]["volumeMounts"]
    command = job["containers"][0]["command"]
    assert command[command.index("--dir") + 1] == f"{SHARED_FS_MOUNT}/{specs.staged.prefix.rstrip('/')}"
    assert job["serviceAccountName"] == specs.serving.name
    assert "tolerations" not in job


@pytest.mark.parametrize("path", ["stream", "baked", "presharded"])
def test_other_paths_need_nothing_besides_the_pod(specs_of: Any, path: str) -> None:
    assert not {"PersistentVolume", "DaemonSet", "Job"} & set(kinds(specs_of(path)))


def test_memory_is_that_of_the_hungriest_path(specs_of: Any) -> None:
    baked, stream = specs_of("baked").serving.memory_bytes, specs_of("stream").serving.memory_bytes
    with_fallback = specs_of("node-cache").serving.memory_bytes
    assert baked < stream <= with_fallback


@pytest.mark.parametrize("asked", [{}, {"distributed": False}])
def test_presharded_bytes_are_read_once_and_each_rank_has_its_buffer(stacks: Path, asked: dict[str, Any]) -> None:
    def found(weights: dict[str, Any]) -> tuple[ModelSpecs, Scenario]:
        change(stacks, "dev-qwen3-32b", {"model.weights": weights, "model.engine.version": "0.33.0"})
        stack = read("dev-qwen3-32b", stacks)
        assert stack.model is not None
        specs = model_specs(stack, stack.model)
        return specs, scenario(stack, stack.model, specs.node)

    (shared, _), (presharded, predicted) = found({"path": "stream"}), found({"path": "presharded", **asked})
    assert shared.serving.engine.distributed
    assert not presharded.serving.engine.distributed
    assert presharded.serving.memory_bytes > shared.serving.memory_bytes
    assert predicted.weights.distributed


def test_compile_artefacts_are_kept_under_a_key_of_image_gpu_and_model(specs_of: Any) -> None:
    specs = specs_of("stream")
    cache = launcher_config(specs.serving)["compile_cache"]
    assert cache["uri"] == f"s3://{specs.bucket}/cache/meta-llama/Llama-3.1-8B-Instruct/"
    assert cache["key"]["image"].startswith("sha256:")
    assert cache["key"]["gpu"] == "L40S"
    assert cache["key"]["model"] == specs.serving.engine.weights_uri
    assert not any("startup_plan" in name for name in cache["include"])


@pytest.mark.parametrize("more", [{"profile": "dev"}, {"engine": {"compile_cache": False}}])
def test_no_cache_is_kept_where_nothing_is_compiled_or_nobody_wants_it(specs_of: Any, more: dict[str, Any]) -> None:
    assert launcher_config(specs_of("stream", **more).serving)["compile_cache"] is None


def test_spare_places_yield_to_replicas_and_are_paid_for(specs_of: Any) -> None:
    without = specs_of("stream")
    scaling = {"min_replicas": 1, "max_replicas": 4, "spare_replicas": 2}
    specs = specs_of("stream", scaling=scaling)
    priority = the(specs, "PriorityClass")
    spare = the(specs, "Deployment", "-spare")
    assert priority["value"] < 0
    assert spare["spec"]["replicas"] == 2
    pod = spare["spec"]["template"]["spec"]
    assert pod["priorityClassName"] == priority["metadata"]["name"]
    assert pod["containers"][0]["resources"]["requests"]["nvidia.com/gpu"] == "1"
    assert specs.max_nodes == without.max_nodes + 2
    selector = the(specs, "Deployment", specs.serving.name)["spec"]["selector"]["matchLabels"]
    assert not selector.items() <= spare["spec"]["template"]["metadata"]["labels"].items(), (
        "the Service must not find it"
    )


def test_a_pod_monitor_names_both_metric_ports(specs_of: Any) -> None:
    monitor = the(specs_of("stream", pod_monitor=True), "PodMonitor")
    assert [endpoint["port"] for endpoint in monitor["spec"]["podMetricsEndpoints"]] == ["launcher", "http"]
