"""The engine's log: any chunks, any release, one reading."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from serving.launcher.engine_log import ENGINE_LINES, LINES, EngineLog, LineSplitter, Sighting
from serving.launcher.phases import phase_reached, phases_of, split_engine_run

LOGS = Path(__file__).with_name("logs")
ROWS: list[dict[str, Any]] = yaml.safe_load((LOGS / "lines.yaml").read_text())
PREFIX = "(EngineCore pid=17048) INFO 11-29 23:13:02 [core.py:133] "


class Ticks:
    """A clock that moves by one second at every reading."""

    def __init__(self) -> None:
        self.at_s = 0.0

    def __call__(self) -> float:
        self.at_s += 1.0
        return self.at_s


def seen(name: str, at_s: float, **values: str) -> Sighting:
    return Sighting(name=name, at_s=at_s, values=values, line=name)


def read(text: str) -> EngineLog:
    log, splitter = EngineLog(Ticks()), LineSplitter()
    for line in splitter.feed(text.encode()):
        log.read(line)
    return log


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row["line"][:50])
@pytest.mark.parametrize(
    "prefix", ["", PREFIX, "\x1b[0;36m(EngineCore_DP0 pid=9)\x1b[0;0m INFO 01-02 03:04:05 [x.py:1] "]
)
def test_every_line_in_every_dress(row: dict[str, Any], prefix: str) -> None:
    (sighting,) = [found for found in read(f"{prefix}{row['line']}\n").sightings() if found.name == row["name"]]
    assert sighting.values == row.get("values", {})


@pytest.mark.parametrize(
    "line",
    [
        "encoder graph capturing finished in 3 secs",
        "Loading safetensors checkpoint shards:  75% Completed | 3/4 [00:01<00:00,  3.1it/s]",
        "Application startup failed. Exiting.",
        "INFO:     127.0.0.1:45880 - GET /metrics HTTP/1.1 200 OK",
    ],
)
def test_lines_that_say_nothing(line: str) -> None:
    assert read(f"{line}\n").sightings() == ()


def test_a_real_start_of_the_cpu_build() -> None:
    log = read((LOGS / "vllm-0.32-cpu-cold.log").read_text())
    names = [sighting.name for sighting in log.sightings()]
    assert [
        name for name in names if name in {"load", "progress_done", "compile_begins", "engine_ready", "serving"}
    ] == [*("load", "progress_done", "compile_begins", "engine_ready", "serving", "serving")]
    segments = split_engine_run(log.sightings(), 0.0, 200.0, over=True)
    assert [segment.phases for segment in segments] == [("start",), ("weights",), ("engine",)]
    assert all(value is not None for phase, value in phases_of(segments).items() if phase != "warmup")
    (stated,) = [sighting.seconds() for sighting in log.sightings() if sighting.name == "engine_ready"]
    assert stated == 34.05


@settings(deadline=None)
@given(
    st.lists(st.text(alphabet=st.characters(exclude_characters="\r\n\x1b", exclude_categories=["Cs"])), max_size=8),
    st.sampled_from(["\n", "\r", "\r\n"]),
    st.lists(st.integers(0, 200), max_size=12),
)
def test_lines_are_the_same_however_the_bytes_come(lines: list[str], end: str, cuts: list[int]) -> None:
    data = "".join(line + end for line in lines).encode()
    splitter, found = LineSplitter(), list[str]()
    last = 0
    for cut in sorted(min(cut, len(data)) for cut in cuts):
        found += splitter.feed(data[last:cut])
        last = cut
    found += splitter.feed(data[last:])
    assert found == [line for line in lines if line]


def test_a_torn_number_is_no_sighting() -> None:
    log = read("Loading weights took 1.2.3 seconds\nLoading weights took 2.5 seconds\n")
    assert [sighting.seconds() for sighting in log.sightings()] == [2.5]


def test_a_long_line_costs_its_head_only() -> None:
    splitter = LineSplitter()
    for _ in range(64):
        assert splitter.feed(b"x" * 65536) == []
    assert [len(line) for line in splitter.feed(b"\nnext\n")] == [8192, 4]


def test_a_repeating_line_is_kept_64_times() -> None:
    log = read("Graph capturing finished in 1 secs\n" * 1000)
    assert len(log.sightings()) == 64
    assert log.tail() == ["Graph capturing finished in 1 secs"] * 20


def test_what_users_send_is_not_read() -> None:
    """Once it serves, a prompt in the log that looks like a phase changes nothing."""
    log = read("Starting to load model x...\n")
    log.serve()
    log.read("Received request: prompt: 'Starting to load model y...'")
    log.read("[shutdown] EngineCore: draining in-flight requests count=1 timeout=5s")
    assert [sighting.name for sighting in log.sightings()] == ["load", "draining"]


def test_the_last_rank_ends_the_load() -> None:
    run = [
        seen("load", 10),
        seen("model_loaded", 14, s="4"),
        seen("model_loaded", 16, s="6"),
        seen("dynamo", 20, s="3"),
    ]
    assert [(s.phases, s.begin_s, s.end_s) for s in split_engine_run(run, 1.0, 30.0, over=True)] == [
        (("start",), 1.0, 10),
        (("weights",), 10, 16),
        (("engine",), 16, 30.0),
    ]


@pytest.mark.parametrize(
    ("sightings", "end_of_weights"),
    [
        ([seen("streamed", 13, s="3", n="1", unit="GiB"), seen("kv_memory", 15, gib="1")], 13),
        ([seen("weights_read", 12, s="2"), seen("model_loaded", 14, s="4")], 14),
        ([seen("progress_done", 12, n="3", of="3"), seen("engine_ready", 22, s="9")], 12),
        ([seen("engine_ready", 22, s="9")], 13),
    ],
)
def test_the_best_evidence_ends_the_load(sightings: list[Sighting], end_of_weights: float) -> None:
    segments = split_engine_run([seen("load", 10), *sightings], 0.0, 30.0, over=True)
    assert segments[1].end_s == end_of_weights


def test_a_load_that_was_not_announced_began_before_its_end() -> None:
    segments = split_engine_run([seen("model_loaded", 14, s="4")], 0.0, 30.0, over=True)
    assert segments[0].end_s == 10


def test_unknown_stays_unknown() -> None:
    assert phases_of(split_engine_run([], 0.0, 30.0, over=True)) == dict.fromkeys(
        ("start", "weights", "engine", "warmup")
    )
    loaded = phases_of(split_engine_run([seen("load", 5)], 0.0, 30.0, over=True))
    assert loaded == {"start": 5, "weights": None, "engine": None, "warmup": None}


def test_a_load_that_still_runs_is_in_the_phase_last_seen() -> None:
    assert split_engine_run([], 0.0, 3.0, over=False)[-1].phases == ("start",)
    assert split_engine_run([seen("load", 1)], 0.0, 3.0, over=False)[-1].phases == ("weights",)
    assert phase_reached([seen("load", 1), seen("dynamo", 2, s="1")]) == "engine"
    assert phase_reached([]) == "start"


SIGHTINGS = st.lists(
    st.builds(
        seen,
        st.sampled_from(sorted({"load", "streamed", "weights_read", "model_loaded", "progress_done", *ENGINE_LINES})),
        st.floats(-10, 110),
        s=st.sampled_from(["0.5", "7", "200"]),
        n=st.just("1"),
        unit=st.just("GiB"),
    ),
    max_size=12,
)


@settings(deadline=None)
@given(SIGHTINGS, st.booleans())
def test_segments_always_cover_the_run(sightings: list[Sighting], over: bool) -> None:  # noqa: FBT001 - hypothesis gives it
    segments = split_engine_run(sightings, 1.0, 100.0, over=over)
    assert segments[0].begin_s == 1.0
    assert segments[-1].end_s == 100.0
    assert all(a.end_s == b.begin_s for a, b in pairwise(segments))
    assert all(segment.begin_s <= segment.end_s for segment in segments)
    if all(len(segment.phases) == 1 for segment in segments):
        assert sum(value or 0.0 for value in phases_of(segments).values()) == pytest.approx(99.0)


def test_every_pattern_has_a_line() -> None:
    assert {row["name"] for row in ROWS} == set(LINES)
