"""Preflight over HTTP: an account in which everything is right, and each thing that can be wrong with it."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import boto3
import pytest

from budget.problems import BadInput
from scripts.checks import CHECKS
from scripts.checks.finding import Verdict
from scripts.checks.policy import minimal_policy
from scripts.checks.quota import CODES, class_of
from scripts.preflight import document, worst
from tests.aws.account.audited import REGION
from tests.aws.account.lacking import reservation
from tests.aws.account.ready import MODEL, Cluster, Ready, versions

OPERATIONS = {
    # What moto's and AWS's operations are called in IAM, where the two names differ.
    "service-quotas": "servicequotas",
    "HEAD": "s3:GetObject",
    "GET": "s3:GetBucketLocation",
}


def test_where_everything_is_right_everything_passes(ready: Ready) -> None:
    answers = ready.ask()
    assert {name: answer.verdict for name, answer in answers.items() if answer.verdict is not Verdict.PASS} == {}
    assert set(answers) == {check.name for check in CHECKS} - {"reservation"}, "a question that does not arise"
    assert worst(list(answers.values())) is Verdict.PASS
    (quota,) = answers["quota"].findings
    assert quota.found == (
        "G and VT on-demand: quota 64 vCPU (L-DB2E81BA), 0 in use by others; at most 4 x g6e.2xlarge need 32"
    )


def test_an_environment_is_asked_less(ready: Ready) -> None:
    answers = ready.ask("dev")
    assert set(answers) == {
        "identity",
        "quota",
        "offering",
        "Kubernetes version",
        "node image",
        "service roles",
        "keys",
    }
    assert worst(list(answers.values())) is Verdict.PASS


Break = Callable[[Ready], None]


def no_quota(ready: Ready) -> None:
    ready.quota(**{"L-DB2E81BA": 0.0})


def little_quota(ready: Ready) -> None:
    ready.quota(**{"L-DB2E81BA": 16.0})


def quota_in_use(ready: Ready) -> None:
    ready.client("ec2").run_instances(ImageId="ami-12c6146b", InstanceType="g6e.12xlarge", MinCount=1, MaxCount=1)


def default_quota(ready: Ready) -> None:
    del ready.front.answers["service-quotas.GetServiceQuota"]
    ready.front.fail("service-quotas.GetServiceQuota", code="NoSuchResourceException", times=99)
    ready.front.answers["service-quotas.GetAWSDefaultServiceQuota"] = lambda _: {"Quota": {"Value": 0.0}}


def denied_quota(ready: Ready) -> None:
    ready.front.fail("service-quotas.GetServiceQuota", code="AccessDeniedException", times=99)


def nowhere_sold(ready: Ready) -> None:
    ready.front.answers["ec2.DescribeInstanceTypeOfferings"] = lambda _: offerings("eu-central-1a")


def sold_in_one_zone(ready: Ready) -> None:
    ready.front.answers["ec2.DescribeInstanceTypeOfferings"] = lambda _: offerings(f"{REGION}b")


def offerings(zone: str) -> dict[str, Any]:
    offering = {"InstanceType": "g6e.2xlarge", "LocationType": "availability-zone", "Location": zone}
    return {"InstanceTypeOfferings": [offering]}


def extended_support(ready: Ready) -> None:
    ready.front.answers["eks.DescribeClusterVersions"] = lambda _: versions("EXTENDED_SUPPORT", days=-10)


def ending_support(ready: Ready) -> None:
    ready.front.answers["eks.DescribeClusterVersions"] = lambda _: versions("STANDARD_SUPPORT", days=20)


def no_cluster(ready: Ready) -> None:
    ready.client("eks").delete_cluster(name="coldstart-dev")


def never_built(ready: Ready) -> None:
    del ready.front.answers["ssm.GetParameter"]


def moved_image(ready: Ready) -> None:
    image = "444455556666.dkr.ecr.us-west-2.amazonaws.com/vllm:v0.33.0@sha256:" + "a" * 64
    ready.edit("model.image", image)


def missing_image(ready: Ready) -> None:
    ready.edit("model.image", "vllm/missing:v0.33.0@sha256:" + "a" * 64)


def unpinned_image(ready: Ready) -> None:
    ready.edit("model.image", "vllm/vllm-openai:v0.33.0")


def not_staged(ready: Ready) -> None:
    specs = ready.wanted().specs
    assert specs is not None
    ready.client("s3").delete_object(Bucket=specs.bucket, Key=specs.staged.manifest_key)


def no_bucket(ready: Ready) -> None:
    ready.edit("environment.bucket", {"name": "somebody-elses"}, "dev")


def far_bucket(ready: Ready) -> None:
    boto3.client("s3", region_name="us-east-1", endpoint_url=ready.front.endpoint).create_bucket(Bucket="far-away")
    ready.edit("environment.bucket", {"name": "far-away"}, "dev")


def no_gateway(ready: Ready) -> None:
    ec2 = ready.client("ec2")
    names = [each["VpcEndpointId"] for each in ec2.describe_vpc_endpoints()["VpcEndpoints"]]
    ec2.delete_vpc_endpoints(VpcEndpointIds=names)


def no_subnets(ready: Ready) -> None:
    ec2 = ready.client("ec2")
    for subnet in ec2.describe_subnets(Filters=[{"Name": "tag:environment", "Values": ["dev"]}])["Subnets"]:
        ec2.delete_tags(Resources=[subnet["SubnetId"]], Tags=[{"Key": "environment"}])


def no_service_role(ready: Ready) -> None:
    ready.client("iam").delete_role(RoleName="AWSServiceRoleForAmazonEKSNodegroup")


def a_key_nobody_may_use(ready: Ready) -> None:
    key = ready.client("kms").create_key()["KeyMetadata"]["Arn"]
    ready.front.answers["ec2.GetEbsDefaultKmsKeyId"] = lambda _: {"KmsKeyId": key}


def unreachable(ready: Ready) -> None:
    ready.cluster = Cluster(reachable=False)


def without_keda(ready: Ready) -> None:
    ready.cluster = Cluster("keda")


def without_autoscaler(ready: Ready) -> None:
    ready.cluster = Cluster("cluster-autoscaler")


def crashed_controllers(ready: Ready) -> None:
    ready.cluster = Cluster(available=0)


FAIL, WARN = Verdict.FAIL, Verdict.WARN
BROKEN: list[tuple[Break, str, Verdict, str, str]] = [
    (no_quota, "quota", FAIL, "quota 0 vCPU", "request-service-quota-increase .* --desired-value 32"),
    (little_quota, "quota", WARN, "it starts, but can't grow that far", "--desired-value 32"),
    (quota_in_use, "quota", WARN, "48 in use by others", "--desired-value 80"),
    (default_quota, "quota", FAIL, "quota 0 vCPU", "L-DB2E81BA"),
    (denied_quota, "quota", WARN, "can't be checked: not allowed: GetServiceQuota", "servicequotas:GetServiceQuota"),
    (nowhere_sold, "offering", FAIL, "sold in zones eu-central-1a of us-west-2", "model.nodes.zones"),
    (sold_in_one_zone, "offering", WARN, "not in us-west-2a, us-west-2c", "Leave us-west-2a, us-west-2c out"),
    (extended_support, "Kubernetes version", FAIL, "extended support: six times the price", "kubernetes_version"),
    (ending_support, "Kubernetes version", WARN, "ends on", "upgrade"),
    (no_cluster, "Kubernetes version", FAIL, "there is no cluster coldstart-dev", "pulumi up --stack dev"),
    (never_built, "node image", FAIL, "1.69.0 was never built for Kubernetes 1.35", "image_version"),
    (moved_image, "engine image", FAIL, "vllm@sha256:a+ is not in ECR of us-west-2", "coldstart image"),
    (missing_image, "engine image", FAIL, "registry-1.docker.io has no vllm/missing", "Name an image"),
    (unpinned_image, "engine image", WARN, "has no digest", f"coldstart pin {MODEL}"),
    (not_staged, "weights", FAIL, "is not staged: s3://.* is missing", f"coldstart stage {MODEL}"),
    (no_bucket, "weights", FAIL, "there is no bucket somebody-elses", "pulumi up --stack dev"),
    (far_bucket, "weights", FAIL, "is in us-east-1, the cluster in us-west-2", "environment.bucket.name"),
    (no_gateway, "network", FAIL, r"weights would go through NAT, \$0\.72 a start", "pulumi up --stack dev"),
    (no_subnets, "network", FAIL, "no private subnet of dev in us-west-2a, us-west-2b, us-west-2c", "pulumi up"),
    (no_service_role, "service roles", WARN, "AWSServiceRoleForAmazonEKSNodegroup is not there", "eks-nodegroup"),
    (a_key_nobody_may_use, "keys", FAIL, "which Auto Scaling may not use", "aws kms create-grant --key-id arn:aws:kms"),
    (unreachable, "controllers", FAIL, "does not answer", "public_cidrs"),
    (without_keda, "controllers", FAIL, "KEDA is not there", "pulumi up --stack dev installs it"),
    (without_autoscaler, "controllers", FAIL, "the cluster autoscaler is not there", "pulumi up --stack dev"),
    (crashed_controllers, "controllers", WARN, "has no pod that is available", "kubectl describe deployment"),
]


@pytest.mark.parametrize(
    ("broken", "check", "verdict", "found", "fix"), BROKEN, ids=[each[0].__name__ for each in BROKEN]
)
def test_each_thing_that_is_wrong_is_found_and_nothing_else(
    ready: Ready, broken: Break, check: str, verdict: Verdict, found: str, fix: str
) -> None:
    broken(ready)
    answers = ready.ask()
    wrong = {name: answer for name, answer in answers.items() if answer.verdict is not Verdict.PASS}
    assert list(wrong) == [check]
    assert wrong[check].verdict is verdict
    findings = [each for each in wrong[check].findings if each.verdict is verdict]
    assert any(_matches(found, each.found) and _matches(fix, each.fix) for each in findings), findings


def _matches(pattern: str, text: str) -> bool:
    return re.search(pattern, text) is not None


def test_spot_counts_a_surge_node_and_asks_for_its_own_role(ready: Ready) -> None:
    ready.edit("model.nodes.capacity", "spot")
    ready.client("iam").delete_role(RoleName="AWSServiceRoleForEC2Spot")
    answers = ready.ask()
    (quota,) = answers["quota"].findings
    assert "G and VT spot: quota 64 vCPU (L-3819A6DF)" in quota.found
    assert "at most 5 x g6e.2xlarge need 40" in quota.found
    assert "AWSServiceRoleForEC2Spot is not there" in answers["service roles"].findings[0].found


@pytest.mark.parametrize(
    ("held", "words"),
    [
        ({"InstanceType": "g6e.12xlarge"}, "is of g6e.12xlarge, the model wants g6e.2xlarge"),
        ({"AvailabilityZone": "us-west-2c"}, "is in us-west-2c, the model in us-west-2a"),
        ({"AvailableInstanceCount": 0}, "has room for 0 more, the model may want 4"),
        ({"State": "expired"}, "is expired"),
        ({"ReservationType": "capacity-block"}, "is a capacity block, model.nodes.capacity is reservation"),
        ({"EndDate": datetime(2026, 11, 1, tzinfo=UTC)}, "ends at 2026-11-01 00:00 UTC"),
    ],
)
def test_a_reservation_has_to_fit(ready: Ready, held: dict[str, Any], words: str) -> None:
    name = "cr-0123456789abcdef0"
    ready.edit("model.nodes.capacity", "reservation")
    ready.edit("model.nodes.reservation_id", name)
    ready.edit("model.nodes.zones", ["a"])
    fits = reservation(name, idle=4, total=4)
    ready.front.answers["ec2.DescribeCapacityReservations"] = lambda _: {"CapacityReservations": [fits]}
    assert ready.ask()["reservation"].verdict is Verdict.PASS
    ready.front.answers["ec2.DescribeCapacityReservations"] = lambda _: {"CapacityReservations": [fits | held]}
    answer = ready.ask()["reservation"]
    assert answer.verdict is Verdict.FAIL
    assert any(words in each.found for each in answer.findings), answer.findings


def test_a_reservation_of_another_region_is_not_there(ready: Ready) -> None:
    ready.edit("model.nodes.capacity", "reservation")
    ready.edit("model.nodes.reservation_id", "cr-0123456789abcdef0")
    ready.edit("model.nodes.zones", ["a"])
    assert ready.ask()["reservation"].findings[0].found == "cr-0123456789abcdef0 is not in us-west-2"


def test_one_denied_permission_costs_one_check(ready: Ready) -> None:
    for operation in ("ec2.DescribeSubnets", "kms.DescribeKey", "service-quotas.GetServiceQuota"):
        ready.front.fail(operation, code="AccessDeniedException", status=403, times=99)
    answers = ready.ask()
    unknown = {name for name, answer in answers.items() if answer.verdict is not Verdict.PASS}
    assert unknown == {"network", "quota"}
    assert "ec2:DescribeSubnets" in answers["network"].findings[0].fix
    assert document(MODEL, list(answers.values()), 7)["verdict"] == "warn"


def test_the_policy_allows_what_is_asked_and_nothing_more(ready: Ready) -> None:
    ready.front.calls.clear()
    ready.ask()
    asked = {_action(operation) for operation in ready.front.calls}
    document_ = minimal_policy(CHECKS, ready.wanted())
    statements: Any = document_["Statement"]
    allowed = {action for statement in statements for action in statement["Action"]}
    assert asked <= allowed
    spare = allowed - asked - {"s3:ListBucket", "sts:GetCallerIdentity", "ec2:DescribeRegions"}
    # Only asked when a quota was never applied, a key is the customer's, or the model has a reservation.
    assert (
        spare
        == {
            "servicequotas:GetAWSDefaultServiceQuota",
            "kms:DescribeKey",
            "kms:GetKeyPolicy",
            "kms:ListGrants",
            "ec2:DescribeCapacityReservations",
            "eks:DescribeCluster",
        }
        - asked
    )
    wild = [statement for statement in statements if statement["Resource"] == ["*"]]
    assert len(wild) == 1
    assert not {action for action in wild[0]["Action"] if action.startswith(("s3:", "iam:", "kms:", "ssm:", "ecr:"))}
    assert json.loads(json.dumps(document_)) == minimal_policy(CHECKS, ready.wanted()), "the same every time"


def _action(operation: str) -> str:
    service, _, name = operation.partition(".")
    return OPERATIONS.get(name) or f"{OPERATIONS.get(service, service)}:{name}"


@pytest.mark.parametrize(
    ("family", "purchase", "kind"),
    [
        ("g6e", "on-demand", "G and VT"),
        ("g4dn", "spot", "G and VT"),
        ("p5en", "on-demand", "P"),
        ("p5", "spot", "P5"),
        ("p4d", "spot", "P4 and older"),
        ("p6-b200", "spot", "P6"),
        ("m7i", "on-demand", "Standard"),
    ],
)
def test_every_family_has_a_quota(family: str, purchase: str, kind: str) -> None:
    assert class_of(family, purchase) == kind
    assert CODES[kind, purchase]


def test_credentials_that_end_on_the_way_are_bad_input(ready: Ready) -> None:
    ready.front.fail("ec2.DescribeSubnets", code="RequestExpired", status=400, message="Request has expired.", times=99)
    with pytest.raises(BadInput, match="clock: AWS refuses this machine's time"):
        ready.ask()
