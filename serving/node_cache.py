"""The directory that pods of a node share: made by a DaemonSet, since restricted pods can't make it themselves."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from serving.placement import COMPONENT_LABEL, GPU_TAINT
from serving.weights import ENGINE_GROUP, ENGINE_USER, NODE_CACHE_HOST_DIR

COMPONENT = "node-cache"
_PREPARE = (
    "import os; path = '/host'; os.makedirs(path, exist_ok=True); "
    f"os.chown(path, {ENGINE_USER}, {ENGINE_GROUP}); os.chmod(path, 0o2770)"
)
_WAIT = "import signal; signal.sigwait({signal.SIGTERM})"


def objects(
    *, name: str, image: str, labels: Mapping[str, str], selector: Mapping[str, str]
) -> Sequence[Mapping[str, Any]]:
    """A namespace of its own, since the DaemonSet mounts a host path, and the DaemonSet.

    It runs the engine's image, which the node holds anyway, and sleeps once the directory is there.
    """
    namespace = f"{name}-node"
    pod_labels = dict(labels) | {COMPONENT_LABEL: COMPONENT}
    quiet = {"allowPrivilegeEscalation": False, "readOnlyRootFilesystem": True, "capabilities": {"drop": ["ALL"]}}
    return [
        {
            "apiVersion": "v1",
            "kind": "Namespace",
            "metadata": {
                "name": namespace,
                "labels": pod_labels | {"pod-security.kubernetes.io/enforce": "privileged"},
            },
        },
        {
            "apiVersion": "apps/v1",
            "kind": "DaemonSet",
            "metadata": {"name": f"{name}-node-cache", "namespace": namespace, "labels": pod_labels},
            "spec": {
                "selector": {"matchLabels": {COMPONENT_LABEL: COMPONENT, **selector}},
                "template": {
                    "metadata": {"labels": pod_labels},
                    "spec": {
                        "automountServiceAccountToken": False,
                        "enableServiceLinks": False,
                        "nodeSelector": dict(selector),
                        "tolerations": [GPU_TAINT.toleration()],
                        "terminationGracePeriodSeconds": 1,
                        "initContainers": [
                            {
                                "name": "prepare",
                                "image": image,
                                "command": ["python3", "-c", _PREPARE],
                                # Root, to give the directory to the engine's user, and with nothing else root can do.
                                "securityContext": quiet
                                | {"runAsUser": 0, "capabilities": {"drop": ["ALL"], "add": ["CHOWN", "FOWNER"]}},
                                "resources": _small(),
                                "volumeMounts": [{"name": "host", "mountPath": "/host"}],
                            }
                        ],
                        "containers": [
                            {
                                "name": "wait",
                                "image": image,
                                "command": ["python3", "-c", _WAIT],
                                "securityContext": quiet | {"runAsNonRoot": True, "runAsUser": ENGINE_USER},
                                "resources": _small(),
                            }
                        ],
                        "volumes": [
                            {"name": "host", "hostPath": {"path": NODE_CACHE_HOST_DIR, "type": "DirectoryOrCreate"}}
                        ],
                    },
                },
            },
        },
    ]


def _small() -> Mapping[str, Any]:
    return {"requests": {"cpu": "10m", "memory": "32Mi"}, "limits": {"memory": "32Mi"}}
