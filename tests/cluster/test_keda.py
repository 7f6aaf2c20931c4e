"""The rendered ScaledObject in the hands of KEDA's real operator: the first replica, and back only when it is quiet.

Only its clock is made faster (how often it looks, and how long quiet must last); everything else is as rendered. From
one replica upward it is Kubernetes's own autoscaler that acts, on metrics that KEDA serves: not part of this.
"""

from __future__ import annotations

import copy
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from moto.ec2.models.instance_types import INSTANCE_TYPES

from infra.paused import PAUSED_REPLICAS
from infra.specs import ModelSpecs
from serving.manifests import objects
from serving.placement import GPU_TAINT, MODEL_LABEL
from tests.cluster.keda_operator import MetricsPage, keda_operator
from tests.cluster.test_manifests import deployment_path, remove_namespace, specs_of
from tests.standin.simulated_nodes import allocatable
from tests.toolchain.control_plane import ControlPlane
from tests.toolchain.engines import Server
from tests.toolchain.waiting import wait_until

MODEL = "dev-llama-3-1-8b"
LOOKS_EVERY_S = 1
QUIET_S = 4
TRIGGERS_ASKED = 2
"""The metrics page is asked once for each of the two metrics-api triggers, at every look."""
NOBODY_THERE = "no endpoints URLs were given"
"""What the operator writes at every look of such a trigger while no replica is Ready."""


@pytest.fixture(scope="module")
def page() -> Iterator[MetricsPage]:
    with MetricsPage.served() as served:
        yield served


@pytest.fixture(scope="module")
def operator(plane: ControlPlane, page: MetricsPage, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with keda_operator(plane, tmp_path_factory.mktemp("keda"), page.address) as server:
        yield server


class Scaled:
    """A model that sleeps unless a schedule or its queue wakes it."""

    def __init__(self, plane: ControlPlane, specs: ModelSpecs, operator: Server) -> None:
        self._plane, self.specs, self._operator = plane, specs, operator

    def replicas(self) -> int:
        """What is asked of Kubernetes."""
        return self._plane.api.get(deployment_path(self.specs))["spec"].get("replicas", 0)

    def ready(self) -> int:
        """How many of them serve."""
        return self._plane.api.get(deployment_path(self.specs))["status"].get("readyReplicas", 0)

    def becomes(self, count: int) -> None:
        """Waits for that many replicas."""
        wait_until(lambda: self.replicas() == count, what=lambda: f"{count} replicas: {self.replicas()}")

    def stays(self, count: int, seconds: float) -> None:
        """No other number while the operator looks for that long, and no replica answers it."""

        def failed_looks() -> int:
            return self._operator.log.read_text(errors="replace").count(NOBODY_THERE)

        wanted = failed_looks() + looks(seconds)
        wait_until(lambda: failed_looks() >= wanted, what=lambda: f"{wanted} looks:\n{self._operator.tail()}")
        assert self.replicas() == count

    def wake(self) -> None:
        """A person asks for one replica, as the schedule would."""
        self._plane.api.merge(deployment_path(self.specs), {"spec": {"replicas": 1}})

    def annotated(self, key: str, value: str | None) -> None:
        """An annotation of the scaled object, or none any more."""
        name, namespace = self.specs.serving.name, self.specs.serving.namespace
        path = f"/apis/keda.sh/v1alpha1/namespaces/{namespace}/scaledobjects/{name}"
        self._plane.api.merge(path, {"metadata": {"annotations": {key: value}}})

    def address(self) -> str:
        """Of the one replica."""
        (pod,) = self._plane.api.items(f"/api/v1/namespaces/{self.specs.serving.namespace}/pods")
        return pod["status"]["podIP"]

    def join_node(self) -> None:
        """A node for one replica."""
        self._plane.join_node(
            "gpu",
            labels={MODEL_LABEL: self.specs.serving.name},
            taints=[{"key": GPU_TAINT.key, "value": GPU_TAINT.value, "effect": GPU_TAINT.effect.pod}],
            allocatable=allocatable(INSTANCE_TYPES[self.specs.node.instance.name]),
        )


def window(begin: datetime) -> dict[str, Any]:
    """Two hours with one replica, as a stack file says it."""
    start, end = (f"{at.minute} {at.hour} {at.day} {at.month} *" for at in (begin, begin + timedelta(hours=2)))
    return {"start": start, "end": end, "timezone": "UTC", "replicas": 1}


HALF_A_YEAR = timedelta(days=180)
AN_HOUR = timedelta(hours=1)
SLEEPS = {"scaling.min_replicas": 0, "scaling.schedule": [window(datetime.now(UTC) + HALF_A_YEAR)]}
AWAKE = {"scaling.min_replicas": 0, "scaling.schedule": [window(datetime.now(UTC) - AN_HOUR)]}


@pytest.fixture
def scaled(
    request: pytest.FixtureRequest, plane: ControlPlane, page: MetricsPage, stacks: Path, operator: Server
) -> Iterator[Scaled]:
    """The applied objects; the model sleeps until its schedule begins, unless the parameter says otherwise."""
    specs = specs_of(MODEL, stacks, getattr(request, "param", SLEEPS))
    page.goes_away()
    for manifest in objects(specs.serving):
        made = copy.deepcopy(dict(manifest))
        if made["kind"] == "ScaledObject":
            made["spec"] |= {"pollingInterval": LOOKS_EVERY_S, "cooldownPeriod": QUIET_S}
        plane.api.apply(made)
    yield Scaled(plane, specs, operator)
    remove_namespace(plane.api, specs.serving.namespace)
    for node in plane.api.items("/api/v1/nodes"):
        plane.api.delete(f"/api/v1/nodes/{node['metadata']['name']}")


def looks(seconds: float) -> int:
    """Questions that the operator asks in that time."""
    return int(seconds / LOOKS_EVERY_S) * TRIGGERS_ASKED


def test_a_model_that_is_quiet_goes_to_sleep_and_stays_there(scaled: Scaled, page: MetricsPage) -> None:
    scaled.join_node()
    page.shows(scaled.specs.serving.name, waiting=1, running=0)
    scaled.wake()
    wait_until(lambda: scaled.ready() == 1, what="the replica is Ready")
    address = scaled.address()
    page.wait_for_questions(looks(2 * QUIET_S))
    assert scaled.replicas() == 1
    page.shows(scaled.specs.serving.name, waiting=0, running=0)
    quiet_since = time.monotonic()
    scaled.becomes(0)
    assert time.monotonic() - quiet_since >= QUIET_S - LOOKS_EVERY_S - 1  # the operator notes the time in whole seconds
    assert page.asked == {f"http://{address}:8000/metrics"}


def test_a_pod_that_loads_is_never_scaled_away(scaled: Scaled) -> None:
    """No node has come yet: the pod isn't Ready, so nothing answers behind the Service."""
    scaled.wake()
    scaled.stays(1, 3 * QUIET_S)
    assert scaled.ready() == 0


def test_a_pod_that_still_answers_is_not_scaled_away(scaled: Scaled, page: MetricsPage) -> None:
    """Nobody waits, but somebody is served."""
    scaled.join_node()
    page.shows(scaled.specs.serving.name, waiting=0, running=1)
    scaled.wake()
    wait_until(lambda: scaled.ready() == 1, what="the replica is Ready")
    page.wait_for_questions(looks(3 * QUIET_S))
    assert scaled.replicas() == 1
    page.shows(scaled.specs.serving.name, waiting=0, running=0)
    scaled.becomes(0)


@pytest.mark.parametrize("scaled", [AWAKE], indirect=True)
def test_the_schedule_wakes_a_model_that_has_no_queue_to_see(scaled: Scaled) -> None:
    scaled.becomes(1)
    scaled.stays(1, 2 * QUIET_S)


@pytest.mark.parametrize("scaled", [{"scaling.min_replicas": 1}], indirect=True)
def test_the_first_replica_comes_although_nothing_answers_yet(scaled: Scaled) -> None:
    """And it comes again after a pause, which is KEDA's own hold at zero."""
    scaled.becomes(1)
    scaled.annotated(PAUSED_REPLICAS, "0")
    scaled.becomes(0)
    scaled.annotated(PAUSED_REPLICAS, None)
    scaled.becomes(1)
