"""A container's log → lines with times, whatever wrote it: a CRI file, `kubectl logs --timestamps`, a bare copy."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime

from scripts.ledger.raw import object_of, parsed
from scripts.ledger.times import stamp

_ANSI = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
_CRI = re.compile(
    r"^(?P<time>\d{4}-\d\d-\d\dT\S+) (?P<stream>stdout|stderr) (?P<tag>[FP])(?: (?P<body>.*))?$", re.DOTALL
)
_KUBECTL = re.compile(r"^(?P<time>\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\S*) (?P<body>.*)$", re.DOTALL)
_DATED = re.compile(
    r"\b(?:DEBUG|INFO|WARNING|ERROR|CRITICAL) (?P<month>\d\d)-(?P<day>\d\d) (?P<clock>\d\d:\d\d:\d\d)\b"
)
"""vLLM's own stamp: no year, no zone, whole seconds."""
ZONE_STEP_S = 900.0
"""Time zones are whole quarters of an hour from UTC."""
_JSON_TIMES = ("timestamp", "time", "asctime", "ts")


@dataclass(frozen=True, slots=True)
class Line:
    """One line.

    Attributes:
        at_s: Unix time; None when nothing dates it.
        resolution_s: of that time.
        text: without colours, prefixes of the runtime, or redrawn progress.
    """

    at_s: float | None
    resolution_s: float
    text: str


def lines(log: str, near_s: float | None = None, year_of_s: float = 0.0) -> list[Line]:
    """The lines of a log, in order.

    A progress bar redraws itself with carriage returns inside one record: its last drawing counts, since the record
    bears the time at which it was completed. Partial records of a long line are joined.

    Args:
        log: the text.
        near_s: Unix time close to the start of the log, which gives vLLM's own dates their year and zone.
        year_of_s: Unix time in about the right year, where nothing better is known; the zone is then taken for UTC.
    """
    dates = _Dates(near_s, year_of_s)
    found: list[Line] = []
    for at_s, resolution_s, body in _records(log):
        for text in _drawn(body):
            message, own = _unwrapped(text)
            when = (at_s, resolution_s) if at_s is not None else own or dates.of(message)
            found.append(Line(at_s=when[0] if when else None, resolution_s=when[1] if when else 1.0, text=message))
    return found


def _records(log: str) -> Iterator[tuple[float | None, float, str]]:
    """Time, resolution and body of every record; lines that the runtime cut are whole again."""
    held: dict[str, list[str]] = {}
    for raw in log.split("\n"):
        line = raw.removesuffix("\r")
        cri = _CRI.match(line)
        plain = None if cri else _KUBECTL.match(line)
        found = cri or plain
        if not found:
            if line:
                yield None, 1.0, line
            continue
        try:
            at_s, resolution_s = stamp(found["time"])
        except ValueError:
            yield None, 1.0, line
            continue
        body = found["body"] or ""
        if cri:
            stream = cri["stream"]
            parts = held.setdefault(stream, [])
            parts.append(body)
            if cri["tag"] == "P":
                continue
            body = "".join(held.pop(stream))
        yield at_s, resolution_s, body
    for rest in held.values():
        yield None, 1.0, "".join(rest)


def _drawn(body: str) -> Iterator[str]:
    """A record's text: the last drawing of a progress bar, and any drawing that says it is complete."""
    pieces = [piece for piece in _ANSI.sub("", body).split("\r") if piece.strip()]
    if pieces:
        yield pieces[-1].rstrip()


def _unwrapped(text: str) -> tuple[str, tuple[float, float] | None]:
    """The message of a line written as JSON, and its own time; other lines as they are."""
    if not text.startswith("{"):
        return text, None
    try:
        fields = object_of(parsed(text))
    except ValueError:
        return text, None
    message = fields.get("message")
    if not isinstance(message, str):
        return text, None
    for key in _JSON_TIMES:
        value = fields.get(key)
        if isinstance(value, str):
            try:
                return message, stamp(value.replace(" ", "T", 1))
            except ValueError:
                continue
    return message, None


class _Dates:
    """Gives vLLM's dates a year and a zone: those that bring the first one next to a known moment."""

    def __init__(self, near_s: float | None, year_of_s: float) -> None:
        self._near_s, self._zone_s = near_s, 0.0
        self._last_s = year_of_s if near_s is None else near_s

    def of(self, text: str) -> tuple[float, float] | None:
        found = _DATED.search(text)
        if not found:
            return None
        year = datetime.fromtimestamp(self._last_s, UTC).year
        choices: list[float] = []
        for candidate in (year - 1, year, year + 1):
            try:
                moment = datetime.fromisoformat(f"{candidate}-{found['month']}-{found['day']}T{found['clock']}+00:00")
            except ValueError:  # 29 February of another year
                continue
            choices.append(moment.timestamp())
        if not choices:
            return None
        last_s = self._last_s
        at_s = min(choices, key=lambda choice: abs(choice + self._zone_s - last_s))
        if self._near_s is not None and last_s == self._near_s:
            self._zone_s = round((last_s - at_s) / ZONE_STEP_S) * ZONE_STEP_S
        self._last_s = at_s + self._zone_s
        return self._last_s, 1.0
