"""Numbers of things, as people say them."""

from __future__ import annotations


def counted(number: int, thing: str) -> str:
    """`1 replica`, `2 replicas`, `12,000 names`: for nouns whose plural takes an s."""
    return f"{number:,} {thing}" if number == 1 else f"{number:,} {thing}s"
