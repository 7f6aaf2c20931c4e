"""A Kubernetes API server as the verbs ask it: plain objects in and out, none where there is nothing.

The connection is that of the ledger (docs/decisions/0021): a person's kubeconfig, made here from where the cluster is.
"""

from __future__ import annotations

import json
import ssl
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from http import HTTPStatus
from typing import Any, Protocol, cast

import httpx2
from lightkube import KubeConfig
from lightkube.config.client_adapter import Client, ConnectionParams

from budget.problems import bad_input
from scripts.cluster.access import Access
from scripts.failure import Failure
from scripts.ledger.kube_api import TIMEOUT_S, ApiError
from scripts.ledger.kubeconfig import CONNECT_S, Kubeconfig

Object = Mapping[str, Any]

PAGE = 250


class Unreachable(Failure):
    """No answer at all: the cluster is gone, private, or the network is down."""


class Refused(Failure):
    """The server answered with an error.

    Attributes:
        code: HTTP status.
    """

    def __init__(self, code: int, message: str) -> None:
        self.code = code
        super().__init__(f"the Kubernetes API refuses ({code}): {message}")


class KubernetesApi(Protocol):
    """What the verbs ask of an API server."""

    def get(self, path: str) -> Object | None:
        """What is at a path; None when there is nothing, or the kind does not exist there."""
        ...

    def items(self, path: str, **selectors: str) -> Iterator[Object]:
        """Objects of a list, page by page; nothing when the kind does not exist there."""
        ...

    def merge(self, path: str, patch: Object) -> bool:
        """Merges a patch into an object; whether it was there."""
        ...

    def delete(self, path: str) -> bool:
        """Deletes an object, its dependents in the background; whether it was there."""
        ...


class Server:
    """The API server of a cluster. Signs in when first asked, and again when its token has run out."""

    def __init__(self, access: Access) -> None:
        self._access = access
        self._connection: Kubeconfig | None = None
        self._opened = ExitStack()

    def get(self, path: str) -> Object | None:
        """What is at a path; None when there is nothing, or the kind does not exist there.

        Raises:
            Unreachable: no answer.
            Refused: an answer other than found or not found.
            BadInput: there is no token to sign in with.
        """
        return self._ask("GET", path)

    def items(self, path: str, **selectors: str) -> Iterator[Object]:
        """Objects of a list, page by page; nothing when the kind does not exist there.

        Args:
            path: of the collection.
            selectors: `labelSelector`, `fieldSelector`.
        """
        token = ""
        while True:
            query = {**selectors, "limit": str(PAGE), **({"continue": token} if token else {})}
            page = self._ask("GET", path, query=query)
            if page is None:
                return
            yield from cast("Sequence[Object]", page.get("items") or ())
            token = str(cast("Object", page.get("metadata") or {}).get("continue") or "")
            if not token:
                return

    def merge(self, path: str, patch: Object) -> bool:
        """Merges a patch into an object (RFC 7386: null removes); whether it was there."""
        return self._ask("PATCH", path, body=patch, kind="application/merge-patch+json") is not None

    def delete(self, path: str) -> bool:
        """Deletes an object, its dependents in the background; whether it was there."""
        return self._ask("DELETE", path, body={"propagationPolicy": "Background"}) is not None

    def close(self) -> None:
        """Closes its connections; asked again, it signs in again."""
        self._opened.close()
        self._connection = None

    def _ask(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        body: Object | None = None,
        kind: str = "application/json",
    ) -> Object | None:
        connection = self._connected()
        try:
            if method == "GET":
                return cast("Object", json.loads(connection.text(path, query)))
            return connection.send(method, path, body, kind)
        except ValueError as error:
            raise Unreachable(f"{self._access.endpoint}{path} answers, but not as a Kubernetes API does") from error
        except ApiError as error:
            if error.status == HTTPStatus.NOT_FOUND:
                return None
            if error.status:
                raise Refused(error.status, error.message) from error
            if not isinstance(error.__cause__, httpx2.HTTPError):
                raise bad_input(
                    "aws eks get-token",
                    f"gave no token for {self._access.cluster}: {error.__cause__}",
                    "Install the AWS CLI and sign in; the kubeconfig of the stacks asks it for tokens.",
                ) from error
            raise Unreachable(f"the Kubernetes API of {self._access.cluster} does not answer: {error}") from error

    def _connected(self) -> Kubeconfig:
        if self._connection is None:
            config = KubeConfig.from_dict(json.loads(self._access.kubeconfig)).get()
            if config is None:
                raise AssertionError("a kubeconfig of ours names its current context")
            timeout = httpx2.Timeout(TIMEOUT_S, connect=CONNECT_S)
            try:
                made = Kubeconfig(Client(config, ConnectionParams(timeout=timeout)))
            except (ssl.SSLError, ValueError) as error:
                words = f"the certificate authority of {self._access.cluster} can't be used: {error}"
                raise Unreachable(words) from error
            self._connection = self._opened.enter_context(made)
        return self._connection
