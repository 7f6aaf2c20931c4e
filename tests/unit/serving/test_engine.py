"""vLLM's command line and environment: what is set, by which version, and what nobody may set beside it."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from budget.streamer import CLIENTS_MAX, CLIENTS_MIN
from serving.engine import (
    RESERVED_FLAGS,
    arguments,
    capture_sizes,
    clients,
    environment,
    refusals,
    weights_arguments,
)
from tests.unit.serving.made_specs import ENGINE as SPEC

# ---- command line ---------------------------------------------------------------------------------------------------


def test_the_whole_command_line() -> None:
    assert list(arguments(SPEC)) == [
        *("vllm", "serve", "{weights}"),
        *("--served-model-name", "llama"),
        *("--port", "8000"),
        *("--tensor-parallel-size", "1"),
        *("--max-model-len", "8192"),
        *("--max-num-seqs", "64"),
        *("--gpu-memory-utilization", "0.9"),
        *("--shutdown-timeout", "60"),
        *("--cudagraph-capture-sizes", "1", "2", "4", "8", "16", "32", "64"),
    ]


@given(
    eager=st.booleans(),
    trust=st.booleans(),
    concurrency=st.integers(1, 4096),
    args=st.lists(st.sampled_from(["--enable-prefix-caching", "--kv-cache-dtype=fp8", "--seed=1"]), max_size=3),
)
def test_the_place_of_the_weights_stands_exactly_once(
    *, eager: bool, trust: bool, concurrency: int, args: list[str]
) -> None:
    """The launcher refuses a command line in which it could put the weights nowhere, or twice."""
    command = arguments(replace(SPEC, eager=eager, trust_remote_code=trust, concurrency=concurrency, args=tuple(args)))
    assert list(command).count("{weights}") == 1
    assert sum("{weights}" in argument for argument in command) == 1
    assert list(command[-len(args) :] if args else []) == args
    assert all(isinstance(argument, str) for argument in command)


def test_eager_captures_no_graphs() -> None:
    command = arguments(replace(SPEC, eager=True))
    assert "--enforce-eager" in command
    assert "--cudagraph-capture-sizes" not in command


def test_remote_code_runs_only_where_it_is_trusted() -> None:
    assert "--trust-remote-code" not in arguments(SPEC)
    assert "--trust-remote-code" in arguments(replace(SPEC, trust_remote_code=True))


def test_utilization_is_written_without_noise() -> None:
    command = list(arguments(replace(SPEC, gpu_memory_utilization=0.1 + 0.2)))
    assert command[command.index("--gpu-memory-utilization") + 1] == "0.3"


def test_weights_are_streamed() -> None:
    assert list(weights_arguments(SPEC)) == [SPEC.weights_uri, "--load-format", "runai_streamer"]


def test_ranks_share_one_read_when_distributed() -> None:
    found = list(weights_arguments(replace(SPEC, distributed=True, tensor_parallel=4)))
    assert found[:4] == [SPEC.weights_uri, "--load-format", "runai_streamer", "--model-loader-extra-config"]
    assert json.loads(found[4]) == {"distributed": True}
    assert len(found) == 5


# ---- capture sizes --------------------------------------------------------------------------------------------------


@given(concurrency=st.integers(1, 4096))
def test_graphs_for_every_power_of_two_and_for_the_concurrency_itself(concurrency: int) -> None:
    sizes = capture_sizes(concurrency)
    assert list(sizes) == sorted(set(sizes))
    assert sizes[0] == 1
    assert sizes[-1] == concurrency
    assert all(size == concurrency or size & (size - 1) == 0 for size in sizes)
    assert all(after <= 2 * before for before, after in pairwise(sizes))
    # The engine's own default captures up to 67.
    assert len(sizes) <= 13


@pytest.mark.parametrize(
    ("concurrency", "sizes"),
    [(1, (1,)), (2, (1, 2)), (3, (1, 2, 3)), (64, (1, 2, 4, 8, 16, 32, 64)), (100, (1, 2, 4, 8, 16, 32, 64, 100))],
)
def test_known_capture_sizes(concurrency: int, sizes: tuple[int, ...]) -> None:
    assert capture_sizes(concurrency) == sizes


# ---- environment ----------------------------------------------------------------------------------------------------


def test_both_spellings_of_the_region_are_set() -> None:
    """boto3 lists the objects with one, the streamer's own client reads them with the other."""
    found = environment(SPEC)
    assert found["AWS_REGION"] == found["AWS_DEFAULT_REGION"] == "us-west-2"


def test_nothing_reaches_out_but_to_the_bucket() -> None:
    found = environment(SPEC)
    assert found["HF_HUB_OFFLINE"] == "1"
    assert found["VLLM_NO_USAGE_STATS"] == "1"
    assert found["DO_NOT_TRACK"] == "1"
    assert found["AWS_EC2_METADATA_DISABLED"] == "true"


def test_everything_that_is_written_lies_in_the_cache_or_at_home() -> None:
    """The root file system is read only."""
    found = environment(SPEC)
    assert found["HOME"] == "/home/vllm"
    assert {found["VLLM_CACHE_ROOT"], found["TRITON_CACHE_DIR"]} == {"/cache/vllm", "/cache/triton"}


def test_the_start_up_plan_is_used_only_where_asked_for() -> None:
    assert "VLLM_ENABLE_STARTUP_PLAN" not in environment(SPEC)
    assert environment(replace(SPEC, startup_plan=True))["VLLM_ENABLE_STARTUP_PLAN"] == "1"


def test_every_value_is_text() -> None:
    assert all(isinstance(key, str) and isinstance(value, str) for key, value in environment(SPEC).items())
    assert environment(SPEC)["RUNAI_STREAMER_MEMORY_LIMIT"] == str(16 * 2**30)


@pytest.mark.parametrize(
    ("version", "knob", "other"),
    [
        ((0, 27, 1), "RUNAI_STREAMER_CONCURRENCY", "RUNAI_STREAMER_OBJ_CONCURRENCY"),
        ((0, 32, 9), "RUNAI_STREAMER_CONCURRENCY", "RUNAI_STREAMER_OBJ_CONCURRENCY"),
        ((0, 33, 0), "RUNAI_STREAMER_OBJ_CONCURRENCY", "RUNAI_STREAMER_CONCURRENCY"),
        ((1, 0, 0), "RUNAI_STREAMER_OBJ_CONCURRENCY", "RUNAI_STREAMER_CONCURRENCY"),
    ],
)
def test_the_streamers_knob_goes_by_version(version: tuple[int, int, int], knob: str, other: str) -> None:
    """0.17 renamed it and reads the old name no more: the wrong one silently means the default."""
    found = environment(replace(SPEC, version=version))
    assert found[knob] == str(clients(SPEC))
    assert other not in found


@given(network=st.floats(0.5, 400), ranks=st.sampled_from([1, 2, 4, 8, 16]))
def test_clients_fill_a_ranks_share_of_the_network_within_bounds(network: float, ranks: int) -> None:
    found = clients(replace(SPEC, network_gbps=network, tensor_parallel=ranks))
    assert CLIENTS_MIN <= found <= CLIENTS_MAX
    if CLIENTS_MIN < found < CLIENTS_MAX:
        assert (found - 1) * 10 < network / ranks <= found * 10
    assert math.isfinite(found)


@pytest.mark.parametrize(("network", "ranks", "expected"), [(5, 1, 4), (100, 1, 10), (100, 4, 4), (400, 1, 16)])
def test_known_clients(network: float, ranks: int, expected: int) -> None:
    assert clients(replace(SPEC, network_gbps=network, tensor_parallel=ranks)) == expected


# ---- refusals -------------------------------------------------------------------------------------------------------


def words(*args: str, version: tuple[int, int, int] = (0, 27, 1)) -> list[str]:
    return [str(problem) for problem in refusals(version, args)]


def test_arguments_that_no_setting_owns_are_let_through() -> None:
    assert words("--enable-prefix-caching", "--kv-cache-dtype=fp8", "--max-num-batched-tokens=4096", "-O3") == []


@pytest.mark.parametrize("flag", sorted(RESERVED_FLAGS))
@pytest.mark.parametrize("value", ["", "=1"])
def test_what_a_setting_owns_is_refused_with_the_settings_name(flag: str, value: str) -> None:
    assert words(flag + value) == [f"model.engine.args[0]: {flag} is set by {RESERVED_FLAGS[flag]}. Set that instead."]


@pytest.mark.parametrize("setting", ["tensor_parallel", "context_tokens", "concurrency", "gpu_memory_utilization"])
def test_every_engine_setting_owns_a_flag(setting: str) -> None:
    assert f"model.engine.{setting}" in RESERVED_FLAGS.values()


@pytest.mark.parametrize(
    ("arg", "words_of_it"),
    [
        ("--enable-prefix-cachin", "vLLM has no flag --enable-prefix-cachin. Did you mean --enable-prefix-caching?"),
        ("--kv_cache_dtyp=fp8", "vLLM has no flag --kv-cache-dtyp. Did you mean --kv-cache-dtype?"),
        ("--qqq=1", "vLLM has no flag --qqq. Take it out; `vllm serve --help=all` shows what there is."),
        ("-z", "vLLM has no flag -z. Take it out; `vllm serve --help=all` shows what there is."),
    ],
)
def test_a_flag_that_vllm_does_not_have_is_refused(arg: str, words_of_it: str) -> None:
    assert words(arg) == [f"model.engine.args[0]: {words_of_it}"]


@pytest.mark.parametrize("arg", ["--kv_cache_dtype=fp8", "-cc.mode=3", "--speculative-config.method=ngram", "-O2"])
def test_every_spelling_of_a_flag_that_it_has_is_let_through(arg: str) -> None:
    assert words(arg) == []


def test_a_release_newer_than_the_list_may_have_more_flags() -> None:
    assert words("--brand-new=1", version=(0, 33, 0)) == []


def test_a_value_without_its_flag_is_refused() -> None:
    assert words("--seed", "1") == [
        "model.engine.args[1]: '1' is no flag. Write a flag and its value as one: --flag=value."
    ]


def test_every_problem_at_once_each_with_its_place() -> None:
    found = words("x", "--seed=1", "--port=9", version=(0, 20, 0))
    assert found == [
        "model.engine.version: vLLM 0.20.0 is too old. Use 0.27.1 or newer.",
        "model.engine.args[0]: 'x' is no flag. Write a flag and its value as one: --flag=value.",
        "model.engine.args[2]: --port is set by the rendering. Set that instead.",
    ]


@pytest.mark.parametrize("version", [(0, 27, 1), (0, 28, 0), (1, 0, 0)])
def test_new_enough(version: tuple[int, int, int]) -> None:
    assert words(version=version) == []


@pytest.mark.parametrize("version", [(0, 0, 0), (0, 27, 0), (0, 9, 9)])
def test_too_old(version: tuple[int, int, int]) -> None:
    shown = ".".join(map(str, version))
    assert words(version=version) == [f"model.engine.version: vLLM {shown} is too old. Use 0.27.1 or newer."]


SLIPS = {
    "underscores, which vLLM reads as dashes": "--max_model_len=4",
    "a secret by another spelling": "--api_key=sk-123",
    "a member of a JSON option": "--model-loader-extra-config.distributed=true",
    "the opposite of a flag": "--no-trust-remote-code",
    "a file of options": "--config=/cache/options.yaml",
    "GPUs nobody asked Kubernetes for": "--data-parallel-size=2",
    "their short name": "-dp=2",
    "stages nobody asked Kubernetes for": "--pipeline-parallel-size=2",
    "another short name": "-pp=2",
    "the end of options": "--",
    "a flag and its value as one word": "--max-model-len 4",
}


@pytest.mark.parametrize("arg", SLIPS.values(), ids=SLIPS.keys())
def test_no_spelling_slips_through(arg: str) -> None:
    assert words(arg) != []
