"""A cold and a warm start of one pod, served and stopped as in a cluster."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from scripts.failure import Failure
from scripts.rehearsal.local_pod import LocalPod
from scripts.rehearsal.pod import RunningPod
from scripts.rehearsal.site import Site

READY_WITHIN_S = 900.0
"""Of a rehearsal: a laptop's two cores under other work are no measure of a GPU node."""
PUBLISHED_WITHIN_S = 120.0
ASKED = 10


@dataclass(frozen=True, kw_only=True, slots=True)
class Start:
    """One start, from the container's first instruction to its last.

    Attributes:
        ledger: as the launcher gave it when it was Ready.
        published: what became of the compile cache after Ready; empty when nothing was to be published.
        answers: what a user got, with latencies.
        exit_code: after SIGTERM.
    """

    name: str
    ledger: Mapping[str, Any]
    published: Mapping[str, Any]
    answers: Mapping[str, Any]
    exit_code: int

    def document(self) -> Mapping[str, Any]:
        """For `--json`."""
        return {
            "name": self.name,
            "ledger": self.ledger,
            "published": self.published,
            "answers": self.answers,
            "exit_code": self.exit_code,
        }


def run(site: Site, name: str, pod: LocalPod) -> Start:
    """Starts a pod, waits for Ready, asks it as a user, stops it.

    Raises:
        Failure: a step fails.
    """
    with RunningPod.started(pod, site.folder / name) as running:
        ledger = running.ready(READY_WITHIN_S)
        answers = ask(site, pod)
        published = publication(running, ledger)
        return Start(name=name, ledger=ledger, published=published, answers=answers, exit_code=running.stop())


def ask(site: Site, pod: LocalPod, count: int = ASKED) -> Mapping[str, Any]:
    """What a user gets, through the `openai` package."""
    base = f"http://127.0.0.1:{pod.config['engine_port']}/v1"
    return json.loads(site.env.run("ask.py", base, str(pod.config["served_model_name"]), str(count)))


def publication(running: RunningPod, ledger: Mapping[str, Any]) -> Mapping[str, Any]:
    """Waits for what becomes of the compile cache, where this start has one to publish."""
    if ledger["compile_cache"]["restore"] in {"off", "restored", "local"}:
        return {}

    def told() -> bool:
        return any("publish" in event for event in running.events("compile-cache"))

    running.until(told, "the compile cache published", PUBLISHED_WITHIN_S)
    return next(event for event in running.events("compile-cache") if "publish" in event)


def cold_and_warm(site: Site) -> tuple[Start, Start]:
    """The first pod ever, and one on a fresh node after it.

    Raises:
        Failure: a start fails, or the second one did not profit from the first.
    """
    cold = run(site, "first", site.fresh_pod())
    warm = run(site, "second", site.fresh_pod())
    if cold.ledger["compile_cache"]["restore"] != "off" and not warm.ledger["compile_cache"]["hit"]:
        cache = warm.ledger["compile_cache"]
        raise Failure(
            f"the second start did not use the compile cache: {cache['restore']}, {cache['reason']}{cache['evidence']}"
        )
    return cold, warm
