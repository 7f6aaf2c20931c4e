"""Seconds, dollars and bytes as a person reads them."""

from __future__ import annotations

HOUR_S = 3_600
KILO = 1_000


def seconds(value: float) -> str:
    """Seconds as a person reads them: `4.2 s`, `58 s`, `5 min 12 s`, `2 h 27 min`."""
    if value < 9.95:  # noqa: PLR2004 - below ten a tenth matters
        return f"{value:.1f} s"
    whole = round(value)
    if whole < 120:  # noqa: PLR2004 - up to two minutes seconds are easier
        return f"{whole} s"
    if whole < HOUR_S:
        return f"{whole // 60} min {whole % 60:02d} s"
    hours, minutes = divmod(round(value / 60), 60)
    return f"{hours:,} h {minutes:02d} min"


def dollars(value: float | None) -> str:
    """US dollars; what has no price is said to have none."""
    return "no list price" if value is None else f"${value:,.3f}"


def size(bytes_: float) -> str:
    """Bytes for a person, three digits, decimal units."""
    for unit in ("B", "kB", "MB", "GB"):
        if abs(bytes_) < KILO:
            return f"{bytes_:.3g} {unit}"
        bytes_ /= KILO
    return f"{bytes_:.3g} TB"
