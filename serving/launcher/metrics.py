"""The ledger for Prometheus: one table of metrics, and the collector that fills it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from prometheus_client.core import GaugeMetricFamily

from serving.launcher.config import LABELS, Config
from serving.launcher.phases import phases_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from serving.launcher.ledger import Ledger
    from serving.launcher.status import Status
    from serving.launcher.timeline import Timeline


@dataclass(frozen=True, kw_only=True, slots=True)
class Metric:
    """One exported metric: its name, its help, and the labels it has beside the constant ones."""

    name: str
    help: str
    labels: tuple[str, ...] = ()


METRICS: Mapping[str, Metric] = {
    key: Metric(name=f"coldstart_{key}", help=text, labels=labels)
    for key, text, labels in (
        ("phase_seconds", "Measured seconds of a phase of this pod's start", ("phase",)),
        ("phase_budget_seconds", "What the plan said of a phase", ("phase", "bound")),
        ("start_seconds", "Container start to Ready, or to now while not yet Ready", ()),
        ("started_timestamp_seconds", "Container start, Unix time", ()),
        ("ready", "1 while the pod is warm, right and serving", ()),
        ("engine_info", "Always 1; the engine's version and the weights path in use", ("version", "weights_path")),
        ("weights_bytes", "Bytes of the weights that were loaded", ()),
        ("weights_bytes_per_second", "Rate of the read of the weights", ()),
        ("weights_paths_failed", "Weights paths given up before one worked", ()),
        ("engine_attempts", "Runs of the engine that ended before it served", ()),
        ("compile_cache_hit", "1: every graph came from the cache; 0: something was compiled", ()),
        ("compile_cache_restore_seconds", "Time the restore of the compile cache took", ()),
        ("compile_cache_bytes", "Size of the restored archive", ()),
        ("warmup_first_seconds", "Latency of the first request, before the warm-up", ()),
        ("warmup_steady_seconds", "Latency of the same request when warm (median)", ()),
        ("warmup_steady", "1: the probe was steady before the cap", ()),
        ("answer_right", "1: the answer was the known one, or sane where none is known", ()),
    )
}
"""Every metric of the launcher. All are gauges and carry `model`, `revision`, `instance` and `image`. A value that
nobody saw is left out, never zero."""


class LedgerCollector:
    """The ledger for Prometheus, read at every scrape."""

    def __init__(self, config: Config, timeline: Timeline, ledger: Ledger, status: Status) -> None:
        self._config, self._timeline, self._ledger, self._status = config, timeline, ledger, status

    def collect(self) -> Iterator[GaugeMetricFamily]:
        """The metric families, those without a value left out."""
        constant = [self._config.labels[name] for name in LABELS]
        for key, samples in self._samples().items():
            metric = METRICS[key]
            family = GaugeMetricFamily(metric.name, metric.help, labels=[*LABELS, *metric.labels])
            known = [(labels, value) for labels, value in samples if value is not None]
            for labels, value in known:
                family.add_metric([*constant, *labels], float(value))
            if known:
                yield family

    def _samples(self) -> dict[str, list[tuple[tuple[str, ...], float | None]]]:
        ledger, weights, cache, warmup = self._ledger, self._ledger.weights, self._ledger.cache, self._ledger.warmup
        segments = ledger.segments()
        read_s = ledger.read_s(segments)
        rate = weights.weights_bytes / read_s if weights.weights_bytes and read_s else None
        single: dict[str, float | None] = {
            "start_seconds": segments[-1].end_s,
            "started_timestamp_seconds": self._timeline.started_at,
            "ready": self._status.state == "ready",
            "weights_bytes": weights.weights_bytes,
            "weights_bytes_per_second": rate,
            "weights_paths_failed": len(weights.failed),
            "engine_attempts": len(ledger.attempts),
            "compile_cache_hit": cache.hit,
            "compile_cache_restore_seconds": cache.restore_s,
            "compile_cache_bytes": cache.archive_bytes,
            "warmup_first_seconds": warmup.first_s,
            "warmup_steady_seconds": warmup.steady_s,
            "warmup_steady": warmup.steady if warmup.requests else None,
            "answer_right": ledger.answer.right if ledger.answer else None,
        }
        version = str(ledger.engine.get("version") or "unknown")
        samples: dict[str, list[tuple[tuple[str, ...], float | None]]] = {
            key: [((), value)] for key, value in single.items()
        }
        samples["engine_info"] = [((version, weights.kind), 1.0)]
        samples["phase_seconds"] = [((phase,), value) for phase, value in phases_of(segments).items()]
        samples["phase_budget_seconds"] = [
            ((phase, bound), value)
            for phase, budget in self._config.budget.items()
            for bound, value in (("low", budget.low_s), ("expected", budget.expected_s), ("high", budget.high_s))
        ]
        return samples
