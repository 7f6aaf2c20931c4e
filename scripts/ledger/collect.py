"""Everything that can be read about a model's starts from a live cluster; what can't be is said, with the reason."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from urllib.parse import quote

from scripts.ledger.bundle import Bundle
from scripts.ledger.facts import Absence
from scripts.ledger.kube_api import FORBIDDEN, NOT_FOUND, Api, ApiError, get
from scripts.ledger.pod_facts import container_status, engine_container
from scripts.ledger.raw import NOTHING, Object, label, mapping, object_of, objects, parsed, text, whole
from scripts.ledger.record import Ledger, from_document

LOG_LIMIT_BYTES = 20_000_000
"""Of a log: a start is a few hundred kilobytes, and traffic may follow it."""


class Collector:
    """Reads one cluster.

    Attributes:
        extras: reads more into a bundle: EC2, CloudWatch, a probe on the node; each says itself what it could not.
    """

    def __init__(self, api: Api, extras: Sequence[Callable[[Bundle], Bundle]] = ()) -> None:
        self._api, self._extras = api, extras

    def pods(self, namespace: str, selector: str) -> list[Object]:
        """The pods of a model, the newest first.

        Raises:
            ApiError: they may not be listed, or the server can't be reached.
        """
        found = objects(get(self._api, f"/api/v1/namespaces/{namespace}/pods", {"labelSelector": selector}), "items")
        return sorted(found, key=lambda pod: text(pod, "metadata.creationTimestamp"), reverse=True)

    def pod(self, namespace: str, name: str) -> Object:
        """One pod.

        Raises:
            ApiError: there is none, or it may not be read.
        """
        return get(self._api, f"/api/v1/namespaces/{namespace}/pods/{quote(name)}")

    def start(self, pod: Object) -> Bundle:
        """Everything about the start of a pod."""
        absences: list[Absence] = []
        name, namespace, uid = (text(pod, f"metadata.{key}") for key in ("name", "namespace", "uid"))
        node_name = text(pod, "spec.nodeName")
        node = self._maybe("node", f"/api/v1/nodes/{node_name}", absences) if node_name else NOTHING
        log, previous = self._logs(pod, absences)
        bundle = Bundle(
            pod=pod,
            node=node,
            node_claim=self._claim(node, absences),
            lease=self._maybe(
                "lease", f"/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/{node_name}", absences
            )
            if node_name
            else NOTHING,
            events=self._events(namespace, uid, name, absences),
            launcher=self._launcher(pod, absences),
            log=log,
            previous_log=previous,
            configz=self._maybe("configz", f"/api/v1/nodes/{node_name}/proxy/configz", absences)
            if node_name
            else NOTHING,
            kubelet_metrics=self._text("kubelet metrics", f"/api/v1/nodes/{node_name}/proxy/metrics", absences)
            if node_name
            else "",
            collected_s=datetime.now(UTC).timestamp(),
        )
        bundle = replace(bundle, absences=tuple(absences))
        for extra in self._extras:
            bundle = extra(bundle)
        return bundle

    def _events(self, namespace: str, uid: str, name: str, absences: list[Absence]) -> Sequence[Object]:
        path = f"/api/v1/namespaces/{namespace}/events"
        found = self._maybe("events", path, absences, {"fieldSelector": f"involvedObject.uid={uid}"})
        events = objects(found, "items")
        if not events and not any(absence.what == "events" for absence in absences):
            absences.append(Absence(what="events", why=f"none of pod {name} is left: they live an hour"))
        return events

    def _logs(self, pod: Object, absences: list[Absence]) -> tuple[str | None, str | None]:
        container = engine_container(pod)
        status = container_status(pod, container)
        base = f"/api/v1/namespaces/{text(pod, 'metadata.namespace')}/pods/{text(pod, 'metadata.name')}/log"
        query = {"container": container, "timestamps": "true", "limitBytes": str(LOG_LIMIT_BYTES)}
        if not status or "waiting" in mapping(status, "state"):
            return None, None
        log = self._text("log", base, absences, query) or None
        previous = None
        if whole(status, "restartCount"):
            previous = self._text("previous log", base, absences, query | {"previous": "true"}) or None
        return log, previous

    def _launcher(self, pod: Object, absences: list[Absence]) -> Object:
        """The launcher's ledger through the API server's proxy; the log holds it as well, once the start is decided."""
        container = next(
            (entry for entry in objects(pod, "spec.containers") if text(entry, "name") == engine_container(pod)),
            NOTHING,
        )
        port = next(
            (
                whole(entry, "containerPort")
                for entry in objects(container, "ports")
                if text(entry, "name") == "launcher"
            ),
            None,
        )
        if port is None:
            absences.append(Absence(what="launcher", why="the pod has no launcher, so there is less detail"))
            return NOTHING
        name = f"{text(pod, 'metadata.name')}:{port}"
        path = f"/api/v1/namespaces/{text(pod, 'metadata.namespace')}/pods/{name}/proxy/ledger"
        return self._maybe("launcher", path, absences)

    def _claim(self, node: Object, absences: list[Absence]) -> Object:
        if not label(node, "karpenter.sh/nodepool"):
            return NOTHING
        found = self._maybe("node claim", "/apis/karpenter.sh/v1/nodeclaims", absences)
        name = text(node, "metadata.name")
        return next((claim for claim in objects(found, "items") if text(claim, "status.nodeName") == name), NOTHING)

    def _maybe(self, what: str, path: str, absences: list[Absence], query: Mapping[str, str] | None = None) -> Object:
        try:
            return get(self._api, path, query)
        except ApiError as error:
            absences.append(Absence(what=what, why=in_words(error)))
            return NOTHING

    def _text(self, what: str, path: str, absences: list[Absence], query: Mapping[str, str] | None = None) -> str:
        try:
            return self._api.text(path, query)
        except ApiError as error:
            absences.append(Absence(what=what, why=in_words(error)))
            return ""


def in_words(error: ApiError) -> str:
    """Why the API server gave nothing, for a person."""
    if error.status == FORBIDDEN:
        return f"forbidden: {error.message}"
    if error.status == NOT_FOUND:
        return f"not there: {error.message}"
    return str(error)


def kept_ledgers(api: Api, namespace: str, model: str, say: Callable[[str], None]) -> list[Ledger]:
    """The ledgers that the recorder has kept of a model, the newest first; none without a recorder.

    Args:
        api: of the cluster.
        namespace: of the recorder.
        model: the pods' label.
        say: told what could not be read: an older format, or somebody wrote into it.
    """
    query = {"labelSelector": f"coldstart/ledger=true,coldstart/model={model}", "limit": "500"}
    try:
        found = objects(get(api, f"/api/v1/namespaces/{namespace}/configmaps", query), "items")
    except ApiError as error:
        say(f"the ledgers that a recorder kept can't be read: {in_words(error)}")
        return []
    ledgers: list[Ledger] = []
    unreadable: list[str] = []
    for item in found:
        written = mapping(item, "data").get("ledger.json")
        try:
            ledgers.append(from_document(object_of(parsed(written if isinstance(written, str) else ""))))
        except ValueError as error:
            unreadable.append(f"ConfigMap {namespace}/{text(item, 'metadata.name')}: {error}")
    if unreadable:
        more = f" (and {len(unreadable) - 1} more)" if len(unreadable) > 1 else ""
        say(f"a ledger that the recorder kept can't be read and is left out: {unreadable[0]}{more}")
    return sorted(ledgers, key=lambda ledger: ledger.asked_at_s, reverse=True)
