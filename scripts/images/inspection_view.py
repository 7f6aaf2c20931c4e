"""An inspection for machines, for a terminal, and as a page."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

import jinja2
from rich.console import Console
from rich.table import Table
from rich.text import Text

from budget.counted import counted
from budget.estimate import Estimate
from scripts.figures import size
from scripts.images.inspection import Inspection
from scripts.images.prediction import Sizes
from scripts.plain_text import plain

COMMAND_CHARACTERS = 60
FORMAT = 1


def document(found: Inspection) -> dict[str, Any]:
    """What `--json` prints. Bytes and seconds are not rounded."""
    return {
        "format": FORMAT,
        "image": found.image.name,
        "digest": found.image.digest,
        "platform": f"linux/{found.architecture}",
        "instance": found.puller.instance.name,
        "bytes": sum(layer.bytes for layer in found.layers),
        "unpacked_bytes": found.unpacked_bytes,
        "files": found.files,
        "stored_compressed": found.image.stored_compressed,
        "layers": _layers(found),
        "findings": [
            {
                "kind": each.kind,
                "title": each.title,
                "bytes": each.bytes,
                "unpacked_bytes": each.unpacked_bytes,
                "files": each.files,
                "examples": list(each.examples),
                "layers": {str(layer): size for layer, size in sorted(each.layers.items())},
                "remedy": each.remedy,
                "safe": each.safe,
            }
            for each in found.findings
        ],
        "pull": {"soci": _estimate(found.soci), "containerd": _estimate(found.containerd)},
        "binding_layer": found.binding,
        "actions": [
            {"name": each.name, "what": each.what, "saves_s": each.saves_s, "soci_s": each.soci_s}
            for each in found.actions
        ],
    }


def _layers(found: Inspection) -> list[dict[str, Any]]:
    return [
        {
            "digest": layer.digest,
            "diff_id": layer.diff_id,
            "codec": layer.codec,
            "bytes": layer.bytes,
            "unpacked_bytes": layer.unpacked_bytes,
            "entries": len(layer.entries),
            "command": command,
        }
        for layer, command in zip(found.layers, found.image.commands, strict=True)
    ]


def _estimate(estimate: Estimate) -> dict[str, Any]:
    return {
        "low_s": estimate.low_s,
        "expected_s": estimate.expected_s,
        "high_s": estimate.high_s,
        "bound_by": estimate.bound_by,
    }


def _seconds(estimate: Estimate) -> str:
    return f"{estimate.expected_s:.1f} s ({estimate.low_s:.1f} to {estimate.high_s:.1f})"


def show(found: Inspection, console: Console) -> None:
    """Prints layers, findings, predicted pull and what to do first."""
    image = found.image
    console.print(Text(f"{image.name}", style="bold"))
    console.print(
        f"{size(sum(layer.bytes for layer in found.layers))} in {counted(len(found.layers), 'layer')}, unpacked "
        f"{size(found.unpacked_bytes)}, {found.files:,} names, linux/{found.architecture}, {image.digest[:19]}"
    )
    console.print(_layer_table(found))
    if found.findings:
        console.print(_finding_table(found))
    console.print(
        f"Pull on {found.puller.instance.name}, SOCI tuned: {_seconds(found.soci)}, bound by {found.soci.bound_by}"
    )
    console.print(f"Default containerd: {_seconds(found.containerd)}, bound by {found.containerd.bound_by}")
    if not image.stored_compressed:
        console.print("Layers are stored uncompressed here; compressed sizes are assumed.")
    for position, action in enumerate(found.actions):
        lead = "First" if position == 0 else "Then"
        console.print(f"{lead}: {action.what}: {action.soci_s:.1f} s, {action.saves_s:.1f} s less")
    if not found.actions:
        console.print("Nothing to gain from other layers, other compression or less content.")


def _layer_table(found: Inspection) -> Table:
    table = Table(box=None, pad_edge=False)
    for name in ("Layer", "Compressed", "Unpacked"):
        table.add_column(name, justify="right")
    for name in ("Codec", "Made by"):
        table.add_column(name)
    for index, (layer, command) in enumerate(zip(found.layers, found.image.commands, strict=True)):
        table.add_row(
            f"{index}{'*' if index == found.binding else ''}",
            size(layer.bytes),
            size(layer.unpacked_bytes),
            layer.codec,
            Text(plain(_shortened(command))),
        )
    table.caption = "* the layer that a pull waits for"
    table.caption_justify = "left"
    return table


def _shortened(command: str) -> str:
    line = " ".join(command.split()).removeprefix("/bin/sh -c ").removeprefix("#(nop) ")
    return line if len(line) <= COMMAND_CHARACTERS else line[: COMMAND_CHARACTERS - 3] + "..."


def _finding_table(found: Inspection) -> Table:
    table = Table(box=None, pad_edge=False)
    for name in ("Found", "Compressed", "Unpacked", "Files", "Layers", "Remedy, and an example"):
        table.add_column(name, justify="right" if name in ("Compressed", "Unpacked", "Files") else "left")
    for each in found.findings:
        layers = ", ".join(str(layer) for layer in sorted(each.layers))
        example = f"\n{plain(each.examples[0])}" if each.examples else ""
        table.add_row(
            Text(each.title),
            size(each.bytes) if each.bytes else "",
            size(each.unpacked_bytes) if each.unpacked_bytes else "",
            f"{each.files:,}",
            layers,
            Text(f"{each.remedy}{example}"),
        )
    return table


def page(found: Inspection) -> str:
    """The inspection as one HTML file that needs nothing else."""
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent / "templates"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["size"] = size
    return environment.get_template("inspection.html.j2").render(
        found=_plain_document(document(found)), bars=_bars(found.sizes), binding=found.binding
    )


def _plain_document(value: Any) -> Any:  # noqa: ANN401 - any part of a JSON document
    """The same document with every text as it may be shown."""
    match value:
        case str():
            return plain(value)
        case dict():
            members = cast("dict[str, Any]", value)
            return {key: _plain_document(inner) for key, inner in members.items()}
        case list():
            return [_plain_document(inner) for inner in cast("list[Any]", value)]
        case _:
            return value


def _bars(sizes: Sequence[Sizes]) -> list[dict[str, float]]:
    """Each layer's share of the whole, percent: where it begins, how wide it is."""
    total, at, bars = sum(each.bytes for each in sizes) or 1.0, 0.0, list[dict[str, float]]()
    for each in sizes:
        width = 100 * each.bytes / total
        bars.append({"left": round(at, 3), "width": round(width, 3)})
        at += width
    return bars
