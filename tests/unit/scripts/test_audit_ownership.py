"""Whose a thing is, how it stands to live stacks, and what it costs: the rules by themselves."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from budget.price import prices
from scripts.account import dollars
from scripts.account.bill import total
from scripts.account.found import Found, Price
from scripts.account.kinds import KINDS
from scripts.account.kinds.buckets import name_shape
from scripts.account.ownership import Ours, Owners, Unknown, tags_of
from scripts.account.standing import Standing, judged

NOW = datetime(2026, 11, 30, 12, tzinfo=UTC)
NAMES = st.from_regex(r"[a-z0-9]([a-z0-9-]{0,20}[a-z0-9])?", fullmatch=True)
TAGS = {"application": "coldstart", "environment": "dev", "stack": "dev-llama"}


def thing(
    owner: Ours | Unknown, *, usd: float | None = 1.0, pulumi_id: str | None = "id-1", kept: bool = False
) -> Found:
    return Found(
        kind="NAT gateway",
        id="id-1",
        region="us-west-2",
        created=NOW - timedelta(hours=5),
        owner=owner,
        detail="in vpc-1",
        price=Price(usd_per_hour=usd),
        pulumi_id=pulumi_id,
        kept=kept,
        remove="aws ec2 delete-nat-gateway --nat-gateway-id id-1",
    )


def test_our_tags_prove_it_and_teach_the_environment() -> None:
    owners = Owners([])
    assert owners.by_tags(TAGS) == Ours("dev", "dev-llama", "tags")
    assert owners.environments == {"dev"}


@pytest.mark.parametrize(
    "tags",
    [
        {},
        {"application": "coldstart-legacy", "environment": "dev"},
        {"Application": "coldstart", "environment": "dev"},
        {"environment": "dev", "stack": "dev"},
        {"kubernetes.io/cluster/coldstart-dev": "shared"},
        {"kubernetes.io/cluster/coldstarter-dev": "owned"},
        {"eks:cluster-name": "dev"},
    ],
)
def test_what_only_looks_like_ours_is_somebody_elses(tags: dict[str, str]) -> None:
    assert Owners(["dev"]).by_tags(tags) is None


@pytest.mark.parametrize(
    "tags",
    [
        {"kubernetes.io/cluster/coldstart-dev": "owned"},
        {"eks:cluster-name": "coldstart-dev"},
        {"elbv2.k8s.aws/cluster": "coldstart-dev"},
        {"cluster.k8s.amazonaws.com/name": "coldstart-dev"},
    ],
)
def test_a_controllers_tag_proves_it_for_an_environment_that_is_known(tags: dict[str, str]) -> None:
    verdict = Owners(["dev"]).by_tags(tags)
    assert isinstance(verdict, Ours)
    assert (verdict.environment, verdict.stack) == ("dev", None)
    hint = Owners(["dev2"]).by_tags(tags)
    assert isinstance(hint, Unknown)
    assert hint.environment == "dev"


@pytest.mark.parametrize(
    ("tags", "namespace"),
    [
        ({"kubernetes.io/service-name": "web/front"}, "web"),
        ({"service.k8s.aws/stack": "web/front"}, "web"),
        ({"kubernetes.io/created-for/pvc/namespace": "web"}, "web"),
        ({"ingress.k8s.aws/stack": "group-without-namespace"}, None),
        ({}, None),
    ],
)
def test_controllers_say_for_which_namespace(tags: dict[str, str], namespace: str | None) -> None:
    verdict = Owners(["dev"]).by_tags({"kubernetes.io/cluster/coldstart-dev": "owned"} | tags)
    assert isinstance(verdict, Ours)
    assert verdict.namespace == namespace


@given(environment=NAMES, other=NAMES)
def test_a_name_is_matched_whole(environment: str, other: str) -> None:
    owners = Owners([environment])
    shape = "/aws/eks/coldstart-{}/cluster"
    verdict = owners.by_name(shape.replace("{}", other), shape)
    assert isinstance(verdict, Ours) == (environment == other)
    for name in (f"/aws/eks/coldstart-{environment}/cluster-old", f"x/aws/eks/coldstart-{environment}/cluster"):
        assert not isinstance(owners.by_name(name, shape), Ours)


@given(environment=NAMES)
def test_environments_whose_names_begin_alike_are_told_apart(environment: str) -> None:
    owners = Owners([environment])
    for longer in (f"{environment}2", f"{environment}-llama"):
        verdict = owners.by_name(f"coldstart-{longer}-111122223333-us-west-2", name_shape("111122223333", "us-west-2"))
        assert isinstance(verdict, Unknown)


def test_a_proof_beats_a_hint_and_a_hint_nothing() -> None:
    owners, proof, hint = Owners([]), Ours("dev", None, "name"), Unknown("hint")
    assert owners.first(None, hint, proof) == proof
    assert owners.first(None, hint, None) == hint
    assert owners.first(None, None) is None


@pytest.mark.parametrize(
    "pair", [{"Key": "a", "Value": "b"}, {"key": "a", "value": "b"}, {"TagKey": "a", "TagValue": "b"}]
)
def test_tags_however_a_service_spells_them(pair: dict[str, str]) -> None:
    assert tags_of([pair]) == {"a": "b"}
    assert tags_of(None) == {}


def test_every_kind_says_how_ours_are_known() -> None:
    assert len({kind.name for kind in KINDS}) == len(KINDS) >= 24
    for kind in KINDS:
        assert kind.rule
        assert kind.actions
        assert all(action.partition(":")[2][:3] in ("Des", "Lis", "Get") for action in kind.actions), kind.name


# ---- standing -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("found", "live", "standing", "why"),
    [
        (thing(Ours("dev", "dev", "tags")), {"dev": {"id-1"}}, Standing.LIVE, "tags"),
        (thing(Ours("dev", "dev", "tags")), {"dev": {"id-2"}}, Standing.LEFTOVER, "tags; not in the state of dev"),
        (thing(Ours("dev", "dev", "tags")), {}, Standing.LEFTOVER, "tags; stack dev is gone"),
        (thing(Ours("dev", None, "tag x"), pulumi_id=None), {"dev": set()}, Standing.LIVE, "tag x"),
        (thing(Ours("dev", None, "tag x")), {"dev-llama": {"id-1"}}, Standing.LEFTOVER, "tag x; stack dev is gone"),
        (thing(Ours("dev", "dev", "tags"), kept=True), {}, Standing.KEPT, "tags; outlives its stack on purpose"),
        (thing(Ours("dev", "dev", "tags"), kept=True), {"dev": {"id-1"}}, Standing.LIVE, "tags"),
        (thing(Unknown("a hint"), kept=True), {"dev": {"id-1"}}, Standing.UNKNOWN, "a hint"),
    ],
)
def test_how_a_thing_stands(found: Found, live: dict[str, set[str]], standing: Standing, why: str) -> None:
    verdict = judged(found, {name: frozenset(ids) for name, ids in live.items()})
    assert (verdict.standing, verdict.why) == (standing, why)


@pytest.mark.parametrize(("usd", "leaks"), [(1.0, True), (0.0, False), (None, True)])
def test_a_leftover_leaks_unless_it_is_free(usd: float | None, leaks: bool) -> None:  # noqa: FBT001 - a parameter
    assert judged(thing(Ours("dev", "dev", "tags"), usd=usd), {}).leaks is leaks
    assert not judged(thing(Unknown("hint"), usd=usd), {}).leaks


# ---- money ----------------------------------------------------------------------------------------------------------


def test_what_has_no_price_is_unknown_and_never_free() -> None:
    assert dollars.item("no_such_item").usd_per_hour is None
    assert dollars.volume("sc1", 100, 0, 0).usd_per_hour is None
    assert dollars.volume("st1", 500, 0, 0).usd_per_hour is None
    assert dollars.instance("p9.48xlarge", "running", spot=False).usd_per_hour is None
    assert dollars.instance("p9.48xlarge", "stopped", spot=False).usd_per_hour == 0


def test_prices_are_those_of_the_table() -> None:
    assert dollars.item("nat_gateway_usd_per_hour", 2).usd_per_hour == pytest.approx(0.09)
    assert dollars.item("secret_usd_per_month").usd_per_hour == pytest.approx(0.40 / 730)
    assert dollars.volume("gp3", 100, 3000, 125).usd_per_hour == pytest.approx(8 / 730)
    assert dollars.volume("io2", 100, 10_000, 0).usd_per_hour == pytest.approx((12.5 + 650) / 730)
    assert dollars.instance("g6e.2xlarge", "running", spot=True) == Price(
        usd_per_hour=2.24208, note="on-demand price as the ceiling of spot"
    )
    assert dollars.stored("ecr_usd_per_gb_month", 9e9).usd_per_hour == pytest.approx(0.9 / 730)


@given(rates=st.lists(st.one_of(st.none(), st.floats(0, 100))))
def test_a_total_says_when_it_is_a_least(rates: list[float | None]) -> None:
    bill = total(thing(Ours("dev", "dev", "tags"), usd=usd) for usd in rates)
    assert bill.usd_per_hour == pytest.approx(sum(rate for rate in rates if rate is not None))
    assert bill.usd_per_month == pytest.approx(bill.usd_per_hour * prices().hours_per_month)
    assert str(bill).startswith("at least") == (None in rates)


# ---- for a person ---------------------------------------------------------------------------------------------------
