"""A picture of one or two plans: the phases one after another, each with its low and high, on one time axis."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from html import escape

from budget.estimate import Estimate
from budget.plan import Plan
from scripts.figures import seconds

WIDTH = 960
LEFT, RIGHT = 196, 28
ROW, BAR, PANEL_HEAD, AXIS = 46, 18, 58, 34
STEPS_S = (0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 30, 60, 120, 300, 600, 1200, 1800, 3600, 7200, 14400)
MOST_TICKS = 8
HOUR_S = 3_600
OBJECTIVE_ROOM = 160
COLOURS = {
    "node": "#6b7a90",
    "pull": "#2f6fb0",
    "start": "#8a5fb0",
    "weights": "#1f8a70",
    "engine": "#c77b1e",
    "warmup": "#b0455e",
}
FONT = "font-family='system-ui,-apple-system,Segoe UI,Helvetica,Arial,sans-serif'"


def svg(plans: Sequence[Plan]) -> str:
    """The picture as a stand-alone SVG document."""
    ceiling = _nice(max(_end(plan) for plan in plans))
    height = sum(_panel_height(plan) for plan in plans) + AXIS + 34
    size = f"viewBox='0 0 {WIDTH} {height}' width='{WIDTH}' height='{height}'"
    parts = [
        f"<svg xmlns='http://www.w3.org/2000/svg' {size} role='img' {FONT}>",
        f"<title>{escape(title(plans))}</title>",
        f"<rect width='{WIDTH}' height='{height}' fill='#ffffff'/>",
    ]
    top = 0.0
    for plan in plans:
        parts.extend(_panel(plan, top, ceiling))
        top += _panel_height(plan)
    parts.extend(_axis(top, ceiling))
    parts.extend(_legend(top + AXIS))
    parts.append("</svg>")
    return "\n".join(parts) + "\n"


def title(plans: Sequence[Plan]) -> str:
    """What the picture is of, in one line."""
    return " against ".join(f"{plan.name}: {seconds(plan.budget.total.expected_s)}" for plan in plans)


def _panel_height(plan: Plan) -> float:
    return PANEL_HEAD + ROW * len(plan.budget.phases) + 8


def _end(plan: Plan) -> float:
    """Right edge of what is drawn: the total's high whisker is not, the last bar's is."""
    begin = furthest = 0.0
    for phase in plan.budget.phases.values():
        furthest = max(furthest, begin + phase.high_s)
        begin += phase.expected_s
    return max(furthest, begin, plan.slo_s or 0.0)


def _x(at_s: float, ceiling: float) -> float:
    return LEFT + at_s / ceiling * (WIDTH - LEFT - RIGHT)


def _panel(plan: Plan, top: float, ceiling: float) -> Iterator[str]:
    total = plan.budget.total
    scenario = plan.scenario
    yield _text(16, top + 28, f"{plan.name}: {seconds(total.expected_s)}", size=18, weight=600)
    yield _text(
        16,
        top + 46,
        f"between {seconds(total.low_s)} and {seconds(total.high_s)}, on {scenario.instance.name}"
        + ("" if plan.fits else " - DOES NOT FIT"),
        size=12,
        colour="#55606e" if plan.fits else "#b00020",
    )
    if plan.slo_s is not None:
        yield from _objective(plan.slo_s, top, _panel_height(plan), ceiling)
    begin = 0.0
    for index, (name, phase) in enumerate(plan.budget.phases.items()):
        yield from _row(name, phase, begin, top + PANEL_HEAD + index * ROW, ceiling)
        begin += phase.expected_s


def _row(name: str, phase: Estimate, begin: float, top: float, ceiling: float) -> Iterator[str]:
    middle = top + BAR / 2 + 4
    yield _text(16, middle + 5, name, size=14, weight=600, colour=COLOURS[name])
    value = seconds(phase.expected_s) if phase.expected_s else "none"
    yield _text(LEFT - 14, middle + 5, value, size=14, anchor="end")
    if not phase.expected_s:
        return
    left, right = _x(begin, ceiling), _x(begin + phase.expected_s, ceiling)
    width = max(1.5, right - left)
    yield (
        f"<rect x='{left:.1f}' y='{top + 4:.1f}' width='{width:.1f}' height='{BAR}' rx='2' fill='{COLOURS[name]}'>"
        f"<title>{escape(_spoken(name, phase))}</title></rect>"
    )
    low, high = _x(begin + phase.low_s, ceiling), _x(begin + phase.high_s, ceiling)
    yield from _whisker(low, high, middle)
    yield _words(f"{seconds(phase.low_s)} to {seconds(phase.high_s)}: {phase.bound_by}", top + BAR + 19, left)


def _words(words: str, baseline: float, left: float) -> str:
    """The band and what binds, under the bar; right-aligned when the bar begins far right."""
    estimated = 6.1 * len(words)
    if left + estimated <= WIDTH - RIGHT:
        return _text(left, baseline, words, size=11.5, colour="#55606e")
    return _text(WIDTH - RIGHT, baseline, words, size=11.5, colour="#55606e", anchor="end")


def _whisker(low: float, high: float, middle: float) -> Iterator[str]:
    yield _line(low, middle, high, middle, "#1c2530", 1.2)
    for end in (low, high):
        yield _line(end, middle - 5, end, middle + 5, "#1c2530", 1.2)


def _line(x1: float, y1: float, x2: float, y2: float, colour: str, width: float, extra: str = "") -> str:
    ends = f"x1='{x1:.1f}' y1='{y1:.1f}' x2='{x2:.1f}' y2='{y2:.1f}'"
    return f"<line {ends} stroke='{colour}' stroke-width='{width}'{extra}/>"


def _objective(slo_s: float, top: float, height: float, ceiling: float) -> Iterator[str]:
    at = _x(slo_s, ceiling)
    yield _line(at, top + PANEL_HEAD - 16, at, top + height, "#b00020", 1.5, " stroke-dasharray='5 4'")
    anchor, shift = ("start", 5) if at < WIDTH - OBJECTIVE_ROOM else ("end", -5)
    words = f"objective {seconds(slo_s)}"
    yield _text(at + shift, top + PANEL_HEAD - 6, words, size=11.5, colour="#b00020", anchor=anchor)


def _axis(top: float, ceiling: float) -> Iterator[str]:
    yield _line(LEFT, top, WIDTH - RIGHT, top, "#9aa5b1", 1)
    step = _step(ceiling)
    for tick in range(round(ceiling / step) + 1):
        at = _x(tick * step, ceiling)
        yield _line(at, PANEL_HEAD - 6, at, top + 5, "#9aa5b1", 1, " stroke-opacity='0.25'")
        yield _text(at, top + 19, tick_words(tick * step), size=11.5, colour="#55606e", anchor="middle")


def tick_words(at_s: float) -> str:
    """A tick's label: `0`, `30 s`, `5 min`, `2 h`."""
    if not at_s:
        return "0"
    minutes, rest = divmod(round(at_s), 60)
    if not minutes or at_s < 1:
        return f"{at_s:g} s"
    if at_s >= HOUR_S:
        return f"{minutes // 60} h" if not minutes % 60 else f"{minutes // 60}:{minutes % 60:02d} h"
    return f"{minutes} min" if not rest else f"{minutes}:{rest:02d} min"


def _legend(top: float) -> Iterator[str]:
    yield _text(
        LEFT,
        top + 14,
        "Phases follow each other from the request for one more replica to its first answer. Bar: expected."
        " Whisker: low to high.",
        size=11.5,
        colour="#55606e",
    )


def _text(
    x: float, y: float, words: str, *, size: float, colour: str = "#1c2530", anchor: str = "start", weight: int = 400
) -> str:
    return (
        f"<text x='{x:.1f}' y='{y:.1f}' font-size='{size}' fill='{colour}' text-anchor='{anchor}'"
        f" font-weight='{weight}'"
        " stroke='#ffffff' stroke-width='3' paint-order='stroke' stroke-linejoin='round'>"
        f"{escape(words)}</text>"
    )


def _spoken(name: str, phase: Estimate) -> str:
    band = f"between {seconds(phase.low_s)} and {seconds(phase.high_s)}"
    return f"{name}: {seconds(phase.expected_s)}, {band}, {phase.bound_by}"


def _step(highest: float) -> float:
    """Distance of the axis' ticks: a round number of seconds or minutes, at most eight of them."""
    return next((step for step in STEPS_S if highest / step <= MOST_TICKS), highest / MOST_TICKS)


def _nice(highest: float) -> float:
    """End of the axis: the first tick behind everything drawn."""
    step = _step(max(highest, 0.1))
    return step * math.ceil(max(highest, 0.1) / step)
