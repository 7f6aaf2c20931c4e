"""How files are cut, and how checksums of pieces become that of the whole."""

from __future__ import annotations

import base64
import zlib
from itertools import pairwise

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from budget.problems import BadInput
from scripts.staging import checksum
from scripts.staging.parts import MIB, MOST_FILE_BYTES, MOST_PARTS, PART_BYTES, part_bytes, parts


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.integers(0, MOST_FILE_BYTES))
def test_parts_cover_a_file_within_the_limits_of_s3(file_bytes: int) -> None:
    size = part_bytes(file_bytes)
    assert size in PART_BYTES
    assert size >= 5 * MIB
    assert -(-file_bytes // size) <= MOST_PARTS


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.integers(0, 300 * MIB))
def test_parts_follow_each_other_and_end_with_the_file(file_bytes: int) -> None:
    cut = list(parts(file_bytes))
    assert [part.number for part in cut] == list(range(1, len(cut) + 1))
    assert sum(part.bytes for part in cut) == file_bytes
    assert all(after.offset == before.offset + before.bytes for before, after in pairwise(cut))
    assert all(part.bytes == part_bytes(file_bytes) for part in cut[:-1])


@pytest.mark.parametrize(
    ("file_bytes", "part_mib"),
    [(0, 8), (80_000 * MIB, 8), (80_000 * MIB + 1, 16), (160_000 * MIB + 1, 32), (320_000 * MIB + 1, 64)],
)
def test_parts_grow_only_when_their_number_forces_them(file_bytes: int, part_mib: int) -> None:
    assert part_bytes(file_bytes) == part_mib * MIB


def test_a_file_that_cannot_be_held_is_refused() -> None:
    assert part_bytes(500 * 10**9) <= 64 * MIB
    with pytest.raises(BadInput, match="Shard the checkpoint"):
        part_bytes(MOST_FILE_BYTES + 1)


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.binary(max_size=5_000), st.binary(max_size=5_000))
def test_the_checksum_of_two_pieces_is_that_of_the_whole(first: bytes, second: bytes) -> None:
    combined = checksum.combined(checksum.crc32(first), checksum.crc32(second), len(second))
    assert combined == zlib.crc32(first + second)


def test_large_pieces_combine_too() -> None:
    first, second = bytes(3 * MIB), b"\xff" * (8 * MIB)
    assert checksum.combined(zlib.crc32(first), zlib.crc32(second), len(second)) == zlib.crc32(first + second)


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.integers(0, 2**32 - 1))
def test_the_spelling_of_s3_and_back(value: int) -> None:
    assert checksum.from_base64(checksum.to_base64(value)) == value
    assert int(checksum.to_hex(value), 16) == value
    assert len(checksum.to_hex(value)) == 8


def test_the_check_value_of_the_standard() -> None:
    assert checksum.to_hex(checksum.crc32(b"123456789")) == "cbf43926"
    assert checksum.to_base64(0xCBF43926) == base64.b64encode(bytes.fromhex("cbf43926")).decode()


def test_a_composite_checksum_says_nothing_of_the_whole() -> None:
    assert checksum.from_base64("AAAAAA==-3") is None
