"""What the cloud would answer, for evaluation without one: invented values that can be recognised as invented."""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping
from typing import Any

from budget.problems import bad_input

Inputs = Mapping[str, Any]
ACCOUNT = "000000000000"
"""No account has this number: whatever carries it was made up here."""

_CERTIFICATE = base64.b64encode(b"offline certificate").decode()


def _arn(service: str, kind: str) -> Callable[[str, Inputs], dict[str, Any]]:
    return lambda name, _inputs: {"arn": f"arn:aws:{service}:offline:{ACCOUNT}:{kind}/{name}"}


def _nothing(_name: str, _inputs: Inputs) -> dict[str, Any]:
    return {}


COMPUTED: Mapping[str, Callable[[str, Inputs], dict[str, Any]]] = {
    "aws:autoscaling/tag:Tag": _nothing,
    "aws:cloudwatch/logGroup:LogGroup": _arn("logs", "log-group"),
    "aws:ec2/eip:Eip": lambda name, _: {"allocationId": f"eipalloc-offline-{name}", "publicIp": "192.0.2.1"},
    "aws:ec2/internetGateway:InternetGateway": _arn("ec2", "internet-gateway"),
    "aws:ec2/launchTemplate:LaunchTemplate": lambda name, _: {"id": f"lt-offline-{name}", "latestVersion": 1},
    "aws:ec2/natGateway:NatGateway": _nothing,
    "aws:ec2/route:Route": _nothing,
    "aws:ec2/routeTable:RouteTable": _arn("ec2", "route-table"),
    "aws:ec2/routeTableAssociation:RouteTableAssociation": _nothing,
    "aws:ec2/securityGroup:SecurityGroup": _arn("ec2", "security-group"),
    "aws:ec2/subnet:Subnet": lambda name, _: {"id": f"subnet-offline-{name}"},
    "aws:ec2/vpc:Vpc": _arn("ec2", "vpc"),
    "aws:ec2/vpcEndpoint:VpcEndpoint": _arn("ec2", "vpc-endpoint"),
    "aws:eks/accessEntry:AccessEntry": _nothing,
    "aws:eks/accessPolicyAssociation:AccessPolicyAssociation": _nothing,
    "aws:eks/addon:Addon": _arn("eks", "addon"),
    "aws:eks/cluster:Cluster": lambda name, inputs: {
        "arn": f"arn:aws:eks:offline:{ACCOUNT}:cluster/{name}",
        "name": inputs.get("name", name),
        "endpoint": "https://offline.invalid",
        "certificateAuthority": {"data": _CERTIFICATE},
    },
    "aws:eks/nodeGroup:NodeGroup": lambda name, _: {
        "nodeGroupName": f"{name}-offline",
        "resources": [{"autoscalingGroups": [{"name": f"eks-{name}-offline"}]}],
    },
    "aws:eks/podIdentityAssociation:PodIdentityAssociation": _nothing,
    "aws:iam/role:Role": lambda name, _: {
        "arn": f"arn:aws:iam::{ACCOUNT}:role/{name}-offline",
        "name": f"{name}-offline",
    },
    "aws:iam/rolePolicy:RolePolicy": _nothing,
    "aws:iam/rolePolicyAttachment:RolePolicyAttachment": _nothing,
    "aws:s3/bucket:Bucket": lambda _, inputs: {"arn": f"arn:aws:s3:::{inputs['bucket']}", "id": inputs["bucket"]},
    "aws:s3/bucketLifecycleConfiguration:BucketLifecycleConfiguration": _nothing,
    "aws:s3/bucketOwnershipControls:BucketOwnershipControls": _nothing,
    "aws:s3/bucketPolicy:BucketPolicy": _nothing,
    "aws:s3/bucketPublicAccessBlock:BucketPublicAccessBlock": _nothing,
    "aws:s3/bucketServerSideEncryptionConfiguration:BucketServerSideEncryptionConfiguration": _nothing,
    "aws:scheduler/schedule:Schedule": _arn("scheduler", "schedule"),
    "aws:scheduler/scheduleGroup:ScheduleGroup": lambda name, _: {
        "arn": f"arn:aws:scheduler:offline:{ACCOUNT}:schedule-group/{name}-offline",
        "name": f"{name}-offline",
    },
    "aws:vpc/securityGroupIngressRule:SecurityGroupIngressRule": _nothing,
    "kubernetes:apps/v1:DaemonSet": _nothing,
    "kubernetes:apps/v1:Deployment": _nothing,
    "kubernetes:batch/v1:Job": _nothing,
    "kubernetes:core/v1:ConfigMap": _nothing,
    "kubernetes:core/v1:Namespace": _nothing,
    "kubernetes:core/v1:PersistentVolume": _nothing,
    "kubernetes:core/v1:PersistentVolumeClaim": _nothing,
    "kubernetes:core/v1:Secret": lambda _, inputs: {
        "metadata": {**inputs.get("metadata", {}), "resourceVersion": "offline"}
    },
    "kubernetes:core/v1:Service": _nothing,
    "kubernetes:core/v1:ServiceAccount": _nothing,
    "kubernetes:helm.sh/v3:Release": _nothing,
    "kubernetes:keda.sh/v1alpha1:ScaledObject": _nothing,
    "kubernetes:monitoring.coreos.com/v1:PodMonitor": _nothing,
    "kubernetes:networking.k8s.io/v1:NetworkPolicy": _nothing,
    "kubernetes:policy/v1:PodDisruptionBudget": _nothing,
    "kubernetes:scheduling.k8s.io/v1:PriorityClass": _nothing,
    "kubernetes:rbac.authorization.k8s.io/v1:ClusterRole": _nothing,
    "kubernetes:rbac.authorization.k8s.io/v1:ClusterRoleBinding": _nothing,
    "kubernetes:rbac.authorization.k8s.io/v1:Role": _nothing,
    "kubernetes:rbac.authorization.k8s.io/v1:RoleBinding": _nothing,
}
"""Every type the program may declare → what the cloud computes for it."""


def computed(token: str, name: str, inputs: Inputs) -> dict[str, Any]:
    """What the cloud adds to a resource's inputs.

    Raises:
        BadInput: a type that is not in the table.
    """
    if token not in COMPUTED:
        raise bad_input(name, f"{token} is not a type this project declares", "Describe it in infra/offline_cloud.py.")
    return COMPUTED[token](name, inputs)


def answer(token: str, args: Inputs, *, adopted: bool) -> dict[str, Any]:
    """What a data source returns.

    Raises:
        BadInput: a data source that is not known.
    """
    match token:
        case "aws:ssm/getParameter:getParameter":
            release = str(args["name"]).split("/")[-2]
            return {"name": args["name"], "value": f"{release}-offline"}
        case "aws:resourcegroupstaggingapi/getResources:getResources":
            return {"resourceTagMappingLists": [_kept_bucket(args)] if adopted else []}
        case "aws:s3/getObjects:getObjects":  # offline, every model counts as staged
            return {"keys": [args["prefix"]], "bucket": args["bucket"]}
        case _:
            raise bad_input(token, "not a data source this project asks", "Describe it in infra/offline_cloud.py.")


def _kept_bucket(args: Inputs) -> dict[str, Any]:
    names = [value for tag in args["tagFilters"] if tag["key"] == "bucket" for value in tag["values"]]
    return {"resourceArn": f"arn:aws:s3:::{names[0]}", "tags": {}, "complianceDetails": []}
