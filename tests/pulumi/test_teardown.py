"""Tearing down on the real engine: in order, around what others have, and through every fault to the same end."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator

import pytest

from budget.problems import BadInput
from scripts import teardown as verb
from scripts.account.session import Account, sign_in
from scripts.account.standing import Standing
from scripts.cluster.access import Access
from scripts.cluster.api import Server
from scripts.deployed.backend import Backend
from scripts.failure import Failure
from scripts.teardown import Teardown, plan_document, planned, proof
from scripts.waiting import TimedOut
from tests.aws.account.front import Front
from tests.aws.account.lacking import answer_for_moto
from tests.pulumi.populated_account import BUCKET, MODEL, World
from tests.pulumi.whole_account import everything
from tests.pulumi.workspace import Workspace
from tests.standin.faults import Fault
from tests.toolchain.control_plane import ControlPlane
from tests.toolchain.waiting import wait_until

PATIENCE_ASKED = Fault(
    operation="delete",
    type="aws:ec2/natGateway:NatGateway",
    kind="throttling",
    error="RequestLimitExceeded: Request limit exceeded.",
    times=2,
)
VIOLATION = Fault(
    operation="delete",
    type="aws:ec2/securityGroup:SecurityGroup",
    error="DeleteSecurityGroup: DependencyViolation: resource sg-1 has a dependent object",
)
NO_SUCH_GROUP = Fault(
    operation="delete",
    type="aws:autoscaling/tag:Tag",
    error="deleting AutoScaling Group tag: operation error Auto Scaling: DeleteTags, https response error StatusCode: "
    "400, api error ValidationError: AutoScalingGroup name not found - AutoScalingGroup eks-x not found",
    times=99,
)
"""What the provider passes on of a tag whose group is gone."""


@pytest.fixture
def world(workspace: Workspace, plane: ControlPlane, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    """The verbs run in the engine's world, behind a front that answers for what moto lacks."""
    with Front.before(workspace.moto.endpoint) as front:
        answer_for_moto(front)
        workspace.env["AWS_ENDPOINT_URL"] = front.endpoint
        for name, value in workspace.env.items():
            monkeypatch.setenv(name, value)
        yield World(workspace, plane)


@pytest.fixture
def backend(world: World) -> Iterator[Backend]:
    backend = Backend(world.stack_files)
    yield backend
    backend.close()


@pytest.fixture
def account(world: World) -> Account:
    del world
    return sign_in(account="111122223333", region="us-west-2")


def plan_of(world: World, backend: Backend, name: str, *, with_models: bool = True, purge: bool = False) -> Teardown:
    return planned(name, backend, world.stack_files, with_models=with_models, purge=purge)


def deleted(world: World, token: str, name: str = "") -> list[int]:
    """Positions in the journal at which things of a type were gone; `name` is a part of their names."""
    return [
        position
        for position, entry in enumerate(world.workspace.journal())
        if entry["operation"] == "delete" and entry["type"] == token and name in entry["name"]
    ]


def test_an_environment_with_its_model_goes_in_order_and_proves_it(
    world: World, backend: Backend, account: Account
) -> None:
    world.start_a_replica()
    with pytest.raises(BadInput, match=f"dev: has models on it: {MODEL}"):
        plan_of(world, backend, "dev", with_models=False)
    plan = plan_of(world, backend, "dev")
    assert [state.stack for state in plan.states] == [MODEL, "dev"]

    before = everything(world.cloud)
    dry = plan_document(plan, proof(plan, account, backend, world.stack_files))
    assert everything(world.cloud) == before, "a dry run changes nothing"
    assert dry["stacks"][0]["resources"]["aws:eks/nodeGroup:NodeGroup"] == 1
    assert [urn.rpartition("::")[2] for urn in dry["stacks"][1]["kept"]].count("dev-weights") == 6
    assert dry["now"]["totals"]["live"]["usd_per_hour"] > 2.24

    world.down(plan, account, backend)
    assert everything(world.cloud) == world.theirs | {("bucket", BUCKET)}
    nodes = deleted(world, "aws:eks/nodeGroup:NodeGroup")
    # Add-ons that run on nodes go before them, those that nodes stand on after them.
    on_nodes, under_nodes = (deleted(world, "aws:eks/addon:Addon", name) for name in ("-after-", "-before-"))
    (cluster,) = deleted(world, "aws:eks/cluster:Cluster")
    endpoints = deleted(world, "aws:ec2/vpcEndpoint:VpcEndpoint")
    assert max(on_nodes) < max(nodes) < min(under_nodes) < max(under_nodes) < cluster < min(endpoints)
    (vpc,) = deleted(world, "aws:ec2/vpc:Vpc")
    assert vpc > max(endpoints)

    after = proof(plan, account, backend, world.stack_files)
    assert not after.leaks
    assert not after.of(Standing.LIVE)
    assert [thing.found.id for thing in after.of(Standing.KEPT)] == [BUCKET]
    world.down(plan_of(world, backend, "dev"), account, backend)
    assert everything(world.cloud) == world.theirs | {("bucket", BUCKET)}, "a second teardown finds nothing to do"

    world.down(plan_of(world, backend, "dev", purge=True), account, backend)
    assert everything(world.cloud) == world.theirs


def test_a_model_goes_alone(world: World, backend: Backend, account: Account) -> None:
    before = set(world.workspace.stack("dev", create=False).state())
    plan = plan_of(world, backend, MODEL)
    assert [state.stack for state in plan.states] == [MODEL]
    world.down(plan, account, backend)
    assert set(world.workspace.stack("dev", create=False).state()) == before
    assert not backend.state(MODEL).live
    assert world.workspace.stack("dev", create=False).preview().changes == {}
    assert not proof(plan, account, backend, world.stack_files).things


def test_through_every_fault_to_the_same_end(
    world: World, backend: Backend, account: Account, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One teardown that fails at every stage in another way, run again each time."""
    world.start_a_replica()
    world.expose()
    world.leak()

    def run_into(error: type[Exception], words: str) -> None:
        with pytest.raises(error, match=words):
            world.down(plan_of(world, backend, "dev"), account, backend)

    with monkeypatch.context() as patch:
        nowhere = Access(
            cluster="c", endpoint="https://127.0.0.1:9", certificate_authority=authority(world), region="r"
        )
        patch.setattr(verb, "_api", lambda *_: Server(nowhere))
        run_into(Failure, r"(?s)does not answer.*EKS says that coldstart-dev is there.*--cluster-gone")

    run_into(
        TimedOut, r"(?s)Service llama-3-1-8b/front: finalizer service.kubernetes.io/load-balancer-cleanup.*to go on"
    )
    world.controller_comes_back()

    denied = "DeleteNodegroup: AccessDeniedException: not authorized to perform eks:DeleteNodegroup"
    world.workspace.fail("delete", denied, type="aws:eks/nodeGroup:NodeGroup", name="llama")
    run_into(Failure, "AccessDeniedException")

    kill_in_the_middle(world, "aws:eks/nodeGroup:NodeGroup")
    world.workspace.faults.plan([PATIENCE_ASKED, VIOLATION])
    run_into(Failure, r"(?s)DependencyViolation.*to go on")
    assert any("no longer runs: taking its lock away" in line for line in world.said)
    assert world.workspace.journal("throttled"), "throttling is sat out by the engine itself"

    world.down(plan_of(world, backend, "dev"), account, backend)
    assert everything(world.cloud) == world.theirs | {("bucket", BUCKET)}
    assert not proof(plan_of(world, backend, "dev"), account, backend, world.stack_files).leaks


def authority(world: World) -> str:
    return world.plane.api.certificate_authority_data


def kill_in_the_middle(world: World, token: str) -> None:
    """Runs the verb as a person does, and kills it with all its children while something of a type is being deleted."""
    environment = {**world.workspace.env, "PYTHONPATH": str(world.workspace.project)}
    slow = Fault(operation="delete", type=token, kind="throttling", error="Throttling: Rate exceeded", times=10_000)
    world.workspace.faults.plan([slow])
    verb_of_a_person = ["-c", "from scripts.cli import main; main()", "teardown", "dev", "--with-models", "--yes"]
    with (world.workspace.folder / "killed.log").open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, "-W", "ignore", *verb_of_a_person],
            cwd=world.workspace.project,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=log,
            start_new_session=True,
        )
    try:
        wait_until(
            lambda: process.poll() is not None or any(e["type"] == token for e in world.workspace.journal("throttled")),
            what=lambda: f"deleting {token}:\n" + (world.workspace.folder / "killed.log").read_text()[-3000:],
            patience_s=240,
        )
        assert process.poll() is None, (world.workspace.folder / "killed.log").read_text()
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    world.workspace.faults.plan([])


def test_the_stack_file_and_the_cluster_may_be_gone_already(world: World, backend: Backend, account: Account) -> None:
    for name in ("dev", MODEL):
        path = world.stack_files / f"Pulumi.{name}.yaml"
        path.write_text(path.read_text() + "  - : [\n")
    cluster_by_hand(world)
    world.workspace.faults.plan([NO_SUCH_GROUP])
    plan = plan_of(world, backend, "dev")
    assert (plan.account, plan.region, plan.environment) == ("111122223333", "us-west-2", "dev")
    world.down(plan, account, backend)
    assert everything(world.cloud) == world.theirs | {("bucket", BUCKET)}
    assert not deleted(world, NO_SUCH_GROUP.type), "no call ever deletes these: they are gone, and are forgotten"
    refused = [entry for entry in world.workspace.journal("failed") if entry["type"] == NO_SUCH_GROUP.type]
    assert len(refused) == len({entry["name"] for entry in refused}) > 1, "each was tried once"
    assert "asking whether what could not be deleted is still there" in world.said
    assert not proof(plan, account, backend, world.stack_files).leaks


def cluster_by_hand(world: World) -> None:
    """Somebody deletes the cluster: with its node groups, as EKS insists on, and what EKS made for each of those."""
    for group in world.cloud.call("eks.ListNodegroups", {"clusterName": "coldstart-dev"})["nodegroups"]:
        named = {"clusterName": "coldstart-dev", "nodegroupName": group}
        made = world.cloud.call("eks.DescribeNodegroup", named)["nodegroup"]["resources"]["autoScalingGroups"]
        world.cloud.call("eks.DeleteNodegroup", named)
        for each in made:
            gone = {"AutoScalingGroupName": each["name"], "ForceDelete": True}
            world.cloud.call("autoscaling.DeleteAutoScalingGroup", gone)
            world.cloud.call("ec2.DeleteLaunchTemplate", {"LaunchTemplateName": each["name"]})
    for record in world.workspace.aws("aws:eks/nodeGroup:NodeGroup"):
        world.workspace.records.remove(record.token, record.id)  # the stand-in made all that for EKS
    world.cloud.call("eks.DeleteCluster", {"name": "coldstart-dev"})


def test_a_held_stack_is_not_torn_from_whoever_holds_it(world: World, backend: Backend, account: Account) -> None:
    locks = world.workspace.folder / "state" / ".pulumi" / "locks" / "organization" / "coldstart" / "dev"
    locks.mkdir(parents=True, exist_ok=True)
    (locks / "0.json").write_text(
        '{"pid": 1, "username": "somebody", "hostname": "another-machine", "timestamp": "2026-11-30T00:00:00Z"}'
    )
    world.down(plan_of(world, backend, MODEL), account, backend)
    with pytest.raises(Failure, match=r"(?s)held by process 1 on another-machine.*pulumi cancel --stack dev"):
        world.down(plan_of(world, backend, "dev"), account, backend)
    assert ("cluster", "coldstart-dev") in everything(world.cloud)


def test_what_is_protected_or_not_known_is_refused_before_anything_changes(world: World, backend: Backend) -> None:
    before = everything(world.cloud)
    cluster = next(
        urn for urn in world.workspace.stack("dev", create=False).state() if "Cluster::dev" in urn and "aws:eks" in urn
    )
    world.workspace.pulumi("state", "protect", cluster, "--stack", "dev", "--yes")
    with pytest.raises(BadInput, match=r"aws:eks/cluster:Cluster dev is protected"):
        plan_of(world, backend, "dev")
    with pytest.raises(BadInput, match="there is no stack file"):
        plan_of(world, backend, "dev-nothing")
    with pytest.raises(BadInput, match=f"{MODEL} is a model"):
        plan_of(world, backend, MODEL, purge=True)
    world.workspace.edit("dev", "environment.account", "444455556666")
    with pytest.raises(BadInput, match="444455556666, but the stack was made in 111122223333"):
        plan_of(world, backend, MODEL)
    assert everything(world.cloud) == before
