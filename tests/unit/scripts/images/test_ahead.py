"""Stages of a layer on threads: in order, bounded, and never left running."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scripts.images.ahead import PIECES_AHEAD, Ahead
from tests.toolchain.waiting import wait_until


def running() -> int:
    return sum(thread.name == "ahead" for thread in threading.enumerate())


@given(st.lists(st.binary(max_size=8)))
def test_the_same_pieces_in_the_same_order(pieces: list[bytes]) -> None:
    with Ahead(iter(pieces)) as ahead:
        assert list(ahead) == pieces
        assert list(ahead) == []


def test_no_more_is_made_than_was_asked_for_and_a_little() -> None:
    made: list[int] = []

    def pieces() -> Iterator[bytes]:
        for index in range(100):
            made.append(index)
            yield bytes([index])

    with Ahead(pieces()) as ahead:
        wait_until(lambda: len(made) == PIECES_AHEAD + 1, what=lambda: f"{made}")
        taken = iter(ahead)
        assert next(taken) == b"\0"
        wait_until(lambda: len(made) == PIECES_AHEAD + 2, what=lambda: f"{made}")
    assert len(made) <= PIECES_AHEAD + 3


def test_what_the_maker_raises_comes_after_what_it_made() -> None:
    def pieces() -> Iterator[bytes]:
        yield b"first"
        raise OSError("gone")

    with Ahead(pieces()) as ahead:
        taken = iter(ahead)
        assert next(taken) == b"first"
        with pytest.raises(OSError, match="gone"):
            next(taken)


def endless() -> Iterator[bytes]:
    while True:
        yield b"more"


def give_up(pieces: Iterator[bytes]) -> None:
    with Ahead(pieces) as outer, Ahead(iter(outer)) as inner:
        for _ in inner:
            raise ValueError("enough")


def test_a_consumer_that_fails_leaves_no_thread_behind() -> None:
    before = running()
    with pytest.raises(ValueError, match="enough"):
        give_up(endless())
    assert running() == before
