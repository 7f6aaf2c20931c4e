"""Model stacks on the real engine, each on one environment: a model comes and goes, the environment stays as it is."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.pulumi.conftest import ready_to_use, stage
from tests.pulumi.controllers import NODE_GROUP, scale_deployment, scale_nodes, wait_until_ready
from tests.pulumi.workspace import Outcome, Workspace, copy_of_this_project
from tests.standin.processes import Moto
from tests.toolchain.control_plane import ControlPlane

MODELS = ("dev-llama-3-1-8b", "dev-qwen2-5-0-5b", "dev-qwen3-32b")
TEMPLATE = "aws:ec2/launchTemplate:LaunchTemplate"
GPUS = {"dev-llama-3-1-8b": "1", "dev-qwen2-5-0-5b": "1", "dev-qwen3-32b": "4"}


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory, moto: Moto, plane: ControlPlane) -> Workspace:
    """One environment for all models of this module; its stack is up."""
    folder = tmp_path_factory.mktemp("environment")
    workspace = Workspace(folder, copy_of_this_project(folder / "project"), moto=moto, plane=plane)
    ready_to_use(workspace).stack("dev").up()
    stage(workspace, *MODELS)
    return workspace


@pytest.fixture
def before(environment: Workspace) -> Iterator[None]:
    """What the environment had before the test it has after it, and nothing more."""

    def everything() -> dict[str, Any]:
        return {f"{record.token} {record.id}": record.inputs for record in environment.records.all()}

    had = everything()
    yield
    assert everything() == had
    assert environment.stack("dev").preview().changes == {}


@pytest.mark.usefixtures("before")
@pytest.mark.parametrize("name", MODELS)
def test_a_model_is_created_served_left_alone_and_destroyed(
    environment: Workspace, plane: ControlPlane, name: str
) -> None:
    stack = environment.stack(name)
    previewed = stack.preview()
    made = stack.up()
    assert set(made.changes) == {"create"}
    assert previewed.changes == made.changes
    outputs = stack.outputs()
    namespace = outputs["namespace"]

    (group,) = outputs["nodeGroups"]
    assert scale_nodes(environment, plane, group, 0) == []
    scale_deployment(plane.api, namespace, namespace, 1)
    (node,) = scale_nodes(environment, plane, group, 1)
    (pod,) = wait_until_ready(plane.api, namespace, namespace, 1)
    assert pod["spec"]["nodeName"] == node["metadata"]["name"]
    (engine,) = [container for container in pod["spec"]["containers"] if container["name"] == "engine"]
    assert engine["resources"]["limits"]["nvidia.com/gpu"] == GPUS[name]

    # The size belongs to the autoscaler, the replicas to KEDA: neither is a change, not even once they are seen.
    assert stack.up().changes == {}
    stack.refresh()
    assert stack.up().changes == {}

    assert set(stack.destroy().changes) == {"delete"}
    assert plane.api.get(f"/api/v1/namespaces/{namespace}") is None
    assert plane.api.get(f"/api/v1/nodes/{node['metadata']['name']}") is None


@pytest.mark.usefixtures("before")
def test_a_model_that_is_not_staged_fails_at_preview_with_the_command_to_run(environment: Workspace) -> None:
    name, revision = "dev-llama-3-1-8b", "a" * 40
    stack = environment.stack(name)
    before = environment.project / "infra" / "stacks" / f"Pulumi.{name}.yaml"
    shipped = before.read_text()
    environment.edit(name, "model.revision", revision)
    for outcome in (stack.preview(fails=True), stack.up(fails=True)):
        (said,) = [error for error in outcome.errors if "not staged" in error]
        assert said.strip() == (
            "model.revision: meta-llama/Llama-3.1-8B-Instruct is not staged: there is no s3://coldstart-dev-111122223333-"
            f"us-west-2/manifests/meta-llama/Llama-3.1-8B-Instruct/{revision}.json. Run: coldstart stage {name}"
        )
        assert "Traceback" not in outcome.text
        assert no_workload(outcome)
        assert not any(step.type == NODE_GROUP and step.op == "create" for step in outcome.steps)
    before.write_text(shipped)
    stack.destroy()


@pytest.mark.usefixtures("before")
def test_changes_of_settings_are_made_in_place(environment: Workspace) -> None:
    name = "dev-llama-3-1-8b"
    stack = environment.stack(name)
    stack.up()

    environment.edit(name, "model.scaling.max_replicas", 5)
    more = stack.up()
    assert set(more.changes) == {"update"}
    assert more.step(name, NODE_GROUP).diff == ("scalingConfig.maxSize",)
    assert more.step(f"{name}-scaledobject").diff == ("spec.maxReplicaCount",)

    environment.edit(name, "model.nodes.volume", {"size_gib": 300})
    larger = stack.up()
    assert set(larger.changes) == {"update"}
    assert f"{TEMPLATE} {name}" in larger.changes["update"]
    assert larger.step(name, NODE_GROUP).diff == ("launchTemplate.version",)

    environment.edit(name, "model.engine.context_tokens", 4096)
    shorter = stack.up()
    # The launcher's settings are an immutable object of their own: a new one, and the deployment is moved to it.
    replaced = {op: changes for op, changes in shorter.changes.items() if op != "update"}
    assert all("ConfigMap" in change for changes in replaced.values() for change in changes)
    assert f"kubernetes:apps/v1:Deployment {name}-deployment" in shorter.changes["update"]
    assert not any(change.startswith("aws:") for change in shorter.changes["update"])
    stack.destroy()


@pytest.mark.usefixtures("before")
def test_a_model_without_capacity_is_taken_up_again(environment: Workspace) -> None:
    stack = environment.stack("dev-qwen3-32b")
    capacity = "ResourceLimitExceeded: could not launch: InsufficientInstanceCapacity for g6e.12xlarge in us-west-2b"
    environment.fail("create", capacity, type=NODE_GROUP)
    failed = stack.up(fails=True)
    assert any(capacity in error for error in failed.errors)
    assert no_workload(failed)
    assert set(stack.up().changes) == {"create"}
    assert stack.up().changes == {}
    stack.destroy()


@pytest.mark.usefixtures("before")
def test_settings_can_be_changed_by_the_command_line(environment: Workspace) -> None:
    name = "dev-qwen2-5-0-5b"
    stack = environment.stack(name)
    stack.set_config("coldstart:model.nodes.instance", "g6.2xlarge")
    text = (environment.project / "infra" / "stacks" / f"Pulumi.{name}.yaml").read_text()
    assert "instance: g6.2xlarge" in text
    made = stack.preview()
    assert set(made.changes) == {"create"}


def no_workload(outcome: Outcome) -> bool:
    """Whether nothing was made that waits for nodes."""
    return not any(step.type.startswith("kubernetes:") and step.op == "create" for step in outcome.steps)
