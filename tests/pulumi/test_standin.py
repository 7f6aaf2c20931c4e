"""The stand-in under the real engine, on a small program: what the lifecycle tests of the project stand on."""

from __future__ import annotations

import json
from pathlib import Path

import boto3
import pytest

from tests.pulumi.conftest import MakeWorkspace
from tests.pulumi.workspace import Stack, Workspace
from tests.standin.simulated_nodes import nodes_of
from tests.toolchain.control_plane import ControlPlane

PROGRAM = (Path(__file__).parent / "programs" / "small.py").read_text()
NODE_GROUP = "aws:eks/nodeGroup:NodeGroup"


@pytest.fixture
def small(small_workspace: MakeWorkspace) -> Workspace:
    return small_workspace(PROGRAM)


@pytest.fixture
def stack(small: Workspace) -> Stack:
    return small.stack("one")


def test_a_stack_is_previewed_created_left_alone_changed_and_destroyed(stack: Stack, plane: ControlPlane) -> None:
    previewed = stack.preview()
    made = stack.up()
    assert previewed.changes == made.changes
    assert set(made.changes) == {"create"}
    assert len(made.changes["create"]) == 16
    assert stack.up().changes == {}
    assert stack.refresh().changes == {}
    group = stack.outputs()["nodeGroup"]
    (node,) = nodes_of(plane.api, group)
    assert node["metadata"]["labels"]["purpose"] == "test"
    assert node["metadata"]["labels"]["node.kubernetes.io/instance-type"] == "g6e.2xlarge"
    assert {"key": "nvidia.com/gpu", "value": "true", "effect": "NoSchedule"} in node["spec"]["taints"]
    assert node["status"]["allocatable"]["nvidia.com/gpu"] == "1"

    stack.set_config("small:disk", "200")
    stack.set_config("small:purpose", "other")
    stack.set_config("small:desired", "3")
    changed = stack.up()
    assert changed.changes == {"update": ["aws:ec2/launchTemplate:LaunchTemplate nodes", f"{NODE_GROUP} nodes"]}
    assert changed.step("nodes", "LaunchTemplate").diff == ("blockDeviceMappings[0].ebs.volumeSize",)
    assert changed.step("nodes", "NodeGroup").diff == ("labels.purpose", "launchTemplate.version")
    (node,) = nodes_of(plane.api, group)  # the size is ignored
    assert node["metadata"]["labels"]["purpose"] == "other"
    assert stack.outputs()["defaultVersion"] == 2

    stack.set_config("small:amiType", "BOTTLEROCKET_x86_64")
    replaced = stack.preview().changes
    assert replaced["replace"] == ["aws:autoscaling/tag:Tag nodes", f"{NODE_GROUP} nodes"]

    assert stack.destroy().changes == {"delete": made.changes["create"]}
    assert nodes_of(plane.api, group) == []
    assert plane.api.get("/api/v1/namespaces/apps") is None


def test_a_failed_creation_is_taken_up_by_the_next_up(small: Workspace, stack: Stack) -> None:
    capacity = "creating EKS Node Group: ResourceLimitExceeded: InsufficientInstanceCapacity in us-west-2b"
    small.fail("create", capacity, type=NODE_GROUP)
    failed = stack.up(fails=True)
    assert capacity in "\n".join(failed.errors)
    assert small.aws(NODE_GROUP) == []
    small.fail("create", "Throttling: Rate exceeded", kind="throttling", times=3)
    again = stack.up().changes["create"]
    # The provider of the cluster may or may not have been made beside the group that failed.
    assert [name for name in again if not name.startswith("pulumi:")] == [
        "aws:autoscaling/tag:Tag nodes",
        f"{NODE_GROUP} nodes",
        "kubernetes:core/v1:Namespace apps",
    ]
    assert [entry["name"] for entry in small.journal("throttled")] == ["nodes"] * 3

    small.fail("delete", "DependencyViolation: network interface eni-1 is in use", type="aws:ec2/subnet:Subnet")
    left = stack.destroy(fails=True)
    assert "DependencyViolation" in "\n".join(left.errors)
    rest = stack.destroy().changes["delete"]
    assert "aws:ec2/vpc:Vpc net" in rest
    assert len([name for name in rest if name.startswith("aws:ec2/subnet")]) == 1
    assert [record.token for record in small.records.all()] == ["aws:s3/bucket:Bucket"]  # retained

    order = [(entry["operation"], entry["type"].rpartition(":")[2], entry["name"]) for entry in small.journal()]
    deleted = [name for operation, name, _ in order if operation == "delete"]
    assert deleted.index("Tag") < deleted.index("NodeGroup") < deleted.index("Cluster") < deleted.index("Role")
    assert deleted.index("NodeGroup") < deleted.index("LaunchTemplate")
    assert deleted.index("Vpc") > max(index for index, kind in enumerate(deleted) if kind == "Subnet")


def test_a_resource_that_never_became_ready_stays_in_the_state(small: Workspace, stack: Stack) -> None:
    small.fail("create", "waiting for EKS Node Group create: timeout while waiting", type=NODE_GROUP, kind="half")
    assert "timeout while waiting" in "\n".join(stack.up(fails=True).errors)
    (kept,) = [each for urn, each in stack.state().items() if urn.endswith(f"{NODE_GROUP}::nodes")]
    assert kept["initErrors"] == ["waiting for EKS Node Group create: timeout while waiting"]
    assert stack.up().changes["update"] == [f"{NODE_GROUP} nodes"]
    assert stack.up().changes == {}


def test_a_retained_bucket_is_adopted_and_put_right(small: Workspace, stack: Stack) -> None:
    stack.up()
    stack.destroy()
    s3 = boto3.client(
        "s3",
        endpoint_url=small.moto.endpoint,
        region_name="us-west-2",
        aws_access_key_id="testing",
        aws_secret_access_key="testing",  # noqa: S106 - moto asks for no particular one
    )
    s3.put_object(Bucket="small-weights", Key="weights", Body=b"1")
    assert "BucketAlreadyOwnedByYou" in "\n".join(stack.up(fails=True).errors)
    stack.set_config("small:adopt", "small-weights")
    assert stack.up().changes["import"] == ["aws:s3/bucket:Bucket weights"]
    assert stack.up().changes == {}
    assert s3.get_object(Bucket="small-weights", Key="weights")["Body"].read() == b"1"

    stack.destroy()
    s3.put_bucket_tagging(Bucket="small-weights", Tagging={"TagSet": [{"Key": "owner", "Value": "somebody else"}]})
    adopted = stack.up()
    assert adopted.changes["import"] == ["aws:s3/bucket:Bucket weights"]
    assert adopted.changes["update"] == ["aws:s3/bucket:Bucket weights"]
    (corrected,) = [step for step in adopted.steps if step.op == "update"]
    assert corrected.diff == ("tags", "tagsAll.application", "tagsAll.owner")


def test_what_somebody_changed_is_drift_and_put_right(small: Workspace, stack: Stack) -> None:
    stack.up()
    (nodes,) = small.aws(NODE_GROUP)
    eks = boto3.client(
        "eks",
        endpoint_url=small.moto.endpoint,
        region_name="us-west-2",
        aws_access_key_id="testing",
        aws_secret_access_key="testing",  # noqa: S106 - moto asks for no particular one
    )
    eks.update_nodegroup_config(
        clusterName=nodes.inputs["clusterName"],
        nodegroupName=nodes.inputs["nodeGroupName"],
        scalingConfig={"minSize": 0, "maxSize": 9, "desiredSize": 3},
    )
    assert stack.refresh().step("nodes", "NodeGroup").op == "refresh"
    put_right = stack.up()
    assert put_right.changes == {"update": [f"{NODE_GROUP} nodes"]}
    assert put_right.step("nodes", "NodeGroup").diff == ("scalingConfig.maxSize",)


def test_wrong_inputs_end_the_preview_with_the_property(small: Workspace, stack: Stack) -> None:
    stack.set_config("small:amiType", "BOTTLEROCKET")
    text = "\n".join(stack.preview(fails=True).errors)
    assert "amiType" in text
    assert "is 'BOTTLEROCKET'; one of" in text
    assert not list(small.world.glob("records.json"))


def test_another_account_and_no_credentials_are_refused(small: Workspace, stack: Stack) -> None:
    stack.set_config("small:account", "999999999999")
    assert "AWS account ID not allowed: 111122223333" in "\n".join(stack.preview(fails=True).errors)
    del small.env["AWS_ACCESS_KEY_ID"]
    assert "No valid credential sources found" in "\n".join(stack.preview(fails=True).errors)


def test_a_secret_stays_secret(stack: Stack) -> None:
    stack.set_config("small:note", "the lady's maid", "--secret")
    stack.up()
    assert "the lady's maid" not in json.dumps(stack.state())
    (role,) = [each for urn, each in stack.state().items() if urn.endswith("aws:iam/role:Role::cluster")]
    assert set(role["inputs"]["description"]) == {"4dabf18193072939515e22adb298388d", "ciphertext"}
    assert set(role["outputs"]["description"]) == {"4dabf18193072939515e22adb298388d", "ciphertext"}


def test_a_default_tag_reaches_everything_that_has_tags(stack: Stack) -> None:
    stack.up()
    stack.set_config("small:tags.owner", "platform")
    changed = stack.up()
    assert set(changed.changes) == {"update"}
    assert "aws:ec2/vpc:Vpc net" in changed.changes["update"]
    assert changed.step("net", "Vpc").diff == ("tagsAll.owner",)
    assert stack.up().changes == {}
