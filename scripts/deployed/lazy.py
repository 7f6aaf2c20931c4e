"""The backend for verbs that can do without it: opened when first asked, and its absence is no failure."""

from __future__ import annotations

from pathlib import Path

import click

from budget.problems import BadInput
from scripts.account.session import Clients
from scripts.cluster.access import from_eks, from_state
from scripts.cluster.api import KubernetesApi, Server
from scripts.deployed.backend import Backend
from scripts.deployed.state import State
from scripts.failure import Failure


class LazyBackend:
    """A backend that is opened when a state is asked for.

    Args:
        directory: folder of the stack files.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._backend: Backend | None = None
        self._servers: list[Server] = []

    def state(self, name: str) -> State:
        """The state of a stack.

        Raises:
            BadInput: no such stack, or no Pulumi CLI.
            EngineRefused: the backend refuses.
        """
        if self._backend is None:
            self._backend = Backend(self._directory)
        return self._backend.state(name)

    def api(self, environment: str, clients: Clients, cluster: str) -> KubernetesApi | None:
        """The API server of an environment's cluster: where its stack says it is, else where EKS says, or None."""
        try:
            access = from_state(self.state(environment))
        except (BadInput, Failure) as error:
            click.echo(f"note: {error}; asking EKS for the cluster's address", err=True)
            access = None
        access = access or from_eks(clients, cluster)
        if access is None:
            return None
        self._servers.append(server := Server(access))
        return server

    def close(self) -> None:
        """Closes it and the ways to clusters, where they were opened."""
        for server in self._servers:
            server.close()
        if self._backend is not None:
            self._backend.close()
