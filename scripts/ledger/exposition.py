"""The recorder's metrics as Prometheus reads them: those of the table, and nothing that is not in it."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Iterator, Mapping

from scripts.ledger.metric_table import Metric, table
from scripts.ledger.record import Ledger

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
Labels = tuple[str, ...]


class Exposition:
    """Holds values, renders text; any thread may call anything.

    Attributes:
        live: metric → what computes its samples at a scrape, for values that change by themselves.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._values: dict[str, dict[Labels, float]] = {name: {} for name in table().metrics}
        self._histograms: dict[str, dict[Labels, list[float]]] = {}
        self._newest: dict[Labels, float] = {}
        self.live: dict[str, Callable[[], Mapping[Labels, float]]] = {}

    def observe(self, ledger: Ledger) -> None:
        """Takes a start into the metrics. Gauges are the newest start's, in whatever order starts are observed."""
        who = (ledger.model,)
        with self._lock:
            self._count("coldstart_starts_total", (*who, ledger.state))
            self._count("coldstart_compile_cache_total", (*who, _CACHE[_state(ledger, "compile-cache")]))
            if ledger.state == "ready":
                self._bucket("coldstart_wall_clock_seconds", (*who, ledger.cold), ledger.wall_clock_s)
            if ledger.asked_at_s < self._newest.get(who, -math.inf):
                return
            self._newest[who] = ledger.asked_at_s
            for name, samples in _gauges(ledger).items():
                kept = {labels: value for labels, value in self._values[name].items() if labels[:1] != who}
                self._values[name] = kept | {(*who, *labels): value for labels, value in samples.items()}

    def count(self, name: str, labels: Labels, by: float = 1.0) -> None:
        """Adds to a counter."""
        with self._lock:
            self._count(name, labels, by)

    def _count(self, name: str, labels: Labels, by: float = 1.0) -> None:
        self._values[name][labels] = self._values[name].get(labels, 0.0) + by

    def _bucket(self, name: str, labels: Labels, value: float) -> None:
        """Cumulative counts up to each edge, then the sum; the last edge is infinity."""
        edges = (*table().metrics[name].buckets, math.inf)
        counts = self._histograms.setdefault(name, {}).setdefault(labels, [0.0] * (len(edges) + 1))
        for index, edge in enumerate(edges):
            counts[index] += value <= edge
        counts[-1] += value

    def text(self) -> str:
        """Everything there is, as text."""
        live = {name: dict(samples()) for name, samples in self.live.items()}
        with self._lock:
            return "".join(
                line + "\n"
                for metric in table().metrics.values()
                for line in self._family(metric, self._values[metric.name] | live.get(metric.name, {}))
            )

    def _family(self, metric: Metric, values: Mapping[Labels, float]) -> Iterator[str]:
        histogram = self._histograms.get(metric.name, {})
        if not values and not histogram:
            return
        yield f"# HELP {metric.name} {metric.help}"
        yield f"# TYPE {metric.name} {metric.type}"
        for labels, value in sorted(values.items()):
            yield f"{metric.name}{_labels(metric.labels, labels)} {value:.15g}"
        edges = (*(f"{edge:g}" for edge in metric.buckets), "+Inf")
        for labels, counts in sorted(histogram.items()):
            for edge, count in zip(edges, counts[:-1], strict=True):
                yield f"{metric.name}_bucket{_labels((*metric.labels, 'le'), (*labels, edge))} {count:.15g}"
            yield f"{metric.name}_sum{_labels(metric.labels, labels)} {counts[-1]:.15g}"
            yield f"{metric.name}_count{_labels(metric.labels, labels)} {counts[-2]:.15g}"


_CACHE = {"on": "hit", "off": "miss", "unknown": "unknown"}


def _state(ledger: Ledger, lever: str) -> str:
    return next((proof.state for proof in ledger.proofs if proof.lever == lever), "unknown")


def _gauges(ledger: Ledger) -> Mapping[str, Mapping[Labels, float]]:
    """Metric → labels after the model → value, for the gauges of the newest start."""
    return {
        "coldstart_phase_seconds": {
            (name,): phase.seconds for name, phase in ledger.phases.items() if phase.seconds is not None
        },
        "coldstart_phase_budget_seconds": {
            (name, bound): value
            for name, expected in ledger.budget.items()
            for bound, value in (("low", expected.low_s), ("expected", expected.expected_s), ("high", expected.high_s))
        },
        "coldstart_unaccounted_seconds": {(): ledger.unaccounted_s},
        "coldstart_start_timestamp_seconds": {(): ledger.asked_at_s},
        "coldstart_lever_on": {
            (proof.lever,): float(proof.state == "on") for proof in ledger.proofs if proof.state != "unknown"
        },
        "coldstart_clock_skew_seconds": {(): ledger.skew.estimate_s} if ledger.skew else {},
    }


def _labels(names: tuple[str, ...], values: Labels) -> str:
    if not names:
        return ""
    pairs = (f'{name}="{_escaped(value)}"' for name, value in zip(names, values, strict=True))
    return "{" + ",".join(pairs) + "}"


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
