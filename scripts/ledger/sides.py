"""Runs a side of an A/B in the cluster: its own deployment, one pod, measured when it is Ready, and gone again."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from scripts.failure import Failure
from scripts.ledger.bundle import Bundle
from scripts.ledger.comparison import Side
from scripts.ledger.kube_api import NOT_FOUND, Api, ApiError, get
from scripts.ledger.pod_facts import condition
from scripts.ledger.raw import Object, objects, text
from scripts.ledger.trigger import Wait
from scripts.ledger.variants import LAUNCHER_CONFIG, variant
from serving.placement import MODEL_LABEL

PLURALS = {"ConfigMap": "/api/v1/namespaces/{}/configmaps", "Deployment": "/apis/apps/v1/namespaces/{}/deployments"}


@dataclass(frozen=True, kw_only=True)
class Sides:
    """Both sides of a comparison of one model.

    Attributes:
        measure: pod → bundle of its start.
    """

    api: Api
    namespace: str
    deployment: str
    lever: str
    patience_s: float
    wait: Wait
    say: Callable[[str], None]

    def run(self, side: Side, measure: Callable[[Object], Bundle]) -> Bundle:
        """One start of a side.

        Raises:
            Failure: the pod was not Ready in time, or the cluster refused.
            BadInput: the model does not have the lever.
        """
        made: list[str] = []
        try:
            for manifest in variant(self._deployment(), self._config_map(), self.lever, side):
                collection = PLURALS[manifest["kind"]].format(self.namespace)
                made.append(f"{collection}/{manifest['metadata']['name']}")
                self._gone(made[-1])
                self.api.send("POST", collection, manifest)
            name = made[-1].rpartition("/")[2]
            if not self.wait(lambda: self._ready(name) is not None, self.patience_s):
                raise Failure(f"{name} was not Ready within {self.patience_s:.0f} s")
            pod = self._ready(name)
            if pod is None:
                raise Failure(f"{name} was Ready and no longer is")
            self.say(f"{self.lever} {side}: pod {text(pod, 'metadata.name')} is Ready")
            return measure(pod)
        except ApiError as error:
            raise Failure(f"{self.lever} {side}: {error}") from error
        finally:
            for path in reversed(made):
                self._gone(path)

    def _deployment(self) -> Object:
        return get(self.api, f"{PLURALS['Deployment'].format(self.namespace)}/{self.deployment}")

    def _config_map(self) -> Object:
        """The ConfigMap of the launcher, by the deployment's volumes."""
        for volume in objects(self._deployment(), "spec.template.spec.volumes"):
            name = text(volume, "configMap.name")
            if name:
                found = get(self.api, f"{PLURALS['ConfigMap'].format(self.namespace)}/{name}")
                if LAUNCHER_CONFIG in found.get("data", {}):
                    return found
        raise Failure(f"deployment {self.deployment} mounts no launcher configuration: it has no levers of its own")

    def _ready(self, name: str) -> Object | None:
        selector = {"labelSelector": f"{MODEL_LABEL}={name}"}
        pods = objects(get(self.api, f"/api/v1/namespaces/{self.namespace}/pods", selector), "items")
        return next((pod for pod in pods if text(condition(pod, "Ready"), "status") == "True"), None)

    def _gone(self, path: str) -> None:
        """Deletes, and waits until pods of a deployment are gone too: the next side needs their GPU."""
        try:
            self.api.send("DELETE", f"{path}?propagationPolicy=Foreground")
        except ApiError as error:
            if error.status != NOT_FOUND:
                raise
            return

        def away() -> bool:
            try:
                get(self.api, path)
            except ApiError as error:
                return error.status == NOT_FOUND
            return False

        self.wait(away, 120.0)
