"""The smallest IAM policy that the checks of a deployment take."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping

from scripts.checks.finding import Check, Wanted


def minimal_policy(checks: Iterable[Check], wanted: Wanted) -> Mapping[str, object]:
    """One statement for each set of resources, actions sorted: the document is the same every time."""
    by_resources: dict[tuple[str, ...], set[str]] = {}
    for check in checks:
        for permission in check.permissions(wanted):
            by_resources.setdefault(permission.resources, set()).update(permission.actions)
    return {
        "Version": "2012-10-17",
        "Statement": [
            {"Effect": "Allow", "Action": sorted(actions), "Resource": list(resources)}
            for resources, actions in sorted(by_resources.items())
        ],
    }


def policy_text(checks: Iterable[Check], wanted: Wanted) -> str:
    """The same as text, to be pasted."""
    return json.dumps(minimal_policy(checks, wanted), indent=2)
