"""An image registry, as far as pins need it: which digest a tag stands for, and how large the layers are.

Speaks the OCI distribution API with anonymous or ECR tokens. Plain HTTP is used for localhost alone.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, Protocol, cast

import boto3
import httpx2 as httpx

from scripts.failure import Failure

MANIFEST_TYPES = (
    "application/vnd.oci.image.index.v1+json, application/vnd.docker.distribution.manifest.list.v2+json, "
    "application/vnd.oci.image.manifest.v1+json, application/vnd.docker.distribution.manifest.v2+json"
)
DOCKER_HUB = "registry-1.docker.io"
TIMEOUT_S = 30
_ECR = re.compile(r"^\d{12}\.dkr\.ecr\.(?P<region>[a-z0-9-]+)\.amazonaws\.com(\.cn)?$")
_CHALLENGE = re.compile(r'(\w+)="([^"]*)"')


@dataclass(frozen=True, kw_only=True)
class Reference:
    """An image reference, taken apart."""

    registry: str
    repository: str
    tag: str

    @property
    def url(self) -> str:
        """Base address of the repository in the registry's API."""
        host = self.registry.partition(":")[0]
        scheme = "http" if host in ("localhost", "127.0.0.1") else "https"
        return f"{scheme}://{self.registry}/v2/{self.repository}"


@dataclass(frozen=True, kw_only=True)
class ImagePin:
    """What a tag stood for when it was asked.

    Attributes:
        digest: of what the tag points at, an index or a manifest.
        layers: compressed bytes of each layer on the platform asked for.
    """

    digest: str
    layers: tuple[int, ...]


class Registry(Protocol):
    """Resolves tags."""

    def resolve(self, image: str, architecture: str) -> ImagePin:
        """The digest of a tag, and the layers on linux and this architecture (`amd64`, `arm64`)."""
        ...


def parse(image: str) -> Reference:
    """Registry, repository and tag of an image as Docker reads it; a digest behind the tag is dropped."""
    name = image.partition("@")[0]
    first, slash, rest = name.partition("/")
    if slash and ("." in first or ":" in first or first == "localhost"):
        registry, path = first, rest
    else:
        registry, path = DOCKER_HUB, name if slash else f"library/{name}"
    repository, colon, tag = path.partition(":")
    return Reference(registry=registry, repository=repository, tag=tag if colon else "latest")


class HttpRegistry:
    """Registries over HTTP."""

    def __init__(self, client: httpx.Client | None = None) -> None:
        self._client = client or httpx.Client(timeout=TIMEOUT_S, follow_redirects=True)

    def resolve(self, image: str, architecture: str) -> ImagePin:
        """The digest of a tag, and the layers on linux and this architecture.

        Raises:
            Failure: no such image or tag, no access, registry unreachable, or not built for the architecture.
        """
        reference = parse(image)
        try:
            return self._resolve(image, reference, architecture)
        except httpx.HTTPError as error:
            raise Failure(f"{image}: {reference.registry} does not answer: {error}") from error

    def _resolve(self, image: str, reference: Reference, architecture: str) -> ImagePin:
        token = self._ecr_token(reference)
        digest, document, token = self._manifest(image, reference, reference.tag, token)
        if "manifests" in document:
            child = _platform(image, document, architecture)
            _, document, _ = self._manifest(image, reference, child, token)
        layers = cast("list[Mapping[str, Any]]", document.get("layers", []))
        return ImagePin(digest=digest, layers=tuple(int(layer["size"]) for layer in layers))

    def _manifest(
        self, image: str, reference: Reference, name: str, token: str | None
    ) -> tuple[str, Mapping[str, Any], str | None]:
        address = f"{reference.url}/manifests/{name}"
        response = self._get(address, token)
        if response.status_code == HTTPStatus.UNAUTHORIZED and token is None:
            token = self._bearer(response)
            response = self._get(address, token)
        if response.status_code in (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN):
            raise Failure(f"{image}: {reference.registry} refuses access. Is the name right, and may you read it?")
        if response.status_code == HTTPStatus.NOT_FOUND:
            raise Failure(f"{image}: {reference.registry} has no {reference.repository}:{name}")
        response.raise_for_status()
        digest = f"sha256:{hashlib.sha256(response.content).hexdigest()}"
        stated = response.headers.get("Docker-Content-Digest", digest)
        if stated != digest or (name.startswith("sha256:") and name != digest):
            raise Failure(f"{image}: the manifest's bytes do not match their digest {stated}: not trusted")
        return digest, response.json(), token

    def _get(self, address: str, token: str | None) -> httpx.Response:
        headers = {"Accept": MANIFEST_TYPES} | ({"Authorization": token} if token else {})
        return self._client.get(address, headers=headers)

    def _bearer(self, response: httpx.Response) -> str:
        """The anonymous token that the registry's challenge points to."""
        challenge = dict(_CHALLENGE.findall(response.headers.get("WWW-Authenticate", "")))
        realm = challenge.pop("realm", None)
        if realm is None:
            raise Failure(f"{response.url.host} refuses access and names no way to get it")
        answer = self._client.get(realm, params=challenge)
        answer.raise_for_status()
        document = answer.json()
        return f"Bearer {document.get('token') or document['access_token']}"

    def _ecr_token(self, reference: Reference) -> str | None:
        found = _ECR.match(reference.registry)
        if found is None:
            return None
        data = boto3.client("ecr", region_name=found["region"]).get_authorization_token()["authorizationData"][0]
        return f"Basic {data.get('authorizationToken', '')}"


def _platform(image: str, index: Mapping[str, Any], architecture: str) -> str:
    for manifest in cast("list[Mapping[str, Any]]", index["manifests"]):
        platform = cast("Mapping[str, str]", manifest.get("platform", {}))
        if platform.get("os") == "linux" and platform.get("architecture") == architecture:
            return str(manifest["digest"])
    raise Failure(f"{image} is not built for linux/{architecture}")
