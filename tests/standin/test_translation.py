"""Every input is held against botocore's model of the operation it ends up in; a complaint names the property."""

from __future__ import annotations

from typing import Any

import pytest

from tests.standin.kinds import kind_of
from tests.standin.sdk import stray_properties
from tests.standin.translation import Problem, translate
from tests.standin.wire import UNKNOWN, Properties

NODE_GROUP = kind_of("aws:eks/nodeGroup:NodeGroup")
TEMPLATE = kind_of("aws:ec2/launchTemplate:LaunchTemplate")
GROUP: Properties = {
    "clusterName": "c",
    "nodeGroupName": "n",
    "nodeRoleArn": "arn:aws:iam::111122223333:role/nodes",
    "subnetIds": ["subnet-1"],
    "scalingConfig": {"minSize": 0, "maxSize": 1, "desiredSize": 0},
}


def problems(kind: Any, properties: Properties) -> list[Problem]:
    return translate(kind, properties).problems


def test_properties_become_a_request_of_the_operation() -> None:
    properties = GROUP | {
        "labels": {"a": "b"},
        "taints": [{"key": "nvidia.com/gpu", "value": "true", "effect": "NO_SCHEDULE"}],
        "launchTemplate": {"id": "lt-1", "version": "3"},
        "tags": {"owner": "me"},
    }
    assert translate(NODE_GROUP, properties).requests == {
        "eks.CreateNodegroup": {
            "clusterName": "c",
            "nodegroupName": "n",
            "nodeRole": "arn:aws:iam::111122223333:role/nodes",
            "subnets": ["subnet-1"],
            "scalingConfig": {"minSize": 0, "maxSize": 1, "desiredSize": 0},
            "labels": {"a": "b"},
            "taints": [{"key": "nvidia.com/gpu", "value": "true", "effect": "NO_SCHEDULE"}],
            "launchTemplate": {"id": "lt-1", "version": "3"},
            "tags": {"owner": "me"},
        }
    }


def test_nested_names_and_text_that_means_something_else_are_converted() -> None:
    mapping = {"deviceName": "/dev/xvdb", "ebs": {"volumeSize": 100, "encrypted": "true", "iops": "4000"}}
    spec = {"resourceType": "instance", "tags": {"Name": "gpu"}}
    requests = translate(TEMPLATE, {"name": "nodes", "blockDeviceMappings": [mapping], "tagSpecifications": [spec]})
    data = requests.requests["ec2.CreateLaunchTemplate"]["LaunchTemplateData"]
    assert data["BlockDeviceMappings"] == [
        {"DeviceName": "/dev/xvdb", "Ebs": {"VolumeSize": 100, "Encrypted": True, "Iops": 4000}}
    ]
    assert data["TagSpecifications"] == [{"ResourceType": "instance", "Tags": [{"Key": "Name", "Value": "gpu"}]}]


def test_one_property_may_belong_to_another_operation() -> None:
    requests = translate(kind_of("aws:ec2/vpc:Vpc"), {"cidrBlock": "10.0.0.0/16", "enableDnsSupport": True}).requests
    assert requests["ec2.ModifyVpcAttribute"] == {"EnableDnsSupport": {"Value": True}}


@pytest.mark.parametrize(
    ("changed", "problem"),
    [
        ({"amiType": "BOTTLEROCKET_NVIDIA"}, ("amiType", "is 'BOTTLEROCKET_NVIDIA'; one of ")),
        ({"capacityType": "spot"}, ("capacityType", "is 'spot'; one of ON_DEMAND, SPOT, CAPACITY_BLOCK is expected")),
        ({"subnetIds": "subnet-1"}, ("subnetIds", "is text; a list is expected")),
        ({"labels": ["a"]}, ("labels", "is a list; a map is expected")),
        ({"scalingConfig": 3}, ("scalingConfig", "is a number; an object is expected")),
        (
            {"scalingConfig": {"minSize": -1, "maxSize": 1, "desiredSize": 0}},
            ("scalingConfig.minSize", "is -1; at least 0 expected"),
        ),
        (
            {"scalingConfig": {"minSize": 0, "maxSize": 1.5, "desiredSize": 0}},
            ("scalingConfig.maxSize", "is 1.5; a whole number is expected"),
        ),
        (
            {"updateConfig": {"maxUnavailablePercentage": 101}},
            ("updateConfig.maxUnavailablePercentage", "is 101; at most 100 expected"),
        ),
        (
            {"taints": [{"key": "", "effect": "NO_SCHEDULE"}]},
            ("taints[0].key", "has 0 characters; at least 1 expected"),
        ),
        (
            {"taints": [{"key": "gpu", "effect": "NoSchedule"}]},
            ("taints[0].effect", "is 'NoSchedule'; one of NO_SCHEDULE, NO_EXECUTE, PREFER_NO_SCHEDULE is expected"),
        ),
        ({"nodeRepairConfig": {"enabled": "yes"}}, ("nodeRepairConfig.enabled", "is 'yes'; true or false is expected")),
        (
            {"launchTemplate": {"identifier": "lt-1"}},
            (
                "launchTemplate.identifier",
                "eks.CreateNodegroup has no such member; it has name, version, id",
            ),
        ),
        ({"nodeRoleArn": None}, ("nodeRoleArn", "is missing, and required")),
    ],
)
def test_what_the_model_refuses_is_named_by_property(changed: Properties, problem: tuple[str, str]) -> None:
    properties = {name: value for name, value in {**GROUP, **changed}.items() if value is not None}
    found = problems(NODE_GROUP, properties)
    assert [each.property for each in found] == [problem[0]]
    assert found[0].reason.startswith(problem[1])


@pytest.mark.parametrize(
    ("token", "properties", "problem"),
    [
        (
            "aws:eks/cluster:Cluster",
            {"name": "-c", "roleArn": "r", "vpcConfig": {}},
            Problem("name", r"is '-c'; it does not match ^[0-9A-Za-z][A-Za-z0-9\-_]*"),
        ),
        (
            "aws:iam/role:Role",
            {"name": "n", "assumeRolePolicy": "{}", "maxSessionDuration": 60},
            Problem("maxSessionDuration", "is 60; at least 3600 expected"),
        ),
        (
            "aws:eks/podIdentityAssociation:PodIdentityAssociation",
            {"clusterName": "c", "namespace": "n", "serviceAccount": "s"},
            Problem("roleArn", "is missing, and required"),
        ),
        (
            "aws:s3/bucketServerSideEncryptionConfiguration:BucketServerSideEncryptionConfiguration",
            {"bucket": "b", "rules": [{"applyServerSideEncryptionByDefault": {"sseAlgorithm": "AES"}}]},
            Problem(
                "rules[0].applyServerSideEncryptionByDefault.sseAlgorithm",
                "is 'AES'; one of AES256, aws:fsx, aws:backup, aws:kms, aws:kms:dsse is expected",
            ),
        ),
        (
            "aws:s3/bucketLifecycleConfiguration:BucketLifecycleConfiguration",
            {"bucket": "b", "rules": [{"id": "x"}]},
            Problem("rules[0].status", "is missing, and required"),
        ),
        (
            "aws:scheduler/schedule:Schedule",
            {"name": "n", "scheduleExpression": "rate(1 day)", "target": {"arn": "a", "roleArn": "b"}},
            Problem("flexibleTimeWindow", "is missing, and required"),
        ),
        (
            "aws:ec2/securityGroup:SecurityGroup",
            {"name": "n", "ingress": [], "vpcId": "v"},
            Problem(
                "ingress",
                "ec2.CreateSecurityGroup has no such member, and the stand-in's table gives it no other meaning",
            ),
        ),
    ],
)
def test_problems_of_other_types(token: str, properties: Properties, problem: Problem) -> None:
    assert problem in problems(kind_of(token), properties)


def test_what_is_not_known_yet_is_assumed_right() -> None:
    unknown = GROUP | {
        "clusterName": UNKNOWN,
        "subnetIds": [UNKNOWN, "subnet-2"],
        "taints": UNKNOWN,
        "launchTemplate": {"id": UNKNOWN, "version": UNKNOWN},
    }
    assert problems(NODE_GROUP, unknown) == []


def test_properties_that_the_sdk_lacks_are_found_at_any_depth() -> None:
    given = {
        "clusterNames": "c",
        "scalingConfig": {"minimum": 0},
        "taints": [{"key": "k"}, {"operator": "Exists"}],
        "labels": {"anything": "goes"},
    }
    assert [path for path, _ in stray_properties("eks.NodeGroup", given)] == [
        "clusterNames",
        "scalingConfig.minimum",
        "taints[1].operator",
    ]
