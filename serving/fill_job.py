"""The Job that copies a staged model onto a shared file system, once: verified, resumable, safe to run twice."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from serving.placement import COMPONENT_LABEL
from serving.weights import CONNECTIONS, ENGINE_GROUP, ENGINE_USER, SHARED_FS_MOUNT, WeightsSpec

COMPONENT = "fill"
KEEP_S = 86_400
RETRIES = 4
MEMORY = "1Gi"
"""Its worker takes 40 MB and 8 MiB a connection; the rest is page cache it may lose."""


def job(
    spec: WeightsSpec,
    *,
    name: str,
    namespace: str,
    image: str,
    config_map: str,
    launcher_dir: str,
    environment: Mapping[str, str],
    labels: Mapping[str, str],
) -> Mapping[str, Any]:
    """The Job. It runs the launcher's own copying on a CPU node, as the model's identity."""
    labels = dict(labels) | {COMPONENT_LABEL: COMPONENT}
    directory = f"{SHARED_FS_MOUNT}/{spec.prefix.rstrip('/')}"
    command = ["python3", f"{launcher_dir}/launch.py", "--fill", "--source", spec.uri, "--manifest", spec.manifest_uri]
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        # Its name follows the code and the revision: a Job's pods can't be changed, a new revision is a new Job.
        "metadata": {"name": f"fill-{config_map}", "namespace": namespace, "labels": labels},
        "spec": {
            "backoffLimit": RETRIES,
            "ttlSecondsAfterFinished": KEEP_S,
            "template": {
                "metadata": {"labels": labels},
                "spec": {
                    "restartPolicy": "OnFailure",
                    "serviceAccountName": name,
                    "automountServiceAccountToken": False,
                    "enableServiceLinks": False,
                    "securityContext": {
                        "runAsNonRoot": True,
                        "runAsUser": ENGINE_USER,
                        "runAsGroup": ENGINE_GROUP,
                        "fsGroup": ENGINE_GROUP,
                        "seccompProfile": {"type": "RuntimeDefault"},
                    },
                    "containers": [
                        {
                            "name": "fill",
                            "image": image,
                            "command": [*command, "--dir", directory, "--connections", str(CONNECTIONS)],
                            "env": [{"name": key, "value": value} for key, value in sorted(environment.items())],
                            "resources": {"requests": {"cpu": "1", "memory": MEMORY}, "limits": {"memory": MEMORY}},
                            "securityContext": {
                                "allowPrivilegeEscalation": False,
                                "readOnlyRootFilesystem": True,
                                "capabilities": {"drop": ["ALL"]},
                            },
                            "volumeMounts": [
                                {"name": "launcher", "mountPath": launcher_dir, "readOnly": True},
                                {"name": "models", "mountPath": SHARED_FS_MOUNT},
                                {"name": "tmp", "mountPath": "/tmp"},  # noqa: S108 - a mount of the pod, not a path of ours
                            ],
                        }
                    ],
                    "volumes": [
                        {"name": "launcher", "configMap": {"name": config_map}},
                        {"name": "models", "persistentVolumeClaim": {"claimName": f"{name}-models"}},
                        {"name": "tmp", "emptyDir": {"sizeLimit": "1Gi"}},
                    ],
                },
            },
        },
    }
