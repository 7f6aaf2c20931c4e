"""List, watch, and everything that ends a watch."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from scripts.ledger import watching
from scripts.ledger.kube_api import ApiError
from scripts.ledger.raw import Object
from scripts.ledger.watching import Watcher


def pod(uid: str, version: int) -> dict[str, Any]:
    return {"metadata": {"uid": uid, "name": uid, "resourceVersion": str(version)}}


def event(kind: str, found: Mapping[str, Any]) -> str:
    return json.dumps({"type": kind, "object": found})


class Scripted:
    """An API server that answers what is written down, then stops the watcher."""

    def __init__(self, lists: list[Any], streams: list[list[Any]]) -> None:
        self.lists, self.streams = lists, streams
        self.stopping = threading.Event()
        self.asked: list[Mapping[str, str]] = []

    def text(self, path: str, query: Mapping[str, str] | None = None) -> str:
        del path
        self.asked.append(query or {})
        found = self.lists.pop(0)
        if isinstance(found, ApiError):
            raise found
        return json.dumps(found)

    def send(self, method: str, path: str, body: Object | None = None, kind: str = "") -> Object:
        raise AssertionError(f"a watcher changes nothing: {method} {path} {body} {kind}")

    def stream(self, path: str, query: Mapping[str, str], timeout_s: float) -> Iterator[str]:
        del path, timeout_s
        self.asked.append(query)
        if not self.streams:
            self.stopping.set()
            return
        for line in self.streams.pop(0):
            if isinstance(line, ApiError):
                raise line
            yield line


def listed(version: int, *items: Any, more: str = "") -> dict[str, Any]:
    return {"metadata": {"resourceVersion": str(version), "continue": more}, "items": list(items)}


@pytest.fixture(autouse=True)
def no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watching, "BACKOFF_S", (0.0, 0.0))


def seen(api: Scripted) -> tuple[list[tuple[str, str]], Watcher]:
    watcher = Watcher(api=api, path="/api/v1/pods", query={"labelSelector": "x"}, stopping=api.stopping)
    return [(change.kind, change.object.get("metadata", {}).get("uid", "")) for change in watcher.changes()], watcher


def test_an_ended_stream_goes_on_from_the_last_version() -> None:
    api = Scripted([listed(5, pod("a", 3))], [[event("ADDED", pod("b", 7))], [event("MODIFIED", pod("a", 9))]])
    changes, watcher = seen(api)
    assert changes == [("added", "a"), ("listed", ""), ("added", "b"), ("modified", "a")]
    assert [query.get("resourceVersion") for query in api.asked[1:]] == ["5", "7", "9"]
    assert watcher.counts.lists == 1


def test_a_bookmark_moves_the_version_and_says_nothing() -> None:
    api = Scripted([listed(5)], [[event("BOOKMARK", {"metadata": {"resourceVersion": "50"}})]])
    changes, _ = seen(api)
    assert changes == [("listed", "")]
    assert api.asked[-1]["resourceVersion"] == "50"


@pytest.mark.parametrize(
    "gone",
    [ApiError(410, "too old resource version"), event("ERROR", {"code": 410, "message": "too old resource version"})],
    ids=["as a status", "as an event"],
)
def test_a_version_that_is_too_old_means_a_new_list_and_what_vanished_is_deleted(gone: Any) -> None:
    api = Scripted([listed(5, pod("a", 1), pod("b", 2)), listed(90, pod("b", 2), pod("c", 80))], [[gone]])
    changes, watcher = seen(api)
    assert changes == [
        ("added", "a"), ("added", "b"), ("listed", ""), ("added", "c"), ("deleted", "a"), ("listed", ""),
    ]  # fmt: skip
    assert watcher.counts.expired == 1


def test_a_server_that_is_away_is_asked_again_from_the_same_version() -> None:
    away = ApiError(0, "connection refused")
    api = Scripted([away, listed(5)], [[event("ADDED", pod("a", 6)), away], [away], [event("DELETED", pod("a", 8))]])
    changes, watcher = seen(api)
    assert changes == [("listed", ""), ("added", "a"), ("deleted", "a")]
    assert watcher.counts.errors == 3
    assert [query["resourceVersion"] for query in api.asked if "watch" in query] == ["5", "6", "6", "8"]


def test_a_line_that_was_cut_is_an_error_and_not_the_end() -> None:
    api = Scripted([listed(5)], [['{"type": "ADDED", "obj'], [event("ADDED", pod("a", 6))]])
    changes, watcher = seen(api)
    assert changes == [("listed", ""), ("added", "a")]
    assert watcher.counts.errors == 1


def test_pages_are_one_list() -> None:
    api = Scripted([listed(5, pod("a", 1), more="next"), listed(5, pod("b", 2))], [])
    changes, _ = seen(api)
    assert changes == [("added", "a"), ("added", "b"), ("listed", "")]
    assert api.asked[1]["continue"] == "next"


def test_a_missing_right_is_reported_once_and_asked_for_again() -> None:
    denied = ApiError(403, "pods is forbidden")
    api = Scripted([denied, denied, listed(5)], [])
    said: list[str] = []
    watcher = Watcher(api=api, path="/api/v1/pods", query={}, stopping=api.stopping, said=said.append)
    assert [change.kind for change in watcher.changes()] == ["listed"]
    assert said == ["/api/v1/pods: 403: pods is forbidden"]
