"""What following a Job waits for: always with an end, and with words on what holds it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from lightkube.models.batch_v1 import JobCondition, JobStatus
from lightkube.models.core_v1 import PodCondition, PodStatus
from lightkube.models.meta_v1 import ObjectMeta
from lightkube.resources.batch_v1 import Job
from lightkube.resources.core_v1 import Pod

from scripts import stage_in_cluster
from scripts.failure import Failure
from scripts.waiting import TimedOut

PENDING = PodStatus(
    phase="Pending",
    conditions=[PodCondition(type="PodScheduled", status="False", reason="Unschedulable", message="0/3 nodes fit")],
)
DONE = JobStatus(conditions=[JobCondition(type="Complete", status="True")])


def pod(name: str, status: PodStatus) -> Pod:
    return Pod(metadata=ObjectMeta(name=name), status=status)


class _Cluster:
    """A cluster that stays as it is: a Job and its pods."""

    def __init__(self, *pods: Pod, status: JobStatus | None = None) -> None:
        self.pods, self.status = pods, status
        self.deleted: list[str] = []

    def list(self, *_: Any, **__: Any) -> Iterator[Pod]:
        return iter(self.pods)

    def get(self, *_: Any, **__: Any) -> Job:
        return Job(status=self.status)


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("POLL_S", "GONE_S", "START_S"):
        monkeypatch.setattr(stage_in_cluster, name, 0.01)


def follow(cluster: Any) -> None:
    stage_in_cluster.follow(cluster, "stage-x")


def test_a_pod_that_never_starts_is_a_failure_that_says_why(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(Failure, match=r"no pod has started within .*Unschedulable: 0/3 nodes fit.*kubectl -n"):
        follow(_Cluster(pod("stage-x-1", PENDING)))
    assert capsys.readouterr().err.count("stage-x-1 waits: Unschedulable: 0/3 nodes fit") == 1


def test_a_job_without_pods_is_a_failure_that_says_so() -> None:
    with pytest.raises(Failure, match=r"Job coldstart-staging/stage-x: .*\(nothing says why\)"):
        follow(_Cluster())


def test_following_ends_with_the_job() -> None:
    with pytest.raises(Failure, match="its pod said nothing"):
        follow(_Cluster(pod("stage-x-1", PENDING), status=DONE))


def test_an_old_job_that_does_not_go_is_a_failure_that_says_what_to_look_at() -> None:
    cluster: Any = _Cluster()
    with pytest.raises(TimedOut, match=r"the Job before this one to be deleted: .*stage-x(.|\n)*kubectl -n"):
        stage_in_cluster._wait_gone(cluster, "stage-x")
