"""The other services: logs, Auto Scaling tags, schedules. And which type has a class of its own."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from typing_extensions import override

from tests.standin import kubernetes, network, node_groups, storage
from tests.standin.kinds import kind_of
from tests.standin.records import Record
from tests.standin.resources import Resource, World
from tests.standin.translation import Problem, translate
from tests.standin.wire import Properties, is_unknown

RETENTION_DAYS = (
    0,
    1,
    3,
    5,
    7,
    14,
    30,
    60,
    90,
    120,
    150,
    180,
    365,
    400,
    545,
    731,
    1096,
    1827,
    2192,
    2557,
    2922,
    3288,
    3653,
)


class LogGroup(Resource):
    """Its retention is one of a list."""

    @override
    def rules(self, inputs: Properties) -> Iterator[Problem]:
        days = inputs.get("retentionInDays")
        if days is not None and not is_unknown(days) and days not in RETENTION_DAYS:
            allowed = ", ".join(str(each) for each in RETENTION_DAYS)
            yield Problem("retentionInDays", f"is {days}; one of {allowed} is expected")

    @override
    def describe(self, record: Record) -> dict[str, Any] | None:
        found = self.world.cloud.call("logs.DescribeLogGroups", {"logGroupNamePrefix": record.id})["logGroups"]
        return next((group for group in found if group["logGroupName"] == record.id), None)


class ScalingTag(Resource):
    """A tag of an Auto Scaling group."""

    @override
    def creation(self, request: Properties, inputs: Properties) -> Properties:
        request["Tags"][0]["ResourceType"] = "auto-scaling-group"
        return request

    @override
    def describe(self, record: Record) -> dict[str, Any] | None:
        group = record.inputs["autoscalingGroupName"]
        filters = [{"Name": "auto-scaling-group", "Values": [group]}]
        tags = self.world.cloud.call("autoscaling.DescribeTags", {"Filters": filters})["Tags"]
        found = next((tag for tag in tags if tag["Key"] == record.inputs["tag"]["key"]), None)
        return found and {"tag": found}


class RolePolicyAttachment(Resource):
    """Listed with its role."""

    @override
    def describe(self, record: Record) -> dict[str, Any] | None:
        attached = self.world.cloud.find("iam.ListAttachedRolePolicies", {"RoleName": record.inputs["role"]})
        arns = {policy["PolicyArn"] for policy in attached["AttachedPolicies"]} if attached else set()
        return {} if record.inputs["policyArn"] in arns else None


class Schedule(Resource):
    """Every change sends the whole schedule again."""

    @override
    def change(self, record: Record, inputs: Properties, top: str) -> bool:
        request = translate(self.kind, {**self.kind.defaults, **inputs}).requests[self.kind.create]
        self.world.cloud.call("scheduler.UpdateSchedule", request)
        return True


OWN_CLASSES: Mapping[str, type[Resource]] = {
    "aws:autoscaling/tag:Tag": ScalingTag,
    "aws:cloudwatch/logGroup:LogGroup": LogGroup,
    "aws:ec2/internetGateway:InternetGateway": network.InternetGateway,
    "aws:ec2/launchTemplate:LaunchTemplate": network.LaunchTemplate,
    "aws:ec2/natGateway:NatGateway": network.NatGateway,
    "aws:ec2/route:Route": network.Route,
    "aws:ec2/routeTableAssociation:RouteTableAssociation": network.RouteTableAssociation,
    "aws:ec2/securityGroup:SecurityGroup": network.SecurityGroup,
    "aws:ec2/vpcEndpoint:VpcEndpoint": network.VpcEndpoint,
    "aws:eks/accessEntry:AccessEntry": kubernetes.AccessEntry,
    "aws:eks/accessPolicyAssociation:AccessPolicyAssociation": kubernetes.AccessPolicyAssociation,
    "aws:eks/addon:Addon": kubernetes.Addon,
    "aws:eks/cluster:Cluster": kubernetes.Cluster,
    "aws:eks/nodeGroup:NodeGroup": node_groups.NodeGroup,
    "aws:eks/podIdentityAssociation:PodIdentityAssociation": kubernetes.PodIdentityAssociation,
    "aws:iam/rolePolicyAttachment:RolePolicyAttachment": RolePolicyAttachment,
    "aws:s3/bucket:Bucket": storage.Bucket,
    "aws:s3/bucketLifecycleConfiguration:BucketLifecycleConfiguration": storage.BucketLifecycleConfiguration,
    "aws:s3/bucketVersioning:BucketVersioning": storage.BucketVersioning,
    "aws:scheduler/schedule:Schedule": Schedule,
    "aws:vpc/securityGroupEgressRule:SecurityGroupEgressRule": network.SecurityGroupRule,
    "aws:vpc/securityGroupIngressRule:SecurityGroupIngressRule": network.SecurityGroupRule,
}


def resource_of(token: str, world: World) -> Resource:
    """A type of resource in a world.

    Raises:
        UnknownTypeError: the stand-in does not know it.
    """
    return OWN_CLASSES.get(token, Resource)(kind_of(token), world)
