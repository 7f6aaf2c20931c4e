"""A small client of a Kubernetes API server: enough for a test to apply objects and to look at them.

Every write is a server-side apply with strict field validation: a misspelt field is refused, never dropped.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import requests
import yaml

Object = dict[str, Any]

FIELD_MANAGER = "tests"
NOT_FOUND = 404


class ApiError(Exception):
    """The API server refused a request.

    Attributes:
        code: the HTTP status.
        message: what the server said.
    """

    def __init__(self, code: int, message: str) -> None:
        super().__init__(f"{code}: {message}")
        self.code = code
        self.message = message


class KubeApi:
    """One API server, as the person whose kubeconfig it is."""

    def __init__(self, kubeconfig: Path) -> None:
        config = yaml.safe_load(kubeconfig.read_text())
        cluster, user = config["clusters"][0]["cluster"], config["users"][0]["user"]
        self.endpoint: str = cluster["server"]
        self.token: str = user["token"]
        self.certificate_authority_data: str = cluster["certificate-authority-data"]
        """Base64, as in a kubeconfig and as EKS describes a cluster."""
        authority = kubeconfig.with_name("kubeconfig-ca.crt")
        if not authority.exists():
            authority.write_bytes(base64.b64decode(self.certificate_authority_data))
        self._session = requests.Session()
        self._session.trust_env = False
        self._session.verify = str(authority)
        self._session.headers["Authorization"] = f"Bearer {self.token}"
        self._plurals: dict[str, dict[str, tuple[str, bool]]] = {}

    def request(
        self, method: str, path: str, *, body: Object | None = None, headers: Mapping[str, str] | None = None
    ) -> Object:
        """One request; the parsed answer.

        Raises:
            ApiError: the server answered with an error.
        """
        answer = self._session.request(method, self.endpoint + path, json=body, headers=headers, timeout=30)
        if answer.status_code >= requests.codes.bad_request:
            message = answer.text
            if "json" in answer.headers.get("Content-Type", ""):
                message = answer.json().get("message", message)
            raise ApiError(answer.status_code, message)
        return answer.json() if "json" in answer.headers.get("Content-Type", "") else {"text": answer.text}

    def ready(self) -> bool:
        """Whether the server says that it is ready."""
        try:
            self.request("GET", "/readyz")
        except (ApiError, requests.ConnectionError):
            return False
        return True

    def get(self, path: str) -> Object | None:
        """What is at a path, or nothing."""
        try:
            return self.request("GET", path)
        except ApiError as refused:
            if refused.code == NOT_FOUND:
                return None
            raise

    def items(self, path: str) -> list[Object]:
        """The objects of a list."""
        return self.request("GET", path)["items"]

    def apply(self, obj: Object, *, dry_run: bool = False) -> Object:
        """Server-side apply of one object, strictly; returns the object as the server has it now.

        Raises:
            ApiError: unknown field, invalid value, admission (Pod Security), missing namespace, ...
        """
        query = f"?fieldManager={FIELD_MANAGER}&force=true&fieldValidation=Strict" + ("&dryRun=All" if dry_run else "")
        return self.request(
            "PATCH", self.path_of(obj) + query, body=obj, headers={"Content-Type": "application/apply-patch+yaml"}
        )

    def merge(self, path: str, change: Object) -> Object:
        """Changes fields of what is at a path; None removes one."""
        return self.request("PATCH", path, body=change, headers={"Content-Type": "application/merge-patch+json"})

    def create(self, obj: Object) -> Object:
        """Plain creation, which keeps a node's status: a kubelet registers itself in this way."""
        collection = self.path_of(obj).rpartition("/")[0]
        return self.request("POST", f"{collection}?fieldValidation=Strict", body=obj)

    def delete(self, path: str) -> bool:
        """Deletes what is at a path; whether there was anything."""
        try:
            self.request("DELETE", f"{path}?propagationPolicy=Background")
        except ApiError as refused:
            if refused.code == NOT_FOUND:
                return False
            raise
        return True

    def path_of(self, obj: Object) -> str:
        """The path of one object, by the server's own list of what it knows."""
        group_version: str = obj["apiVersion"]
        prefix = f"/apis/{group_version}" if "/" in group_version else f"/api/{group_version}"
        if obj["kind"] not in self._plurals.get(group_version, {}):
            self._plurals[group_version] = {
                resource["kind"]: (resource["name"], resource["namespaced"])
                for resource in self.request("GET", prefix)["resources"]
                if "/" not in resource["name"]
            }
        plural, namespaced = self._plurals[group_version][obj["kind"]]
        metadata = obj["metadata"]
        namespace = f"/namespaces/{metadata.get('namespace', 'default')}" if namespaced else ""
        return f"{prefix}{namespace}/{plural}/{metadata['name']}"
