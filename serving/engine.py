"""vLLM's command line and environment, by its version: what is known of each version is a table, not a condition."""

from __future__ import annotations

import difflib
import json
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

from budget.problems import Problem
from budget.streamer import LATEST, streamer_clients, streamer_release

ENGINE_PORT = 8000
CACHE_ROOT = "/cache"
HOME = "/home/vllm"
"""Home of the user `vllm` (2000:0) in the published images since 0.24."""
OLDEST = (0, 27, 1)
"""Older ones can serve corrupted weights when distributed (vllm#43464) or lose the compile cache (#47573)."""
FLAGS_OF = (0, 32)
"""Release whose options `engine_flags.txt` lists; a newer one may have options that no list here knows."""
STREAMER_RETRY_S = 120
"""Longest that one chunk is retried while S3 answers SlowDown: a bad minute passes, with as much again to spare.

The streamer's own default gives up after six tries."""

RESERVED_FLAGS: dict[str, str] = {
    "--model": "model.source",
    "--served-model-name": "the model's own name",
    "--load-format": "model.weights.path",
    "--model-loader-extra-config": "model.weights.distributed",
    "--port": "the rendering",
    "--host": "the rendering",
    "--tensor-parallel-size": "model.engine.tensor_parallel",
    "-tp": "model.engine.tensor_parallel",
    "--max-model-len": "model.engine.context_tokens",
    "--max-num-seqs": "model.engine.concurrency",
    "--gpu-memory-utilization": "model.engine.gpu_memory_utilization",
    "--enforce-eager": "model.profile",
    "--shutdown-timeout": "the rendering",
    "--api-key": "model.engine.require_api_key",
    "--cudagraph-capture-sizes": "model.engine.concurrency",
    "--max-cudagraph-capture-size": "model.engine.concurrency",
    "--trust-remote-code": "model.weights.trust_remote_code",
    "--config": "the settings, one by one",
    "--data-parallel-size": "nothing: a replica is one pod, and KEDA adds pods",
    "-dp": "nothing: a replica is one pod, and KEDA adds pods",
    "--pipeline-parallel-size": "nothing: a replica is one node",
    "-pp": "nothing: a replica is one node",
    "--enable-sleep-mode": "nothing: its endpoints are unauthenticated",
}
"""Flags that a setting owns → that setting."""


@dataclass(frozen=True, kw_only=True, slots=True)
class EngineSpec:
    """What vLLM is started with.

    Attributes:
        version: vLLM release, as numbers.
        weights_uri: `s3://bucket/prefix/` of the staged revision.
        region: of the bucket.
        network_gbps: sustained bandwidth of the node, which the streamer's clients share.
        streamer_memory_bytes: host memory of the streamer, per node when distributed, else per rank.
    """

    version: tuple[int, int, int]
    weights_uri: str
    region: str
    served_name: str
    tensor_parallel: int
    context_tokens: int
    concurrency: int
    gpu_memory_utilization: float
    eager: bool
    distributed: bool
    network_gbps: float
    streamer_memory_bytes: int
    trust_remote_code: bool
    startup_plan: bool
    shutdown_timeout_s: int
    args: tuple[str, ...]


def capture_sizes(concurrency: int) -> tuple[int, ...]:
    """Batch sizes worth a CUDA graph: powers of two up to the concurrency, and the concurrency itself.

    vLLM's default captures up to 67 sizes; each costs time on every start, cached or not.
    """
    powers = [2**n for n in range(int(math.log2(concurrency)) + 1)]
    return tuple(sorted({*powers, concurrency}))


def arguments(spec: EngineSpec) -> Sequence[str]:
    """The engine's command line; `{weights}` is where the launcher puts the arguments of the weights path in use."""
    graphs = (
        ["--enforce-eager"]
        if spec.eager
        else ["--cudagraph-capture-sizes", *(str(size) for size in capture_sizes(spec.concurrency))]
    )
    return [
        "vllm",
        "serve",
        "{weights}",
        "--served-model-name",
        spec.served_name,
        "--port",
        str(ENGINE_PORT),
        "--tensor-parallel-size",
        str(spec.tensor_parallel),
        "--max-model-len",
        str(spec.context_tokens),
        "--max-num-seqs",
        str(spec.concurrency),
        "--gpu-memory-utilization",
        f"{spec.gpu_memory_utilization:g}",
        "--shutdown-timeout",
        str(spec.shutdown_timeout_s),
        *graphs,
        *(["--trust-remote-code"] if spec.trust_remote_code else []),
        *spec.args,
    ]


def weights_arguments(spec: EngineSpec) -> Sequence[str]:
    """Arguments that make the engine stream its weights from the bucket."""
    distributed = ["--model-loader-extra-config", json.dumps({"distributed": True})] if spec.distributed else []
    return [spec.weights_uri, "--load-format", "runai_streamer", *distributed]


def environment(spec: EngineSpec) -> dict[str, str]:
    """The engine's environment. boto3 reads AWS_DEFAULT_REGION, the streamer's own client AWS_REGION: both are set."""
    renamed = streamer_release(spec.version) >= LATEST
    concurrency = "RUNAI_STREAMER_OBJ_CONCURRENCY" if renamed else "RUNAI_STREAMER_CONCURRENCY"
    return {
        "AWS_REGION": spec.region,
        "AWS_DEFAULT_REGION": spec.region,
        "AWS_EC2_METADATA_DISABLED": "true",
        "DO_NOT_TRACK": "1",
        "HF_HUB_OFFLINE": "1",
        "HOME": HOME,
        "NO_COLOR": "1",
        "PYTHONUNBUFFERED": "1",
        "RUNAI_STREAMER_LOG_TO_STDERR": "1",
        "RUNAI_STREAMER_LOG_LEVEL": "INFO",
        "RUNAI_STREAMER_MEMORY_LIMIT": str(spec.streamer_memory_bytes),
        "RUNAI_STREAMER_S3_TIMEOUT": str(STREAMER_RETRY_S),
        concurrency: str(clients(spec)),
        "TRITON_CACHE_DIR": f"{CACHE_ROOT}/triton",
        "VLLM_CACHE_ROOT": f"{CACHE_ROOT}/vllm",
        "VLLM_DISABLE_LOG_LOGO": "1",
        "VLLM_NO_USAGE_STATS": "1",
    } | ({"VLLM_ENABLE_STARTUP_PLAN": "1"} if spec.startup_plan else {})


def clients(spec: EngineSpec) -> int:
    """S3 clients of one streamer process."""
    return streamer_clients(spec.network_gbps, spec.tensor_parallel)


def refusals(version: tuple[int, int, int], args: Sequence[str], *, where: str = "model.engine") -> list[Problem]:
    """What is wrong with a version and the arguments a person added."""
    problems: list[Problem] = []
    if version < OLDEST:
        shown, oldest = (".".join(map(str, numbers)) for numbers in (version, OLDEST))
        problems.append(Problem(f"{where}.version", f"vLLM {shown} is too old", f"Use {oldest} or newer."))
    for index, arg in enumerate(args):
        place = f"{where}.args[{index}]"
        if not re.fullmatch(r"--?[A-Za-z][\w.-]*(=.*)?", arg, flags=re.DOTALL) or " " in arg.partition("=")[0]:
            problems.append(Problem(place, f"{arg!r} is no flag", "Write a flag and its value as one: --flag=value."))
        elif owner := _owner(arg):
            problems.append(Problem(place, f"{arg.partition('=')[0]} is set by {owner}", "Set that instead."))
        elif version[:2] <= FLAGS_OF and (plain := _spelled_out(arg)) not in known_flags():
            near = difflib.get_close_matches(plain, known_flags(), n=1)
            mend = f"Did you mean {near[0]}?" if near else "Take it out; `vllm serve --help=all` shows what there is."
            problems.append(Problem(place, f"vLLM has no flag {plain}", mend))
    return problems


@cache
def known_flags() -> frozenset[str]:
    """Every option of `vllm serve`, long and short."""
    lines = files("serving").joinpath("engine_flags.txt").read_text(encoding="utf-8").splitlines()
    return frozenset(line for line in lines if not line.startswith("#"))


def _spelled_out(arg: str) -> str:
    """An argument's flag as vLLM lists it: dashes for underscores, without value or member of a JSON option."""
    flag = arg.partition("=")[0].partition(".")[0]
    if re.fullmatch(r"-O\d?", flag):
        return "--optimization-level"  # which vLLM takes it for
    return "--" + flag[2:].replace("_", "-") if flag.startswith("--") else flag


def _owner(arg: str) -> str | None:
    """The setting that owns a flag, however it is spelled.

    vLLM takes underscores for dashes, members of a JSON option after a dot, the opposite of a flag, and any beginning
    of a flag that no other shares.
    """
    flag = arg.partition("=")[0]
    if not flag.startswith("--"):
        return RESERVED_FLAGS.get(flag)
    plain = "--" + flag[2:].replace("_", "-").partition(".")[0].removeprefix("no-")
    return next((owner for reserved, owner in RESERVED_FLAGS.items() if reserved.startswith(plain)), None)
