"""`coldstart plan` as a person and a machine meet it."""

from __future__ import annotations

import io
import json
import re
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import click
import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.console import Console

from budget.instances import instance
from budget.phases import PHASES
from budget.plan import plan_of
from budget.price import prices
from infra.specs import model_specs
from infra.stack_file import read
from scripts.cli import run
from scripts.figures import seconds
from scripts.plan import Amount, command
from scripts.plan_view import show
from scripts.scenario import parse
from scripts.waterfall import tick_words

SCENARIO: dict[str, Any] = {
    "instance": "g6e.4xlarge",
    "image": {"bytes": 10_778_000_000},
    "pull": {"snapshotter": "soci", "downloads": 20, "unpacks": 12, "chunk_bytes": 16_000_000, "decompressor": "igzip"},
    "model": {"weights_bytes": 15_000_000_000, "layers": 32, "parameters": 8_030_000_000},
}


@pytest.fixture
def scenario(tmp_path: Path) -> Path:
    path = tmp_path / "what-if.yaml"
    path.write_text(yaml.safe_dump(SCENARIO))
    return path


def answer(capsys: pytest.CaptureFixture[str], *arguments: str) -> Any:
    assert run(["plan", *arguments, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_the_contract_of_the_answer(capsys: pytest.CaptureFixture[str], scenario: Path) -> None:
    document = answer(capsys, "--scenario", str(scenario))
    assert [phase["phase"] for phase in document["phases"]] == list(PHASES)
    for phase in document["phases"]:
        assert phase["low_s"] <= phase["expected_s"] <= phase["high_s"]
        assert isinstance(phase["bound_by"], str)
        assert isinstance(phase["detail"], dict)
    total = sum(phase["expected_s"] for phase in document["phases"])
    assert document["total"]["expected_s"] == pytest.approx(total)
    assert document["fits"] is True
    assert {"code", "level", "message", "fix"} == set(document["findings"][0])
    assert document["cost"]["usd_per_hour"] > 3
    assert document["cost"]["usd_per_start"] > 0
    assert {"lever", "saves_s", "usd_per_hour"} <= set(document["levers"][0])


def test_the_answer_is_a_scenario_that_gives_it_again(
    capsys: pytest.CaptureFixture[str], scenario: Path, tmp_path: Path
) -> None:
    first = answer(capsys, "--scenario", str(scenario))
    again = tmp_path / "again.json"
    again.write_text(json.dumps(first["scenario"]))
    assert answer(capsys, "--scenario", str(again))["phases"] == first["phases"]


def test_an_engine_only_case_is_expressible(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """Local weights, A100, warm compile cache: start + weights + engine against a measured 44.95 s (llama2-7b)."""
    path = tmp_path / "llama2-7b.yaml"
    path.write_text(
        yaml.safe_dump(
            SCENARIO
            | {
                "instance": "p4d.24xlarge",
                "node": {"warm": True},
                "image": {"bytes": 10_000_000_000, "cached": True},
                "model": {"weights_bytes": 13_480_000_000, "layers": 32, "parameters": 6_740_000_000},
                "weights": {"path": "local", "source": "disk"},
                "engine": {"compile_cache": "hit", "eager": False, "capture_sizes": 67, "cpu_factor": 1.0},
            }
        )
    )
    phases = {phase["phase"]: phase["expected_s"] for phase in answer(capsys, "--scenario", str(path))["phases"]}
    assert phases["node"] == phases["pull"] == 0
    assert phases["start"] + phases["weights"] + phases["engine"] == pytest.approx(44.952, rel=0.07)


def test_people_see_phases_findings_and_levers(capsys: pytest.CaptureFixture[str], scenario: Path) -> None:
    assert run(["plan", "--scenario", str(scenario)]) == 0
    shown = capsys.readouterr().out
    for words in (*PHASES, "bound by", "It fits.", "per cold start", "Levers not pulled yet"):
        assert words in shown


def test_levers_shows_each_of_them(capsys: pytest.CaptureFixture[str], scenario: Path) -> None:
    levers = answer(capsys, "--scenario", str(scenario))["levers"]
    assert run(["plan", "--scenario", str(scenario), "--levers"]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert [lever["what"] for lever in levers if lever["what"] not in shown] == []
    assert "more with --levers" not in shown


def test_compare_puts_today_beside_it(capsys: pytest.CaptureFixture[str], scenario: Path) -> None:
    document = answer(capsys, "--scenario", str(scenario), "--compare", "today")
    assert document["compare"]["total"]["expected_s"] > document["total"]["expected_s"]
    assert document["compare"]["scenario"]["pull"]["snapshotter"] == "overlayfs"
    other = answer(capsys, "--scenario", str(scenario), "--compare", str(scenario))
    assert other["compare"]["total"] == other["total"]


def test_pictures_need_nothing_else(capsys: pytest.CaptureFixture[str], scenario: Path, tmp_path: Path) -> None:
    svg, html = tmp_path / "plan.svg", tmp_path / "plan.html"
    arguments = [
        "--scenario",
        str(scenario),
        "--compare",
        "today",
        "--slo-s",
        "150",
        "--svg",
        str(svg),
        "--html",
        str(html),
    ]
    assert run(["plan", *arguments]) == 0
    capsys.readouterr()
    picture = ET.fromstring(svg.read_text())  # noqa: S314 - its own picture
    words = " ".join("".join(element.itertext()) for element in picture.iter())
    for name in PHASES:
        assert name in words
    assert "objective" in words
    bars = [element for element in picture.iter("{http://www.w3.org/2000/svg}rect") if element.find("*") is not None]
    assert len(bars) == 2 * len(PHASES)
    page = html.read_text()
    assert "<svg" in page
    assert "Levers not pulled yet" in page
    assert "http" not in page.replace("http://www.w3.org/2000/svg", "")


def test_bars_follow_each_other(capsys: pytest.CaptureFixture[str], scenario: Path, tmp_path: Path) -> None:
    svg = tmp_path / "plan.svg"
    assert run(["plan", "--scenario", str(scenario), "--svg", str(svg)]) == 0
    capsys.readouterr()
    picture = ET.fromstring(svg.read_text())  # noqa: S314 - its own picture
    bars = [element for element in picture.iter("{http://www.w3.org/2000/svg}rect") if element.find("*") is not None]
    for before, after in pairwise(bars):
        end = float(before.attrib["x"]) + float(before.attrib["width"])
        assert float(after.attrib["x"]) == pytest.approx(end, abs=1.6)


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (0.04, "0.0 s"),
        (4.24, "4.2 s"),
        (58.4, "58 s"),
        (119, "119 s"),
        (312, "5 min 12 s"),
        (3599.4, "59 min 59 s"),
        (3599.6, "1 h 00 min"),
        (8860, "2 h 28 min"),
        (604_800, "168 h 00 min"),
    ],
)
def test_seconds_as_people_read_them(value: float, words: str) -> None:
    assert seconds(value) == words


@pytest.mark.parametrize(
    ("value", "words"),
    [(0, "0"), (0.5, "0.5 s"), (30, "30 s"), (300, "5 min"), (90, "1:30 min"), (7200, "2 h"), (5400, "1:30 h")],
)
def test_ticks(value: float, words: str) -> None:
    assert tick_words(value) == words


def test_the_search_marks_the_cheapest(capsys: pytest.CaptureFixture[str]) -> None:
    document = answer(capsys, "--model", "meta-llama/Llama-3.1-8B-Instruct", "--context", "8192", "--slo-s", "300")
    assert document["model"]["weights_bytes"] == 16_060_522_496
    rows = {row["instance"]: row for row in document["candidates"]}
    chosen = rows[document["cheapest_within_slo"]]
    assert chosen["fits"]
    assert chosen["total"]["expected_s"] <= 300
    cheaper = [row for row in rows.values() if row["fits"] and row["within_slo"] and row["usd_per_hour"]]
    assert all(row["usd_per_hour"] >= chosen["usd_per_hour"] - 0.02 for row in cheaper)
    refused = rows["g4dn.xlarge"]
    assert not refused["fits"]
    assert refused["findings"][0]["fix"]


def test_the_search_for_people(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["plan", "--model", "openai/gpt-oss-120b", "--sort", "cold-start"]) == 0
    shown = capsys.readouterr().out
    assert "p5.4xlarge" in shown
    assert "types do not fit" in shown


def test_a_stack_is_planned_as_configured(capsys: pytest.CaptureFixture[str]) -> None:
    document = answer(capsys, "dev-llama-3-1-8b")
    assert document["scenario"]["instance"] == "g6e.2xlarge"
    assert any(item["item"].startswith("environment: EKS") for item in document["cost"]["items"])


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], "nothing to plan"),
        (["dev-llama-3-1-8b", "--model", "x/y"], "2 things to plan"),
        (["dev"], "is an environment"),
        (["dev-lama"], "dev-llama-3-1-8b"),
        (["--model", "not a model"], "is not a model"),
        (["--model", "meta-llama/Llama-3.1-8B-Instruct", "--context", "1000000"], "ends at 131,072 tokens"),
        (["--scenario", "/nowhere.yaml"], "cannot be read"),
        (["--model", "/nowhere.json"], "cannot be read"),
    ],
)
def test_bad_input_is_a_message_and_two(
    capsys: pytest.CaptureFixture[str], arguments: Sequence[str], words: str
) -> None:
    assert run(["plan", *arguments]) == 2
    captured = capsys.readouterr()
    assert words in captured.err
    assert "Traceback" not in captured.err
    assert not captured.out


def test_check_turns_a_verdict_into_an_exit_code(scenario: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["plan", "--scenario", str(scenario), "--slo-s", "5", "--json"]) == 0
    assert run(["plan", "--scenario", str(scenario), "--slo-s", "5", "--json", "--check"]) == 1
    assert run(["plan", "--scenario", str(scenario), "--slo-s", "5000", "--json", "--check"]) == 0
    assert capsys.readouterr().out


def test_every_mistake_of_a_scenario_is_told_at_once(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = tmp_path / "bad.yaml"
    wrong = SCENARIO | {"instance": "m7i.large", "image": {"bytes": -5, "layers": [1]}, "wamup": {}}
    path.write_text(yaml.safe_dump(wrong | {"model": SCENARIO["model"] | {"tensor_parallel": 3}}))
    assert run(["plan", "--scenario", str(path), "--json"]) == 2
    told = capsys.readouterr().err
    for where in ("instance:", "image.bytes:", "wamup:", "model.tensor_parallel:"):
        assert where in told


def test_a_picture_that_cannot_be_written(capsys: pytest.CaptureFixture[str], scenario: Path, tmp_path: Path) -> None:
    assert run(["plan", "--scenario", str(scenario), "--svg", str(tmp_path / "no" / "plan.svg")]) == 2
    assert "cannot be written" in capsys.readouterr().err


# --- what nobody should be misled by ----------------------------------------------------------------------------------

LLAMA = "meta-llama/Llama-3.1-8B-Instruct"
AMOUNTS = (
    "--slo-s",
    "--image-bytes",
    "--usd-per-hour",
    "--idle-tail-s",
    "--breach-usd",
    "--hours-per-month",
    "--starts-per-month",
)


def test_every_number_that_plan_takes_has_bounds() -> None:
    for parameter in command.params:
        if isinstance(parameter.type, click.types.FloatParamType):
            assert parameter.opts[0] in AMOUNTS
            assert isinstance(parameter.type, Amount)
            assert parameter.type.min is not None
            assert parameter.type.max is not None
            assert parameter.type.max <= 1e12


@pytest.mark.parametrize("option", AMOUNTS)
@pytest.mark.parametrize("value", ["nan", "-nan", "inf", "-inf", "1e308", "-1", "much"])
def test_a_number_that_makes_no_sense_is_refused_in_words(
    capsys: pytest.CaptureFixture[str], scenario: Path, option: str, value: str
) -> None:
    assert run(["plan", "--scenario", str(scenario), f"{option}={value}"]) == 2
    captured = capsys.readouterr()
    assert option in captured.err
    assert "Traceback" not in captured.err
    assert not captured.out


@pytest.mark.parametrize(
    ("subject", "options", "names"),
    [
        (["dev-llama-3-1-8b"], ["--context", "999999", "--check"], ["--context"]),
        (
            ["dev-llama-3-1-8b"],
            ["--sort", "cost", "--image-bytes", "1e9", "--concurrency", "1", "--purchase", "on-demand"],
            ["--sort", "--image-bytes", "--concurrency", "--purchase"],
        ),
        (["--scenario", "X"], ["--context", "8", "--sort", "cold-start"], ["--context", "--sort"]),
        (["--model", LLAMA], ["--compare", "today", "--levers", "--svg", "x.svg"], ["--compare", "--levers", "--svg"]),
        (["dev-llama-3-1-8b"], ["--calibrate", "a.json", "--slo-s", "5"], ["--slo-s"]),
    ],
)
def test_an_option_without_effect_is_refused_even_at_its_default(
    capsys: pytest.CaptureFixture[str], scenario: Path, subject: list[str], options: list[str], names: list[str]
) -> None:
    arguments = [str(scenario) if each == "X" else each for each in subject]
    assert run(["plan", *arguments, *options]) == 2
    captured = capsys.readouterr()
    refused = [line for line in captured.err.splitlines() if "has no effect with" in line]
    assert sorted(line.split(":")[1].strip() for line in refused) == sorted(names)
    assert not captured.out


def test_a_plan_that_does_not_fit_is_an_answer_not_an_error(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = tmp_path / "large.yaml"
    path.write_text(yaml.safe_dump(SCENARIO | {"model": {"name": "meta-llama/Llama-3.3-70B-Instruct"}}))
    assert run(["plan", "--scenario", str(path)]) == 0
    shown = capsys.readouterr()
    assert "It does not fit." in shown.out
    assert "does not fit: each GPU needs" in shown.out
    assert "error" not in shown.out + shown.err
    assert "Room for" not in shown.out
    assert run(["plan", "--scenario", str(path), "--check"]) == 1


def test_check_of_a_search(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["plan", "--model", LLAMA, "--slo-s", "1", "--check", "--json"]) == 1
    assert run(["plan", "--model", LLAMA, "--check", "--json"]) == 0
    assert capsys.readouterr().out


def test_dollars_say_what_they_contain(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "300")
    cost = answer(capsys, "dev-llama-3-1-8b")["cost"]
    assert run(["plan", "dev-llama-3-1-8b"]) == 0
    lines = capsys.readouterr().out.splitlines()
    hour = next(line for line in lines if " per hour: " in line)
    assert f"${cost['node_usd_per_hour']:.3f} for the node" in hour
    assert f"${cost['around_usd_per_hour']:.3f} for the environment" in hour
    assert f"list prices of {prices().region}, {instance('g6e.2xlarge').priced_on}" in hour
    assert_parts(hour)
    start = next(line for line in lines if " per cold start: " in line)
    assert "node time" in start
    assert "idle tail" in start
    assert "through NAT" in start
    assert_parts(start)


def assert_parts(line: str) -> None:
    total, *parts = (float(figure) for figure in re.findall(r"\$(\d+\.\d+)", line))
    assert sum(parts) == pytest.approx(total, abs=0.0025)


def test_the_month_is_shown_when_it_is_asked_for(capsys: pytest.CaptureFixture[str], scenario: Path) -> None:
    assert run(["plan", "--scenario", str(scenario), "--hours-per-month", "200", "--starts-per-month", "20"]) == 0
    assert "per month of 200 h and 20 cold starts" in " ".join(capsys.readouterr().out.split())


def test_the_first_start_is_as_long_as_the_pod_may_take(capsys: pytest.CaptureFixture[str]) -> None:
    """What `render` shows as the slowest start, and the probes count with."""
    stack = read("dev-llama-3-1-8b")
    assert stack.model is not None
    slowest_s = model_specs(stack, stack.model).slowest_start_s
    assert answer(capsys, stack.name)["first_start_high_s"] == pytest.approx(slowest_s)
    assert run(["plan", stack.name]) == 0
    assert f"first start on a new image or model compiles: up to {seconds(slowest_s)}" in " ".join(
        capsys.readouterr().out.split()
    )


def test_fits_says_how_much(capsys: pytest.CaptureFixture[str]) -> None:
    count = answer(capsys, "dev-llama-3-1-8b")["sequences_at_once"]
    assert count > 1
    assert run(["plan", "dev-llama-3-1-8b"]) == 0
    assert f"Room for {count} sequences of 8,192 tokens at once." in capsys.readouterr().out


@pytest.mark.parametrize("width", [60, 80, 120])
def test_no_figure_is_cut(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, width: int) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    assert run(["plan", "dev-llama-3-1-8b", "--levers"]) == 0
    shown = capsys.readouterr().out
    assert "…" not in shown
    assert all(len(line) <= width for line in shown.splitlines())
    head, *rows = shown[shown.index("phase ") :].splitlines()[: len(PHASES) + 1]
    assert head.split() == ["phase", "expected", "low", "-", "high"]
    assert [row.split()[0] for row in rows] == list(PHASES)
    assert run(["plan", "--model", LLAMA]) == 0
    found = capsys.readouterr().out
    assert "…" not in found
    assert {"$/h", "$/start", "instance"} <= set(found[found.index("instance") :].splitlines()[0].split())
    assert ("1 L4" in found) is (width >= 80)


@settings(max_examples=25, deadline=None)
@given(width=st.integers(50, 200), slow=st.floats(1, 1e6))
def test_a_bar_takes_only_what_the_figures_leave(width: int, slow: float) -> None:
    case = parse(SCENARIO | {"weights": {"path": "shared-fs", "shared_mb_s": 1e6 / slow}})
    out = io.StringIO()
    show(plan_of(case), Console(file=out, width=width))
    assert "…" not in out.getvalue()
