"""A snapshot, before and after it is made, for machines and for people."""

from __future__ import annotations

from typing import Any

from scripts.figures import size
from scripts.images.snapshot import Bake, settings_of


def bake_document(bake: Bake, snapshot: str | None) -> dict[str, Any]:
    """What `--json` prints; `snapshot` is null in a dry run."""
    hydration = bake.hydration
    return {
        "stack": bake.stack.name,
        "image": bake.image,
        "snapshot": snapshot,
        "snapshot_bytes": bake.snapshot_bytes,
        "baker": bake.baker.name,
        "machine_image": bake.parameter,
        "hydration": {
            "rate_mib_s": hydration.rate_mib_s,
            "seconds": hydration.seconds,
            "usd_per_node": hydration.usd_per_node,
            "usd_per_month": hydration.usd_per_month,
        },
        "pull_s": bake.pull_s,
        "pull_then_s": bake.pull_then_s,
        "settings": None if snapshot is None else settings_of(bake, snapshot),
    }


def bake_lines(bake: Bake, snapshot: str | None) -> list[str]:
    """What a person reads."""
    hydration = bake.hydration
    lines = [
        f"image       {bake.image}",
        f"snapshot    {snapshot or 'not made yet'}, about {size(bake.snapshot_bytes)}",
        f"always      ${hydration.usd_per_month:,.2f} a month, whether or not a node starts",
        f"hydration   {hydration.words}",
        f"pull        {bake.pull_s:.0f} s without it, {bake.pull_then_s:.0f} s left with it when a node is Ready",
        f"baked on    {bake.baker.name}, {bake.parameter.rsplit('/', 2)[1]}, SOCI on",
    ]
    if snapshot is None:
        lines.append("Nothing was made: --yes makes it.")
        return lines
    lines += [f"Nodes start from it with, in the stack file of {bake.stack.name}:"]
    return [*lines, *(f"  {key}: {value}" for key, value in settings_of(bake, snapshot).items())]
