"""What the stand-in remembers between two processes: its resources, and the order of everything it did.

`records.json` holds every resource by type and id; `operations.jsonl` gets a line when an operation begins and one
when it ends. A test reads both, and may edit the first to play somebody who changed things behind Pulumi's back.
"""

from __future__ import annotations

import fcntl
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from tests.standin.wire import Properties


@dataclass
class Record:
    """One resource.

    Attributes:
        token: its type.
        id: its id.
        name: the name in its URN.
        inputs: what it was asked to be, default tags left out.
        facts: what only the stand-in knows of it (status, names that EKS invented, ...).
    """

    token: str
    id: str
    name: str
    inputs: Properties
    facts: Properties = field(default_factory=dict)


class Records:
    """The resources on disk. Safe between threads and between processes."""

    def __init__(self, folder: Path) -> None:
        self._file = folder / "records.json"
        self._lock_file = folder / "records.lock"
        self._lock = threading.RLock()
        folder.mkdir(parents=True, exist_ok=True)

    def get(self, token: str, resource_id: str) -> Record | None:
        """One resource, or nothing."""
        return self._load().get(_key(token, resource_id))

    def all(self, token: str | None = None) -> list[Record]:
        """The resources of a type, or all, in the order of their creation."""
        return [record for record in self._load().values() if token in (None, record.token)]

    def put(self, record: Record) -> None:
        """Adds or replaces one."""
        with self._changing() as records:
            records[_key(record.token, record.id)] = record

    def remove(self, token: str, resource_id: str) -> None:
        """Forgets one."""
        with self._changing() as records:
            records.pop(_key(token, resource_id), None)

    def _load(self) -> dict[str, Record]:
        if not self._file.exists():
            return {}
        return {key: Record(**values) for key, values in json.loads(self._file.read_text()).items()}

    @contextmanager
    def _changing(self) -> Iterator[dict[str, Record]]:
        with self._lock, self._lock_file.open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            records = self._load()
            yield records
            text = json.dumps({key: asdict(record) for key, record in records.items()}, indent=1)
            fresh = self._file.with_suffix(".new")
            fresh.write_text(text)
            fresh.replace(self._file)


class Journal:
    """The order of operations, one JSON line each."""

    def __init__(self, folder: Path) -> None:
        self._file = folder / "operations.jsonl"
        self._lock = threading.Lock()
        folder.mkdir(parents=True, exist_ok=True)

    def write(self, **entry: Any) -> None:
        """Appends a line."""
        with self._lock, self._file.open("a") as journal:
            journal.write(json.dumps(entry) + "\n")


def _key(token: str, resource_id: str) -> str:
    return f"{token} {resource_id}"
