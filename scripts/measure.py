"""`coldstart measure`: what a start really took, phase by phase, beside its budget, and which lever was on."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import click
from rich.console import Console

from budget.problems import BadInput, Problem
from infra.stack_file import Stack
from scripts.failure import Failure
from scripts.figures import dollars, seconds
from scripts.ledger import comparison, observability, picture, screen
from scripts.ledger.advice import next_step
from scripts.ledger.bundle import Bundle
from scripts.ledger.collect import Collector, kept_ledgers
from scripts.ledger.comparison import Side
from scripts.ledger.consent import agree, say
from scripts.ledger.folder import load, save, starts_in
from scripts.ledger.kube_api import Api
from scripts.ledger.kubeconfig import Kubeconfig
from scripts.ledger.merge import ledger_of
from scripts.ledger.node_probe import Probe
from scripts.ledger.pod_facts import condition
from scripts.ledger.raw import Object, text
from scripts.ledger.record import Ledger, document
from scripts.ledger.sides import Sides
from scripts.ledger.target import Target, pods_of, target_of
from scripts.ledger.trigger import Cold, Trigger
from scripts.ledger.variants import LEVERS, known_lever
from scripts.ledger.watching import Watcher
from scripts.ledger.wishes import Wishes
from scripts.output_folder import OutputFolder
from scripts.waiting import Patience, in_time

POLL_S = 0.5
"""Between two looks at a pod that is waited for."""
RECORDER_NAMESPACE = "coldstart"
PROBE_IMAGE = "public.ecr.aws/docker/library/python:3.13-slim"
SETTLE_S = 2.0
"""Events of a pod that has just become Ready arrive within this."""


@click.command(help="Measure real starts of STACK by phase, beside the budget, with proof of each lever.")
@click.argument("stack", required=False)
@click.option("--last", type=click.IntRange(1, 1000), help="How many of the newest starts (default 1).")
@click.option("--pod", metavar="[NAMESPACE/]NAME", help="One pod, which may run somebody else's vLLM.")
@click.option("--watch", is_flag=True, help="Measure starts as they happen; --last ends it after that many.")
@click.option("--trigger", is_flag=True, help="Make a start: one more replica, measured, then the size restored.")
@click.option(
    "--cold", type=click.Choice(["node", "image", "pod"]), help="How cold the made start is (with --trigger)."
)
@click.option("--yes", is_flag=True, help="Do not ask before a start costs money or a recorded answer is removed.")
@click.option("--ab", metavar="LEVER", help=f"Compare the same start with a lever off and on: {', '.join(LEVERS)}.")
@click.option("--rehearse", is_flag=True, help="Compare on this machine, with the real engine (with --ab).")
@click.option(
    "--times", type=click.IntRange(1, 50), default=3, show_default=True, help="Starts of each side (with --ab)."
)
@click.option(
    "--from", "source", type=click.Path(path_type=Path), metavar="DIR", help="Measure a saved folder, offline."
)
@click.option(
    "--save",
    "saved",
    type=OutputFolder(),
    metavar="DIR",
    help="Save what was read, without secrets.",
)
@click.option("--aws", is_flag=True, help="Also ask EC2 for the launch and CloudWatch for the bytes through NAT.")
@click.option(
    "--probe-node",
    is_flag=True,
    help="Also read SOCI's settings and the node's disks, with a pod that lives a few seconds.",
)
@click.option("--svg", type=click.Path(dir_okay=False, path_type=Path), help="Write the picture.")
@click.option("--html", type=click.Path(dir_okay=False, path_type=Path), help="Write picture and evidence as a page.")
@click.option("--context", help="Context of the kubeconfig.")
@click.option(
    "--record-answer", is_flag=True, help="Keep this start's answer as the right one: later starts must give it."
)
@click.option(
    "--forget-answer", is_flag=True, help="Remove the recorded answer: later starts need only give a sane one."
)
@click.option(
    "--metrics-docs",
    type=OutputFolder(),
    metavar="DIR",
    help="Write metric table, dashboard and alert rules, and stop.",
)
@click.option("--json", "as_json", is_flag=True, help="One JSON document.")
def command(
    stack: str | None,
    pod: str | None,
    svg: Path | None,
    html: Path | None,
    metrics_docs: Path | None,
    *,
    as_json: bool,
    **options: Any,  # noqa: ANN401 - the rest are the fields of Wishes
) -> None:
    """Measures; exit code 1 when nothing could be measured, or a saved folder not be read."""
    if metrics_docs:
        for path in observability.write(metrics_docs):
            click.echo(str(path), err=True)
        return
    wishes = Wishes(**options)
    wishes.check(pod)
    planned = not (wishes.rehearse or wishes.record_answer or wishes.forget_answer)
    target = target_of(stack, pod, offline=wishes.source is not None, planned=planned)
    if wishes.record_answer or wishes.forget_answer:
        from scripts.ledger import recorded_answer  # noqa: PLC0415 - only these ask S3

        change = recorded_answer.record_answer if wishes.record_answer else recorded_answer.forget_answer
        change(target, wishes, as_json=as_json)
        return
    if wishes.ab:
        _compare(target, wishes, as_json=as_json)
        return
    ledgers: list[Ledger] = []
    unreadable: list[Problem] = []
    for ledger in _ledgers(target, wishes, unreadable):
        ledgers.append(ledger)
        if wishes.watch and not as_json:
            screen.show(ledger, Console())
    _write(svg, html, ledgers)
    if as_json:
        click.echo(
            json.dumps(
                {"format": 1, "ledgers": [document(one) | {"next": next_step(one)} for one in ledgers]}, indent=2
            )
        )
    elif not wishes.watch:
        screen.show_many(ledgers, Console())
    _check(ledgers, unreadable)


def _check(ledgers: Sequence[Ledger], unreadable: Sequence[Problem]) -> None:
    """Fails after everything was shown.

    Raises:
        Failure: a folder could not be read, or nothing could be measured.
    """
    if unreadable:
        raise Failure("not measured: " + "; ".join(str(problem) for problem in unreadable))
    if not any(ledger.measured for ledger in ledgers):
        raise Failure(_nothing(ledgers))


def _nothing(ledgers: Sequence[Ledger]) -> str:
    if not ledgers:
        return "there is no start to measure: no pod of the model, and no ledger that a recorder kept"
    reasons = dict.fromkeys(phase.missing for ledger in ledgers for phase in ledger.phases.values() if phase.missing)
    absences = dict.fromkeys(f"{absence.what}: {absence.why}" for ledger in ledgers for absence in ledger.absences)
    return "no phase could be measured: " + "; ".join([*absences, *reasons])


def _write(svg: Path | None, html: Path | None, ledgers: Sequence[Ledger]) -> None:
    for path, drawn in ((svg, picture.svg), (html, picture.page)):
        if path and ledgers:
            path.write_text(drawn(ledgers), encoding="utf-8")
            click.echo(f"{path} written", err=True)


# ---- where ledgers come from ---------------------------------------------------------------------------------------


def _ledgers(target: Target, wishes: Wishes, unreadable: list[Problem]) -> Iterator[Ledger]:
    if wishes.source:
        for folder in starts_in(wishes.source, unreadable):
            yield ledger_of(load(folder), target.budget)
        return
    with Kubeconfig.of(wishes.context) as api:
        collector = Collector(api, _extras(api, target, wishes))
        if wishes.trigger:
            yield _triggered(api, collector, target, wishes)
        elif wishes.watch:
            yield from _watched(api, collector, target, wishes)
        else:
            yield from _newest(api, collector, target, wishes)


def _extras(api: Api, target: Target, wishes: Wishes) -> list[Callable[[Bundle], Bundle]]:
    extras: list[Callable[[Bundle], Bundle]] = []
    if wishes.probe_node:
        meant = ""
        if target.plan is not None:
            meant = "nvme" if target.plan.scenario.disk.kind == "nvme" else "ebs"
        extras.append(Probe(api=api, image=PROBE_IMAGE, meant=meant, wait=_wait).read)
    if wishes.aws:
        if target.stack is None:
            raise BadInput([Problem("--aws", "no stack says which account and region", "Name the model stack.")])
        extras += _amazon(target.stack)
    return extras


def _amazon(stack: Stack) -> list[Callable[[Bundle], Bundle]]:
    import boto3  # noqa: PLC0415 - only --aws waits for it

    from scripts.ledger.amazon import Amazon  # noqa: PLC0415 - as above

    session = boto3.Session(region_name=stack.environment.region)
    amazon = Amazon(session.client("ec2"), session.client("cloudwatch"), stack.environment_name)
    return [amazon.launched, amazon.traffic]


def _newest(api: Api, collector: Collector, target: Target, wishes: Wishes) -> Iterator[Ledger]:
    """The pods that are there, and behind them what a recorder has kept of those that are gone."""
    pods = pods_of(collector, target)
    count, seen = wishes.last or 1, set[str]()
    for pod in pods[:count]:
        seen.add(text(pod, "metadata.uid"))
        yield _measured(collector.start(pod), target, wishes)
    if target.pod or len(seen) == count:
        return
    kept = [ledger for ledger in kept_ledgers(api, RECORDER_NAMESPACE, target.model, say) if ledger.uid not in seen]
    yield from kept[: count - len(seen)]


def _measured(bundle: Bundle, target: Target, wishes: Wishes) -> Ledger:
    if wishes.saved:
        name = text(bundle.pod, "metadata.name") or "start"
        written = save(bundle, wishes.saved / name)
        click.echo(f"{len(written)} files in {wishes.saved / name}", err=True)
    return ledger_of(bundle, target.budget)


def _watched(api: Api, collector: Collector, target: Target, wishes: Wishes) -> Iterator[Ledger]:
    """Starts as they happen; a pod that goes before it is Ready is measured with what was seen of it."""
    watcher = Watcher(
        api=api,
        path=f"/api/v1/namespaces/{target.namespace}/pods",
        query={"labelSelector": target.selector} if target.model else {"fieldSelector": f"metadata.name={target.pod}"},
        stopping=threading.Event(),
        said=say,
    )
    over: set[str] = set()
    found, listed = 0, False
    for change in watcher.changes():
        if change.kind == "listed":
            listed = True
            click.echo(f"watching {target.namespace}", err=True)
            continue
        uid, pod = text(change.object, "metadata.uid"), change.object
        ended = text(condition(pod, "Ready"), "status") == "True" or change.kind == "deleted"
        if uid in over or not ended or "spec" not in pod:
            continue
        over.add(uid)
        if listed:
            time.sleep(SETTLE_S)
            yield _measured(collector.start(pod), target, wishes)
            found += 1
            if wishes.last and found >= wishes.last:
                return


# ---- starts made on purpose ----------------------------------------------------------------------------------------


def _wait(condition_met: Callable[[], bool], patience_s: float) -> bool:
    return in_time(condition_met, Patience(limit_s=patience_s, every_s=POLL_S))


def _agreed(target: Target, wishes: Wishes, starts: int) -> None:
    """Shows what it costs, and asks.

    Raises:
        BadInput: nobody can be asked.
        Abort: the person said no.
    """
    plan = target.plan
    if plan is None:
        raise BadInput([Problem("STACK", "only a model stack can be started", "Name one.")])
    each = plan.cost.usd_per_start
    total = None if each is None else each * starts
    what = (
        f"{starts} start(s) of {target.model} on {plan.scenario.instance.name}, "
        f"each {seconds(plan.budget.total.expected_s)}: "
        f"about {dollars(total)}; a node that stays costs {dollars(plan.cost.usd_per_hour)} per hour"
    )
    agree(what, "a start costs money", yes=wishes.yes)


def _triggered(api: Api, collector: Collector, target: Target, wishes: Wishes) -> Ledger:
    _agreed(target, wishes, 1)
    trigger = Trigger(
        api=api, namespace=target.namespace, deployment=target.model, model=target.model, wait=_wait, say=say
    )
    with trigger.start(cast("Cold | None", wishes.cold), target.patience_s) as pod:
        time.sleep(SETTLE_S)
        return _measured(collector.start(pod), target, wishes)


def _compare(target: Target, wishes: Wishes, *, as_json: bool) -> None:
    lever = known_lever(wishes.ab or "")
    found = _rehearsed(target, wishes, lever) if wishes.rehearse else _in_cluster(target, wishes, lever)
    compared = comparison.compare(found)
    if as_json:
        click.echo(json.dumps(comparison.document(lever, found), indent=2))
    else:
        screen.show_comparison(lever, compared, Console())
    if not compared:
        raise Failure(_nothing([*found["off"], *found["on"]]))


def _rehearsed(target: Target, wishes: Wishes, lever: str) -> Mapping[Side, Sequence[Ledger]]:
    """Both sides on this machine: no cluster, no cost."""
    from scripts.ledger.rehearsed import rehearsal  # noqa: PLC0415 - only --rehearse needs the engine

    if target.stack is None:
        raise BadInput([Problem("STACK", "only a model stack can be rehearsed", "Name one.")])
    say(f"rehearsing {target.stack.name}: one start to fill the caches, then {2 * wishes.times} to compare")
    done = 0
    with rehearsal(target.stack, lever) as rehearsed:

        def run(side: Side) -> Ledger:
            nonlocal done
            done += 1
            bundle = rehearsed.run(side, done)
            ledger = ledger_of(bundle)
            if wishes.saved:
                save(bundle, wishes.saved / f"{done:02d}-{side}")
            say(f"{done}: {lever} {side}, {seconds(ledger.wall_clock_s)}, unaccounted {ledger.unaccounted_s:.2f} s")
            return ledger

        return comparison.interleaved(run, wishes.times)


def _in_cluster(target: Target, wishes: Wishes, lever: str) -> Mapping[Side, Sequence[Ledger]]:
    _agreed(target, wishes, 2 * wishes.times)
    with Kubeconfig.of(wishes.context) as api:
        collector = Collector(api, _extras(api, target, wishes))
        sides = Sides(
            api=api,
            namespace=target.namespace,
            deployment=target.model,
            lever=lever,
            patience_s=target.patience_s,
            wait=_wait,
            say=say,
        )

        def start(pod: Object) -> Bundle:
            time.sleep(SETTLE_S)
            return collector.start(pod)

        def run(side: Side) -> Ledger:
            return _measured(sides.run(side, start), target, wishes)

        return comparison.interleaved(run, wishes.times)
