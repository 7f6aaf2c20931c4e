"""Entries as a tar stream that depends on nothing but the entries: ustar, and PAX records where that ends."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from scripts.images.entry import Entry, Kind
from scripts.images.tar_reader import BLOCK, XATTR

FLAGS: dict[Kind, bytes] = {
    "file": b"0",
    "link": b"1",
    "symlink": b"2",
    "char": b"3",
    "block": b"4",
    "dir": b"5",
    "fifo": b"6",
}
NAME_BYTES = 100
MOST_OCTAL = 0o7777777
MOST_SIZE = 0o77777777777
END = bytes(2 * BLOCK)


def header(entry: Entry) -> bytes:
    """Everything of an entry before its content: PAX records if needed, and its header.

    A sparse file's map is part of its content in the archive, so it is included here (GNU sparse format 1.0, the
    newest, which containerd reads).
    """
    records: dict[str, bytes] = {XATTR + name: value for name, value in entry.xattrs.items()}
    path = _raw(entry.path or ".") + (b"/" if entry.kind == "dir" else b"")
    name, size, map_ = path, entry.stored_bytes, b""
    if entry.segments is not None:
        map_ = sparse_map(entry)
        size += len(map_)
        folder, _, last = entry.path.rpartition("/")
        name = _raw(f"{folder}/GNUSparseFile.0/{last}" if folder else f"GNUSparseFile.0/{last}")
        records |= {
            "GNU.sparse.major": b"1",
            "GNU.sparse.minor": b"0",
            "GNU.sparse.name": path,
            "GNU.sparse.realsize": str(entry.content_bytes).encode(),
        }
    if _needs_record(name):
        records["path"] = name
    target = _raw(entry.target or "")
    if _needs_record(target):
        records["linkpath"] = target
    numbers = {"uid": (entry.uid, MOST_OCTAL), "gid": (entry.gid, MOST_OCTAL), "size": (size, MOST_SIZE)}
    records |= {key: str(value).encode() for key, (value, most) in numbers.items() if not 0 <= value <= most}
    seconds, rest = divmod(entry.mtime_ns, 10**9)
    if rest or not 0 <= seconds <= MOST_SIZE:
        records["mtime"] = _time(entry.mtime_ns)
    return _pax(records) + _block(replace(entry, stored_bytes=size), name, target) + map_


def _needs_record(name: bytes) -> bool:
    return len(name) > NAME_BYTES or (not name.isascii() and _is_utf8(name))


def _is_utf8(name: bytes) -> bool:
    try:
        name.decode()
    except UnicodeDecodeError:
        return False
    return True


def _raw(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")


def _time(ns: int) -> bytes:
    sign, value = ("-", -ns) if ns < 0 else ("", ns)
    return f"{sign}{value // 10**9}.{value % 10**9:09d}".rstrip("0").rstrip(".").encode()


def _block(entry: Entry, name: bytes, target: bytes, flag: bytes = b"") -> bytes:
    """One ustar header. What doesn't fit is zero or cut off here: a PAX record has it."""
    major, minor = entry.device or (0, 0)
    fields = [
        name[:NAME_BYTES].ljust(NAME_BYTES, b"\0"),
        _octal(entry.mode, 8),
        _octal(entry.uid, 8),
        _octal(entry.gid, 8),
        _octal(entry.stored_bytes, 12),
        _octal(entry.mtime_ns // 10**9, 12),
        b" " * 8,
        flag or FLAGS[entry.kind],
        target[:NAME_BYTES].ljust(NAME_BYTES, b"\0"),
        b"ustar\x0000",
        bytes(64),
        _octal(major, 8),
        _octal(minor, 8),
        bytes(167),
    ]
    block = b"".join(fields)
    return block[:148] + f"{sum(block):06o}\0 ".encode() + block[156:]


def _octal(value: int, width: int) -> bytes:
    digits = f"{value:0{width - 1}o}"
    return (digits if value >= 0 and len(digits) < width else "0" * (width - 1)).encode() + b"\0"


def _pax(records: dict[str, bytes]) -> bytes:
    """The extended header with these records; nothing if there are none."""
    if not records:
        return b""
    content = b"".join(_record(_raw(key), value) for key, value in sorted(records.items()))
    pax = Entry(path="", kind="file", mode=0o644, stored_bytes=len(content))
    return _block(pax, b"././@PaxHeader", b"", b"x") + content + padding(len(content))


def _record(key: bytes, value: bytes) -> bytes:
    """Length, key, `=`, value, end of line; the length counts its own digits."""
    rest = len(key) + len(value) + 3
    length = rest + len(str(rest))
    length = rest + len(str(length))
    return str(length).encode() + b" " + key + b"=" + value + b"\n"


def sparse_map(entry: Entry) -> bytes:
    """The map of a sparse file as it stands before its data, in whole blocks.

    A file that ends in a hole gets an empty segment at its end: that is where GNU tar and Go see its length.
    """
    segments = list(entry.segments or ())
    if not segments or sum(segments[-1]) < entry.content_bytes:
        segments.append((entry.content_bytes, 0))
    lines = [len(segments), *(number for segment in segments for number in segment)]
    text = "".join(f"{line}\n" for line in lines).encode()
    return text + padding(len(text))


def padding(size: int) -> bytes:
    """Zeros up to the next whole block."""
    return bytes(-size % BLOCK)


def stream(entries: Iterator[tuple[Entry, Iterator[bytes]]]) -> Iterator[bytes]:
    """A whole tar stream from entries and their stored content."""
    for entry, content in entries:
        yield header(entry)
        if entry.stored_bytes:
            yield from content
            yield padding(entry.stored_bytes)
    yield END
