"""An audit over HTTP: a seeded account with everything in it, ours, of another environment, and confusingly foreign."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

import boto3
import pytest

from scripts.account.kinds import KINDS
from scripts.account.ownership import Owners, Unknown
from scripts.account.session import Account
from scripts.account.standing import Standing
from scripts.audit import Audit, Scope, audit, document
from scripts.deployed.state import Resource, State
from tests.aws.account.front import Front
from tests.aws.account.seed import Names, Set, seed

REGION = "us-west-2"
ACCOUNT = "111122223333"


def tags(environment: str, application: str = "coldstart") -> dict[str, str]:
    return {
        "application": application,
        "environment": environment,
        "model": "none",
        "stack": environment,
        "owner": "tests",
        "expiry": "never",
    }


OURS = Names("coldstart-dev", f"coldstart-dev-{ACCOUNT}-{REGION}", "ecr-pullthroughcache/coldstart-dev", "dev")
SECOND = Names("coldstart-dev2", f"coldstart-dev2-{ACCOUNT}-{REGION}", "ecr-pullthroughcache/coldstart-dev2", "dev2")
FOREIGN = Names("coldstarter-dev", f"coldstart-dev-{ACCOUNT}-{REGION}-backup", "coldstart-dev", "dev-3")
"""Named as closely after ours as somebody else could."""


def state_of(name: str, made: Set) -> State:
    """The state of a stack that made the set."""
    resources = [
        Resource(
            urn=f"urn:pulumi:{name}::coldstart::any:thing:Thing::{number}",
            type="any:thing:Thing",
            name=str(number),
            id=pulumi_id,
            inputs={},
            outputs={},
            protect=False,
            retain=False,
            parent="",
            dependencies=frozenset(),
        )
        for number, pulumi_id in enumerate(sorted(made.ids))
    ]
    return State(stack=name, resources=resources, pending=())


def scope(environment: str | None = None, *regions: str) -> Scope:
    return Scope(stack=None, environment=environment, account=ACCOUNT, regions=regions or (REGION,))


@pytest.fixture
def world(front: Front) -> Callable[[Names, Mapping[str, str]], Set]:
    session = boto3.Session(aws_access_key_id="testing", aws_secret_access_key="testing")  # noqa: S106 - moto's

    def make(names: Names, tags: Mapping[str, str]) -> Set:
        return seed(session, front, names, tags, region=REGION)

    return make


def found_in(found: Audit, *standings: Standing) -> dict[tuple[str, str], float | None]:
    return {
        (thing.found.kind, thing.found.id): thing.found.price.usd_per_hour
        for thing in found.things
        if thing.standing in standings
    }


def test_all_of_ours_none_of_the_others_to_the_cent(
    account: Account, world: Callable[[Names, Mapping[str, str]], Set]
) -> None:
    ours = world(OURS, tags("dev"))
    second = world(SECOND, tags("dev2"))
    foreign = world(FOREIGN, tags("dev", application="coldstart-legacy"))

    found = audit(account, scope("dev"), {"dev": state_of("dev", ours)}, Owners([]))

    assert found_in(found, Standing.LIVE) == pytest.approx(ours.things)
    assert {kind for kind, _ in ours.things} == {kind.name for kind in KINDS}, "a kind that nothing was seeded for"
    assert not found.unseen
    assert found.clean
    everything = found_in(found, *Standing)
    assert not set(everything) & set(second.things), "the other environment's things are in this one's audit"
    assert not set(everything) & set(foreign.things), "somebody else's things are in the audit"
    cents = round(100 * sum(ours.things.values()))
    assert round(100 * found.bill(Standing.LIVE).usd_per_hour) == cents
    month = 730 * sum(ours.things.values())
    assert found.bill(Standing.LIVE).usd_per_month == pytest.approx(month, abs=0.005)


def test_without_a_scope_every_environment_of_ours_and_still_nobody_elses(
    account: Account, world: Callable[[Names, Mapping[str, str]], Set]
) -> None:
    ours, second = world(OURS, tags("dev")), world(SECOND, tags("dev2"))
    foreign = world(FOREIGN, tags("dev", application="coldstart-legacy"))
    found = audit(account, scope(), {"dev": state_of("dev", ours)}, Owners([]))
    assert found_in(found, Standing.LIVE) == pytest.approx(ours.things)
    left = found_in(found, Standing.LEFTOVER, Standing.KEPT)
    assert left == pytest.approx(second.things)
    assert not set(found_in(found, *Standing)) & set(foreign.things)
    assert found_in(found, Standing.KEPT).keys() == {("bucket", SECOND.bucket)}
    leaking = {key: usd for key, usd in second.things.items() if usd and key != ("bucket", SECOND.bucket)}
    assert {(thing.found.kind, thing.found.id) for thing in found.leaks} == set(leaking)
    assert not found.clean


def test_what_a_live_stack_does_not_know_is_left_over(
    account: Account, world: Callable[[Names, Mapping[str, str]], Set]
) -> None:
    ours = world(OURS, tags("dev"))
    nat = next(name for kind, name in ours.things if kind == "NAT gateway")
    state = state_of("dev", replace_ids(ours, without=nat))
    found = audit(account, scope("dev"), {"dev": state}, Owners([]))
    assert [thing.found.id for thing in found.leaks] == [nat]
    assert found.leaks[0].why == "tags; not in the state of dev"


def replace_ids(made: Set, *, without: str) -> Set:
    return replace(made, ids=made.ids - {without})


def test_what_lost_its_tags_and_its_cluster_is_known_by_name_while_its_environment_is_known(
    account: Account, world: Callable[[Names, Mapping[str, str]], Set]
) -> None:
    world(OURS, {})
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


def test_an_application_tag_without_an_environment_proves_nothing(front: Front, account: Account) -> None:
    ec2 = boto3.client("ec2", region_name=REGION, endpoint_url=front.endpoint)
    spec = [{"ResourceType": "volume", "Tags": [{"Key": "application", "Value": "coldstart"}]}]
    volume = ec2.create_volume(AvailabilityZone=f"{REGION}a", Size=1, VolumeType="gp3", TagSpecifications=spec)
    found = audit(account, scope(), {}, Owners([]))
    assert [thing.found.id for thing in found.of(Standing.UNKNOWN)] == [volume["VolumeId"]]
    assert isinstance(found.of(Standing.UNKNOWN)[0].found.owner, Unknown)


def test_other_accounts_and_regions_are_other_worlds(
    front: Front, account: Account, session_in: Callable[[str], boto3.Session]
) -> None:
    elsewhere = seed(session_in("444455556666"), front, OURS, tags("dev"), region=REGION)
    here = boto3.Session(aws_access_key_id="testing", aws_secret_access_key="testing")  # noqa: S106 - moto's
    ec2 = here.client("ec2", region_name="eu-central-1", endpoint_url=front.endpoint)
    spec = [
        {"ResourceType": "elastic-ip", "Tags": [{"Key": key, "Value": value} for key, value in tags("dev").items()]}
    ]
    address = ec2.allocate_address(Domain="vpc", TagSpecifications=spec)["AllocationId"]
    front.answers["ec2.DescribeCapacityReservations"] = lambda _: {"CapacityReservations": []}
    front.answers["ec2.DescribeFastSnapshotRestores"] = lambda _: {"FastSnapshotRestores": []}

    assert not audit(account, scope("dev"), {}, Owners([])).things
    everywhere = audit(account, replace(scope("dev"), regions=()), {}, Owners([]))
    assert [(thing.found.region, thing.found.id) for thing in everywhere.things] == [("eu-central-1", address)]
    assert len(everywhere.regions) > 10
    assert not set(found_in(everywhere, *Standing)) & set(elsewhere.things)


def test_a_kind_that_may_not_be_looked_at_hides_nothing_else(
    front: Front, account: Account, world: Callable[[Names, Mapping[str, str]], Set]
) -> None:
    ours = world(OURS, tags("dev"))
    front.fail("ec2.DescribeNatGateways", code="UnauthorizedOperation", status=403, times=9)
    found = audit(account, scope("dev"), {"dev": state_of("dev", ours)}, Owners([]))
    assert [(each.kind, each.region) for each in found.unseen] == [("NAT gateway", REGION)]
    assert found.unseen[0].why.startswith("not allowed: DescribeNatGateways")
    seen = {key: usd for key, usd in ours.things.items() if key[0] != "NAT gateway"}
    assert found_in(found, Standing.LIVE) == pytest.approx(seen)
    assert not found.clean, "an audit with a blind spot proves nothing"


def test_throttling_is_sat_out(
    front: Front, account: Account, world: Callable[[Names, Mapping[str, str]], Set]
) -> None:
    ours = world(OURS, tags("dev"))
    front.fail("ec2.DescribeVolumes", code="RequestLimitExceeded", status=503, times=3)
    front.fail("elbv2.DescribeTags", code="Throttling", times=2)
    front.fail("kms.DescribeKey", code="ThrottlingException", times=2)
    found = audit(account, scope("dev"), {"dev": state_of("dev", ours)}, Owners([]))
    assert not front.pending
    assert found_in(found, Standing.LIVE) == pytest.approx(ours.things)


def test_an_unknown_price_makes_the_total_a_least(front: Front, account: Account) -> None:
    ec2 = boto3.client("ec2", region_name=REGION, endpoint_url=front.endpoint)
    for kind, size in (("gp3", 100), ("st1", 500)):
        spec = [
            {"ResourceType": "volume", "Tags": [{"Key": key, "Value": value} for key, value in tags("dev").items()]}
        ]
        ec2.create_volume(AvailabilityZone=f"{REGION}a", Size=size, VolumeType=kind, TagSpecifications=spec)
    found = audit(account, scope("dev"), {}, Owners([]))
    bill = found.bill(Standing.LEFTOVER)
    assert (bill.usd_per_hour, bill.unpriced) == (pytest.approx(100 * 0.08 / 730), 1)
    assert str(bill).startswith("at least $0.0110 per hour, $8.00 per month")
    assert {thing["usd_per_hour"] for thing in document(found)["things"]} >= {None}
    assert len(found.leaks) == 2, "what has no price may well bill"
