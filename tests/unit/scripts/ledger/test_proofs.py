"""Each lever's proof: on, off and unknown, with the line that says so."""

from __future__ import annotations

from typing import Any

import pytest

from scripts.ledger.advice import next_step
from scripts.ledger.bundle import Bundle
from scripts.ledger.merge import ledger_of
from scripts.ledger.record import Expected, Proof

POD: dict[str, Any] = {
    "metadata": {"name": "p", "creationTimestamp": "2026-11-30T12:00:00Z"},
    "spec": {"containers": [{"name": "engine", "image": "vllm", "resources": {"limits": {"nvidia.com/gpu": "2"}}}]},
    "status": {"containerStatuses": [{"name": "engine", "state": {"running": {"startedAt": "2026-11-30T12:00:10Z"}}}]},
}
PULLED = {
    "reason": "Pulled",
    "message": 'Successfully pulled image "x" in 10s (10s including waiting). Image size: 10485760000 bytes.',
    "firstTimestamp": "2026-11-30T12:00:10Z",
    "source": {"component": "kubelet"},
}


def launcher(**more: Any) -> dict[str, Any]:
    segments = [{"phases": ["start"], "detail": "", "begin_s": 0.0, "end_s": 1.0}]
    return {"started_at": "2026-11-30T12:00:10+00:00", "state": "ready", "segments": segments} | more


def at(seconds: int, text: str) -> str:
    return f"2026-11-30T12:00:{seconds:02d}Z {text}\n"


CASES: list[tuple[str, str, dict[str, Any]]] = [
    ("soci", "on", {"configz": {"kubeletconfig": {"imageServiceEndpoint": "unix:///run/soci-snapshotter/soci.sock"}}}),
    ("soci", "on", {"probe": {"soci": {"max_concurrent_downloads_per_image": 20}, "mounts": []}}),
    ("soci", "off", {"configz": {"kubeletconfig": {"containerRuntimeEndpoint": "unix:///run/containerd.sock"}}}),
    ("soci", "unknown", {}),
    (
        "image-disk",
        "on",
        {
            "probe": {
                "meant": "nvme",
                "mounts": [
                    {"path": path, "device": "/dev/md127", "model": "Amazon EC2 NVMe Instance Storage"}
                    for path in ("/var/lib/containerd", "/var/lib/soci-snapshotter")
                ],
            }
        },
    ),
    (
        "image-disk",
        "off",
        {
            "probe": {
                "meant": "nvme",
                "mounts": [
                    {
                        "path": "/var/lib/containerd",
                        "device": "/dev/md127",
                        "model": "Amazon EC2 NVMe Instance Storage",
                    },
                    {"path": "/var/lib/soci-snapshotter", "device": "/dev/xvdb", "model": "Amazon Elastic Block Store"},
                ],
            }
        },
    ),
    ("weights-streamed", "on", {"launcher": launcher(weights={"kind": "stream", "weights_bytes": 100, "read_s": 1.0})}),
    ("weights-streamed", "off", {"launcher": launcher(weights={"kind": "node-cache"})}),
    ("weights-streamed", "off", {"log": at(20, "Loading weights took 5.00 seconds")}),
    ("distributed-streaming", "off", {"log": at(20, "[RunAI Streamer][Distributed] x, fallback to non distributed")}),
    ("distributed-streaming", "on", {"launcher": launcher(weights={"distributed_ranks": 2})}),
    ("distributed-streaming", "unknown", {}),
    ("gateway-endpoint", "on", {"events": [PULLED], "traffic": {"nat_bytes": 10**6, "nat_gateways": 1}}),
    ("gateway-endpoint", "off", {"events": [PULLED], "traffic": {"nat_bytes": 11 * 10**9, "nat_gateways": 1}}),
    ("gateway-endpoint", "unknown", {"events": [PULLED], "traffic": {"nat_bytes": 3 * 10**9, "nat_gateways": 1}}),
    ("gateway-endpoint", "on", {"traffic": {"nat_bytes": 0, "nat_gateways": 0}}),
    ("compile-cache", "on", {"log": at(20, "Directly load AOT compilation from path /x")}),
    ("compile-cache", "off", {"log": at(20, "saved AOT compiled function to /x")}),
    ("compile-cache", "off", {"launcher": launcher(compile_cache={"restore": "off", "hit": None})}),
    ("graph-sizes", "on", {"log": at(20, "Graph capturing finished in 9 secs, took 0.41 GiB")}),
    ("graph-sizes", "off", {"log": at(20, "Initializing a V1 LLM engine (v0.33.0) with config: enforce_eager=True")}),
    ("startup-plan", "on", {"log": at(20, "Applying persisted startup plan")}),
    ("startup-plan", "off", {"log": at(20, "Startup plan not applied: free memory is below the recorded baseline")}),
    ("warm-up", "on", {"launcher": launcher(warmup={"requests": 9, "first_s": 1.0, "steady_s": 0.1, "steady": True})}),
    ("warm-up", "off", {"launcher": launcher(warmup={"requests": 9, "steady": False})}),
    ("warm-up", "off", {"launcher": launcher(warmup={"requests": 0})}),
    ("identity", "off", {}),
    ("soci", "off", {"configz": {"kubeletconfig": {}}, "probe": {"soci": {"max_concurrent_downloads_per_image": 20}}}),
    ("weights-streamed", "unknown", {"launcher": launcher(state="starting", weights={"kind": "stream"})}),
]


@pytest.mark.parametrize(("lever", "state", "more"), CASES)
def test_proof(lever: str, state: str, more: dict[str, Any]) -> None:
    (proof,) = [p for p in ledger_of(Bundle(pod=POD, **more)).proofs if p.lever == lever]
    assert proof.state == state
    assert proof.evidence
    assert (proof.source != "") == (proof.state != "unknown" or bool(proof.value))


IDENTITIES = [
    {"name": "AWS_CONTAINER_CREDENTIALS_FULL_URI", "value": "http://169.254.170.23/v1/credentials"},
    {"name": "AWS_ROLE_ARN", "value": "arn:aws:iam::111122223333:role/r"},
    {"name": "AWS_ACCESS_KEY_ID", "value": "x"},
    {"name": "OTHER", "value": "x"},
]
STATUSES: dict[str, dict[str, Any]] = {
    "no status": {},
    "waiting": {"state": {"waiting": {"reason": "ImagePullBackOff"}}},
}


@pytest.mark.parametrize("variable", IDENTITIES, ids=lambda entry: entry["name"])
@pytest.mark.parametrize("status", STATUSES.values(), ids=STATUSES)
def test_a_pod_that_has_not_run_proves_nothing_by_its_object(variable: dict[str, str], status: dict[str, Any]) -> None:
    container = {**POD["spec"]["containers"][0], "env": [variable]}
    statuses = {"containerStatuses": [{"name": "engine", **status}]} if status else {}
    pod = {"metadata": POD["metadata"], "spec": {"containers": [container]}, "status": statuses}
    traffic = {"nat_bytes": 0, "nat_gateways": 0}
    proofs = ledger_of(Bundle(pod=pod, traffic=traffic)).proofs
    assert {proof.lever: proof.state for proof in proofs if proof.state != "unknown"} == {}
    assert all(proof.evidence for proof in proofs)
    assert "has not run" in next(proof.evidence for proof in proofs if proof.lever == "identity")
    ran = {"metadata": POD["metadata"], "spec": pod["spec"], "status": POD["status"]}
    assert "unknown" not in [p.state for p in ledger_of(Bundle(pod=ran)).proofs if p.lever == "identity"]


def test_the_pull_is_compared_with_the_simulated_one() -> None:
    def proof(high_s: float) -> Proof:
        budget = {"pull": Expected(low_s=1, expected_s=5, high_s=high_s)}
        ledger = ledger_of(Bundle(pod=POD, events=[PULLED]), budget)
        return next(p for p in ledger.proofs if p.lever == "pull-rate")

    assert (proof(12).state, proof(8).state) == ("on", "off")
    assert proof(12).evidence == "1000 MiB/s achieved, 2000 MiB/s simulated"


def test_the_lever_that_was_off_is_advised_before_those_in_doubt() -> None:
    budget = {"pull": Expected(low_s=1, expected_s=2, high_s=4)}
    nodes = {"configz": {"kubeletconfig": {"imageServiceEndpoint": "unix:///soci.sock"}}}
    doubt = next_step(ledger_of(Bundle(pod=POD, events=[PULLED], **nodes), budget))
    assert doubt.startswith("pull is furthest over its budget, by 6.0 s (high 4.0 s). pull-rate was off.")
    off = next_step(ledger_of(Bundle(pod=POD, events=[PULLED], configz={"kubeletconfig": {}}), budget))
    assert "soci was off. Turn SOCI parallel pull on" in off
