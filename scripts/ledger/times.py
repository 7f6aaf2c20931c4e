"""Times and durations as Kubernetes, Go and container runtimes write them."""

from __future__ import annotations

import math
import re
from datetime import UTC, datetime

_STAMP = re.compile(
    r"^(?P<head>\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(?:[.,](?P<fraction>\d{1,9}))?(?P<zone>Z|[+-]\d\d:?\d\d)?$"
)
_GO_PART = re.compile(r"(\d+(?:\.\d+)?)(ns|us|µs|μs|ms|s|m|h)")
_GO_UNITS_S = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "μs": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}
SECOND = 1.0
"""Resolution of Kubernetes' timestamps."""
EARLIEST_S, LATEST_S = 0.0, 7_258_118_400.0
"""1970 and 2200: Go writes the year 1 for a time that was never set, and nothing was measured after these."""
LONGEST_START_S = 30 * 86_400.0
"""No start takes longer than a month: a longer stretch is a wrong figure."""


def plausible(at_s: float) -> bool:
    """Whether a start can have been then."""
    return EARLIEST_S <= at_s < LATEST_S


def stamp(text: str) -> tuple[float, float]:
    """An RFC 3339 time as Unix seconds, and its resolution in seconds.

    Raises:
        ValueError: it is none, or no start can have been then.
    """
    found = _STAMP.match(text.strip())
    if not found:
        raise ValueError(f"{text!r} is not a time like 2026-11-30T12:00:00Z")
    moment = datetime.fromisoformat(found["head"] + (found["zone"] or "Z").replace("Z", "+00:00"))
    fraction = found["fraction"] or ""
    seconds = moment.timestamp() + (int(fraction) / 10 ** len(fraction) if fraction else 0.0)
    if not plausible(seconds):
        raise ValueError(f"{text!r} is not the time of a start: it lies outside the years 1970 to 2200")
    return seconds, 10.0 ** -len(fraction) if fraction else SECOND


def shown(at_s: float) -> str:
    """Unix seconds as RFC 3339 with milliseconds; a time outside the years 1970 to 2200 is said to be unknown."""
    if not plausible(at_s):
        return "unknown time"
    return datetime.fromtimestamp(at_s, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def go_duration_s(text: str) -> float | None:
    """A duration as Go prints it (`1m52.33s`, `812.4ms`), in seconds; None when it is none."""
    parts = _GO_PART.findall(text)
    if not parts or "".join(number + unit for number, unit in parts) != text:
        return None
    seconds = sum(float(number) * _GO_UNITS_S[unit] for number, unit in parts)
    return seconds if math.isfinite(seconds) else None
