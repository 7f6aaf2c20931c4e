"""The recorder in the environment's cluster: its rendered objects as resources, and the code it runs."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import pulumi
import pulumi_kubernetes as k8s

from infra.environment_settings import Recorder as Settings
from serving.recorder import ENTRY, RecorderSpec, objects

ROOT = Path(__file__).resolve().parents[1]
ROOMS = ("scripts", "serving", "budget")
DATA = ("scripts/ledger/metrics.toml",)
"""Files that the code reads."""

KINDS: Mapping[str, type[pulumi.CustomResource]] = {
    "Namespace": k8s.core.v1.Namespace,
    "ServiceAccount": k8s.core.v1.ServiceAccount,
    "ClusterRole": k8s.rbac.v1.ClusterRole,
    "ClusterRoleBinding": k8s.rbac.v1.ClusterRoleBinding,
    "Role": k8s.rbac.v1.Role,
    "RoleBinding": k8s.rbac.v1.RoleBinding,
    "ConfigMap": k8s.core.v1.ConfigMap,
    "Service": k8s.core.v1.Service,
    "NetworkPolicy": k8s.networking.v1.NetworkPolicy,
    "Deployment": k8s.apps.v1.Deployment,
}
_PYTHON_NAMES = {"automountServiceAccountToken": "automount_service_account_token", "roleRef": "role_ref"}
"""The SDK names an object's top-level members in Python's way; below them, plain dicts go as they are."""


@dataclass(frozen=True, kw_only=True)
class RecorderArgs:
    """What decides the recorder."""

    spec: RecorderSpec


class Recorder(pulumi.ComponentResource):
    """Namespace, rights, code and Deployment; each after the namespace."""

    def __init__(self, name: str, args: RecorderArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("coldstart:recorder:Recorder", name, None, opts)
        namespace: list[pulumi.Resource] = []
        for manifest in objects(args.spec):
            kind = manifest["kind"]
            members: dict[str, Any] = {
                _PYTHON_NAMES.get(key, key): value
                for key, value in manifest.items()
                if key not in ("apiVersion", "kind")
            }
            resource = KINDS[kind](
                f"{name}-{kind.lower()}", opts=pulumi.ResourceOptions(parent=self, depends_on=namespace), **members
            )
            if kind == "Namespace":
                namespace.append(resource)
        self.register_outputs({})


def recorder_spec(asked: Settings, *, labels: Mapping[str, str]) -> RecorderSpec:
    """The recorder as the settings have it."""
    return RecorderSpec(
        image=asked.image,
        code=code(),
        keep=asked.keep,
        otlp_endpoint=asked.otlp_endpoint,
        cloudwatch=asked.cloudwatch,
        replicas=asked.replicas,
        labels=labels,
    )


@cache
def code() -> Mapping[str, str]:
    """Path → text of every file that the recorder imports or reads, found by its imports.

    The room above is read as text, never imported: what runs in the cluster is data here.
    """
    found: dict[str, str] = {}
    waiting = [ENTRY]
    while waiting:
        module = waiting.pop()
        for path in _files(module):
            if path in found:
                continue
            found[path] = (ROOT / path).read_text(encoding="utf-8")
            waiting += _imports(ast.parse(found[path]))
    return dict(sorted((found | {path: (ROOT / path).read_text(encoding="utf-8") for path in DATA}).items()))


def _files(module: str) -> Iterator[str]:
    """The file of a module, and the packages that hold it."""
    parts = module.split(".")
    for depth in range(1, len(parts)):
        yield f"{'/'.join(parts[:depth])}/__init__.py"
    path = "/".join(parts)
    yield f"{path}/__init__.py" if (ROOT / path).is_dir() else f"{path}.py"


def _imports(tree: ast.Module) -> Iterator[str]:
    """Modules of ours that a file imports when it runs; those for type checkers alone are left out."""
    for statement in tree.body:
        if isinstance(statement, ast.ImportFrom) and statement.module and statement.module.split(".")[0] in ROOMS:
            yield statement.module
            for alias in statement.names:
                if (ROOT / f"{statement.module.replace('.', '/')}/{alias.name}.py").is_file():
                    yield f"{statement.module}.{alias.name}"
