"""An audit over HTTP: a seeded account with everything in it, ours, of another environment, and confusingly foreign."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import boto3
import pytest

from scripts.account.audit import audit
from scripts.account.kinds import KINDS
from scripts.account.ownership import Owners
from scripts.account.session import Account, sign_in
from scripts.account.standing import Standing
from scripts.audit_view import document
from tests.aws.account.accounts import accounts
from tests.aws.account.audited import (
    ACCOUNT,
    FOREIGN,
    OURS,
    REGION,
    SECOND,
    found_in,
    scope,
    session_in,
    state_of,
    tags,
)
from tests.aws.account.front import Front
from tests.aws.account.lacking import answer_for_moto
from tests.aws.account.seed import Set, seed


@dataclass(frozen=True)
class World:
    """An account with three sets in it: ours, of a second environment, and somebody else's."""

    front: Front
    ours: Set
    second: Set
    foreign: Set


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """Made once, in a server of its own: these tests only look."""
    with accounts(tmp_path_factory.mktemp("moto")) as moto, Front.before(moto.endpoint) as front:
        answer_for_moto(front)
        session = session_in(ACCOUNT)
        yield World(
            front,
            ours=seed(session, front, OURS, tags("dev"), region=REGION),
            second=seed(session, front, SECOND, tags("dev2"), region=REGION),
            foreign=seed(session, front, FOREIGN, tags("dev", application="coldstart-legacy"), region=REGION),
        )


@pytest.fixture
def account(world: World, credentials: boto3.Session, monkeypatch: pytest.MonkeyPatch) -> Account:
    monkeypatch.setenv("AWS_ENDPOINT_URL", world.front.endpoint)
    return sign_in(account=ACCOUNT, region=REGION, session=credentials)


def test_all_of_ours_and_none_of_the_others_to_the_cent(account: Account, world: World) -> None:
    ours = world.ours
    found = audit(account, scope("dev"), {"dev": state_of("dev", ours)}, Owners([]))

    assert found_in(found, Standing.LIVE) == pytest.approx(ours.things)
    assert {kind for kind, _ in ours.things} == {kind.name for kind in KINDS}, "a kind that nothing was seeded for"
    assert not found.unseen
    assert found.clean
    everything = found_in(found, *Standing)
    assert not set(everything) & set(world.second.things), "the other environment's things are in this one's audit"
    assert not set(everything) & set(world.foreign.things), "somebody else's things are in the audit"
    cents = round(100 * sum(ours.things.values()))
    assert round(100 * found.bill(Standing.LIVE).usd_per_hour) == cents
    month = 730 * sum(ours.things.values())
    assert found.bill(Standing.LIVE).usd_per_month == pytest.approx(month, abs=0.005)
    assert found.foreign >= len(world.foreign.things)


def test_without_a_scope_every_environment_of_ours_and_still_no_one_elses(account: Account, world: World) -> None:
    second = world.second
    found = audit(account, scope(), {"dev": state_of("dev", world.ours)}, Owners([]))
    assert found_in(found, Standing.LIVE) == pytest.approx(world.ours.things)
    assert found_in(found, Standing.LEFTOVER, Standing.KEPT) == pytest.approx(second.things)
    assert not set(found_in(found, *Standing)) & set(world.foreign.things)
    assert found_in(found, Standing.KEPT).keys() == {("bucket", SECOND.bucket)}
    leaking = {key for key, usd in second.things.items() if usd and key != ("bucket", SECOND.bucket)}
    assert {(thing.found.kind, thing.found.id) for thing in found.leaks} == leaking
    assert not found.clean


def test_what_a_live_stack_does_not_know_is_left_over(account: Account, world: World) -> None:
    nat = next(name for kind, name in world.ours.things if kind == "NAT gateway")
    state = state_of("dev", replace(world.ours, ids=world.ours.ids - {nat}))
    found = audit(account, scope("dev"), {"dev": state}, Owners([]))
    assert [thing.found.id for thing in found.leaks] == [nat]
    assert found.leaks[0].why == "tags; not in the state of dev"


def test_one_stack_alone(account: Account, world: World) -> None:
    found = audit(account, replace(scope("dev"), stack="dev-llama"), {"dev": state_of("dev", world.ours)}, Owners([]))
    assert not found.things, "everything seeded belongs to the environment itself"


def test_another_account_is_another_world(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", world.front.endpoint)
    elsewhere = sign_in(account="444455556666", region=REGION, session=session_in("444455556666"))
    found = audit(elsewhere, scope(), {}, Owners(["dev"]))
    assert elsewhere.id == found.account == "444455556666"
    seen = found_in(found, *Standing)
    # moto lacks these two kinds, and the front answers for every account alike.
    assert {kind for kind, _ in seen} <= {"capacity reservation"}


def test_every_region_that_is_on(account: Account, world: World) -> None:
    regions = ["eu-central-1", "us-east-1", REGION]
    world.front.answers["ec2.DescribeRegions"] = lambda _: {"Regions": [{"RegionName": name} for name in regions]}
    ec2 = session_in(ACCOUNT).client("ec2", region_name="eu-central-1", endpoint_url=world.front.endpoint)
    spec = [
        {"ResourceType": "elastic-ip", "Tags": [{"Key": key, "Value": value} for key, value in tags("far").items()]}
    ]
    address = ec2.allocate_address(Domain="vpc", TagSpecifications=spec)["AllocationId"]
    found = audit(account, replace(scope("far"), regions=()), {}, Owners([]))
    assert [(thing.found.region, thing.found.id) for thing in found.things] == [("eu-central-1", address)]
    assert list(found.regions) == regions


def test_the_document_says_it_all(account: Account, world: World) -> None:
    document_ = document(audit(account, scope("dev"), {"dev": state_of("dev", world.ours)}, Owners([])))
    nat = next(thing for thing in document_["things"] if thing["kind"] == "NAT gateway")
    assert nat["standing"] == "live"
    assert nat["stack"] == "dev"
    assert nat["usd_per_month"] == pytest.approx(32.85)
    assert nat["remove"] == f"aws ec2 delete-nat-gateway --nat-gateway-id {nat['id']} --region {REGION}"
    assert document_["api_calls"] > len(KINDS)
    assert document_["prices"]["priced_on"]
    assert document_["clean"] is True
