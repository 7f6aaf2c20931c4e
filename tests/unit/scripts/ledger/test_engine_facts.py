"""The engine's log over releases: what dates it, what joins it, which attempt counts."""

from __future__ import annotations

import json
from datetime import UTC, datetime

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scripts.ledger.engine_facts import engine_facts
from scripts.ledger.facts import Clock, Fact
from scripts.ledger.log_text import lines

START = datetime(2026, 11, 30, 12, 0, 0, tzinfo=UTC).timestamp()
BEGAN = Fact(name="container-started", at_s=START, clock=Clock.NODE, resolution_s=1.0, source="pod", evidence="")

# What each release prints of the same start, which loads at 20, has its weights at 40 and serves at 70.
RELEASES = {
    "0.19.1": (
        "INFO 11-30 12:00:10 [utils.py:233] vLLM API server version 0.19.1, serving model x",
        "Model loading took 7.5 GiB memory and 19.5 seconds",
        "init engine (profile, create kv cache, warmup model) took 27.9 seconds",
        "Starting vLLM server on http://0.0.0.0:8000",
    ),
    "0.21.0": (
        "INFO 11-30 12:00:10 [utils.py:233] vLLM server version 0.21.0, serving model x",
        "Model loading took 7.5 GiB memory and 19.5 seconds",
        "init engine (profile, create kv cache, warmup model) took 27.9 s (compilation: 1.2 s — language_model: 1.2 s)",
        "INFO:     Application startup complete.",
    ),
    "0.24.0": (
        "  █▄█▀ █     █     █     █  version 0.24.0",
        "Model loading took 7.5 GiB memory and 19.5 seconds",
        "init engine (profile, create kv cache, warmup model) took 27.9 s",
        "(APIServer pid=1) INFO:     Application startup complete.",
    ),
    "0.27.1": (
        "vLLM server version 0.27.1, serving model x",
        "[RunAI Streamer] Overall time to stream 14.96 GiB of all files to cuda:0: 19.1s, 0.8 GiB/s",
        "init engine (profile, create kv cache, warmup model) took 27.9 s (compilation: 3.2 s)",
        "INFO:     Application startup complete.",
    ),
    "0.33.0": (
        "vLLM server version 0.33.0, serving model x",
        "Loading safetensors using Runai Model Streamer: 100% Completed | 200/200 [00:19<00:00, 10it/s]",
        "init engine (profile, create kv cache, warmup model) took 27.9 s (compilation: 3.2 s)",
        "INFO:     Application startup complete.",
    ),
}


def kubectl(*entries: tuple[float, str]) -> str:
    return "".join(f"{datetime.fromtimestamp(START + at, UTC).isoformat()} {text}\n" for at, text in entries)


def phases(log: str, ready_s: float | None = None) -> dict[str, float]:
    facts = engine_facts(log, BEGAN, ready_s, START)
    assert facts.in_pod is not None
    found: dict[str, float] = {}
    for stretch in facts.in_pod.stretches:
        name = "+".join(stretch.phases)
        found[name] = found.get(name, 0.0) + stretch.end_s - stretch.begin_s
    return found


@pytest.mark.parametrize("release", RELEASES)
def test_every_release_tells_the_same_phases(release: str) -> None:
    version, loaded, ready, serving = RELEASES[release]
    log = kubectl((10, version), (20, "Starting to load model /x..."), (40, loaded), (68, ready), (70, serving))
    assert phases(log) == {"start": 20.0, "weights": 20.0, "engine": 30.0}


def test_json_lines_are_read_by_their_message() -> None:
    log = "".join(
        json.dumps({"timestamp": datetime.fromtimestamp(START + at, UTC).isoformat(), "level": "INFO", "message": text})
        + "\n"
        for at, text in ((20, "Starting to load model /x..."), (40, RELEASES["0.21.0"][1]), (70, RELEASES["0.21.0"][3]))
    )
    assert phases(log) == {"start": 20.0, "weights": 20.0, "engine": 30.0}


@pytest.mark.parametrize("zone_h", [-8.0, 0.0, 1.0, 5.5, 5.75, 13.0])
def test_a_bare_log_is_in_whatever_zone_the_container_has(zone_h: float) -> None:
    def local(at: float) -> str:
        return datetime.fromtimestamp(START + at + zone_h * 3600, UTC).strftime("%m-%d %H:%M:%S")

    log = (
        f"INFO {local(10)} [x.py:1] vLLM server version 0.21.0\n"
        f"INFO {local(20)} [x.py:1] Starting to load model /x...\n"
        f"INFO {local(40)} [x.py:1] Model loading took 7.5 GiB memory and 19.5 seconds\n"
        f"INFO {local(70)} [x.py:1] init engine (profile, create kv cache, warmup model) took 29 s\n"
        "INFO:     Application startup complete.\n"
    )
    assert phases(log) == {"start": 20.0, "weights": 20.0, "engine": 30.0}


def test_only_the_last_attempt_counts() -> None:
    log = kubectl(
        (5, "vLLM server version 0.33.0, serving model x"),
        (15, "Starting to load model /x..."),
        (30, "torch.OutOfMemoryError: CUDA out of memory"),
        (50, "vLLM server version 0.33.0, serving model x"),
        (60, "Starting to load model /x..."),
        (80, "Model loading took 7.5 GiB memory and 19.5 seconds"),
        (110, "INFO:     Application startup complete."),
    )
    facts = engine_facts(log, BEGAN, None, START)
    assert [attempt.reason for attempt in facts.attempts] == [
        "ended in phase weights: torch.OutOfMemoryError: CUDA out of memory"
    ]
    assert phases(log) == {"": 50.0, "start": 10.0, "weights": 20.0, "engine": 30.0}


def test_a_log_cut_at_the_front_uses_what_later_lines_state() -> None:
    log = kubectl(
        (40, "Model loading took 7.5 GiB memory and 19.5 seconds"),
        (70, "init engine (profile, create kv cache, warmup model) took 28 s"),
        (71, "INFO:     Application startup complete."),
    )
    assert phases(log) == {"start": 20.5, "weights": 19.5, "engine": 31.0}
    later = kubectl(
        (70, "init engine (profile, create kv cache, warmup model) took 28 s"),
        (71, "INFO:     Application startup complete."),
    )
    assert phases(later) == {"start+weights": 42.0, "engine": 29.0}


def test_a_log_of_another_engine_is_said_to_be_one() -> None:
    facts = engine_facts(
        "2026-11-30 12:00:00,000 INFO text_generation_launcher: Starting download process.\n", BEGAN, None, START
    )
    assert not facts.is_vllm
    assert facts.in_pod is None


def test_the_slowest_rank_ends_the_weights() -> None:
    log = kubectl(
        (20, "(Worker_TP0 pid=5) Starting to load model /x..."),
        (20.4, "(Worker_TP1 pid=6) Starting to load model /x..."),
        (39, "(Worker_TP0 pid=5) Model loading took 7.5 GiB memory and 18 seconds"),
        (45, "(Worker_TP1 pid=6) Model loading took 7.5 GiB memory and 24 seconds"),
        (70, "INFO:     Application startup complete."),
    )
    assert phases(log) == {"start": 20.0, "weights": 25.0, "engine": 25.0}


def test_records_that_the_runtime_cut_are_one_line() -> None:
    log = (
        "2026-11-30T12:00:01.5Z stdout P Starting to load \n"
        "2026-11-30T12:00:01.6Z stderr F INFO:     Waiting for application startup.\n"
        "2026-11-30T12:00:01.5Z stdout F model /x...\n"
    )
    assert [line.text for line in lines(log)] == [
        "INFO:     Waiting for application startup.",
        "Starting to load model /x...",
    ]


@settings(deadline=None)
@given(st.lists(st.text(st.characters(blacklist_categories=("Cs",)), max_size=60), max_size=30))
def test_any_text_is_read_without_an_error(texts: list[str]) -> None:
    facts = engine_facts("\n".join(texts), BEGAN, None, START)
    if facts.in_pod is not None:
        at = 0.0
        for stretch in facts.in_pod.stretches:
            assert stretch.begin_s == pytest.approx(at)
            at = stretch.end_s
