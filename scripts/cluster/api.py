"""A Kubernetes API server, through the official client's connection and credentials, with plain objects in and out."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Literal, Protocol, cast
from urllib.parse import urlencode

from budget.problems import bad_input
from scripts.cluster.access import Access
from scripts.failure import Failure

if TYPE_CHECKING:
    from kubernetes.client import ApiClient

Object = Mapping[str, Any]

PAGE = 250
TIMEOUT_S = (5.0, 30.0)
"""To connect, and to answer."""


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
    """The API server of a cluster. Signs in again when its token has run out."""

    def __init__(self, access: Access) -> None:
        self._access = access
        self._client: ApiClient | None = None

    def get(self, path: str) -> Object | None:
        """What is at a path; None when there is nothing, or the kind does not exist there.

        Raises:
            Unreachable: no answer.
            Refused: an answer other than found or not found.
        """
        return self._request("GET", path)

    def items(self, path: str, **selectors: str) -> Iterator[Object]:
        """Objects of a list, page by page; nothing when the kind does not exist there.

        Args:
            path: of the collection.
            selectors: `labelSelector`, `fieldSelector`.
        """
        token = ""
        while True:
            query = urlencode({**selectors, "limit": PAGE, **({"continue": token} if token else {})})
            page = self._request("GET", f"{path}?{query}")
            if page is None:
                return
            yield from cast("Sequence[Object]", page.get("items") or ())
            token = str(cast("Object", page.get("metadata") or {}).get("continue") or "")
            if not token:
                return

    def merge(self, path: str, patch: Object) -> bool:
        """Merges a patch into an object (RFC 7386: null removes); whether it was there."""
        return self._request("PATCH", path, patch, "application/merge-patch+json") is not None

    def delete(self, path: str) -> bool:
        """Deletes an object, its dependents in the background; whether it was there."""
        return self._request("DELETE", f"{path}?propagationPolicy=Background") is not None

    def _request(
        self,
        method: Literal["GET", "PATCH", "DELETE"],
        path: str,
        body: Object | None = None,
        content_type: str = "application/json",
    ) -> Object | None:
        code, text = self._answer(method, path, body, content_type)
        if code == HTTPStatus.UNAUTHORIZED:
            self._client = None  # tokens of EKS last 15 minutes
            code, text = self._answer(method, path, body, content_type)
        if code == HTTPStatus.NOT_FOUND:
            return None
        if code >= HTTPStatus.BAD_REQUEST:
            raise Refused(code, _message(text))
        return cast("Object", json.loads(text or "{}"))

    def _answer(self, method: str, path: str, body: Object | None, content_type: str) -> tuple[int, str]:
        from kubernetes.client.exceptions import ApiException  # noqa: PLC0415 - see _signed_in
        from urllib3.exceptions import HTTPError  # noqa: PLC0415 - as above

        client = self._signed_in()
        try:
            answer = client.call_api(
                method,
                f"{self._access.endpoint.rstrip('/')}{path}",
                header_params={
                    **self._authorization(client),
                    "Accept": "application/json",
                    "Content-Type": content_type,
                },
                body=body,
                _request_timeout=TIMEOUT_S,
            )
            data = cast("bytes", answer.read())
        except (HTTPError, ApiException, OSError) as error:
            raise Unreachable(f"the Kubernetes API of {self._access.cluster} does not answer: {error}") from error
        return cast("int", answer.status), data.decode(errors="replace")

    def _signed_in(self) -> ApiClient:
        if self._client is None:
            # Loading the client takes most of a second: only verbs that meet a cluster pay it.
            from kubernetes.client import Configuration  # noqa: PLC0415 - as above
            from kubernetes.config import (  # noqa: PLC0415 - as above
                new_client_from_config_dict,  # pyright: ignore[reportUnknownVariableType] - the client types its arguments as anything
            )

            configuration = Configuration()
            # One wait is enough for an address that leads nowhere; the verbs have their own patience.
            configuration.retries = 0
            self._client = new_client_from_config_dict(
                json.loads(self._access.kubeconfig), persist_config=False, client_configuration=configuration
            )
        return self._client

    def _authorization(self, client: ApiClient) -> Mapping[str, str]:
        found = cast("str | None", client.configuration.get_api_key_with_prefix("BearerToken"))
        if not found:
            raise bad_input(
                "aws eks get-token",
                "gave no token for the cluster",
                "Install the AWS CLI and sign in; the kubeconfig of the stacks asks it for tokens.",
            )
        return {"Authorization": found}


def _message(text: str) -> str:
    try:
        return str(json.loads(text).get("message", text))
    except (ValueError, AttributeError):
        return text[:300]
