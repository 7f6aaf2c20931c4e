"""`make calibrate`: fits the machine factors on the calibration cases and prints how well they predict each one."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from csv import DictReader
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import yaml

from budget.calibration import (
    Accuracy,
    Case,
    Outcome,
    Steps,
    accuracy,
    engine_factors,
    fitted,
    outcomes,
    predicted,
)
from budget.coefficients import Coefficients, coefficients
from scripts.scenario import parse

ROOT = Path(__file__).parent.parent
CASES = ROOT / "tests" / "cases"
COEFFICIENTS = ROOT / "budget" / "coefficients.json"
REPORT = ROOT / "docs" / "accuracy.md"
LAB = CASES / "lab.json"
REFERENCE_CAPTURE_SIZES = 67

FITTED_ON: Mapping[str, tuple[str, ...]] = {
    "weights": ("s3_connection_mb_s", "s3_connection_exponent", "s3_network_share", "disk_stream_mb_s"),
    "pulls": ("typical_fat_share", "unpack_speed", "docker_hub_connection_mb_s"),
    "compile": ("compile_s_per_layer",),
}
"""Group of cases → the factors fitted on it. The engine's come from profiled steps, the unpack rates from the lab."""
UNPACKERS = ("igzip", "unpigz", "go", "zstd")


# --- cases ------------------------------------------------------------------------------------------------------------


def yaml_cases(name: str) -> list[Case]:
    """The cases of one YAML file of tests/cases."""
    entries = cast("list[dict[str, Any]]", yaml.safe_load((CASES / name).read_text(encoding="utf-8")))
    return [
        Case(
            name=entry["name"],
            group=entry["group"],
            fit=entry["use"] == "fit",
            phases=tuple(entry["compare"]),
            measured_s=float(entry["measured_s"]),
            source=entry["source"],
            scenario=parse(entry["scenario"]),
        )
        for entry in entries
    ]


def _rows(name: str) -> list[dict[str, str]]:
    lines = (CASES / name).read_text(encoding="utf-8").splitlines()
    return list(DictReader(line for line in lines if not line.startswith("#")))


def profiled_steps() -> list[Steps]:
    """The reference engine's steps per model."""
    return [
        Steps(
            model=row["model"],
            layers=int(row["layers"]),
            capture_sizes=REFERENCE_CAPTURE_SIZES,
            **{key: float(row[key]) for key in _STEP_COLUMNS},
        )
        for row in _rows("engine-steps.csv")
    ]


_STEP_COLUMNS = (
    "weights_gb", "load_s", "dynamo_s", "graph_s", "profile_s", "capture_s", "init_engine_s", "actual_s",
)  # fmt: skip


def engine_case(step: Steps) -> Case:
    """Process start to ready of one profiled model, as a scenario file would put it."""
    scenario = parse(
        {
            "instance": "p4d.24xlarge",
            "node": {"warm": True},
            "image": {"bytes": 1e10, "cached": True},
            "model": {
                "weights_bytes": step.weights_gb * 1e9,
                "layers": step.layers,
                "parameters": step.weights_gb / 2 * 1e9,
            },
            "weights": {"path": "local", "source": "disk"},
            "engine": {"compile_cache": "hit", "capture_sizes": step.capture_sizes, "cpu_factor": 1.0},
        }
    )
    return Case(
        name=f"{step.model} on A100",
        group="engine",
        fit=True,
        phases=("start", "weights", "engine"),
        measured_s=step.actual_s,
        source="vllm-startup-profiler (MLSys 2026): vLLM 0.10.1.1, local weights, warm compile cache",
        scenario=scenario,
    )


def lab_cases(lab: Mapping[str, Mapping[str, float]]) -> list[Case]:
    """The measured pulls, on the lab's host.

    Args:
        lab: decompressor → `unpack_layer_mb_s` and `unpack_cpu_s_per_gb` of that host.
    """
    return [_lab_case(row, lab) for row in _rows("pulls-measured.csv")]


def _lab_case(row: Mapping[str, str], lab: Mapping[str, Mapping[str, float]]) -> Case:
    unpacker = row["decompressor"]
    sizes = [int(size) for size in row["layers"].split()]
    scenario = parse(
        {
            "instance": "g6e.4xlarge",
            "node": {"warm": True},
            "image": {"bytes": sum(sizes), "layers": sizes, "unpack_ratio": float(row["unpack_ratio"])},
            "pull": {
                "snapshotter": row["snapshotter"],
                "downloads": int(row["downloads"]),
                "unpacks": int(row["unpacks"]),
                "chunk_bytes": float(row["chunk_bytes"]) if row["chunk_bytes"] else None,
                "discard": row["discard"] == "true",
                "decompressor": "igzip" if unpacker == "slow22" else unpacker,
            },
            "model": {"weights_bytes": 15e9, "layers": 32, "parameters": 8.03e9},
            "host": {
                "cores": float(row["cores"]),
                "memory_bytes": 24 * 2**30,
                "connection_mb_s": float(row["connection_mb_s"]),
                "network_mb_s": float(row["network_mb_s"]) if row["network_mb_s"] else 1e5,
                "disk_mb_s": float(row["disk_mb_s"]),
                "dirty_bytes": float(row["dirty_bytes"]) if row["dirty_bytes"] else None,
                **lab[unpacker],
            },
        }
    )
    return Case(
        name=f"{row['case']}",
        group="lab",
        fit=row["use"] == "fit",
        phases=("pull",),
        measured_s=float(row["measured_s"]),
        source="measured: containerd 2.2.9, soci-snapshotter 0.16.1, rate-limited registry, 2 cores",
        scenario=scenario,
    )


# --- fitting ----------------------------------------------------------------------------------------------------------


def lab_host(lab: Mapping[str, Mapping[str, float]], cases: Sequence[Case]) -> dict[str, dict[str, float]]:
    """Refits the lab host's unpack rates and CPU costs on the given cases, one decompressor after another."""
    found = {name: dict(values) for name, values in lab.items()}
    for unpacker in UNPACKERS:
        own = [case for case in cases if case.scenario.pull.decompressor == unpacker and case.fit]
        own = [case for case in own if case.scenario.host.unpack_layer_mb_s != lab["slow22"]["unpack_layer_mb_s"]]
        if own:
            found[unpacker] = _unpacker(own)
    return found


def _unpacker(cases: Sequence[Case]) -> dict[str, float]:
    """One decompressor's rate and CPU cost: the same fit as elsewhere, over a host instead of the shipped factors."""
    host = cases[0].scenario.host
    names = ("unpack_igzip_mb_s", "unpack_igzip_cpu_s_per_gb")
    start = coefficients().replaced(
        {
            "unpack_speed": 1.0,
            names[0]: host.unpack_layer_mb_s or 200.0,
            names[1]: host.unpack_cpu_s_per_gb or 6.0,
        }
    )
    bare = [
        replace(
            case,
            scenario=replace(
                case.scenario,
                host=replace(case.scenario.host, unpack_layer_mb_s=None, unpack_cpu_s_per_gb=None),
                pull=replace(case.scenario.pull, decompressor="igzip"),
            ),
        )
        for case in cases
    ]
    # One case cannot tell a rate from a CPU cost: the one that binds is fitted, the other stays as measured beside it.
    bound_by_cores = "cores" in predicted(bare[0], start).bound_by
    result = fitted(bare, names if len(cases) > 1 else names[bound_by_cores : 1 + bound_by_cores], start)
    return {"unpack_layer_mb_s": round(result[names[0]], 1), "unpack_cpu_s_per_gb": round(result[names[1]], 2)}


def calibrated() -> tuple[Coefficients, dict[str, dict[str, float]], list[Outcome]]:
    """Fits everything; returns the factors, the lab's host and every case's outcome."""
    shipped = coefficients()
    lab_before = cast("dict[str, dict[str, float]]", json.loads(LAB.read_text(encoding="utf-8"))["host"])
    lab = lab_host(lab_before, lab_cases(lab_before))
    factors = shipped.replaced(
        {
            **{f"unpack_{name}_mb_s": lab[name]["unpack_layer_mb_s"] for name in UNPACKERS},
            **{f"unpack_{name}_cpu_s_per_gb": lab[name]["unpack_cpu_s_per_gb"] for name in UNPACKERS},
        }
    )
    steps = profiled_steps()
    factors = factors.replaced(engine_factors(steps))
    grouped = {
        "weights": yaml_cases("weights.yaml"),
        "pulls": yaml_cases("pulls.yaml"),
        "compile": [case for case in yaml_cases("starts.yaml") if case.group == "compile"],
    }
    for group, cases in grouped.items():
        factors = fitted([case for case in cases if case.fit], FITTED_ON[group], factors)
    found = _engine_outcomes(steps, factors)
    for group, cases in grouped.items():
        found += outcomes(cases, factors, lambda kept, names=FITTED_ON[group]: fitted(kept, names, factors))
    whole = [case for case in yaml_cases("starts.yaml") if case.group == "starts"]
    found += outcomes(whole, factors, lambda _: factors)
    found += _lab_outcomes(lab, factors)
    return factors, lab, found


def _engine_outcomes(steps: Sequence[Steps], factors: Coefficients) -> list[Outcome]:
    found: list[Outcome] = []
    for step in steps:
        case = engine_case(step)
        without = factors.replaced(engine_factors([other for other in steps if other is not step]))
        found += outcomes([case], factors, lambda _, kept=without: kept)
    return found


def _lab_outcomes(lab: Mapping[str, Mapping[str, float]], factors: Coefficients) -> list[Outcome]:
    cases = lab_cases(lab)
    found: list[Outcome] = []
    for index, case in enumerate(cases):
        outcome = outcomes([replace(case, fit=False)], factors, lambda _: factors)[0]
        if case.fit:
            kept = [other for other in cases if other.fit and other is not case]
            again = lab_cases(lab_host(lab, kept))[index]
            left_out = outcomes([replace(again, fit=False)], factors, lambda _: factors)[0].estimate.expected_s
            outcome = replace(outcome, case=case, left_out_s=left_out)
        found.append(outcome)
    return found


# --- output -----------------------------------------------------------------------------------------------------------


def table(found: Sequence[Outcome]) -> str:
    """Every case in a Markdown table."""
    lines = [
        "| case | group | use | measured s | predicted s | error | left out | low-high | inside |",
        "| --- | --- | --- | ---: | ---: | ---: | ---: | ---: | --- |",
    ]
    lines += [
        f"| {each.case.name} | {each.case.group} | {'fit' if each.case.fit else 'check'} | {each.case.measured_s:.2f}"
        f" | {each.estimate.expected_s:.2f} | {each.error:+.1%} | "
        + ("-" if each.left_out_s is None else f"{each.left_out_error:+.1%}")
        + f" | {each.estimate.low_s:.2f}-{each.estimate.high_s:.2f} | {'yes' if each.inside else 'NO'} |"
        for each in found
    ]
    return "\n".join(lines)


def summary(found: Sequence[Outcome]) -> str:
    """Mean errors per group and over all."""
    groups = list(dict.fromkeys(each.case.group for each in found))
    rows = [(group, accuracy([each for each in found if each.case.group == group])) for group in groups]
    if published := [each for each in found if each.case.group != "lab"]:
        rows.append(("published (all but lab)", accuracy(published)))
    rows.append(("all", accuracy(found)))
    lines = [
        "| group | cases | mean absolute error | leave-one-out | inside low-high | mean band |",
        "| --- | ---: | ---: | ---: | ---: | ---: |",
    ]
    lines += [_summary_row(name, each) for name, each in rows]
    return "\n".join(lines)


TARGETS: tuple[tuple[str, str | None, float, float], ...] = (
    ("all published cases, most of them parts of a start", None, 0.10, 0.12),
    ("engine: process start to ready, eight models", "engine", 0.10, 0.12),
    ("weights alone", "weights", 0.10, 0.12),
    ("pulls of images whose layers nobody published", "pulls", 0.10, 0.12),
    ("cold and kept compiles", "compile", 0.10, 0.12),
    ("whole starts, node launch included", "starts", 0.10, 0.12),
    ("pulls measured in the lab, layers known", "lab", 0.10, 0.12),
)
"""Words, group (None: all but the lab), mean absolute error and that of left-out cases to be reached."""


def targets(found: Sequence[Outcome]) -> str:
    """What is aimed at and what was reached, group by group: a good mean over all hides a weak group."""
    lines = [
        "| cases | how many | mean error: target | reached | left out: target | reached | met |",
        "| --- | ---: | ---: | ---: | ---: | ---: | --- |",
    ]
    for words, group, error, left_out in TARGETS:
        cases = [each for each in found if (each.case.group == group if group else each.case.group != "lab")]
        if not cases:
            continue
        result = accuracy(cases)
        met = result.mean_error <= error and result.mean_left_out_error <= left_out
        lines.append(
            f"| {words} | {result.cases} | {error:.0%} | {result.mean_error:.1%} | {left_out:.0%} |"
            f" {result.mean_left_out_error:.1%} | {'yes' if met else 'NO'} |"
        )
    return "\n".join(lines)


def _summary_row(name: str, each: Accuracy) -> str:
    return (
        f"| {name} | {each.cases} | {each.mean_error:.1%} | {each.mean_left_out_error:.1%} | {each.inside:.0%} |"
        f" x/÷ {each.mean_width:.2f} |"
    )


MARK = "<!-- written by make calibrate from here on -->"


def write(factors: Coefficients, lab: Mapping[str, Mapping[str, float]], found: Sequence[Outcome]) -> None:
    """Stores fitted factors and the report; hand-written text before the mark stays."""
    document = cast("dict[str, Any]", json.loads(COEFFICIENTS.read_text(encoding="utf-8")))
    for name, entry in document["factors"].items():
        if entry["fitted"]:
            entry["value"] = float(f"{factors[name]:.5g}")
    COEFFICIENTS.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    host = cast("dict[str, Any]", json.loads(LAB.read_text(encoding="utf-8")))
    LAB.write_text(json.dumps({**host, "host": lab}, indent=1) + "\n", encoding="utf-8")
    intro = REPORT.read_text(encoding="utf-8").partition(MARK)[0] if REPORT.exists() else "# Accuracy\n\n"
    REPORT.write_text(f"{intro}{MARK}\n\n{report(found)}\n", encoding="utf-8")


def report(found: Sequence[Outcome]) -> str:
    """What `make calibrate` writes below the mark."""
    return f"## Targets, and what was reached\n\n{targets(found)}\n\n{summary(found)}\n\n{table(found)}"


def main(arguments: Sequence[str]) -> int:
    """Fits and prints; `--check` compares only and changes no file."""
    factors, lab, found = calibrated()
    sys.stdout.write(f"{report(found)}\n")
    if "--check" not in arguments:
        write(factors, lab, found)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
