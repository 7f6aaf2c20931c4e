"""Compression: bounded on the way in, the same every time on the way out."""

from __future__ import annotations

import gzip
import random
import zlib

import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from scripts.failure import Failure
from scripts.images.codec import GZIP_HEADER, MEDIA_TYPES, PIECE_BYTES, Unpacked, codec_of, compressor

NOISE = random.Random(1)  # noqa: S311 - repeatable noise, nothing secret
CONTENT = NOISE.randbytes(300_000) + bytes(700_000) + b"text " * 100_000


def unpacked(stored: bytes, codec: str, piece: int = 10_000) -> list[bytes]:
    return list(Unpacked(iter([stored[at : at + piece] for at in range(0, len(stored), piece)]), codec, "here"))


def packed(content: bytes, codec: str, piece: int) -> bytes:
    packer = compressor(codec)
    return (
        b"".join([packer.compress(content[at : at + piece]) for at in range(0, len(content), piece)]) + packer.flush()
    )


@pytest.mark.parametrize("codec", ["gzip", "zstd"])
@settings(max_examples=60, deadline=None)
@given(content=st.binary(max_size=5000), piece=st.integers(1, 6000))
def test_what_is_packed_unpacks(codec: str, content: bytes, piece: int) -> None:
    assert b"".join(unpacked(packed(content, codec, piece), codec)) == content


@pytest.mark.parametrize("codec", ["gzip", "zstd"])
def test_the_same_content_gives_the_same_bytes_in_pieces_of_the_same_size(codec: str) -> None:
    assert packed(CONTENT, codec, 1 << 20) == packed(CONTENT, codec, 1 << 20)


def test_gzip_has_nothing_of_the_machine_in_it() -> None:
    stored = packed(CONTENT, "gzip", 1 << 20)
    assert stored[:10] == GZIP_HEADER
    assert gzip.decompress(stored) == CONTENT
    assert zlib.decompressobj(31).decompress(stored) == CONTENT  # one member


def test_other_programs_read_our_zstd() -> None:
    assert zstandard.ZstdDecompressor().decompressobj().decompress(packed(CONTENT, "zstd", 1 << 20)) == CONTENT


@pytest.mark.parametrize("piece", [1, 7, 65_536, 10_000_000])
def test_several_members_are_one_stream(piece: int) -> None:
    stored = gzip.compress(CONTENT[:5]) + gzip.compress(b"") + gzip.compress(CONTENT[5:2000])
    assert b"".join(unpacked(stored, "gzip", piece)) == CONTENT[:2000]


def test_several_frames_are_one_stream() -> None:
    stored = zstandard.compress(CONTENT[:5000]) + zstandard.compress(CONTENT[5000:])
    assert b"".join(unpacked(stored, "zstd")) == CONTENT


@pytest.mark.parametrize("codec", ["gzip", "zstd"])
def test_pieces_stay_small_whatever_they_unpack_to(codec: str) -> None:
    zeros = bytes(40_000_000)
    stored = gzip.compress(zeros) if codec == "gzip" else zstandard.compress(zeros)
    sizes = [len(piece) for piece in unpacked(stored, codec, 1 << 20)]
    assert sum(sizes) == len(zeros)
    assert max(sizes) <= PIECE_BYTES


@pytest.mark.parametrize("codec", ["gzip", "zstd"])
def test_a_bomb_is_refused_before_it_has_gone_off(codec: str) -> None:
    zeros = bytes(200_000_000)
    stored = gzip.compress(zeros, 9) if codec == "gzip" else zstandard.compress(zeros)
    stream = Unpacked(iter([stored]), codec, "here")
    with pytest.raises(Failure, match="a layer bomb"):
        for _ in stream:
            pass
    assert stream.bytes < 70_000_000


def test_a_window_that_would_take_all_memory_is_refused() -> None:
    parameters = zstandard.ZstdCompressionParameters(window_log=30, compression_level=1)
    stored = zstandard.ZstdCompressor(compression_params=parameters).compressobj().compress(CONTENT)
    packer = zstandard.ZstdCompressor(compression_params=parameters).compressobj()
    stored = packer.compress(CONTENT) + packer.flush()
    with pytest.raises(Failure, match="broken zstd"):
        unpacked(stored, "zstd")


def test_every_media_type_has_a_codec_and_others_are_named() -> None:
    assert {codec_of(media_type, "here") for media_type in MEDIA_TYPES} == {"gzip", "zstd", "none"}
    with pytest.raises(Failure, match=r"here: unknown media type 'x'\. Known: application/vnd\.oci"):
        codec_of("x", "here")
