"""Memory that is lent: never more than the limit, never lost, never waited for in vain."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from scripts.staging.buffers import Buffers, Closed


def test_what_comes_back_is_lent_again() -> None:
    buffers = Buffers(10)
    first = buffers.lend(10, wait=False)
    assert first is not None
    assert buffers.lend(10, wait=False) is None
    buffers.give_back(first)
    assert buffers.lend(10, wait=False) is first


def test_idle_buffers_of_another_size_make_room() -> None:
    buffers = Buffers(10)
    small = [buffers.lend(5, wait=False) for _ in range(2)]
    for buffer in small:
        buffers.give_back(buffer)
    assert len(buffers.lend(10, wait=False)) == 10


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(st.tuples(st.sampled_from([1, 2, 4]), st.booleans()), max_size=60))
def test_never_more_than_the_limit_is_out(steps: list[tuple[int, bool]]) -> None:
    buffers, out = Buffers(8), []
    for size, give_back in steps:
        if give_back and out:
            buffers.give_back(out.pop(0))
        elif (buffer := buffers.lend(size, wait=False)) is not None:
            out.append(buffer)
        assert sum(len(buffer) for buffer in out) <= 8


def test_who_waits_gets_what_comes_back() -> None:
    buffers = Buffers(4)
    first = buffers.lend(4, wait=True)
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(buffers.lend, 4, wait=True)
        buffers.give_back(first)
        assert waiting.result(timeout=10) is first


def test_closing_wakes_who_waits() -> None:
    buffers = Buffers(4)
    buffers.lend(4, wait=True)
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(buffers.lend, 4, wait=True)
        buffers.close()
        with pytest.raises(Closed):
            waiting.result(timeout=10)
