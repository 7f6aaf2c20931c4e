"""The compile cache of one start: restored before it, dropped if it harms, published after it."""

from __future__ import annotations

import os
import shutil
from typing import TYPE_CHECKING

from serving.launcher.compile_cache import CacheJob, cache_key, has_content
from serving.launcher.refusal import Refused

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from serving.launcher.config import CompileCache
    from serving.launcher.console import Console
    from serving.launcher.facts import CacheFacts
    from serving.launcher.worker import Worker

_PUBLISH_TIMEOUT_S = 600.0
"""Of packing and uploading beside the first users: far more than gigabytes take, and an end to a stalled upload."""


class KeptCache:
    """A configured compile cache. Whatever goes wrong with it, the start goes on and the ledger says why."""

    def __init__(self, config: CompileCache, facts: CacheFacts, worker: Worker, console: Console) -> None:
        self._config, self._facts, self._worker, self._console = config, facts, worker, console
        self._damaged_etag = ""

    def restore(self, argv: Sequence[str], now: Callable[[], float]) -> bool:
        """Brings the artefacts for an engine command to this disk; whether there are any now."""
        facts = self._facts
        facts.key = cache_key(self._config, argv, os.environ)
        if has_content(self._config.root / self._config.include[0]):
            facts.restore, facts.reason = "local", "left by an earlier container of this pod"
            return True
        began_s = now()
        job = self._job()
        try:
            result = self._worker.run("restore", job, self._config.max_restore_s)
        except Refused as error:
            result = {"restore": "skipped", "reason": str(error)}
            shutil.rmtree(job.scratch(), ignore_errors=True)
        facts.restore, facts.reason = str(result["restore"]), str(result["reason"])
        facts.restore_s = round(now() - began_s, 3)
        facts.archive_bytes = int(result.get("archive_bytes") or 0) or None
        self._damaged_etag = str(result.get("etag") or "")
        self._console.say("compile-cache", restore=facts.restore, reason=facts.reason, s=facts.restore_s, key=facts.key)
        return facts.restore == "restored"

    def drop(self) -> None:
        """Removes artefacts on which the engine died."""
        for name in self._config.include:
            shutil.rmtree(self._config.root / name, ignore_errors=True)
        self._facts.reason = f"the engine died with the cache that was {self._facts.restore}; tried again without"
        self._facts.restore = "skipped"
        self._console.say("compile-cache", restore=self._facts.restore, reason=self._facts.reason)

    def publish(self) -> None:
        """Keeps what the engine compiled, if this key has no archive yet or a damaged one."""
        facts = self._facts
        if facts.restore == "restored" or (facts.restore == "local" and facts.hit):
            return
        try:
            result = self._worker.run("publish", self._job(), _PUBLISH_TIMEOUT_S, behind_users=True)
        except Refused as error:
            result = {"publish": "failed", "publish_reason": str(error)}
        facts.publish, facts.publish_reason = str(result["publish"]), str(result["publish_reason"])
        self._console.say("compile-cache", publish=facts.publish, reason=facts.publish_reason, key=facts.key)

    def _job(self) -> CacheJob:
        return CacheJob(
            uri=self._config.uri,
            key=self._facts.key,
            root=str(self._config.root),
            include=self._config.include,
            max_bytes=self._config.max_bytes,
            max_s=self._config.max_restore_s,
            etag=self._damaged_etag,
        )
