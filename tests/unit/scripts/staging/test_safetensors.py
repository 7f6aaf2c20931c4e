"""Headers of safetensors files held against the files' sizes."""

from __future__ import annotations

import json

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from scripts.staging.safetensors import LENGTH_BYTES, MalformedError, header_bytes, parse_header
from tests.aws.made_models import safetensors


def tensor(dtype: str = "BF16", shape: list[int] | None = None, offsets: list[int] | None = None) -> dict[str, object]:
    return {"dtype": dtype, "shape": [2] if shape is None else shape, "data_offsets": offsets or [0, 4]}


def parse(document: object, *, data_bytes: int) -> object:
    text = json.dumps(document).encode()
    return parse_header(text, file_bytes=LENGTH_BYTES + len(text) + data_bytes)


def whole(content: bytes) -> object:
    length = header_bytes(content[:LENGTH_BYTES], file_bytes=len(content))
    return parse_header(content[LENGTH_BYTES : LENGTH_BYTES + length], file_bytes=len(content))


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.dictionaries(st.text("abc.", min_size=1), st.integers(0, 50), max_size=6))
def test_a_real_file_passes(tensors: dict[str, int]) -> None:
    content = safetensors(tensors)
    header = whole(content)
    assert header.keys() - {"__metadata__"} == tensors.keys()


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.integers(0, 400))
def test_a_file_cut_anywhere_is_noticed(cut: int) -> None:
    content = safetensors({"a": 100, "b": 50})[: -(cut + 1)]
    with pytest.raises(MalformedError, match=r"cut off|too few|not a safetensors"):
        whole(content)


def test_a_file_with_something_behind_it_is_noticed() -> None:
    with pytest.raises(MalformedError, match="5 bytes behind its last tensor"):
        parse({"a": tensor()}, data_bytes=9)


@pytest.mark.parametrize(
    ("document", "said"),
    [
        ([], "no JSON object"),
        ({"a": 1}, "lacks a shape"),
        ({"a": tensor(shape=[-1])}, "lacks a shape"),
        ({"a": tensor(offsets=[0, 1, 2])}, "lacks a shape"),
        ({"a": tensor(dtype="Q7")}, "unknown dtype 'Q7'"),
        ({"a": tensor(shape=[3])}, "spans 4 bytes where BF16 \\[3\\] takes 6"),
        ({"a": tensor(), "b": tensor(offsets=[2, 6])}, "overlaps"),
        ({"a": tensor(), "b": tensor(offsets=[6, 10])}, "leaves a gap"),
    ],
)
def test_a_header_that_cannot_be(document: object, said: str) -> None:
    with pytest.raises(MalformedError, match=said):
        parse(document, data_bytes=4)


def test_half_bytes_count() -> None:
    assert parse({"a": tensor("F4", [7], [0, 4])}, data_bytes=4)


@pytest.mark.parametrize("text", [b"", b"{", b"\xff\xfe"])
def test_a_header_that_is_no_json(text: bytes) -> None:
    with pytest.raises(MalformedError, match="not JSON"):
        parse_header(text, file_bytes=100)


@pytest.mark.parametrize(
    ("prefix", "file_bytes", "said"),
    [
        (b"", 0, "too few"),
        (b"version ", 134, "not a safetensors file"),  # a pointer file of git LFS
        ((500).to_bytes(8, "little"), 100, "cut off"),
        ((0).to_bytes(8, "little"), 100, "not a safetensors file"),
    ],
)
def test_what_the_first_eight_bytes_give_away(prefix: bytes, file_bytes: int, said: str) -> None:
    with pytest.raises(MalformedError, match=said):
        header_bytes(prefix, file_bytes=file_bytes)
