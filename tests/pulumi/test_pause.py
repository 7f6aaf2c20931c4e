"""Pausing and resuming a model that the real engine made: the program knows the state, the sizes come back exactly."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml

from budget.problems import BadInput
from infra.stack_file import read
from scripts.account.session import Clients, sign_in
from scripts.deployed.lazy import LazyBackend
from scripts.extend import extend, later_of
from scripts.failure import Failure
from scripts.gpu_groups import ASLEEP, Sizes, of_environment
from scripts.pause import pause
from scripts.resume import resume
from scripts.targets import Target, target_of
from scripts.waiting import Patience
from tests.pulumi.conftest import ready_to_use, stage
from tests.pulumi.controllers import scale_deployment, scale_nodes, wait_until_ready
from tests.pulumi.workspace import Workspace, copy_of_this_project
from tests.standin.processes import Moto
from tests.toolchain.control_plane import ControlPlane

MODEL = "dev-llama-3-1-8b"
SLUG = "llama-3-1-8b"
SOON = Patience(limit_s=30, every_s=0.05)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory, moto: Moto, plane: ControlPlane) -> Workspace:
    """An environment and a model with an appointment; both stacks are up."""
    folder = tmp_path_factory.mktemp("paused")
    workspace = ready_to_use(Workspace(folder, copy_of_this_project(folder / "project"), moto=moto, plane=plane))
    workspace.edit(MODEL, "model.cost", {"expires_after": "8h"})
    workspace.stack("dev").up()
    stage(workspace, MODEL)
    workspace.stack(MODEL).up()
    return workspace


@pytest.fixture
def stack_files(made: Workspace) -> Path:
    return made.project / "infra" / "stacks"


@pytest.fixture
def backend(made: Workspace, stack_files: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[LazyBackend]:
    """The verbs run in the same world as the engine."""
    for name, value in made.env.items():
        monkeypatch.setenv(name, value)
    backend = LazyBackend(stack_files)
    yield backend
    backend.close()


@pytest.fixture
def clients(made: Workspace, backend: LazyBackend) -> Clients:
    del made, backend
    return sign_in(account="111122223333", region="us-west-2").region("us-west-2")


def target(stack_files: Path, backend: LazyBackend) -> Target:
    return target_of(MODEL, stack_files, backend.state)


def replicas(plane: ControlPlane) -> int:
    deployment = plane.api.get(f"/apis/apps/v1/namespaces/{SLUG}/deployments/{SLUG}")
    assert deployment is not None
    return deployment["spec"]["replicas"]


def annotations(plane: ControlPlane) -> dict[str, str]:
    scaled = plane.api.get(f"/apis/keda.sh/v1alpha1/namespaces/{SLUG}/scaledobjects/{SLUG}")
    assert scaled is not None
    return scaled["metadata"].get("annotations", {})


def start_one(made: Workspace, plane: ControlPlane) -> str:
    """What KEDA and the autoscaler do when there is work; the id of the instance."""
    (group,) = made.stack(MODEL, create=False).outputs()["nodeGroups"]
    scale_deployment(plane.api, SLUG, SLUG, 1)
    (node,) = scale_nodes(made, plane, group, 1)
    wait_until_ready(plane.api, SLUG, SLUG, 1)
    return node["spec"]["providerID"].rpartition("/")[2]


def state_of_file(stack_files: Path) -> Any:
    return yaml.safe_load((stack_files / f"Pulumi.{MODEL}.yaml").read_text())["config"].get("coldstart:paused")


def test_no_preview_shows_a_pause_no_up_ends_it_and_a_resume_restores_the_sizes(
    made: Workspace, plane: ControlPlane, stack_files: Path, backend: LazyBackend, clients: Clients
) -> None:
    instance = start_one(made, plane)
    stack, goal = made.stack(MODEL, create=False), target(stack_files, backend)
    api = backend.api("dev", clients, goal.cluster)
    (before,) = of_environment(clients, "coldstart-dev", "dev")
    assert before.sizes == Sizes(least=0, most=before.sizes.most, desired=1)
    assert before.running == (instance,)
    assert stack.preview().changes == {}

    said: list[str] = []
    done = pause(clients, goal, api, stack_files, say=said.append, patience=SOON)
    assert done.scaled_objects == [f"{SLUG}/{SLUG}"]
    assert done.before.usd_per_hour > 2.24
    assert done.after.usd_per_hour == 0
    (held,) = of_environment(clients, "coldstart-dev", "dev")
    assert held.sizes == ASLEEP
    assert held.running == ()
    assert held.record is not None
    assert held.record.sizes == before.sizes
    assert annotations(plane)["autoscaling.keda.sh/paused-replicas"] == "0"
    assert state_of_file(stack_files) is True
    assert read(MODEL, stack_files).paused

    assert stack.preview().changes == {}
    assert stack.up().changes == {}
    assert stack.up("--refresh").changes == {}, "not even an `up` that looks at the world first"
    # A change that would widen the group, were it not for the hold.
    made.edit(MODEL, "model.scaling.max_replicas", 6)
    wider = stack.up()
    assert set(wider.changes) == {"update"}
    (still,) = of_environment(clients, "coldstart-dev", "dev")
    assert still.sizes == ASLEEP
    assert annotations(plane)["autoscaling.keda.sh/paused-replicas"] == "0"
    made.edit(MODEL, "model.scaling.max_replicas", 4)
    stack.up()

    again = pause(clients, goal, api, stack_files, say=said.append, patience=SOON)
    assert of_environment(clients, "coldstart-dev", "dev") == [still], "a second pause changes nothing"
    assert again.groups[0].had == str(before.sizes), "and still says what it had"

    back = resume(clients, goal, api, stack_files, say=said.append, now=datetime.now(UTC))
    (woken,) = of_environment(clients, "coldstart-dev", "dev")
    assert woken.sizes == before.sizes
    assert woken.record is None
    assert "autoscaling.keda.sh/paused-replicas" not in annotations(plane)
    assert state_of_file(stack_files) is None
    assert back.coming_usd_per_hour == pytest.approx(2.24208)
    assert stack.preview().changes == {}
    assert resume(clients, goal, api, stack_files, say=said.append, now=datetime.now(UTC)).groups == []


def test_a_pause_interrupted_anywhere_is_finished_by_the_next(
    made: Workspace, stack_files: Path, backend: LazyBackend, clients: Clients, monkeypatch: pytest.MonkeyPatch
) -> None:
    goal = target(stack_files, backend)
    api = backend.api("dev", clients, goal.cluster)
    (before,) = of_environment(clients, "coldstart-dev", "dev")
    steps = ["create_or_update_tags", "update_auto_scaling_group"]
    for step in steps:
        with monkeypatch.context() as patch:
            patch.setattr(clients.autoscaling, step, interrupted)
            with pytest.raises(KeyboardInterrupt):
                pause(clients, goal, api, stack_files, say=lambda _: None, patience=SOON)
    pause(clients, goal, api, stack_files, say=lambda _: None, patience=SOON)
    (held,) = of_environment(clients, "coldstart-dev", "dev")
    assert held.sizes == ASLEEP
    assert held.record is not None
    assert held.record.sizes == before.sizes

    for step in ("update_auto_scaling_group", "delete_tags"):
        with monkeypatch.context() as patch:
            patch.setattr(clients.autoscaling, step, interrupted)
            with pytest.raises(KeyboardInterrupt):
                resume(clients, goal, api, stack_files, say=lambda _: None, now=datetime.now(UTC))
    resume(clients, goal, api, stack_files, say=lambda _: None, now=datetime.now(UTC))
    (woken,) = of_environment(clients, "coldstart-dev", "dev")
    assert (woken.sizes, woken.record) == (before.sizes, None)
    assert made.stack(MODEL, create=False).preview().changes == {}


def interrupted(**_: object) -> None:
    raise KeyboardInterrupt


def test_without_a_way_to_the_cluster_the_groups_are_held_all_the_same(
    stack_files: Path, backend: LazyBackend, clients: Clients
) -> None:
    goal = target(stack_files, backend)
    done = pause(clients, goal, None, stack_files, say=lambda _: None, patience=SOON)
    assert done.unheld == "there is no way to the cluster"
    (held,) = of_environment(clients, "coldstart-dev", "dev")
    assert held.sizes == ASLEEP
    half = resume(clients, goal, None, stack_files, say=lambda _: None, now=datetime.now(UTC))
    assert half.held == "there is no way to the cluster"
    assert state_of_file(stack_files) is True, "the mark stays until everything is released"
    resume(
        clients, goal, backend.api("dev", clients, goal.cluster), stack_files, say=lambda _: None, now=datetime.now(UTC)
    )
    assert state_of_file(stack_files) is None


def test_an_environment_stands_for_its_models_and_its_own_nodes_are_never_touched(
    made: Workspace, stack_files: Path, backend: LazyBackend, clients: Clients
) -> None:
    goal = target_of("dev", stack_files, backend.state)
    assert goal.stacks is None
    done = pause(clients, goal, None, stack_files, say=lambda _: None, patience=SOON)
    assert [held.group.stack for held in done.groups] == [MODEL]
    groups = clients.autoscaling.describe_auto_scaling_groups()["AutoScalingGroups"]
    sizes = {group["MaxSize"] for group in groups}
    assert len(groups) == 2
    assert 0 in sizes
    assert max(sizes) > 0, "the system nodes stay"
    resume(
        clients, goal, backend.api("dev", clients, goal.cluster), stack_files, say=lambda _: None, now=datetime.now(UTC)
    )
    assert made.stack("dev", create=False).preview().changes == {}


def test_the_appointment_is_kept_by_aws_and_extend_moves_it(
    made: Workspace, stack_files: Path, backend: LazyBackend, clients: Clients
) -> None:
    goal, now = target(stack_files, backend), datetime.now(UTC)
    (found,) = extend(clients, goal, later_of("4h", None, now))
    assert found.to - found.appointment.at == timedelta(hours=4)
    assert timedelta(hours=7) < found.appointment.at - now < timedelta(hours=8, minutes=1)
    (again,) = extend(clients, goal, later_of(None, "2031-01-01T12:00+01:00", now))
    assert again.to == datetime(2031, 1, 1, 11, tzinfo=UTC)
    schedule = clients.scheduler.get_schedule(Name=again.appointment.name, GroupName=again.appointment.group)
    assert schedule["ScheduleExpression"] == "at(2031-01-01T11:00:00)"
    assert schedule["Target"]["Arn"] == "arn:aws:scheduler:::aws-sdk:autoscaling:updateAutoScalingGroup"
    assert schedule["FlexibleTimeWindow"] == {"Mode": "OFF"}
    assert schedule["Target"]["RetryPolicy"]["MaximumRetryAttempts"] == 185
    (group,) = of_environment(clients, "coldstart-dev", "dev")
    assert yaml.safe_load(schedule["Target"]["Input"]) == {
        "AutoScalingGroupName": group.autoscaling_group,
        "MinSize": 0,
        "MaxSize": 0,
        "DesiredCapacity": 0,
    }
    assert made.stack(MODEL, create=False).preview().changes == {}, "the program leaves a moved appointment alone"
    assert made.stack(MODEL, create=False).up("--refresh").changes == {}


def test_what_expired_is_not_woken_without_a_new_end(stack_files: Path, backend: LazyBackend, clients: Clients) -> None:
    goal = target(stack_files, backend)
    (group,) = of_environment(clients, "coldstart-dev", "dev")
    # What the schedule does when its time has come.
    clients.autoscaling.update_auto_scaling_group(
        AutoScalingGroupName=group.autoscaling_group, MinSize=0, MaxSize=0, DesiredCapacity=0
    )
    api = backend.api("dev", clients, goal.cluster)
    much_later = datetime(2040, 1, 1, tzinfo=UTC)
    with pytest.raises(Failure, match=r"dev-llama-3-1-8b expired at .*\n?.*coldstart extend dev-llama-3-1-8b"):
        resume(clients, goal, api, stack_files, say=lambda _: None, now=much_later)
    (moved,) = extend(clients, goal, later_of("8h", None, much_later))
    assert moved.to == much_later + timedelta(hours=8), "one that has passed is moved from now on"
    (woken,) = resume(clients, goal, api, stack_files, say=lambda _: None, now=much_later).groups
    assert woken.from_settings
    assert woken.sizes == Sizes(least=0, most=group.sizes.most, desired=0)


def test_a_stack_file_that_no_longer_parses_does_not_keep_anybody_paying(
    stack_files: Path, backend: LazyBackend, clients: Clients
) -> None:
    path = stack_files / f"Pulumi.{MODEL}.yaml"
    text = path.read_text()
    try:
        path.write_text(text.replace("coldstart:model:", "coldstart:modle:"))
        goal = target(stack_files, backend)
        assert goal == Target(environment="dev", account="111122223333", region="us-west-2", stacks=frozenset([MODEL]))
        said: list[str] = []
        pause(clients, goal, None, stack_files, say=said.append, patience=SOON)
        (held,) = of_environment(clients, "coldstart-dev", "dev")
        assert held.sizes == ASLEEP
    finally:
        path.write_text(text)
    resume(
        clients, goal, backend.api("dev", clients, goal.cluster), stack_files, say=lambda _: None, now=datetime.now(UTC)
    )


def test_an_unknown_stack_is_bad_input(stack_files: Path, backend: LazyBackend) -> None:
    with pytest.raises(BadInput, match="there is no stack file"):
        target_of("dev-nothing", stack_files, backend.state)
