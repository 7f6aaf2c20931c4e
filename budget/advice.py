"""What a plan says besides its numbers: what was assumed, what costs money for nothing, and when a lever is no cure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from budget.coefficients import Coefficients
from budget.cost import Terms
from budget.counted import counted
from budget.disk import volume_mb_s
from budget.findings import Finding
from budget.image import pull_phase
from budget.levers import slow_for_soci
from budget.phases import Budget
from budget.price import prices
from budget.scenario import PullCase, Scenario
from budget.weights import weights_phase


def advice(scenario: Scenario, budget: Budget, coefficients: Coefficients, terms: Terms) -> list[Finding]:
    """Everything worth saying, most urgent first."""
    found = [
        *_pull(scenario, coefficients),
        *_disk(scenario),
        *_weights(scenario, coefficients),
        *_engine(scenario),
        *_network(scenario),
        *_money(scenario, terms),
        *_assumptions(scenario),
    ]
    order = {"error": 0, "warning": 1, "info": 2}
    del budget
    return sorted(found, key=lambda finding: order[finding.level])


def _pull(scenario: Scenario, coefficients: Coefficients) -> Iterator[Finding]:
    if scenario.image.cached:
        return
    pull = scenario.pull
    if pull.snapshotter == "soci" and slow_for_soci(scenario):
        now = pull_phase(scenario, coefficients).expected_s
        plain = replace(scenario, pull=_default_containerd(scenario))
        without = pull_phase(plain, coefficients).expected_s
        yield Finding(
            code="soci-slow-disk",
            level="warning",
            message=f"on this disk SOCI gains {without - now:.0f} s over default containerd: {now:.0f} s against"
            f" {without:.0f} s",
            fix="Give images NVMe, or gp3 of at least 600 MiB/s on an instance that can use it.",
        )
    if pull.snapshotter == "soci" and (pull.unpacks == 1 or pull.chunk_bytes is None):
        yield Finding(
            code="soci-untuned",
            level="warning",
            message=f"SOCI with {counted(pull.unpacks, 'unpack')} and"
            f" {'whole-layer requests' if pull.chunk_bytes is None else 'chunks'}"
            " is Bottlerocket's default, not its tuning: almost no gain",
            fix="Set 20 downloads, one unpack per two vCPUs, 16 MB chunks, discard.",
        )
    if pull.snapshotter == "overlayfs" and pull.unpacks > 1:
        yield Finding(
            code="containerd-parallel",
            level="info",
            message="containerd's own parallel unpack needs 2.2 and its transfer service; snapshot annotations,"
            " discarded"
            " layers, mirrors or auth in the CRI section switch it off with no more than a log line",
            fix="Check the node's containerd log, or use SOCI.",
        )


def _default_containerd(scenario: Scenario) -> PullCase:
    return PullCase(
        snapshotter="overlayfs",
        downloads=3,
        unpacks=1,
        chunk_bytes=None,
        decompressor=scenario.pull.decompressor,
        discard=False,
    )


def _disk(scenario: Scenario) -> Iterator[Finding]:
    disk, instance = scenario.disk, scenario.instance
    if disk.kind == "nvme" or scenario.host.disk_mb_s:
        return
    volume = volume_mb_s(disk)
    if volume > instance.ebs_max_mb_s:
        yield Finding(
            code="ebs-above-instance",
            level="warning",
            message=f"the volume can do {volume:.0f} MB/s, {instance.name} lets {instance.ebs_max_mb_s:.0f} MB/s"
            " through"
            f" ({instance.ebs_baseline_mb_s:.0f} MB/s sustained)",
            fix="Lower the volume's throughput, use the instance's NVMe, or choose a larger instance.",
        )
    elif volume > instance.ebs_baseline_mb_s:
        yield Finding(
            code="ebs-burst",
            level="info",
            message=f"{instance.name} sustains {instance.ebs_baseline_mb_s:.0f} MB/s to EBS and bursts to"
            f" {instance.ebs_max_mb_s:.0f}: the plan counts on the first",
        )


def _weights(scenario: Scenario, coefficients: Coefficients) -> Iterator[Finding]:
    weights = scenario.weights
    if weights.path == "stream" and weights.source == "disk":
        local = replace(scenario, weights=replace(weights, path="local"))
        here, there = (weights_phase(case, coefficients).expected_s for case in (scenario, local))
        if there <= here:
            yield Finding(
                code="streaming-local",
                level="warning",
                message=f"the weights are on the node already: the default loader takes {there:.1f} s, the"
                f" streamer {here:.1f} s",
                fix="Use the default safetensors loader for local files.",
            )
    if weights.path == "baked":
        yield Finding(
            code="baked-weights",
            level="warning",
            message=f"{scenario.model.weights_bytes / 1e9:.1f} GB of weights in the image are pulled, unpacked"
            " and written to disk"
            " before the engine reads them again, and every new revision is a new image",
            fix="Keep weights in the bucket; bake them only where there is no bucket to reach.",
        )
    if scenario.ranks > 1 and weights.path == "stream" and not weights.distributed:
        yield Finding(
            code="not-distributed",
            level="warning",
            message=f"{scenario.ranks} ranks each read all {scenario.model.weights_bytes / 1e9:.1f} GB",
            fix="Set distributed streaming: each rank reads its part and the GPUs share it.",
        )


def _engine(scenario: Scenario) -> Iterator[Finding]:
    facts = scenario.model.facts
    if scenario.engine.eager:
        yield Finding(
            code="eager",
            level="warning",
            message="eager starts sooner and answers slower for as long as it runs",
            fix="Use eager for development; in production keep the compile cache.",
        )
    if facts is not None and facts.odd_architecture:
        yield Finding(
            code="odd-architecture",
            level="info",
            message=f"{facts.architecture} ({facts.quantization or 'linear attention'}): kernels compiled on"
            " first use have added"
            " minutes to such starts (vllm#47456, #44881), so the engine's band is wide",
            fix="Measure one start with `coldstart measure` and calibrate.",
        )
    if facts is not None and facts.mixture_of_experts:
        yield Finding(
            code="all-experts",
            level="info",
            message=f"all {facts.parameters / 1e9:.0f} B parameters are loaded, though"
            f" {(facts.active_parameters or 0) / 1e9:.0f} B work per token",
        )


def _network(scenario: Scenario) -> Iterator[Finding]:
    instance = scenario.instance
    if instance.network_cards > 1:
        yield Finding(
            code="one-network-card",
            level="info",
            message=f"{instance.name} has {instance.network_cards} network cards; a pod's S3 and registry traffic"
            " uses one of"
            f" {instance.plan_network_gbps:g} Gbps. A second one does not shorten a start",
        )
    if instance.plan_network_peak_gbps > instance.plan_network_gbps and scenario.host.network_mb_s is None:
        yield Finding(
            code="burst-network",
            level="info",
            message=f"{instance.name} sustains {instance.plan_network_gbps:g} Gbps and bursts to"
            f" {instance.plan_network_peak_gbps:g}:"
            " expected counts on the first, low on the second",
        )


def _money(scenario: Scenario, terms: Terms) -> Iterator[Finding]:
    if scenario.instance.usd_per_hour is None:
        yield Finding(
            code="no-price",
            level="warning",
            message=f"{scenario.instance.name} has no on-demand list price in {prices().region}: costs are not"
            " computed",
            fix="Give the price with --usd-per-hour.",
        )
    if scenario.image.registry == "docker-hub" and not scenario.image.cached and terms.private_egress:
        dollars = scenario.image.bytes / 1e9 * prices().usd["nat_gateway_usd_per_gb"]
        yield Finding(
            code="pull-through-nat",
            level="warning",
            message=f"every pull brings {scenario.image.bytes / 1e9:.1f} GB through the NAT gateway:"
            f" ${dollars:.2f} a start, at"
            " Docker Hub's rate and limits",
            fix="Copy the image into a private registry of the region.",
        )
    if terms.purchase != "on-demand" and terms.usd_per_hour is None:
        yield Finding(
            code="price-ceiling",
            level="info",
            message=f"{terms.purchase} prices are in no list: the on-demand price stands as the ceiling",
            fix="Give the price with --usd-per-hour.",
        )


def _assumptions(scenario: Scenario) -> Iterator[Finding]:
    image = scenario.image
    if image.layers is None and not image.cached:
        yield Finding(
            code="layers-unknown",
            level="info",
            message="nobody has read the image's manifest: a typical split is assumed (12 layers, one fat), and"
            " the pull's band is"
            " wide",
            fix="Give image.layers, or run `coldstart image inspect`.",
        )
    if scenario.model.facts is None:
        yield Finding(
            code="model-unknown",
            level="info",
            message="bare numbers describe the model: GPU memory is judged by its weights, not by context and"
            " concurrency",
            fix="Give model.name, or plan with --model.",
        )
    if scenario.disk.kind == "nvme" and scenario.host.disk_mb_s is None and not image.cached:
        yield Finding(
            code="nvme-estimated",
            level="info",
            message="no API gives NVMe throughput: it is estimated from the disk's size",
            fix="Measure it on a node and set host.disk_mb_s.",
        )
