"""A/B and baselines: what is more than noise."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st

from budget.problems import BadInput
from scripts.cli import cli, run
from scripts.ledger.baseline import baseline_of, read, regressions, write
from scripts.ledger.bundle import Bundle
from scripts.ledger.comparison import Side, compare, interleaved
from scripts.ledger.merge import ledger_of
from scripts.ledger.record import Ledger, Measured
from scripts.ledger.variants import LEVERS, variant

CASES = Path(__file__).resolve().parents[3] / "cases" / "starts"
EMPTY = ledger_of(Bundle())


def taking(engine_s: float) -> Ledger:
    phases = dict(EMPTY.phases) | {"engine": Measured(seconds=engine_s, resolution_s=0.01)}
    return replace(EMPTY, phases=phases, wall_clock_s=engine_s, model="llama")


def test_sides_take_turns_and_turns_change() -> None:
    asked: list[Side] = []

    def start(side: Side) -> Ledger:
        asked.append(side)
        return taking(10.0 if side == "on" else 40.0)

    found = interleaved(start, 3)
    assert asked == ["off", "on", "on", "off", "off", "on"]
    difference = compare(found)["engine"]
    assert (difference.saves_s, difference.beyond_noise) == (30.0, True)
    assert "pull" not in compare(found)


def test_ranges_that_meet_are_noise() -> None:
    difference = compare({"off": [taking(10), taking(14), taking(12)], "on": [taking(9), taking(11), taking(10)]})[
        "engine"
    ]
    assert difference.saves_s == 2.0
    assert not difference.beyond_noise


@settings(deadline=None)
@given(st.lists(st.floats(0.1, 1000), min_size=1, max_size=9))
def test_a_start_like_its_baseline_is_no_regression(samples: list[float]) -> None:
    ledgers = [taking(sample) for sample in samples]
    assert not [entry for entry in regressions(baseline_of("llama", ledgers), ledgers) if entry.slower]


@pytest.mark.parametrize(("now", "slower"), [(22.0, False), (26.0, True), (5.0, False)])
def test_slower_means_beyond_three_deviations_and_a_tenth(now: float, slower: bool) -> None:  # noqa: FBT001 - a column of the table
    baseline = baseline_of("llama", [taking(sample) for sample in (20.0, 20.5, 19.5, 21.0, 20.2)])
    (entry,) = regressions(baseline, [taking(now)])
    assert entry.slower is slower
    assert entry.noise_s == pytest.approx(max(3 * 1.4826 * 0.5, 2.02), abs=0.3)


def test_a_baseline_survives_its_file(tmp_path: Path) -> None:
    baseline = baseline_of("llama", [taking(20.0), taking(21.5)])
    write(baseline, tmp_path / "baseline.json")
    assert read(tmp_path / "baseline.json") == baseline


@pytest.mark.parametrize(
    ("content", "why"),
    [
        ("{", "is not JSON"),
        ("{}", "is not a baseline of format 1"),
        ('{"format": 1, "phases": {"engin": [1], "pull": ["x"]}}', "is not a list of a phase"),
    ],
)
def test_a_file_that_is_no_baseline_is_bad_input(tmp_path: Path, content: str, why: str) -> None:
    (tmp_path / "b.json").write_text(content)
    with pytest.raises(BadInput, match=why):
        read(tmp_path / "b.json")


def test_regress_fails_when_a_phase_is_slower(tmp_path: Path) -> None:
    baseline = str(tmp_path / "baseline.json")
    assert run(["regress", "--baseline", baseline, "--write", "--from", str(CASES / "image-present")]) == 0
    assert run(["regress", "--baseline", baseline, "--from", str(CASES / "image-present")]) == 0
    assert run(["regress", "--baseline", baseline, "--from", str(CASES / "fresh-node")]) == 1
    shown = CliRunner().invoke(cli, ["regress", "--baseline", baseline, "--from", str(CASES / "fresh-node"), "--json"])
    assert json.loads(shown.stdout)["slower"] == ["node", "pull", "start", "engine"]
    assert run(["regress", "--baseline", str(tmp_path / "none.json"), "--from", str(CASES / "fresh-node")]) == 2
    assert run(["regress", "--baseline", baseline, "--from", str(CASES / "never-scheduled")]) == 1


CONFIG = {
    "compile_cache": {"uri": "s3://b/c/"},
    "warmup": {"prompt_tokens": [16, 1024], "batch_sizes": [1, 2], "window": 5, "cap_s": 60},
    "weights": {"paths": [{"engine_args": ["s3://b/m/", "--model-loader-extra-config", '{"distributed": true}']}]},
}
DEPLOYMENT = {
    "metadata": {"name": "llama", "namespace": "llama"},
    "spec": {
        "template": {
            "metadata": {"labels": {"coldstart/model": "llama"}},
            "spec": {
                "containers": [
                    {
                        "name": "engine",
                        "command": [
                            "python3",
                            "launch.py",
                            "--",
                            "vllm",
                            "serve",
                            "{weights}",
                            "--cudagraph-capture-sizes",
                            "1",
                            "2",
                            "--port",
                            "8000",
                        ],
                        "env": [{"name": "VLLM_ENABLE_STARTUP_PLAN", "value": "1"}],
                    }
                ],
                "volumes": [{"name": "launcher", "configMap": {"name": "llama-abc"}}],
            },
        }
    },
}
CONFIG_MAP = {"metadata": {"name": "llama-abc"}, "data": {"launcher.json": json.dumps(CONFIG), "launch.py": "x"}}


@pytest.mark.parametrize("lever", LEVERS)
def test_a_side_differs_by_its_lever_alone_and_takes_no_traffic(lever: str) -> None:
    sides = {side: variant(DEPLOYMENT, CONFIG_MAP, lever, side) for side in ("off", "on")}
    for side, (config_map, deployment) in sides.items():
        name = f"llama-ab-{side}"
        assert deployment["spec"]["selector"]["matchLabels"] == {"coldstart/model": name}
        template = deployment["spec"]["template"]
        assert template["metadata"]["labels"]["coldstart/model"] == name
        assert template["spec"]["volumes"][0]["configMap"]["name"] == config_map["metadata"]["name"] == name
    on_map, on = sides["on"]
    assert json.loads(on_map["data"]["launcher.json"]) == CONFIG
    assert on["spec"]["template"]["spec"]["containers"] == DEPLOYMENT["spec"]["template"]["spec"]["containers"]  # type: ignore[index]
    off_map, off = sides["off"]
    changed = json.loads(off_map["data"]["launcher.json"]) != CONFIG
    assert changed or off["spec"]["template"]["spec"]["containers"] != on["spec"]["template"]["spec"]["containers"]


def test_eager_captures_nothing() -> None:
    _, off = variant(DEPLOYMENT, CONFIG_MAP, "cuda-graphs", "off")
    command = off["spec"]["template"]["spec"]["containers"][0]["command"]
    assert command == ["python3", "launch.py", "--", "vllm", "serve", "{weights}", "--port", "8000", "--enforce-eager"]


def test_a_model_without_the_lever_is_refused() -> None:
    bare = {"metadata": {"name": "m"}, "data": {"launcher.json": json.dumps(CONFIG | {"compile_cache": None})}}
    with pytest.raises(BadInput, match="the model has no compile cache"):
        variant(DEPLOYMENT, bare, "compile-cache", "on")
