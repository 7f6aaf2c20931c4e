"""The recorder's own pages: /metrics for Prometheus, /healthz for the kubelet."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from scripts.ledger.exposition import CONTENT_TYPE

Page = Callable[[], tuple[int, str, bytes]]


def routes(metrics: Callable[[], str], healthy: Callable[[], bool]) -> Mapping[str, Page]:
    """Path → answer: status, content type, body."""

    def health() -> tuple[int, str, bytes]:
        return (200, "text/plain", b"ok\n") if healthy() else (503, "text/plain", b"the first list is not complete\n")

    return {"/metrics": lambda: (200, CONTENT_TYPE, metrics().encode()), "/healthz": health}
