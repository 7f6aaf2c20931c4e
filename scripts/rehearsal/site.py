"""The place of a rehearsal: an S3 server with a staged model, and the pod that a stack renders."""

from __future__ import annotations

import json
import shutil
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from scripts.rehearsal.engine_env import EngineEnv
from scripts.rehearsal.local_pod import LocalPod, Stage, buckets, local_pod, workload
from scripts.rehearsal.object_store import ObjectStore, object_store
from scripts.rehearsal.ports import free_ports
from scripts.staging.bucket import Bucket
from scripts.staging.folder import FolderSource
from scripts.staging.run import Outcome, stage

MODEL = "coldstart/tiny-llama"
LASTING = ("node-cache", "models")
"""What of a pod's file systems outlives it; everything else is a new emptyDir."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Site:
    """Everything a pod of this rehearsal needs.

    Attributes:
        objects: the Kubernetes objects that the stack renders.
        staged: how the staging of the tiny model ended.
    """

    env: EngineEnv
    folder: Path
    store: ObjectStore
    objects: Sequence[Mapping[str, Any]]
    staged: Outcome

    def pod(self, *, endpoint: str | None = None) -> LocalPod:
        """The pod as it would run here, on ports of its own.

        Every pod has its file systems at the same place: the compile cache is keyed by paths, as in a cluster.
        """
        port, engine_port = free_ports(2)
        machine = Stage(
            python=self.env.python,
            folder=self.folder / "pod",
            ports=(port, engine_port),
            store_environment=self.store.environment(endpoint),
            model_uri=self.staged.model.uri(self.staged.bucket),
            manifest_uri=self.staged.model.manifest_uri(self.staged.bucket),
        )
        return local_pod(self.objects, machine)

    def fresh_pod(self, *, endpoint: str | None = None) -> LocalPod:
        """The same on a new node's worth of empty directories, less what lasts."""
        pod = self.pod(endpoint=endpoint)
        for mount, directory in pod.mounts.items():
            if mount.strip("/") not in LASTING:
                shutil.rmtree(directory, ignore_errors=True)
        return pod


def changed(pod: LocalPod, **config: Any) -> LocalPod:  # noqa: ANN401 - members of a JSON document
    """A pod with members of its launcher's configuration replaced."""
    return replace(pod, config={**pod.config, **config})


@contextmanager
def open_site(env: EngineEnv, folder: Path, objects: Sequence[Mapping[str, Any]]) -> Generator[Site]:
    """Starts the S3 server, makes the tiny model and stages it where the rendered pod looks for its weights.

    Raises:
        Failure: a part doesn't start.
        BadInput: the model can't be staged.
    """
    config = json.loads(workload(objects)[1]["data"]["launcher.json"])
    model = folder / "model"
    if not (model / "config.json").exists():
        env.run("tiny_model.py", str(model))
    with object_store(env, folder) as store:
        names = sorted(buckets(config)) or ["rehearsal"]
        for name in names:
            store.client().create_bucket(Bucket=name)
        source = FolderSource(model, name=MODEL, trust_remote_code=False)
        try:
            staged = stage(source, Bucket(names[0], store.client()), trust_remote_code=False)
        finally:
            source.close()
        yield Site(env=env, folder=folder, store=store, objects=objects, staged=staged)
