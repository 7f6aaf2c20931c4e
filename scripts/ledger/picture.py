"""A picture of one start: each phase where it really lay, its budget under it, and what no phase explains."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from html import escape

from scripts.figures import seconds
from scripts.ledger.advice import next_step
from scripts.ledger.facts import PHASES
from scripts.ledger.record import Ledger, Segment
from scripts.ledger.times import shown
from scripts.page import document
from scripts.waterfall import COLOURS, FONT

WIDTH, LEFT, RIGHT = 960, 222, 26
ROW, BAR, HEAD, FOOT = 52, 20, 64, 56
UNACCOUNTED = "unaccounted"
GREY, QUIET, INK, RED = "#9aa5b1", "#55606e", "#1c2530", "#b00020"
DAY_S = 86_400
_NO_XML = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\ufffe\uffff]")
"""Characters that no XML document may hold, escaped or not: a torn log can bring them."""
LETTER = 6.8
"""Width of a letter of the small text, for placing it."""


def _safe(words: str) -> str:
    """Text for a document of XML or HTML."""
    return escape(_NO_XML.sub("\ufffd", words))


def svg(ledgers: Sequence[Ledger]) -> str:
    """The picture as a stand-alone SVG document, one panel per start."""
    end_s = max([_end(ledger) for ledger in ledgers] or [1.0])
    step = _step(end_s)
    ticks = math.ceil(end_s / step - 1e-9)
    panel = HEAD + ROW * (len(PHASES) + 1)
    height = panel * len(ledgers) + FOOT
    size = f"width='{WIDTH}' height='{height}'"
    parts = [
        f"<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 {WIDTH} {height}' {size} role='img' {FONT}>",
        (
            "<defs><pattern id='gap' width='7' height='7' patternUnits='userSpaceOnUse' patternTransform='rotate(45)'>"
            f"<rect width='7' height='7' fill='#eef1f4'/><rect width='2.4' height='7' fill='{GREY}'/></pattern></defs>"
        ),
        f"<title>{_safe('; '.join(_title(ledger) for ledger in ledgers))}</title>",
        f"<rect width='{WIDTH}' height='{height}' fill='#ffffff'/>",
    ]
    for index, ledger in enumerate(ledgers):
        parts += _grid(index * panel + HEAD, (index + 1) * panel, ticks)
        parts += _panel(ledger, index * panel, ticks * step)
    parts += _axis(panel * len(ledgers), step, ticks)
    parts.append("</svg>")
    return "\n".join(parts) + "\n"


def _title(ledger: Ledger) -> str:
    return f"{ledger.model}: {seconds(ledger.wall_clock_s)}"


def _end(ledger: Ledger) -> float:
    """Right edge of what is drawn: the last segment's end, or the furthest budget."""
    begins = {name: _begin(ledger, name) for name in ledger.budget}
    furthest = [begin + ledger.budget[name].high_s for name, begin in begins.items() if begin is not None]
    return max([ledger.wall_clock_s, *furthest, 0.1])


def _begin(ledger: Ledger, phase: str) -> float | None:
    return next((segment.begin_s for segment in ledger.segments if segment.phase == phase), None)


def _x(at_s: float, ceiling: float) -> float:
    return LEFT + at_s / ceiling * (WIDTH - LEFT - RIGHT)


def _panel(ledger: Ledger, top: float, ceiling: float) -> Iterator[str]:
    yield _text(16, top + 26, f"{_title(ledger)} to {ledger.state}", size=18, weight=600)
    budget_s = sum(expected.expected_s for expected in ledger.budget.values())
    against = f"budget {seconds(budget_s)}" if ledger.budget else "no budget to compare with"
    where = f"pod {ledger.pod or 'unknown'} on {ledger.labels.get('instance') or ledger.node or 'an unknown node'}"
    yield _text(16, top + 45, f"{against}; {where}; {shown(ledger.asked_at_s)}", size=12, colour=QUIET)
    for index, name in enumerate((*PHASES, UNACCOUNTED)):
        yield from _row(ledger, name, top + HEAD + index * ROW, ceiling)


def _row(ledger: Ledger, name: str, top: float, ceiling: float) -> Iterator[str]:
    middle = top + BAR / 2 + 5
    over = name in dict(ledger.over_budget())
    colour = COLOURS.get(name, QUIET)
    yield _text(16, middle, name, size=14, weight=600, colour=colour)
    value = ledger.unaccounted_s if name == UNACCOUNTED else ledger.phases[name].seconds
    yield _text(
        LEFT - 12,
        middle,
        "missing" if value is None else _short(value),
        size=14,
        anchor="end",
        colour=RED if over else INK,
    )
    mine = [segment for segment in ledger.segments if (segment.phase or UNACCOUNTED) == name]
    for segment in mine:
        yield _bar(segment, name, top, ceiling)
    yield from _budget(ledger, name, top, ceiling)
    left = _x(mine[0].begin_s, ceiling) if mine else LEFT + 2
    yield _words(_said(ledger, name, mine), top + BAR + 20, left, colour=RED if over else QUIET)


def _short(value: float) -> str:
    return "none" if value == 0 else seconds(value)


def _bar(segment: Segment, name: str, top: float, ceiling: float) -> str:
    left, right = _x(segment.begin_s, ceiling), _x(segment.end_s, ceiling)
    fill = "url(#gap)" if name == UNACCOUNTED else COLOURS[name]
    stroke = f" stroke='{GREY}' stroke-width='0.6'" if name == UNACCOUNTED else ""
    told = _safe(f"{name}, {segment.detail}: {seconds(segment.end_s - segment.begin_s)}")
    return (
        f"<rect x='{left:.1f}' y='{top:.1f}' width='{max(1.2, right - left):.1f}' height='{BAR}' rx='1.5'"
        f" fill='{fill}'{stroke}>"
        f"<title>{told}</title></rect>"
    )


def _budget(ledger: Ledger, name: str, top: float, ceiling: float) -> Iterator[str]:
    """Low to high as a line under the bar, the expected value as a mark on it, from where the phase began."""
    begin = _begin(ledger, name)
    expected = ledger.budget.get(name)
    if expected is None or begin is None or not expected.high_s:
        return
    y = top + BAR + 5
    low, middle, high = (_x(begin + value, ceiling) for value in (expected.low_s, expected.expected_s, expected.high_s))
    yield f"<line x1='{low:.1f}' x2='{high:.1f}' y1='{y:.1f}' y2='{y:.1f}' stroke='{INK}' stroke-width='1.4'/>"
    for at in (low, high):
        yield f"<line x1='{at:.1f}' x2='{at:.1f}' y1='{y - 3:.1f}' y2='{y + 3:.1f}' stroke='{INK}' stroke-width='1.4'/>"
    yield f"<circle cx='{middle:.1f}' cy='{y:.1f}' r='3' fill='{INK}'/>"


def _said(ledger: Ledger, name: str, mine: Sequence[Segment]) -> str:
    if name == UNACCOUNTED:
        largest = max(mine, key=lambda segment: segment.end_s - segment.begin_s, default=None)
        return f"most of it: {largest.detail}" if largest else "everything is explained"
    phase, expected = ledger.phases[name], ledger.budget.get(name)
    if phase.seconds is None:
        return phase.missing
    if phase.seconds == 0:
        return phase.evidence
    budget = f"budget {seconds(expected.low_s)} to {seconds(expected.high_s)}, " if expected else ""
    return f"{budget}by {phase.source}, to {_resolution(phase.resolution_s)}"


def _resolution(value_s: float) -> str:
    return f"{value_s:.0f} s" if value_s >= 1 else f"{max(1, round(value_s * 1000))} ms"


def _words(words: str, baseline: float, left: float, *, colour: str) -> str:
    """Small text from `left`, or ending at the right border when it would run over it; cut when it is too long."""
    most = int((WIDTH - LEFT - RIGHT) / LETTER)
    shown_words = words if len(words) <= most else words[: most - 1].rstrip() + "…"
    if left + LETTER * len(shown_words) <= WIDTH - RIGHT:
        return _text(left, baseline, shown_words, size=11.5, colour=colour)
    return _text(WIDTH - RIGHT, baseline, shown_words, size=11.5, colour=colour, anchor="end")


def _grid(top: float, bottom: float, ticks: int) -> Iterator[str]:
    for tick in range(ticks + 1):
        at = _x(tick, ticks)
        yield f"<line x1='{at:.1f}' x2='{at:.1f}' y1='{top - 8:.1f}' y2='{bottom:.1f}' stroke='#e3e8ed'/>"


def _axis(top: float, step: float, ticks: int) -> Iterator[str]:
    yield f"<line x1='{LEFT}' x2='{WIDTH - RIGHT}' y1='{top:.1f}' y2='{top:.1f}' stroke='{GREY}'/>"
    for tick in range(ticks + 1):
        at = _x(tick, ticks)
        anchor = "end" if tick == ticks else "middle"
        yield _text(at, top + 18, _tick(tick * step), size=11.5, colour=QUIET, anchor=anchor)
    yield _text(
        16,
        top + 42,
        "Bar: measured. Line under it: the budget, low to high, dot at the expected. Hatched: no phase explains it.",
        size=11.5,
        colour=QUIET,
    )


def _tick(at_s: float) -> str:
    return "0" if at_s == 0 else (f"{at_s:g} s" if at_s < 120 else f"{at_s / 60:g} min")  # noqa: PLR2004 - up to two minutes seconds are easier


def _step(highest: float) -> float:
    """From tick to tick: about a sixth of the axis, 1, 2, 2.5 or 5 times a power of ten, or half minutes beyond two."""
    least = max(highest, 1e-3) / 6
    if least > 20:  # noqa: PLR2004 - two minutes of axis
        steps = (60 * base / 2 for base in (1, 2, 3, 4, 6, 10, 20, 40, 60, 120, 240) if least <= 60 * base / 2)
        return next(steps, DAY_S * math.ceil(least / DAY_S))
    power = 10 ** math.floor(math.log10(least))
    return next(power * base for base in (1, 2, 2.5, 5, 10) if least <= power * base)


def _text(
    x: float, y: float, words: str, *, size: float, colour: str = INK, anchor: str = "start", weight: int = 400
) -> str:
    return (
        f"<text x='{x:.1f}' y='{y:.1f}' font-size='{size}' fill='{colour}' text-anchor='{anchor}'"
        f" font-weight='{weight}'>"
        f"{_safe(words)}</text>"
    )


# ---- page ----------------------------------------------------------------------------------------------------------


PAGE_STYLE = f"td:last-child{{overflow-wrap:anywhere}}.on{{color:#1f8a70}}.off{{color:{RED}}}.unknown{{color:{QUIET}}}"


def page(ledgers: Sequence[Ledger]) -> str:
    """The picture with evidence, levers and what to do next, as one HTML file that needs nothing else."""
    title = _safe("; ".join(_title(ledger) for ledger in ledgers))
    body = "\n".join([svg(ledgers), *(_section(ledger) for ledger in ledgers)])
    return document(title, heading="Cold start measured", body=body, style=PAGE_STYLE)


def _section(ledger: Ledger) -> str:
    lines = [f"<h2>{_safe(_title(ledger))}</h2>"]
    if step := next_step(ledger):
        lines.append(f"<p><b>Next.</b> {_code(step)}</p>")
    if ledger.skew:
        skew = ledger.skew
        lines.append(
            f"<p>Node clock against API clock: {skew.estimate_s:+.1f} s "
            f"(between {skew.low_s:+.1f} and {skew.high_s:+.1f}).</p>"
        )
    rows = [
        (
            _safe(name),
            "missing" if phase.seconds is None else _short(phase.seconds),
            _safe(phase.missing or phase.evidence),
        )
        for name, phase in ledger.phases.items()
    ]
    lines.append(_table(("Phase", "Measured", "Evidence"), rows, numbers=(1,)))
    lines.append("<h2>Levers, proved from the running node and pod</h2>")
    lines.append(
        _table(
            ("Lever", "", "Evidence"),
            [(_safe(p.lever), f"<span class='{p.state}'>{p.state}</span>", _safe(p.evidence)) for p in ledger.proofs],
        )
    )
    gaps = [(_safe(s.detail), seconds(s.end_s - s.begin_s)) for s in ledger.segments if s.phase is None]
    if gaps:
        lines += ["<h2>Unaccounted</h2>", _table(("What is known of it", "Seconds"), gaps, numbers=(1,))]
    said = [*(f"{a.what}: {a.why}" for a in ledger.absences), *ledger.notes]
    if ledger.attempts:
        said += [f"earlier attempt, {a.what}: {a.reason} (exit {a.exit_code})" for a in ledger.attempts]
    if said:
        lines += [
            "<h2>Not read, and notes</h2>",
            "<ul>" + "".join(f"<li>{_safe(line)}</li>" for line in said) + "</ul>",
        ]
    return "\n".join(lines)


def _code(words: str) -> str:
    """Text with its commands set as code."""
    return re.sub(r"`([^`]+)`", r"<code>\1</code>", _safe(words))


def _table(head: Sequence[str], rows: Sequence[Sequence[str]], *, numbers: Sequence[int] = ()) -> str:
    def cells(tag: str, row: Sequence[str]) -> str:
        return "".join(
            f"<{tag}{' class=n' if index in numbers else ''}>{cell}</{tag}>" for index, cell in enumerate(row)
        )

    lines = "\n".join(f"<tr>{cells('td', row)}</tr>" for row in rows)
    return f"<table><thead><tr>{cells('th', head)}</tr></thead><tbody>\n{lines}\n</tbody></table>"
