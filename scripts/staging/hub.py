"""A model on the hub, at one commit, through the hub's own client."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar
from urllib.parse import urlsplit

from huggingface_hub import (
    HfApi,
    get_hf_file_metadata,  # pyright: ignore[reportUnknownVariableType] - a bare `dict` in an argument not used here
    hf_hub_url,
)
from huggingface_hub.constants import HF_HUB_DOWNLOAD_TIMEOUT
from huggingface_hub.errors import (
    GatedRepoError,
    HfHubHTTPError,
    OfflineModeIsEnabled,
    RemoteEntryNotFoundError,
    RepositoryNotFoundError,
    RevisionNotFoundError,
)
from huggingface_hub.hf_api import RepoFile
from huggingface_hub.utils import (
    build_hf_headers,  # pyright: ignore[reportUnknownVariableType] - as above
    get_token,
    hf_raise_for_status,
    http_stream_backoff,  # pyright: ignore[reportUnknownVariableType] - as above
    logging,
)

from budget.problems import bad_input
from scripts.failure import Failure
from scripts.staging.source import SourceFile

_TRANSPORT_ERROR: type[Exception] = HfHubHTTPError.__bases__[0]
"""The error class of the HTTP library that huggingface_hub sits on: httpx before 2.0, httpx2 since."""
_ATTEMPTS = 6
_WAIT_S = 0.5
_LONGEST_WAIT_S = 8.0
"""Six tries with doubling waits sit out half a minute without one byte; any byte starts the count anew."""
_TRANSIENT = frozenset({408, 425, 429, 500, 502, 503, 504})
_PARTIAL = 206
_UNKNOWN_READER = 401
"""The hub's answer for a repository that does not exist, as for a private one and for a wrong token."""
_EXPIRED = frozenset({400, 401, 403, 410})
"""What content servers answer once a signed address has run out."""

_T = TypeVar("_T")


@dataclass(frozen=True, kw_only=True, slots=True)
class _Address:
    """Where a file's bytes are served, and what to send along."""

    url: str
    with_token: bool


class HubSource:
    """The files of a model repository at one commit.

    Bytes are asked for by range from the address that the hub redirects to. It is resolved once a file, not once a
    range: the hub counts and limits resolutions.
    """

    def __init__(
        self, *, api: HfApi, name: str, revision: str, requested_revision: str, files: Sequence[SourceFile]
    ) -> None:
        self._api = api
        self._addresses: dict[str, _Address] = {}
        self.name = name
        self.revision = revision
        self.requested_revision = requested_revision
        self.files = files

    @property
    def identity(self) -> str:
        """`hf:ORG/NAME@REVISION`."""
        return f"hf:{self.name}@{self.revision}"

    def read_into(self, file: SourceFile, offset: int, buffer: memoryview) -> None:
        """See `Source`. Goes on where a broken connection stopped."""
        filled, idle, wait_s = 0, 0, _WAIT_S
        while filled < len(buffer):
            before = filled
            try:
                filled += self._read_some(file, offset + filled, buffer[filled:])
            except _Cut as cut:
                filled += cut.bytes
                idle = 1 if filled > before else idle + 1
                if idle > _ATTEMPTS:
                    raise Failure(
                        f"{self.identity}: {file.path} cannot be read from the hub ({cut}). "
                        "Run it again: it goes on from there"
                    ) from cut
                wait_s = _WAIT_S if filled > before else min(_LONGEST_WAIT_S, wait_s * 2)
                time.sleep(wait_s)

    def check_unchanged(self) -> None:
        """See `Source`. A commit does not change, and every byte was held against its hash."""

    def _read_some(self, file: SourceFile, offset: int, buffer: memoryview) -> int:
        """Fills as much of the buffer as one response brings.

        Raises:
            _Cut: the response ended early, or there was none; carries what was filled.
        """
        address = self._address(file)
        headers = build_hf_headers(token=self._api.token if address.with_token else False)
        last = offset + len(buffer) - 1
        filled = 0
        try:
            with http_stream_backoff(
                "GET",
                address.url,
                headers={**headers, "Range": f"bytes={offset}-{last}", "Accept-Encoding": "identity"},
                timeout=HF_HUB_DOWNLOAD_TIMEOUT,
                max_retries=2,
                base_wait_time=_WAIT_S,
                # Errors while the body is read are ours: only here is it known how far it came.
                retry_on_exceptions=(),
            ) as response:
                if response.status_code in _EXPIRED and not address.with_token:
                    self._addresses.pop(file.path, None)
                    raise _Cut("its signed address expired", filled)
                hf_raise_for_status(response)
                if response.status_code != _PARTIAL and len(buffer) != file.bytes:
                    raise Failure(
                        f"{urlsplit(address.url).netloc} ignores Range requests: {file.path} cannot be staged"
                    )
                for chunk in response.iter_raw():
                    if filled + len(chunk) > len(buffer):
                        raise Failure(f"{self.identity}: {file.path} is longer than the hub says")
                    buffer[filled : filled + len(chunk)] = chunk
                    filled += len(chunk)
        except HfHubHTTPError as error:
            status = error.response.status_code
            if status not in _TRANSIENT:
                raise _refusal(error, self.name, self.revision) from error
            raise _Cut(f"status {status}", filled) from error
        except _TRANSPORT_ERROR as error:
            raise _Cut(str(error) or type(error).__name__, filled) from error
        if filled < len(buffer):
            raise _Cut(f"the connection ended {len(buffer) - filled:,} bytes early", filled)
        return filled

    def _address(self, file: SourceFile) -> _Address:
        """Where the file is served now; resolved again once it has run out."""
        known = self._addresses.get(file.path)
        if known is not None:
            return known
        url = hf_hub_url(self.name, file.path, revision=self.revision, endpoint=self._api.endpoint)
        with_token = self._api.token
        found = patiently(
            lambda: get_hf_file_metadata(url, token=with_token, endpoint=self._api.endpoint),
            name=self.name,
            revision=self.revision,
        )
        expected = file.sha256 or file.git_blob
        if found.size != file.bytes or (found.etag and expected and found.etag != expected):
            raise Failure(f"{self.identity}: the hub serves another {file.path} than it lists. Try again later")
        address = _Address(url=found.location, with_token=urlsplit(found.location).netloc == urlsplit(str(url)).netloc)
        return self._addresses.setdefault(file.path, address)


class _Cut(Exception):  # noqa: N818 - a response that ended early, caught a few lines above
    """A response that brought less than was asked for."""

    def __init__(self, why: str, bytes_: int) -> None:
        super().__init__(why)
        self.bytes = bytes_


def open_hub(name: str, revision: str, *, endpoint: str | None = None, token: str | None = None) -> HubSource:
    """Resolves a revision to its commit and lists the files there.

    Args:
        name: `ORG/NAME`.
        revision: branch, tag or commit.
        endpoint: of the hub; None is HF_ENDPOINT, or the public one.
        token: for gated and private repositories; None is HF_TOKEN, or the one `hf auth login` stored.

    Raises:
        BadInput: a revision that does not exist.
        Failure: no such repository, no access, the hub cannot be reached.
    """
    logging.set_verbosity_error()  # its warnings hold signed addresses
    api = HfApi(endpoint=endpoint, token=token or get_token() or False, library_name="coldstart")
    info = patiently(lambda: api.model_info(name, revision=revision), name=name, revision=revision)
    commit = info.sha or ""
    if not re.fullmatch(r"[0-9a-f]{40}", commit):
        raise Failure(f"the hub names no commit for {name}@{revision}")
    entries = patiently(
        lambda: list(api.list_repo_tree(name, recursive=True, revision=commit)), name=name, revision=commit
    )
    files = [
        SourceFile(
            path=entry.path,
            bytes=entry.size,
            sha256=entry.lfs.sha256 if entry.lfs else None,
            git_blob=None if entry.lfs else entry.blob_id,
        )
        for entry in entries
        if isinstance(entry, RepoFile)
    ]
    return HubSource(
        api=api,
        name=name,
        revision=commit,
        requested_revision=revision,
        files=sorted(files, key=lambda file: file.path),
    )


def patiently(call: Callable[[], _T], *, name: str, revision: str) -> _T:
    """One answer of the hub, asked for again while it is busy or out of reach.

    Raises:
        BadInput, Failure: as `open_hub`.
    """
    wait_s = _WAIT_S
    for attempt in range(_ATTEMPTS):
        try:
            return call()
        except OfflineModeIsEnabled as error:
            raise Failure("HF_HUB_OFFLINE is set: the hub is not asked. Unset it, or stage from a folder") from error
        except HfHubHTTPError as error:
            if error.response.status_code not in _TRANSIENT or attempt == _ATTEMPTS - 1:
                raise _refusal(error, name, revision) from error
        except _TRANSPORT_ERROR as error:
            if attempt == _ATTEMPTS - 1:
                raise Failure(f"the hub cannot be reached: {error}. Check HF_ENDPOINT, the proxy and egress") from error
        time.sleep(wait_s)
        wait_s = min(_LONGEST_WAIT_S, wait_s * 2)
    raise AssertionError("unreachable: the last attempt raises")


def _refusal(error: HfHubHTTPError, name: str, revision: str) -> Exception:
    """What to tell a person about a refused request."""
    if isinstance(error, GatedRepoError):
        return Failure(
            f"{name} is gated. Accept its terms on its page, then set HF_TOKEN to a token of that account "
            "(in a cluster: the Secret named with --hub-secret)"
        )
    if isinstance(error, RevisionNotFoundError):
        return bad_input(
            "revision", f"{name} has no revision {revision!r}", "Name a branch, a tag or a commit of that repository."
        )
    if isinstance(error, RepositoryNotFoundError) or error.response.status_code == _UNKNOWN_READER:
        return Failure(
            f"the hub shows no repository {name}: it does not exist, or it is private and HF_TOKEN is not its reader's"
        )
    if isinstance(error, RemoteEntryNotFoundError):
        return Failure(f"{name}@{revision} lists a file that the hub does not serve")
    status = error.response.status_code
    hint = " (rate limit: set HF_TOKEN, or wait)" if status == 429 else ""  # noqa: PLR2004 - too many requests
    return Failure(f"the hub answered {status} for {name}@{revision}{hint}")
