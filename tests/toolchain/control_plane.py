"""A real Kubernetes control plane on loopback, for tests: etcd, API server, controllers, scheduler, and kwok.

Nothing in it is simulated but the nodes: kwok plays every kubelet, so a pod that the scheduler places becomes Ready
without being run. Pod Security admission is on, as it always is in the API server: the labels of a namespace decide.

    with ControlPlane(tmp_path) as plane:
        plane.join_node("gpu-1", allocatable={"cpu": "7", "memory": "60Gi", "nvidia.com/gpu": "1"})
        plane.api.apply(deployment)
"""

from __future__ import annotations

import base64
import secrets
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import yaml

from scripts.rehearsal.ports import free_ports
from tests.toolchain.certificates import Certificates, write_certificates
from tests.toolchain.engines import TOOLS, Server, engine, free_port
from tests.toolchain.kube_api import KubeApi
from tests.toolchain.nodes import is_ready, node_object
from tests.toolchain.waiting import wait_until

SERVICE_RANGE = "10.0.0.0/24"
SERVICE_ADDRESS = "10.0.0.1"
POD_RANGE = "10.244.0.0/16"
# kwok renews a node's lease four times in this time; without leases the controllers lose a node after 50 s.
NODE_LEASE_S = 40
BIND_ATTEMPTS = 3
PATIENCE_S = 90.0


class ControlPlane:
    """Starts on entry, is usable at once, and leaves no process behind.

    Attributes:
        folder: its data, logs and kubeconfig.
        kubeconfig: an administrator's.
        api: a client with that kubeconfig.
    """

    api: KubeApi

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.kubeconfig = folder / "kubeconfig"
        self._servers: list[Server] = []

    def __enter__(self) -> Self:
        """Starts everything; on failure nothing is left running."""
        self.folder.mkdir(parents=True, exist_ok=True)
        try:
            self._start()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Stops everything."""
        self.stop()

    def stop(self) -> None:
        """Stops the servers, the last started first: the API server is gone before its store is."""
        while self._servers:
            self._servers.pop().stop()

    def join_node(
        self,
        name: str,
        *,
        labels: Mapping[str, str] | None = None,
        taints: Sequence[Mapping[str, str]] = (),
        allocatable: Mapping[str, str] | None = None,
    ) -> dict[str, Any]:
        """Joins a simulated node and waits until it is Ready.

        Args:
            name: the node's name.
            labels: beside those that every node carries.
            taints: as in a Node's spec (`effect: NoSchedule`).
            allocatable: what pods may use, in Kubernetes quantities.
        """
        self.api.create(node_object(name, labels=labels or {}, taints=taints, allocatable=allocatable or {}))
        return wait_until(
            lambda: (node := self.api.get(f"/api/v1/nodes/{name}")) and is_ready(node) and node,
            what=f"node {name} is Ready",
        )

    def define(self, folder: Path) -> None:
        """Applies the CustomResourceDefinitions in a folder and waits until the server serves every one."""
        for file in sorted(folder.glob("*.yaml")):
            definition = yaml.safe_load(file.read_text())
            self.api.apply(definition)
            group, kind = definition["spec"]["group"], definition["spec"]["names"]["kind"]
            for version in definition["spec"]["versions"]:
                wait_until(
                    lambda path=f"/apis/{group}/{version['name']}", kind=kind: (
                        kind in {each["kind"] for each in (self.api.get(path) or {"resources": []})["resources"]}
                    ),
                    what=f"{kind} of {group}/{version['name']} is served",
                )

    def _start(self) -> None:
        certificates = write_certificates(self.folder / "certificates", SERVICE_ADDRESS)
        token = secrets.token_hex(16)
        tokens = self.folder / "tokens.csv"
        tokens.write_text(f"{token},admin,admin,system:masters\n")
        self._start_api_server(certificates, tokens, token)
        self._server(
            "controllers",
            engine("kube-controller-manager"),
            f"--kubeconfig={self.kubeconfig}",
            "--leader-elect=false",
            "--bind-address=127.0.0.1",
            "--secure-port=0",
            f"--root-ca-file={certificates.authority}",
            f"--service-account-private-key-file={certificates.service_account_key}",
            f"--cluster-signing-cert-file={certificates.authority}",
            f"--cluster-signing-key-file={certificates.authority_key}",
        )
        self._server(
            "scheduler",
            engine("kube-scheduler"),
            f"--kubeconfig={self.kubeconfig}",
            "--leader-elect=false",
            "--secure-port=0",
        )
        self._server(
            "kwok",
            engine("kwok"),
            f"--kubeconfig={self.kubeconfig}",
            f"--config={TOOLS / 'kwok-stages.yaml'}",
            "--manage-all-nodes=true",
            f"--node-lease-duration-seconds={NODE_LEASE_S}",
            f"--cidr={POD_RANGE}",
            "--node-ip=127.0.0.1",
        )
        # No pod can be created in a namespace before the controllers have given it its service account.
        self._wait(
            lambda: self.api.get("/api/v1/namespaces/default/serviceaccounts/default"), "the default service account"
        )

    def _start_api_server(self, certificates: Certificates, tokens: Path, token: str) -> None:
        """Store and API server. Their ports were free a moment ago; if somebody was quicker, others are tried."""
        for attempt in range(1, BIND_ATTEMPTS + 1):
            port = free_port()
            self._write_kubeconfig(f"https://127.0.0.1:{port}", certificates.authority.read_bytes(), token)
            self.api = KubeApi(self.kubeconfig)
            store = self._start_store(attempt)
            self._server(
                "apiserver",
                engine("kube-apiserver"),
                f"--etcd-servers={store}",
                f"--secure-port={port}",
                "--bind-address=127.0.0.1",
                "--advertise-address=127.0.0.1",
                "--endpoint-reconciler-type=none",
                f"--cert-dir={self.folder}",
                f"--tls-cert-file={certificates.server}",
                f"--tls-private-key-file={certificates.server_key}",
                f"--client-ca-file={certificates.authority}",
                f"--token-auth-file={tokens}",
                "--authorization-mode=Node,RBAC",
                f"--service-cluster-ip-range={SERVICE_RANGE}",
                "--service-account-issuer=https://kubernetes.default.svc",
                f"--service-account-key-file={certificates.service_account_public}",
                f"--service-account-signing-key-file={certificates.service_account_key}",
            )
            try:
                self._wait(self.api.ready, "the API server is ready")
            except RuntimeError as error:
                if "address already in use" not in str(error) or attempt == BIND_ATTEMPTS:
                    raise
                self.stop()
            else:
                return

    def _start_store(self, attempt: int) -> str:
        client, peer = (f"http://127.0.0.1:{port}" for port in free_ports(2))
        self._server(
            "etcd",
            engine("etcd"),
            f"--data-dir={self.folder / f'etcd-{attempt}'}",
            f"--listen-client-urls={client}",
            f"--advertise-client-urls={client}",
            f"--listen-peer-urls={peer}",
            f"--initial-advertise-peer-urls={peer}",
            f"--initial-cluster=default={peer}",
            "--unsafe-no-fsync",  # nothing here has to survive a power cut
        )
        return client

    def _write_kubeconfig(self, endpoint: str, authority: bytes, token: str) -> None:
        cluster = {"server": endpoint, "certificate-authority-data": base64.b64encode(authority).decode()}
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "tests", "cluster": cluster}],
            "users": [{"name": "admin", "user": {"token": token}}],
            "contexts": [{"name": "tests", "context": {"cluster": "tests", "user": "admin"}}],
            "current-context": "tests",
        }
        self.kubeconfig.write_text(yaml.safe_dump(config))
        self.kubeconfig.chmod(0o600)

    def _server(self, name: str, binary: Path, *flags: str) -> None:
        # GOMAXPROCS and GOGC are left alone: these are the engines as they are.
        self._servers.append(Server(name, [str(binary), *flags], folder=self.folder))

    def _wait(self, condition: Any, what: str) -> None:
        def asked() -> Any:
            for server in self._servers:
                server.check()
            return condition()

        wait_until(asked, what=what, patience_s=PATIENCE_S)
