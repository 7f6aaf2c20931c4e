"""`coldstart teardown`: destroys a stack in the right order and proves that nothing of it bills any more."""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
from botocore.exceptions import ClientError
from rich.console import Console

from budget.problems import BadInput, Problem, bad_input
from infra.accounts import APPLICATION
from infra.stack_file import STACKS, read
from scripts.account.audit import Audit, Scope, audit, environments
from scripts.account.bill import total
from scripts.account.ownership import Owners
from scripts.account.refusals import is_gone, told
from scripts.account.session import Account, sign_in
from scripts.account.standing import Standing
from scripts.audit_view import document as audit_document
from scripts.audit_view import show
from scripts.cluster.access import from_eks, from_state
from scripts.cluster.api import Server
from scripts.deployed.backend import Backend
from scripts.deployed.state import State
from scripts.dismantling import weights
from scripts.dismantling.run import Dismantling, Limits
from scripts.dismantling.stages import BUCKET, stages
from scripts.dismantling.sweep import Sweep
from scripts.failure import Failure
from scripts.waiting import Say


@dataclass(frozen=True, kw_only=True)
class Teardown:
    """What is going to be taken down.

    Attributes:
        name: the stack that was named.
        states: of the stacks that go, models before their environment; empty states are skipped.
        environment: that they belong to.
        purge: bucket of weights that goes too, or None.
    """

    name: str
    states: Sequence[State]
    environment: str
    account: str
    region: str
    purge: str | None


def planned(name: str, backend: Backend, directory: Path, *, with_models: bool, purge: bool) -> Teardown:
    """What tearing down a stack means, from states alone; the stack file is only asked when there is no state.

    Raises:
        BadInput: no such stack; an environment with models on it; something is protected; account or region unknown.
    """
    states = backend.states()
    if name not in states:
        read(name, directory)  # says that there is no such stack, or what is wrong with its file
    state = states.get(name) or State(stack=name, resources=(), pending=())
    account, region, environment = _where(name, state, directory)
    models = [other for other in states.values() if other.live and other.environment == name and other.stack != name]
    if models and not with_models:
        listed = ", ".join(model.stack for model in models)
        raise bad_input(name, f"has models on it: {listed}", "Tear those down first, or add --with-models.")
    going = [*models, state]
    _refuse_protected(going)
    bucket = _bucket(state, environment, account, region) if purge else None
    if purge and environment != name:
        raise bad_input(
            "--purge-weights", f"{name} is a model", f"The bucket belongs to {environment}: tear that down."
        )
    return Teardown(name=name, states=going, environment=environment, account=account, region=region, purge=bucket)


def _where(name: str, state: State, directory: Path) -> tuple[str, str, str]:
    """Account, region and environment. A stack file that says otherwise than the state is a mistake worth a stop."""
    try:
        stack = read(name, directory)
    except BadInput as unreadable:
        if not (state.account and state.region and state.environment):
            raise BadInput(
                [*unreadable.problems, Problem(name, "and its state says nothing either", "Mend the file.")]
            ) from None
        return state.account, state.region, state.environment
    account, region = stack.environment.account, stack.environment.region
    if state.account not in (None, account):
        raise bad_input(
            "environment.account",
            f"{account}, but the stack was made in {state.account}",
            f"Put {state.account} back until it is torn down.",
        )
    return account, state.region or region, state.environment or stack.environment_name


def _refuse_protected(states: Sequence[State]) -> None:
    problems = [
        Problem(
            state.stack,
            f"{resource.type} {resource.name} is protected",
            f"Set environment.production: false and run `pulumi up`, or: pulumi state unprotect '{resource.urn}' "
            f"--stack {state.stack}",
        )
        for state in states
        for resource in state.resources
        if resource.protect
    ]
    if problems:
        raise BadInput(problems)


def _bucket(state: State, environment: str, account: str, region: str) -> str:
    """Name of the weight bucket: from the state, else what it is called when nobody names it."""
    buckets = [resource.id for resource in state.of_type(BUCKET)]
    return buckets[0] if buckets else f"{APPLICATION}-{environment}-{account}-{region}"


def tear_down(
    plan: Teardown,
    account: Account,
    backend: Backend,
    *,
    say: Say,
    limits: Limits,
    cluster_gone: bool = False,
) -> None:
    """Takes every stack of the plan down, models first.

    Raises:
        Failure: something can't be deleted; says what holds it and how to go on. Run again, it goes on from there.
    """
    weights.refuse_full(account.region(plan.region), plan.states, purge=plan.purge)
    for state in plan.states:
        if not state.live:
            say(f"{state.stack}: nothing in its state")
            if state.stack == plan.environment:
                _sweep(plan, account, say=say, limits=limits)
            continue
        if plan.purge and any(not each.retain for each in state.of_type(BUCKET)):
            weights.empty(account.region(plan.region), plan.purge, say=say)
        api = _api(backend, account, plan)
        try:
            Dismantling(account, backend, state, api, say=say, limits=limits, cluster_gone=cluster_gone).run()
        finally:
            if api is not None:
                api.close()
    if plan.purge:
        weights.purge(account.region(plan.region), plan.purge, say=say)


def _sweep(plan: Teardown, account: Account, *, say: Say, limits: Limits) -> None:
    """What controllers left behind of an environment that is gone; with its cluster there, they may still need it."""
    cluster = f"{APPLICATION}-{plan.environment}"
    with told(f"asking for cluster {cluster}"):
        try:
            account.region(plan.region).eks.describe_cluster(name=cluster)
        except ClientError as error:
            if not is_gone(error):
                raise
            Sweep(account, plan.region, plan.environment).remove(patience=limits.sweep, say=say)
        else:
            say(f"{cluster} is there, though no state knows it: nothing was removed (coldstart audit {plan.name})")


def _api(backend: Backend, account: Account, plan: Teardown) -> Server | None:
    try:
        access = from_state(backend.state(plan.environment))
    except (BadInput, Failure):
        access = None
    if access is None:
        cluster = f"{APPLICATION}-{plan.environment}"
        with told(f"asking for cluster {cluster}"):
            access = from_eks(account.region(plan.region), cluster)
    return Server(access) if access else None


def proof(plan: Teardown, account: Account, backend: Backend, directory: Path) -> Audit:
    """An audit of what should be gone: clean when nothing of it bills."""
    states = backend.states()
    scope = Scope(stack=plan.name, environment=plan.environment, account=account.id, regions=(plan.region,))
    return audit(account, scope, states, Owners(environments(directory, states) | {plan.environment}))


# ---- for a person ---------------------------------------------------------------------------------------------------


def plan_document(plan: Teardown, found: Audit) -> Mapping[str, Any]:
    """A dry run as JSON."""
    return {
        "environment": plan.environment,
        "account": plan.account,
        "region": plan.region,
        "stacks": [
            {
                "stack": state.stack,
                "resources": dict(sorted(Counter(each.type for each in state.resources if each.id).items())),
                "stages": [
                    {"title": stage.title, "destroys": [each.urn for each in stage.targets(state)]}
                    for stage in stages(state)
                ],
                "kept": [each.urn for each in state.resources if each.retain and each.id],
            }
            for state in plan.states
        ],
        "purge": plan.purge,
        "now": audit_document(found),
    }


def show_plan(plan: Teardown, found: Audit) -> None:
    """A dry run for a person."""
    for state in plan.states:
        if not state.live:
            swept = "; what controllers left behind would be removed" if state.stack == plan.environment else ""
            click.echo(f"{state.stack}: nothing in its state{swept}")
            continue
        click.echo(f"{state.stack} in {plan.account}, {plan.region}:")
        seen: set[str] = set()
        for number, stage in enumerate(stages(state), start=1):
            targets = [each for each in stage.targets(state) if each.urn not in seen]
            seen |= {each.urn for each in targets}
            counts = Counter(each.type.rpartition(":")[2] for each in targets if each.id and not each.retain)
            listed = ", ".join(f"{count} {kind}" for kind, count in sorted(counts.items()))
            click.echo(f"  {number}. {stage.title}" + (f": {listed}" if listed else ""))
        for each in state.resources:
            if each.retain and each.type == BUCKET:
                click.echo(f"  kept: bucket {each.id}" + (" - no, it is purged" if plan.purge else ""))
    click.echo(f"now it costs {total(thing.found for thing in found.things)}. Nothing was changed.")


def _confirm(plan: Teardown, typed_bucket: str | None, *, yes: bool) -> None:
    """Asks before anything is changed.

    Raises:
        BadInput: no terminal to ask on, or the wrong name was typed.
    """
    interactive = sys.stdin.isatty()
    if plan.purge:
        typed = typed_bucket
        if typed is None and interactive:
            typed = click.prompt(f"Type the name of the bucket whose weights go for ever ({plan.purge})", err=True)
        if typed != plan.purge:
            raise bad_input(
                "--purge-weights", f"the bucket is {plan.purge}, typed was {typed or 'nothing'}", "Nothing was changed."
            )
    if yes:
        return
    if not interactive:
        raise bad_input("coldstart teardown", "there is no terminal to ask on", "Add --yes, after a --dry-run.")
    names = ", ".join(state.stack for state in plan.states)
    click.confirm(f"Destroy {names} in account {plan.account}?", abort=True, err=True)


@click.command()
@click.argument("stack")
@click.option("--dry-run", is_flag=True, help="Show what would go, in which order, and change nothing.")
@click.option("--with-models", is_flag=True, help="Tear the models on an environment down too, before it.")
@click.option("--purge-weights", is_flag=True, help="Delete the weight bucket too; asks for its name.")
@click.option("--bucket", help="The name of that bucket, where nobody is there to type it.")
@click.option("--cluster-gone", is_flag=True, help="Forget objects in a cluster that can't be reached.")
@click.option("--yes", is_flag=True, help="Don't ask.")
@click.option("--json", "as_json", is_flag=True, help="One JSON document.")
def command(
    stack: str,
    *,
    dry_run: bool,
    with_models: bool,
    purge_weights: bool,
    bucket: str | None,
    cluster_gone: bool,
    yes: bool,
    as_json: bool,
) -> int:
    """Destroy STACK in the right order, wait for what AWS takes its time with, and prove that nothing of it bills.

    Can be run again at any point, also when the cluster or the stack file is already gone. Weights stay unless
    --purge-weights. Exit code 1: something is held, or something still bills.
    """
    backend = Backend(STACKS)
    try:
        plan = planned(stack, backend, STACKS, with_models=with_models, purge=purge_weights)
        account = sign_in(account=plan.account, region=plan.region)
        if dry_run:
            now = proof(plan, account, backend, STACKS)
            _say_plan(plan, now, as_json=as_json)
            return 0
        _confirm(plan, bucket, yes=yes)
        tear_down(plan, account, backend, say=_say, limits=Limits(), cluster_gone=cluster_gone)
        after = proof(plan, account, backend, STACKS)
    finally:
        backend.close()
    if as_json:
        click.echo(json.dumps(audit_document(after), indent=2))
    else:
        show(after, Console(), free=False)
    return 1 if after.leaks or after.unseen or after.of(Standing.LIVE) else 0


def _say_plan(plan: Teardown, now: Audit, *, as_json: bool) -> None:
    if as_json:
        click.echo(json.dumps(plan_document(plan, now), indent=2))
    else:
        show_plan(plan, now)


def _say(line: str) -> None:
    click.echo(line.rstrip("\n"), err=True)
