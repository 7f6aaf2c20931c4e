"""Faults on purpose against the real engine: the same ones that `coldstart rehearse --kill` shows."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest

from scripts.rehearsal.faults import FAULTS, Fault
from scripts.rehearsal.pod import RunningPod
from scripts.rehearsal.site import Site
from scripts.rehearsal.starts import READY_WITHIN_S, Start
from tests.aws.faulty_proxy import FaultyProxy


@pytest.fixture
def proxy(site: Site) -> Iterator[FaultyProxy]:
    with FaultyProxy.running(("127.0.0.1", site.store.port)) as running:
        yield running


def test_s3_that_answers_503_for_a_minute_only_delays(
    site: Site, starts: tuple[Start, Start], proxy: FaultyProxy
) -> None:
    """The streamer retries for as long as the rendering tells it to."""
    del starts
    proxy.fault("status", r"^GET .*\.safetensors", lasts_s=60)
    with RunningPod.started(site.fresh_pod(endpoint=proxy.endpoint), site.folder / "throttled") as running:
        ledger = running.ready(READY_WITHIN_S)
        running.stop()
    assert ledger["weights"]["kind"] == "stream"
    assert ledger["attempts"] == []
    assert any(seen.fault == "status" for seen in proxy.seen)
    assert ledger["total_s"] >= 60


def test_one_connection_that_stalls_only_delays(site: Site, starts: tuple[Start, Start], proxy: FaultyProxy) -> None:
    del starts
    stalled = proxy.fault("stall", r"^GET .*\.safetensors", times=1)
    with RunningPod.started(site.fresh_pod(endpoint=proxy.endpoint), site.folder / "stalled") as running:
        ledger = running.ready(READY_WITHIN_S)
        running.stop()
    stalled.released.set()
    assert ledger["answer"]["right"] is True


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.__name__)
def test_each_fault_ends_as_it_must(
    site: Site, starts: tuple[Start, Start], fault: Callable[[Site, Mapping[str, Any]], Fault]
) -> None:
    """Last in this file: one of them damages the compile cache that every start above begins with."""
    outcome = fault(site, starts[0].ledger)
    assert outcome.held, f"{outcome.name}: {outcome.must}; seen: {outcome.seen}"
