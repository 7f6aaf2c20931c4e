"""Where a ledger goes besides metrics: OTLP spans over HTTP, and CloudWatch metrics written as log lines."""

from __future__ import annotations

import hashlib
import json
import sys
import urllib.error
import urllib.request
from collections.abc import Mapping
from typing import Any

from scripts.ledger.record import Ledger

TIMEOUT_S = 5.0
NANO = 1_000_000_000
NAMESPACE = "coldstart"


class SinkError(Exception):
    """A sink refused, or could not be reached. The ledger itself is kept all the same."""


def spans(ledger: Ledger) -> Mapping[str, Any]:
    """An OTLP trace of a start: one span for the start, one for each stretch, those without a phase included.

    Ids follow from the pod's uid, so that two recorders send the same spans and not twice as many.
    """
    trace = hashlib.sha256(f"trace {ledger.uid}".encode()).hexdigest()[:32]

    def span(name: str, index: int, begin_s: float, end_s: float, more: Mapping[str, str]) -> dict[str, Any]:
        own = hashlib.sha256(f"span {ledger.uid} {index}".encode()).hexdigest()[:16]
        root = hashlib.sha256(f"span {ledger.uid} 0".encode()).hexdigest()[:16]
        return {
            "traceId": trace,
            "spanId": own,
            "parentSpanId": "" if index == 0 else root,
            "name": name,
            "kind": 1,
            "startTimeUnixNano": str(int((ledger.asked_at_s + begin_s) * NANO)),
            "endTimeUnixNano": str(int((ledger.asked_at_s + end_s) * NANO)),
            "attributes": [{"key": key, "value": {"stringValue": value}} for key, value in more.items()],
        }

    about = {
        "k8s.namespace.name": ledger.namespace,
        "k8s.pod.name": ledger.pod,
        "k8s.pod.uid": ledger.uid,
        "k8s.node.name": ledger.node,
        "coldstart.model": ledger.model,
        "coldstart.state": ledger.state,
        "coldstart.cold": ledger.cold,
    }
    stretches = [
        span(
            segment.phase or "unaccounted", index, segment.begin_s, segment.end_s, {"coldstart.detail": segment.detail}
        )
        for index, segment in enumerate(ledger.segments, start=1)
    ]
    whole = span("cold start", 0, 0.0, ledger.wall_clock_s, about)
    resource = {"attributes": [{"key": "service.name", "value": {"stringValue": "coldstart"}}]}
    scope = {"scope": {"name": "coldstart"}, "spans": [whole, *stretches]}
    return {"resourceSpans": [{"resource": resource, "scopeSpans": [scope]}]}


def send_spans(ledger: Ledger, endpoint: str) -> None:
    """Sends a start's spans to an OTLP/HTTP endpoint (`http://collector:4318`).

    Raises:
        SinkError: refused or unreachable.
    """
    url = endpoint.rstrip("/") + "/v1/traces"
    if not url.startswith(("http://", "https://")):
        raise SinkError(f"{endpoint}: an OTLP endpoint begins with http:// or https://")
    request = urllib.request.Request(  # noqa: S310 - the scheme is checked above
        url, data=json.dumps(spans(ledger)).encode(), headers={"Content-Type": "application/json"}, method="POST"
    )
    try:
        with urllib.request.urlopen(request, timeout=TIMEOUT_S):  # noqa: S310 - as above
            pass
    except (urllib.error.URLError, OSError) as error:
        raise SinkError(f"{url}: {error}") from error


def embedded_metrics(ledger: Ledger) -> Mapping[str, Any]:
    """A start in CloudWatch's embedded metric format (CloudWatch user guide, "Embedded metric format").

    Whatever ships the pod's log makes metrics of it, without AWS credentials here.
    """
    values = {f"{name}_seconds": phase.seconds for name, phase in ledger.phases.items() if phase.seconds is not None}
    values |= {"wall_clock_seconds": ledger.wall_clock_s, "unaccounted_seconds": ledger.unaccounted_s}
    return {
        "_aws": {
            "Timestamp": int((ledger.asked_at_s + ledger.wall_clock_s) * 1000),
            "CloudWatchMetrics": [
                {
                    "Namespace": NAMESPACE,
                    "Dimensions": [["model"]],
                    "Metrics": [{"Name": name, "Unit": "Seconds"} for name in values],
                }
            ],
        },
        "model": ledger.model,
        "pod": ledger.pod,
        "state": ledger.state,
        **{name: round(value, 3) for name, value in values.items()},
    }


def print_embedded(ledger: Ledger) -> None:
    """One line on stdout."""
    sys.stdout.write(json.dumps(embedded_metrics(ledger)) + "\n")
    sys.stdout.flush()
