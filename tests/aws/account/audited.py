"""What the tests of audits share: how the sets are named, and the states that would have made them."""

from __future__ import annotations

import boto3

from scripts.account.audit import Audit, Scope
from scripts.account.standing import Standing
from scripts.deployed.state import Resource, State
from tests.aws.account.front import ACCOUNT
from tests.aws.account.seed import Names, Set

REGION = "us-west-2"
OURS = Names("coldstart-dev", f"coldstart-dev-{ACCOUNT}-{REGION}", "ecr-pullthroughcache/coldstart-dev", "dev")
SECOND = Names("coldstart-dev2", f"coldstart-dev2-{ACCOUNT}-{REGION}", "ecr-pullthroughcache/coldstart-dev2", "dev2")
FOREIGN = Names("coldstarter-dev", f"coldstart-dev-{ACCOUNT}-{REGION}-backup", "coldstart-dev", "dev-3")
"""Named as closely after ours as somebody else could."""


def session_in(account_id: str) -> boto3.Session:
    """A session with credentials of an account."""
    return boto3.Session(aws_access_key_id=f"AKIA{account_id}", aws_secret_access_key="testing")  # noqa: S106 - moto's


def tags(environment: str, application: str = "coldstart") -> dict[str, str]:
    """The six tags of everything in a stack."""
    return {
        "application": application,
        "environment": environment,
        "model": "none",
        "stack": environment,
        "owner": "tests",
        "expiry": "never",
    }


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


def scope(environment: str | None = None) -> Scope:
    """One region, and one environment or all."""
    return Scope(stack=None, environment=environment, account=ACCOUNT, regions=(REGION,))


def found_in(found: Audit, *standings: Standing) -> dict[tuple[str, str], float | None]:
    """(kind, id) → price of things of these standings."""
    return {
        (thing.found.kind, thing.found.id): thing.found.price.usd_per_hour
        for thing in found.things
        if thing.standing in standings
    }
