"""The Kubernetes objects of a model: valid, restricted, bounded by the budget, and understood by the launcher."""

from __future__ import annotations

import copy
import importlib.util
import json
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from types import ModuleType
from typing import Any

import kubernetes_validate
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from serving.engine import EngineSpec
from serving.launcher.engine_api import HEALTH_TIMEOUT_S
from serving.manifests import (
    CompileCacheSpec,
    Phase,
    Scaling,
    ServingSpec,
    Window,
    launcher_config,
    objects,
    startup_seconds,
)
from serving.placement import GPU_TAINT
from serving.weights import SharedFileSystem, WeightsSpec

VERSIONS = ("1.35", "1.36")
CUSTOM_KINDS = ("ScaledObject", "PodMonitor")
"""Custom resources: Kubernetes has no schema of them."""
KINDS = [
    "Namespace",
    "ServiceAccount",
    "ConfigMap",
    "Service",
    "NetworkPolicy",
    "PodDisruptionBudget",
    "Deployment",
    "ScaledObject",
]
BUDGET = {
    "node": Phase(low_s=40, expected_s=60, high_s=90),
    "pull": Phase(low_s=20, expected_s=30, high_s=60),
    "start": Phase(low_s=5, expected_s=8, high_s=12),
    "weights": Phase(low_s=10, expected_s=20, high_s=40),
    "engine": Phase(low_s=30, expected_s=60, high_s=100),
    "warmup": Phase(low_s=5, expected_s=10, high_s=28),
}
ENGINE = EngineSpec(
    version=(0, 27, 1),
    weights_uri="s3://bucket/models/org/name/rev/",
    region="us-west-2",
    served_name="llama",
    tensor_parallel=1,
    context_tokens=8192,
    concurrency=64,
    gpu_memory_utilization=0.9,
    eager=False,
    distributed=False,
    network_gbps=5.0,
    streamer_memory_bytes=2**34,
    trust_remote_code=False,
    startup_plan=False,
    shutdown_timeout_s=60,
    args=(),
)
WEIGHTS = WeightsSpec(
    order=("stream",),
    uri=ENGINE.weights_uri,
    manifest_uri="s3://bucket/manifests/org/name/rev.json",
    prefix="models/org/name/rev/",
    node_cache_bytes=2**37,
    shared_fs=None,
    directory="/weights",
    fill_timeout_s=60,
)
CACHE = CompileCacheSpec(uri="s3://bucket/cache/org/name/", gpu="L40S", max_restore_s=20)
SPEC = ServingSpec(
    name="llama",
    namespace="llama",
    labels={"coldstart/environment": "dev", "coldstart/stack": "dev-llama"},
    model="org/name",
    revision="a" * 40,
    image="123456789012.dkr.ecr.us-west-2.amazonaws.com/vllm:v0.27.1@sha256:" + "b" * 64,
    instance="g6e.2xlarge",
    engine=ENGINE,
    weights=WEIGHTS,
    compile_cache=None,
    gpus=1,
    time_sliced=False,
    cpu_millicores=5_950,
    memory_bytes=24 * 2**30,
    budget=BUDGET,
    scaling=Scaling(
        min_replicas=1, max_replicas=4, waiting_requests=4, cooldown_s=700, stabilization_s=700, schedule=()
    ),
    spare_replicas=0,
    pod_monitor=False,
    api_key_secret=None,
)
EVERYTHING = replace(
    SPEC,
    weights=replace(
        WEIGHTS,
        order=("node-cache", "shared-fs", "baked", "presharded", "stream"),
        shared_fs=SharedFileSystem(driver="efs.csi.aws.com", volume_handle="fs-0123456789abcdef0"),
    ),
    compile_cache=CACHE,
    spare_replicas=2,
    pod_monitor=True,
    api_key_secret="engine-api-key",  # noqa: S106 - a name
)
"""Every option at once: what one of them breaks shows here."""
WINDOW = Window(start="0 8 * * 1-5", end="0 18 * * 1-5", timezone="Europe/Berlin", replicas=2)


@pytest.fixture
def shipped() -> None:
    """The launcher's whole text."""


@pytest.fixture(autouse=True)
def short_launcher(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Reading the launcher's text back takes longer than all the rest; only the tests of it need it."""
    if "shipped" not in request.fixturenames:
        monkeypatch.setattr("serving.manifests.launcher_source", lambda: "raise SystemExit\n")


def by_kind(spec: ServingSpec = SPEC) -> dict[str, Any]:
    """The model's own objects; what comes with an option has another name."""
    return {manifest["kind"]: manifest for manifest in objects(spec) if spec.name in named_after(manifest)}


def named_after(manifest: Mapping[str, Any]) -> tuple[str, str]:
    """An object's name as it is, and without the hash of its content."""
    name: str = manifest["metadata"]["name"]
    return name, name.rpartition("-")[0] if manifest["kind"] == "ConfigMap" else name


def pod_of(spec: ServingSpec = SPEC) -> dict[str, Any]:
    return by_kind(spec)["Deployment"]["spec"]["template"]["spec"]


def container_of(spec: ServingSpec = SPEC) -> dict[str, Any]:
    (container,) = pod_of(spec)["containers"]
    return container


def scaled(**changes: Any) -> ServingSpec:
    return replace(SPEC, scaling=replace(SPEC.scaling, **changes))


def strings(value: object) -> Iterator[str]:
    match value:
        case dict():
            for key, item in value.items():
                yield from strings(key)
                yield from strings(item)
        case list():
            for item in value:
                yield from strings(item)
        case str():
            yield value


# ---- every object ---------------------------------------------------------------------------------------------------


def names(most: int = 40) -> st.SearchStrategy[str]:
    return st.from_regex(rf"[a-z]([a-z0-9-]{{0,{most}}}[a-z0-9])?", fullmatch=True)


TEXT = st.text(st.characters(max_codepoint=0xFFFF, exclude_categories=("Cs", "Cc")), min_size=1, max_size=30)
SPECS = st.builds(
    lambda name, engine, scaling, **rest: replace(
        SPEC, name=name, namespace=name, engine=engine, scaling=scaling, **rest
    ),
    name=names(),
    model=TEXT,
    instance=st.sampled_from(["g6.xlarge", "p5.48xlarge"]),
    gpus=st.integers(1, 8),
    time_sliced=st.booleans(),
    cpu_millicores=st.integers(100, 190_000),
    memory_bytes=st.integers(2**30, 2**41),
    api_key_secret=st.sampled_from([None, "engine-api-key"]),
    weights=st.sampled_from([WEIGHTS, EVERYTHING.weights]),
    compile_cache=st.sampled_from([None, CACHE]),
    spare_replicas=st.integers(0, 2),
    pod_monitor=st.booleans(),
    engine=st.builds(
        lambda **changes: replace(ENGINE, **changes),
        eager=st.booleans(),
        distributed=st.booleans(),
        concurrency=st.integers(1, 512),
        context_tokens=st.integers(128, 10**7),
        version=st.sampled_from([(0, 27, 1), (0, 33, 0)]),
        args=st.lists(TEXT.map(lambda text: f"--flag={text}"), max_size=3).map(tuple),
    ),
    scaling=st.builds(
        lambda most, least, schedule: replace(
            SPEC.scaling, min_replicas=min(most, least), max_replicas=most, schedule=tuple(schedule)
        ),
        st.integers(1, 9),
        st.integers(0, 9),
        st.lists(st.just(WINDOW), max_size=2),
    ),
)


def check_objects(spec: ServingSpec, *versions: str) -> None:
    for manifest in objects(spec):
        if manifest["kind"] == "ScaledObject":
            check_scaled_object(manifest)
        if manifest["kind"] in CUSTOM_KINDS:
            continue
        for version in versions:
            kubernetes_validate.validate(dict(manifest), version, strict=True)


def test_every_object_is_valid_strictly() -> None:
    check_objects(SPEC, *VERSIONS)
    check_objects(EVERYTHING, *VERSIONS)


@given(spec=SPECS)
@settings(max_examples=5, deadline=None)
def test_whatever_the_spec_every_object_is_valid_strictly(spec: ServingSpec) -> None:
    check_objects(spec, VERSIONS[-1])


@given(spec=SPECS)
@settings(max_examples=10, deadline=None)
def test_whatever_the_spec_values_arrive_as_they_were(spec: ServingSpec) -> None:
    """Nothing a person writes can break out of its place in a template."""
    container = container_of(spec)
    assert container["command"][-len(spec.engine.args) :] == list(spec.engine.args) or not spec.engine.args
    config = json.loads(by_kind(spec)["ConfigMap"]["data"]["launcher.json"])
    assert config["labels"]["model"] == spec.model
    assert config == json.loads(json.dumps(launcher_config(spec)))


def test_the_plain_objects_of_a_model_in_the_order_they_are_applied() -> None:
    assert [manifest["kind"] for manifest in objects(SPEC)] == KINDS


def test_no_two_objects_are_the_same_one() -> None:
    found = [
        (manifest["kind"], manifest["metadata"].get("namespace"), manifest["metadata"]["name"])
        for manifest in objects(EVERYTHING)
    ]
    assert len(set(found)) == len(found)


def test_an_object_comes_after_the_namespace_it_lies_in() -> None:
    seen: set[str] = set()
    for manifest in objects(EVERYTHING):
        if manifest["kind"] == "Namespace":
            seen.add(manifest["metadata"]["name"])
        assert manifest["metadata"].get("namespace", "llama") in seen


def test_pods_besides_the_engines_are_not_counted_as_replicas() -> None:
    """Service, disruption budget and autoscaler go by the selector: a spare pod must not be sent requests."""
    (selector,) = {json.dumps(by_kind()[kind]["spec"]["selector"]) for kind in ("PodDisruptionBudget", "Deployment")}
    wanted = json.loads(selector)["matchLabels"].items()
    for manifest in objects(EVERYTHING):
        template = manifest.get("spec", {}).get("template")
        if template and manifest["metadata"]["name"] != "llama" and manifest["metadata"]["namespace"] == "llama":
            assert not wanted <= template["metadata"]["labels"].items(), manifest["metadata"]["name"]


def test_every_object_is_ours_and_of_this_model() -> None:
    for manifest in objects(SPEC):
        metadata = manifest["metadata"]
        assert metadata["labels"] | {} == {
            "app.kubernetes.io/name": "llama",
            "app.kubernetes.io/managed-by": "coldstart",
            "coldstart/environment": "dev",
            "coldstart/stack": "dev-llama",
            "coldstart/model": "llama",
        } | {key: value for key, value in metadata["labels"].items() if key.startswith("pod-security.kubernetes.io/")}
        assert metadata.get("namespace", "llama") == "llama"
        assert (manifest["kind"] == "Namespace") == ("namespace" not in metadata)


def test_a_label_of_the_stack_never_takes_the_place_of_the_selector() -> None:
    spec = replace(SPEC, labels={"coldstart/model": "another"})
    deployment = by_kind(spec)["Deployment"]["spec"]
    assert deployment["selector"]["matchLabels"] == {"coldstart/model": "llama"}
    assert deployment["template"]["metadata"]["labels"]["coldstart/model"] == "llama"


def test_an_emoji_arrives_whole() -> None:
    args = ("--chat-template=\N{SNOWFLAKE} \N{SNOWMAN} \N{ROCKET}",)
    assert container_of(replace(SPEC, engine=replace(ENGINE, args=args)))["command"][-1] == args[0]


def test_the_same_spec_gives_the_same_objects() -> None:
    assert json.dumps(list(objects(SPEC))) == json.dumps(list(objects(replace(SPEC))))


# ---- restricted pod security ----------------------------------------------------------------------------------------

Pod = dict[str, Any]
ALLOWED_VOLUMES = {
    "configMap",
    "csi",
    "downwardAPI",
    "emptyDir",
    "ephemeral",
    "persistentVolumeClaim",
    "projected",
    "secret",
}


def contexts(pod: Pod) -> list[dict[str, Any]]:
    return [container.get("securityContext", {}) for container in pod["containers"]]


def everywhere(pod: Pod, key: str) -> list[Any]:
    """A field of the security context as it holds for each container: its own, else the pod's."""
    outer = pod.get("securityContext", {}).get(key)
    return [context.get(key, outer) for context in contexts(pod)]


RESTRICTED: dict[str, tuple[Callable[[Pod], bool], Callable[[Pod], object]]] = {
    "no namespaces of the host": (
        lambda pod: not any(pod.get(key) for key in ("hostNetwork", "hostPID", "hostIPC")),
        lambda pod: pod.update(hostNetwork=True),
    ),
    "no privileged container": (
        lambda pod: not any(context.get("privileged") for context in contexts(pod)),
        lambda pod: pod["containers"][0]["securityContext"].update(privileged=True),
    ),
    "no ports of the host": (
        lambda pod: not any(port.get("hostPort") for item in pod["containers"] for port in item.get("ports", [])),
        lambda pod: pod["containers"][0]["ports"][0].update(hostPort=8000),
    ),
    "volumes of the harmless kinds only": (
        lambda pod: all(set(volume) - {"name"} <= ALLOWED_VOLUMES for volume in pod.get("volumes", [])),
        lambda pod: pod["volumes"].append({"name": "disk", "hostPath": {"path": "/mnt"}}),
    ),
    "no privilege escalation": (
        lambda pod: all(context.get("allowPrivilegeEscalation") is False for context in contexts(pod)),
        lambda pod: pod["containers"][0]["securityContext"].pop("allowPrivilegeEscalation"),
    ),
    "not as root": (
        lambda pod: (
            all(found is True for found in everywhere(pod, "runAsNonRoot"))
            and all(found not in (0, None) for found in everywhere(pod, "runAsUser"))
        ),
        lambda pod: pod["securityContext"].update(runAsUser=0),
    ),
    "all capabilities dropped, none added": (
        lambda pod: all(
            "ALL" in context.get("capabilities", {}).get("drop", [])
            and set(context["capabilities"].get("add", [])) <= {"NET_BIND_SERVICE"}
            for context in contexts(pod)
        ),
        lambda pod: pod["containers"][0]["securityContext"]["capabilities"].update(add=["IPC_LOCK"]),
    ),
    "a seccomp profile": (
        lambda pod: all(
            (found or {}).get("type") in ("RuntimeDefault", "Localhost") for found in everywhere(pod, "seccompProfile")
        ),
        lambda pod: pod["securityContext"].update(seccompProfile={"type": "Unconfined"}),
    ),
    "no sysctls, no odd /proc": (
        lambda pod: (
            not pod.get("securityContext", {}).get("sysctls")
            and all(context.get("procMount", "Default") == "Default" for context in contexts(pod))
        ),
        lambda pod: pod["securityContext"].update(sysctls=[{"name": "kernel.shmmax", "value": "1"}]),
    ),
}
"""Rule of the restricted standard (Kubernetes documentation, Pod Security Standards) → (holds, a way to break it)."""


@pytest.mark.parametrize("rule", RESTRICTED)
def test_the_pod_meets_the_restricted_standard(rule: str) -> None:
    holds, spoil = RESTRICTED[rule]
    pods = [pod_of(SPEC), *restricted_pods(EVERYTHING)]
    assert len(pods) == 4  # the engine, the engine with every option, a spare, the filling of a shared file system
    for pod in pods:
        assert "initContainers" not in pod
        assert holds(pod)
    spoil(pods[0])
    assert not holds(pods[0])


def restricted_pods(spec: ServingSpec) -> list[Pod]:
    """Pods of everything that lies in a namespace of the restricted standard."""
    found = objects(spec)
    restricted = {
        manifest["metadata"]["name"]
        for manifest in found
        if manifest["kind"] == "Namespace"
        and manifest["metadata"]["labels"]["pod-security.kubernetes.io/enforce"] == "restricted"
    }
    return [
        copy.deepcopy(manifest["spec"]["template"]["spec"])
        for manifest in found
        if "template" in manifest.get("spec", {}) and manifest["metadata"]["namespace"] in restricted
    ]


def test_the_namespace_enforces_it() -> None:
    labels = by_kind()["Namespace"]["metadata"]["labels"]
    assert labels["pod-security.kubernetes.io/enforce"] == "restricted"
    assert labels["pod-security.kubernetes.io/enforce-version"] == "latest"


def test_the_root_file_system_is_read_only_and_every_place_to_write_is_bounded() -> None:
    container, pod = container_of(), pod_of()
    assert container["securityContext"]["readOnlyRootFilesystem"] is True
    mounts = {mount["name"]: mount for mount in container["volumeMounts"]}
    assert {mount["mountPath"] for mount in mounts.values()} == {
        "/etc/coldstart",
        "/cache",
        "/home/vllm",
        "/tmp",  # noqa: S108 - where the engine writes
        "/dev/shm",  # noqa: S108 - as above
    }
    for volume in pod["volumes"]:
        if "emptyDir" in volume:
            assert volume["emptyDir"]["sizeLimit"]
        else:
            assert mounts[volume["name"]]["readOnly"] is True
    assert {volume["name"] for volume in pod["volumes"]} == set(mounts)


def test_shared_memory_fits_into_the_memory_limit_it_counts_towards() -> None:
    (shm,) = [volume for volume in pod_of()["volumes"] if volume["name"] == "shm"]
    assert shm["emptyDir"] == {"medium": "Memory", "sizeLimit": "2048Mi"}
    assert container_of()["resources"]["limits"]["memory"] == "24576Mi"


def test_no_credential_is_mounted() -> None:
    assert pod_of()["automountServiceAccountToken"] is False
    assert by_kind()["ServiceAccount"]["automountServiceAccountToken"] is False
    assert pod_of()["serviceAccountName"] == by_kind()["ServiceAccount"]["metadata"]["name"]


def test_no_service_injects_its_address() -> None:
    """A Service called vllm would set VLLM_PORT to an address, which the engine refuses."""
    assert pod_of()["enableServiceLinks"] is False


# ---- secrets --------------------------------------------------------------------------------------------------------


def test_the_key_is_named_and_never_written() -> None:
    container = container_of(replace(SPEC, api_key_secret="engine-api-key"))  # noqa: S106 - a name
    (key,) = [variable for variable in container["env"] if variable["name"] == "VLLM_API_KEY"]
    assert key == {
        "name": "VLLM_API_KEY",
        "valueFrom": {"secretKeyRef": {"name": "engine-api-key", "key": "apiKey"}},
    }
    assert "--api-key" not in container["command"]


def test_without_a_key_nothing_speaks_of_one() -> None:
    assert "VLLM_API_KEY" not in {variable["name"] for variable in container_of()["env"]}


def test_nothing_in_any_object_looks_like_a_credential() -> None:
    secret = re.compile(r"AKIA[0-9A-Z]{16}|aws_secret_access_key\s*=|hf_[A-Za-z]{30}|BEGIN [A-Z ]*PRIVATE KEY")
    for manifest in objects(EVERYTHING):
        assert manifest["kind"] != "Secret"
        assert not [text for text in strings(manifest) if secret.search(text)]


def test_environment_variables_are_sorted_and_each_is_set_once() -> None:
    """An order that shuffles would roll every pod."""
    variables = [variable["name"] for variable in container_of()["env"]]
    assert variables == sorted(set(variables))


# ---- where it runs --------------------------------------------------------------------------------------------------


def test_the_pod_goes_to_its_own_nodes_and_is_let_in() -> None:
    pod = pod_of()
    assert pod["tolerations"] == [GPU_TAINT.toleration()]
    assert pod["nodeSelector"] == {"coldstart/model": "llama"}


@pytest.mark.parametrize(("sliced", "resource"), [(False, "nvidia.com/gpu"), (True, "nvidia.com/gpu.shared")])
def test_gpus_are_asked_for_under_the_name_the_node_offers(*, sliced: bool, resource: str) -> None:
    resources = container_of(replace(SPEC, time_sliced=sliced, gpus=2))["resources"]
    assert resources == {
        "requests": {"cpu": "5950m", "memory": "24576Mi", resource: "2"},
        "limits": {"memory": "24576Mi", resource: "2"},
    }


@given(memory=st.integers(1, 2**42))
@settings(max_examples=15, deadline=None)
def test_memory_is_rounded_up_never_down(memory: int) -> None:
    limits = container_of(replace(SPEC, memory_bytes=memory))["resources"]["limits"]
    asked = int(limits["memory"].removesuffix("Mi")) * 2**20
    assert 0 <= asked - memory < 2**20


# ---- probes and deadlines -------------------------------------------------------------------------------------------

PHASES = st.fixed_dictionaries(
    {
        name: st.floats(0, 5_000).map(lambda high: Phase(low_s=high / 4, expected_s=high / 2, high_s=high))
        for name in BUDGET
    }
)


@given(budget=PHASES)
@settings(max_examples=15, deadline=None)
def test_a_start_within_the_budget_is_never_killed_nor_reported_stuck(budget: Mapping[str, Phase]) -> None:
    spec = replace(SPEC, budget=budget)
    deployment = by_kind(spec)["Deployment"]["spec"]
    probe = container_of(spec)["startupProbe"]
    in_pod = sum(budget[name].high_s for name in ("start", "weights", "engine", "warmup"))
    total = sum(phase.high_s for phase in budget.values())
    allowed = probe["periodSeconds"] * probe["failureThreshold"]
    assert max(60, 1.5 * in_pod) <= allowed <= max(60, 1.5 * in_pod) + probe["periodSeconds"] + 1
    assert startup_seconds(spec) <= allowed
    assert deployment["progressDeadlineSeconds"] >= max(total, 1.5 * total - 2)


def test_known_deadlines() -> None:
    """180 s in the pod and 150 s before it, each with half as much again."""
    assert startup_seconds(SPEC) == 270
    assert container_of()["startupProbe"] == {
        "httpGet": {"path": "/startup", "port": "launcher"},
        "periodSeconds": 5,
        "timeoutSeconds": 3,
        "failureThreshold": 54,
    }
    assert by_kind()["Deployment"]["spec"]["progressDeadlineSeconds"] == 270 + 225


def test_a_very_short_budget_still_leaves_a_minute() -> None:
    instant = dict.fromkeys(BUDGET, Phase(low_s=0, expected_s=0, high_s=0))
    assert startup_seconds(replace(SPEC, budget=instant)) == 60


def test_every_probe_asks_the_launcher() -> None:
    """The engine's own /health answers before it is warm."""
    container = container_of()
    ports = {port["name"]: port["containerPort"] for port in container["ports"]}
    assert ports == {"http": 8000, "launcher": 8001}
    probes = {name: container[f"{name}Probe"]["httpGet"] for name in ("startup", "readiness", "liveness")}
    assert probes == {
        "startup": {"path": "/startup", "port": "launcher"},
        "readiness": {"path": "/ready", "port": "launcher"},
        "liveness": {"path": "/live", "port": "launcher"},
    }


def test_a_busy_engine_is_not_killed_for_a_slow_answer() -> None:
    """Kubelet waits longer for the launcher than the launcher for the engine; its own default is one second."""
    container = container_of()
    for name in ("startup", "readiness", "liveness"):
        assert container[f"{name}Probe"]["timeoutSeconds"] > HEALTH_TIMEOUT_S


def test_replicas_spread_over_zones_where_there_is_a_choice() -> None:
    (spread,) = pod_of()["topologySpreadConstraints"]
    assert spread["topologyKey"] == "topology.kubernetes.io/zone"
    assert spread["whenUnsatisfiable"] == "ScheduleAnyway"
    assert spread["labelSelector"] == {"matchLabels": {"coldstart/model": "llama"}}


@given(shutdown=st.integers(0, 3_600))
@settings(max_examples=15, deadline=None)
def test_the_kubelet_waits_longer_than_everybody_before_it(shutdown: int) -> None:
    spec = replace(SPEC, engine=replace(ENGINE, shutdown_timeout_s=shutdown))
    pod, drain = pod_of(spec), launcher_config(spec)["drain"]["timeout_s"]
    pre_stop = pod["containers"][0]["lifecycle"]["preStop"]["sleep"]["seconds"]
    assert shutdown < drain
    assert pod["terminationGracePeriodSeconds"] > pre_stop + drain
    command = pod["containers"][0]["command"]
    assert command[command.index("--shutdown-timeout") + 1] == str(shutdown)


# ---- replicas -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("least", "most", "surge"),
    [(0, 1, 0), (1, 1, 0), (2, 2, 0), (0, 2, 1), (1, 2, 1), (1, 4, 1), (3, 4, 1)],
)
def test_a_surge_pod_only_where_the_pool_has_room_for_it(least: int, most: int, surge: int) -> None:
    """In a full pool the new pod would wait for the very GPU that its predecessor holds."""
    strategy = by_kind(scaled(min_replicas=least, max_replicas=most))["Deployment"]["spec"]["strategy"]
    assert strategy == {
        "type": "RollingUpdate",
        "rollingUpdate": {"maxSurge": surge, "maxUnavailable": 1 - surge},
    }


def test_no_replica_at_first_so_that_up_never_waits_for_a_gpu() -> None:
    assert by_kind()["Deployment"]["spec"]["replicas"] == 0


def test_a_drain_is_slowed_but_never_blocked() -> None:
    assert by_kind()["PodDisruptionBudget"]["spec"] == {
        "maxUnavailable": 1,
        "unhealthyPodEvictionPolicy": "AlwaysAllow",
        "selector": {"matchLabels": {"coldstart/model": "llama"}},
    }


SCALER_TYPES = {"metrics-api", "cron"}
METRIC_TYPES = {"AverageValue", "Value"}


def check_scaled_object(manifest: Mapping[str, Any]) -> None:
    """The shape of KEDA's custom resource (keda.sh/v1alpha1, ScaledObjectSpec); Kubernetes has no schema of it."""
    assert manifest["apiVersion"] == "keda.sh/v1alpha1"
    spec = manifest["spec"]
    assert set(spec) <= {
        "scaleTargetRef",
        "minReplicaCount",
        "maxReplicaCount",
        "pollingInterval",
        "cooldownPeriod",
        "advanced",
        "triggers",
        "fallback",
    }
    assert spec["scaleTargetRef"] == {"name": manifest["metadata"]["name"]}
    assert 0 <= spec["minReplicaCount"] <= spec["maxReplicaCount"]
    for key in ("minReplicaCount", "maxReplicaCount", "pollingInterval", "cooldownPeriod"):
        assert isinstance(spec[key], int)
    down = spec["advanced"]["horizontalPodAutoscalerConfig"]["behavior"]["scaleDown"]
    assert 0 <= down["stabilizationWindowSeconds"] <= 3_600
    assert spec["triggers"]
    for trigger in spec["triggers"]:
        assert set(trigger) <= {"type", "metadata", "metricType", "name"}
        assert trigger["type"] in SCALER_TYPES
        assert trigger.get("metricType", "AverageValue") in METRIC_TYPES
        assert all(isinstance(value, str) for value in trigger["metadata"].values())


def test_scaling_by_the_queue_and_by_the_clock() -> None:
    manifest = by_kind(scaled(min_replicas=0, max_replicas=3, schedule=(WINDOW,)))["ScaledObject"]
    check_scaled_object(manifest)
    spec = manifest["spec"]
    assert (spec["minReplicaCount"], spec["maxReplicaCount"], spec["cooldownPeriod"]) == (0, 3, 700)
    queue, served, clock = spec["triggers"]
    assert queue["type"] == "metrics-api"
    assert queue["metadata"]["url"] == "http://llama.llama.svc:8000/metrics"
    assert queue["metadata"]["valueLocation"] == 'vllm:num_requests_waiting{model_name="llama"}'
    assert queue["metadata"]["targetValue"] == "4"
    assert served["metadata"] == queue["metadata"] | {
        "valueLocation": 'vllm:num_requests_running{model_name="llama"}',
        "targetValue": str(SPEC.engine.concurrency),
    }
    assert clock == {
        "type": "cron",
        "metadata": {
            "timezone": "Europe/Berlin",
            "start": "0 8 * * 1-5",
            "end": "0 18 * * 1-5",
            "desiredReplicas": "2",
        },
    }


def test_the_service_and_the_policy_reach_the_pod_and_its_ports() -> None:
    found = by_kind()
    labels = found["Deployment"]["spec"]["template"]["metadata"]["labels"]
    ports = {port["name"] for port in container_of()["ports"]}
    service = found["Service"]["spec"]
    assert service["type"] == "ClusterIP"
    assert service["selector"].items() <= labels.items()
    assert {port["targetPort"] for port in service["ports"]} == ports
    policy = found["NetworkPolicy"]["spec"]
    assert policy["podSelector"]["matchLabels"].items() <= labels.items()
    assert policy["policyTypes"] == ["Ingress", "Egress"]
    opened = {port["port"] for rule in policy["ingress"] for port in rule["ports"]}
    assert opened == {port["containerPort"] for port in container_of()["ports"]}


def test_the_pod_may_ask_for_names_its_identity_and_https_alone() -> None:
    rules = by_kind()["NetworkPolicy"]["spec"]["egress"]
    reached = {(port["port"], port["protocol"]) for rule in rules for port in rule["ports"]}
    assert reached == {(53, "UDP"), (53, "TCP"), (80, "TCP"), (443, "TCP")}
    (identity,) = [rule for rule in rules if {"port": 80, "protocol": "TCP"} in rule["ports"]]
    assert identity["to"] == [{"ipBlock": {"cidr": "169.254.170.23/32"}}]


# ---- the launcher ---------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def launcher(tmp_path_factory: pytest.TempPathFactory) -> ModuleType:
    """The launcher as the ConfigMap carries it, imported."""
    path = tmp_path_factory.mktemp("launcher") / "launch.py"
    path.write_text(by_kind()["ConfigMap"]["data"]["launch.py"], encoding="utf-8")
    loader = importlib.util.spec_from_file_location("shipped_launcher", path)
    assert loader is not None
    assert loader.loader is not None
    module = importlib.util.module_from_spec(loader)
    sys.modules[loader.name] = module
    try:
        loader.loader.exec_module(module)
    finally:
        del sys.modules[loader.name]
    return module


@pytest.mark.usefixtures("shipped")
def test_the_config_map_holds_the_launcher_and_its_configuration() -> None:
    config_map = by_kind()["ConfigMap"]
    assert set(config_map["data"]) == {"launch.py", "launcher.json"}
    assert config_map["immutable"] is True
    compile(config_map["data"]["launch.py"], "launch.py", "exec")
    # The API server refuses more than 1 MiB.
    assert sum(len(text.encode()) for text in config_map["data"].values()) < 2**20


def test_the_pod_mounts_the_config_map_of_the_same_rendering() -> None:
    (volume,) = [volume for volume in pod_of()["volumes"] if volume["name"] == "launcher"]
    assert volume["configMap"]["name"] == by_kind()["ConfigMap"]["metadata"]["name"]
    command = container_of()["command"]
    assert command[:5] == ["python3", "/etc/coldstart/launch.py", "--config", "/etc/coldstart/launcher.json", "--"]


@pytest.mark.parametrize(
    "changed",
    [
        replace(SPEC, revision="c" * 40),
        replace(SPEC, gpus=2),
        replace(SPEC, budget=BUDGET | {"warmup": Phase(low_s=1, expected_s=2, high_s=99)}),
        replace(SPEC, weights=replace(WEIGHTS, uri="s3://other/")),
    ],
    ids=["revision", "gpus", "budget", "weights"],
)
def test_a_changed_configuration_is_another_config_map(changed: ServingSpec) -> None:
    """Pods that run keep reading the one they started with."""
    assert by_kind(changed)["ConfigMap"]["metadata"]["name"] != by_kind()["ConfigMap"]["metadata"]["name"]


def test_a_changed_launcher_is_another_config_map(monkeypatch: pytest.MonkeyPatch) -> None:
    before = by_kind()["ConfigMap"]["metadata"]["name"]
    monkeypatch.setattr("serving.manifests.launcher_source", lambda: "print('another')\n")
    after = by_kind()["ConfigMap"]
    assert after["data"]["launch.py"] == "print('another')\n"
    assert after["metadata"]["name"] != before


def test_what_does_not_concern_the_launcher_keeps_the_config_map() -> None:
    """A change of replicas must not roll every pod."""
    before = by_kind()["ConfigMap"]["metadata"]["name"]
    assert by_kind(scaled(max_replicas=9))["ConfigMap"]["metadata"]["name"] == before


def test_the_launcher_understands_what_it_is_told(launcher: ModuleType) -> None:
    for spec in (
        SPEC,
        replace(SPEC, revision="unpinned", image="vllm/vllm-openai:v0.33.0"),
        replace(SPEC, engine=replace(ENGINE, eager=True, context_tokens=128, concurrency=1)),
        replace(SPEC, engine=replace(ENGINE, distributed=True, tensor_parallel=8, concurrency=4096), gpus=8),
        EVERYTHING,
    ):
        config = launcher.Config.from_json(json.loads(by_kind(spec)["ConfigMap"]["data"]["launcher.json"]))
        command = container_of(spec)["command"][5:]
        launcher.check_engine_argv(command, config)
        assert [path.kind for path in config.paths] == list(spec.weights.order)
        path = config.paths[-1]
        assert path.source == spec.weights.uri
        assert (config.compile_cache is not None) == (spec.compile_cache is not None)
        assert config.gpus == spec.gpus
        assert config.served_model_name == spec.name
        assert config.drain_timeout_s == spec.engine.shutdown_timeout_s + 10
        assert set(config.budget) == set(BUDGET)
        filled = launcher.engine_arguments(command, path, None)
        assert filled[:5] == ["vllm", "serve", spec.engine.weights_uri, "--load-format", "runai_streamer"]
        assert "{weights}" not in filled


@given(context=st.integers(128, 10**7), concurrency=st.integers(1, 4096), eager=st.booleans())
def test_warm_up_asks_nothing_the_engine_would_refuse(*, context: int, concurrency: int, eager: bool) -> None:
    spec = replace(SPEC, engine=replace(ENGINE, context_tokens=context, concurrency=concurrency, eager=eager))
    warmup = launcher_config(spec)["warmup"]
    assert all(1 <= size <= context - warmup["output_tokens"] for size in warmup["prompt_tokens"])
    assert warmup["prompt_tokens"] == sorted(set(warmup["prompt_tokens"]))
    assert all(1 <= size <= min(concurrency, 64) for size in warmup["batch_sizes"])
    assert warmup["batch_sizes"]
    assert (warmup["batch_sizes"] == [1]) or not eager


def test_warm_up_ends_within_what_the_probe_allows() -> None:
    assert launcher_config(SPEC)["warmup"]["cap_s"] == 42
    assert launcher_config(SPEC)["warmup"]["cap_s"] < startup_seconds(SPEC)


def test_the_ledger_is_told_the_digest_of_the_image() -> None:
    labels = launcher_config(SPEC)["labels"]
    assert labels == {
        "model": "org/name",
        "revision": "a" * 40,
        "instance": "g6e.2xlarge",
        "image": "sha256:" + "b" * 64,
    }
    tagged = replace(SPEC, image="vllm/vllm-openai:v0.33.0")
    assert launcher_config(tagged)["labels"]["image"] == "vllm/vllm-openai:v0.33.0"
