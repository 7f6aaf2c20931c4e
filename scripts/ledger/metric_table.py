"""The one table of metrics, alerts and panels: metrics.toml, read and checked."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

from scripts.ledger.raw import objects, text, texts

_NAME = re.compile(r"^(coldstart|process)_[a-z0-9_]+$")
_BASE_UNITS = ("_seconds", "_bytes", "_total", "_on", "_pods")
TYPES = ("gauge", "counter", "histogram")


@dataclass(frozen=True, kw_only=True, slots=True)
class Metric:
    """One metric."""

    name: str
    type: str
    labels: tuple[str, ...]
    help: str
    buckets: tuple[float, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Alert:
    """One alert rule; `after` is Prometheus' `for`."""

    name: str
    expr: str
    after: str
    severity: str
    summary: str
    description: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Panel:
    """One panel of the dashboard."""

    title: str
    kind: str
    unit: str
    query: str
    legend: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Table:
    """Everything there is."""

    metrics: Mapping[str, Metric]
    alerts: tuple[Alert, ...]
    panels: tuple[Panel, ...]


@cache
def table() -> Table:
    """The table.

    Raises:
        ValueError: a metric breaks the naming rules.
    """
    found = tomllib.loads(files("scripts.ledger").joinpath("metrics.toml").read_text(encoding="utf-8"))
    metrics: dict[str, Metric] = {}
    for entry in objects(found, "metric"):
        buckets = entry.get("buckets", [])
        metric = Metric(
            name=text(entry, "name"),
            type=text(entry, "type"),
            labels=tuple(texts(entry, "labels")),
            help=text(entry, "help"),
            buckets=tuple(float(edge) for edge in buckets),
        )
        _check(metric)
        metrics[metric.name] = metric
    return Table(
        metrics=metrics,
        alerts=tuple(
            Alert(
                name=text(entry, "name"),
                expr=text(entry, "expr").strip(),
                after=text(entry, "for"),
                severity=text(entry, "severity"),
                summary=text(entry, "summary"),
                description=text(entry, "description"),
            )
            for entry in objects(found, "alert")
        ),
        panels=tuple(
            Panel(
                title=text(entry, "title"),
                kind=text(entry, "kind"),
                unit=text(entry, "unit"),
                query=text(entry, "query"),
                legend=text(entry, "legend"),
            )
            for entry in objects(found, "panel")
        ),
    )


def _check(metric: Metric) -> None:
    if not _NAME.match(metric.name) or not metric.name.endswith(_BASE_UNITS):
        raise ValueError(f"{metric.name}: not a Prometheus name with a base unit ({', '.join(_BASE_UNITS)})")
    if metric.type not in TYPES or (metric.type == "counter") != metric.name.endswith("_total"):
        raise ValueError(f"{metric.name}: type {metric.type} and name contradict each other")
    if (metric.type == "histogram") != bool(metric.buckets) or list(metric.buckets) != sorted(set(metric.buckets)):
        raise ValueError(f"{metric.name}: a histogram, and only that, has rising buckets")


def markdown() -> str:
    """docs/metrics.md."""
    lines = [
        "# Metrics, alerts, dashboard",
        "",
        "What the recorder exports. Made from scripts/ledger/metrics.toml by `coldstart measure --metrics-docs docs`,",
        "as are the dashboard (docs/metrics/dashboard.json) and the alert rules (docs/metrics/alerts.yaml).",
        "",
        "A value that nobody saw is left out, never zero. Labels are bounded: models of the cluster, six phases,",
        "eleven levers. Two copies of the recorder export the same series: take `max`, not `sum`.",
        "",
        "| metric | type | labels | meaning |",
        "| --- | --- | --- | --- |",
    ]
    lines += [
        f"| `{metric.name}` | {metric.type} | {', '.join(metric.labels) or 'none'} | {metric.help} |"
        for metric in table().metrics.values()
    ]
    lines += ["", "## Alerts", "", "| alert | severity | when | what it means |", "| --- | --- | --- | --- |"]
    lines += [
        f"| `{alert.name}` | {alert.severity} | `{_cell(alert.expr)}` | {alert.description} |"
        for alert in table().alerts
    ]
    lines += ["", "## Panels", "", "| panel | query |", "| --- | --- |"]
    lines += [f"| {panel.title} | `{panel.query}` |" for panel in table().panels]
    return "\n".join(lines) + "\n"


def _cell(expression: str) -> str:
    """An expression on one line of a table: a bar would end the cell."""
    return " ".join(expression.split()).replace("|", "\\|")
