"""The API server through a person's kubeconfig: contexts, exec plugins such as `aws eks get-token`, certificates.

lightkube signs in and speaks TLS (docs/decisions/0021, 0040); what is asked stays raw JSON, as in the recorder.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Self, TypeVar

import httpx2
import yaml
from lightkube import KubeConfig
from lightkube.config.client_adapter import Client, ConnectionParams
from lightkube.config.kubeconfig import SingleConfig
from lightkube.core.exceptions import ConfigError

from budget.problems import bad_input
from scripts.ledger.kube_api import TIMEOUT_S, ApiError, refusal
from scripts.ledger.raw import Object, object_of

CONNECT_S = 10.0

Connection = TypeVar("Connection")


def opened(
    make: Callable[[SingleConfig], Connection], context: str | None, file: Path | None = None, *, instead: str = ""
) -> Connection:
    """Signs in by a kubeconfig.

    Args:
        make: the connection, of one context.
        context: of the kubeconfig; None takes its current one.
        file: None takes $KUBECONFIG, else ~/.kube/config.
        instead: what a person without a kubeconfig can do, in words.

    Raises:
        BadInput: no kubeconfig, no such context, or one that can't be used.
    """
    where = file or Path(os.environ.get("KUBECONFIG", "~/.kube/config").split(os.pathsep)[0]).expanduser()
    fix = f"Run `aws eks update-kubeconfig --name CLUSTER`{instead}."
    if not where.is_file():
        raise bad_input(str(where), "there is no kubeconfig", fix)
    try:
        known = KubeConfig.from_file(where)
    except OSError as error:
        raise bad_input(str(where), f"can't be read: {error.strerror}", "Make it readable for yourself.") from error
    except (ConfigError, yaml.YAMLError, ValueError, LookupError, AttributeError, TypeError) as error:
        # The library takes it for granted that the file is a kubeconfig.
        raise bad_input(str(where), f"not a kubeconfig ({' '.join(str(error).split())[:200]})", fix) from error
    shown = f"{where}, context {context or '(current)'}"
    fix = "Name one that `kubectl config get-contexts` lists."
    try:
        config = known.get(context)
        if config is None:
            raise bad_input(shown, "the kubeconfig has no current context", fix)
        return make(config)
    except (ConfigError, OSError, KeyError) as error:
        raise bad_input(shown, str(error), fix) from error


class Kubeconfig:
    """One cluster, as one person. Raises ApiError whenever the server refuses or can't be reached."""

    def __init__(self, client: httpx2.Client) -> None:
        self._client = client

    @classmethod
    def of(cls, context: str | None, file: Path | None = None) -> Kubeconfig:
        """Signs in by a kubeconfig.

        Args:
            context: of the kubeconfig; None takes its current one.
            file: None takes $KUBECONFIG, else ~/.kube/config.

        Raises:
            BadInput: no kubeconfig, no such context, or one that can't be used.
        """
        timeout = httpx2.Timeout(TIMEOUT_S, connect=CONNECT_S)

        def connection(config: SingleConfig) -> Kubeconfig:
            return cls(Client(config, ConnectionParams(timeout=timeout)))

        return opened(connection, context, file, instead=", or measure a saved folder with --from")

    def __enter__(self) -> Self:
        """Nothing is asked before the first question."""
        return self

    def __exit__(self, *_: object) -> None:
        """Closes its connections."""
        self._client.close()

    def text(self, path: str, query: Mapping[str, str] | None = None) -> str:
        """GET, as text."""
        return self._ask("GET", path, query, None, "").text

    def send(self, method: str, path: str, body: Object | None = None, kind: str = "application/json") -> Object:
        """A write; the parsed answer."""
        answer = self._ask(method, path, None, body, kind).text
        return object_of(json.loads(answer) if answer else None)

    def stream(self, path: str, query: Mapping[str, str], timeout_s: float) -> Iterator[str]:
        """GET, line by line, until the server ends it."""
        timeout = httpx2.Timeout(timeout_s, connect=CONNECT_S)
        try:
            with self._client.stream("GET", path, params=dict(query), timeout=timeout) as answer:
                if answer.is_error:
                    raise refusal(answer.status_code, answer.read())
                yield from answer.iter_lines()
        except (httpx2.HTTPError, httpx2.StreamError, ConfigError) as error:
            raise ApiError(0, f"{path}: {error or type(error).__name__}") from error

    def _ask(
        self, method: str, path: str, query: Mapping[str, str] | None, body: Object | None, kind: str
    ) -> httpx2.Response:
        content = None if body is None else json.dumps(body, default=dict).encode()
        headers = {"Accept": "application/json, */*"} | ({} if content is None else {"Content-Type": kind})
        try:
            answer = self._client.request(
                method, path, params=dict(query) if query else None, content=content, headers=headers
            )
        except (httpx2.HTTPError, ConfigError, ValueError, OSError) as error:
            raise ApiError(0, f"{path}: {error or type(error).__name__}") from error
        if answer.is_error:
            raise refusal(answer.status_code, answer.content)
        return answer
