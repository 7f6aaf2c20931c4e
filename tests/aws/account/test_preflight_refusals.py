"""What each check of preflight says when AWS refuses it, has no time for it, or knows no such thing.

The rows are IAM actions, and the code's own list of checks says which there have to be: a check that is new, or that
asks for more than before, fails here until it has its rows. Answers come over HTTP, in the service's own protocol.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import pytest
from botocore.config import Config

from budget.problems import bad_input
from scripts.account import session
from scripts.checks import CHECKS
from scripts.checks.finding import Verdict, Wanted
from scripts.cluster.access import from_eks
from scripts.cluster.api import Refused
from scripts.failure import Failure
from scripts.preflight import Answer
from tests.aws.account.audited import REGION
from tests.aws.account.front import ACCOUNT
from tests.aws.account.lacking import reservation
from tests.aws.account.ready import Cluster, Ready, versions

ENDLESS = 99
KEY = f"arn:aws:kms:{REGION}:{ACCOUNT}:key/0f0f0f0f-0000-4000-8000-0f0f0f0f0f0f"
AUTOSCALING_ROLE = (
    f"arn:aws:iam::{ACCOUNT}:role/aws-service-role/autoscaling.amazonaws.com/AWSServiceRoleForAutoScaling"
)


@dataclass(frozen=True)
class Protocol:
    """How a protocol says no: code and HTTP status of a denial, and of "slow down".

    An answer to HEAD has no body; the client then takes the status for the code.
    """

    denied: tuple[str, int]
    throttled: tuple[str, int]


EC2 = Protocol(("UnauthorizedOperation", 403), ("RequestLimitExceeded", 503))
QUERY = Protocol(("AccessDenied", 403), ("Throttling", 400))
JSON = Protocol(("AccessDeniedException", 400), ("ThrottlingException", 400))
REST_JSON = Protocol(("AccessDeniedException", 403), ("ThrottlingException", 429))
REST_XML = Protocol(("AccessDenied", 403), ("SlowDown", 503))
HEAD = Protocol(("403", 403), ("503", 503))

ROWS: Mapping[str, Protocol] = {
    "ec2:DescribeCapacityReservations": EC2,
    "ec2:DescribeInstances": EC2,
    "ec2:DescribeInstanceTypeOfferings": EC2,
    "ec2:DescribeRouteTables": EC2,
    "ec2:DescribeSubnets": EC2,
    "ec2:DescribeVpcEndpoints": EC2,
    "ec2:GetEbsDefaultKmsKeyId": EC2,
    "ecr:DescribeImages": JSON,
    "eks:DescribeCluster": REST_JSON,
    "eks:DescribeClusterVersions": REST_JSON,
    "iam:GetRole": QUERY,
    "kms:DescribeKey": JSON,
    "kms:GetKeyPolicy": JSON,
    "kms:ListGrants": JSON,
    "s3:GetBucketLocation": REST_XML,
    "s3:GetObject": HEAD,
    "servicequotas:GetAWSDefaultServiceQuota": JSON,
    "servicequotas:GetServiceQuota": JSON,
    "ssm:GetParameter": JSON,
}
ELSEWHERE = {
    "sts:GetCallerIdentity": "asked when signing in (test_sign_in)",
    "ec2:DescribeRegions": "asked when signing in (test_sign_in)",
    "s3:ListBucket": "no call of its own: without it S3 answers s3:GetObject's HEAD with 403, which that row is about",
}
OPERATIONS = {"s3:GetBucketLocation": "s3.GET", "s3:GetObject": "s3.HEAD"}
"""Action → the front's name of the request, where that is not the action's own."""
CALLED = {"s3:GetObject": "HeadObject"}
"""Action → the client's name of the operation, as above."""
FIXES = {"s3:GetObject": "Allow s3:GetObject, s3:ListBucket (--print-policy)."}


def actions_of(wanted: Wanted) -> dict[str, set[str]]:
    """Each check's actions, by the code's own account."""
    return {check.name: {action for each in check.permissions(wanted) for action in each.actions} for check in CHECKS}


def checks_of(action: str, wanted: Wanted) -> set[str]:
    return {name for name, actions in actions_of(wanted).items() if action in actions}


def operation_of(action: str) -> str:
    return OPERATIONS.get(action) or action.replace("servicequotas:", "service-quotas:").replace(":", ".")


def plan(ready: Ready, action: str, code: str, status: int, message: str = "on purpose") -> None:
    when = "?location" if action == "s3:GetBucketLocation" else ""
    ready.front.fail(operation_of(action), code=code, status=status, message=message, times=ENDLESS, when=when)


def ask_everything(ready: Ready) -> None:
    """A deployment for which every question arises, and is well answered."""
    ready.edit("model.nodes.capacity", "reservation")
    ready.edit("model.nodes.reservation_id", "cr-0123456789abcdef0")
    ready.edit("model.nodes.zones", ["a"])
    ready.edit("model.image", f"444455556666.dkr.ecr.{REGION}.amazonaws.com/vllm:v0.33.0@sha256:" + "a" * 64)
    fits = reservation("cr-0123456789abcdef0", idle=4, total=4)
    key = {"KeyId": KEY.rpartition("/")[2], "Arn": KEY, "KeyManager": "CUSTOMER", "KeyState": "Enabled"}
    ready.front.answers |= {
        "ec2.DescribeCapacityReservations": lambda _: {"CapacityReservations": [fits]},
        "ec2.GetEbsDefaultKmsKeyId": lambda _: {"KmsKeyId": KEY},
        "ecr.DescribeImages": lambda _: {"imageDetails": [{"imageSizeInBytes": 9_000_000_000}]},
        "kms.DescribeKey": lambda _: {"KeyMetadata": key},
        "kms.ListGrants": lambda _: {"Grants": []},
        "kms.GetKeyPolicy": lambda _: {"Policy": f'{{"Principal": "{AUTOSCALING_ROLE}"}}'},
        "service-quotas.GetAWSDefaultServiceQuota": lambda _: {"Quota": {"Value": 64.0}},
    }
    # No quota was ever applied: the default is asked for. Whatever a test planned before comes first.
    ready.front.fail("service-quotas.GetServiceQuota", code="NoSuchResourceException", times=ENDLESS)
    clients = ready.account.region(REGION)
    ready.api = lambda: ready.cluster if from_eks(clients, ready.wanted().cluster) else None


def not_passed(answers: Mapping[str, Answer]) -> dict[str, Answer]:
    return {name: answer for name, answer in answers.items() if answer.verdict is not Verdict.PASS}


@pytest.fixture
def soon_tired(monkeypatch: pytest.MonkeyPatch) -> None:
    """Clients that try twice in all: what is said at the end does not depend on how long it took."""
    monkeypatch.setattr(session, "CONFIG", Config(retries={"mode": "standard", "total_max_attempts": 2}))


def test_every_action_of_every_check_has_its_row(ready: Ready) -> None:
    ask_everything(ready)
    asked = actions_of(ready.wanted())
    assert set().union(*asked.values()) == {*ROWS, *ELSEWHERE}
    assert not [name for name, actions in asked.items() if not actions], "checks that no row is about"
    ready.front.calls.clear()
    assert not not_passed(ready.ask())
    assert {operation_of(action) for action in ROWS} <= set(ready.front.calls), "every row is really asked"


@pytest.mark.parametrize("action", ROWS)
def test_a_denied_action_leaves_its_check_unknown_and_every_other_as_it_was(ready: Ready, action: str) -> None:
    code, status = ROWS[action].denied
    plan(ready, action, code, status, f"User: {ready.account.arn} is not authorized to perform: {action}")
    ask_everything(ready)
    answers = ready.ask()
    wrong = not_passed(answers)
    assert set(wrong) == checks_of(action, ready.wanted())
    assert set(answers) == {check.name for check in CHECKS}
    operation = CALLED.get(action, action.partition(":")[2])
    for answer in wrong.values():
        assert answer.verdict is Verdict.WARN, "denied is not zero, and not wrong"
        (finding,) = [each for each in answer.findings if each.verdict is Verdict.WARN]
        assert finding.found.startswith(f"can't be checked: not allowed: {operation} (")
        assert finding.fix == FIXES.get(action, f"Allow {action} (--print-policy).")


@pytest.mark.usefixtures("soon_tired")
@pytest.mark.parametrize("action", ROWS)
def test_endless_throttling_leaves_its_check_unknown_and_every_other_as_it_was(ready: Ready, action: str) -> None:
    code, status = ROWS[action].throttled
    plan(ready, action, code, status)
    ask_everything(ready)
    wrong = not_passed(ready.ask())
    assert set(wrong) == checks_of(action, ready.wanted())
    for answer in wrong.values():
        (finding,) = [each for each in answer.findings if each.verdict is Verdict.WARN]
        assert finding.found == (
            f"can't be checked: AWS kept asking for patience ({code}) and every retry was used: run it again later"
        )
        assert finding.fix.startswith("Run it again")
    assert ready.front.calls[operation_of(action)] >= 2, "it was tried again"


FAIL, WARN = Verdict.FAIL, Verdict.WARN
GONE: list[tuple[str, str, int, Verdict, str]] = [
    ("ecr:DescribeImages", "RepositoryNotFoundException", 400, FAIL, "vllm@sha256:aaa.* is not in ECR of us-west-2"),
    ("ecr:DescribeImages", "ImageNotFoundException", 400, FAIL, "is not in ECR of us-west-2"),
    ("eks:DescribeCluster", "ResourceNotFoundException", 404, FAIL, "there is no cluster"),
    ("iam:GetRole", "NoSuchEntity", 404, WARN, "AWSServiceRoleForAutoScaling is not there"),
    ("kms:DescribeKey", "NotFoundException", 400, FAIL, f"volumes are encrypted with {KEY}, which does not exist"),
    ("kms:GetKeyPolicy", "NotFoundException", 400, WARN, "can't be checked: GetKeyPolicy: NotFoundException"),
    ("s3:GetBucketLocation", "NoSuchBucket", 404, FAIL, "there is no bucket coldstart-dev-"),
    ("s3:GetObject", "404", 404, FAIL, "is not staged"),
    (
        "servicequotas:GetAWSDefaultServiceQuota",
        "NoSuchResourceException",
        400,
        WARN,
        "can't be checked: GetAWSDefaultServiceQuota: NoSuchResourceException",
    ),
    ("ssm:GetParameter", "ParameterNotFound", 400, FAIL, "was never built for Kubernetes 1.35"),
]


@pytest.mark.parametrize(
    ("action", "code", "status", "verdict", "found"), GONE, ids=[f"{each[0]} {each[1]}" for each in GONE]
)
def test_not_found_is_an_answer(
    ready: Ready, action: str, code: str, status: int, verdict: Verdict, found: str
) -> None:
    plan(ready, action, code, status)
    ask_everything(ready)
    expect(ready, checks_of(action, ready.wanted()), verdict, found)


NONE_THERE: list[tuple[str, str, Verdict | None, str]] = [
    ("ec2:DescribeCapacityReservations", "CapacityReservations", FAIL, "cr-0123456789abcdef0 is not in us-west-2"),
    ("ec2:DescribeInstances", "Reservations", None, ""),
    ("ec2:DescribeInstanceTypeOfferings", "InstanceTypeOfferings", FAIL, "is sold in zones none of us-west-2"),
    ("ec2:DescribeRouteTables", "RouteTables", FAIL, "no S3 gateway endpoint on the routes"),
    ("ec2:DescribeSubnets", "Subnets", FAIL, "no private subnet of dev in us-west-2a"),
    ("ec2:DescribeVpcEndpoints", "VpcEndpoints", FAIL, "no S3 gateway endpoint on the routes"),
    ("eks:DescribeClusterVersions", "clusterVersions", FAIL, "EKS has no Kubernetes 1.35"),
]


@pytest.mark.parametrize(("action", "field", "verdict", "found"), NONE_THERE, ids=[each[0] for each in NONE_THERE])
def test_an_empty_list_is_an_answer(ready: Ready, action: str, field: str, verdict: Verdict | None, found: str) -> None:
    ask_everything(ready)
    ready.front.answers[operation_of(action)] = lambda _: {field: []}
    expect(ready, checks_of(action, ready.wanted()) if verdict else set(), verdict, found)


def expect(ready: Ready, checks: set[str], verdict: Verdict | None, found: str) -> None:
    wrong = not_passed(ready.ask())
    assert set(wrong) == checks
    for answer in wrong.values():
        assert answer.verdict is verdict
        worst = [each for each in answer.findings if each.verdict is verdict]
        assert any(re.search(found, each.found) for each in worst), worst
        assert all(each.fix for each in worst)


def test_what_was_found_before_a_refusal_stands(ready: Ready) -> None:
    ready.front.answers["eks.DescribeClusterVersions"] = lambda _: versions("EXTENDED_SUPPORT", days=-10)
    plan(ready, "eks:DescribeCluster", "AccessDeniedException", 403)
    answer = ready.ask()["Kubernetes version"]
    assert [each.verdict for each in answer.findings] == [FAIL, WARN]
    assert answer.verdict is FAIL, "what may not be asked hides nothing that was found"


class Barred(Cluster):
    """A cluster that lets nobody look at one path."""

    def __init__(self, refusal: Exception) -> None:
        super().__init__()
        self._refusal = refusal

    def items(self, path: str, **selectors: str) -> Any:
        del path, selectors
        raise self._refusal


@pytest.mark.parametrize(
    ("refusal", "found", "fix"),
    [
        (lambda: Refused(403, "deployments.apps is forbidden"), r"refuses \(403\): deployments", "admin_roles"),
        (lambda: Refused(503, "apiserver is shutting down"), r"refuses \(503\)", "^Run it again"),
        (lambda: Failure("the certificate can't be used"), "the certificate can't be used", "^Run it again"),
        (
            lambda: bad_input("aws eks get-token", "gave no token", "Install the AWS CLI."),
            "gave no token",
            "the AWS CLI",
        ),
    ],
)
def test_a_cluster_that_refuses_is_not_known(
    ready: Ready, refusal: Callable[[], Exception], found: str, fix: str
) -> None:
    ready.cluster = Barred(refusal())
    wrong = not_passed(ready.ask())
    assert set(wrong) == {"controllers"}
    (finding,) = [each for each in wrong["controllers"].findings if each.verdict is not Verdict.PASS]
    assert finding.verdict is WARN
    assert finding.found.startswith("can't be checked: ")
    assert re.search(found, finding.found)
    assert re.search(fix, finding.fix)
