"""`coldstart regress`: fails when a phase has become slower than its baseline by more than noise; for a pipeline."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

import click
from rich.console import Console

from budget.counted import counted
from scripts.failure import Failure
from scripts.ledger import screen
from scripts.ledger.baseline import baseline_of, read, regressions, same_model, write
from scripts.ledger.collect import Collector
from scripts.ledger.folder import load, starts_in
from scripts.ledger.kubeconfig import Kubeconfig
from scripts.ledger.merge import ledger_of
from scripts.ledger.record import Ledger
from scripts.ledger.target import Target, pods_of, target_of


@click.command(
    help="Compare phases of the newest starts of STACK with a baseline; exit 1 if one is slower by more than noise."
)
@click.argument("stack", required=False)
@click.option(
    "--baseline", type=click.Path(dir_okay=False, path_type=Path), required=True, help="File of the baseline."
)
@click.option("--write", "writes", is_flag=True, help="Write the baseline from these starts instead of comparing.")
@click.option(
    "--last", type=click.IntRange(1, 1000), default=5, show_default=True, help="How many of the newest starts."
)
@click.option(
    "--from", "source", type=click.Path(path_type=Path), metavar="DIR", help="Saved starts instead of a cluster's."
)
@click.option("--context", help="Context of the kubeconfig.")
@click.option("--json", "as_json", is_flag=True, help="One JSON document.")
def command(
    stack: str | None,
    baseline: Path,
    last: int,
    source: Path | None,
    context: str | None,
    *,
    writes: bool,
    as_json: bool,
) -> None:
    """Compares."""
    before = None if writes else read(baseline)
    target = target_of(stack, None, offline=source is not None)
    ledgers = _ledgers(target, source, context, last)
    ready = [ledger for ledger in ledgers if ledger.state == "ready" and ledger.measured]
    if not ready:
        raise Failure(f"none of {counted(len(ledgers), 'start')} is Ready and measured: there is nothing to compare")
    same_model(baseline, before, ready)
    if before is None:
        write(baseline_of(ready[0].model, ready), baseline)
        click.echo(f"{baseline} written from {counted(len(ready), 'start')}", err=True)
        return
    found = regressions(before, ready)
    slower = [entry.phase for entry in found if entry.slower]
    if as_json:
        click.echo(
            json.dumps(
                {"format": 1, "starts": len(ready), "slower": slower, "phases": [asdict(entry) for entry in found]},
                indent=2,
            )
        )
    else:
        screen.show_regressions(found, Console())
    unseen = sorted(set(before.phases) - {entry.phase for entry in found})
    if unseen:
        click.echo(f"not compared, since no start shows them: {', '.join(unseen)}", err=True)
    if not found:
        raise Failure("no phase of the baseline was seen: there is nothing to compare")
    if slower:
        raise Failure(f"slower than {baseline}: {', '.join(slower)}")


def _ledgers(target: Target, source: Path | None, context: str | None, last: int) -> list[Ledger]:
    if source:
        return [ledger_of(load(folder), target.budget) for folder in starts_in(source)]
    with Kubeconfig.of(context) as api:
        collector = Collector(api)
        return [ledger_of(collector.start(pod), target.budget) for pod in pods_of(collector, target)[:last]]
