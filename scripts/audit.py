"""`coldstart audit`: what exists, which of it is ours, what it costs; exit 1 when something bills for no stack."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click
from rich.console import Console

from budget.price import prices
from budget.problems import BadInput, bad_input
from infra.settings import Environment
from infra.stack_file import STACKS, names, read
from scripts.account.bill import Bill, total
from scripts.account.census import Census, Say, Unseen, census
from scripts.account.kinds import KINDS
from scripts.account.ownership import Ours, Owners
from scripts.account.session import Account, sign_in
from scripts.account.standing import Judged, LiveStacks, Standing, judged
from scripts.audit_view import rules, show
from scripts.deployed.backend import Backend
from scripts.deployed.state import State
from scripts.failure import Failure


@dataclass(frozen=True, kw_only=True)
class Scope:
    """What is audited.

    Attributes:
        stack, environment: only what belongs to it; None is everything of ours.
        account: that it must be; None is whichever is signed in.
        regions: names; empty is every region that is on.
    """

    stack: str | None
    environment: str | None
    account: str | None
    regions: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Audit:
    """What was found.

    Attributes:
        things: ours and unknown ones, in the scope.
        foreign: how many things belong to others.
        unseen: what could not be looked at; with any, the audit proves nothing.
        states_known: whether the backend said which stacks are alive.
        calls: requests to AWS.
    """

    account: str
    regions: Sequence[str]
    things: Sequence[Judged]
    foreign: int
    unseen: Sequence[Unseen]
    states_known: bool
    calls: int
    taken: datetime

    def of(self, standing: Standing) -> Sequence[Judged]:
        """Things of one standing."""
        return [thing for thing in self.things if thing.standing is standing]

    def bill(self, standing: Standing) -> Bill:
        """What things of one standing cost together."""
        return total(thing.found for thing in self.of(standing))

    @property
    def leaks(self) -> Sequence[Judged]:
        """What bills for no stack."""
        return [thing for thing in self.things if thing.leaks]

    @property
    def clean(self) -> bool:
        """Nothing leaks, and everything was seen."""
        return not self.leaks and not self.unseen and self.states_known


def audit(
    account: Account, scope: Scope, states: Mapping[str, State] | None, owners: Owners, say: Say = lambda _: None
) -> Audit:
    """Looks at the account.

    Args:
        account: signed in.
        scope: what of it.
        states: every stack's state; None when the backend could not be asked, and then nothing is known to be alive.
        owners: what is known of our environments.
        say: told what is being looked at.
    """
    regions = scope.regions or account.regions()
    seen: Census = census(account, regions, owners, say=say)
    live: LiveStacks = {name: state.ids for name, state in (states or {}).items() if state.live}
    things = [judged(found, live) for found in seen.found]
    return Audit(
        account=account.id,
        regions=regions,
        things=[thing for thing in things if _inside(thing, scope)],
        foreign=seen.foreign.total(),
        unseen=seen.unseen,
        states_known=states is not None,
        calls=account.calls,
        taken=datetime.now(UTC),
    )


def _inside(thing: Judged, scope: Scope) -> bool:
    owner = thing.found.owner
    if scope.stack is not None and scope.stack != scope.environment:
        return isinstance(owner, Ours) and owner.stack == scope.stack
    return scope.environment is None or owner.environment in (None, scope.environment)


def environments(directory: Path, states: Mapping[str, State] | None) -> set[str]:
    """Every environment that a stack file or a state names."""
    found = {state.environment for state in (states or {}).values() if state.environment}
    for name in names(directory):
        try:
            found.add(read(name, directory).environment_name)
        except BadInput:
            found.add(name)  # a file that doesn't parse may still be that of an environment
    return found


def scope_of(
    stack: str | None,
    environment: str | None,
    region: str | None,
    *,
    everywhere: bool,
    directory: Path,
    states: Mapping[str, State] | None,
) -> Scope:
    """What to audit, from what was typed; stack file and state both know account and region.

    Raises:
        BadInput: unknown stack, or no region anywhere.
    """
    name = stack or environment
    settings = _settings(name, directory) if name else None
    state = (states or {}).get(name) if name else None
    if name and settings is None and state is None:
        read(name, directory)  # says what is wrong with it, or that there is no such stack
    regions = [region, settings.region if settings else None, state.region if state else None]
    chosen = next((each for each in regions if each), None)
    if chosen is None and not everywhere:
        raise bad_input("coldstart audit", "nothing says which region", "Name a STACK, --region R, or --all-regions.")
    owner = _environment_name(name, directory, state) if name else None
    return Scope(
        stack=stack,
        environment=owner,
        account=(settings.account if settings else None) or (state.account if state else None),
        regions=() if everywhere or chosen is None else (chosen,),
    )


def _settings(name: str, directory: Path) -> Environment | None:
    try:
        return read(name, directory).environment
    except BadInput:
        return None


def _environment_name(name: str, directory: Path, state: State | None) -> str:
    if state and state.environment:
        return state.environment
    return read(name, directory).environment_name


def states_or_none(directory: Path) -> Mapping[str, State] | None:
    """Every stack's state; None, said on stderr, when the backend can't be asked."""
    try:
        backend = Backend(directory)
        try:
            return backend.states()
        finally:
            backend.close()
    except (Failure, BadInput) as error:
        click.echo(f"warning: {error}\nwarning: so it is not known which stacks are alive", err=True)
        return None


def document(found: Audit) -> Mapping[str, Any]:
    """The audit as one JSON document."""
    table = prices()
    return {
        "account": found.account,
        "regions": list(found.regions),
        "taken": found.taken.isoformat(timespec="seconds"),
        "clean": found.clean,
        "things": [_thing(thing, found.taken) for thing in found.things],
        "totals": {
            standing.value: {
                "things": len(found.of(standing)),
                "usd_per_hour": found.bill(standing).usd_per_hour,
                "usd_per_month": found.bill(standing).usd_per_month,
                "unpriced": found.bill(standing).unpriced,
            }
            for standing in Standing
        },
        "foreign": found.foreign,
        "unseen": [{"kind": each.kind, "region": each.region, "why": each.why} for each in found.unseen],
        "states_known": found.states_known,
        "api_calls": found.calls,
        "prices": {"region": table.region, "priced_on": table.priced_on},
    }


def policy_document() -> Mapping[str, Any]:
    """What looking takes: nothing that changes anything. Lists are of the whole account: no resource narrows them."""
    actions = {"ec2:DescribeRegions", "sts:GetCallerIdentity"} | {each for kind in KINDS for each in kind.actions}
    statement = {"Sid": "LookAtEverything", "Effect": "Allow", "Action": sorted(actions), "Resource": "*"}
    return {"Version": "2012-10-17", "Statement": [statement]}


def _thing(thing: Judged, taken: datetime) -> Mapping[str, Any]:
    found, rate = thing.found, thing.found.price.usd_per_hour
    return {
        "kind": found.kind,
        "id": found.id,
        "region": found.region,
        "standing": thing.standing.value,
        "stack": thing.stack,
        "why": thing.why,
        "created": found.created.isoformat() if found.created else None,
        "age_h": round((taken - found.created).total_seconds() / 3600, 2) if found.created else None,
        "detail": found.detail,
        "usd_per_hour": rate,
        "usd_per_month": None if rate is None else rate * prices().hours_per_month,
        "price_note": found.price.note,
        "remove": found.remove,
    }


@click.command()
@click.argument("stack", required=False)
@click.option("--environment", help="Only what belongs to this environment and its models.")
@click.option("--region", help="Region to look at; else that of the stack.")
@click.option("--all-regions", "everywhere", is_flag=True, help="Every region that is on in the account.")
@click.option("--free", "show_free", is_flag=True, help="Also list what costs nothing and belongs to a live stack.")
@click.option("--rules", "show_rules", is_flag=True, help="Say by what ours are known, kind by kind, and ask nothing.")
@click.option("--print-policy", is_flag=True, help="Print the IAM policy that looking takes, and ask nothing.")
@click.option("--json", "as_json", is_flag=True, help="One JSON document.")
def command(
    stack: str | None,
    *,
    environment: str | None,
    region: str | None,
    everywhere: bool,
    show_free: bool,
    show_rules: bool,
    print_policy: bool,
    as_json: bool,
) -> int:
    """List what exists in the account, which of it is ours, why, and what it costs per hour and month.

    Exit code 1: something of ours bills although no stack is left that would remove it, or not everything could be
    looked at.
    """
    if stack and environment:
        raise click.UsageError("give STACK or --environment, not both")
    if show_rules or print_policy:
        _show_how(policy=print_policy, as_json=as_json)
        return 0
    states = states_or_none(STACKS)
    scope = scope_of(stack, environment, region, everywhere=everywhere, directory=STACKS, states=states)
    account = sign_in(account=scope.account, region=scope.regions[0] if scope.regions else "us-east-1")
    progress = Console(stderr=True)
    with progress.status("looking") as status:
        found = audit(account, scope, states, Owners(environments(STACKS, states)), say=status.update)
    if as_json:
        click.echo(json.dumps(document(found), indent=2))
    else:
        show(found, Console(), free=show_free)
    return 0 if found.clean else 1


def _show_how(*, policy: bool, as_json: bool) -> None:
    if policy:
        click.echo(json.dumps(policy_document(), indent=2))
    elif as_json:
        click.echo(json.dumps({kind.name: kind.rule for kind in KINDS}, indent=2))
    else:
        rules(Console())
