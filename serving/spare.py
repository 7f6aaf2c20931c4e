"""Spare capacity: pods that hold GPU nodes, with the engine's image on them, until a replica wants the place."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from serving.placement import COMPONENT_LABEL, GPU_TAINT
from serving.weights import ENGINE_GROUP, ENGINE_USER

PRIORITY = -10
"""Below every ordinary pod (0), above what the autoscaler ignores (-10 is its own cutoff, inclusive)."""
COMPONENT = "spare"
_WAIT = "import signal; signal.sigwait({signal.SIGTERM})"


def objects(
    *,
    name: str,
    namespace: str,
    image: str,
    replicas: int,
    gpus: Mapping[str, str],
    labels: Mapping[str, str],
    selector: Mapping[str, str],
) -> Sequence[Mapping[str, Any]]:
    """A negative priority and a Deployment of it.

    A replica that finds no free GPU evicts one of these pods at once and starts on a warm node with the image in place;
    the evicted pod asks the autoscaler for the next node.
    """
    spare_labels = {key: value for key, value in labels.items() if key not in selector} | {COMPONENT_LABEL: COMPONENT}
    resources = {"cpu": "100m", "memory": "64Mi"} | dict(gpus)
    return [
        {
            "apiVersion": "scheduling.k8s.io/v1",
            "kind": "PriorityClass",
            "metadata": {"name": f"coldstart-spare-{name}", "labels": spare_labels},
            "value": PRIORITY,
            "globalDefault": False,
            "description": "Gives way to any replica that needs its GPU.",
        },
        {
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": {"name": f"{name}-spare", "namespace": namespace, "labels": spare_labels},
            "spec": {
                "replicas": replicas,
                "selector": {"matchLabels": {COMPONENT_LABEL: COMPONENT}},
                "template": {
                    "metadata": {"labels": spare_labels},
                    "spec": {
                        "priorityClassName": f"coldstart-spare-{name}",
                        "automountServiceAccountToken": False,
                        "enableServiceLinks": False,
                        "terminationGracePeriodSeconds": 0,
                        "nodeSelector": dict(selector),
                        "tolerations": [GPU_TAINT.toleration()],
                        "securityContext": {
                            "runAsNonRoot": True,
                            "runAsUser": ENGINE_USER,
                            "runAsGroup": ENGINE_GROUP,
                            "seccompProfile": {"type": "RuntimeDefault"},
                        },
                        "containers": [
                            {
                                "name": "spare",
                                "image": image,
                                "command": ["python3", "-c", _WAIT],
                                "resources": {"requests": resources, "limits": {"memory": "64Mi"} | dict(gpus)},
                                "securityContext": {
                                    "allowPrivilegeEscalation": False,
                                    "readOnlyRootFilesystem": True,
                                    "capabilities": {"drop": ["ALL"]},
                                },
                            }
                        ],
                    },
                },
            },
        },
    ]
