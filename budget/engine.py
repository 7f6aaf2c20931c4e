"""What the engine process does besides weights: start, compile and capture, and the first requests.

The reference is vLLM 0.10 on an A100 host with a warm compile cache (MLSys'26 vllm-startup-profiler): its steps grow
with layers or with gigabytes, and are CPU-bound, so a host's single-thread factor scales them.
"""

from __future__ import annotations

from budget.coefficients import Coefficients
from budget.estimate import Estimate, spread
from budget.host import cpu_factor
from budget.scenario import Scenario

AOT_SINCE = (0, 12)
"""From this vLLM release a compile-cache hit loads the whole compiled function, tracing included (vLLM source)."""
DUAL_GRAPHS_SINCE = (0, 12)
"""From this release the default captures full and piecewise graphs (`-O2`; vLLM source)."""
WARMUP_TOKENS = 16
"""Tokens of one warm-up request."""
MEMORY_BANDWIDTH_SHARE = 0.6
"""Share of a board's memory bandwidth that single-sequence decoding reaches."""


def start_phase(scenario: Scenario, coefficients: Coefficients) -> Estimate:
    """Container start, process start, imports, configuration, workers: no bytes of the model, all of it CPU.

    Nearly constant over models (10.2 s to the engine plus about 7 s that the engine's own log does not see).
    """
    slow = cpu_factor(scenario, coefficients)
    ranks = coefficients["start_s_per_doubling_of_ranks"] * _doublings(scenario.ranks) * slow
    process = coefficients["start_s"] * slow
    return spread(
        process + ranks,
        coefficients["spread_start"],
        bound_by="process start and imports, one core",
        detail={"process_s": round(process, 3), "workers_s": round(ranks, 3), "cpu_factor": slow},
    )


def _doublings(ranks: int) -> float:
    return float(max(0, ranks - 1).bit_length())


def engine_phase(scenario: Scenario, coefficients: Coefficients) -> Estimate:
    """Memory profiling, compile (or its cache), CUDA graph capture; under tensor parallelism the peer check."""
    parts = engine_parts(scenario, coefficients)
    total = sum(parts.values())
    longest = max(parts, key=lambda name: parts[name], default="none")
    return spread(
        total,
        _spread(scenario, coefficients),
        bound_by=_WORDS[longest].format(sizes=scenario.engine.capture_sizes, layers=scenario.model.layers),
        detail={f"{name}_s": round(seconds, 3) for name, seconds in parts.items()}
        | {"cpu_factor": cpu_factor(scenario, coefficients)},
    )


_WORDS = {
    "trace": "tracing {layers} layers on one core",
    "compile": "compiling {layers} layers: no compile cache",
    "cache": "loading {layers} layers' compiled graphs",
    "profile": "profiling memory for the KV cache",
    "capture": "capturing {sizes} CUDA graph sizes over {layers} layers",
    "peers": "checking which GPUs reach each other",
    "none": "nothing: no compile, no graphs, memory as planned before",
}


def engine_parts(scenario: Scenario, coefficients: Coefficients) -> dict[str, float]:
    """Seconds of each part; a part that a setting removes is absent."""
    engine, slow = scenario.engine, cpu_factor(scenario, coefficients)
    parts: dict[str, float] = {}
    if not engine.eager:
        parts |= _compiled(scenario, coefficients)
        parts["capture"] = _capture(scenario, coefficients)
    if not engine.startup_plan:
        gb = scenario.model.weights_bytes / 1e9 / scenario.ranks
        parts["profile"] = coefficients["profile_s"] + coefficients["profile_s_per_gb"] * gb
    scaled = {name: seconds * slow for name, seconds in parts.items()}
    if scenario.ranks > 1:
        scaled["peers"] = coefficients["peer_check_s_per_doubling"] * _doublings(scenario.ranks)
    return scaled


def _compiled(scenario: Scenario, coefficients: Coefficients) -> dict[str, float]:
    """Dynamo and the graph: both grow with depth, not with size (a 40-layer 4B takes longer than a 32-layer 7B)."""
    engine, layers = scenario.engine, scenario.model.layers
    trace = coefficients["trace_s"] + coefficients["trace_s_per_layer"] * layers
    cached = coefficients["graph_s"] + coefficients["graph_s_per_layer"] * layers
    if engine.compile_cache == "hit":
        if engine.version and engine.version >= AOT_SINCE:
            return {"cache": (trace + cached) * coefficients["aot_hit_share"]}
        return {"trace": trace, "cache": cached}
    return {"trace": trace, "compile": cached + coefficients["compile_s_per_layer"] * layers}


def _capture(scenario: Scenario, coefficients: Coefficients) -> float:
    engine = scenario.engine
    passes = 2 if engine.version and engine.version >= DUAL_GRAPHS_SINCE else 1
    work = engine.capture_sizes * scenario.model.layers * passes
    return coefficients["capture_s_per_size_and_layer"] * work


def _spread(scenario: Scenario, coefficients: Coefficients) -> float:
    """Wider for what the reference did not cover: a cold compile, several ranks, odd architectures."""
    factor = coefficients["spread_engine"]
    engine, facts = scenario.engine, scenario.model.facts
    if not engine.eager and engine.compile_cache != "hit":
        factor *= coefficients["spread_cold_compile"]
    if scenario.ranks > 1 or engine.version is not None:
        factor *= coefficients["spread_beyond_reference"]
    if facts is not None and facts.odd_architecture:
        factor *= coefficients["spread_odd_architecture"]
    return factor


def warmup_phase(scenario: Scenario, coefficients: Coefficients) -> Estimate:
    """Synthetic requests before Ready.

    A request decodes 16 tokens, each of which reads the active weights from GPU memory once. The first one also pays
    for kernels compiled on first use.
    """
    requests = scenario.warmup.requests
    if not requests:
        return spread(0.0, 1.0, bound_by="nothing to do")
    model, board = scenario.model, scenario.instance.board
    bandwidth = (board.memory_gb_s if board else 300.0) * 1e9 * MEMORY_BANDWIDTH_SHARE
    active = 1.0
    if model.facts is not None and model.facts.active_parameters:
        active = model.facts.active_parameters / model.facts.parameters
    token = model.weights_bytes * active / scenario.ranks / bandwidth + coefficients["token_overhead_s"]
    first = coefficients["first_request_s"] * cpu_factor(scenario, coefficients)
    each = WARMUP_TOKENS * token
    return spread(
        first + requests * each,
        coefficients["spread_warmup"],
        bound_by="first request: kernels compiled on first use" if first > requests * each else "decoding",
        detail={"first_request_s": round(first, 3), "request_s": round(each, 3), "requests": requests},
    )
