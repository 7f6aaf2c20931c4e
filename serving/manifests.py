"""Kubernetes objects of one model: a frozen spec in, plain objects out, each rendered, parsed back and complete."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from typing import Any, cast

import yaml
from jinja2 import Environment, PackageLoader, StrictUndefined

from budget.engine import WARMUP_TOKENS
from budget.memory import SHM_BYTES
from serving import fill_job, node_cache, spare
from serving.engine import (
    CACHE_ROOT,
    ENGINE_PORT,
    HOME,
    EngineSpec,
    arguments,
    capture_sizes,
    environment,
)
from serving.launcher import bundle
from serving.launcher.config import FORMAT
from serving.launcher.engine_api import HEALTH_TIMEOUT_S
from serving.placement import GPU_RESOURCE, GPU_TAINT, MODEL_LABEL
from serving.weights import WeightsSpec, claimed_volumes, launcher_paths, volumes

LAUNCHER_PORT = 8001
LAUNCHER_DIR = "/etc/coldstart"
PRE_STOP_S = 15
"""Endpoint removal reaches every kube-proxy well within this (vLLM's deployment documentation uses the same)."""
STARTUP_PERIOD_S = 5
PROBE_TIMEOUT_S = math.ceil(HEALTH_TIMEOUT_S) + 1
"""Longer than the launcher waits for the engine, or kubelet would kill a busy engine with its default of 1 s."""
MARGIN = 1.5
"""Over the budget's high value before a start counts as stuck."""
CACHE_LIMIT_BYTES = 20 * 2**30
COMPILE_ARTEFACTS = ("vllm/torch_compile_cache", "vllm/modelinfos", "vllm/deep_gemm", "triton")
"""Below the cache root. Not the start-up plan: one taken from a start that compiled freezes its smaller KV cache
(vllm#54122)."""
COMPILE_CACHE_BYTES = 4 * 2**30
STARTUP_FLOOR_S = 60
"""A small model is predicted to start within seconds, which a busy node's imports alone can exceed."""
SPARE_TOKENS = 64
"""Of the context, left free beside the longest warm-up prompt: for the output, and for what the tokenizer adds."""
WARMUP_PROMPT_TOKENS = (16, 1_024)
"""Beside the longest: the probe's own length, and that of an everyday prompt."""
WARMUP_BATCH = 64
"""Larger batches add nothing that a start must wait for."""
WARMUP_WINDOW, WARMUP_TOLERANCE = 5, 0.2
"""The engine is warm when the median of the last five probes is within a fifth of the best: two stragglers among them
don't matter."""
WARMUP_CAP_FLOOR_S = 30
"""Kernels that are compiled on first use took 25 s where nothing was cached (vllm#20264)."""
KILL_MARGIN_S = 10
"""Between the engine's own shutdown timeout and the launcher's SIGKILL, and between that and the kubelet's."""

Objects = Sequence[Mapping[str, Any]]


@dataclass(frozen=True, kw_only=True, slots=True)
class Phase:
    """Predicted seconds of one phase."""

    low_s: float
    expected_s: float
    high_s: float


@dataclass(frozen=True, kw_only=True, slots=True)
class Window:
    """A time with a minimum of replicas; cron fields."""

    start: str
    end: str
    timezone: str
    replicas: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Scaling:
    """Replicas and what moves them.

    Attributes:
        waiting_requests: per replica, above which one more is asked for.
        cooldown_s: quiet time before the minimum.
        stabilization_s: how long a lower demand must last before replicas go.
    """

    min_replicas: int
    max_replicas: int
    waiting_requests: int
    cooldown_s: int
    stabilization_s: int
    schedule: tuple[Window, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class CompileCacheSpec:
    """Where the engine's compile artefacts are kept.

    Attributes:
        uri: `s3://bucket/cache/ORG/NAME/`, which this model's role alone may write: archives hold code that runs.
        gpu: name of the GPU they were compiled for.
        max_restore_s: a restore that takes longer is given up; compiling would be faster.
    """

    uri: str
    gpu: str
    max_restore_s: int


@dataclass(frozen=True, kw_only=True, slots=True)
class ServingSpec:
    """What a pod runs and how it is reached.

    Attributes:
        name: of every object, and the name requests use.
        labels: more labels for every object.
        model: `ORG/NAME`.
        revision: 40-hex commit, or `unpinned`.
        image: engine image, by digest when pinned.
        instance: EC2 instance type, for the ledger.
        gpus: GPUs of one pod.
        cpu_millicores, memory_bytes: request; memory is the limit too.
        weights: how weights reach the engine.
        compile_cache: where compile artefacts are kept between pods; None keeps none.
        budget: phase → seconds; the phases a pod sees decide its probes.
        spare_replicas: places for replicas that are held ready, nodes with the image on them.
        pod_monitor: whether a Prometheus operator finds the pods.
        api_key_secret: name of the Secret with the key `apiKey`, or None.
    """

    name: str
    namespace: str
    labels: Mapping[str, str]
    model: str
    revision: str
    image: str
    instance: str
    engine: EngineSpec
    weights: WeightsSpec
    compile_cache: CompileCacheSpec | None
    gpus: int
    cpu_millicores: int
    memory_bytes: int
    budget: Mapping[str, Phase]
    scaling: Scaling
    spare_replicas: int
    pod_monitor: bool
    api_key_secret: str | None


def _members(mapping: Mapping[str, str]) -> str:
    return "\n".join(f"{json.dumps(key)}: {json.dumps(value)}" for key, value in mapping.items())


_TEMPLATES = Environment(
    loader=PackageLoader("serving"),
    undefined=StrictUndefined,
    autoescape=False,  # noqa: S701 - renders YAML whose values are dumped as JSON; HTML escaping would corrupt it
)
# YAML reads no surrogate halves, which JSON's escapes are made of beyond U+FFFF.
_TEMPLATES.filters["tojson"] = partial(json.dumps, ensure_ascii=False)
_TEMPLATES.filters["tojson_members"] = _members

ORDER = (
    "namespace",
    "service-account",
    "config-map",
    "service",
    "network-policy",
    "pod-disruption-budget",
    "deployment",
    "scaled-object",
)
"""Template of each object, in the order in which they are applied."""


def objects(spec: ServingSpec) -> Objects:
    """The Kubernetes objects of a model, in the order in which they are applied."""
    context = _context(spec)
    rendered = {name: cast("Mapping[str, Any]", _parsed(_render(name, context))) for name in ORDER}
    monitor = [cast("Mapping[str, Any]", _parsed(_render("pod-monitor", context)))] if spec.pod_monitor else []
    before = [rendered[name] for name in ORDER[: ORDER.index("deployment")]]
    after = [rendered[name] for name in ORDER[ORDER.index("deployment") :]]
    return [*before, *_storage(spec, context), *after, *_spare(spec, context), *monitor]


def _storage(spec: ServingSpec, context: Mapping[str, Any]) -> Objects:
    """What the weights paths need besides the pod: volumes, who prepares them, who fills them."""
    labels, selector = context["labels"], context["selector"]
    found: list[Mapping[str, Any]] = []
    if spec.weights.has("node-cache"):
        found += node_cache.objects(name=spec.name, image=spec.image, labels=labels, selector=selector)
    found += claimed_volumes(spec.weights, name=spec.name, namespace=spec.namespace, labels=labels)
    if spec.weights.has("shared-fs"):
        found.append(
            fill_job.job(
                spec.weights,
                name=spec.name,
                namespace=spec.namespace,
                image=spec.image,
                config_map=context["config_name"],
                launcher_dir=LAUNCHER_DIR,
                environment=environment(spec.engine),
                labels={key: value for key, value in labels.items() if key not in selector},
            )
        )
    return found


def _spare(spec: ServingSpec, context: Mapping[str, Any]) -> Objects:
    if not spec.spare_replicas:
        return []
    return spare.objects(
        name=spec.name,
        namespace=spec.namespace,
        image=spec.image,
        replicas=spec.spare_replicas,
        gpus=context["gpus"],
        labels=context["labels"],
        selector=context["selector"],
    )


def startup_seconds(spec: ServingSpec) -> int:
    """How long a container may take until it is warm before it counts as stuck: the budget's high and a margin."""
    high_s = sum(phase.high_s for name, phase in spec.budget.items() if name not in ("node", "pull"))
    return max(STARTUP_FLOOR_S, math.ceil(high_s * MARGIN))


def launcher_config(spec: ServingSpec) -> Mapping[str, Any]:
    """What the launcher is told, as its configuration file holds it."""
    engine = spec.engine
    return {
        "format": FORMAT,
        "port": LAUNCHER_PORT,
        "engine_port": ENGINE_PORT,
        "labels": {
            "model": spec.model,
            "revision": spec.revision,
            "instance": spec.instance,
            "image": spec.image.rpartition("@")[2],
        },
        "served_model_name": spec.name,
        "gpus": spec.gpus,
        "budget": {
            name: {
                "low_s": round(phase.low_s, 1),
                "expected_s": round(phase.expected_s, 1),
                "high_s": round(phase.high_s, 1),
            }
            for name, phase in spec.budget.items()
        },
        "weights": {"paths": list(launcher_paths(spec.weights, engine))},
        "warmup": _warmup(spec),
        "answer": {"manifest": spec.weights.manifest_uri} if spec.weights.needs_bucket else None,
        "compile_cache": _compile_cache(spec),
        "drain": {"timeout_s": engine.shutdown_timeout_s + KILL_MARGIN_S},
    }


def _warmup(spec: ServingSpec) -> Mapping[str, Any]:
    engine = spec.engine
    longest = engine.context_tokens - SPARE_TOKENS
    batches = [size for size in capture_sizes(engine.concurrency) if size <= WARMUP_BATCH]
    return {
        "prompt_tokens": sorted({*(min(size, longest) for size in WARMUP_PROMPT_TOKENS), longest}),
        "batch_sizes": [1] if engine.eager else batches,
        "output_tokens": WARMUP_TOKENS,
        "completion": True,
        "chat": True,
        "stream": True,
        "window": WARMUP_WINDOW,
        "tolerance": WARMUP_TOLERANCE,
        "cap_s": max(WARMUP_CAP_FLOOR_S, math.ceil(spec.budget["warmup"].high_s * MARGIN)),
    }


def _compile_cache(spec: ServingSpec) -> Mapping[str, Any] | None:
    if spec.compile_cache is None:
        return None
    return {
        "uri": spec.compile_cache.uri,
        "key": {
            "image": spec.image.rpartition("@")[2],
            "gpu": spec.compile_cache.gpu,
            "model": spec.engine.weights_uri,
        },
        "root": CACHE_ROOT,
        "include": list(COMPILE_ARTEFACTS),
        "max_restore_s": spec.compile_cache.max_restore_s,
        "max_bytes": COMPILE_CACHE_BYTES,
    }


@cache
def launcher_source() -> str:
    """The launcher as it is shipped: one file."""
    return bundle.source()


def _parsed(text: str) -> object:
    """A rendered object, read back by libyaml: the launcher's text takes Python's own parser seven times as long."""
    return yaml.load(text, Loader=yaml.CSafeLoader)


def _render(name: str, context: Mapping[str, Any]) -> str:
    return _TEMPLATES.get_template(f"{name}.yaml.j2").render(context)


def _context(spec: ServingSpec) -> Mapping[str, Any]:
    config, source = json.dumps(launcher_config(spec), indent=2), launcher_source()
    startup_s = startup_seconds(spec)
    drain_s = spec.engine.shutdown_timeout_s + KILL_MARGIN_S
    selector = {MODEL_LABEL: spec.name}
    gpus = {GPU_RESOURCE: str(spec.gpus)}
    memory = {"memory": _mebibytes(spec.memory_bytes)}
    weight_volumes, weight_mounts = volumes(spec.weights, spec.name)
    return {
        "spec": spec,
        "labels": {"app.kubernetes.io/name": spec.name, "app.kubernetes.io/managed-by": "coldstart"}
        | dict(spec.labels)
        | selector,
        "selector": selector,
        "toleration": GPU_TAINT.toleration(),
        "config_name": f"{spec.name}-{hashlib.sha256((config + source).encode()).hexdigest()[:10]}",
        "launcher_source": source,
        "launcher_config": config,
        "launcher_dir": LAUNCHER_DIR,
        "launcher_port": LAUNCHER_PORT,
        "engine_port": ENGINE_PORT,
        "command": [
            "python3",
            f"{LAUNCHER_DIR}/launch.py",
            "--config",
            f"{LAUNCHER_DIR}/launcher.json",
            "--",
            *arguments(spec.engine),
        ],
        "environment": sorted(environment(spec.engine).items()),
        "gpus": gpus,
        "weight_volumes": weight_volumes,
        "weight_mounts": weight_mounts,
        "requests": {"cpu": f"{spec.cpu_millicores}m"} | memory | gpus,
        "limits": memory | gpus,
        "startup_period_s": STARTUP_PERIOD_S,
        "probe_timeout_s": PROBE_TIMEOUT_S,
        "startup_failures": math.ceil(startup_s / STARTUP_PERIOD_S),
        "progress_deadline_s": _progress_deadline_s(spec, startup_s),
        "pre_stop_s": PRE_STOP_S,
        "grace_s": PRE_STOP_S + drain_s + KILL_MARGIN_S,
        **_rollout(spec.scaling),
        "cache_root": CACHE_ROOT,
        "cache_limit": _mebibytes(CACHE_LIMIT_BYTES),
        "home": HOME,
        "shm_limit": _mebibytes(SHM_BYTES),
    }


def _rollout(scaling: Scaling) -> Mapping[str, int | str]:
    """One replica more while there is room for it; a full node pool gives up one first.

    The new replica would otherwise wait for the very GPU that its predecessor holds. As a share that is rounded down:
    nothing while fewer replicas run than there is room for, one of them at the maximum.
    """
    if scaling.max_replicas <= max(1, scaling.min_replicas):
        return {"surge": 0, "unavailable": 1}
    return {"surge": 1, "unavailable": f"{math.ceil(100 / scaling.max_replicas)}%"}


def _progress_deadline_s(spec: ServingSpec, startup_s: int) -> int:
    before_container_s = sum(phase.high_s for name, phase in spec.budget.items() if name in ("node", "pull"))
    return startup_s + math.ceil(before_container_s * MARGIN)


def _mebibytes(size_bytes: int) -> str:
    return f"{math.ceil(size_bytes / 2**20)}Mi"
