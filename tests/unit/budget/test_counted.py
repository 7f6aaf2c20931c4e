"""Numbers of things, as people say them."""

from __future__ import annotations

import pytest

from budget.counted import counted


@pytest.mark.parametrize(
    ("number", "said"), [(0, "0 replicas"), (1, "1 replica"), (2, "2 replicas"), (12_000, "12,000 replicas")]
)
def test_one_has_no_s(number: int, said: str) -> None:
    assert counted(number, "replica") == said
