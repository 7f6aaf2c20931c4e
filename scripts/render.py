"""`coldstart render STACK`: everything a stack would create, and why, without touching a cloud; files with `-o`."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import click
import yaml
from rich.console import Console
from rich.table import Table

from infra.bill import Bill, bill
from infra.offline import Evaluation, Recorded, evaluate
from infra.specs import ModelSpecs, model_specs
from infra.stack_file import STACKS, Stack, names, path_of, read
from nodeconfig.bottlerocket import Reason, reasons, user_data
from scripts.output_folder import OutputFolder
from scripts.plan_words import list_prices
from serving.manifests import objects, startup_seconds


@dataclass(frozen=True, kw_only=True)
class Rendering:
    """A stack as it would be created.

    Attributes:
        files: relative path → text.
        reasons: why each tuned value of the node is what it is; empty for an environment.
    """

    stack: Stack
    specs: ModelSpecs | None
    evaluation: Evaluation
    bill: Bill
    files: Mapping[str, str]
    reasons: Sequence[Reason]


def rendering(name: str, directory: Path = STACKS) -> Rendering:
    """Evaluates a stack offline and renders its files.

    Raises:
        BadInput: the settings are wrong.
    """
    stack = read(name, directory)
    evaluation = evaluate(name, directory=directory)
    specs = model_specs(stack, stack.model) if stack.model else None
    return Rendering(
        stack=stack,
        specs=specs,
        evaluation=evaluation,
        bill=bill(stack, specs),
        files=_files(evaluation, specs),
        reasons=reasons(specs.node) if specs else (),
    )


LIST = ".rendered"
"""Beside a rendering, the paths of its files: the next one takes away those alone that it does not write again."""


def _files(evaluation: Evaluation, specs: ModelSpecs | None) -> Mapping[str, str]:
    files = {"resources.json": json.dumps([_entry(resource) for resource in evaluation.resources], indent=2) + "\n"}
    for resource in evaluation.resources:
        for key in ("policy", "assumeRolePolicy"):
            if document := resource.inputs.get(key):
                kind = resource.type.rpartition(":")[2]
                files[f"iam/{resource.name}.{kind}.json"] = json.dumps(json.loads(document), indent=2) + "\n"
    if specs:
        files["user-data.toml"] = user_data(specs.node)
        for index, manifest in enumerate(objects(specs.serving)):
            files[f"kubernetes/{index:02d}-{manifest['kind'].lower()}.yaml"] = yaml_text(manifest)
    return files


class _Dumper(yaml.SafeDumper):
    """Writes text of several lines as a block, so that the launcher in its ConfigMap can be read."""


def _text(dumper: yaml.SafeDumper, value: str) -> yaml.ScalarNode:
    return dumper.represent_scalar("tag:yaml.org,2002:str", value, style="|" if "\n" in value else None)


_Dumper.add_representer(str, _text)


def yaml_text(manifest: Mapping[str, Any]) -> str:
    """One object as YAML that a person can read."""
    return yaml.dump(dict(manifest), Dumper=_Dumper, sort_keys=False, width=120, allow_unicode=True)


def _entry(resource: Recorded) -> Mapping[str, Any]:
    """A recorded resource as JSON, without the options nobody set; a secret's value is never written."""
    members = asdict(resource)
    members["inputs"] = {
        key: "[secret]" if key in resource.secrets else value for key, value in resource.inputs.items()
    }
    members |= {"secrets": sorted(resource.secrets), "depends_on": sorted(resource.depends_on)}
    return {key: value for key, value in members.items() if value not in ("", (), [], {}, False)}


def write(found: Rendering, directory: Path) -> Sequence[Path]:
    """Writes a rendering's files into `directory`/STACK and returns their paths.

    Files of an earlier rendering that are none of this one go. Whatever else lies there is somebody's, and stays.
    """
    folder = directory / found.stack.name
    folder.mkdir(parents=True, exist_ok=True)
    for stale in _rendered_before(folder) - found.files.keys():
        (folder / stale).unlink(missing_ok=True)
    # Before the files: cut off in between, the next rendering still knows them all.
    (folder / LIST).write_text("".join(f"{path}\n" for path in sorted(found.files)), encoding="utf-8")
    written: list[Path] = []
    for relative, text in sorted(found.files.items()):
        path = folder / relative
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        written.append(path)
    return written


def _rendered_before(folder: Path) -> set[str]:
    """What an earlier rendering listed; a line that leads out of the folder is none of its own."""
    try:
        lines = (folder / LIST).read_text(encoding="utf-8").splitlines()
    except (FileNotFoundError, UnicodeDecodeError):
        return set()
    paths = {line: Path(line) for line in lines if line}
    return {line for line, path in paths.items() if not path.is_absolute() and ".." not in path.parts}


# ---- for a person ---------------------------------------------------------------------------------------------------


@click.command()
@click.argument("stacks", nargs=-1, metavar="STACK...")
@click.option("--all", "everything", is_flag=True, help="Every stack file there is.")
@click.option(
    "-o",
    "--output",
    type=OutputFolder(),
    help="Folder for the files, below STACK/. Those of an earlier render that are no longer rendered go; files that"
    " no render wrote stay.",
)
@click.option("--json", "as_json", is_flag=True, help="One JSON document.")
def command(stacks: tuple[str, ...], everything: bool, output: Path | None, as_json: bool) -> None:  # noqa: FBT001 - click passes flags by name
    """Show everything STACK would create and why, without touching a cloud."""
    chosen = names() if everything else stacks
    if not chosen:
        raise click.UsageError(f"name a stack, or --all. There are: {', '.join(names())}.")
    for name in chosen:
        path_of(name)
    found = [rendering(name) for name in chosen]
    written = [path for one in found for path in write(one, output)] if output else []
    if as_json:
        click.echo(json.dumps([_document(one) for one in found], indent=2))
    else:
        console = Console(soft_wrap=False)
        for one in found:
            _show(one, console)
        if len(found) > 1:
            console.print()
            console.print(_summary(found))
    if output:
        click.echo(f"{len(written)} files in {output}", err=True)


def _summary(found: Sequence[Rendering]) -> Table:
    """One row for each stack: what a start takes, and what an hour costs."""
    table = Table(title="All of it", title_justify="left", box=None, pad_edge=False)
    table.add_column("stack", overflow="fold")
    for head in ("resources", "cold start", "low - high", "USD/h, least - most"):
        table.add_column(head, justify="right", no_wrap=True)
    for one in found:
        start, band = "", ""
        if one.specs is not None:
            phases = one.specs.serving.budget.values()
            start = f"{sum(phase.expected_s for phase in phases):.0f} s"
            band = f"{sum(phase.low_s for phase in phases):.0f} - {one.specs.slowest_start_s:.0f} s"
        count = sum(resource.custom for resource in one.evaluation.resources)
        cost = f"{_dollars(one.bill.least_usd_per_hour)} - {_dollars(one.bill.most_usd_per_hour)}"
        table.add_row(one.stack.name, str(count), start, band, cost)
    return table


def _document(found: Rendering) -> Mapping[str, Any]:
    return {
        "stack": found.stack.name,
        "resources": [{"urn": resource.urn, "type": resource.type} for resource in found.evaluation.resources],
        "warnings": list(found.evaluation.warnings),
        "reasons": [{"key": reason.key, "value": reason.value, "why": reason.why} for reason in found.reasons],
        "usd_per_hour": {"least": found.bill.least_usd_per_hour, "most": found.bill.most_usd_per_hour},
        "files": dict(found.files),
    }


def _show(found: Rendering, console: Console) -> None:
    kind = "model on " + found.stack.environment_name if found.stack.model else "environment"
    console.print()
    console.rule(f"[bold]{found.stack.name}[/] ({kind})", align="left")
    for warning in found.evaluation.warnings:
        console.print(f"[yellow]warning[/] {warning}")
    console.print(_resources(found.evaluation))
    if found.specs:
        console.print(_reasons(found.reasons))
        console.print(_deployment(found.specs))
    console.print(_bill(found.bill))


def _resources(evaluation: Evaluation) -> Table:
    counts = Counter(resource.type for resource in evaluation.resources if resource.custom)
    table = Table(title=f"{sum(counts.values())} resources", title_justify="left", box=None, pad_edge=False)
    table.add_column("type")
    table.add_column("count", justify="right")
    table.add_column("names", overflow="fold")
    for token, count in sorted(counts.items()):
        called = [resource.name for resource in evaluation.resources if resource.type == token]
        table.add_row(
            _short(token), str(count), ", ".join(name.removeprefix(f"{evaluation.stack}-") for name in called)
        )
    return table


def _short(token: str) -> str:
    """`aws:ec2/vpc:Vpc` as `aws ec2 Vpc`."""
    package, module, name = token.split(":")
    return f"{package} {module.partition('/')[0]} {name}"


def _reasons(rows: Sequence[Reason]) -> Table:
    table = Table(title="Node configuration", title_justify="left", box=None, pad_edge=False)
    for column in ("setting", "value", "why"):
        table.add_column(column, overflow="fold")
    for row in rows:
        table.add_row(row.key, row.value, row.why)
    return table


def _deployment(specs: ModelSpecs) -> Table:
    serving, engine, scaling, instance = specs.serving, specs.serving.engine, specs.serving.scaling, specs.node.instance
    fastest_s = sum(phase.low_s for phase in serving.budget.values())
    table = Table(title="Deployment", title_justify="left", box=None, pad_edge=False, show_header=False)
    table.add_column("what")
    table.add_column("value", overflow="fold")
    rows = {
        "image": serving.image,
        "weights": engine.weights_uri + (" (ranks share one read)" if engine.distributed else ""),
        "GPUs": f"{serving.gpus} of {instance.name} ({instance.gpu}), {_several(specs.pods_per_node, 'pod')} a node",
        "host memory": f"{serving.memory_bytes / 2**30:.1f} GiB, request and limit",
        "CPU": f"{serving.cpu_millicores / 1000:.1f} cores requested",
        "cold start": f"{fastest_s:.0f} to {specs.slowest_start_s:.0f} s predicted, node and first compile included",
        "start-up probe": f"{startup_seconds(serving)} s from the container's start before it counts as stuck",
        "replicas": f"{scaling.min_replicas} to {scaling.max_replicas}, on at most {_several(specs.max_nodes, 'node')}",
        "cooldown": f"{scaling.cooldown_s} s, longer than the slowest start",
    }
    for what, value in rows.items():
        table.add_row(what, value)
    return table


def _bill(found: Bill) -> Table:
    table = Table(title=f"Cost per hour, at most ({list_prices()})", title_justify="left", box=None, pad_edge=False)
    table.add_column("item")
    table.add_column("USD/h", justify="right")
    table.add_column("note", overflow="fold")
    for item in found.most:
        table.add_row(item.item, _dollars(item.usd_per_hour), item.note)
    table.add_row("[bold]at most[/]", _dollars(found.most_usd_per_hour), "")
    table.add_row(
        "[bold]at least[/]", _dollars(found.least_usd_per_hour), "with the fewest replicas the settings allow"
    )
    return table


def _dollars(value: float | None) -> str:
    return "unknown" if value is None else f"{value:,.3f}"


def _several(count: int, what: str) -> str:
    return f"{count} {what}{'' if count == 1 else 's'}"
