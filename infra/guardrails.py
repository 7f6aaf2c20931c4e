"""Guardrails: what no stack of ours may hold, as plain functions over one resource's type and properties.

The policy pack in `infra/policies/` runs them under the CLI; the tests run the same ones over recorded resources.
"""

from __future__ import annotations

import ipaddress
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatch
from typing import Any, cast

Properties = Mapping[str, Any]
Check = Callable[[str, Properties], Iterator[str]]

REQUIRED_TAGS = ("application", "environment", "model", "stack", "owner", "expiry")
TAGGED_TYPES = frozenset(
    {
        "aws:cloudwatch/logGroup:LogGroup",
        "aws:ec2/eip:Eip",
        "aws:ec2/internetGateway:InternetGateway",
        "aws:ec2/launchTemplate:LaunchTemplate",
        "aws:ec2/natGateway:NatGateway",
        "aws:ec2/routeTable:RouteTable",
        "aws:ec2/securityGroup:SecurityGroup",
        "aws:ec2/subnet:Subnet",
        "aws:ec2/vpc:Vpc",
        "aws:ec2/vpcEndpoint:VpcEndpoint",
        "aws:eks/addon:Addon",
        "aws:eks/accessEntry:AccessEntry",
        "aws:eks/cluster:Cluster",
        "aws:eks/nodeGroup:NodeGroup",
        "aws:eks/podIdentityAssociation:PodIdentityAssociation",
        "aws:iam/role:Role",
        "aws:s3/bucket:Bucket",
        "aws:scheduler/scheduleGroup:ScheduleGroup",
        "aws:vpc/securityGroupIngressRule:SecurityGroupIngressRule",
    }
)
"""Types that carry tags: by them a leftover is known as ours."""
NARROWEST_OPEN = 8
"""Nobody owns more than a /8; anything wider, in IPv4 or IPv6, counts as open to the world."""
MOST_NODES = 100
"""A group that may grow beyond this is a mistake or deserves a policy of its own."""
POLICY_TYPES = frozenset({"aws:iam/rolePolicy:RolePolicy", "aws:iam/policy:Policy", "aws:s3/bucketPolicy:BucketPolicy"})


@dataclass(frozen=True, slots=True)
class Guardrail:
    """One rule.

    Attributes:
        name: as the CLI shows it.
        description: what it protects from.
        check: yields a violation in words for each breach of one resource.
    """

    name: str
    description: str
    check: Check


def section(properties: Properties, key: str) -> Properties:
    """The properties below a key; none where there is no such section."""
    value = properties.get(key)
    return cast("Properties", value) if isinstance(value, Mapping) else {}


def no_open_endpoint(kind: str, properties: Properties) -> Iterator[str]:
    """The Kubernetes API is reachable from listed ranges only."""
    if kind != "aws:eks/cluster:Cluster":
        return
    config = section(properties, "vpcConfig")
    if not config.get("endpointPrivateAccess"):
        yield "the API has no private endpoint: nodes would reach it through the internet"
    ranges = cast("Sequence[str]", config.get("publicAccessCidrs") or ())
    if config.get("endpointPublicAccess") and (not ranges or any(_wide(text) for text in ranges)):
        yield "the API is open to the world"


def _wide(text: str) -> bool:
    """Whether a range is so wide that a few of them are the world."""
    return ipaddress.ip_network(text, strict=False).prefixlen < NARROWEST_OPEN


def tagged(kind: str, properties: Properties) -> Iterator[str]:
    """Everything that can carry tags says whose it is."""
    if kind not in TAGGED_TYPES:
        return
    tags = {**section(properties, "tagsAll"), **section(properties, "tags")}
    missing = [tag for tag in REQUIRED_TAGS if not tags.get(tag)]
    if missing:
        yield f"tags missing: {', '.join(missing)}"


def encrypted(kind: str, properties: Properties) -> Iterator[str]:
    """Volumes of nodes are encrypted.

    A volume created from a snapshot inherits the snapshot's encryption; EC2 rejects an explicit setting there.
    """
    if kind != "aws:ec2/launchTemplate:LaunchTemplate":
        return
    mappings = cast("Sequence[Properties]", properties.get("blockDeviceMappings") or ())
    if not mappings:
        yield "no volumes of its own: the image's are not encrypted"
    for mapping in mappings:
        ebs = section(mapping, "ebs")
        if not ebs.get("snapshotId") and str(ebs.get("encrypted")).lower() != "true":
            yield f"volume {mapping.get('deviceName')} is not encrypted"


def bucket_private(kind: str, properties: Properties) -> Iterator[str]:
    """No bucket can be made public."""
    if kind != "aws:s3/bucketPublicAccessBlock:BucketPublicAccessBlock":
        return
    for key in ("blockPublicAcls", "blockPublicPolicy", "ignorePublicAcls", "restrictPublicBuckets"):
        if properties.get(key) is not True:
            yield f"{key} is off"


def no_wildcard_s3(kind: str, properties: Properties) -> Iterator[str]:
    """No policy grants S3 by a pattern: each action is named."""
    text = properties.get("policy")
    document: Properties = json.loads(text) if kind in POLICY_TYPES and isinstance(text, str) and "{" in text else {}
    found: object = document.get("Statement", [])
    statements = cast("Sequence[Properties]", [found] if isinstance(found, dict) else found)
    for statement in statements:
        if statement.get("Effect") != "Allow":
            continue
        sid, actions = statement.get("Sid", "?"), statement.get("Action", [])
        listed = [actions] if isinstance(actions, str) else cast("Sequence[str]", actions)
        wild = [action for action in listed if _wild_s3(action)]
        if wild:
            yield f"statement {sid} allows {', '.join(wild)}"
        if "NotAction" in statement:
            yield f"statement {sid} allows all but what it names"


def _wild_s3(action: str) -> bool:
    """Whether an action is a pattern that reaches S3; IAM reads actions without regard to case."""
    service, _, name = action.lower().partition(":")
    return fnmatch("s3", service) and any(sign in f"{service}:{name or '*'}" for sign in "*?")


def pinned_nodes(kind: str, properties: Properties) -> Iterator[str]:
    """Node groups run a pinned release, of the image that EKS knows."""
    if kind == "aws:ec2/launchTemplate:LaunchTemplate" and properties.get("imageId"):
        yield "an image id stops EKS from merging its own settings: nodes would never join"
    if kind == "aws:eks/nodeGroup:NodeGroup" and not properties.get("releaseVersion"):
        yield "no release version: the next update may bring another GPU driver"


def bounded_nodes(kind: str, properties: Properties) -> Iterator[str]:
    """Node groups have a maximum."""
    if kind != "aws:eks/nodeGroup:NodeGroup":
        return
    most = section(properties, "scalingConfig").get("maxSize")
    if most is None or most > MOST_NODES:
        yield f"may grow to {most} nodes; at most {MOST_NODES}"


def metadata_guarded(kind: str, properties: Properties) -> Iterator[str]:
    """No pod reaches the node's own credentials."""
    if kind != "aws:ec2/launchTemplate:LaunchTemplate":
        return
    options = section(properties, "metadataOptions")
    if options.get("httpTokens") != "required":
        yield "instance metadata answers without a token"
    if options.get("httpPutResponseHopLimit") != 1:
        yield "instance metadata answers pods (hop limit is not 1)"


def logs_end(kind: str, properties: Properties) -> Iterator[str]:
    """Log groups have an end."""
    if kind == "aws:cloudwatch/logGroup:LogGroup" and not properties.get("retentionInDays"):
        yield "logs are kept, and billed, for ever"


GUARDRAILS = (
    Guardrail("no-open-endpoint", "The Kubernetes API is not open to the world.", no_open_endpoint),
    Guardrail("tagged", "Everything that can carry tags says whose it is.", tagged),
    Guardrail("encrypted", "Node volumes are encrypted.", encrypted),
    Guardrail("bucket-private", "Buckets can't be made public.", bucket_private),
    Guardrail("no-wildcard-s3", "No policy grants all of S3.", no_wildcard_s3),
    Guardrail("pinned-nodes", "Node groups run a pinned release of EKS's own image.", pinned_nodes),
    Guardrail("bounded-nodes", "Node groups have a maximum.", bounded_nodes),
    Guardrail("metadata-guarded", "Pods can't take the node's identity.", metadata_guarded),
    Guardrail("logs-end", "Log groups have an end.", logs_end),
)
