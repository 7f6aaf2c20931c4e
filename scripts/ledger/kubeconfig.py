"""The API server through a person's kubeconfig: contexts, exec plugins such as `aws eks get-token`, certificates.

The official client signs in and speaks TLS (docs/decisions/0040); what is asked stays raw JSON, as in the recorder.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import urlencode

from budget.problems import bad_input
from scripts.ledger.kube_api import TIMEOUT_S, ApiError, refusal
from scripts.ledger.raw import Object, object_of

if TYPE_CHECKING:
    from kubernetes.client import ApiClient


class Kubeconfig:
    """One cluster, as one person. Raises ApiError whenever the server refuses or can't be reached."""

    def __init__(self, client: ApiClient) -> None:
        self._client = client

    @classmethod
    def of(cls, context: str | None, file: Path | None = None) -> Kubeconfig:
        """Signs in by a kubeconfig.

        Args:
            context: of the kubeconfig; None takes its current one.
            file: None takes $KUBECONFIG, else ~/.kube/config.

        Raises:
            BadInput: no kubeconfig, no such context, or a plugin that can't be run.
        """
        from kubernetes.config import ConfigException, new_client_from_config  # noqa: PLC0415 # pyright: ignore[reportUnknownVariableType] - takes a second; its parameters are untyped

        where = file or Path(os.environ.get("KUBECONFIG", "~/.kube/config").split(os.pathsep)[0]).expanduser()
        if not where.is_file():
            raise bad_input(
                str(where),
                "there is no kubeconfig",
                "Run `aws eks update-kubeconfig`, or measure a saved folder with --from.",
            )
        try:
            return cls(new_client_from_config(config_file=str(where), context=context, persist_config=False))
        except ConfigException as error:
            raise bad_input(
                f"{where}, context {context or '(current)'}",
                str(error),
                "Name one that `kubectl config get-contexts` lists.",
            ) from error

    def text(self, path: str, query: Mapping[str, str] | None = None) -> str:
        """GET, as text."""
        return self._read(self._ask("GET", path, query, None, "", (10.0, TIMEOUT_S)))

    def send(self, method: str, path: str, body: Object | None = None, kind: str = "application/json") -> Object:
        """A write; the parsed answer."""
        answer = self._read(self._ask(method, path, None, body, kind, (10.0, TIMEOUT_S)))
        return object_of(json.loads(answer) if answer else None)

    def stream(self, path: str, query: Mapping[str, str], timeout_s: float) -> Iterator[str]:
        """GET, line by line, until the server ends it."""
        from urllib3.exceptions import HTTPError  # noqa: PLC0415 - comes with the client

        answer = self._ask("GET", path, query, None, "", (10.0, timeout_s))
        held = b""
        try:
            for chunk in answer.stream(65536, decode_content=True):
                *whole, held = (held + chunk).split(b"\n")
                for line in whole:
                    yield line.decode("utf-8", "replace")
            if held:
                yield held.decode("utf-8", "replace")
        except (HTTPError, OSError) as error:
            raise ApiError(0, f"{path}: {error or type(error).__name__}") from error
        finally:
            with contextlib.suppress(HTTPError, OSError):
                answer.close()

    def _ask(
        self,
        method: str,
        path: str,
        query: Mapping[str, str] | None,
        body: Object | None,
        kind: str,
        timeout_s: tuple[float, float],
    ) -> Any:  # noqa: ANN401 - urllib3's response, which the client hands out untyped
        """One request; the answer's body is not read yet."""
        from kubernetes.client.exceptions import ApiException  # noqa: PLC0415 - as above
        from kubernetes.config import ConfigException  # noqa: PLC0415 - as above
        from urllib3.exceptions import HTTPError  # noqa: PLC0415 - as above

        headers: dict[str, str] = {"Accept": "application/json, */*"}
        payload = None if body is None else json.loads(json.dumps(body, default=dict))
        if payload is not None:
            headers["Content-Type"] = kind
        host = str(cast("Any", self._client).configuration.host)
        url = host + path + (f"?{urlencode(query)}" if query else "")
        try:
            self._client.update_params_for_auth(headers, [], ["BearerToken"], path, method, payload)
            answer: Any = self._client.call_api(method, url, headers, payload, None, timeout_s).response
        except ApiException as error:
            raise ApiError(0, f"{path}: {error}") from error
        except (HTTPError, OSError, ConfigException) as error:
            raise ApiError(0, f"{path}: {error or type(error).__name__}") from error
        if answer.status >= 400:  # noqa: PLR2004 - HTTP's own border
            raise refusal(answer.status, answer.read())
        return answer

    def _read(self, answer: Any) -> str:  # noqa: ANN401 - as above
        from urllib3.exceptions import HTTPError  # noqa: PLC0415 - as above

        try:
            return answer.read().decode("utf-8", "replace")
        except (HTTPError, OSError) as error:
            raise ApiError(0, f"the answer was cut: {error}") from error
