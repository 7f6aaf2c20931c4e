"""Whatever settings are accepted, what follows from them holds together."""

from __future__ import annotations

import ipaddress
import json
import tomllib
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from budget.instances import instances
from budget.memory import allocatable_memory_bytes
from budget.models import known_models
from budget.problems import BadInput
from infra.network import subnets
from infra.offline import evaluate
from infra.rules import check
from infra.specs import model_specs
from infra.stack_file import PROJECT, Stack, parse
from nodeconfig.bottlerocket import check_mergeable, user_data
from nodeconfig.storage import BOUND_DIRECTORIES
from serving.manifests import objects
from serving.placement import GPU_TAINT

GPU_TYPES = sorted(name for name, instance in instances().items() if instance.gpus)
IMAGE = "vllm/vllm-openai:v0.27.1@sha256:" + "a" * 64
ENVIRONMENT = {"region": "us-west-2", "account": "111122223333", "owner": "tests"}


def optional(**fields: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    return st.fixed_dictionaries({}, optional=fields)


@st.composite
def models(draw: st.DrawFn) -> dict[str, Any]:
    """A model's settings, mostly acceptable: types are right, combinations may not be."""
    most = draw(st.integers(1, 9))
    return {
        "environment": "dev",
        "source": draw(st.sampled_from(sorted(known_models()))),
        "revision": draw(st.sampled_from([None, "b" * 40])),
        "image": IMAGE,
        "profile": draw(st.sampled_from(["production", "dev"])),
        "nodes": {
            "instance": draw(st.sampled_from(GPU_TYPES)),
            "capacity": draw(st.sampled_from(["on-demand", "spot"])),
            "disk": draw(st.sampled_from(["auto", "ebs"])),
            "group_per_zone": draw(st.booleans()),
            "gpu_sharing": draw(
                st.sampled_from([{}, {}, {"time_slicing": 4}, {"mig_profile": "3"}, {"mig_profile": "3g.40gb"}])
            ),
            "soci": draw(optional(max_concurrent_downloads=st.integers(1, 40), chunk_mib=st.integers(1, 64))),
            "volume": draw(st.sampled_from([{}, {"size_gib": 300, "iops": 16_000}, {"kind": "io2", "iops": 20_000}])),
        },
        "engine": {
            "tensor_parallel": draw(st.sampled_from([None, 1, 2, 4, 8])),
            "context_tokens": draw(st.sampled_from([1024, 8192])),
            "concurrency": draw(st.integers(1, 256)),
            "gpu_memory_utilization": draw(st.sampled_from([0.22, 0.9, 0.9])),
        },
        "scaling": {"min_replicas": draw(st.integers(1, most)), "max_replicas": most},
    }


def accepted(model: dict[str, Any], directory: Path) -> Stack:
    (directory / "Pulumi.dev.yaml").write_text(json.dumps({"config": {f"{PROJECT}:environment": ENVIRONMENT}}))
    stack = parse("dev-any", {f"{PROJECT}:model": model}, directory)
    try:
        check(stack)
    except BadInput:
        assume(condition=False)
    return stack


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("stacks")


@given(model=models())
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.filter_too_much, HealthCheck.too_slow])
def test_node_and_pod_fit_each_other(model: dict[str, Any], directory: Path) -> None:
    stack = accepted(model, directory)
    assert stack.model is not None
    specs = model_specs(stack, stack.model)
    instance, serving = specs.node.instance, specs.serving

    document = check_mergeable(user_data(specs.node))
    assert document == tomllib.loads(user_data(specs.node))
    commands = document["settings"].get("bootstrap-commands", {}).get("coldstart-storage", {}).get("commands")
    if specs.node.storage.kind == "nvme":
        assert instance.nvme_disks
        assert sorted(commands[1][4:]) == sorted(BOUND_DIRECTORIES)
    else:
        assert commands is None

    sliced = specs.node.sharing.pods_per_gpu(instance)
    assert (specs.node.sharing.time_slicing or 1) * stack.model.engine.gpu_memory_utilization <= 1
    assert serving.gpus * specs.pods_per_node <= instance.kubernetes_gpus * sliced
    assert serving.memory_bytes * specs.pods_per_node <= allocatable_memory_bytes(instance)
    assert serving.cpu_millicores * specs.pods_per_node < instance.vcpu * 1000
    assert specs.max_nodes * specs.pods_per_node >= stack.model.scaling.max_replicas
    assert serving.scaling.cooldown_s > specs.slowest_start_s

    for manifest in objects(serving):
        if manifest["kind"] != "ScaledObject":
            kubernetes_validate.validate(dict(manifest), "1.35", strict=True)
        if manifest["kind"] == "Deployment":
            pod = manifest["spec"]["template"]["spec"]
            assert pod["tolerations"] == [GPU_TAINT.toleration()]
            assert pod["nodeSelector"].items() <= manifest["spec"]["template"]["metadata"]["labels"].items()


@given(model=models())
@settings(max_examples=8, deadline=None, suppress_health_check=[HealthCheck.filter_too_much, HealthCheck.too_slow])
def test_the_program_evaluates_both_ways(model: dict[str, Any], directory: Path) -> None:
    accepted(model, directory)
    path = directory / "Pulumi.dev-any.yaml"
    path.write_text(json.dumps({"config": {f"{PROJECT}:model": model}}))
    up = evaluate("dev-any", directory=directory, mode="up")
    preview = evaluate("dev-any", directory=directory, mode="preview")
    assert [resource.urn for resource in up.resources] == [resource.urn for resource in preview.resources]
    groups = up.of_type(":NodeGroup")
    taints = [group.inputs["taints"] for group in groups if group.custom]
    assert all(taint == [{"key": "nvidia.com/gpu", "value": "present", "effect": "NO_SCHEDULE"}] for taint in taints)


@given(
    prefix=st.integers(16, 20),
    zones=st.integers(2, 4),
    host=st.integers(0, 2**24 - 1),
)
def test_subnets_never_overlap_and_stay_inside(prefix: int, zones: int, host: int) -> None:
    vpc = ipaddress.ip_network((ipaddress.ip_address("10.0.0.0") + host, prefix), strict=False)
    plan = subnets(str(vpc), zones)
    networks = [ipaddress.ip_network(text) for text in (*plan.private, *plan.public)]
    assert len(networks) == 2 * zones
    assert all(network.subnet_of(vpc) for network in networks)
    assert not any(a.overlaps(b) for index, a in enumerate(networks) for b in networks[index + 1 :])
    assert all(network.num_addresses >= 512 for network in networks[:zones])
