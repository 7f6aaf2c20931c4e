"""What a repack made, for machines and for people."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from budget.counted import counted
from scripts.figures import size
from scripts.images.prediction import Sizes
from scripts.images.repack import Repacked


def repacked_document(made: Repacked) -> dict[str, Any]:
    """What `--json` prints."""
    return {
        "source": made.source.name,
        "source_digest": made.source.digest,
        "target": made.target,
        "digest": made.digest,
        "codec": made.codec,
        "unchanged": made.unchanged,
        "before": _side(made.before, made.before_pull.expected_s),
        "after": _side(made.after, made.after_pull.expected_s),
        "dropped_files": made.dropped_files,
        "dropped_bytes": made.dropped_bytes,
        "hidden_bytes": made.hidden_bytes,
        "sent_bytes": made.sent_bytes,
    }


def _side(sizes: Sequence[Sizes], pull_s: float) -> dict[str, Any]:
    return {
        "layers": [{"bytes": each.bytes, "unpacked_bytes": each.unpacked_bytes} for each in sizes],
        "bytes": sum(each.bytes for each in sizes),
        "unpacked_bytes": sum(each.unpacked_bytes for each in sizes),
        "predicted_pull_s": pull_s,
    }


def repacked_lines(made: Repacked) -> list[str]:
    """What a person reads."""
    lines = [f"{made.target}@{made.digest}"]
    if made.unchanged:
        lines.append("The layers stay as they are: no other cut is predicted to pull faster.")
    for label, sizes, pull in (("before", made.before, made.before_pull), ("after", made.after, made.after_pull)):
        largest = max((each.bytes for each in sizes), default=0.0)
        lines.append(
            f"{label:<7}{size(sum(each.bytes for each in sizes))} in {counted(len(sizes), 'layer')}, "
            f"the largest {size(largest)}; predicted pull {pull.expected_s:.1f} s, bound by {pull.bound_by}"
        )
    if made.hidden_bytes and not made.unchanged:
        lines.append(f"gone   {size(made.hidden_bytes)} that later layers had deleted or replaced")
    if made.dropped_files:
        lines.append(f"dropped {counted(made.dropped_files, 'file')}, {size(made.dropped_bytes)} unpacked")
    lines.append(f"sent   {size(made.sent_bytes)}")
    return lines
