"""The machine under the pod: node, node claim and EC2 instance; whether it was there before the pod asked."""

from __future__ import annotations

from collections.abc import Iterator

from scripts.ledger.bundle import GPU_RESOURCES, Bundle
from scripts.ledger.facts import Clock, Fact
from scripts.ledger.pod_facts import stated
from scripts.ledger.raw import Object, count, label, mapping, number, objects, text
from scripts.ledger.times import plausible


def node_facts(bundle: Bundle) -> list[Fact]:
    """Moments of the machine: launched, registered, node-ready; each from whoever states it."""
    return [*_node(bundle.node), *_claim(bundle.node_claim), *_instance(bundle.instance), *_seen(bundle.seen)]


def _node(node: Object) -> Iterator[Fact]:
    yield from stated(
        node,
        "metadata.creationTimestamp",
        name="registered",
        clock=Clock.API,
        source="node",
        evidence="node creationTimestamp",
    )
    for entry in objects(node, "status.conditions"):
        if text(entry, "type") == "Ready" and text(entry, "status") == "True":
            yield from stated(
                entry,
                "lastTransitionTime",
                name="node-ready",
                clock=Clock.NODE,
                source="node",
                evidence="node condition Ready True since",
            )


_CLAIM_CONDITIONS = {"Launched": "launched", "Registered": "registered", "Initialized": "node-ready"}
"""Condition of a NodeClaim → moment. Initialized waits for the GPU resource (Karpenter, NodeClaim status)."""


def _claim(claim: Object) -> Iterator[Fact]:
    for entry in objects(claim, "status.conditions"):
        name = _CLAIM_CONDITIONS.get(text(entry, "type"))
        if name and text(entry, "status") == "True":
            yield from stated(
                entry,
                "lastTransitionTime",
                name=name,
                clock=Clock.API,
                source="node-claim",
                evidence=f"NodeClaim condition {text(entry, 'type')} True since",
            )


def _instance(instance: Object) -> Iterator[Fact]:
    yield from stated(instance, "LaunchTime", name="launched", clock=Clock.API, source="ec2", evidence="EC2 LaunchTime")


def _seen(seen: Object) -> Iterator[Fact]:
    at_s = number(seen, "gpus-allocatable")
    if at_s is not None and plausible(at_s):
        yield Fact(
            name="node-ready",
            at_s=at_s,
            clock=Clock.API,
            resolution_s=SEEN_RESOLUTION_S,
            source="watch",
            evidence="the recorder saw the node Ready with its GPUs allocatable",
        )


SEEN_RESOLUTION_S = 0.5
"""How late a watch event may reach the recorder."""


def gpus_allocatable(node: Object) -> int:
    """GPUs that the node offers to pods now."""
    offered = mapping(node, "status.allocatable")
    return sum(count(offered.get(name)) for name in GPU_RESOURCES)


def is_ready(node: Object) -> bool:
    """Whether the node says that it is Ready."""
    return any(
        text(entry, "type") == "Ready" and text(entry, "status") == "True"
        for entry in objects(node, "status.conditions")
    )


def instance_type(node: Object) -> str:
    """EC2 type of the node; empty when it does not say."""
    return label(node, "node.kubernetes.io/instance-type")


def instance_id(node: Object) -> str:
    """EC2 instance id out of the provider id (`aws:///us-west-2a/i-0123`); empty when it has none."""
    last = text(node, "spec.providerID").rpartition("/")[2]
    return last if last.startswith("i-") else ""
