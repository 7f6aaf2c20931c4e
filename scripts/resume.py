"""`coldstart resume`: the GPU nodes of a paused stack come back at the sizes that were recorded."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click

from budget.instances import instances
from budget.problems import BadInput
from infra.specs import model_specs
from infra.stack_file import STACKS, read
from scripts import appointments, gpu_groups, node_bill, pause_mark
from scripts.account.bill import Bill
from scripts.account.session import Clients, sign_in
from scripts.cluster import scaled_objects
from scripts.cluster.api import KubernetesApi, Refused, Unreachable
from scripts.deployed.lazy import LazyBackend
from scripts.failure import Failure
from scripts.gpu_groups import GpuGroup, Sizes
from scripts.pause import chosen
from scripts.targets import Target, targets_of
from scripts.waiting import Say


@dataclass(frozen=True, kw_only=True)
class Woken:
    """A group and the sizes it has again."""

    group: GpuGroup
    sizes: Sizes
    from_settings: bool


@dataclass(frozen=True, kw_only=True)
class Resumed:
    """What resuming one environment's models did.

    Attributes:
        before: hourly bill of the nodes that ran.
        coming_usd_per_hour: of the instances that were asked for; None when one has no list price.
        held: why KEDA's objects are still held, or None.
    """

    target: Target
    groups: Sequence[Woken]
    awake: Sequence[GpuGroup]
    scaled_objects: Sequence[str]
    before: Bill
    coming_usd_per_hour: float | None
    held: str | None


def resume(
    clients: Clients, target: Target, api: KubernetesApi | None, directory: Path, *, say: Say, now: datetime
) -> Resumed:
    """Puts back what was recorded. Doing it again changes nothing.

    The groups come first and the mark in the stack file goes last, so that the program leaves everything alone until it
    all is as it was.

    Raises:
        Failure: an appointment has put the stack to zero and nobody extended it; or AWS refuses.
    """
    groups = [
        group
        for group in gpu_groups.in_cluster(clients, target.cluster, target.environment)
        # System nodes are never paused, but a teardown that was given up leaves a record on them as well.
        if target.includes(group.stack) and (group.stack != target.environment or group.record)
    ]
    _refuse_expired(clients, target, groups, now)
    before = node_bill.bill_of(clients, [name for group in groups for name in group.running])
    woken = [_wake(clients, group, directory, say) for group in groups if group.asleep or group.record]
    stacks = sorted({group.stack for group in groups} | (target.stacks or frozenset()))
    released, held = _release_objects(api, stacks, say)
    if held is None:
        for stack in stacks:
            if not pause_mark.mark(stack, directory, paused=False):
                say(f"{stack}: no stack file to take the mark from")
    return Resumed(
        target=target,
        groups=woken,
        awake=[group for group in groups if not group.asleep and group.record is None],
        scaled_objects=released,
        before=before,
        coming_usd_per_hour=_coming(directory, woken),
        held=held,
    )


def _refuse_expired(clients: Clients, target: Target, groups: Sequence[GpuGroup], now: datetime) -> None:
    asleep = {group.stack for group in groups if group.asleep}
    kept = [
        each
        for each in appointments.of_environment(clients, target.environment)
        if each.stack in asleep and each.passed(now)
    ]
    if kept:
        stack, at = kept[0].stack, kept[0].at
        raise Failure(
            f"{stack} expired at {at:%Y-%m-%d %H:%M} UTC; awake again it would have no end. "
            f"First: coldstart extend {stack} --by 8h"
        )


def _wake(clients: Clients, group: GpuGroup, directory: Path, say: Say) -> Woken:
    if group.record is not None:
        sizes = gpu_groups.release(clients, group)
        say(f"{group.stack}: {group.name} back to {sizes} nodes")
        return Woken(group=group, sizes=sizes, from_settings=False)
    sizes = _declared(group, directory)
    gpu_groups.wake_within(clients, group, sizes)
    say(f"{group.stack}: {group.name} expired without being paused; its bounds are those of its stack file, {sizes}")
    return Woken(group=group, sizes=sizes, from_settings=True)


def _declared(group: GpuGroup, directory: Path) -> Sizes:
    """Bounds of a group that an appointment put to zero: its settings say them, its size is the autoscaler's."""
    try:
        stack = read(group.stack, directory)
    except BadInput as error:
        raise Failure(f"{group.name} expired without a record, and its stack file can't be read: {error}") from error
    if stack.model is None:
        raise Failure(f"{group.name} expired without a record, and {group.stack} is not a model")
    return Sizes(least=0, most=model_specs(stack, stack.model).max_nodes, desired=0)


def _release_objects(api: KubernetesApi | None, stacks: Sequence[str], say: Say) -> tuple[Sequence[str], str | None]:
    if api is None:
        return [], "there is no way to the cluster"
    names: list[str] = []
    try:
        for stack in stacks:
            for scaled in scaled_objects.of_stack(api, stack):
                scaled_objects.release(api, scaled)
                say(f"{stack}: KEDA scales {scaled.name} again")
                names.append(f"{scaled.namespace}/{scaled.name}")
    except (Unreachable, Refused) as error:
        return names, str(error)
    return names, None


def _coming(directory: Path, woken: Sequence[Woken]) -> float | None:
    total = 0.0
    for each in woken:
        if not each.sizes.desired:
            continue
        try:
            stack = read(each.group.stack, directory)
        except BadInput:
            return None
        known = instances().get(stack.model.nodes.instance) if stack.model else None
        if known is None or known.usd_per_hour is None:
            return None
        total += each.sizes.desired * known.usd_per_hour
    return total


# ---- the verb -------------------------------------------------------------------------------------------------------


def document(done: Resumed) -> Mapping[str, Any]:
    """What was done, as JSON."""
    return {
        "environment": done.target.environment,
        "groups": [
            {
                "stack": woken.group.stack,
                "node_group": woken.group.name,
                "sizes": {"min": woken.sizes.least, "max": woken.sizes.most, "desired": woken.sizes.desired},
                "from": "settings" if woken.from_settings else "record",
            }
            for woken in done.groups
        ],
        "awake": [{"stack": group.stack, "node_group": group.name} for group in done.awake],
        "scaled_objects": list(done.scaled_objects),
        "still_held": done.held,
        "usd_per_hour": {"before": done.before.usd_per_hour, "coming": done.coming_usd_per_hour},
    }


@click.command()
@click.argument("stacks", nargs=-1, metavar="[STACK]...")
@click.option("--all", "everything", is_flag=True, help="Every model of every environment.")
@click.option("--json", "as_json", is_flag=True, help="One JSON document.")
def command(stacks: tuple[str, ...], *, everything: bool, as_json: bool) -> int:
    """Bring the GPU nodes of a paused STACK back; an environment stands for every model on it.

    Exit code 1: KEDA's objects could not be released, so nothing starts yet; run it again when the cluster answers.
    """
    names = chosen(stacks, STACKS, everything=everything)
    backend = LazyBackend(STACKS)
    done: list[Resumed] = []
    try:
        for target in targets_of(names, STACKS, backend.state):
            clients = sign_in(account=target.account, region=target.region).region(target.region)
            api = backend.api(target.environment, clients, target.cluster)
            done.append(resume(clients, target, api, STACKS, say=_say, now=datetime.now(UTC)))
    finally:
        backend.close()
    if as_json:
        click.echo(json.dumps([document(each) for each in done], indent=2))
    else:
        for each in done:
            _show(each)
    return 1 if any(each.held and each.groups for each in done) else 0


def _say(line: str) -> None:
    click.echo(line, err=True)


def _show(done: Resumed) -> None:
    if not done.groups and not done.awake:
        click.echo(f"{done.target.environment}: no GPU node groups there")
        return
    for woken in done.groups:
        click.echo(f"{woken.group.stack}: {woken.group.name} has {woken.sizes} nodes again")
    for group in done.awake:
        click.echo(f"{group.stack}: {group.name} was not paused")
    if done.held:
        click.echo(f"warning: KEDA's objects are still held ({done.held}); run it again", err=True)
    coming = "unknown" if done.coming_usd_per_hour is None else f"${done.coming_usd_per_hour:,.4f} per hour"
    click.echo(f"nodes: {done.before}; instances asked for: {coming}")
