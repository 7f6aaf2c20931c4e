"""An image registry: tags and manifests, blobs down and up, by the OCI distribution API.

Speaks with anonymous, basic, token and ECR access; the user's `docker login` is read from its configuration file. Plain
HTTP is used for localhost alone. Everything that has a digest is checked against it.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
import re
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol, Self, cast
from urllib.parse import urljoin, urlsplit

import httpx2 as httpx

from scripts.failure import Failure
from scripts.image_document import document

ARCHITECTURES = {"x86_64": "amd64", "arm64": "arm64"}
"""Instance table → image platform."""
INDEX_TYPES = (
    "application/vnd.oci.image.index.v1+json",
    "application/vnd.docker.distribution.manifest.list.v2+json",
)
MANIFEST_TYPES = (
    f"{', '.join(INDEX_TYPES)}, "
    "application/vnd.oci.image.manifest.v1+json, application/vnd.docker.distribution.manifest.v2+json"
)
DOCKER_HUB = "registry-1.docker.io"
DOCKER_HUB_LOGIN = "https://index.docker.io/v1/"
"""Under this name `docker login` keeps the access to Docker Hub."""
TIMEOUT_S = 30
READ_BYTES = 256 * 1024
DROPS = 5
"""A blob's connection may break this often in a row; each time reading goes on where it stopped."""
ECR = re.compile(r"^(?P<account>\d{12})\.dkr\.ecr(-fips)?\.(?P<region>[a-z0-9-]+)\.amazonaws\.com(\.cn)?$")
_CHALLENGE = re.compile(r'(\w+)="([^"]*)"')
_LOCAL = ("localhost", "127.0.0.1", "::1")


@dataclass(frozen=True, kw_only=True)
class Reference:
    """An image reference, taken apart. A digest, where one is given, is what counts; the tag is then a comment."""

    registry: str
    repository: str
    tag: str
    digest: str | None = None

    @property
    def url(self) -> str:
        """Base address of the repository in the registry's API."""
        host = self.registry.partition(":")[0]
        scheme = "http" if host in _LOCAL else "https"
        return f"{scheme}://{self.registry}/v2/{self.repository}"

    @property
    def name(self) -> str:
        """What is asked of the registry: the digest, else the tag."""
        return self.digest or self.tag

    def __str__(self) -> str:
        """As a person would write it."""
        return f"{self.registry}/{self.repository}" + (f"@{self.digest}" if self.digest else f":{self.tag}")


@dataclass(frozen=True, kw_only=True)
class ImagePin:
    """What a tag stood for when it was asked.

    Attributes:
        digest: of what the tag points at, an index or a manifest.
        layers: compressed bytes of each layer on the platform asked for.
    """

    digest: str
    layers: tuple[int, ...]


@dataclass(frozen=True, kw_only=True)
class Manifest:
    """A manifest or index, as the registry keeps it: its bytes are what the digest is of."""

    digest: str
    media_type: str
    content: bytes

    @property
    def document(self) -> Mapping[str, Any]:
        """Its JSON."""
        return cast("Mapping[str, Any]", json.loads(self.content))


class NotThere(Failure):
    """The registry says for certain that it has no such image, tag or architecture."""


class Registry(Protocol):
    """Resolves tags."""

    def resolve(self, image: str, architecture: str) -> ImagePin:
        """The digest of a tag, and the layers on linux and this architecture (`amd64`, `arm64`)."""
        ...


def parse(image: str) -> Reference:
    """Registry, repository, tag and digest of an image as Docker reads it."""
    name, _, digest = image.partition("@")
    first, slash, rest = name.partition("/")
    if slash and ("." in first or ":" in first or first == "localhost"):
        registry, path = first, rest
    else:
        registry, path = DOCKER_HUB, name if slash else f"library/{name}"
    if registry in ("docker.io", "index.docker.io"):
        registry, path = DOCKER_HUB, path if "/" in path else f"library/{path}"
    repository, colon, tag = path.partition(":")
    return Reference(registry=registry, repository=repository, tag=tag if colon else "latest", digest=digest or None)


class HttpRegistry:
    """Registries over HTTP; safe from several threads."""

    def __init__(self, client: httpx.Client | None = None) -> None:
        self._client = client or httpx.Client(timeout=TIMEOUT_S, follow_redirects=True)
        self._access: dict[tuple[str, str], str] = {}
        self._lock = threading.Lock()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._client.close()

    # -- tags and manifests -------------------------------------------------------------------------------------

    def resolve(self, image: str, architecture: str) -> ImagePin:
        """The digest of a tag, and the layers on linux and this architecture.

        Raises:
            NotThere: the registry has no such image or tag, or not for the architecture.
            Failure: no access, or no answer.
        """
        reference = parse(image)
        found = self.manifest(reference)
        manifest = found.document
        if "manifests" in manifest:
            manifest = self.manifest(reference, platform(image, manifest, architecture)).document
        layers = cast("list[Mapping[str, Any]]", manifest.get("layers") or [])
        return ImagePin(digest=found.digest, layers=tuple(int(layer["size"]) for layer in layers))

    def manifest(self, reference: Reference, name: str | None = None) -> Manifest:
        """A manifest or index by tag or digest; its bytes match its digest.

        Raises:
            NotThere: the registry says so.
            Failure: no access, not answering, or its bytes don't match.
        """
        name = name or reference.name
        response = self._ask("GET", reference, f"{reference.url}/manifests/{name}", headers={"Accept": MANIFEST_TYPES})
        if response.status_code == HTTPStatus.NOT_FOUND:
            raise NotThere(f"{reference}: {reference.registry} has no {reference.repository}:{name}")
        self._expect(reference, response, HTTPStatus.OK)
        digest = f"sha256:{hashlib.sha256(response.content).hexdigest()}"
        stated = response.headers.get("Docker-Content-Digest", digest)
        if stated != digest or (name.startswith("sha256:") and name != digest):
            raise Failure(f"{reference}: the manifest's bytes do not match their digest {stated}: not trusted")
        found = document(f"{reference}, as {reference.registry} answers it", "manifest", response.content)
        media_type = str(found.get("mediaType") or response.headers.get("Content-Type", "").partition(";")[0])
        return Manifest(digest=digest, media_type=media_type, content=response.content)

    def has_manifest(self, reference: Reference, name: str) -> bool:
        """Whether the repository has this tag or digest; an absent repository has none."""
        address = f"{reference.url}/manifests/{name}"
        response = self._ask("HEAD", reference, address, headers={"Accept": MANIFEST_TYPES})
        return self._is_there(reference, response)

    def put_manifest(self, reference: Reference, name: str, manifest: Manifest) -> None:
        """Writes a manifest under a tag or its digest. Its blobs must be there.

        Raises:
            Failure: refused, for example because the tag is immutable.
        """
        response = self._ask(
            "PUT",
            reference,
            f"{reference.url}/manifests/{name}",
            headers={"Content-Type": manifest.media_type},
            content=manifest.content,
        )
        self._expect(reference, response, HTTPStatus.CREATED, HTTPStatus.OK)

    # -- blobs --------------------------------------------------------------------------------------------------

    def blob(self, reference: Reference, digest: str, size: int) -> Iterator[bytes]:
        """The bytes of a blob, in pieces. A broken connection is taken up where it broke, a few times.

        The caller checks the digest: it sees every byte anyway.

        Raises:
            Failure: not there, no access, or too many broken connections.
        """
        done = drops = 0
        while True:
            try:
                for piece in self._blob_from(reference, digest, done):
                    done, drops = done + len(piece), 0
                    yield piece
            except httpx.TransportError as error:
                drops += 1
                if drops > DROPS:
                    raise Failure(f"{reference}: {digest[:19]} breaks off at byte {done}: {error}") from error
                continue
            if done < size and drops < DROPS:
                drops += 1
                continue
            return

    def _blob_from(self, reference: Reference, digest: str, offset: int) -> Iterator[bytes]:
        address = f"{reference.url}/blobs/{digest}"
        ranged = {"Range": f"bytes={offset}-"} if offset else {}
        for authorization in self._authorizations(reference):
            with self._client.stream("GET", address, headers=ranged | authorization) as response:
                if response.status_code == HTTPStatus.UNAUTHORIZED:
                    self._renew(reference, response)
                    continue
                if offset and response.status_code == HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE:
                    return
                self._expect(reference, response, HTTPStatus.PARTIAL_CONTENT if offset else HTTPStatus.OK)
                yield from response.iter_raw(READ_BYTES)
                return
        raise Failure(self._refused(reference))

    def has_blob(self, reference: Reference, digest: str) -> bool:
        """Whether the repository has this blob."""
        return self._is_there(reference, self._ask("HEAD", reference, f"{reference.url}/blobs/{digest}"))

    def put_blob(self, reference: Reference, digest: str, size: int, pieces: Iterator[bytes]) -> None:
        """Sends a blob of `size` bytes; the registry checks the digest.

        Raises:
            Failure: refused or broken off.
        """
        started = self._ask("POST", reference, f"{reference.url}/blobs/uploads/", headers={"Content-Length": "0"})
        self._expect(reference, started, HTTPStatus.ACCEPTED)
        address = urljoin(str(started.request.url), started.headers["Location"])
        sent = self._ask(
            "PATCH",
            reference,
            address,
            headers={"Content-Type": "application/octet-stream", "Content-Length": str(size)},
            content=pieces,
        )
        self._expect(reference, sent, HTTPStatus.ACCEPTED, HTTPStatus.CREATED, HTTPStatus.NO_CONTENT)
        address = urljoin(address, sent.headers.get("Location", address))
        joined = f"{address}{'&' if urlsplit(address).query else '?'}digest={digest}"
        finished = self._ask("PUT", reference, joined, headers={"Content-Length": "0"})
        self._expect(reference, finished, HTTPStatus.CREATED, HTTPStatus.NO_CONTENT)

    def mount_blob(self, reference: Reference, digest: str, other: Reference) -> bool:
        """Takes a blob from another repository of the same registry, without its bytes; False if it won't."""
        address = f"{reference.url}/blobs/uploads/?mount={digest}&from={other.repository}"
        response = self._ask("POST", reference, address, headers={"Content-Length": "0"})
        return response.status_code == HTTPStatus.CREATED

    # -- requests -----------------------------------------------------------------------------------------------

    def _ask(
        self,
        method: str,
        reference: Reference,
        address: str,
        *,
        headers: Mapping[str, str] | None = None,
        content: bytes | Iterator[bytes] | None = None,
    ) -> httpx.Response:
        try:
            for authorization in self._authorizations(reference):
                response = self._client.request(
                    method, address, headers=dict(headers or {}) | authorization, content=content
                )
                if response.status_code != HTTPStatus.UNAUTHORIZED:
                    return response
                self._renew(reference, response)
        except httpx.HTTPError as error:
            raise Failure(f"{reference}: {reference.registry} does not answer: {error}") from error
        raise Failure(self._refused(reference))

    def _authorizations(self, reference: Reference) -> Iterator[dict[str, str]]:
        """What to try: the access of the last request, then what the registry's challenge brought."""
        known = self._known(reference)
        yield {"Authorization": known} if known else {}
        renewed = self._known(reference)
        if renewed and renewed != known:
            yield {"Authorization": renewed}

    def _known(self, reference: Reference) -> str | None:
        with self._lock:
            return self._access.get((reference.registry, reference.repository))

    def _renew(self, reference: Reference, response: httpx.Response) -> None:
        """Access as the registry's challenge asks for it: an ECR password, a login, or a token."""
        login = _ecr_login(reference.registry) or _docker_login(reference.registry)
        scheme, _, rest = response.headers.get("WWW-Authenticate", "").partition(" ")
        if scheme.lower() == "basic" and login:
            access = f"Basic {login}"
        elif scheme.lower() == "bearer":
            access = self._token(reference, dict(_CHALLENGE.findall(rest)), login)
        else:
            return
        with self._lock:
            self._access[(reference.registry, reference.repository)] = access

    def _token(self, reference: Reference, challenge: dict[str, str], login: str | None) -> str:
        realm = challenge.pop("realm", "")
        parts = urlsplit(realm)
        if parts.scheme != "https" and (parts.hostname or "") not in _LOCAL:
            raise Failure(f"{reference}: {reference.registry} asks for access at {realm or 'no address'}: not trusted")
        answer = self._client.get(realm, params=challenge, headers={"Authorization": f"Basic {login}"} if login else {})
        if answer.status_code != HTTPStatus.OK:
            raise Failure(self._refused(reference))
        try:
            document = answer.json()
            return f"Bearer {document.get('token') or document['access_token']}"
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise Failure(f"{reference}: {parts.hostname} answers something that is not a token") from error

    def _refused(self, reference: Reference) -> str:
        return f"{reference}: {reference.registry} refuses access. Is the name right, and may you use it?"

    def _expect(self, reference: Reference, response: httpx.Response, *good: HTTPStatus) -> None:
        if response.status_code in good:
            return
        if response.status_code in (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN):
            raise Failure(self._refused(reference))
        what = f"{response.request.method} {response.request.url.path}"
        raise Failure(f"{reference}: {what}: {response.status_code} {_words(response)}".rstrip())

    def _is_there(self, reference: Reference, response: httpx.Response) -> bool:
        if response.status_code == HTTPStatus.NOT_FOUND:
            return False
        self._expect(reference, response, HTTPStatus.OK)
        return True


def _words(response: httpx.Response) -> str:
    """A registry's own words for a refusal."""
    try:
        response.read()
        errors = cast("list[Mapping[str, str]]", response.json()["errors"])
        return "; ".join(f"{error.get('code', '')} {error.get('message', '')}".strip() for error in errors)
    except (httpx.HTTPError, ValueError, KeyError, TypeError):
        return response.reason_phrase


def platform(image: str, index: Mapping[str, Any], architecture: str) -> str:
    """Digest of an index's manifest for linux and this architecture.

    Raises:
        NotThere: it has none; names those there are.
    """
    built: list[str] = []
    for manifest in cast("list[Mapping[str, Any]]", index["manifests"]):
        found = cast("Mapping[str, str]", manifest.get("platform") or {})
        if found.get("os") == "linux" and found.get("architecture") == architecture:
            return str(manifest["digest"])
        inner = str(manifest.get("mediaType")) in INDEX_TYPES
        unnamed = f"what the index {manifest['digest']} in it leads to" if inner else "a platform that it does not name"
        built.append(f"{found['os']}/{found['architecture']}" if {"os", "architecture"} <= found.keys() else unnamed)
    raise NotThere(f"{image} is not built for linux/{architecture}, only for {', '.join(built) or 'nothing'}")


def _ecr_login(registry: str) -> str | None:
    found = ECR.match(registry)
    if found is None:
        return None
    import boto3  # noqa: PLC0415 - half a second and 30 MB that only ECR needs
    from botocore.exceptions import BotoCoreError, ClientError  # noqa: PLC0415 - as above

    try:
        answer = boto3.client("ecr", region_name=found["region"]).get_authorization_token()
    except (BotoCoreError, ClientError) as error:
        raise Failure(f"{registry}: no access token from ECR: {error}") from error
    return answer["authorizationData"][0].get("authorizationToken")


def _docker_login(registry: str) -> str | None:
    """The login that `docker login` or `podman login` keeps for a registry, base64 of user:password."""
    folder = Path(os.environ.get("DOCKER_CONFIG", Path.home() / ".docker"))
    try:
        document = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    auths = cast("Mapping[str, Mapping[str, str]]", document.get("auths") or {})
    name = DOCKER_HUB_LOGIN if registry == DOCKER_HUB else registry
    kept = (auths.get(name) or auths.get(f"https://{name}") or {}).get("auth")
    try:
        return kept if kept and b":" in base64.b64decode(kept) else None
    except ValueError:
        return None
