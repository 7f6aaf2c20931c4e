"""Every type of the stand-in lives its life against moto: created, read, changed in place, deleted."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from tests.standin import sdk
from tests.standin.conftest import make_world
from tests.standin.differences import differences
from tests.standin.faults import ServiceError
from tests.standin.kinds import kinds
from tests.standin.naming import with_all_tags
from tests.standin.processes import Moto
from tests.standin.records import Record
from tests.standin.resources import World
from tests.standin.services import resource_of
from tests.standin.wire import Properties, dig, holds_unknown

TRUST = json.dumps({"Version": "2012-10-17", "Statement": []})
TRUST_EC2 = json.dumps(
    {
        "Version": "2012-10-17",
        "Statement": [{"Effect": "Allow", "Principal": {"Service": "ec2.amazonaws.com"}, "Action": "sts:AssumeRole"}],
    }
)
POLICY = json.dumps({"Version": "2012-10-17", "Statement": [{"Effect": "Allow", "Action": "s3:Get*", "Resource": "*"}]})

# name → (token, inputs). `@name.output` stands for an output of another one. In an order in which they can be made.
STORY: Mapping[str, tuple[str, Properties]] = {
    "vpc": ("aws:ec2/vpc:Vpc", {"cidrBlock": "10.0.0.0/16", "enableDnsHostnames": True, "tags": {"Name": "net"}}),
    "subnet-a": (
        "aws:ec2/subnet:Subnet",
        {
            "vpcId": "@vpc.id",
            "cidrBlock": "10.0.0.0/20",
            "availabilityZone": "us-west-2a",
            "mapPublicIpOnLaunch": False,
        },
    ),
    "subnet-b": (
        "aws:ec2/subnet:Subnet",
        {"vpcId": "@vpc.id", "cidrBlock": "10.0.16.0/20", "availabilityZone": "us-west-2b"},
    ),
    "gateway": ("aws:ec2/internetGateway:InternetGateway", {"vpcId": "@vpc.id"}),
    "table": ("aws:ec2/routeTable:RouteTable", {"vpcId": "@vpc.id"}),
    "address": ("aws:ec2/eip:Eip", {"domain": "vpc"}),
    "nat": (
        "aws:ec2/natGateway:NatGateway",
        {"subnetId": "@subnet-a.id", "allocationId": "@address.allocationId"},
    ),
    "route": (
        "aws:ec2/route:Route",
        {"routeTableId": "@table.id", "destinationCidrBlock": "0.0.0.0/0", "natGatewayId": "@nat.id"},
    ),
    "association": (
        "aws:ec2/routeTableAssociation:RouteTableAssociation",
        {"routeTableId": "@table.id", "subnetId": "@subnet-a.id"},
    ),
    "group": ("aws:ec2/securityGroup:SecurityGroup", {"name": "endpoints", "vpcId": "@vpc.id"}),
    "https": (
        "aws:vpc/securityGroupIngressRule:SecurityGroupIngressRule",
        {
            "securityGroupId": "@group.id",
            "cidrIpv4": "10.0.0.0/16",
            "ipProtocol": "tcp",
            "fromPort": 443,
            "toPort": 443,
            "description": "HTTPS inside",
        },
    ),
    "out": (
        "aws:vpc/securityGroupEgressRule:SecurityGroupEgressRule",
        {"securityGroupId": "@group.id", "cidrIpv4": "0.0.0.0/0", "ipProtocol": "-1"},
    ),
    "s3": (
        "aws:ec2/vpcEndpoint:VpcEndpoint",
        {
            "vpcId": "@vpc.id",
            "serviceName": "com.amazonaws.us-west-2.s3",
            "vpcEndpointType": "Gateway",
            "routeTableIds": ["@table.id"],
            "policy": POLICY,
        },
    ),
    "sts": (
        "aws:ec2/vpcEndpoint:VpcEndpoint",
        {
            "vpcId": "@vpc.id",
            "serviceName": "com.amazonaws.us-west-2.sts",
            "vpcEndpointType": "Interface",
            "privateDnsEnabled": True,
            "subnetIds": ["@subnet-a.id"],
            "securityGroupIds": ["@group.id"],
        },
    ),
    "bucket": ("aws:s3/bucket:Bucket", {"bucket": "weights-of-a-test", "tags": {"bucket": "weights"}}),
    "encryption": (
        "aws:s3/bucketServerSideEncryptionConfiguration:BucketServerSideEncryptionConfiguration",
        {
            "bucket": "@bucket.id",
            "rules": [{"applyServerSideEncryptionByDefault": {"sseAlgorithm": "AES256"}, "bucketKeyEnabled": True}],
        },
    ),
    "block": (
        "aws:s3/bucketPublicAccessBlock:BucketPublicAccessBlock",
        {"bucket": "@bucket.id", "blockPublicAcls": True, "blockPublicPolicy": True},
    ),
    "ownership": (
        "aws:s3/bucketOwnershipControls:BucketOwnershipControls",
        {"bucket": "@bucket.id", "rule": {"objectOwnership": "BucketOwnerEnforced"}},
    ),
    "versioning": (
        "aws:s3/bucketVersioning:BucketVersioning",
        {"bucket": "@bucket.id", "versioningConfiguration": {"status": "Enabled"}},
    ),
    "lifecycle": (
        "aws:s3/bucketLifecycleConfiguration:BucketLifecycleConfiguration",
        {
            "bucket": "@bucket.id",
            "rules": [
                {
                    "id": "uploads",
                    "status": "Enabled",
                    "filter": {"prefix": ""},
                    "abortIncompleteMultipartUpload": {"daysAfterInitiation": 2},
                }
            ],
        },
    ),
    "bucket-policy": ("aws:s3/bucketPolicy:BucketPolicy", {"bucket": "@bucket.id", "policy": POLICY}),
    "role": ("aws:iam/role:Role", {"name": "nodes", "assumeRolePolicy": TRUST}),
    "role-policy": ("aws:iam/rolePolicy:RolePolicy", {"role": "@role.name", "name": "weights", "policy": POLICY}),
    "attachment": (
        "aws:iam/rolePolicyAttachment:RolePolicyAttachment",
        {"role": "@role.name", "policyArn": "arn:aws:iam::aws:policy/AmazonEKSWorkerNodePolicy"},
    ),
    "logs": ("aws:cloudwatch/logGroup:LogGroup", {"name": "/aws/eks/c/cluster", "retentionInDays": 30}),
    "cluster": (
        "aws:eks/cluster:Cluster",
        {
            "name": "c",
            "roleArn": "@role.arn",
            "version": "1.36",
            "enabledClusterLogTypes": ["api", "audit"],
            "vpcConfig": {"subnetIds": ["@subnet-a.id", "@subnet-b.id"], "endpointPrivateAccess": True},
        },
    ),
    "template": (
        "aws:ec2/launchTemplate:LaunchTemplate",
        {
            "name": "gpu-nodes",
            "instanceType": "g6e.2xlarge",
            "updateDefaultVersion": True,
            "userData": base64.b64encode(b"[settings]\n").decode(),
            "blockDeviceMappings": [
                {"deviceName": "/dev/xvdb", "ebs": {"volumeSize": 100, "volumeType": "gp3", "encrypted": "true"}}
            ],
            "tagSpecifications": [{"resourceType": "instance", "tags": {"Name": "gpu"}}],
        },
    ),
    "nodes": (
        "aws:eks/nodeGroup:NodeGroup",
        {
            "clusterName": "@cluster.name",
            "nodeGroupName": "gpu",
            "nodeRoleArn": "@role.arn",
            "subnetIds": ["@subnet-b.id", "@subnet-a.id"],
            "amiType": "BOTTLEROCKET_x86_64_NVIDIA",
            "launchTemplate": {"id": "@template.id", "version": "1"},
            "scalingConfig": {"minSize": 0, "maxSize": 2, "desiredSize": 1},
            "labels": {"model": "m"},
            "taints": [{"key": "nvidia.com/gpu", "value": "true", "effect": "NO_SCHEDULE"}],
            "nodeRepairConfig": {"enabled": True},
            "warmPoolConfig": {"minSize": 1, "maxGroupPreparedCapacity": -1, "poolState": "STOPPED"},
        },
    ),
    "addon": (
        "aws:eks/addon:Addon",
        {"clusterName": "@cluster.name", "addonName": "vpc-cni", "resolveConflictsOnUpdate": "PRESERVE"},
    ),
    "entry": ("aws:eks/accessEntry:AccessEntry", {"clusterName": "@cluster.name", "principalArn": "@role.arn"}),
    "admin": (
        "aws:eks/accessPolicyAssociation:AccessPolicyAssociation",
        {
            "clusterName": "@cluster.name",
            "principalArn": "@role.arn",
            "policyArn": "arn:aws:eks::aws:cluster-access-policy/AmazonEKSClusterAdminPolicy",
            "accessScope": {"type": "cluster"},
        },
    ),
    "identity": (
        "aws:eks/podIdentityAssociation:PodIdentityAssociation",
        {"clusterName": "@cluster.name", "namespace": "m", "serviceAccount": "m", "roleArn": "@role.arn"},
    ),
    "scaling-tag": (
        "aws:autoscaling/tag:Tag",
        {
            "autoscalingGroupName": "@nodes.resources.0.autoscalingGroups.0.name",
            "tag": {"key": "k8s.io/x", "value": "1", "propagateAtLaunch": False},
        },
    ),
    "schedules": ("aws:scheduler/scheduleGroup:ScheduleGroup", {"name": "pauses"}),
    "schedule": (
        "aws:scheduler/schedule:Schedule",
        {
            "name": "evening",
            "groupName": "@schedules.name",
            "scheduleExpression": "cron(0 18 * * ? *)",
            "flexibleTimeWindow": {"mode": "OFF"},
            "target": {"arn": "@role.arn", "roleArn": "@role.arn"},
        },
    ),
}

# What can change in place, and to what.
IN_PLACE: Mapping[str, Properties] = {
    "vpc": {"enableDnsHostnames": False, "tags": {"Name": "other"}},
    "subnet-a": {"mapPublicIpOnLaunch": True},
    "route": {"natGatewayId": "@nat.id"},
    "s3": {"policy": POLICY.replace("Get", "List"), "routeTableIds": []},
    "sts": {"subnetIds": ["@subnet-b.id"]},
    "bucket": {"tags": {"bucket": "weights", "more": "1"}},
    "block": {"ignorePublicAcls": True},
    "bucket-policy": {"policy": POLICY.replace("Get", "List")},
    "lifecycle": {
        "rules": [
            {
                "id": "uploads",
                "status": "Enabled",
                "filter": {"prefix": ""},
                "abortIncompleteMultipartUpload": {"daysAfterInitiation": 7},
            }
        ]
    },
    "role": {"assumeRolePolicy": TRUST_EC2, "maxSessionDuration": 7200},
    "role-policy": {"policy": POLICY.replace("Get", "List")},
    "logs": {"retentionInDays": 7},
    "cluster": {"version": "1.37", "tags": {"a": "b"}},
    "template": {"instanceType": "g6e.4xlarge"},
    "nodes": {
        "scalingConfig": {"minSize": 0, "maxSize": 5, "desiredSize": 2},
        "labels": {"model": "n"},
        "taints": [{"key": "gpu", "value": "yes", "effect": "NO_EXECUTE"}],
        "launchTemplate": {"id": "@template.id", "version": "2"},
    },
    "addon": {"configurationValues": "{}"},
    "schedules": {"tags": {"a": "b"}},
    "schedule": {"state": "DISABLED"},
}


class Told:
    """The story as far as it has been told: every resource by its name."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.records: dict[str, Record] = {}
        self.outputs: dict[str, Properties] = {}

    def tell(self, name: str) -> None:
        token, inputs = STORY[name]
        resource = resource_of(token, self.world)
        given = with_all_tags(resource, self.resolved(inputs))
        assert resource.problems(given) == []
        record = resource.create(name, given)
        self.records[name] = record
        self.outputs[name] = {"id": record.id, **resource.outputs(record)}

    def resolved(self, value: Any) -> Any:
        if isinstance(value, dict):
            return {key: self.resolved(inner) for key, inner in value.items()}
        if isinstance(value, list):
            return [self.resolved(inner) for inner in value]
        if isinstance(value, str) and value.startswith("@"):
            name, _, path = value[1:].partition(".")
            return dig(self.outputs[name], path)
        return value

    def change(self, name: str) -> Properties:
        resource = resource_of(STORY[name][0], self.world)
        record = self.records[name]
        inputs = with_all_tags(resource, {**record.inputs, **self.resolved(IN_PLACE[name])})
        changes = differences(resource.kind, record.inputs, inputs)
        assert not [change for change in changes if change.replaces], name
        self.records[name] = resource.update(record, inputs, changes)
        return inputs


@pytest.fixture
def told(world: World) -> Told:
    """A story that the test goes on with."""
    return tell_all(world)


@pytest.fixture(scope="module")
def read_only(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Told]:
    """A story that tests only look at, in a moto of its own: the others are reset for each test."""
    folder = tmp_path_factory.mktemp("read-only")
    with Moto(folder) as server:
        yield tell_all(make_world(server, folder))


def tell_all(world: World) -> Told:
    story = Told(world)
    for name in STORY:
        story.tell(name)
    return story


def test_the_story_tells_of_every_type() -> None:
    assert {token for token, _ in STORY.values()} == set(kinds())


def test_outputs_are_the_sdks_and_a_preview_knows_of_each(read_only: Told) -> None:
    for name, record in read_only.records.items():
        resource = resource_of(record.token, read_only.world)
        outputs = resource.outputs(record)
        assert set(outputs) <= sdk.outputs_of(resource.kind.sdk), name
        assert not holds_unknown(outputs), name
        before = resource.outputs_before_creation(record.inputs)
        assert set(outputs) <= set(before), name
        assert resource.kind.pure_outputs <= set(before), name


def test_what_a_preview_knows_comes_true(read_only: Told) -> None:
    for name, record in read_only.records.items():
        resource = resource_of(record.token, read_only.world)
        outputs = resource.outputs(record)
        for key, value in resource.outputs_before_creation(record.inputs).items():
            if not holds_unknown(value):
                assert outputs[key] == value, f"{name}.{key}"


def test_reading_finds_no_drift(read_only: Told) -> None:
    for name, record in read_only.records.items():
        found = resource_of(record.token, read_only.world).read(record)
        assert found is not None, name
        assert found.inputs == record.inputs, name


def test_changes_in_place_are_read_back(told: Told) -> None:
    for name in IN_PLACE:
        wanted = told.change(name)
        record = told.records[name]
        found = resource_of(record.token, told.world).read(record)
        assert found is not None, name
        assert found.inputs == wanted, name


def test_everything_can_be_deleted_in_reverse_and_is_gone(told: Told) -> None:
    for name, record in reversed(told.records.items()):
        resource = resource_of(record.token, told.world)
        resource.delete(record)
        if name not in ("versioning", "s3", "sts", "nat"):  # a bucket keeps its setting, the others stay visible
            assert resource.read(record) is None, name
    cloud = told.world.cloud
    assert told.world.records.all() == []
    assert cloud.call("eks.ListClusters", {})["clusters"] == []
    assert cloud.call("autoscaling.DescribeAutoScalingGroups", {})["AutoScalingGroups"] == []
    assert cloud.call("s3.ListBuckets", {})["Buckets"] == []


@pytest.mark.parametrize("name", ["vpc", "subnet-a", "group", "table", "address", "cluster", "role"])
def test_what_is_needed_is_not_deleted(read_only: Told, name: str) -> None:
    record = read_only.records[name]
    with pytest.raises(ServiceError, match="needs it"):
        resource_of(record.token, read_only.world).delete(record)


def test_default_tags_reach_the_service_and_are_not_the_resources_own(read_only: Told) -> None:
    vpc = read_only.records["vpc"]
    tags = read_only.world.cloud.call("ec2.DescribeVpcs", {"VpcIds": [vpc.id]})["Vpcs"][0]["Tags"]
    assert {tag["Key"]: tag["Value"] for tag in tags} == {"application": "tests", "Name": "net"}
    assert read_only.outputs["vpc"]["tagsAll"] == {"application": "tests", "Name": "net"}


def test_somebodys_change_is_drift(told: Told) -> None:
    nodes = told.records["nodes"]
    size = {"minSize": 0, "maxSize": 2, "desiredSize": 2}
    group = {"clusterName": "c", "nodegroupName": "gpu"}
    told.world.cloud.call("eks.UpdateNodegroupConfig", group | {"scalingConfig": size})
    found = resource_of(nodes.token, told.world).read(nodes)
    assert found is not None
    assert found.inputs["scalingConfig"] == size
    assert {**found.inputs, "scalingConfig": 0} == {**nodes.inputs, "scalingConfig": 0}


def test_a_bucket_is_adopted_by_its_name_alone(told: Told) -> None:
    bucket = told.records["bucket"]
    told.world.records.remove(bucket.token, bucket.id)
    resource = resource_of(bucket.token, told.world)
    found = resource.adopt("weights", bucket.id)
    assert found is not None
    assert differences(resource.kind, found.inputs, with_all_tags(resource, bucket.inputs)) == []
    assert resource.adopt("weights", "nobodys-bucket") is None


def test_a_full_bucket_is_not_deleted_unless_it_may_be_emptied(told: Told) -> None:
    bucket = told.records["bucket"]
    told.world.cloud.call("s3.PutObject", {"Bucket": bucket.id, "Key": "k", "Body": b"weights"})
    resource = resource_of(bucket.token, told.world)
    with pytest.raises(ServiceError, match="BucketNotEmpty"):
        resource.delete(bucket)
    bucket.inputs["forceDestroy"] = True
    resource.delete(bucket)
    assert told.world.cloud.call("s3.ListBuckets", {})["Buckets"] == []


def test_an_auto_scaling_group_launches_the_nodes_of_a_group(read_only: Told) -> None:
    groups = read_only.world.cloud.call("autoscaling.DescribeAutoScalingGroups", {})["AutoScalingGroups"]
    assert [(group["MinSize"], group["MaxSize"], group["DesiredCapacity"]) for group in groups] == [(0, 2, 1)]
    assert [instance["InstanceType"] for instance in groups[0]["Instances"]] == ["g6e.2xlarge"]
    tags = {tag["Key"]: tag["Value"] for tag in groups[0]["Tags"]}
    assert tags["eks:nodegroup-name"] == "gpu"
    assert tags["k8s.io/x"] == "1"
