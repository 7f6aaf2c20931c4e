"""The AWS APIs behind the stand-in: moto over HTTP, so that everything else that asks moto sees the same world."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from functools import cached_property
from typing import Any

import boto3
from botocore import xform_name
from botocore.config import Config
from botocore.exceptions import ClientError

from tests.standin.faults import ServiceError

GONE = ("NotFound", "NoSuch", "ResourceNotFoundException")
"""Parts of the error codes by which the services say that a thing does not exist."""


class Cloud:
    """One account and region of moto."""

    def __init__(self, endpoint: str, region: str) -> None:
        self.region = region
        self.partition = "aws-cn" if region.startswith("cn-") else "aws"
        self._endpoint = endpoint
        self._clients: dict[str, Any] = {}
        # moto's backends are plain dictionaries: one call at a time keeps its answers deterministic.
        self._lock = threading.RLock()

    def call(self, named: str, parameters: Mapping[str, Any]) -> dict[str, Any]:
        """Calls `service.Operation`.

        Raises:
            ServiceError: the service refused; the text is its code and message.
        """
        service, _, name = named.partition(".")
        with self._lock:
            try:
                return getattr(self._client(service), xform_name(name))(**parameters)
            except ClientError as error:
                details = error.response["Error"]
                raise ServiceError(f"{name}: {details['Code']}: {details['Message']}") from error

    def find(self, named: str, parameters: Mapping[str, Any]) -> dict[str, Any] | None:
        """Like `call`; nothing when the service says that the thing does not exist."""
        try:
            return self.call(named, parameters)
        except ServiceError as refusal:
            if any(code in str(refusal) for code in GONE):
                return None
            raise

    @cached_property
    def account(self) -> str:
        """The account's number."""
        return self.call("sts.GetCallerIdentity", {})["Account"]

    def _client(self, service: str) -> Any:
        if service not in self._clients:
            self._clients[service] = boto3.client(
                service,
                region_name=self.region,
                endpoint_url=self._endpoint,
                # moto asks for no particular ones; whether the user has any is Configuration's question.
                aws_access_key_id="testing",
                aws_secret_access_key="testing",  # noqa: S106 - as above
                config=Config(retries={"max_attempts": 0}, s3={"addressing_style": "path"}, proxies={}),
            )
        return self._clients[service]
