"""Failures on purpose. A test writes `faults.json`, the stand-in fails accordingly and counts down.

    [{"type": "aws:eks/nodeGroup:NodeGroup", "operation": "create", "name": "zone-b",
      "error": "InsufficientInstanceCapacity: no capacity in us-west-2b", "times": 1}]

`type` is a token, `name` a regular expression searched in the resource's logical name (both optional), `operation`
one of create, read, update, delete, invoke. `kind` says how it fails:

* `error` (the default): refused, nothing was created or changed.
* `throttling`: the service asks for patience; the stand-in tries again as the real provider does, up to RETRIES times.
* `half`: the resource exists, but never got ready. The engine keeps it in its state and takes it up at the next `up`.
"""

from __future__ import annotations

import fcntl
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

RETRIES = 25
"""How often the AWS SDK in the provider tries a throttled call again (`max_retries` of the Terraform provider)."""


class ServiceError(Exception):
    """The service said no. The text is the person's only clue, so it reads as the real provider's does."""


class NotReadyError(ServiceError):
    """The resource was created but did not become ready."""


@dataclass(frozen=True, kw_only=True)
class Fault:
    """One planned failure; fields as in the module's docstring."""

    operation: str
    error: str
    type: str = ""
    name: str = ""
    kind: str = "error"
    times: int = 1

    def matches(self, operation: str, token: str, name: str) -> bool:
        """Whether it's due at this operation."""
        return (
            self.times > 0
            and self.operation == operation
            and self.type in ("", token)
            and re.search(self.name, name) is not None
        )


class Faults:
    """The planned failures in a folder."""

    def __init__(self, folder: Path) -> None:
        self._file = folder / "faults.json"
        self._lock_file = folder / "faults.lock"
        folder.mkdir(parents=True, exist_ok=True)

    def plan(self, faults: Sequence[Fault]) -> None:
        """Replaces what is planned; called by tests."""
        self._file.write_text(json.dumps([vars(fault) for fault in faults], indent=1))

    def strike(self, operation: str, token: str, name: str) -> Fault | None:
        """The failure that is due at this operation, counted down; nothing when all is well."""
        if not self._file.exists():
            return None
        with self._lock_file.open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            planned = [Fault(**entry) for entry in json.loads(self._file.read_text())]
            for position, fault in enumerate(planned):
                if fault.matches(operation, token, name):
                    planned[position] = Fault(**{**vars(fault), "times": fault.times - 1})
                    self.plan(planned)
                    return fault
        return None
