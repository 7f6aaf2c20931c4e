"""The Model Streamer of a pod: its release, its S3 clients, the requests those keep in flight, its buffer."""

from __future__ import annotations

import math

from budget.instances import GBPS_TO_BYTES_S, Instance
from budget.memory import STREAMER_CLIENTS, STREAMER_TARGET_GBPS, streamer_limit_bytes
from budget.models import ModelFacts

CLIENTS_MIN, CLIENTS_MAX = 4, 16
"""More than 16 clients have met descriptor limits (model-streamer#16, #39)."""
S3_REQUEST_MB_S = 85
"""One S3 request carries 85-90 MB/s (S3 performance guidance)."""
FEWEST_CONNECTIONS = 8
LATEST = (0, 17)
FIRST_WITH_LATEST = (0, 33, 0)
"""Images hold what was newest on their build day. Streamer 0.17.1 is of 2026-10-29; vLLM 0.33.0 (2026-11-02) is the
first release built after it."""
BEFORE = (0, 15)


def streamer_release(vllm: tuple[int, int, int] | None) -> tuple[int, int]:
    """Streamer inside the published image of a vLLM release; of an unknown release, the older one."""
    return LATEST if vllm is not None and vllm >= FIRST_WITH_LATEST else BEFORE


def streamer_clients(network_gbps: float, ranks: int) -> int:
    """S3 clients of one streamer process: enough to fill its rank's share of the node's network."""
    return min(CLIENTS_MAX, max(CLIENTS_MIN, math.ceil(network_gbps / ranks / STREAMER_TARGET_GBPS)))


def streamer_connections(instance: Instance, clients: int = STREAMER_CLIENTS) -> int:
    """Requests in flight that a node's clients, all ranks together, keep busy: as many as fill its network.

    A client opens what its target of 10 Gbps needs at the rate of one request; what goes beyond the network waits.
    """
    each = math.ceil(STREAMER_TARGET_GBPS * GBPS_TO_BYTES_S / (S3_REQUEST_MB_S * 1e6))
    fill = instance.plan_network_gbps * GBPS_TO_BYTES_S / (S3_REQUEST_MB_S * 1e6)
    return max(FEWEST_CONNECTIONS, min(clients * each, math.ceil(fill)))


def rank_connections(instance: Instance, *, clients: int, ranks: int, distributed: bool) -> int:
    """The same as a scenario counts them: of the shared read when distributed, else of each rank.

    Args:
        instance: the node.
        clients: of one rank's process.
        ranks: engine processes.
        distributed: ranks share one read.
    """
    together = streamer_connections(instance, clients * ranks)
    return together if distributed or ranks == 1 else max(FEWEST_CONNECTIONS, math.ceil(together / ranks))


def rank_memory_limit_bytes(
    facts: ModelFacts, instance: Instance, *, ranks: int, pods: int, asked_bytes: int | None
) -> int:
    """RUNAI_STREAMER_MEMORY_LIMIT: a rank's share of the pod's buffer, since releases before 0.17 count it per rank.

    Never below the largest tensor, which the streamer would refuse.

    Args:
        facts: of the model.
        instance: the node.
        ranks: engine processes of a pod.
        pods: on a node.
        asked_bytes: the buffer of a pod as it was set; None for what the node has room for.
    """
    total = asked_bytes or streamer_limit_bytes(facts, instance, ranks, pods=pods)
    return max(total // ranks, facts.largest_tensor_bytes)
