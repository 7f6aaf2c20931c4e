"""Times and durations as Kubernetes, Go and container runtimes write them."""

from __future__ import annotations

import re
from datetime import UTC, datetime

_STAMP = re.compile(
    r"^(?P<head>\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(?:[.,](?P<fraction>\d{1,9}))?(?P<zone>Z|[+-]\d\d:?\d\d)?$"
)
_GO_PART = re.compile(r"(\d+(?:\.\d+)?)(ns|us|µs|μs|ms|s|m|h)")
_GO_UNITS_S = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "μs": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}
SECOND = 1.0
"""Resolution of Kubernetes' timestamps."""


def stamp(text: str) -> tuple[float, float]:
    """An RFC 3339 time as Unix seconds, and its resolution in seconds.

    Raises:
        ValueError: it is none.
    """
    found = _STAMP.match(text.strip())
    if not found:
        raise ValueError(f"{text!r} is no time like 2026-11-30T12:00:00Z")
    moment = datetime.fromisoformat(found["head"] + (found["zone"] or "Z").replace("Z", "+00:00"))
    fraction = found["fraction"] or ""
    seconds = moment.timestamp() + (int(fraction) / 10 ** len(fraction) if fraction else 0.0)
    return seconds, 10.0 ** -len(fraction) if fraction else SECOND


def shown(at_s: float) -> str:
    """Unix seconds as RFC 3339 with milliseconds."""
    return datetime.fromtimestamp(at_s, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def go_duration_s(text: str) -> float | None:
    """A duration as Go prints it (`1m52.33s`, `812.4ms`), in seconds; None when it is none."""
    parts = _GO_PART.findall(text)
    if not parts or "".join(number + unit for number, unit in parts) != text:
        return None
    return sum(float(number) * _GO_UNITS_S[unit] for number, unit in parts)
