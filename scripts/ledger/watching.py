"""List, then watch, for ever: through ended streams, restarts of the API server, and versions that are too old.

A watch may end at any time and says nothing about it. What this keeps:
    - an ended stream goes on from the last version seen (bookmarks keep that fresh when nothing happens);
    - 410 Gone, as a status or as an event, means a new list: what vanished meanwhile is reported as deleted;
    - an unreachable server, 429 and 5xx are tried again, slower each time, never giving up;
    - 401 and 403 are reported, and tried again: a role may be bound while we wait.
"""

from __future__ import annotations

import json
import random
import threading
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass, field
from typing import Any

from scripts.ledger.kube_api import GONE, Api, ApiError, get
from scripts.ledger.raw import Object, mapping, objects, text

PAGE = 500
"""Objects of one page of a list: bounds the memory of a list to that of a page."""
WATCH_S = 290
"""The server is asked to end a watch after this long, before load balancers do it without a word."""
BACKOFF_S = (0.2, 30.0)


@dataclass(frozen=True, slots=True)
class Change:
    """Something happened to an object.

    Attributes:
        kind: `added`, `modified`, `deleted`, or `listed` after each complete list.
        object: as it is now; only its uid when it vanished while nobody watched.
    """

    kind: str
    object: Object


@dataclass
class Counts:
    """What a watcher lived through."""

    lists: int = 0
    watches: int = 0
    expired: int = 0
    errors: int = 0


@dataclass
class Watcher:
    """One kind of object, kept in sight.

    Attributes:
        path: collection, `/api/v1/pods`.
        query: selectors.
        trim: what is passed on of an object.
        said: reports an error, once per kind of error in a row.
    """

    api: Api
    path: str
    query: Mapping[str, str]
    stopping: threading.Event
    trim: Callable[[Object], Object] = lambda found: found
    said: Callable[[str], None] = lambda _: None
    counts: Counts = field(default_factory=Counts)
    _versions: dict[str, str] = field(default_factory=dict[str, str])
    _errors_in_a_row: int = 0

    def changes(self) -> Generator[Change]:
        """Everything that happens, until `stopping`."""
        version = ""
        while not self.stopping.is_set():
            try:
                if not version:
                    version = yield from self._list()
                    yield Change("listed", {})
                version = yield from self._watch(version)
            except ApiError as error:
                if error.status == GONE:
                    self.counts.expired += 1
                    version = ""
                else:
                    self._trouble(error)

    def _list(self) -> Generator[Change, None, str]:
        self.counts.lists += 1
        seen: set[str] = set()
        query, version = {**self.query, "limit": str(PAGE)}, ""
        while True:
            page = get(self.api, self.path, query)
            for item in objects(page, "items"):
                uid, version_of = text(item, "metadata.uid"), text(item, "metadata.resourceVersion")
                seen.add(uid)
                known = self._versions.get(uid)
                self._versions[uid] = version_of
                if known != version_of:
                    yield Change("added" if known is None else "modified", self.trim(item))
            version = text(page, "metadata.resourceVersion")
            following = text(page, "metadata.continue")
            if not following:
                break
            query["continue"] = following
        for uid in [uid for uid in self._versions if uid not in seen]:
            del self._versions[uid]
            yield Change("deleted", {"metadata": {"uid": uid}})
        self._errors_in_a_row = 0
        return version

    def _watch(self, version: str) -> Generator[Change, None, str]:
        self.counts.watches += 1
        query = {
            **self.query,
            "watch": "true",
            "allowWatchBookmarks": "true",
            "resourceVersion": version,
            "timeoutSeconds": str(WATCH_S),
        }
        try:
            for line in self.api.stream(self.path, query, timeout_s=WATCH_S + 30.0):
                if self.stopping.is_set():
                    break
                change = self._change(line)
                version = text(change.object, "metadata.resourceVersion") or version
                self._errors_in_a_row = 0
                if change.kind != "bookmark":
                    yield change
        except ApiError as error:
            if error.status == GONE:
                raise
            self._trouble(error)
        return version

    def _change(self, line: str) -> Change:
        try:
            entry: Any = json.loads(line)
        except ValueError as error:
            raise ApiError(0, f"{self.path}: the watch was cut in the middle of a line") from error
        kind, found = text(entry, "type"), mapping(entry, "object")
        if kind == "ERROR":
            code = found.get("code")
            raise ApiError(code if isinstance(code, int) else 0, text(found, "message"))
        if kind == "BOOKMARK":
            return Change("bookmark", found)
        uid = text(found, "metadata.uid")
        if kind == "DELETED":
            self._versions.pop(uid, None)
        else:
            self._versions[uid] = text(found, "metadata.resourceVersion")
        return Change(kind.lower(), self.trim(found))

    def _trouble(self, error: ApiError) -> None:
        """Waits, longer each time, with chance so that two copies don't come back together."""
        self.counts.errors += 1
        self._errors_in_a_row += 1
        if self._errors_in_a_row == 1:
            self.said(f"{self.path}: {error}")
        least_s, most_s = BACKOFF_S
        pause_s = min(most_s, least_s * 2 ** min(self._errors_in_a_row, 10))
        self.stopping.wait(pause_s * random.uniform(0.5, 1.0))  # noqa: S311 - spreads load, guards nothing
