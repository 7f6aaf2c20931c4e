"""A story in which every type of the stand-in is made once, and told to a world resource by resource."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from typing import Any

from tests.standin.differences import differences
from tests.standin.naming import with_all_tags
from tests.standin.records import Record
from tests.standin.resources import World
from tests.standin.services import resource_of
from tests.standin.wire import Properties, dig

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
            "warmPoolConfig": {"minSize": 1, "maxGroupPreparedCapacity": 1, "poolState": "STOPPED"},
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


def tell_all(world: World) -> Told:
    story = Told(world)
    for name in STORY:
        story.tell(name)
    return story
