"""Staging inside the cluster: a Kubernetes Job that runs the staging code on a CPU node.

The engine's image holds Python, boto3 and the hub's client, so no other image is needed; the code comes from a
ConfigMap. No toleration is set: GPU nodes are tainted, so the pod lands on CPU nodes only.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from budget.staged import MODELS
from serving.shipped_code import CODE_DIR, check_size, digest

NAMESPACE = "coldstart-staging"
SERVICE_ACCOUNT = "stager"
"""Bound to the role that may stage, through EKS Pod Identity."""
BAD_INPUT_CODE = 2
USER = 2_000
"""User of the engine image (vLLM's Dockerfile, from 0.24); its group is 0."""
KEEP_S = 86_400
RETRIES = 3
"""Staging goes on where it stopped, so a pod that was evicted costs only what it had not finished."""

Objects = Sequence[Mapping[str, Any]]


@dataclass(frozen=True, kw_only=True, slots=True)
class StageJobSpec:
    """What is staged, and with what.

    Attributes:
        slug: names the Job: a DNS label of at most 40 characters.
        image: the engine's image.
        source: `hf:ORG/NAME@REVISION`.
        code: path → text of every Python file that staging needs.
        hub_secret: name of a Secret in the namespace whose key `token` opens gated models; None without one.
        labels: on every object.
    """

    slug: str
    image: str
    source: str
    bucket: str
    region: str
    trust_remote_code: bool
    code: Mapping[str, str]
    hub_secret: str | None = None
    labels: Mapping[str, str] = field(default_factory=dict[str, str])

    @property
    def name(self) -> str:
        """Of the Job: the same for the same work, so that two people who start it start one Job."""
        work = f"{self.source}|{self.bucket}|{self.trust_remote_code}"
        return f"stage-{self.slug}-{hashlib.sha256(work.encode()).hexdigest()[:8]}"

    @property
    def code_name(self) -> str:
        """Of the ConfigMap: it changes when the code does, so a running Job keeps its own."""
        return f"stage-code-{digest(self.code)[:8]}"


def objects(spec: StageJobSpec) -> Objects:
    """Namespace, service account, code and Job, in the order they are applied.

    Raises:
        BadInput: more code than a ConfigMap holds.
    """
    check_size(spec.code, what="staging code")
    return (_namespace(spec), _service_account(spec), _config_map(spec), _job(spec))


def _meta(spec: StageJobSpec, name: str) -> dict[str, Any]:
    return {"name": name, "namespace": NAMESPACE, "labels": _labels(spec)}


def _labels(spec: StageJobSpec) -> dict[str, str]:
    return {"app.kubernetes.io/managed-by": "coldstart", "app.kubernetes.io/component": "staging", **spec.labels}


def _namespace(spec: StageJobSpec) -> dict[str, Any]:
    security = {f"pod-security.kubernetes.io/{mode}": "restricted" for mode in ("enforce", "warn", "audit")}
    return {
        "apiVersion": "v1",
        "kind": "Namespace",
        "metadata": {"name": NAMESPACE, "labels": {**_labels(spec), **security}},
    }


def _service_account(spec: StageJobSpec) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "ServiceAccount",
        "metadata": _meta(spec, SERVICE_ACCOUNT),
        "automountServiceAccountToken": False,
    }


def _config_map(spec: StageJobSpec) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": _meta(spec, spec.code_name),
        "immutable": True,
        "data": {_key(path): text for path, text in sorted(spec.code.items())},
    }


def _key(path: str) -> str:
    """A ConfigMap's keys hold no slash; the volume puts each file back where it belongs."""
    return path.replace("/", "--")


def _job(spec: StageJobSpec) -> dict[str, Any]:
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": _meta(spec, spec.name),
        "spec": {
            "backoffLimit": RETRIES,
            "ttlSecondsAfterFinished": KEEP_S,
            "podFailurePolicy": {
                "rules": [
                    # Bad input does not get better by trying again.
                    {
                        "action": "FailJob",
                        "onExitCodes": {"containerName": "stage", "operator": "In", "values": [BAD_INPUT_CODE]},
                    },
                    {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]},
                ]
            },
            "template": {"metadata": {"labels": _labels(spec)}, "spec": _pod(spec)},
        },
    }


def _pod(spec: StageJobSpec) -> dict[str, Any]:
    items = [{"key": _key(path), "path": path} for path in sorted(spec.code)]
    return {
        "restartPolicy": "Never",
        "serviceAccountName": SERVICE_ACCOUNT,
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "terminationGracePeriodSeconds": 60,
        "nodeSelector": {"kubernetes.io/os": "linux"},
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": USER,
            "runAsGroup": 0,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "containers": [_container(spec)],
        "volumes": [
            {"name": "code", "configMap": {"name": spec.code_name, "items": items}},
            {"name": "tmp", "emptyDir": {"sizeLimit": "256Mi"}},
        ],
    }


def _container(spec: StageJobSpec) -> dict[str, Any]:
    remote_code = ["--trust-remote-code"] if spec.trust_remote_code else []
    return {
        "name": "stage",
        "image": spec.image,
        "command": ["python3", "-m", "scripts.staging"],
        "args": [
            f"--source={spec.source}",
            f"--to=s3://{spec.bucket}/{MODELS}",
            f"--region={spec.region}",
            *remote_code,
        ],
        "workingDir": CODE_DIR,
        "env": _environment(spec),
        # Staging holds at most 400 MiB; the rest is the page cache of the code and room for the interpreter.
        "resources": {"requests": {"cpu": "1", "memory": "512Mi"}, "limits": {"memory": "512Mi"}},
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]},
            "readOnlyRootFilesystem": True,
        },
        "volumeMounts": [
            {"name": "code", "mountPath": CODE_DIR, "readOnly": True},
            {"name": "tmp", "mountPath": "/tmp"},  # noqa: S108 - a volume of the pod's own
        ],
    }


def _environment(spec: StageJobSpec) -> list[dict[str, Any]]:
    plain = {
        "AWS_REGION": spec.region,
        "AWS_DEFAULT_REGION": spec.region,
        "HOME": "/tmp",  # noqa: S108 - a volume of the pod's own
        "HF_HUB_DISABLE_TELEMETRY": "1",
        "BOTO_DISABLE_CRT": "true",  # its signer copies every body
        "PYTHONPATH": CODE_DIR,
        "PYTHONUNBUFFERED": "1",
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    entries: list[dict[str, Any]] = [{"name": name, "value": value} for name, value in plain.items()]
    if spec.hub_secret:
        reference = {"secretKeyRef": {"name": spec.hub_secret, "key": "token"}}
        entries.append({"name": "HF_TOKEN", "valueFrom": reference})
    return entries
