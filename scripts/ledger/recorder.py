"""The recorder: watches the pods of coldstart models and keeps a ledger of every start. `python recorder.pyz`.

It lists and watches three things: pods with the model label, events of pods, nodes with the model label. A start is
over
when its pod is Ready, failed or gone; a moment later, when late events have come, the launcher's ledger is fetched from
the pod itself, everything is merged, and the ledger is kept (store.py), exported (exposition.py) and sent (sinks.py).

Environment
    COLDSTART_NAMESPACE       namespace of the ledgers
    COLDSTART_KEEP            ledgers kept (default 1000)
    COLDSTART_PORT            of /metrics and /healthz (default 9464)
    COLDSTART_OTLP_ENDPOINT   http://collector:4318; empty sends no spans
    COLDSTART_CLOUDWATCH      `log` prints embedded metric format; empty prints none
    COLDSTART_API, COLDSTART_TOKEN_FILE, COLDSTART_CA_FILE    instead of the pod's own service account
"""

from __future__ import annotations

import heapq
import json
import math
import os
import signal
import sys
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from scripts.ledger import trim
from scripts.ledger.bundle import Bundle
from scripts.ledger.exposition import Exposition
from scripts.ledger.facts import Absence
from scripts.ledger.kube_api import Api, ApiError, InCluster, get
from scripts.ledger.launcher_page import fetch_launcher
from scripts.ledger.merge import ledger_of
from scripts.ledger.node_facts import gpus_allocatable, is_ready
from scripts.ledger.pod_facts import condition, model_of, waiting_reason
from scripts.ledger.raw import NOTHING, Object, objects, text
from scripts.ledger.record import Ledger
from scripts.ledger.recorder_settings import Settings
from scripts.ledger.scrape import routes
from scripts.ledger.sinks import SinkError, print_embedded, send_spans
from scripts.ledger.store import Store
from scripts.ledger.times import stamp
from scripts.ledger.watching import Change, Watcher
from serving.launcher.port import Port
from serving.placement import MODEL_LABEL

SETTLE_S = 2.0
"""Events and the launcher's last second arrive within this after Ready."""
LATE_S = 20.0
"""A start without any event of its pull waits this long for one: a kubelet that starts many pods sends them late."""
WORKERS = 4
ORPHANS = 4000
"""Events kept of pods that are not known: they may come before their pod does."""
RETRY_S = 5.0
FAILED_AFTER_S = 600.0
"""A pod that can't pull or crashes over and over is given up, as a start, after this long."""


@dataclass
class _Start:
    """A start under way."""

    pod: Object
    events: dict[str, Object] = field(default_factory=dict[str, Object])
    due: bool = False
    over_s: float = 0.0


class Recorder:
    """Watches, merges, keeps. Threads: one per watch, a few that finish starts."""

    def __init__(self, api: Api, settings: Settings, *, clock: Callable[[], float] = time.time) -> None:
        self._api, self._settings, self._clock = api, settings, clock
        self._store = Store(api=api, namespace=settings.namespace, keep=settings.keep)
        self.metrics = Exposition()
        self.stopping = threading.Event()
        self.synced = threading.Event()
        self._lock = threading.Condition()
        self._starts: dict[str, _Start] = {}
        self._done: set[str] = set()
        self._nodes: dict[str, Object] = {}
        self._seen: dict[str, float] = {}
        self._orphans: OrderedDict[str, dict[str, Object]] = OrderedDict()
        self._due: list[tuple[float, str]] = []
        self._watchers = {name: self._watcher(name) for name in ("pods", "events", "nodes")}
        self.metrics.live |= {
            "coldstart_starting_pods": self._starting,
            "coldstart_oldest_start_timestamp_seconds": self._oldest,
            "coldstart_recorder_watch_restarts_total": self._watch_restarts,
            "coldstart_recorder_api_requests_total": self._requests,
            "process_resident_memory_bytes": lambda: {(): resident_bytes()},
        }

    def run(self) -> None:
        """Until `stopping`."""
        self._recall()
        threads = [
            threading.Thread(target=self._follow, args=(name,), name=name, daemon=True) for name in self._watchers
        ]
        threads += [
            threading.Thread(target=self._finish_starts, name=f"finish-{n}", daemon=True) for n in range(WORKERS)
        ]
        for thread in threads:
            thread.start()
        self.stopping.wait()
        with self._lock:
            self._lock.notify_all()

    def _recall(self) -> None:
        """What earlier recorders have kept: those starts are over, and their metrics stand again."""
        while not self.stopping.is_set():
            try:
                for ledger in self._store.ledgers():
                    self._done.add(ledger.uid)
                    self.metrics.observe(ledger)
            except ApiError as error:
                say("ledgers-not-read", reason=str(error))
                self.stopping.wait(RETRY_S)
            else:
                return

    # ---- what is watched ------------------------------------------------------------------------------------------

    def _watcher(self, name: str) -> Watcher:
        model = {"labelSelector": MODEL_LABEL}
        query, kept = {
            "pods": (model, trim.pod),
            "nodes": (model, trim.node),
            "events": ({"fieldSelector": "involvedObject.kind=Pod"}, trim.event),
        }[name]
        return Watcher(
            api=self._api,
            path=f"/api/v1/{name}",
            query=query,
            stopping=self.stopping,
            trim=kept,
            said=lambda reason: say("watch-trouble", reason=reason),
        )

    def _follow(self, name: str) -> None:
        take = {"pods": self._on_pod, "events": self._on_event, "nodes": self._on_node}[name]
        for change in self._watchers[name].changes():
            if change.kind == "listed":
                if name == "pods":
                    self.synced.set()
                continue
            with self._lock:
                take(change)

    def _on_node(self, change: Change) -> None:
        name = text(change.object, "metadata.name")
        if change.kind == "deleted":
            return  # a node that goes takes nothing with it that a start under way has not shown already
        before = self._nodes.get(name)
        usable = is_ready(change.object) and gpus_allocatable(change.object) > 0
        if usable and before is not None and name not in self._seen:
            self._seen[name] = self._clock()
        elif usable and before is None:
            self._seen.setdefault(name, float("nan"))  # it was usable when it was first seen: since when, nobody knows
        self._nodes[name] = change.object

    def _on_event(self, change: Change) -> None:
        if change.kind == "deleted":
            return  # it expired; what it said stays true
        uid, key = text(change.object, "involvedObject.uid"), text(change.object, "metadata.uid")
        start = self._starts.get(uid)
        if start is not None:
            start.events[key] = change.object
        elif uid not in self._done:
            self._orphans.setdefault(uid, {})[key] = change.object
            while len(self._orphans) > ORPHANS:
                self._orphans.popitem(last=False)

    def _on_pod(self, change: Change) -> None:
        uid = text(change.object, "metadata.uid")
        if uid in self._done:
            self._starts.pop(uid, None)
            if change.kind == "deleted":
                self._done.discard(uid)
            return
        start = self._starts.get(uid)
        if start is None:
            if change.kind == "deleted":
                return
            start = self._starts[uid] = _Start(pod=change.object, events=self._orphans.pop(uid, {}))
        if change.kind == "deleted":
            start.pod = _deleted(change.object if "spec" in change.object else start.pod, self._clock())
        else:
            start.pod = change.object
        if self._is_over(start.pod) and not start.due:
            start.due, start.over_s = True, time.monotonic()
            heapq.heappush(self._due, (time.monotonic() + SETTLE_S, uid))
            self._lock.notify()

    def _is_over(self, pod: Object) -> bool:
        """Whether a start has come to an end. One that is only waiting for something never has."""
        ready = text(condition(pod, "Ready"), "status") == "True"
        gone = bool(text(pod, "metadata.deletionTimestamp"))
        failed = text(pod, "status.phase") == "Failed"
        stuck = (
            waiting_reason(pod).startswith(("CrashLoop", "ImagePull", "ErrImage")) and self._age_s(pod) > FAILED_AFTER_S
        )
        return ready or gone or failed or stuck

    def _age_s(self, pod: Object) -> float:
        try:
            return self._clock() - stamp(text(pod, "metadata.creationTimestamp"))[0]
        except ValueError:
            return 0.0

    # ---- what is over ---------------------------------------------------------------------------------------------

    def _finish_starts(self) -> None:
        while not self.stopping.is_set():
            with self._lock:
                pause_s = self._due[0][0] - time.monotonic() if self._due else None
                if pause_s is None or pause_s > 0:
                    self._lock.wait(pause_s)
                    continue
                _, uid = heapq.heappop(self._due)
                start = self._starts.get(uid)
                if start is not None and not _complete(start):
                    heapq.heappush(self._due, (time.monotonic() + SETTLE_S, uid))
                    continue
            if start is not None:
                self._finish(uid, start)

    def _finish(self, uid: str, start: _Start) -> None:
        ledger = ledger_of(self._bundle(start))
        ledger = replace(ledger, uid=uid)
        try:
            result = self._store.put(ledger)
        except ApiError as error:
            self.metrics.count("coldstart_recorder_ledgers_total", ("failed",))
            say("ledger-not-kept", pod=ledger.pod, reason=str(error))
            with self._lock:
                heapq.heappush(self._due, (time.monotonic() + RETRY_S, uid))
            return
        with self._lock:
            self._done.add(uid)
            self._starts.pop(uid, None)
        self.metrics.count("coldstart_recorder_ledgers_total", (result,))
        self.metrics.observe(ledger)
        self._send(ledger)

    def _bundle(self, start: _Start) -> Bundle:
        pod = start.pod
        with self._lock:
            node = self._nodes.get(text(pod, "spec.nodeName"), {})
            seen_s = self._seen.get(text(pod, "spec.nodeName"))
            events = list(start.events.values())
        absences: list[Absence] = []
        launcher = fetch_launcher(pod, absences)
        return Bundle(
            pod=pod,
            node=node,
            node_claim=self._node_claim(node),
            events=events,
            launcher=launcher,
            seen={"gpus-allocatable": seen_s} if seen_s is not None and not math.isnan(seen_s) else {},
            collected_s=self._clock(),
            absences=(*absences, *_NOT_READ),
        )

    def _node_claim(self, node: Object) -> Object:
        """Karpenter's claim for a node; none on a cluster without Karpenter."""
        if "karpenter.sh/nodepool" not in str(node.get("metadata", "")):
            return {}
        name = text(node, "metadata.name")
        try:
            claims = objects(get(self._api, "/apis/karpenter.sh/v1/nodeclaims"), "items")
        except ApiError:
            return {}
        return next((claim for claim in claims if text(claim, "status.nodeName") == name), NOTHING)

    def _send(self, ledger: Ledger) -> None:
        if self._settings.cloudwatch:
            print_embedded(ledger)
        if self._settings.otlp_endpoint:
            try:
                send_spans(ledger, self._settings.otlp_endpoint)
            except SinkError as error:
                say("spans-not-sent", pod=ledger.pod, reason=str(error))

    # ---- what is exported -----------------------------------------------------------------------------------------

    def _starting(self) -> Mapping[tuple[str, ...], float]:
        counts: dict[tuple[str, ...], float] = {}
        for model, _ in self._under_way():
            counts[model,] = counts.get((model,), 0.0) + 1
        return counts

    def _oldest(self) -> Mapping[tuple[str, ...], float]:
        oldest: dict[tuple[str, ...], float] = {}
        for model, age_s in self._under_way():
            oldest[model,] = min(oldest.get((model,), float("inf")), self._clock() - age_s)
        return oldest

    def _under_way(self) -> list[tuple[str, float]]:
        with self._lock:
            return [(model_of(start.pod), self._age_s(start.pod)) for start in self._starts.values() if not start.due]

    def _watch_restarts(self) -> Mapping[tuple[str, ...], float]:
        found: dict[tuple[str, ...], float] = {}
        for name, watcher in self._watchers.items():
            counts = watcher.counts
            found[name, "ended"] = max(0, counts.watches - 1 - counts.expired - counts.errors)
            found[name, "expired"], found[name, "error"] = counts.expired, counts.errors
        return found

    def _requests(self) -> Mapping[tuple[str, ...], float]:
        asked = getattr(self._api, "requests", {})
        return {(method,): float(count) for method, count in dict(asked).items()}


def _complete(start: _Start) -> bool:
    """Whether the events of a start have come, or are not worth waiting for any longer."""
    pulled = any(text(event, "reason") == "Pulled" for event in start.events.values())
    return pulled or time.monotonic() - start.over_s > LATE_S


_NOT_READ = (
    Absence(what="log", why="the recorder reads no logs: they may hold what users sent"),
    Absence(what="configz", why="the recorder has no right to nodes/proxy"),
)


def _deleted(pod: Object, now_s: float) -> Object:
    """A pod that is gone, with the time at which that was seen when it does not say so itself."""
    if text(pod, "metadata.deletionTimestamp"):
        return pod
    moment = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(now_s))
    metadata = pod.get("metadata")
    return {**pod, "metadata": {**(metadata if isinstance(metadata, dict) else {}), "deletionTimestamp": moment}}


def resident_bytes() -> float:
    """Resident memory of this process; 0 where /proc can't tell."""
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[1])
    except (OSError, ValueError, IndexError):
        return 0.0
    return float(pages * os.sysconf("SC_PAGE_SIZE"))


def say(event: str, **values: object) -> None:
    """One line of JSON on stderr."""
    sys.stderr.write(json.dumps({"coldstart": event, **values}) + "\n")
    sys.stderr.flush()


def main() -> int:
    """The process in the pod."""
    environment = os.environ
    try:
        settings = Settings.of(environment)
        endpoint = environment.get("COLDSTART_API")
        authority = environment.get("COLDSTART_CA_FILE")
        api = (
            InCluster(
                endpoint, Path(environment.get("COLDSTART_TOKEN_FILE", "")), Path(authority) if authority else None
            )
            if endpoint
            else InCluster.from_environment()
        )
    except (ValueError, ApiError) as error:
        say("bad-configuration", reason=str(error))
        return 2
    recorder = Recorder(api, settings)
    for signum in (signal.SIGTERM, signal.SIGINT):
        signal.signal(signum, lambda _signum, _frame: recorder.stopping.set())
    server = Port(settings.port, routes(recorder.metrics.text, recorder.synced.is_set))
    threading.Thread(target=server.serve_forever, name="metrics", daemon=True).start()
    say("recording", namespace=settings.namespace, keep=settings.keep, port=server.server_address[1])
    recorder.run()
    return 0


if __name__ == "__main__":
    sys.exit(main())
