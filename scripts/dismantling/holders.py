"""What holds a thing that won't go: the interface, the group, the finalizer, in one sentence each."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, cast

from scripts.account.kinds.interfaces import INSTANCE_TAG
from scripts.account.ownership import tags_of
from scripts.account.refusals import AWS_ERRORS, in_words
from scripts.account.session import Clients
from scripts.cluster.api import KubernetesApi, Object
from scripts.deployed.state import Resource
from scripts.failure import Failure

if TYPE_CHECKING:
    from mypy_boto3_ec2.type_defs import NetworkInterfaceTypeDef


def of_resource(clients: Clients, api: KubernetesApi | None, resource: Resource) -> Sequence[str]:
    """What holds one resource of a stack; empty when nothing is found, or it can't be asked."""
    try:
        return list(_of_aws(clients, resource)) or list(_of_kubernetes(api, resource))
    except AWS_ERRORS as error:
        return [f"{resource.name}: it can't be seen what holds it ({in_words(error)})"]
    except Failure as error:
        return [f"{resource.name}: {error}"]


def _of_aws(clients: Clients, resource: Resource) -> Iterator[str]:
    match resource.type:
        case "aws:ec2/securityGroup:SecurityGroup":
            yield from of_interfaces(clients, "group-id", resource.id)
            yield from _referring_groups(clients, resource.id)
        case "aws:ec2/subnet:Subnet":
            yield from of_interfaces(clients, "subnet-id", resource.id)
        case "aws:ec2/vpc:Vpc":
            yield from of_interfaces(clients, "vpc-id", resource.id)
            yield from _other_groups(clients, resource.id)
        case "aws:eks/cluster:Cluster":
            for page in clients.eks.get_paginator("list_nodegroups").paginate(clusterName=resource.id):
                yield from (f"node group {name} is still in the cluster" for name in page["nodegroups"])
        case "aws:s3/bucket:Bucket":
            if clients.s3.list_object_versions(Bucket=resource.id, MaxKeys=1).get("Versions"):
                yield f"bucket {resource.id} holds objects: --purge-weights removes them"
        case _:
            return


def of_interfaces(clients: Clients, filter_name: str, value: str) -> Iterator[str]:
    """Network interfaces by one of EC2's filters, each with what it belongs to."""
    pages = clients.ec2.get_paginator("describe_network_interfaces").paginate(
        Filters=[{"Name": filter_name, "Values": [value]}]
    )
    for page in pages:
        for interface in page["NetworkInterfaces"]:
            yield _interface(interface)


def _interface(interface: NetworkInterfaceTypeDef) -> str:
    name, status = interface.get("NetworkInterfaceId", "?"), interface.get("Status", "?")
    description, requester = interface.get("Description", ""), interface.get("RequesterId", "")
    attached = interface.get("Attachment", {})
    to = attached.get("InstanceId") or attached.get("InstanceOwnerId")
    leaked = INSTANCE_TAG in tags_of(interface.get("TagSet")) and status == "available"
    words = [
        f"network interface {name} ({status})",
        f"described as {description!r}" if description else "",
        f"attached to {to}" if to else "",
        f"made by {requester}" if requester else "",
        "left behind by the CNI: teardown removes it" if leaked else "",
    ]
    return ", ".join(word for word in words if word)


def _referring_groups(clients: Clients, group: str) -> Iterator[str]:
    for name in ("ip-permission.group-id", "egress.ip-permission.group-id"):
        pages = clients.ec2.get_paginator("describe_security_groups").paginate(
            Filters=[{"Name": name, "Values": [group]}]
        )
        for page in pages:
            for other in page["SecurityGroups"]:
                if other.get("GroupId") != group:
                    yield f"security group {other.get('GroupId')} ({other.get('GroupName')}) has a rule that names it"


def _other_groups(clients: Clients, vpc: str) -> Iterator[str]:
    pages = clients.ec2.get_paginator("describe_security_groups").paginate(
        Filters=[{"Name": "vpc-id", "Values": [vpc]}]
    )
    for page in pages:
        for group in page["SecurityGroups"]:
            if group.get("GroupName") != "default":
                yield f"security group {group.get('GroupId')} ({group.get('GroupName')}) is in the VPC"


def _of_kubernetes(api: KubernetesApi | None, resource: Resource) -> Iterator[str]:
    if api is None or resource.type != "kubernetes:core/v1:Namespace":
        return
    namespace = api.get(f"/api/v1/namespaces/{resource.id}")
    status = cast("dict[str, Any]", (namespace or {}).get("status") or {})
    for condition in cast("Sequence[Object]", status.get("conditions") or ()):
        if condition.get("status") == "True":
            yield f"namespace {resource.id}: {condition.get('message')}"
