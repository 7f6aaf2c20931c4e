"""The recorded answer, fetched beside the engine's load."""

from __future__ import annotations

import json
import threading
from typing import TYPE_CHECKING

from serving.launcher.config import KnownAnswer
from serving.launcher.fields import Fields
from serving.launcher.recorded_answer import AnswerJob
from serving.launcher.refusal import Refused

if TYPE_CHECKING:
    from serving.launcher.worker import Worker

_READ_TIMEOUT_S = 30.0
"""Of one small object, read while the engine loads: far more than it takes, and an end to a stalled source."""


class AnswerReader:
    """The answer that a manifest holds, read beside the engine's load: the start never waits for it while it loads."""

    def __init__(self, manifest: str, worker: Worker) -> None:
        self._manifest, self._worker = manifest, worker
        self._known: KnownAnswer | None = None
        self._reason = "the launcher did not look for one"
        self._reader = threading.Thread(target=self._read, name="answer", daemon=True)

    def begin(self) -> None:
        """Starts to read, once."""
        if self._reader.ident is None:
            self._reader.start()

    def get(self) -> tuple[KnownAnswer | None, str]:
        """The answer, and why there is none; waits for the reader, which has an end of its own."""
        if self._reader.ident is not None:
            self._reader.join()
        return self._known, self._reason

    def _read(self) -> None:
        try:
            result = self._worker.run("answer", AnswerJob(manifest=self._manifest), _READ_TIMEOUT_S, behind_users=True)
        except Refused as error:
            self._reason = f"{self._manifest} can't be read: {error}"
            return
        self._reason = str(result["reason"])
        if self._reason:
            return
        problems: list[str] = []
        known = KnownAnswer.from_json(Fields("answer", result["answer"], problems))
        if problems:
            self._reason = f"the answer in {self._manifest} can't be used: {json.dumps(problems)}"
        else:
            self._known = known
