"""Does it fit? Known truths, and refusals with numbers and the nearest change."""

from __future__ import annotations

from dataclasses import replace

import pytest

from budget.coefficients import coefficients
from budget.disk import Disk
from budget.feasibility import feasibility, fits, gpu_memory_of
from budget.findings import Finding
from budget.instances import GIB, MIB, instance
from budget.memory import Serving, gpu_memory
from budget.models import model
from budget.scenario import HostCase, ImageCase, NodeCase, Scenario, WeightsCase
from budget.search import Wish, deployed

LLAMA_8B, LLAMA_70B = "meta-llama/Llama-3.1-8B-Instruct", "meta-llama/Llama-3.3-70B-Instruct"
IMAGE = ImageCase(bytes=9_612_695_005)

TRUTHS = [
    # model, instance, tensor parallel, context, fits, source
    (LLAMA_8B, "g6.2xlarge", 1, 8_192, True, "vLLM recipes: Llama 3.1 8B serves on one 24 GB GPU at short context"),
    (LLAMA_8B, "g5.2xlarge", 1, 4_096, True, "AWS blog: Llama 3 8B on g5.2xlarge with vLLM"),
    (LLAMA_8B, "g6.2xlarge", 1, 131_072, False, "vLLM error text on 24 GB: KV cache of 131,072 tokens is 16 GiB"),
    (LLAMA_8B, "g4dn.2xlarge", 1, 2_048, False, "16.1 GB of bf16 weights exceed a 16 GB T4"),
    (LLAMA_8B, "g4dn.12xlarge", 2, 2_048, True, "two T4 hold 8 GB of weights each"),
    (LLAMA_8B, "g6f.4xlarge", 1, 2_048, False, "half an L4 offers 11 GiB"),
    (LLAMA_70B, "g6e.12xlarge", 4, 8_192, True, "70B bf16 on four 48 GB L40S (AWS g6e launch post)"),
    (LLAMA_70B, "g6e.24xlarge", 2, 8_192, False, "141 GB over two 48 GB GPUs"),
    (LLAMA_70B, "p5.48xlarge", 2, 4_096, True, "vLLM recipes: 70B bf16 on two 80 GB GPUs, short context"),
    (LLAMA_70B, "p5.48xlarge", 1, 2_048, False, "141 GB on one 80 GB GPU"),
    (LLAMA_70B, "p4d.24xlarge", 4, 8_192, False, "four 40 GB A100 offer 144 GB at 0.9, weights alone take 141"),
    (LLAMA_70B, "p4d.24xlarge", 8, 8_192, True, "eight 40 GB A100 (AWS p4d)"),
    ("RedHatAI/Llama-3.3-70B-Instruct-FP8-dynamic", "g6e.12xlarge", 2, 8_192, True, "FP8 halves it: two 48 GB GPUs"),
    ("RedHatAI/Llama-3.3-70B-Instruct-FP8-dynamic", "p5.4xlarge", 1, 2_048, False, "72.7 GB in 72 GiB less graphs"),
    ("Qwen/Qwen2.5-72B-Instruct-AWQ", "p5.4xlarge", 1, 8_192, True, "Qwen: 72B AWQ on one 80 GB GPU"),
    ("Qwen/Qwen2.5-72B-Instruct-AWQ", "g6e.4xlarge", 1, 2_048, False, "41.6 GB of weights in 40 GiB at 0.9"),
    ("Qwen/Qwen3-235B-A22B-Instruct-2507", "p5.48xlarge", 8, 8_192, True, "Qwen: 235B bf16 on eight 80 GB GPUs"),
    ("Qwen/Qwen3-235B-A22B-Instruct-2507", "p5.48xlarge", 4, 8_192, False, "470 GB count, not the active 44"),
    ("openai/gpt-oss-120b", "p5.4xlarge", 1, 8_192, True, "OpenAI: gpt-oss-120b runs on one 80 GB GPU (MXFP4)"),
    ("openai/gpt-oss-120b", "g6e.4xlarge", 1, 2_048, False, "65 GB of weights on one 48 GB GPU"),
    ("openai/gpt-oss-20b", "g6.2xlarge", 1, 8_192, True, "OpenAI: gpt-oss-20b within 16 GB of weights"),
    ("Qwen/Qwen3-30B-A3B-Instruct-2507", "g6e.4xlarge", 1, 8_192, False, "61 GB of bf16 weights on one 48 GB GPU"),
    ("Qwen/Qwen3-30B-A3B-Instruct-2507-FP8", "g6e.4xlarge", 1, 8_192, True, "31 GB of FP8 weights on one 48 GB GPU"),
    ("deepseek-ai/DeepSeek-R1", "p5en.48xlarge", 8, 8_192, True, "DeepSeek: R1 in FP8 on eight H200"),
    ("deepseek-ai/DeepSeek-R1", "p5.48xlarge", 8, 8_192, False, "689 GB against 640 GB of eight H100"),
    ("google/gemma-3-27b-it", "p5.4xlarge", 1, 8_192, True, "Google: 54 GB in bf16, one 80 GB GPU"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "kind", "ranks", "context", "verdict", "source"), TRUTHS)
def test_known_truths(name: str, kind: str, ranks: int, context: int, verdict: bool, source: str) -> None:  # noqa: FBT001 - a row of the table
    serving = Serving(context=context, tensor_parallel=ranks)
    memory = gpu_memory(model(name), serving, gpu_memory_bytes=instance(kind).gpu_memory_bytes)
    assert memory.fits is verdict, source


def plan(name: str, kind: str, ranks: int = 1, context: int | None = None, **changes: object) -> Scenario:
    scenario = deployed(model(name), Wish(image=IMAGE, context=context), instance(kind), ranks)
    return replace(scenario, **changes)  # type: ignore[arg-type]


def found(scenario: Scenario) -> dict[str, Finding]:
    return {finding.code: finding for finding in feasibility(scenario, coefficients())}


def test_a_refusal_names_numbers_and_the_nearest_change() -> None:
    finding = found(plan(LLAMA_8B, "g6.2xlarge", context=131_072))["gpu-memory"]
    assert finding.level == "error"
    assert "15.0 GiB weights" in finding.message
    assert "16.0 GiB KV cache for 1 x 131,072 tokens" in finding.message
    assert "22.4 GiB x 0.9" in finding.message
    assert "a context of 30,720 tokens" in finding.fix


def test_more_ranks_are_offered_where_the_instance_has_them() -> None:
    assert "tensor_parallel 4" in found(plan(LLAMA_70B, "g6e.12xlarge", ranks=2))["gpu-memory"].fix


def test_another_instance_is_offered() -> None:
    fix = found(plan(LLAMA_8B, "g4dn.xlarge", context=4_096))["gpu-memory"].fix
    assert "g6.xlarge" in fix
    assert "$0.80/h" in fix


def test_the_offered_changes_do_fit() -> None:
    assert gpu_memory_of(plan(LLAMA_8B, "g6.2xlarge", context=30_720)).fits
    assert not gpu_memory_of(plan(LLAMA_8B, "g6.2xlarge", context=31_744)).fits


def test_full_streams_need_a_buffer_per_rank() -> None:
    scenario = plan(LLAMA_70B, "g6.24xlarge", ranks=4, weights=WeightsCase(distributed=False))
    tight = replace(scenario, host=HostCase(memory_bytes=128 * GIB))
    finding = found(tight)["host-memory"]
    assert "149.0 GiB streamer buffer" in finding.message  # 4 x 40 GB
    assert finding.level == "error"
    assert "g6.48xlarge" in finding.fix or "GB" in finding.fix


def test_distributed_streaming_is_offered_where_memory_is_short() -> None:
    weights = WeightsCase(distributed=False)
    finding = found(plan(LLAMA_70B, "g5.48xlarge", ranks=8, weights=weights)).get("host-memory")
    assert finding is None  # 768 GiB hold eight buffers of 40 GB
    scenario = plan(LLAMA_70B, "g5.24xlarge", ranks=4, weights=WeightsCase(distributed=False, memory_limit_bytes=-1))
    finding = found(scenario)["host-memory"]
    assert "distributed streaming" in finding.fix
    assert "GB" in finding.fix


def test_disk_holds_compressed_unpacked_and_caches() -> None:
    scenario = plan(LLAMA_8B, "g6.2xlarge", disk=Disk(kind="gp3"), disk_gib=30)
    finding = found(scenario)["disk-space"]
    assert "9.6 compressed + 18.7 unpacked" in finding.message
    assert "70 GiB" in finding.fix
    assert "disk-space" not in found(replace(scenario, disk_gib=70))


@pytest.mark.parametrize(
    ("name", "kind", "code", "level"),
    [
        ("RedHatAI/Llama-3.3-70B-Instruct-FP8-dynamic", "p4de.24xlarge", "fp8-weight-only", "warning"),
        ("RedHatAI/Llama-3.3-70B-Instruct-FP8-dynamic", "g4dn.12xlarge", "fp8-unsupported", "error"),
        ("openai/gpt-oss-20b", "g4dn.12xlarge", "mxfp4-unsupported", "error"),
        (LLAMA_8B, "g4dn.12xlarge", "no-bfloat16", "warning"),
    ],
)
def test_number_formats(name: str, kind: str, code: str, level: str) -> None:
    assert found(plan(name, kind))[code].level == level


@pytest.mark.parametrize("kind", ["g6e.12xlarge", "p5.48xlarge", "g7e.2xlarge"])
def test_fp8_runs_natively_from_ada_on(kind: str) -> None:
    codes = found(plan("Qwen/Qwen3-30B-A3B-Instruct-2507-FP8", kind))
    assert not {"fp8-weight-only", "fp8-unsupported"} & set(codes)


@pytest.mark.parametrize(
    ("kind", "driver", "cuda", "code"),
    [
        ("g7.2xlarge", 580, (13, 0), "driver-too-old"),
        ("g6e.2xlarge", 570, (13, 0), "driver-cuda"),
        ("g6f.4xlarge", 595, (13, 0), "driver-fractional"),
        ("p3dn.24xlarge", 580, (13, 0), "cuda-too-new"),
    ],
)
def test_drivers_and_cuda(kind: str, driver: int, cuda: tuple[int, int], code: str) -> None:
    scenario = plan("Qwen/Qwen2.5-0.5B-Instruct", kind, node=NodeCase(driver=driver), image=replace(IMAGE, cuda=cuda))
    assert found(scenario)[code].level == "error"
    assert not fits(feasibility(scenario, coefficients()))


def test_a_driver_that_is_right_is_no_finding() -> None:
    scenario = plan(LLAMA_8B, "g6e.2xlarge", node=NodeCase(driver=580), image=replace(IMAGE, cuda=(13, 0)))
    assert fits(feasibility(scenario, coefficients()))


def test_bare_numbers_are_judged_by_their_weights() -> None:
    scenario = plan(LLAMA_8B, "g6.2xlarge")
    bare = replace(scenario.model, facts=None)
    assert gpu_memory_of(replace(scenario, model=bare)).fits
    heavy = replace(bare, weights_bytes=40e9)
    finding = found(replace(scenario, model=heavy))["gpu-memory"]
    assert "37.3 GiB weights" in finding.message


def test_usable_memory_is_the_apis_figure_times_utilization() -> None:
    memory = gpu_memory_of(plan(LLAMA_8B, "g6e.2xlarge"))
    assert memory.usable_bytes == int(45_776 * MIB * 0.9)
    assert memory.slack_bytes == memory.usable_bytes - memory.needed_bytes
    assert memory.weights_bytes / GIB == pytest.approx(14.96, abs=0.01)
