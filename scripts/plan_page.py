"""A plan as one HTML page: the picture with findings, levers and cost."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from budget.plan import Plan
from scripts.figures import dollars
from scripts.page import document
from scripts.plan_words import LEVEL_WORDS, cost_lines, first_start, hourly_change, room, signed_seconds, verdict
from scripts.waterfall import svg, title


def page(plans: Sequence[Plan]) -> str:
    """The picture with findings, levers and cost, as one HTML file that needs nothing else."""
    body = "\n".join([svg(plans), *(_section(plan) for plan in plans)])
    name = escape(title(plans))
    return document(name, heading=f"Cold start: {name}", body=body)


def _section(plan: Plan) -> str:
    said = [f"{verdict(plan)} {room(plan)}".strip(), *first_start(plan), *cost_lines(plan)]
    lines = [f"<h2>{escape(plan.name)}</h2>", *(f"<p>{escape(line)}</p>" for line in said)]
    if plan.findings:
        lines.append(_table(("", "Finding", "What to do"), _finding_rows(plan)))
    if plan.levers:
        lines.append("<h2>Levers not pulled yet</h2>")
        lines.append(_table(("Lever", "What it is", "Saves", "Per hour"), _lever_rows(plan), numbers=(2, 3)))
    lines.append("<h2>What an hour costs</h2>")
    rows = [(escape(item.item), escape(item.note), dollars(item.usd_per_hour)) for item in plan.cost.items]
    lines.append(_table(("Item", "", "Per hour"), rows, numbers=(2,)))
    return "\n".join(lines)


def _finding_rows(plan: Plan) -> list[tuple[str, ...]]:
    return [
        (f"<span class='{each.level}'>{LEVEL_WORDS[each.level]}</span>", escape(each.message), escape(each.fix))
        for each in plan.findings
    ]


def _lever_rows(plan: Plan) -> list[tuple[str, ...]]:
    return [
        (escape(each.lever), escape(each.what), signed_seconds(each.saves_s), hourly_change(each))
        for each in plan.levers
    ]


def _table(head: Sequence[str], rows: Sequence[Sequence[str]], *, numbers: Sequence[int] = ()) -> str:
    def cells(tag: str, row: Sequence[str]) -> str:
        return "".join(
            f"<{tag}{' class=n' if index in numbers else ''}>{cell}</{tag}>" for index, cell in enumerate(row)
        )

    lines = "\n".join(f"<tr>{cells('td', row)}</tr>" for row in rows)
    heading = cells("th", [escape(cell) for cell in head])
    return f"<table><thead><tr>{heading}</tr></thead><tbody>\n{lines}\n</tbody></table>"
