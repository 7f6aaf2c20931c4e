"""An audit that meets missing tags, missing permissions, throttling and missing prices."""

from __future__ import annotations

from typing import Any

import boto3
import pytest

from scripts.account.audit import audit
from scripts.account.ownership import Owners, Unknown
from scripts.account.session import Account
from scripts.account.standing import Standing
from scripts.audit_view import document
from tests.aws.account.audited import ACCOUNT, OURS, REGION, found_in, scope, session_in, state_of, tags
from tests.aws.account.front import Front
from tests.aws.account.seed import Set, pairs, seed


@pytest.fixture
def ec2(front: Front) -> Any:
    return boto3.client("ec2", region_name=REGION, endpoint_url=front.endpoint)


def volume(ec2: Any, tags: dict[str, str], *, kind: str = "gp3", gib: int = 100) -> str:
    spec = [{"ResourceType": "volume", "Tags": pairs(tags)}]
    made = ec2.create_volume(AvailabilityZone=f"{REGION}a", Size=gib, VolumeType=kind, TagSpecifications=spec)
    return made["VolumeId"]


def test_what_lost_its_tags_is_known_by_name_while_its_environment_is_known(front: Front, account: Account) -> None:
    seed(session_in(ACCOUNT), front, OURS, {}, region=REGION)
    by_name = {
        ("log group", "/aws/eks/coldstart-dev/cluster"),
        ("log group", "/aws/containerinsights/coldstart-dev/performance"),
        ("ECR repository", "coldstart-dev/vllm-openai"),
        ("bucket", OURS.bucket),
        ("secret", "ecr-pullthroughcache/coldstart-dev"),
    }
    known = audit(account, scope(), {}, Owners(["dev"]))
    assert by_name <= found_in(known, Standing.LEFTOVER).keys()
    assert not found_in(known, Standing.KEPT), "a bucket without our tags is not one that we keep"

    unknown = audit(account, scope(), {}, Owners([]))
    assert not found_in(unknown, Standing.LEFTOVER)
    assert by_name <= found_in(unknown, Standing.UNKNOWN).keys()
    reasons = {thing.why for thing in unknown.of(Standing.UNKNOWN)}
    assert "named like ours, but no environment 'dev' is known" in reasons
    assert not unknown.leaks, "what is unknown never counts as ours"


def test_an_application_tag_without_an_environment_proves_nothing(ec2: Any, account: Account) -> None:
    name = volume(ec2, {"application": "coldstart"})
    found = audit(account, scope(), {}, Owners([]))
    assert [thing.found.id for thing in found.of(Standing.UNKNOWN)] == [name]
    assert isinstance(found.of(Standing.UNKNOWN)[0].found.owner, Unknown)


def test_a_kind_that_may_not_be_looked_at_hides_nothing_else(front: Front, ec2: Any, account: Account) -> None:
    name = volume(ec2, tags("dev"))
    front.fail("ec2.DescribeNatGateways", code="UnauthorizedOperation", status=403, times=9)
    found = audit(account, scope("dev"), {}, Owners([]))
    assert [(each.kind, each.region) for each in found.unseen] == [("NAT gateway", REGION)]
    assert found.unseen[0].why.startswith("not allowed: DescribeNatGateways")
    assert [thing.found.id for thing in found.things] == [name]
    assert not found.clean


def test_a_blind_spot_proves_nothing(front: Front, account: Account) -> None:
    front.fail("kms.ListKeys", code="AccessDeniedException", times=9)
    found = audit(account, scope("dev"), {}, Owners([]))
    assert not found.things
    assert not found.leaks
    assert not found.clean


def test_throttling_is_sat_out(front: Front, ec2: Any, account: Account) -> None:
    name = volume(ec2, tags("dev"))
    front.fail("ec2.DescribeVolumes", code="RequestLimitExceeded", status=503, times=3)
    front.fail("elbv2.DescribeLoadBalancers", code="Throttling", times=2)
    front.fail("kms.ListKeys", code="ThrottlingException", times=2)
    before, asked = account.calls, front.calls.total()
    found = audit(account, scope("dev"), {}, Owners([]))
    assert not front.pending
    assert [thing.found.id for thing in found.things] == [name]
    assert not found.unseen
    assert found.calls - before == front.calls.total() - asked, "retries count as the calls that they are"


def test_endless_throttling_is_said(front: Front, account: Account) -> None:
    front.fail("ec2.DescribeVolumes", code="RequestLimitExceeded", status=503, times=1000)
    found = audit(account, scope("dev"), {}, Owners([]))
    assert [each.kind for each in found.unseen] == ["volume"]
    assert "kept asking for patience" in found.unseen[0].why
    assert front.calls["ec2.DescribeVolumes"] == 10


def test_pages_are_followed_to_the_last(front: Front, ec2: Any, account: Account) -> None:
    del front
    made = {volume(ec2, tags("dev"), gib=1) for _ in range(25)}
    pages = account.region(REGION).ec2.get_paginator("describe_volumes").paginate(PaginationConfig={"PageSize": 10})
    assert len(list(pages)) >= 1
    found = audit(account, scope("dev"), {}, Owners([]))
    assert {thing.found.id for thing in found.things} == made


def test_an_unknown_price_makes_the_total_a_lower_bound(ec2: Any, account: Account) -> None:
    volume(ec2, tags("dev"))
    volume(ec2, tags("dev"), kind="st1", gib=500)
    found = audit(account, scope("dev"), {}, Owners([]))
    bill = found.bill(Standing.LEFTOVER)
    assert (bill.usd_per_hour, bill.unpriced) == (pytest.approx(100 * 0.08 / 730), 1)
    assert str(bill) == "at least $0.0110 per hour, $8.00 per month"
    assert None in {thing["usd_per_hour"] for thing in document(found)["things"]}
    assert len(found.leaks) == 2, "what has no price may well bill"


def test_without_the_backend_nothing_is_proven(ec2: Any, account: Account) -> None:
    volume(ec2, tags("dev"))
    assert not audit(account, scope("dev"), None, Owners([])).clean
    made = Set()
    made.add("VPC", "vpc-1", pulumi_id="vpc-1")
    live = {"dev": state_of("dev", made)}
    assert audit(account, scope("dev"), live, Owners([])).clean
