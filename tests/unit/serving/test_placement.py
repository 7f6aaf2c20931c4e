"""One taint in three spellings, one label, one resource name: what a pod says and what a node wears must match."""

from __future__ import annotations

import re

import pytest

from serving.placement import GPU_TAINT, MODEL_LABEL, Taint, TaintEffect


def test_the_gpu_taint_in_its_three_spellings() -> None:
    assert GPU_TAINT.toleration() == {
        "key": "nvidia.com/gpu",
        "operator": "Equal",
        "value": "present",
        "effect": "NoSchedule",
    }
    assert GPU_TAINT.effect.api == "NO_SCHEDULE"
    assert GPU_TAINT.bottlerocket() == "present:NoSchedule"


@pytest.mark.parametrize(
    ("effect", "pod", "api"),
    [
        (TaintEffect.NO_SCHEDULE, "NoSchedule", "NO_SCHEDULE"),
        (TaintEffect.NO_EXECUTE, "NoExecute", "NO_EXECUTE"),
        (TaintEffect.PREFER_NO_SCHEDULE, "PreferNoSchedule", "PREFER_NO_SCHEDULE"),
    ],
)
def test_every_effect_is_spelled_as_kubernetes_and_eks_spell_it(effect: TaintEffect, pod: str, api: str) -> None:
    assert (effect.pod, effect.api) == (pod, api)
    taint = Taint("example.com/key", "on", effect)
    assert taint.toleration() == {"key": "example.com/key", "operator": "Equal", "value": "on", "effect": pod}
    assert taint.bottlerocket() == f"on:{pod}"


def test_there_are_no_other_effects() -> None:
    assert len(TaintEffect) == 3


def test_names_are_within_what_kubernetes_and_eks_accept() -> None:
    """Keys of 1 to 63 characters behind their prefix, values of at most 63 (EKS API, Taint)."""
    for key in (GPU_TAINT.key, MODEL_LABEL):
        assert re.fullmatch(r"[a-z0-9.-]{1,253}/[A-Za-z0-9]([\w.-]{0,61}[A-Za-z0-9])?", key)
    assert re.fullmatch(r"[A-Za-z0-9]([\w.-]{0,61}[A-Za-z0-9])?", GPU_TAINT.value)
