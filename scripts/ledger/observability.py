"""Grafana dashboard and Prometheus alert rules, made from the table of metrics."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from scripts.ledger.metric_table import Alert, Panel, markdown, table

WIDTH, HEIGHT, COLUMNS = 12, 8, 2
"""Of a panel, in Grafana's grid of 24 columns."""
GRAFANA_SCHEMA = 41
"""Dashboard schema of Grafana 12; newer ones migrate it."""


def dashboard() -> Mapping[str, Any]:
    """The dashboard, for Grafana's import or a provisioned folder."""
    return {
        "uid": "coldstart",
        "title": "Cold starts",
        "tags": ["coldstart"],
        "schemaVersion": GRAFANA_SCHEMA,
        "refresh": "1m",
        "time": {"from": "now-24h", "to": "now"},
        "templating": {"list": [_datasource(), _variable("model")]},
        "panels": [_panel(index, panel) for index, panel in enumerate(table().panels)],
    }


def _datasource() -> Mapping[str, Any]:
    return {"name": "datasource", "type": "datasource", "query": "prometheus", "label": "Data source"}


def _variable(label: str) -> Mapping[str, Any]:
    return {
        "name": label,
        "type": "query",
        "datasource": {"type": "prometheus", "uid": "${datasource}"},
        "query": {"query": f"label_values(coldstart_start_timestamp_seconds, {label})", "refId": label},
        "includeAll": True,
        "multi": True,
        "allValue": ".*",
        "current": {"text": ["All"], "value": ["$__all"]},
        "refresh": 2,
    }


def _panel(index: int, panel: Panel) -> Mapping[str, Any]:
    return {
        "id": index + 1,
        "title": panel.title,
        "type": panel.kind,
        "datasource": {"type": "prometheus", "uid": "${datasource}"},
        "gridPos": {"x": WIDTH * (index % COLUMNS), "y": HEIGHT * (index // COLUMNS), "w": WIDTH, "h": HEIGHT},
        "fieldConfig": {"defaults": {"unit": panel.unit}, "overrides": []},
        "targets": [
            {
                "refId": "A",
                "expr": panel.query,
                "legendFormat": panel.legend,
                "instant": panel.kind != "timeseries",
                "range": panel.kind == "timeseries",
            }
        ],
    }


def rules() -> Mapping[str, Any]:
    """The alert rules, as a Prometheus rule file holds them."""
    return {"groups": [{"name": "coldstart", "rules": [_rule(alert) for alert in table().alerts]}]}


def _rule(alert: Alert) -> Mapping[str, Any]:
    return {
        "alert": alert.name,
        "expr": alert.expr,
        "for": alert.after,
        "labels": {"severity": alert.severity},
        "annotations": {"summary": alert.summary, "description": alert.description},
    }


def files() -> Mapping[str, str]:
    """Everything made from the table: relative path → text."""
    return {
        "metrics.md": markdown(),
        "metrics/dashboard.json": json.dumps(dashboard(), indent=2) + "\n",
        "metrics/alerts.yaml": yaml.safe_dump(rules(), sort_keys=False, width=120),
    }


def write(directory: Path) -> list[Path]:
    """Writes those files below a folder (`docs`)."""
    written: list[Path] = []
    for name, content in files().items():
        path = directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content, encoding="utf-8")
        written.append(path)
    return written
