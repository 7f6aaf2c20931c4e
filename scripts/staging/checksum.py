"""CRC-32 as S3 speaks it: base64 of four bytes, and the checksum of a whole object from those of its parts."""

from __future__ import annotations

import base64
import zlib
from functools import cache

_POLYNOMIAL = 0xEDB88320
"""CRC-32 of ISO 3309, bit-reversed: the one that zlib computes and S3 calls CRC32."""


def crc32(data: bytes | bytearray | memoryview) -> int:
    """CRC-32 of some bytes."""
    return zlib.crc32(data)


def to_base64(value: int) -> str:
    """The way S3's headers carry it."""
    return base64.b64encode(value.to_bytes(4, "big")).decode("ascii")


def from_base64(text: str) -> int | None:
    """The number behind S3's spelling; None for a composite checksum (`…-3`), which says nothing of the whole."""
    if "-" in text:
        return None
    return int.from_bytes(base64.b64decode(text), "big")


def to_hex(value: int) -> str:
    """The way a manifest carries it."""
    return f"{value:08x}"


def combined(first: int, second: int, second_bytes: int) -> int:
    """CRC-32 of two byte strings put together, from the CRC-32 of each and the length of the second.

    Appending n bytes multiplies the first one's remainder by x^(8n) modulo the polynomial.
    """
    return _times(_shift(second_bytes), first) ^ second


@cache
def _shift(bytes_: int) -> int:
    """x^(8n) modulo the polynomial, by repeated squaring. Parts are of few sizes, so few are ever computed."""
    result, square = 1 << 31, 1 << 30
    bits = 8 * bytes_
    while bits:
        if bits & 1:
            result = _times(square, result)
        square = _times(square, square)
        bits >>= 1
    return result


def _times(left: int, right: int) -> int:
    """Product of two polynomials over GF(2), bit-reversed, modulo the polynomial."""
    product = 0
    while left:
        if left & (1 << 31):
            product ^= right
        left = (left << 1) & 0xFFFFFFFF
        right = (right >> 1) ^ _POLYNOMIAL if right & 1 else right >> 1
    return product
