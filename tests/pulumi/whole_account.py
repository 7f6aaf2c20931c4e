"""Everything that is in moto's account, listed without the code under test; and what somebody else has in it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from tests.standin.cloud import Cloud

LISTINGS: Mapping[str, tuple[str, Callable[[dict[str, Any]], Iterator[str]]]] = {
    "vpc": ("ec2.DescribeVpcs", lambda answer: (each["VpcId"] for each in answer["Vpcs"])),
    "subnet": ("ec2.DescribeSubnets", lambda answer: (each["SubnetId"] for each in answer["Subnets"])),
    "route table": ("ec2.DescribeRouteTables", lambda answer: (each["RouteTableId"] for each in answer["RouteTables"])),
    "internet gateway": (
        "ec2.DescribeInternetGateways",
        lambda answer: (each["InternetGatewayId"] for each in answer["InternetGateways"]),
    ),
    "security group": (
        "ec2.DescribeSecurityGroups",
        lambda answer: (each["GroupId"] for each in answer["SecurityGroups"]),
    ),
    "volume": ("ec2.DescribeVolumes", lambda answer: (each["VolumeId"] for each in answer["Volumes"])),
    "address": ("ec2.DescribeAddresses", lambda answer: (each["AllocationId"] for each in answer["Addresses"])),
    "nat": (
        "ec2.DescribeNatGateways",
        lambda answer: (each["NatGatewayId"] for each in answer["NatGateways"] if each["State"] != "deleted"),
    ),
    "endpoint": (
        "ec2.DescribeVpcEndpoints",
        lambda answer: (each["VpcEndpointId"] for each in answer["VpcEndpoints"] if each["State"] != "deleted"),
    ),
    "launch template": (
        "ec2.DescribeLaunchTemplates",
        lambda answer: (each["LaunchTemplateId"] for each in answer["LaunchTemplates"]),
    ),
    "instance": (
        "ec2.DescribeInstances",
        lambda answer: (
            each["InstanceId"]
            for found in answer["Reservations"]
            for each in found["Instances"]
            if each["State"]["Name"] != "terminated"
        ),
    ),
    "scaling group": (
        "autoscaling.DescribeAutoScalingGroups",
        lambda answer: (each["AutoScalingGroupName"] for each in answer["AutoScalingGroups"]),
    ),
    "balancer": (
        "elb.DescribeLoadBalancers",
        lambda answer: (b["LoadBalancerName"] for b in answer["LoadBalancerDescriptions"]),
    ),
    "new balancer": (
        "elbv2.DescribeLoadBalancers",
        lambda answer: (b["LoadBalancerArn"] for b in answer["LoadBalancers"]),
    ),
    "log group": ("logs.DescribeLogGroups", lambda answer: (each["logGroupName"] for each in answer["logGroups"])),
    "cluster": ("eks.ListClusters", lambda answer: iter(answer["clusters"])),
    "role": ("iam.ListRoles", lambda answer: (each["RoleName"] for each in answer["Roles"])),
    "bucket": ("s3.ListBuckets", lambda answer: (each["Name"] for each in answer["Buckets"])),
    "schedule": ("scheduler.ListSchedules", lambda answer: (each["Name"] for each in answer["Schedules"])),
    "schedule group": (
        "scheduler.ListScheduleGroups",
        lambda answer: (each["Name"] for each in answer["ScheduleGroups"]),
    ),
}
"""Kind → operation, and the ids in its answer."""


def everything(cloud: Cloud) -> set[tuple[str, str]]:
    """All things of the account and region, as (kind, id)."""
    found = {(kind, name) for kind, (operation, ids) in LISTINGS.items() for name in ids(cloud.call(operation, {}))}
    # moto makes these for endpoints, gateways and balancers; those of nobody's making are what a leak looks like.
    interfaces = cloud.call("ec2.DescribeNetworkInterfaces", {})["NetworkInterfaces"]
    return found | {("interface", each["NetworkInterfaceId"]) for each in interfaces if each.get("TagSet")}


def strangers(cloud: Cloud) -> None:
    """What others have in the same account, named and tagged as closely after ours as they could."""
    tags = [{"Key": "application", "Value": "coldstart-legacy"}, {"Key": "environment", "Value": "dev"}]

    def spec(kind: str) -> list[dict[str, Any]]:
        return [{"ResourceType": kind, "Tags": tags}]

    vpc = cloud.call("ec2.CreateVpc", {"CidrBlock": "10.9.0.0/16", "TagSpecifications": spec("vpc")})["Vpc"]["VpcId"]
    subnet = cloud.call("ec2.CreateSubnet", {"VpcId": vpc, "CidrBlock": "10.9.0.0/24"})["Subnet"]["SubnetId"]
    cloud.call("ec2.CreateSecurityGroup", {"GroupName": "k8s-elb-dev", "Description": "-", "VpcId": vpc})
    cloud.call("ec2.AllocateAddress", {"Domain": "vpc"})
    cloud.call(
        "ec2.CreateVolume",
        {
            "AvailabilityZone": "us-west-2a",
            "Size": 10,
            "TagSpecifications": [
                {
                    "ResourceType": "volume",
                    "Tags": [{"Key": "kubernetes.io/cluster/coldstart-dev2", "Value": "owned"}],
                }
            ],
        },
    )
    cloud.call(
        "ec2.CreateNetworkInterface",
        {
            "SubnetId": subnet,
            "Description": "aws-K8S-i-0123",
            "TagSpecifications": [
                {
                    "ResourceType": "network-interface",
                    "Tags": [{"Key": "node.k8s.amazonaws.com/instance_id", "Value": "i-0123"}],
                }
            ],
        },
    )
    cloud.call(
        "elb.CreateLoadBalancer",
        {
            "LoadBalancerName": "a-coldstart-dev",
            "Listeners": [{"Protocol": "TCP", "LoadBalancerPort": 80, "InstancePort": 80}],
            "Subnets": [subnet],
        },
    )
    cloud.call("logs.CreateLogGroup", {"logGroupName": "/aws/eks/coldstart-dev2/cluster"})
    cloud.call("logs.CreateLogGroup", {"logGroupName": "/aws/eks/coldstart-dev/cluster-old"})
    cloud.call("iam.CreateRole", {"RoleName": "dev-node-0000000", "AssumeRolePolicyDocument": "{}", "Tags": tags})
    place = {"CreateBucketConfiguration": {"LocationConstraint": "us-west-2"}}
    cloud.call("s3.CreateBucket", {"Bucket": "coldstart-dev-111122223333-us-west-2-backup", **place})
