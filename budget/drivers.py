"""NVIDIA drivers: which branch an image's CUDA needs, and which Bottlerocket release brings it."""

from __future__ import annotations

CUDA_13 = 13
R580 = 580
"""CUDA 13 needs driver branch R580 or newer (NVIDIA CUDA release notes)."""
R580_SINCE = (1, 53, 0)
"""Bottlerocket's NVIDIA variants carry driver branch R580 since this release (bottlerocket-kernel-kit#254)."""
R580_FIX = f"Use Bottlerocket {'.'.join(map(str, R580_SINCE))} or newer."
FRACTIONAL_MAX = 594
"""R595 does not run the fractional L4 of g6f and gr6f (awslabs/amazon-eks-ami#2747)."""


def branch_runs(cuda: tuple[int, int], branch: int) -> bool:
    """Whether a driver branch runs an image of this CUDA."""
    return cuda[0] < CUDA_13 or branch >= R580


def bottlerocket_runs(cuda: tuple[int, int], release: tuple[int, ...]) -> bool:
    """Whether the driver of a Bottlerocket release does."""
    return cuda[0] < CUDA_13 or release >= R580_SINCE
