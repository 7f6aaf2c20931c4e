"""The recorder's Kubernetes objects: one small Deployment that watches starts and keeps their ledgers.

Any image with Python 3.11 or newer runs it: the code comes from a ConfigMap, as plain text that can be read in the
cluster, and imports the standard library alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from serving.manifests import LAUNCHER_PORT
from serving.placement import MODEL_LABEL
from serving.shipped_code import CODE_DIR, check_size, digest

NAME = "coldstart-recorder"
NAMESPACE = "coldstart"
ENTRY = "scripts.ledger.recorder"
PORT = 9464
"""Registered for Prometheus exporters in general (OpenTelemetry, SDK environment variables)."""
MEMORY_MIB = 96
"""Measured: 500 starts at once take less (benchmarks/recorder.py); request and limit."""
USER = 65_532
"""Nobody's in particular: the image needs no user of its own."""

Objects = Sequence[Mapping[str, Any]]


@dataclass(frozen=True, kw_only=True, slots=True)
class RecorderSpec:
    """What the recorder runs as.

    Attributes:
        image: with Python 3.11 or newer.
        code: path → text of every file of the recorder.
        keep: ledgers kept in the cluster.
        otlp_endpoint: `http://collector.namespace:4318`; None sends no spans.
        cloudwatch: whether CloudWatch's embedded metric format is printed.
        replicas: one is enough; with two, each ledger is still written only once.
        labels: on every object.
    """

    image: str
    code: Mapping[str, str]
    keep: int
    otlp_endpoint: str | None
    cloudwatch: bool
    replicas: int = 1
    labels: Mapping[str, str] = field(default_factory=dict[str, str])

    @property
    def code_name(self) -> str:
        """Of the ConfigMap: it changes when the code does, so that the Deployment rolls."""
        return f"{NAME}-{digest(self.code)[:10]}"


def objects(spec: RecorderSpec) -> Objects:
    """Every object, in the order in which they are applied.

    Raises:
        BadInput: more code than a ConfigMap holds.
    """
    check_size(spec.code, what="recorder code")
    return (
        _namespace(spec),
        _object("v1", "ServiceAccount", spec, NAME, automountServiceAccountToken=False),
        *_rights(spec),
        _object(
            "v1", "ConfigMap", spec, spec.code_name, immutable=True, data={_key(p): t for p, t in spec.code.items()}
        ),
        _service(spec),
        _network_policy(spec),
        _deployment(spec),
    )


def _key(path: str) -> str:
    """A ConfigMap's keys hold no slash; the volume gives each file its path back."""
    return path.replace("/", ".")


def _labels(spec: RecorderSpec) -> dict[str, str]:
    return {"app.kubernetes.io/name": NAME, "app.kubernetes.io/managed-by": "coldstart", **spec.labels}


_SELECTOR = {"app.kubernetes.io/name": NAME}


def _object(
    version: str, kind: str, recorder: RecorderSpec, name: str, *, cluster: bool = False, **members: object
) -> dict[str, Any]:
    metadata: dict[str, Any] = {"name": name, "labels": _labels(recorder)}
    if not cluster:
        metadata["namespace"] = NAMESPACE
    return {"apiVersion": version, "kind": kind, "metadata": metadata, **members}


def _namespace(spec: RecorderSpec) -> dict[str, Any]:
    security = {
        "pod-security.kubernetes.io/enforce": "restricted",
        "pod-security.kubernetes.io/enforce-version": "latest",
    }
    return {
        "apiVersion": "v1",
        "kind": "Namespace",
        "metadata": {"name": NAMESPACE, "labels": {**_labels(spec), **security}},
    }


def _rights(spec: RecorderSpec) -> Objects:
    """Looking at pods, nodes and events anywhere; making, listing and removing ConfigMaps in its own namespace.

    No more: no Secret, no log, no proxy, nothing is changed outside.
    """
    api = "rbac.authorization.k8s.io"
    account = [{"kind": "ServiceAccount", "name": NAME, "namespace": NAMESPACE}]
    look = [
        {"apiGroups": [""], "resources": ["pods", "nodes", "events"], "verbs": ["list", "watch"]},
        {"apiGroups": ["karpenter.sh"], "resources": ["nodeclaims"], "verbs": ["list"]},
    ]
    keep = [{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["create", "list", "delete"]}]
    return (
        _object(f"{api}/v1", "ClusterRole", spec, NAME, cluster=True, rules=look),
        _object(
            f"{api}/v1",
            "ClusterRoleBinding",
            spec,
            NAME,
            cluster=True,
            roleRef={"apiGroup": api, "kind": "ClusterRole", "name": NAME},
            subjects=account,
        ),
        _object(f"{api}/v1", "Role", spec, NAME, rules=keep),
        _object(
            f"{api}/v1",
            "RoleBinding",
            spec,
            NAME,
            roleRef={"apiGroup": api, "kind": "Role", "name": NAME},
            subjects=account,
        ),
    )


def _service(spec: RecorderSpec) -> dict[str, Any]:
    service = _object(
        "v1",
        "Service",
        spec,
        NAME,
        spec={
            "selector": _SELECTOR,
            "clusterIP": "None",
            "ports": [{"name": "metrics", "port": PORT, "targetPort": "metrics", "protocol": "TCP"}],
        },
    )
    service["metadata"]["annotations"] = {"prometheus.io/scrape": "true", "prometheus.io/port": str(PORT)}
    return service


def _network_policy(spec: RecorderSpec) -> dict[str, Any]:
    """In: scrapes. Out: names, the API server, launchers, and the collector of spans where there is one."""
    dns = {
        "to": [{"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "kube-system"}}}],
        "ports": [{"port": 53, "protocol": "UDP"}, {"port": 53, "protocol": "TCP"}],
    }
    launchers = {
        "to": [
            {"namespaceSelector": {}, "podSelector": {"matchExpressions": [{"key": MODEL_LABEL, "operator": "Exists"}]}}
        ],
        "ports": [{"port": LAUNCHER_PORT, "protocol": "TCP"}],
    }
    egress: list[dict[str, Any]] = [dns, {"ports": [{"port": 443, "protocol": "TCP"}]}, launchers]
    if spec.otlp_endpoint:
        parts = urlsplit(spec.otlp_endpoint)
        egress.append({"ports": [{"port": parts.port or (443 if parts.scheme == "https" else 80), "protocol": "TCP"}]})
    policy: dict[str, Any] = {
        "podSelector": {"matchLabels": _SELECTOR},
        "policyTypes": ["Ingress", "Egress"],
        "ingress": [{"from": [{"namespaceSelector": {}}], "ports": [{"port": PORT, "protocol": "TCP"}]}],
        "egress": egress,
    }
    return _object("networking.k8s.io/v1", "NetworkPolicy", spec, NAME, spec=policy)


def _deployment(spec: RecorderSpec) -> dict[str, Any]:
    return _object(
        "apps/v1",
        "Deployment",
        spec,
        NAME,
        spec={
            "replicas": spec.replicas,
            "revisionHistoryLimit": 3,
            "selector": {"matchLabels": _SELECTOR},
            "template": {"metadata": {"labels": _labels(spec)}, "spec": _pod(spec)},
        },
    )


def _pod(spec: RecorderSpec) -> dict[str, Any]:
    environment = {
        "COLDSTART_NAMESPACE": NAMESPACE,
        "COLDSTART_KEEP": str(spec.keep),
        "COLDSTART_PORT": str(PORT),
        "COLDSTART_OTLP_ENDPOINT": spec.otlp_endpoint or "",
        "COLDSTART_CLOUDWATCH": "log" if spec.cloudwatch else "",
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTHONPATH": CODE_DIR,
        # Fewer arenas of the allocator: a handful of threads would otherwise hold a heap each.
        "MALLOC_ARENA_MAX": "2",
    }
    memory = {"memory": f"{MEMORY_MIB}Mi"}
    probe = {"httpGet": {"path": "/healthz", "port": "metrics"}}
    return {
        "serviceAccountName": NAME,
        "automountServiceAccountToken": True,
        "enableServiceLinks": False,
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": USER,
            "runAsGroup": USER,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "containers": [
            {
                "name": "recorder",
                "image": spec.image,
                "command": ["python3", "-m", ENTRY],
                "env": [{"name": name, "value": value} for name, value in environment.items()],
                "ports": [{"name": "metrics", "containerPort": PORT, "protocol": "TCP"}],
                "resources": {"requests": {"cpu": "50m", **memory}, "limits": memory},
                "readinessProbe": {**probe, "periodSeconds": 5},
                "livenessProbe": {
                    "httpGet": {"path": "/metrics", "port": "metrics"},
                    "periodSeconds": 30,
                    "failureThreshold": 4,
                },
                "securityContext": {
                    "allowPrivilegeEscalation": False,
                    "readOnlyRootFilesystem": True,
                    "capabilities": {"drop": ["ALL"]},
                },
                "volumeMounts": [{"name": "code", "mountPath": CODE_DIR, "readOnly": True}],
            }
        ],
        "volumes": [
            {
                "name": "code",
                "configMap": {
                    "name": spec.code_name,
                    "items": [{"key": _key(path), "path": path} for path in sorted(spec.code)],
                },
            }
        ],
    }
