"""A pod of a few seconds that reads what a node really runs with: SOCI's own file, and which disk the images are on.

It mounts two host folders read-only, changes nothing, and is deleted again. It needs a namespace that admits host
mounts, and a person who asks for it (`--probe-node`).
"""

from __future__ import annotations

import json
import textwrap
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from scripts.ledger.bundle import Bundle
from scripts.ledger.facts import Absence
from scripts.ledger.kube_api import NOT_FOUND, Api, ApiError, get
from scripts.ledger.raw import object_of, text

NAMESPACE = "kube-system"
PATIENCE_S = 120.0

PROGRAM = textwrap.dedent(
    """
    import json, os, re, sys
    found = {"soci": {}, "mounts": []}
    for path in ("/host/etc/soci-snapshotter-grpc/config.toml", "/host/etc/soci-snapshotter/config.toml"):
        try:
            import tomllib
            with open(path, "rb") as file:
                content = tomllib.load(file)
        except (OSError, ValueError):
            continue
        pull = content.get("pull_modes", {}).get("parallel_pull_unpack", {})
        found["soci"] = {key: value for key, value in pull.items() if isinstance(value, (int, float, str, bool))}
    best = {}
    for line in open("/host/proc/1/mountinfo"):
        left, _, right = line.partition(" - ")
        fields, rest = left.split(), right.split()
        best[fields[4]] = {"root": fields[3], "device": rest[1], "numbers": fields[2]}
    for wanted in ("/var/lib/containerd", "/var/lib/soci-snapshotter", "/var/lib/kubelet", "/var/log/pods"):
        point = wanted
        while point not in best and point != "/":
            point = os.path.dirname(point)
        mount = best.get(point)
        if not mount:
            continue
        name = os.path.basename(os.path.realpath("/host/sys/dev/block/" + mount["numbers"]))
        block = "/host/sys/class/block/" + name
        members = os.listdir(block + "/slaves") if os.path.isdir(block + "/slaves") else []
        models = set()
        for member in members or [name]:
            disk = re.sub(r"p[0-9]+$", "", member)
            try:
                models.add(open("/host/sys/class/block/" + disk + "/device/model").read().strip())
            except OSError:
                pass
        model = " + ".join(sorted(models))
        found["mounts"].append({"path": wanted, "mount": point, "device": mount["device"], "model": model})
    print(json.dumps(found))
    """
).strip()


@dataclass(frozen=True, kw_only=True)
class Probe:
    """Reads nodes through an API.

    Attributes:
        image: any with Python 3.11.
        meant: where images were meant to be, `nvme` or `ebs`; empty when nobody said.
        wait: waits until a condition is true or patience ends; returns whether it is.
    """

    api: Api
    image: str
    meant: str
    wait: Callable[[Callable[[], bool], float], bool]

    def read(self, bundle: Bundle) -> Bundle:
        """The bundle with what a probe pod read on its node, or why none could."""
        node = text(bundle.pod, "spec.nodeName")
        if not node:
            return bundle
        pod = probe_pod(node, self.image)
        name = pod["metadata"]["name"]
        base = f"/api/v1/namespaces/{NAMESPACE}/pods"
        try:
            self._delete(f"{base}/{name}")
            self.api.send("POST", base, pod)
            self.wait(
                lambda: text(get(self.api, f"{base}/{name}"), "status.phase") in {"Succeeded", "Failed"}, PATIENCE_S
            )
            said = self.api.text(f"{base}/{name}/log")
            found = object_of(json.loads(said.strip().splitlines()[-1]) if said.strip() else None)
        except (ApiError, ValueError) as error:
            return _absent(bundle, f"the probe pod on {node}: {error}")
        finally:
            self._delete(f"{base}/{name}")
        if "mounts" not in found:
            return _absent(bundle, f"the probe pod on {node} did not end in time, or printed nothing")
        return replace(bundle, probe={**found, "meant": self.meant})

    def _delete(self, path: str) -> None:
        try:
            self.api.send("DELETE", f"{path}?gracePeriodSeconds=0")
        except ApiError as error:
            if error.status != NOT_FOUND:
                raise


def probe_pod(node: str, image: str) -> Mapping[str, Any]:
    """The pod: on one node whatever its taints, read-only, without a token, without a capability."""

    def host(name: str, path: str) -> Mapping[str, Any]:
        return {"name": name, "hostPath": {"path": path}}

    def mount(name: str, path: str) -> Mapping[str, Any]:
        return {"name": name, "mountPath": path, "readOnly": True}

    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": f"coldstart-probe-{node.replace('.', '-')}"[:63].rstrip("-"),
            "namespace": NAMESPACE,
            "labels": {"app.kubernetes.io/managed-by": "coldstart"},
        },
        "spec": {
            "nodeName": node,
            "restartPolicy": "Never",
            "activeDeadlineSeconds": int(PATIENCE_S),
            "automountServiceAccountToken": False,
            "enableServiceLinks": False,
            "tolerations": [{"operator": "Exists"}],
            "containers": [
                {
                    "name": "probe",
                    "image": image,
                    "command": ["python3", "-c", PROGRAM],
                    "resources": {"requests": {"cpu": "10m", "memory": "32Mi"}, "limits": {"memory": "64Mi"}},
                    "securityContext": {
                        "allowPrivilegeEscalation": False,
                        "readOnlyRootFilesystem": True,
                        "capabilities": {"drop": ["ALL"]},
                        "runAsUser": 0,
                    },
                    "volumeMounts": [mount("etc", "/host/etc"), mount("proc", "/host/proc"), mount("sys", "/host/sys")],
                }
            ],
            "volumes": [host("etc", "/etc"), host("proc", "/proc"), host("sys", "/sys")],
        },
    }


def _absent(bundle: Bundle, why: str) -> Bundle:
    return replace(bundle, absences=(*bundle.absences, Absence(what="probe", why=why)))
