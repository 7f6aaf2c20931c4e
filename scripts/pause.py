"""`coldstart pause`: GPU nodes of a stack to zero, weights and cluster kept, until `coldstart resume`."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from infra.stack_file import STACKS
from scripts import gpu_groups, node_bill, pause_mark
from scripts.account.bill import Bill
from scripts.account.session import Clients, sign_in
from scripts.cluster import scaled_objects
from scripts.cluster.api import KubernetesApi, Refused, Unreachable
from scripts.deployed.lazy import LazyBackend
from scripts.gpu_groups import GpuGroup
from scripts.targets import Target, environments, targets_of
from scripts.waiting import Patience, Say, wait_for

PATIENCE = Patience(limit_s=900)
"""EKS drains a node before EC2 ends it: up to 15 minutes (managed node groups, update and termination behaviour)."""


@dataclass(frozen=True, kw_only=True)
class Held:
    """A group before and after.

    Attributes:
        had: what it had, in words; what was recorded when it was asleep already.
    """

    group: GpuGroup
    had: str


@dataclass(frozen=True, kw_only=True)
class Paused:
    """What pausing one environment's models did.

    Attributes:
        before, after: hourly bill of the nodes.
        scaled_objects: names of those that are held.
        unheld: why KEDA's objects could not be held, or None.
    """

    target: Target
    groups: Sequence[Held]
    scaled_objects: Sequence[str]
    before: Bill
    after: Bill
    unheld: str | None


def pause(
    clients: Clients,
    target: Target,
    api: KubernetesApi | None,
    directory: Path,
    *,
    say: Say,
    patience: Patience | None = PATIENCE,
) -> Paused:
    """Holds a target's GPU groups at zero. Doing it again changes nothing.

    The order lets it be interrupted anywhere: the program is told first, KEDA next, so that pods end in their own time,
    the groups last.

    Args:
        clients: of the environment's region, signed in to its account.
        target: which models.
        api: the cluster; None when there is no way to it. The groups hold without it, pods then wait in vain.
        directory: folder of the stack files.
        say: told what is done.
        patience: with which EC2 is waited for; None doesn't wait.

    Raises:
        Failure: AWS refuses, or the instances are not terminated in time.
    """
    groups = [
        group
        for group in gpu_groups.of_environment(clients, target.cluster, target.environment)
        if target.includes(group.stack)
    ]
    stacks = sorted({group.stack for group in groups} | (target.stacks or frozenset()))
    running = [name for group in groups for name in group.running]
    before = node_bill.bill_of(clients, running)
    for stack in stacks:
        if not pause_mark.mark(stack, directory, paused=True):
            say(f"{stack}: no stack file to mark; a `pulumi up` that changes its nodes would wake it")
    held, unheld = _hold_objects(api, stacks, say)
    for group in groups:
        say(f"{group.stack}: {group.name} from {group.sizes} nodes to zero")
        gpu_groups.hold(clients, group)
    if patience is not None and running:
        _wait(clients, running, patience, say)
    return Paused(
        target=target,
        groups=[Held(group=group, had=str(group.record.sizes if group.record else group.sizes)) for group in groups],
        scaled_objects=held,
        before=before,
        after=node_bill.bill_of(clients, running),
        unheld=unheld,
    )


def _hold_objects(api: KubernetesApi | None, stacks: Sequence[str], say: Say) -> tuple[Sequence[str], str | None]:
    if api is None:
        return [], "there is no way to the cluster"
    names: list[str] = []
    try:
        for stack in stacks:
            for scaled in scaled_objects.of_stack(api, stack):
                say(f"{stack}: KEDA holds {scaled.name} at zero")
                scaled_objects.hold(api, scaled)
                names.append(f"{scaled.namespace}/{scaled.name}")
    except (Unreachable, Refused) as error:
        return names, str(error)
    return names, None


def _wait(clients: Clients, ids: Sequence[str], patience: Patience, say: Say) -> None:
    wait_for(
        "instances to be terminated",
        lambda: [each.get("InstanceId", "") for each in node_bill.alive(clients, ids)],
        patience=patience,
        say=say,
        go_on="run the same command again: it only waits. `kubectl get pods` shows which pod a drain waits for",
    )


# ---- the verb -------------------------------------------------------------------------------------------------------


def on_each(
    names: Sequence[str],
    directory: Path,
    act: Callable[[Clients, Target, KubernetesApi | None], Paused],
) -> Sequence[Paused]:
    """Signs in to each target's account, finds its cluster, and acts."""
    backend = LazyBackend(directory)
    try:
        done: list[Paused] = []
        for target in targets_of(names, directory, backend.state):
            clients = sign_in(account=target.account, region=target.region).region(target.region)
            done.append(act(clients, target, backend.api(target.environment, clients, target.cluster)))
        return done
    finally:
        backend.close()


def document(done: Paused) -> Mapping[str, Any]:
    """What was done, as JSON."""
    return {
        "environment": done.target.environment,
        "groups": [{"stack": held.group.stack, "node_group": held.group.name, "had": held.had} for held in done.groups],
        "scaled_objects": list(done.scaled_objects),
        "not_held": done.unheld,
        "usd_per_hour": {"before": done.before.usd_per_hour, "after": done.after.usd_per_hour},
        "unpriced": done.before.unpriced + done.after.unpriced,
    }


def chosen(stacks: Sequence[str], directory: Path, *, everything: bool) -> Sequence[str]:
    """The stacks that were named, or every environment there is."""
    if everything == bool(stacks):
        raise click.UsageError("name a STACK, or --all")
    return environments(directory) if everything else list(stacks)


@click.command()
@click.argument("stacks", nargs=-1, metavar="[STACK]...")
@click.option("--all", "everything", is_flag=True, help="Every model of every environment.")
@click.option("--no-wait", is_flag=True, help="Don't wait until EC2 has terminated the instances.")
@click.option("--json", "as_json", is_flag=True, help="One JSON document.")
def command(stacks: tuple[str, ...], *, everything: bool, no_wait: bool, as_json: bool) -> None:
    """Put the GPU nodes of STACK to zero; an environment stands for every model on it.

    Weights, cluster and stack stay. The sizes are recorded, and `coldstart resume` puts them back.
    """
    names = chosen(stacks, STACKS, everything=everything)
    patience = None if no_wait else PATIENCE

    def act(clients: Clients, target: Target, api: KubernetesApi | None) -> Paused:
        return pause(clients, target, api, STACKS, say=_say, patience=patience)

    done = on_each(names, STACKS, act)
    if as_json:
        click.echo(json.dumps([document(each) for each in done], indent=2))
        return
    for each in done:
        _show(each)


def _say(line: str) -> None:
    click.echo(line, err=True)


def _show(done: Paused) -> None:
    if not done.groups:
        click.echo(f"{done.target.environment}: no GPU node groups there")
        return
    for held in done.groups:
        click.echo(f"{held.group.stack}: {held.group.name} had {held.had} nodes, is held at zero")
    if done.unheld:
        click.echo(f"warning: KEDA's objects are not held ({done.unheld}); their pods wait until `resume`", err=True)
    click.echo(f"nodes: {done.before}, now {done.after}")
