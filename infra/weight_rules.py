"""Rules of `model.weights`: which ways to the weights go together, and what each needs."""

from __future__ import annotations

from collections.abc import Iterator

from budget.instances import GIB
from budget.models import ModelFacts
from budget.problems import Problem
from infra.model_settings import Model, WeightsPath

WHERE = "model.weights"


def problems(model: Model, *, ranks: int, facts: ModelFacts) -> Iterator[Problem]:
    """What is wrong with the weights settings of a model.

    Args:
        model: its settings.
        ranks: GPUs one replica spreads over.
        facts: of the model.
    """
    weights = model.weights
    order = (weights.path, *weights.fallback)
    yield from _order(order)
    yield from _needs(model, order, facts)
    if WeightsPath.PRESHARDED in order and ranks == 1:
        yield Problem(f"{WHERE}.path", "presharded with one GPU", "One rank has nothing to share: use stream.")
    if weights.distributed and ranks == 1:
        yield Problem(f"{WHERE}.distributed", "set with one GPU", "One rank reads everything itself: leave it unset.")


def _order(order: tuple[WeightsPath, ...]) -> Iterator[Problem]:
    where = f"{WHERE}.fallback"
    if len(set(order)) != len(order):
        yield Problem(where, f"{[str(path) for path in order]} names a path twice", "Name each path once.")
    if {WeightsPath.BAKED, WeightsPath.STREAM} <= set(order):
        yield Problem(
            where,
            "both stream and baked: two copies of one revision can disagree, and nothing would tell",
            "Bake for sites without a bucket, stream everywhere else.",
        )
    others = set(order) - {WeightsPath.PRESHARDED}
    if WeightsPath.PRESHARDED in order and others & {WeightsPath.STREAM, WeightsPath.NODE_CACHE}:
        yield Problem(
            where,
            "presharded beside a path that reads whole checkpoints: a staged prefix is one or the other",
            "Stage the other layout under a revision of its own, or leave the fallback out.",
        )


def _needs(model: Model, order: tuple[WeightsPath, ...], facts: ModelFacts) -> Iterator[Problem]:
    weights = model.weights
    if WeightsPath.SHARED_FS in order and weights.shared_fs is None:
        yield Problem(
            f"{WHERE}.shared_fs", "missing for path shared-fs", "Name driver, volume_handle and throughput_mb_s."
        )
    if weights.shared_fs is not None and WeightsPath.SHARED_FS not in order:
        yield Problem(f"{WHERE}.shared_fs", "set, but no path uses it", "Set path or fallback to shared-fs.")
    size_gib = weights.node_cache_gib
    if size_gib is None:
        return
    if WeightsPath.NODE_CACHE not in order:
        yield Problem(f"{WHERE}.node_cache_gib", "set, but no path uses it", "Set path or fallback to node-cache.")
    elif size_gib * GIB < facts.weights_bytes:
        yield Problem(
            f"{WHERE}.node_cache_gib",
            f"{size_gib} GiB can't hold the {facts.weights_bytes / GIB:.0f} GiB of {facts.name}",
            "Give it room for this model at least, twice that for an update.",
        )
