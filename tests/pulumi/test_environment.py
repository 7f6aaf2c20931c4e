"""The environment stack on the real engine: made, left alone, destroyed, and made again around the kept bucket."""

from __future__ import annotations

import pytest

from tests.pulumi.conftest import put_object
from tests.pulumi.workspace import Stack, Workspace
from tests.standin.cloud import Cloud

WEIGHTS = "models/m/r/weights"
BUCKET = "coldstart-dev-111122223333-us-west-2"
VPC = "aws:ec2/vpc:Vpc"
CLUSTER = "aws:eks/cluster:Cluster"
NODE_GROUP = "aws:eks/nodeGroup:NodeGroup"


@pytest.fixture
def cloud(workspace: Workspace) -> Cloud:
    """What anybody else sees of the account."""
    return Cloud(workspace.moto.endpoint, "us-west-2")


@pytest.fixture
def stack(workspace: Workspace) -> Stack:
    return workspace.stack("dev")


def test_an_environment_lives_and_its_bucket_outlives_it(workspace: Workspace, stack: Stack, cloud: Cloud) -> None:
    previewed = stack.preview()
    made = stack.up()
    assert set(made.changes) == {"create"}
    assert previewed.changes == made.changes
    assert [warning for warning in made.warnings if "from $PATH" not in warning and "plugin" not in warning] == []
    assert stack.refresh().changes == {}
    assert stack.up().changes == {}
    outputs = stack.outputs()
    assert outputs["cluster"] == "coldstart-dev"
    assert outputs["bucket"] == BUCKET
    assert set(outputs["private_subnets"]) == {"us-west-2a", "us-west-2b", "us-west-2c"}
    put_object(cloud, BUCKET, WEIGHTS, b"weights")

    assert set(stack.destroy().changes) == {"delete"}
    kept = {record.token for record in workspace.records.all()}
    assert all(token.startswith("aws:s3/") for token in kept), kept
    assert cloud.call("eks.ListClusters", {})["clusters"] == []
    assert [vpc for vpc in cloud.call("ec2.DescribeVpcs", {})["Vpcs"] if not vpc["IsDefault"]] == []
    assert cloud.call("ec2.DescribeAddresses", {})["Addresses"] == []
    assert cloud.call("logs.DescribeLogGroups", {})["logGroups"] == []
    assert cloud.call("s3.GetPublicAccessBlock", {"Bucket": BUCKET})["PublicAccessBlockConfiguration"][
        "BlockPublicAcls"
    ]

    again = stack.up()
    assert again.changes["import"] == ["aws:s3/bucket:Bucket dev-weights"]
    assert set(again.changes) == {"create", "import"}
    assert stack.up().changes == {}
    assert [entry["Key"] for entry in cloud.call("s3.ListObjectsV2", {"Bucket": BUCKET})["Contents"]] == [WEIGHTS]


def test_the_order_in_which_things_are_made_and_unmade(workspace: Workspace, stack: Stack) -> None:
    stack.up()
    stack.destroy()
    begun = {(entry["operation"], entry["type"], entry["name"]): entry for entry in workspace.journal("begin")}
    done = [(entry["operation"], entry["type"], entry["name"]) for entry in workspace.journal("end")]
    assert len(begun) == len(done)

    def position(operation: str, token: str, name: str) -> int:
        return next(
            index
            for index, (op, kind, logical) in enumerate(done)
            if (op, logical) == (operation, name) and kind.endswith(token)
        )

    def first(operation: str, token: str) -> int:
        return next(index for index, (op, kind, _) in enumerate(done) if op == operation and kind.endswith(token))

    def last(operation: str, token: str) -> int:
        return max(index for index, (op, kind, _) in enumerate(done) if op == operation and kind.endswith(token))

    nodes = position("create", ":NodeGroup", "dev-system")
    assert position("create", ":LogGroup", "dev") < position("create", ":Cluster", "dev") < nodes
    assert last("create", ":VpcEndpoint") < nodes
    assert last("create", ":RolePolicyAttachment") < nodes
    for addon in ("vpc-cni", "kube-proxy", "eks-pod-identity-agent"):
        assert position("create", ":Addon", f"dev-before-{addon}") < nodes
    for addon in ("coredns", "eks-node-monitoring-agent"):
        assert nodes < position("create", ":Addon", f"dev-after-{addon}")
    gone = position("delete", ":NodeGroup", "dev-system")
    assert gone < position("delete", ":Cluster", "dev") < first("delete", ":Subnet") < position("delete", ":Vpc", "dev")
    assert gone < first("delete", ":VpcEndpoint")


def test_an_environment_that_failed_half_way_is_taken_up_again(workspace: Workspace, stack: Stack) -> None:
    workspace.fail("create", "waiting for EKS Cluster create: timeout while waiting for state ACTIVE", type=CLUSTER)
    failed = stack.up(fails=True)
    assert any("timeout while waiting for state ACTIVE" in error for error in failed.errors)
    assert workspace.aws(VPC)
    assert workspace.aws(NODE_GROUP) == []
    assert set(stack.up().changes) == {"create"}
    assert stack.up().changes == {}
    workspace.fail(
        "delete", "DependencyViolation: network interface eni-0 of a node is still there", type="aws:ec2/subnet:Subnet"
    )
    assert any("DependencyViolation" in error for error in stack.destroy(fails=True).errors)
    assert set(stack.destroy().changes) == {"delete"}
    assert workspace.aws(VPC) == []


def test_another_account_is_refused_before_anything_is_made(workspace: Workspace, stack: Stack) -> None:
    workspace.edit("dev", "environment.account", "999999999999")
    refused = stack.up(fails=True)
    assert any("AWS account ID not allowed: 111122223333" in error for error in refused.errors)
    assert workspace.records.all() == []


def test_a_change_of_settings_is_made_in_place(workspace: Workspace, stack: Stack) -> None:
    stack.up()
    workspace.edit("dev", "environment.access.public_cidrs", ["198.51.100.0/24"])
    changed = stack.up()
    assert changed.changes == {"update": [f"{CLUSTER} dev"]}
    assert changed.step("dev", CLUSTER).diff == ("vpcConfig.publicAccessCidrs[0]",)


def test_a_higher_count_adds_nodes(workspace: Workspace, stack: Stack) -> None:
    stack.up()
    workspace.edit("dev", "environment.system_nodes.count", 3)
    resized = stack.up()
    assert resized.changes == {"update": [f"{NODE_GROUP} dev-system"]}
