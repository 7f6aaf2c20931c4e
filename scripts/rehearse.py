"""`coldstart rehearse`: the whole chain on this machine, with the real engine: no AWS, no GPU, no cluster."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from statistics import median
from typing import Any

import click
from rich.console import Console
from rich.table import Table

from budget.problems import bad_input
from infra.specs import model_specs
from infra.stack_file import read
from scripts.failure import Failure
from scripts.output_folder import OutputFolder
from scripts.rehearsal.engine_env import FOLDER, engine_env
from scripts.rehearsal.faults import FAULTS, Fault
from scripts.rehearsal.local_pod import Change
from scripts.rehearsal.picture import svg
from scripts.rehearsal.site import open_site
from scripts.rehearsal.starts import Start, cold_and_warm
from serving.launcher.config import IN_POD
from serving.manifests import objects

DEFAULT_STACK = "dev-llama-3-1-8b"
"""A production profile: it compiles, so that the compile cache has something to keep."""
SHOWN_WORDS = 60
"""Characters of the engine's own line that fit behind a sentence on one line of a terminal."""


@click.command(short_help="The whole chain here, with the real engine")
@click.argument("stack", default=DEFAULT_STACK)
@click.option("--kill", is_flag=True, help="Repeat it with faults: killed, refused, damaged, wrong.")
@click.option(
    "--env",
    "env_folder",
    type=click.Path(path_type=Path),
    default=FOLDER,
    show_default=True,
    help="Made by `make rehearse-env`.",
)
@click.option(
    "-o",
    "--out",
    type=OutputFolder(),
    default=Path("out/rehearsal"),
    show_default=True,
    help="Picture, ledgers and logs.",
)
@click.option("--json", "as_json", is_flag=True, help="One JSON document on standard output.")
def command(stack: str, *, kill: bool, env_folder: Path, out: Path, as_json: bool) -> None:
    """Runs the pod of a model STACK on this machine, twice, and shows where its start went.

    An S3 server, a tiny model staged in the place of the stack's own, the rendered launcher and engine command on
    vLLM's CPU build: load, warm up, serve, stop. The second start shows what the compile cache is worth. Seconds are
    this machine's, not a GPU node's: what is proven is the chain, not the budget.
    """
    screen = Console(stderr=True)
    read_ = read(stack)
    if read_.model is None:
        raise bad_input("STACK", f"{stack} is an environment", "Name a model stack.")
    rendered = objects(model_specs(read_, read_.model).serving)
    env = engine_env(env_folder)
    out.mkdir(parents=True, exist_ok=True)
    with ExitStack() as held:
        folder = Path(held.enter_context(tempfile.TemporaryDirectory(prefix="coldstart-rehearsal-")))
        screen.print("S3 server, tiny model, staging ...")
        site = held.enter_context(open_site(env, folder, rendered))
        screen.print(f"staged {site.staged.model} ({site.staged.manifest.total_bytes / 1e6:.1f} MB); two starts ...")
        changes = site.pod().changes
        starts = cold_and_warm(site)
        faults = [_told(screen, fault(site, starts[0].ledger)) for fault in FAULTS] if kill else []
        _write(out, folder, starts)
    if as_json:
        click.echo(json.dumps(_document(stack, changes, starts, faults), indent=2))
    else:
        _show(Console(), changes, starts, out)
    if broken := [fault.name for fault in faults if not fault.held]:
        raise Failure(f"did not hold: {', '.join(broken)}")


def _told(screen: Console, fault: Fault) -> Fault:
    screen.print(f"{'held' if fault.held else 'BROKEN'}: {fault.name}: {fault.must} ({fault.seen})", highlight=False)
    return fault


def _write(out: Path, folder: Path, starts: Sequence[Start]) -> None:
    for start in starts:
        (out / f"{start.name}.ledger.json").write_text(json.dumps(start.ledger, indent=2) + "\n", encoding="utf-8")
        (out / f"{start.name}.log").write_bytes((folder / start.name / "container.log").read_bytes())
    (out / "starts.svg").write_text(svg([(f"{start.name} start", start.ledger) for start in starts]), encoding="utf-8")


def _document(
    stack: str, changes: Sequence[Change], starts: Sequence[Start], faults: Sequence[Fault]
) -> Mapping[str, Any]:
    return {
        "stack": stack,
        "changes": [{"what": change.what, "why": change.why} for change in changes],
        "starts": [start.document() for start in starts],
        "faults": [{"name": f.name, "must": f.must, "held": f.held, "seen": f.seen} for f in faults],
    }


def _show(console: Console, changes: Sequence[Change], starts: Sequence[Start], out: Path) -> None:
    table = Table(title="What differs from the pod in a cluster", title_justify="left", box=None, pad_edge=False)
    table.add_column("what", overflow="fold")
    table.add_column("why", overflow="fold")
    for change in changes:
        table.add_row(change.what, change.why)
    console.print(table)
    console.print(_phases(starts))
    for start in starts:
        for line in _words(start):
            console.print(line, highlight=False)
    console.print(f"Picture, ledgers and logs: {out}", highlight=False)


def _words(start: Start) -> Sequence[str]:
    """What the table can't show: the compile cache, and what users waited."""
    cache, latencies = start.ledger["compile_cache"], start.answers["latencies_s"]
    first_ms, then_ms = latencies[0] * 1e3, median(latencies[1:]) * 1e3
    unwarmed_ms = start.ledger["warmup"]["first_s"] * 1e3
    return (
        f"{start.name}: compile cache {cache['restore']}, hit: {cache['hit']} ({_said_of_it(cache['evidence'])})",
        f"{start.name}: before the warm-up the first request of all took {unwarmed_ms:.0f} ms",
        f"{start.name}: the first user's request took {first_ms:.0f} ms, the next ones {then_ms:.0f} ms (median)",
        f"{start.name}: exit code {start.exit_code} after SIGTERM",
    )


def _said_of_it(evidence: str) -> str:
    """The engine's line without what every line of its log begins with."""
    words = evidence.rpartition("] ")[2]
    return words if len(words) <= SHOWN_WORDS else f"{words[:SHOWN_WORDS]}..."


def _phases(starts: Sequence[Start]) -> Table:
    """Ledger beside budget."""
    table = Table(title="Seconds", title_justify="left", box=None, pad_edge=False)
    table.add_column("phase")
    instance = starts[0].ledger["labels"]["instance"]
    table.add_column(f"budget on {instance}", justify="right")
    for start in starts:
        table.add_column(start.name, justify="right")
    for phase in IN_POD:
        budget = starts[0].ledger["budget"].get(phase)
        table.add_row(phase, _said(budget), *(_seconds(start.ledger["phases_s"][phase]) for start in starts))
    table.add_row("not told apart", "", *(_seconds(start.ledger["unattributed_s"]) for start in starts))
    table.add_row("total", "", *(_seconds(start.ledger["total_s"]) for start in starts))
    return table


def _said(budget: Mapping[str, float] | None) -> str:
    return "-" if budget is None else f"{budget['expected_s']:.1f} ({budget['low_s']:.1f} to {budget['high_s']:.1f})"


def _seconds(value: float | None) -> str:
    return "missing" if value is None else f"{value:.1f}"
