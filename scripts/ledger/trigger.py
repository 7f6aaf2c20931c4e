"""Makes one start on purpose: one more replica, as cold as asked, and everything back as it was."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Literal
from urllib.parse import quote

from budget.counted import counted
from scripts.failure import Failure
from scripts.ledger.kube_api import FORBIDDEN, NOT_FOUND, Api, ApiError, get
from scripts.ledger.node_facts import gpus_allocatable, is_ready
from scripts.ledger.pod_facts import condition, engine_container, gpus_asked, waiting_reason
from scripts.ledger.raw import NOTHING, Object, label, objects, text, texts, whole
from serving.placement import MODEL_LABEL

Cold = Literal["node", "image", "pod"]
PAUSED = "autoscaling.keda.sh/paused-replicas"
"""KEDA holds a ScaledObject at this many replicas while the annotation stands (KEDA, "Pause autoscaling")."""
DELETION_COST = "controller.kubernetes.io/pod-deletion-cost"
MERGE = "application/merge-patch+json"
Wait = Callable[[Callable[[], bool], float], bool]


@dataclass(frozen=True, kw_only=True)
class Trigger:
    """One model's deployment.

    Attributes:
        wait: waits until a condition is true, or for so many seconds; returns whether it is.
        say: tells the person what happens.
    """

    api: Api
    namespace: str
    deployment: str
    model: str
    wait: Wait
    say: Callable[[str], None]

    @contextmanager
    def start(self, cold: Cold | None, patience_s: float) -> Generator[Object]:
        """Scales up by one and yields the new pod once its start is over; afterwards the previous size is back.

        Args:
            cold: what has to be missing; None takes what comes.
            patience_s: a start that takes longer is measured as it stands.

        Raises:
            Failure: no node is as cold as was asked, or the cluster refused.
        """
        path = self._deployment_path
        try:
            deployment = get(self.api, path)
            before = whole(deployment, "spec.replicas") or 0
            template = deployment.get("spec", {}).get("template", NOTHING)
            known = {text(pod, "metadata.uid") for pod in self._pods()}
            cordon = self._to_cordon(cold, template)
        except ApiError as error:
            raise Failure(f"deployment {self.deployment} in {self.namespace}: {error}") from error
        with self._cordoned(cordon), self._scaled(before):
            yield self._started(known, patience_s)

    def _started(self, known: set[str], patience_s: float) -> Object:
        def new() -> Object:
            return next((pod for pod in self._pods() if text(pod, "metadata.uid") not in known), NOTHING)

        if not self.wait(lambda: bool(new()), 60.0):
            raise Failure(f"deployment {self.deployment} was scaled up, but no new pod came within 60 s")
        uid, name = text(new(), "metadata.uid"), text(new(), "metadata.name")
        self.say(f"pod {name} starts")
        self.api.send(
            "PATCH",
            f"/api/v1/namespaces/{self.namespace}/pods/{name}",
            {"metadata": {"annotations": {DELETION_COST: "-1000"}}},  # it goes first when the size is restored
            MERGE,
        )

        def found() -> Object:
            return next((pod for pod in self._pods() if text(pod, "metadata.uid") == uid), NOTHING)

        def over() -> bool:
            pod = found()
            return (
                not pod or text(condition(pod, "Ready"), "status") == "True" or waiting_reason(pod).startswith("Crash")
            )

        if not self.wait(over, patience_s):
            self.say(f"pod {name} is not Ready after {patience_s:.0f} s; it is measured as it stands")
        pod = found()
        if not pod:
            raise Failure(f"pod {name} was deleted while it was watched")
        return pod

    def _pods(self) -> list[Object]:
        selector = {"labelSelector": f"{MODEL_LABEL}={self.model}"}
        return objects(get(self.api, f"/api/v1/namespaces/{self.namespace}/pods", selector), "items")

    # ---- size ------------------------------------------------------------------------------------------------------

    @contextmanager
    def _scaled(self, before: int) -> Generator[None]:
        """One replica more, KEDA held still meanwhile; both undone whatever happens."""
        scaled_object = self._scaled_object()
        paused = label(scaled_object, PAUSED, "annotations") or None
        try:
            if scaled_object:
                self._annotate(scaled_object, str(before + 1))
            self._scale(before + 1)
            yield
        except ApiError as error:
            raise Failure(f"deployment {self.deployment}: {error}") from error
        finally:
            self.say(f"restoring {counted(before, 'replica')}")
            self._scale(before)
            if scaled_object:
                self._annotate(scaled_object, paused)

    def _scale(self, replicas: int) -> None:
        self.api.send("PATCH", f"{self._deployment_path}/scale", {"spec": {"replicas": replicas}}, MERGE)

    @property
    def _deployment_path(self) -> str:
        return f"/apis/apps/v1/namespaces/{self.namespace}/deployments/{quote(self.deployment)}"

    def _scaled_object(self) -> Object:
        """The ScaledObject that owns the deployment's size; empty on a cluster without KEDA."""
        try:
            found = objects(get(self.api, f"/apis/keda.sh/v1alpha1/namespaces/{self.namespace}/scaledobjects"), "items")
        except ApiError as error:
            if error.status in {NOT_FOUND, FORBIDDEN}:
                return {}
            raise
        return next((entry for entry in found if text(entry, "spec.scaleTargetRef.name") == self.deployment), NOTHING)

    def _annotate(self, scaled_object: Object, replicas: str | None) -> None:
        name = text(scaled_object, "metadata.name")
        self.api.send(
            "PATCH",
            f"/apis/keda.sh/v1alpha1/namespaces/{self.namespace}/scaledobjects/{name}",
            {"metadata": {"annotations": {PAUSED: replicas}}},
            MERGE,
        )

    # ---- where -----------------------------------------------------------------------------------------------------

    def _to_cordon(self, cold: Cold | None, template: Object) -> Sequence[str]:
        """Nodes that must take no pod meanwhile, so that the start is as cold as was asked.

        Raises:
            Failure: nothing that is there is that cold.
        """
        if cold is None:
            return []
        found = get(self.api, "/api/v1/nodes", {"labelSelector": f"{MODEL_LABEL}={self.model}"})
        nodes = {text(node, "metadata.name"): node for node in objects(found, "items")}
        open_nodes = {name: node for name, node in nodes.items() if not node.get("spec", {}).get("unschedulable")}
        if cold == "node":
            return sorted(open_nodes)
        image = next(
            (
                text(entry, "image")
                for entry in objects(template, "spec.containers")
                if text(entry, "name") == engine_container(template)
            ),
            "",
        )
        wanted = cold == "pod"
        fit = [
            name
            for name, node in open_nodes.items()
            if is_ready(node) and has_image(node, image) == wanted and self._room(node) >= gpus_asked(template)
        ]
        if not fit:
            have = "the image" if wanted else "no copy of the image"
            raise Failure(
                f"no Ready node of {self.model} has a free GPU and {have}. "
                + ("Use --cold node, or keep a node warm." if wanted else "Use --cold node: a fresh node has no image.")
            )
        return sorted(set(open_nodes) - {fit[0]})

    def _room(self, node: Object) -> int:
        """GPUs of a node that no pod has asked for."""
        name = text(node, "metadata.name")
        found = get(self.api, "/api/v1/pods", {"fieldSelector": f"spec.nodeName={name}"})
        taken = sum(
            gpus_asked(pod)
            for pod in objects(found, "items")
            if text(pod, "status.phase") not in {"Succeeded", "Failed"}
        )
        return gpus_allocatable(node) - taken

    @contextmanager
    def _cordoned(self, names: Sequence[str]) -> Generator[None]:
        done: list[str] = []
        try:
            for name in names:
                self.api.send("PATCH", f"/api/v1/nodes/{name}", {"spec": {"unschedulable": True}}, MERGE)
                done.append(name)
                self.say(f"node {name} accepts no new pods meanwhile")
            yield
        finally:
            for name in done:
                self.api.send("PATCH", f"/api/v1/nodes/{name}", {"spec": {"unschedulable": None}}, MERGE)


def has_image(node: Object, image: str) -> bool:
    """Whether a node says that it has an image. The kubelet names its 50 largest, so an engine image is among them."""
    names = {name for entry in objects(node, "status.images") for name in texts(entry, "names")}
    digest = image.rpartition("@")[2] if "@" in image else ""
    return image in names or any(digest and name.endswith(digest) for name in names)
