"""A picture of real starts: every stretch of each, one above the other, on one time axis."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from html import escape
from typing import Any

from scripts.waterfall import COLOURS, FONT
from serving.launcher.config import IN_POD

WIDTH, LEFT, RIGHT = 960, 150, 24
ROW, BAR, HEAD, AXIS = 34, 18, 46, 34
UNKNOWN = "#9aa3ad"
"""Of a stretch that no line told apart."""


def svg(starts: Sequence[tuple[str, Mapping[str, Any]]]) -> str:
    """The picture as a stand-alone SVG document.

    Args:
        starts: title and ledger (as the launcher's /ledger gives it) of each start.
    """
    longest_s = max(float(ledger["total_s"]) for _, ledger in starts)
    heights = [HEAD + ROW * len(_rows(ledger)) + 10 for _, ledger in starts]
    height = sum(heights) + AXIS
    title = " against ".join(f"{name}: {ledger['total_s']:.1f} s" for name, ledger in starts)
    size = f"viewBox='0 0 {WIDTH} {height}' width='{WIDTH}' height='{height}'"
    parts = [
        f"<svg xmlns='http://www.w3.org/2000/svg' {size} role='img' {FONT}>",
        f"<title>{escape(title)}</title>",
        f"<rect width='{WIDTH}' height='{height}' fill='#ffffff'/>",
    ]
    top = 0.0
    for (name, ledger), panel in zip(starts, heights, strict=True):
        parts.extend(_panel(name, ledger, top, longest_s))
        top += panel
    parts.extend(_axis(top, longest_s))
    parts.append("</svg>")
    return "\n".join(parts) + "\n"


def _rows(ledger: Mapping[str, Any]) -> list[tuple[str, list[Mapping[str, Any]]]]:
    """Phase → its stretches, in the order of the phases; what no line told apart stands where its first phase would."""
    rows: dict[tuple[str, ...], list[Mapping[str, Any]]] = {}
    for segment in ledger["segments"]:
        if segment["end_s"] > segment["begin_s"]:
            rows.setdefault(tuple(segment["phases"]), []).append(segment)
    ordered = sorted(rows.items(), key=lambda row: (IN_POD.index(row[0][0]), len(row[0])))
    return [(" + ".join(phases), segments) for phases, segments in ordered]


def _panel(name: str, ledger: Mapping[str, Any], top: float, longest_s: float) -> Iterator[str]:
    cache = ledger["compile_cache"]
    hit = {True: "hit", False: "miss", None: "not seen"}[cache["hit"]]
    yield _text(16, top + 24, f"{name}: {ledger['total_s']:.1f} s", size=17, weight=600)
    yield _text(16, top + 40, f"weights by {ledger['weights']['kind']}, compile cache {hit}", size=12, colour="#55606e")
    for index, (phases, segments) in enumerate(_rows(ledger)):
        y = top + HEAD + ROW * index
        seconds = sum(segment["end_s"] - segment["begin_s"] for segment in segments)
        yield _text(16, y + BAR - 4, phases, size=13)
        for segment in segments:
            x, end = _x(segment["begin_s"], longest_s), _x(segment["end_s"], longest_s)
            colour = COLOURS.get(phases, UNKNOWN)
            yield (
                f"<rect x='{x:.1f}' y='{y:.1f}' width='{max(1.0, end - x):.1f}' height='{BAR}' rx='2' fill='{colour}'>"
                f"<title>{escape(segment['detail'])}: {segment['end_s'] - segment['begin_s']:.2f} s</title></rect>"
            )
        end = _x(segments[-1]["end_s"], longest_s)
        begin = _x(segments[-1]["begin_s"], longest_s)
        if end > WIDTH - RIGHT - 70:  # no room behind the bar: its seconds stand before it
            yield _text(begin - 6, y + BAR - 4, f"{seconds:.1f} s", size=12, anchor="end")
        else:
            yield _text(end + 6, y + BAR - 4, f"{seconds:.1f} s", size=12)


def _axis(top: float, longest_s: float) -> Iterator[str]:
    step = _step(longest_s)
    yield f"<line x1='{LEFT}' y1='{top:.1f}' x2='{WIDTH - RIGHT}' y2='{top:.1f}' stroke='#c8cdd3'/>"
    for index in range(int(longest_s / step) + 1):
        x = _x(index * step, longest_s)
        yield f"<line x1='{x:.1f}' y1='{top:.1f}' x2='{x:.1f}' y2='{top + 5:.1f}' stroke='#c8cdd3'/>"
        yield _text(x, top + 20, f"{index * step:g} s", size=11, colour="#55606e", anchor="middle")


def _step(longest_s: float) -> float:
    """A round distance that gives between four and ten marks."""
    power = 10.0 ** math.floor(math.log10(max(longest_s, 0.1) / 4))
    return max(power * factor for factor in (1, 2, 2.5, 5) if power * factor <= longest_s / 4)


def _x(at_s: float, longest_s: float) -> float:
    return LEFT + at_s / longest_s * (WIDTH - LEFT - RIGHT)


def _text(
    x: float, y: float, text: str, *, size: int, colour: str = "#1c2733", weight: int = 400, anchor: str = "start"
) -> str:
    return (
        f"<text x='{x:.1f}' y='{y:.1f}' font-size='{size}' font-weight='{weight}' fill='{colour}' "
        f"text-anchor='{anchor}'>{escape(text)}</text>"
    )
