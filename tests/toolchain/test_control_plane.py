"""The control plane of the tests: several side by side, nothing left behind, and admission as on a real cluster."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.toolchain import control_plane
from tests.toolchain.control_plane import ControlPlane
from tests.toolchain.engines import ROOT
from tests.toolchain.kube_api import ApiError
from tests.toolchain.waiting import wait_until

SERVERS = {"etcd", "apiserver", "controllers", "scheduler", "kwok"}
POD = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "gpu", "namespace": "default"},
    "spec": {
        "containers": [{"name": "c", "image": "i", "resources": {"limits": {"nvidia.com/gpu": "1"}}}],
        "tolerations": [{"key": "nvidia.com/gpu", "operator": "Exists"}],
    },
}


@pytest.fixture(scope="module")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    with ControlPlane(tmp_path_factory.mktemp("plane")) as running:
        yield running


def processes_in(folder: Path) -> set[str]:
    """Commands of the processes whose working folder is this one."""
    found: set[str] = set()
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if (process / "cwd").readlink() == folder:
                found.add((process / "comm").read_text().strip())
        except OSError:  # it ended meanwhile, or is somebody else's
            continue
    return found


def test_a_pod_runs_on_a_node_that_offers_what_it_needs(plane: ControlPlane) -> None:
    plane.api.apply(POD)
    plane.join_node(
        "gpu-1",
        labels={"node.kubernetes.io/instance-type": "g6e.2xlarge"},
        taints=[{"key": "nvidia.com/gpu", "value": "true", "effect": "NoSchedule"}],
        allocatable={"nvidia.com/gpu": "1"},
    )
    pod = wait_until(
        lambda: (
            (found := plane.api.get("/api/v1/namespaces/default/pods/gpu"))["status"]["phase"] == "Running" and found
        ),
        what="the pod runs",
    )
    assert pod["spec"]["nodeName"] == "gpu-1"


def test_a_second_one_beside_it_is_another_cluster(plane: ControlPlane, tmp_path: Path) -> None:
    with ControlPlane(tmp_path / "other") as other:
        assert other.api.endpoint != plane.api.endpoint
        other.join_node("only-there")
        assert plane.api.get("/api/v1/nodes/only-there") is None
        assert len(processes_in(tmp_path / "other")) == len(SERVERS)
    assert processes_in(tmp_path / "other") == set()
    assert plane.api.ready()


def test_a_namespace_enforces_the_standard_in_its_labels(plane: ControlPlane) -> None:
    labels = {"pod-security.kubernetes.io/enforce": "restricted"}
    plane.api.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "strict", "labels": labels}})
    pod = {**POD, "metadata": {"name": "gpu", "namespace": "strict"}}
    with pytest.raises(ApiError, match='violates PodSecurity "restricted:latest"') as refused:
        plane.api.apply(pod, dry_run=True)
    assert refused.value.code == 403


def test_an_unknown_field_is_refused(plane: ControlPlane) -> None:
    config_map = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c"}, "dada": {}}
    with pytest.raises(ApiError, match=r"\.dada: field not declared in schema"):
        plane.api.apply(config_map, dry_run=True)


def test_what_is_not_there_is_none(plane: ControlPlane) -> None:
    assert plane.api.get("/api/v1/nodes/nobody") is None
    assert plane.api.delete("/api/v1/nodes/nobody") is False


def test_a_start_that_fails_leaves_nothing_running(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(control_plane, "SERVICE_RANGE", "nonsense")
    with pytest.raises(RuntimeError, match="apiserver ended with exit code 1"), ControlPlane(tmp_path / "plane"):
        pass
    assert processes_in(tmp_path / "plane") == set()


def test_nothing_outlives_tests_that_are_killed(tmp_path: Path) -> None:
    program = (
        "import sys, time\nfrom pathlib import Path\nfrom tests.toolchain.control_plane import ControlPlane\n"
        "with ControlPlane(Path(sys.argv[1])):\n    print('up', flush=True)\n    time.sleep(600)\n"
    )
    folder = tmp_path / "plane"
    with subprocess.Popen(
        [sys.executable, "-c", program, str(folder)], cwd=ROOT, stdout=subprocess.PIPE, text=True
    ) as tests:
        assert tests.stdout is not None
        assert tests.stdout.readline() == "up\n"
        assert processes_in(folder)
        tests.send_signal(signal.SIGKILL)
        tests.wait()
    wait_until(lambda: not processes_in(folder), what=lambda: f"{processes_in(folder)} ended")
