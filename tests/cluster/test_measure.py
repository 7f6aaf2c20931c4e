"""`coldstart measure` against a real control plane: starts that happen, that are made, and what can't be read."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner, Result

from scripts.cli import cli
from scripts.failure import Failure
from scripts.ledger.collect import Collector
from scripts.ledger.comparison import Side, compare, interleaved
from scripts.ledger.kubeconfig import Kubeconfig
from scripts.ledger.merge import ledger_of
from scripts.ledger.record import Ledger
from scripts.ledger.sides import Sides
from scripts.ledger.trigger import Trigger
from tests.cluster.starts_plane import MODEL, NAMESPACE, StartsPlane, launcher_document
from tests.toolchain.waiting import wait_until

IN_POD = {"start": 8.0, "weights": 12.0, "engine": 16.0, "warmup": 4.0}


@pytest.fixture(scope="module")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StartsPlane]:
    with StartsPlane(tmp_path_factory.mktemp("plane")) as plane:
        plane.gpu_node("gpu-warm", 4)
        yield plane


@pytest.fixture(autouse=True)
def empty(plane: StartsPlane) -> Iterator[None]:
    plane.api.apply(plane.deployment(0))
    yield
    plane.kubelet.texts.clear()
    plane.api.delete(f"/apis/apps/v1/namespaces/{NAMESPACE}/deployments/{MODEL}")
    wait_until(lambda: not plane.pods(), what="no pod is left")


@pytest.fixture
def measure(plane: StartsPlane, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setenv("KUBECONFIG", str(plane.kubeconfig))

    def run(*arguments: str) -> Result:
        return CliRunner().invoke(cli, ["measure", *arguments])

    return run


def started(plane: StartsPlane, replicas: int = 1) -> list[dict[str, Any]]:
    plane.api.apply(plane.deployment(replicas))
    return wait_until(
        lambda: (pods := plane.ready_pods()) and len(pods) == replicas and pods, what=f"{replicas} pod(s) are Ready"
    )


def ledger_line(plane: StartsPlane, pod: dict[str, Any]) -> None:
    """The launcher's last line in the pod's log, as the kubelet serves it."""
    # The API cuts the container's start to the second; the launcher knows it better.
    at = pod["status"]["containerStatuses"][0]["state"]["running"]["startedAt"].replace("Z", ".900000+00:00")
    document = launcher_document(at)
    stamp = datetime.now(UTC).isoformat().replace("+00:00", "Z")
    line = json.dumps({"coldstart": "ready", "ledger": document})
    plane.kubelet.texts[f"/containerLogs/{NAMESPACE}/{pod['metadata']['name']}/engine"] = f"{stamp} {line}\n"


def test_a_start_is_measured_from_the_api_and_the_log(plane: StartsPlane, measure: Any, tmp_path: Path) -> None:
    (pod,) = started(plane)
    ledger_line(plane, pod)
    name = pod["metadata"]["name"]
    result = measure("--pod", f"{NAMESPACE}/{name}", "--json", "--save", str(tmp_path / "saved"))
    assert result.exit_code == 0, result.output
    (ledger,) = json.loads(result.stdout)["ledgers"]
    seconds = {phase: found["seconds"] for phase, found in ledger["phases"].items()}
    assert {phase: seconds[phase] for phase in IN_POD} == IN_POD
    assert seconds["node"] == 0.0
    assert seconds["pull"] == pytest.approx(0.3)
    assert ledger["unaccounted_s"] + sum(seconds.values()) == pytest.approx(ledger["wall_clock_s"], abs=0.01)
    assert ledger["cold"] == "image"
    again = measure("--from", str(tmp_path / "saved"), "--json")
    assert json.loads(again.stdout)["ledgers"] == [ledger]


def test_the_newest_starts_come_first(plane: StartsPlane, measure: Any, api: Kubeconfig) -> None:
    started(plane, 3)
    result = measure("--pod", f"{NAMESPACE}/nothing")
    assert result.exit_code == 1
    assert "not there" in str(result.exception)
    pods = Collector(api).pods(NAMESPACE, f"coldstart/model={MODEL}")
    stamps = [pod["metadata"]["creationTimestamp"] for pod in pods]
    assert len(pods) == 3
    assert stamps == sorted(stamps, reverse=True)


def test_a_pod_without_a_place_is_said_to_have_none(plane: StartsPlane, measure: Any) -> None:
    deployment = plane.deployment(1, gpus=99)
    plane.api.apply(deployment)
    pod = wait_until(
        lambda: next(
            (
                p
                for p in plane.pods()
                if any("Insufficient" in c.get("message", "") for c in p["status"].get("conditions", []))
            ),
            None,
        ),
        what="the scheduler has refused the pod",
    )
    result = measure("--pod", f"{NAMESPACE}/{pod['metadata']['name']}", "--json")
    assert result.exit_code == 1
    (ledger,) = json.loads(result.stdout)["ledgers"]
    assert ledger["state"] == "unscheduled"
    assert "Insufficient nvidia.com/gpu" in ledger["phases"]["node"]["missing"]
    assert all(phase["seconds"] is None for phase in ledger["phases"].values())


def test_forbidden_events_and_nodes_leave_the_rest(
    plane: StartsPlane, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (pod,) = started(plane)
    ledger_line(plane, pod)
    rules = [{"apiGroups": [""], "resources": ["pods", "pods/log"], "verbs": ["get", "list"]}]
    monkeypatch.setenv("KUBECONFIG", str(restricted(plane, tmp_path, "looker", rules)))
    result = CliRunner().invoke(cli, ["measure", "--pod", f"{NAMESPACE}/{pod['metadata']['name']}", "--json"])
    assert result.exit_code == 0, result.output
    (ledger,) = json.loads(result.stdout)["ledgers"]
    assert {phase: ledger["phases"][phase]["seconds"] for phase in IN_POD} == IN_POD
    assert "forbidden" in ledger["phases"]["pull"]["missing"]
    assert "forbidden" in ledger["phases"]["node"]["missing"]
    assert {"events", "node"} <= {absence["what"] for absence in ledger["absences"]}


def restricted(plane: StartsPlane, folder: Path, name: str, rules: list[dict[str, Any]]) -> Path:
    """A kubeconfig of a service account with these rights in the namespace."""
    meta = {"name": name, "namespace": NAMESPACE}
    group = "rbac.authorization.k8s.io"
    plane.api.apply({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": meta})
    plane.api.apply({"apiVersion": f"{group}/v1", "kind": "Role", "metadata": meta, "rules": rules})
    plane.api.apply(
        {
            "apiVersion": f"{group}/v1",
            "kind": "RoleBinding",
            "metadata": meta,
            "roleRef": {"apiGroup": group, "kind": "Role", "name": name},
            "subjects": [{"kind": "ServiceAccount", "name": name, "namespace": NAMESPACE}],
        }
    )
    token = plane.api.request(
        "POST",
        f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts/{name}/token",
        body={"spec": {"expirationSeconds": 3600}},
    )["status"]["token"]
    config = yaml.safe_load(plane.kubeconfig.read_text())
    config["users"][0]["user"] = {"token": token}
    path = folder / "kubeconfig"
    path.write_text(yaml.safe_dump(config))
    return path


@pytest.fixture
def api(plane: StartsPlane) -> Iterator[Kubeconfig]:
    with Kubeconfig.of(None, plane.kubeconfig) as api:
        yield api


def wait(condition: Any, patience_s: float) -> bool:
    try:
        wait_until(condition, what="", patience_s=patience_s)
    except TimeoutError:
        return False
    return True


def trigger(api: Kubeconfig, said: list[str]) -> Trigger:
    return Trigger(
        api=api,
        namespace=NAMESPACE,
        deployment=MODEL,
        model=MODEL,
        wait=wait,
        say=said.append,
    )


def replicas(plane: StartsPlane) -> int:
    deployment = plane.api.get(f"/apis/apps/v1/namespaces/{NAMESPACE}/deployments/{MODEL}")
    assert deployment is not None
    return deployment["spec"]["replicas"]


def test_a_made_start_restores_the_size_and_removes_its_own_pod(plane: StartsPlane, api: Kubeconfig) -> None:
    (before,) = started(plane)
    said: list[str] = []
    with trigger(api, said).start(None, 30.0) as pod:
        assert replicas(plane) == 2
        assert pod["metadata"]["uid"] != before["metadata"]["uid"]
        assert any(c["type"] == "Ready" and c["status"] == "True" for c in pod["status"]["conditions"])
    assert replicas(plane) == 1
    wait_until(lambda: len(plane.pods()) == 1, what="one pod is left")
    assert plane.pods()[0]["metadata"]["uid"] == before["metadata"]["uid"]
    assert said[-1] == "restoring 1 replica"


def test_a_start_on_a_cold_node_waits_for_a_new_one(plane: StartsPlane, api: Kubeconfig) -> None:
    said: list[str] = []
    joined = threading.Thread(target=lambda: (wait_until(plane.pods, what="the pod"), plane.gpu_node("gpu-fresh")))
    joined.start()
    with trigger(api, said).start("node", 60.0) as pod:
        assert pod["spec"]["nodeName"] == "gpu-fresh"
        assert plane.api.get("/api/v1/nodes/gpu-warm")["spec"]["unschedulable"] is True  # type: ignore[index]
    joined.join()
    assert "unschedulable" not in plane.api.get("/api/v1/nodes/gpu-warm")["spec"]  # type: ignore[index]
    assert replicas(plane) == 0
    plane.api.delete("/api/v1/nodes/gpu-fresh")


def test_no_node_is_as_warm_as_asked(plane: StartsPlane, api: Kubeconfig) -> None:
    with (
        pytest.raises(Failure, match="no Ready node of llama has a free GPU and the image"),
        trigger(api, []).start("pod", 5.0),
    ):
        pass
    assert replicas(plane) == 0


def test_an_interrupted_start_restores_the_size(plane: StartsPlane, api: Kubeconfig) -> None:
    with pytest.raises(KeyboardInterrupt), trigger(api, []).start(None, 30.0):
        raise KeyboardInterrupt
    assert replicas(plane) == 0


def test_both_sides_of_a_lever_are_started_measured_and_gone_again(plane: StartsPlane, api: Kubeconfig) -> None:
    config = {"format": 1, "compile_cache": {"uri": "s3://b/c/"}, "warmup": {}}
    name = {"name": "llama-launcher", "namespace": NAMESPACE}
    config_map = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": name,
        "data": {"launcher.json": json.dumps(config)},
    }
    plane.api.apply(config_map)
    deployment = plane.deployment(0)
    deployment["spec"]["template"]["spec"]["volumes"] = [{"name": "launcher", "configMap": {"name": "llama-launcher"}}]
    plane.api.apply(deployment)
    told: list[Any] = []
    collector = Collector(api)
    sides = Sides(
        api=api,
        namespace=NAMESPACE,
        deployment=MODEL,
        lever="compile-cache",
        patience_s=60.0,
        wait=wait,
        say=told.append,
    )

    def run(side: Side) -> Ledger:
        def start(pod: dict[str, Any]) -> Any:
            mounted = pod["spec"]["volumes"][0]["configMap"]["name"]
            found = plane.api.get(f"/api/v1/namespaces/{NAMESPACE}/configmaps/{mounted}")
            assert found is not None
            assert (json.loads(found["data"]["launcher.json"])["compile_cache"] is None) == (side == "off")
            return collector.start(pod)

        return ledger_of(sides.run(side, start))

    difference = compare(interleaved(run, 2))["pull"]
    assert difference.saves_s == pytest.approx(0.0, abs=0.01)
    assert not difference.beyond_noise
    assert len(told) == 4
    left = [found["metadata"]["name"] for found in plane.api.items(f"/apis/apps/v1/namespaces/{NAMESPACE}/deployments")]
    assert left == [MODEL]


def test_a_watched_start_is_measured_when_it_is_ready(plane: StartsPlane, tmp_path: Path) -> None:
    with watching(plane, tmp_path, "--last", "1", "--json") as watch:
        hold(plane, held=True)
        pod = wait_until(plane.pods, what="the pod")[0]
        hold_pod(plane, pod, held=False)
        out, _ = watch.communicate(timeout=60)
    (ledger,) = json.loads(out)["ledgers"]
    assert ledger["pod"] == pod["metadata"]["name"]
    assert ledger["state"] == "ready"


def test_a_pod_deleted_while_it_is_watched_is_measured_as_far_as_it_came(plane: StartsPlane, tmp_path: Path) -> None:
    with watching(plane, tmp_path, "--last", "1", "--json") as watch:
        hold(plane, held=True)
        pod = wait_until(
            lambda: next((p for p in plane.pods() if p["status"].get("phase") == "Running"), None),
            what="the container runs",
        )
        plane.api.apply(plane.deployment(0))
        out, _ = watch.communicate(timeout=60)
    (ledger,) = json.loads(out)["ledgers"]
    assert ledger["pod"] == pod["metadata"]["name"]
    assert ledger["state"] == "deleted"
    assert ledger["phases"]["pull"]["seconds"] == pytest.approx(0.3)
    assert ledger["phases"]["warmup"]["seconds"] is None


@contextmanager
def watching(plane: StartsPlane, folder: Path, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    """`coldstart measure --watch` of the model's stack, once it watches."""
    stack = folder / "watch.py"
    stack.write_text(
        "import sys; from scripts.ledger import target; from scripts import measure, cli\n"
        f"mine = target.Target(namespace='{NAMESPACE}', model='{MODEL}', pod='', stack=None, plan=None)\n"
        "measure.target_of = lambda *a, **k: mine\n"
        "sys.exit(cli.run(sys.argv[1:]))\n"
    )
    environment = {**os.environ, "KUBECONFIG": str(plane.kubeconfig), "PYTHONPATH": str(Path(__file__).parents[2])}
    command = [sys.executable, str(stack), "measure", "--watch", *arguments]
    process = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        assert process.stderr is not None
        assert process.stderr.readline().startswith("watching")
        yield process
    finally:
        process.kill()
        process.communicate()


def hold(plane: StartsPlane, *, held: bool) -> None:
    """One replica that does not become Ready while it is held."""
    deployment = plane.deployment(1)
    deployment["spec"]["template"]["metadata"]["annotations"] = {"test/never-ready": "yes"} if held else {}
    plane.api.apply(deployment)


def hold_pod(plane: StartsPlane, pod: dict[str, Any], *, held: bool) -> None:
    plane.api.request(
        "PATCH",
        f"/api/v1/namespaces/{NAMESPACE}/pods/{pod['metadata']['name']}",
        body={"metadata": {"annotations": {"test/never-ready": "yes" if held else None}}},
        headers={"Content-Type": "application/merge-patch+json"},
    )
