"""An audit for a person: what it costs, what leaks, and commands that can be copied."""

from __future__ import annotations

import io
from datetime import UTC, datetime, timedelta

import pytest
from click.testing import CliRunner
from rich.console import Console

from scripts.account.audit import Audit
from scripts.account.found import FREE, UNPRICED, Found, Price
from scripts.account.kinds import KINDS
from scripts.account.ownership import Ours
from scripts.account.standing import Judged, Standing
from scripts.audit import command, policy_document
from scripts.audit_view import age, show

REMOVE = (
    "aws elbv2 delete-load-balancer --load-balancer-arn arn:aws:elasticloadbalancing:us-west-2:111122223333:x/"
    + "y" * 90
)


NOW = datetime(2026, 11, 30, 12, tzinfo=UTC)


def thing(name: str, price: Price, standing: Standing, stack: str | None = None) -> Judged:
    found = Found(
        kind="load balancer",
        id=name,
        region="us-west-2",
        created=NOW - timedelta(days=2),
        owner=Ours("dev", None, "tag"),
        detail="[network]",
        price=price,
        pulumi_id=None,
        remove=REMOVE,
    )
    return Judged(found=found, standing=standing, stack=stack, why="tag; stack dev is gone")


def shown(*things: Judged) -> str:
    found = Audit(
        account="111122223333",
        regions=["us-west-2"],
        things=things,
        foreign=7,
        unseen=[],
        states_known=True,
        calls=31,
        taken=NOW,
    )
    text = io.StringIO()
    show(found, Console(file=text, width=120), free=False)
    return text.getvalue()


def test_a_leak_is_said_in_dollars_and_its_command_is_one_line() -> None:
    text = shown(thing("a", Price(usd_per_hour=0.0225), Standing.LEFTOVER), thing("b", FREE, Standing.LEFTOVER))
    assert f"\n  {REMOVE}\n" in text, "longer than the screen, and unbroken all the same"
    assert "2 things: $0.0225 per hour, $16.43 per month" in text
    assert "Leak: 1 thing of ours that no stack will ever remove, $0.0225 per hour, $16.43 per month." in text
    assert "[network]" in text, "what somebody wrote is not taken for markup"
    assert "Left over: no stack will remove these" in text
    assert "2 d" in text
    assert "7 things of others; 31 API calls" in " ".join(text.split())


@pytest.mark.parametrize(
    ("passed", "words"),
    [
        (timedelta(minutes=7), "7 min"),
        (timedelta(hours=5), "5 h"),
        (timedelta(hours=47), "47 h"),
        (timedelta(days=9), "9 d"),
    ],
)
def test_ages_in_the_unit_that_fits(passed: timedelta, words: str) -> None:
    assert age(NOW - passed, NOW) == words
    assert age(None, NOW) == "?"


def test_what_has_no_price_is_unknown_and_the_sum_a_least() -> None:
    text = shown(thing("a", UNPRICED, Standing.LEFTOVER))
    assert "unknown" in text
    assert "at least $0.0000 per hour" in text


def test_parts_of_a_stack_go_with_it() -> None:
    text = shown(thing("a", Price(usd_per_hour=1.0), Standing.LIVE, "dev"), thing("b", FREE, Standing.LIVE, "dev"))
    assert text.count("coldstart teardown dev") == 1
    assert "1 thing, and 1 that are free (--free): $1.0000 per hour" in text
    assert "Clean: everything of ours that bills belongs to a live stack" in text


def test_rules_and_policy_are_told_without_an_account() -> None:
    told = CliRunner().invoke(command, ["--rules"])
    assert told.exit_code == 0
    for kind in KINDS:
        assert kind.name in told.output
    actions = policy_document()["Statement"][0]["Action"]
    assert "ec2:DescribeVolumes" in actions
    assert all(each.partition(":")[2].startswith(("Describe", "List", "Get")) for each in actions)
