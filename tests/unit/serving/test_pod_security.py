"""A model's pod: restricted, without credentials, on its own nodes."""

from __future__ import annotations

import copy
import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from serving.manifests import (
    ServingSpec,
    objects,
)
from serving.placement import GPU_TAINT
from tests.unit.serving.made_specs import EVERYTHING, SPEC, by_kind, container_of, pod_of, strings

pytestmark = pytest.mark.usefixtures("short_launcher")

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


def test_the_pod_goes_to_its_own_nodes_and_is_let_in() -> None:
    pod = pod_of()
    assert pod["tolerations"] == [GPU_TAINT.toleration()]
    assert pod["nodeSelector"] == {"coldstart/model": "llama"}


def test_gpus_are_asked_for_under_the_name_the_node_offers() -> None:
    resources = container_of(replace(SPEC, gpus=2))["resources"]
    assert resources == {
        "requests": {"cpu": "5950m", "memory": "24576Mi", "nvidia.com/gpu": "2"},
        "limits": {"memory": "24576Mi", "nvidia.com/gpu": "2"},
    }


@given(memory=st.integers(1, 2**42))
@settings(max_examples=15, deadline=None)
def test_memory_is_rounded_up_never_down(memory: int) -> None:
    limits = container_of(replace(SPEC, memory_bytes=memory))["resources"]["limits"]
    asked = int(limits["memory"].removesuffix("Mi")) * 2**20
    assert 0 <= asked - memory < 2**20
