"""Every guardrail stops what it is for, lets the rest pass, and no shipped stack meets one."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

import pulumi_aws
import pytest

from infra.guardrails import GUARDRAILS, REQUIRED_TAGS, TAGGED_TYPES, Guardrail
from infra.offline import Evaluation
from infra.offline_cloud import COMPUTED

Declared = Callable[..., Evaluation]
Properties = dict[str, Any]
STACKS = ("dev", "dev-llama-3-1-8b", "dev-qwen2-5-0-5b", "dev-qwen3-32b")
BY_NAME = {guardrail.name: guardrail for guardrail in GUARDRAILS}

CLUSTER = "aws:eks/cluster:Cluster"
TEMPLATE = "aws:ec2/launchTemplate:LaunchTemplate"
GROUP = "aws:eks/nodeGroup:NodeGroup"
LOGS = "aws:cloudwatch/logGroup:LogGroup"
BLOCK = "aws:s3/bucketPublicAccessBlock:BucketPublicAccessBlock"
ROLE_POLICY = "aws:iam/rolePolicy:RolePolicy"
TAGS = dict.fromkeys(REQUIRED_TAGS, "x")
CLOSED = {
    "blockPublicAcls": True,
    "blockPublicPolicy": True,
    "ignorePublicAcls": True,
    "restrictPublicBuckets": True,
}


def policy(**statement: object) -> Properties:
    return {"policy": json.dumps({"Version": "2012-10-17", "Statement": [{"Sid": "S", "Effect": "Allow"} | statement]})}


def volumes(*encrypted: object) -> Properties:
    return {
        "blockDeviceMappings": [
            {"deviceName": f"/dev/xvd{letter}", "ebs": {"encrypted": value}}
            for letter, value in zip("abc", encrypted, strict=False)
        ]
    }


def api(**config: object) -> Properties:
    return {"vpcConfig": {"endpointPrivateAccess": True, "endpointPublicAccess": True} | config}


STOPPED: list[tuple[str, str, Properties, str]] = [
    (
        "no-open-endpoint",
        CLUSTER,
        api(publicAccessCidrs=["0.0.0.0/0"]),
        "the API is open to the world",
    ),
    ("no-open-endpoint", CLUSTER, api(publicAccessCidrs=["192.0.2.0/24", "0.0.0.0/0"]), "the API is open to the world"),
    # No list is everybody, to EKS.
    ("no-open-endpoint", CLUSTER, api(), "the API is open to the world"),
    ("no-open-endpoint", CLUSTER, api(publicAccessCidrs=[]), "the API is open to the world"),
    (
        "no-open-endpoint",
        CLUSTER,
        api(endpointPrivateAccess=False, publicAccessCidrs=["192.0.2.0/24"]),
        "the API has no private endpoint: nodes would reach it through the internet",
    ),
    ("tagged", "aws:ec2/vpc:Vpc", {"tags": {**TAGS, "owner": ""}}, "tags missing: owner"),
    ("tagged", "aws:s3/bucket:Bucket", {}, f"tags missing: {', '.join(REQUIRED_TAGS)}"),
    ("encrypted", TEMPLATE, volumes("true", "false"), "volume /dev/xvdb is not encrypted"),
    ("encrypted", TEMPLATE, volumes(None), "volume /dev/xvda is not encrypted"),
    *[("bucket-private", BLOCK, CLOSED | {key: False}, f"{key} is off") for key in CLOSED],
    ("bucket-private", BLOCK, {key: True for key in CLOSED if key != "blockPublicAcls"}, "blockPublicAcls is off"),
    ("no-wildcard-s3", ROLE_POLICY, policy(Action="s3:*", Resource="*"), "statement S allows s3:*"),
    ("no-wildcard-s3", ROLE_POLICY, policy(Action=["s3:GetObject", "*"], Resource="*"), "statement S allows *"),
    (
        "pinned-nodes",
        TEMPLATE,
        {"imageId": "ami-0123456789abcdef0"},
        "an image id stops EKS from merging its own settings: nodes would never join",
    ),
    ("pinned-nodes", GROUP, {}, "no release version: the next update may bring another GPU driver"),
    ("bounded-nodes", GROUP, {"scalingConfig": {"maxSize": 101}}, "may grow to 101 nodes; at most 100"),
    ("bounded-nodes", GROUP, {}, "may grow to None nodes; at most 100"),
    (
        "metadata-guarded",
        TEMPLATE,
        {"metadataOptions": {"httpTokens": "optional", "httpPutResponseHopLimit": 1}},
        "instance metadata answers without a token",
    ),
    (
        "metadata-guarded",
        TEMPLATE,
        {"metadataOptions": {"httpTokens": "required", "httpPutResponseHopLimit": 2}},
        "instance metadata answers pods (hop limit is not 1)",
    ),
    ("logs-end", LOGS, {"name": "/aws/x"}, "logs are kept, and billed, for ever"),
    ("logs-end", LOGS, {"retentionInDays": 0}, "logs are kept, and billed, for ever"),
]

PASSED: list[tuple[str, str, Properties]] = [
    ("no-open-endpoint", CLUSTER, api(publicAccessCidrs=["192.0.2.0/24"])),
    ("no-open-endpoint", CLUSTER, api(endpointPublicAccess=False)),
    ("tagged", "aws:ec2/vpc:Vpc", {"tags": TAGS}),
    ("tagged", "aws:ec2/vpc:Vpc", {"tags": {}, "tagsAll": TAGS}),
    ("tagged", "aws:ec2/route:Route", {}),
    ("encrypted", TEMPLATE, volumes("true", "True")),
    ("encrypted", TEMPLATE, {"blockDeviceMappings": [{"deviceName": "/dev/xvdb", "ebs": {"snapshotId": "snap-1"}}]}),
    ("bucket-private", BLOCK, CLOSED),
    ("no-wildcard-s3", ROLE_POLICY, policy(Action=["s3:GetObject"], Resource="*")),
    # The bucket refuses everything without TLS: a denial may be as wide as it likes.
    ("no-wildcard-s3", "aws:s3/bucketPolicy:BucketPolicy", policy(Effect="Deny", Action="s3:*", Resource="*")),
    ("pinned-nodes", TEMPLATE, {"instanceType": "g6.xlarge"}),
    ("pinned-nodes", GROUP, {"releaseVersion": "1.69.0-abc"}),
    ("bounded-nodes", GROUP, {"scalingConfig": {"maxSize": 100}}),
    ("metadata-guarded", TEMPLATE, {"metadataOptions": {"httpTokens": "required", "httpPutResponseHopLimit": 1}}),
    ("logs-end", LOGS, {"retentionInDays": 30}),
]


def violations(guardrail: Guardrail, kind: str, properties: Mapping[str, Any]) -> list[str]:
    return list(guardrail.check(kind, properties))


@pytest.mark.parametrize(("name", "kind", "properties", "words"), STOPPED)
def test_what_a_guardrail_is_for_is_stopped(name: str, kind: str, properties: Properties, words: str) -> None:
    assert violations(BY_NAME[name], kind, properties) == [words]


@pytest.mark.parametrize(("name", "kind", "properties"), PASSED)
def test_the_rest_passes(name: str, kind: str, properties: Properties) -> None:
    assert violations(BY_NAME[name], kind, properties) == []


def test_every_guardrail_is_tried_both_ways() -> None:
    assert {case[0] for case in STOPPED} == {case[0] for case in PASSED} == set(BY_NAME)


def test_a_guardrail_looks_at_its_own_types_alone() -> None:
    """The policy pack hands every resource to every guardrail."""
    for guardrail in GUARDRAILS:
        assert violations(guardrail, "random:index/randomId:RandomId", {}) == []
        assert violations(guardrail, "kubernetes:core/v1:Pod", {"policy": "{"}) == []


def test_names_and_descriptions_are_for_people() -> None:
    assert len(BY_NAME) == len(GUARDRAILS)
    for guardrail in GUARDRAILS:
        assert guardrail.name == guardrail.name.lower()
        assert guardrail.description.endswith(".")


# ---- recorded resources ---------------------------------------------------------------------------------------------


def default_tags(found: Evaluation) -> dict[str, str]:
    (provider,) = found.of_type("pulumi:providers:aws")
    return json.loads(provider.inputs["defaultTags"])["tags"]


@pytest.mark.parametrize("mode", ["up", "preview"])
@pytest.mark.parametrize("stack", STACKS)
def test_no_shipped_stack_meets_a_guardrail(declared: Declared, stack: str, mode: str) -> None:
    """The provider merges its default tags into every resource before the policy pack sees it."""
    found = declared(stack, mode=mode)
    tags = default_tags(found)
    for resource in found.resources:
        properties = dict(resource.inputs)
        if resource.type in TAGGED_TYPES:
            properties["tags"] = tags | dict(properties.get("tags", {}))
        for guardrail in GUARDRAILS:
            assert violations(guardrail, resource.type, properties) == [], f"{resource.urn}: {guardrail.name}"


def test_a_stack_that_opens_its_api_on_purpose_is_stopped_all_the_same(declared: Declared) -> None:
    changes = {"environment.access.public_cidrs": ["0.0.0.0/0"], "environment.access.open_to_the_world": True}
    (cluster,) = declared("dev", changes).of_type(CLUSTER)
    assert violations(BY_NAME["no-open-endpoint"], cluster.type, cluster.inputs) == ["the API is open to the world"]


def class_of(token: str) -> type:
    package, module, name = token.split(":")
    assert package == "aws"
    return getattr(getattr(pulumi_aws, module.partition("/")[0]), name)


def test_every_type_that_can_carry_tags_is_looked_at() -> None:
    """The provider computes `tagsAll` for exactly the types that AWS tags."""
    taggable = {token for token in COMPUTED if token.startswith("aws:") and hasattr(class_of(token), "tags_all")}
    assert taggable == TAGGED_TYPES


# ---- what slips through ---------------------------------------------------------------------------------------------

SLIPS: dict[str, tuple[str, str, Properties]] = {
    "half the world and the other half": (
        "no-open-endpoint",
        CLUSTER,
        api(publicAccessCidrs=["0.0.0.0/1", "128.0.0.0/1"]),
    ),
    "the world in IPv6": ("no-open-endpoint", CLUSTER, api(publicAccessCidrs=["::/0"])),
    "all of S3 in capitals": ("no-wildcard-s3", ROLE_POLICY, policy(Action="S3:*", Resource="*")),
    "all of S3 but one action": ("no-wildcard-s3", ROLE_POLICY, policy(NotAction="s3:DeleteBucket", Resource="*")),
    "every action of S3 that writes": ("no-wildcard-s3", ROLE_POLICY, policy(Action="s3:Put*", Resource="*")),
    "every service": ("no-wildcard-s3", ROLE_POLICY, policy(Action="*:*", Resource="*")),
    "a document that begins with a space": (
        "no-wildcard-s3",
        ROLE_POLICY,
        {"policy": "\n" + policy(Action="s3:*", Resource="*")["policy"]},
    ),
    "a template without volumes of its own": ("encrypted", TEMPLATE, {}),
}


@pytest.mark.parametrize(("name", "kind", "properties"), SLIPS.values(), ids=SLIPS.keys())
def test_no_other_spelling_slips_through(name: str, kind: str, properties: Properties) -> None:
    assert violations(BY_NAME[name], kind, properties) != []


def test_a_policy_of_a_single_statement() -> None:
    document = {"policy": json.dumps({"Statement": {"Effect": "Allow", "Action": "s3:*", "Resource": "*"}})}
    assert violations(BY_NAME["no-wildcard-s3"], ROLE_POLICY, document) == ["statement ? allows s3:*"]
