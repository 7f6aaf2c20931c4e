"""Sides of an A/B on this machine: the rehearsal's pod with a lever off and on, the real engine, no cluster."""

from __future__ import annotations

import tempfile
from collections.abc import Generator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from infra.specs import model_specs
from infra.stack_file import Stack
from scripts.ledger.bundle import Bundle
from scripts.ledger.comparison import Side
from scripts.ledger.variants import LEVERS, Pod
from scripts.rehearsal.engine_env import engine_env
from scripts.rehearsal.local_pod import LocalPod
from scripts.rehearsal.pod import RunningPod
from scripts.rehearsal.site import Site, open_site
from scripts.rehearsal.starts import READY_WITHIN_S, publication, run
from serving.manifests import objects


@dataclass(frozen=True, kw_only=True)
class Rehearsed:
    """Both sides of a lever in one rehearsal.

    Attributes:
        site: S3 server, staged model, rendered pod.
    """

    site: Site
    lever: str

    def run(self, side: Side, number: int) -> Bundle:
        """One start on empty directories: what the launcher says of it, and its log."""
        pod = self.site.fresh_pod()
        if side == "off":
            pod = without(pod, self.lever)
        with RunningPod.started(pod, self.site.folder / f"{side}-{number}") as running:
            ledger = running.ready(READY_WITHIN_S)
            publication(running, ledger)
            running.stop()
            return Bundle(launcher=ledger, log=running.log.read_text(encoding="utf-8", errors="replace"))


@contextmanager
def rehearsal(stack: Stack, lever: str) -> Generator[Rehearsed]:
    """A rehearsal of a model stack, with one start behind it that fills every cache.

    Raises:
        Failure: the engine's environment isn't there, or the first start fails.
        BadInput: the model does not have the lever.
    """
    if stack.model is None:
        raise ValueError(f"{stack.name} is an environment")
    rendered = objects(model_specs(stack, stack.model).serving)
    env = engine_env()
    with ExitStack() as held:
        folder = Path(held.enter_context(tempfile.TemporaryDirectory(prefix="coldstart-ab-")))
        site = held.enter_context(open_site(env, folder, rendered))
        without(site.pod(), lever)  # refuses a model without the lever before anything is started
        run(site, "first", site.fresh_pod())
        yield Rehearsed(site=site, lever=lever)


def without(pod: LocalPod, lever: str) -> LocalPod:
    """The pod with a lever off."""
    config: dict[str, Any] = dict(pod.config)
    changed = Pod(config=config, command=list(pod.argv), environment=dict(pod.environment))
    LEVERS[lever](changed)
    environment: Mapping[str, str] = changed.environment
    return replace(pod, config=changed.config, argv=changed.command, environment=environment)
