"""Ledgers kept in the cluster: one immutable ConfigMap each, named after the pod, the oldest removed beyond a limit.

Creating is the lock: of two recorders that write the same ledger one is told that it is there already. No lease, no
leader, nothing to lose when either dies.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field

from scripts.ledger.kube_api import CONFLICT, NOT_FOUND, Api, ApiError, get
from scripts.ledger.raw import Object, mapping, object_of, objects, parsed, text
from scripts.ledger.record import Ledger, document, from_document
from scripts.ledger.redaction import clean_text

LABEL = "coldstart/ledger"
KEY = "ledger.json"
PAGE = 50
WRITTEN, PRESENT = "written", "present"


@dataclass
class Store:
    """The ring of ledgers in a namespace.

    Attributes:
        keep: ledgers at most; one takes about 8 KiB of etcd.
    """

    api: Api
    namespace: str
    keep: int
    _names: list[tuple[float, str]] = field(default_factory=list[tuple[float, str]])
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def ledgers(self) -> Iterator[Ledger]:
        """Every ledger that is kept, page by page; one that can't be read is left out."""
        query = {"labelSelector": f"{LABEL}=true", "limit": str(PAGE)}
        while True:
            page = get(self.api, self._path, query)
            for item in objects(page, "items"):
                try:
                    ledger = from_document(object_of(parsed(_data(item))))
                except ValueError:
                    continue
                with self._lock:
                    self._names.append((ledger.asked_at_s, text(item, "metadata.name")))
                yield ledger
            following = text(page, "metadata.continue")
            if not following:
                return
            query["continue"] = following

    def put(self, ledger: Ledger) -> str:
        """Keeps a ledger: `written`, or `present` when another copy was first.

        Raises:
            ApiError: the API server refused.
        """
        name = f"ledger-{ledger.uid}"
        body = {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": name, "labels": {LABEL: "true", "coldstart/model": ledger.model}},
            "immutable": True,
            "data": {KEY: clean_text(json.dumps(document(ledger), separators=(",", ":")))},
        }
        try:
            self.api.send("POST", self._path, body)
        except ApiError as error:
            if error.status == CONFLICT:
                self._remember(ledger, name)
                return PRESENT
            raise
        self._remember(ledger, name)
        self._forget()
        return WRITTEN

    @property
    def _path(self) -> str:
        return f"/api/v1/namespaces/{self.namespace}/configmaps"

    def _remember(self, ledger: Ledger, name: str) -> None:
        with self._lock:
            self._names.append((ledger.asked_at_s, name))

    def _forget(self) -> None:
        """Removes the oldest beyond the limit; another copy may have done so already."""
        with self._lock:
            self._names.sort()
            old = self._names[: max(0, len(self._names) - self.keep)]
            self._names = self._names[len(old) :]
        for _, name in old:
            try:
                self.api.send("DELETE", f"{self._path}/{name}")
            except ApiError as error:
                if error.status != NOT_FOUND:
                    raise


def _data(item: Object) -> str:
    value = mapping(item, "data").get(KEY)  # the key holds a dot
    return value if isinstance(value, str) else ""
