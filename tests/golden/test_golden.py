"""What people review as files: user data per node, manifests, IAM documents and URNs per stack.

`make golden` writes them again; the diff is then read like any other change.
"""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path

import pytest
import yaml

from budget.instances import instance
from budget.problems import BadInput
from infra.specs import model_specs
from infra.stack_file import read
from nodeconfig.bottlerocket import user_data
from scripts.render import Rendering, rendering, yaml_text
from serving.manifests import launcher_source

HERE = Path(__file__).parent
STACKS = ("dev", "dev-llama-3-1-8b", "dev-qwen2-5-0-5b", "dev-qwen3-32b")
MODELS = STACKS[1:]
NODES = {
    "g6e.2xlarge": {},  # slow EBS, so NVMe
    "g6e.4xlarge": {},
    "g5.12xlarge": {"engine": {"tensor_parallel": 4}},
    "p5.48xlarge": {"engine": {"tensor_parallel": 8}},
    "g6e.4xlarge on EBS": {"nodes": {"disk": "ebs"}},
    "g6e.4xlarge without egress": {},
    "p5.48xlarge with MIG": {"nodes": {"gpu_sharing": {"mig_profile": "1g.10gb"}}, "engine": {"tensor_parallel": 1}},
}


@cache
def shipped(name: str) -> Rendering:
    return rendering(name)


def compare(request: pytest.FixtureRequest, name: str, text: str) -> None:
    path = HERE / name
    if request.config.getoption("--update-golden"):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    assert path.is_file(), f"{path} is missing: make golden"
    assert text == path.read_text(encoding="utf-8")


def node_stack(directory: Path, case: str) -> str:
    """The shipped Llama stack on another node."""
    path = directory / "Pulumi.dev-llama-3-1-8b.yaml"
    document = yaml.safe_load(path.read_text(encoding="utf-8"))
    model = document["config"]["coldstart:model"]
    model["nodes"] = {"instance": case.split(maxsplit=1)[0]} | NODES[case].get("nodes", {})
    model["engine"] = NODES[case].get("engine", {})
    path.write_text(yaml.safe_dump(document), encoding="utf-8")
    if "without egress" in case:
        environment = directory / "Pulumi.dev.yaml"
        document = yaml.safe_load(environment.read_text(encoding="utf-8"))
        document["config"]["coldstart:environment"] |= {
            "network": {"egress": "none"},
            "addons": {"keda": "present", "cluster_autoscaler": "present"},
        }
        environment.write_text(yaml.safe_dump(document), encoding="utf-8")
    return "dev-llama-3-1-8b"


@pytest.mark.parametrize("case", NODES)
def test_user_data(request: pytest.FixtureRequest, stacks: Path, case: str) -> None:
    stack = read(node_stack(stacks, case), stacks)
    assert stack.model is not None
    specs = model_specs(stack, stack.model)
    assert specs.node.instance == instance(case.split(maxsplit=1)[0])
    compare(request, f"user-data/{case.replace(' ', '-')}.toml", user_data(specs.node))


@pytest.mark.parametrize("name", MODELS)
def test_manifests(request: pytest.FixtureRequest, name: str) -> None:
    """The launcher has its own tests: its text, and the name that follows from it, would only hide other changes."""
    config_map = next(text for path, text in shipped(name).files.items() if path.endswith("configmap.yaml"))
    document = yaml.safe_load(config_map)
    assert document["data"].pop("launch.py") == launcher_source()
    hashed = document["metadata"]["name"]
    for path, text in shipped(name).files.items():
        if path.startswith("kubernetes/"):
            shown = yaml_text(document) if text == config_map else text
            compare(request, f"manifests/{name}/{Path(path).name}", shown.replace(hashed, f"{name}-HASH"))


@pytest.mark.parametrize("name", STACKS)
def test_iam_documents(request: pytest.FixtureRequest, name: str) -> None:
    found = {path: text for path, text in shipped(name).files.items() if path.startswith("iam/")}
    assert found
    for path, text in found.items():
        assert json.loads(text)["Version"] == "2012-10-17"
        compare(request, f"iam/{name}/{Path(path).name}", text)


@pytest.mark.parametrize("name", STACKS)
def test_urns(request: pytest.FixtureRequest, name: str) -> None:
    """A URN that changes is a resource that is destroyed and made again: the list changes on purpose only."""
    urns = "".join(f"{resource.urn}\n" for resource in shipped(name).evaluation.resources)
    compare(request, f"urns/{name}.txt", urns)


def test_an_unknown_stack_has_no_rendering() -> None:
    with pytest.raises(BadInput, match="there is no stack file"):
        rendering("dev-nothing")
