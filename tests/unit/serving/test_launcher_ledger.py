"""The ledger and its metrics: one clock, missing is missing, and what Prometheus makes of it."""

from __future__ import annotations

import json
import re
import shutil
import subprocess

import pytest
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from serving.launcher.config import Config
from serving.launcher.engine_log import EngineLog
from serving.launcher.facts import AnswerFacts
from serving.launcher.ledger import Ledger, note_engine
from serving.launcher.metrics import METRICS, LedgerCollector
from serving.launcher.status import Status
from serving.launcher.timeline import Timeline, process_age_s
from tests.unit.serving.pod import LABELS, launcher_config


class Clock:
    """A monotonic clock and a wall clock that a test moves."""

    def __init__(self) -> None:
        self.mono_s, self.wall_s = 1000.0, 1_800_000_000.0

    def pass_(self, seconds: float) -> None:
        self.mono_s += seconds
        self.wall_s += seconds


class Start:
    """A ledger on that clock."""

    def __init__(self, age_s: float = 2.0) -> None:
        self.clock = Clock()
        self.timeline = Timeline(age_s, monotonic=lambda: self.clock.mono_s, wall=lambda: self.clock.wall_s)
        self.config = Config.from_json(launcher_config())
        self.ledger = Ledger(self.config, self.timeline)
        self.status = Status()
        self.log = EngineLog(self.timeline.now)

    def go_through(self) -> None:
        """A start of 2 + 1 + 10 + 5 + 20 + 3 seconds."""
        self.clock.pass_(1)
        self.ledger.engine_started(self.log)
        self.clock.pass_(10)
        self.log.read("INFO [x.py:1]  version 0.33.0")
        self.log.read("Starting to load model s3://b/m...")
        self.clock.pass_(5)
        self.log.read("[RunAI Streamer] Overall time to stream 10.0 GiB of all files to cuda:0: 4.0s, 2.5 GiB/s")
        self.log.read("[RunAI Streamer][Distributed] Using distributed streaming between 4 processes")
        self.clock.pass_(20)
        self.log.read("Directly load AOT compilation from path /cache/x")
        self.log.read("Graph capturing finished in 7 secs, took 0.1 GiB")
        self.log.read("GPU KV cache size: 174,736 tokens")
        self.ledger.enter("warmup", "plan and probe")
        note_engine(self.ledger, self.log.sightings())
        self.clock.pass_(3)
        self.ledger.end()

    def metrics(self) -> dict[tuple[str, str], float]:
        """(name, distinguishing label value) → value."""
        registry = CollectorRegistry(auto_describe=False)
        registry.register(LedgerCollector(self.config, self.timeline, self.ledger, self.status))
        found: dict[tuple[str, str], float] = {}
        for family in text_string_to_metric_families(generate_latest(registry).decode()):
            for sample in family.samples:
                assert LABELS.items() <= sample.labels.items()
                own = [value for name, value in sorted(sample.labels.items()) if name not in LABELS]
                found[sample.name, "/".join(own)] = sample.value
        return found


def test_phases_and_facts_of_a_whole_start() -> None:
    start = Start()
    start.go_through()
    document = start.ledger.document("ready", "")
    assert document["phases_s"] == {"start": 13.0, "weights": 5.0, "engine": 20.0, "warmup": 3.0}
    assert document["total_s"] == 41.0
    assert document["unattributed_s"] == 0
    assert document["weights"] == {
        "kind": "",
        "origin": "",
        "weights_bytes": 10 * 1024**3,
        "read_s": 4.0,
        "distributed_ranks": 4,
        "failed": {},
    }
    assert start.ledger.engine["version"] == "0.33.0"
    assert start.ledger.engine["graph_capture_s"] == 7.0
    assert start.ledger.engine["kv_cache_tokens"] == 174736
    assert start.ledger.cache.hit is True
    assert json.loads(json.dumps(document))["started_at"] == "2027-01-15T07:59:58+00:00"


def test_a_clock_that_is_set_changes_no_phase() -> None:
    """NTP corrects a fresh node while the engine loads: an hour forward, then two back."""
    start = Start()
    start.clock.pass_(1)
    start.ledger.engine_started(start.log)
    start.clock.wall_s += 3600
    start.clock.pass_(10)
    start.log.read("Starting to load model x...")
    start.clock.wall_s -= 7200
    start.clock.pass_(10)
    start.log.read("Model loading took 1.0 GiB and 10.0 seconds")
    start.clock.pass_(10)
    start.ledger.enter("warmup", "")
    start.ledger.end()
    document = start.ledger.document("ready", "")
    assert document["phases_s"] == {"start": 13.0, "weights": 10.0, "engine": 10.0, "warmup": 0.0}
    assert document["clock_jump_s"] == -3600.0


def test_stretches_before_the_engine_count_to_their_phase() -> None:
    """A fill of the node cache is weights, a restored compile cache is engine: each lever pays its own seconds."""
    start = Start(age_s=0.0)
    start.clock.pass_(1)
    start.ledger.enter("weights", "fetch by node-cache")
    start.clock.pass_(30)
    start.ledger.enter("engine", "compile cache restore")
    start.clock.pass_(2)
    start.go_through()
    document = start.ledger.document("ready", "")
    assert document["phases_s"] == {"start": 11.0, "weights": 35.0, "engine": 23.0, "warmup": 3.0}
    assert document["total_s"] == 72.0


def test_a_run_that_died_counts_where_it_was() -> None:
    start = Start(age_s=0.0)
    start.ledger.engine_started(start.log)
    start.clock.pass_(5)
    start.log.read("Starting to load model x...")
    start.clock.pass_(7)
    start.ledger.enter("start", "after the engine died", served=False)
    assert start.ledger.document("loading", "")["phases_s"] == {
        "start": 5.0,
        "weights": 7.0,
        "engine": None,
        "warmup": None,
    }


def test_a_ledger_that_still_runs_says_how_far_it_is() -> None:
    start = Start(age_s=0.0)
    start.ledger.engine_started(start.log)
    start.clock.pass_(4)
    assert start.ledger.document("loading", "")["phases_s"]["start"] == 4.0
    assert start.ledger.document("loading", "")["total_s"] == 4.0


def test_metrics_of_a_start() -> None:
    start = Start()
    start.go_through()
    start.ledger.answer = AnswerFacts(
        check="known", right=True, reason="", prompt="", token_ids=[1], text="", firm_tokens=1
    )
    start.status.set("ready", "")
    found = start.metrics()
    assert found["coldstart_phase_seconds", "engine"] == 20.0
    assert found["coldstart_phase_budget_seconds", "high/engine"] == 4.0
    assert found["coldstart_start_seconds", ""] == 41.0
    assert found["coldstart_ready", ""] == 1.0
    assert found["coldstart_weights_bytes_per_second", ""] == 10 * 1024**3 / 4.0
    assert found["coldstart_compile_cache_hit", ""] == 1.0
    assert found["coldstart_answer_right", ""] == 1.0
    assert found["coldstart_engine_info", "0.33.0/"] == 1.0
    assert ("coldstart_warmup_first_seconds", "") not in found
    assert ("coldstart_compile_cache_restore_seconds", "") not in found


def test_a_value_that_nobody_saw_is_left_out() -> None:
    start = Start()
    names = {name for name, _ in start.metrics()}
    assert "coldstart_compile_cache_hit" not in names
    assert "coldstart_answer_right" not in names
    assert start.metrics()["coldstart_ready", ""] == 0.0
    assert ("coldstart_phase_seconds", "weights") not in start.metrics()


def test_every_metric_follows_the_conventions() -> None:
    for metric in METRICS.values():
        assert re.fullmatch(r"coldstart_[a-z_]+", metric.name)
        assert not metric.name.endswith(("_total", "_ms", "_mib", "_count"))
        assert metric.help
        assert len(metric.labels) <= 2


@pytest.mark.skipif(shutil.which("promtool") is None, reason="promtool (Debian package prometheus) isn't installed")
def test_promtool_accepts_the_page() -> None:
    start = Start()
    start.go_through()
    registry = CollectorRegistry(auto_describe=False)
    registry.register(LedgerCollector(start.config, start.timeline, start.ledger, start.status))
    checked = subprocess.run(
        ["promtool", "check", "metrics"], input=generate_latest(registry), capture_output=True, check=False
    )
    assert checked.returncode == 0, checked.stdout + checked.stderr


def test_a_pod_that_drains_never_becomes_ready_again() -> None:
    status = Status()
    status.set("draining", "SIGTERM")
    status.set("ready", "warm")
    assert status.state == "draining"
    status.set("ended", "gone")
    status.set("draining", "again")
    assert status.state == "ended"


def test_this_process_has_an_age() -> None:
    assert 0.0 < process_age_s() < 3600.0
