"""`coldstart audit`: what exists, which of it is ours, what it costs; exit 1 when something bills for no stack."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click
from rich.console import Console

from budget.problems import BadInput, bad_input
from infra.environment_settings import Environment
from infra.stack_file import STACKS, read
from scripts.account.audit import Scope, audit, environments
from scripts.account.kinds import KINDS
from scripts.account.ownership import Owners
from scripts.account.session import sign_in
from scripts.audit_view import document, rules, show
from scripts.deployed.backend import Backend
from scripts.deployed.state import State
from scripts.failure import Failure


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


def policy_document() -> Mapping[str, Any]:
    """What looking takes: nothing that changes anything. Lists are of the whole account: no resource narrows them."""
    actions = {"ec2:DescribeRegions", "sts:GetCallerIdentity"} | {each for kind in KINDS for each in kind.actions}
    statement = {"Sid": "LookAtEverything", "Effect": "Allow", "Action": sorted(actions), "Resource": "*"}
    return {"Version": "2012-10-17", "Statement": [statement]}


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
