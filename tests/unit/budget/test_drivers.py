"""Drivers: what runs an image's CUDA."""

from __future__ import annotations

import pytest

from budget.drivers import R580_FIX, bottlerocket_runs, branch_runs


@pytest.mark.parametrize(
    ("cuda", "branch", "release", "runs"),
    [
        ((12, 9), 570, (1, 52, 0), True),
        ((13, 0), 575, (1, 52, 9), False),
        ((13, 0), 580, (1, 53, 0), True),
        ((14, 0), 570, (1, 46, 0), False),
    ],
)
def test_cuda_13_needs_r580(cuda: tuple[int, int], branch: int, release: tuple[int, int, int], *, runs: bool) -> None:
    assert branch_runs(cuda, branch) is runs
    assert bottlerocket_runs(cuda, release) is runs


def test_the_mend_names_the_first_release_that_has_it() -> None:
    assert R580_FIX == "Use Bottlerocket 1.53.0 or newer."
