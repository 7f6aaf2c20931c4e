"""A tar stream as layers use it: ustar, GNU long names and sparse files, PAX records. Strict, streaming, bounded.

What a hostile archive could use to leave the root or to exhaust memory is refused: absolute paths, `..`, headers whose
checksum is wrong, and records of unreasonable size.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from decimal import Decimal, InvalidOperation

from scripts.failure import Failure
from scripts.images.entry import NO_XATTRS, Entry, Kind, Segment

BLOCK = 512
MOST_RECORD_BYTES = 1 << 20
"""Of one PAX header or long name: paths end at 4 KiB, an extended attribute at 64 KiB."""
MOST_MAP_BYTES = 16 << 20
XATTR = "SCHILY.xattr."
KINDS: dict[bytes, Kind] = {
    b"0": "file",
    b"\0": "file",
    b"7": "file",
    b"S": "file",
    b"1": "link",
    b"2": "symlink",
    b"3": "char",
    b"4": "block",
    b"5": "dir",
    b"6": "fifo",
}
_ZERO = bytes(BLOCK)


class _Stream:
    """Bytes on demand from pieces."""

    def __init__(self, pieces: Iterator[bytes], where: str) -> None:
        self._pieces, self._where = pieces, where
        self._buffer, self._at = b"", 0
        self.position = 0

    def read(self, size: int) -> bytes:
        """Exactly `size` bytes.

        Raises:
            Failure: the stream ends before.
        """
        end = self._at + size
        if end <= len(self._buffer):
            taken, self._at = self._buffer[self._at : end], end
        else:
            parts, have = [self._buffer[self._at :]], len(self._buffer) - self._at
            while have < size:
                self._next()
                parts.append(self._buffer[: size - have])
                self._at = len(parts[-1])
                have += self._at
            taken = b"".join(parts)
        self.position += size
        return taken

    def read_or_end(self, size: int) -> bytes | None:
        """As `read`; None where the stream ends right here."""
        if self._at == len(self._buffer):
            self._buffer, self._at = next(self._pieces, b""), 0
            if not self._buffer:
                return None
        return self.read(size)

    def skip(self, size: int) -> None:
        """Passes over bytes."""
        self.position += size
        left = size - (len(self._buffer) - self._at)
        if left <= 0:
            self._at += size
            return
        while left > 0:
            self._next()
            self._at = min(left, len(self._buffer))
            left -= self._at

    def drain(self) -> None:
        """Passes over everything that is left."""
        self._buffer, self._at = b"", 0
        for _ in self._pieces:
            pass

    def _next(self) -> None:
        piece = next(self._pieces, b"")
        if not piece:
            raise Failure(f"{self._where}: truncated: the tar stream ends in the middle, after {self.position} bytes")
        self._buffer, self._at = piece, 0


class TarReader:
    """Entries of a tar stream, in its order. The stream is read to its end, so that its digest can be checked."""

    def __init__(self, pieces: Iterator[bytes], where: str) -> None:
        self._stream = _Stream(pieces, where)
        self._where = where
        self._globals: dict[str, bytes] = {}
        self._data_start = 0

    def __iter__(self) -> Iterator[Entry]:
        while header := self._header():
            records: dict[str, bytes] = dict(self._globals)
            while (kind := self._checked(header)[156:157]) in b"xgLK":
                self._extend(kind, header, records)
                header = self._stream.read(BLOCK)
            entry = self._entry(header, records)
            if entry is not None:
                yield entry
        self._stream.drain()

    def _header(self) -> bytes | None:
        """The next header; None at the end: two blocks of zeros, or where some writers just stop."""
        header = self._stream.read_or_end(BLOCK)
        if header is None or header != _ZERO:
            return header
        if self._stream.read_or_end(BLOCK) not in (None, _ZERO):
            raise Failure(f"{self._where}: something follows the tar stream's end at byte {self._stream.position}")
        return None

    def _checked(self, header: bytes) -> bytes:
        stated = header[148:156].strip(b" \0")
        if stated != f"{sum(header) - sum(header[148:156]) + 8 * 0x20:o}".encode().rjust(len(stated), b"0"):
            raise Failure(
                f"{self._where}: no tar header at byte {self._stream.position - BLOCK}: its checksum is wrong"
            )
        return header

    def _number(self, field: bytes) -> int:
        """Octal digits, or base 256 where the top bit is set."""
        if field[0] & 0x80:
            value = int.from_bytes(bytes([field[0] & 0x7F]) + field[1:], "big")
            return value - (1 << (8 * len(field) - 1)) if field[0] & 0x40 else value
        text = field.strip(b" \0")
        try:
            return int(text, 8) if text else 0
        except ValueError as error:
            raise Failure(f"{self._where}: {text!r} is not a number in a tar header") from error

    # -- extended headers ---------------------------------------------------------------------------------------

    def _extend(self, kind: bytes, header: bytes, records: dict[str, bytes]) -> None:
        size = self._number(header[124:136])
        if not 0 <= size <= MOST_RECORD_BYTES:
            raise Failure(f"{self._where}: an extended header of {size} bytes: not trusted")
        content = self._stream.read(size)
        self._stream.skip(-size % BLOCK)
        if kind in b"LK":
            records["path" if kind == b"L" else "linkpath"] = content.rstrip(b"\0")
            return
        found = self._records(content)
        if kind == b"g":
            self._globals.update(found)
        records.update(found)

    def _records(self, content: bytes) -> dict[str, bytes]:
        """PAX records: length, key, `=`, value, end of line, each.

        Pairs of an old sparse map, whose two keys repeat, are collected under one key.
        """
        records: dict[str, bytes] = {}
        pairs: list[bytes] = []
        while content:
            length, space, _ = content.partition(b" ")
            end = int(length) if length.isdigit() and len(length) < 9 else 0  # noqa: PLR2004 - more digits than any record has
            record = content[len(length) + 1 : end - 1]
            key, equals, value = record.partition(b"=")
            if not space or not equals or not 0 < end <= len(content) or content[end - 1 : end] != b"\n":
                raise Failure(f"{self._where}: a broken PAX header at byte {self._stream.position}")
            name = key.decode("utf-8", "surrogateescape")
            if name in ("GNU.sparse.offset", "GNU.sparse.numbytes"):
                pairs.append(value)
            else:
                records[name] = value
            content = content[end:]
        if pairs:
            records["GNU.sparse.map"] = b",".join(pairs)
        return records

    # -- entries ------------------------------------------------------------------------------------------------

    def _entry(self, header: bytes, records: dict[str, bytes]) -> Entry | None:
        flag = header[156:157]
        kind = KINDS.get(flag)
        name = self._name(header, records)
        if kind is None:
            raise Failure(f"{self._where}: {_shown(name)}: unknown kind of tar entry {flag!r}")
        if kind == "file" and flag in b"0\0" and name.endswith(b"/"):
            kind = "dir"
        size = self._size(header, records)
        stored, self._data_start = (size if kind == "file" else 0), self._stream.position
        segments, real = self._sparse(header, records, stored) if kind == "file" else (None, 0)
        entry = Entry(
            path=self.path(name),
            kind=kind,
            mode=self._number(header[100:108]) & 0o7777,
            uid=self._whole(records, "uid", header[108:116]),
            gid=self._whole(records, "gid", header[116:124]),
            mtime_ns=self._time_ns(header, records),
            target=self._target(kind, header, records),
            device=(self._number(header[329:337]), self._number(header[337:345]))
            if kind in ("char", "block")
            else None,
            xattrs=_xattrs(records),
            content_bytes=real if segments is not None else stored,
            segments=segments,
        )
        # A sparse map of the newest format stands before the data and has been read by now.
        entry.offset = self._stream.position
        entry.stored_bytes = sum(length for _, length in segments) if segments is not None else stored
        end = self._data_start + stored
        if entry.offset + entry.stored_bytes > end:
            raise Failure(f"{self._where}: {_shown(name)}: its sparse map names more data than there is")
        self._stream.skip(end - entry.offset + (-stored % BLOCK))
        return entry

    def _name(self, header: bytes, records: dict[str, bytes]) -> bytes:
        if "GNU.sparse.name" in records:
            return records["GNU.sparse.name"]
        if "path" in records:
            return records["path"]
        name = header[:100].partition(b"\0")[0]
        prefix = header[345:500].partition(b"\0")[0] if header[257:263] == b"ustar\0" else b""
        return prefix + b"/" + name if prefix else name

    def _target(self, kind: Kind, header: bytes, records: dict[str, bytes]) -> str | None:
        if kind not in ("link", "symlink"):
            return None
        raw = records.get("linkpath") or header[157:257].partition(b"\0")[0]
        if kind == "symlink":
            return raw.decode("utf-8", "surrogateescape")
        # Some builders write a hard link's target as a path from the root, which it is anyway.
        return self.path(raw.lstrip(b"/"))

    def path(self, raw: bytes) -> str:
        """A path within the root, in one spelling.

        Raises:
            Failure: absolute, or leading out of it.
        """
        text = raw.decode("utf-8", "surrogateescape")
        parts = [part for part in text.split("/") if part not in ("", ".")]
        if text.startswith("/") or ".." in parts or "\0" in text:
            found = "an absolute path" if text.startswith("/") else "a path that leads out of the root"
            raise Failure(f"{self._where}: {_shown(raw)}: {found}: refused")
        return "/".join(parts)

    def _size(self, header: bytes, records: dict[str, bytes]) -> int:
        size = self._whole(records, "size", header[124:136])
        if size < 0:
            raise Failure(f"{self._where}: an entry of {size} bytes")
        return size

    def _whole(self, records: dict[str, bytes], key: str, field: bytes) -> int:
        if key not in records:
            return self._number(field)
        try:
            return int(records[key])
        except ValueError as error:
            raise Failure(f"{self._where}: {key}={_shown(records[key])} is not a number") from error

    def _time_ns(self, header: bytes, records: dict[str, bytes]) -> int:
        if "mtime" not in records:
            return self._number(header[136:148]) * 10**9
        try:
            return int(Decimal(records["mtime"].decode("ascii")) * 10**9)
        except (InvalidOperation, UnicodeDecodeError, OverflowError, ValueError) as error:
            raise Failure(f"{self._where}: mtime={_shown(records['mtime'])} is not a time") from error

    # -- sparse files -------------------------------------------------------------------------------------------

    def _sparse(self, header: bytes, records: dict[str, bytes], stored: int) -> tuple[tuple[Segment, ...] | None, int]:
        """Segments and real size of a sparse file, in any of GNU's four formats; (None, 0) for a plain one."""
        if header[156:157] == b"S":
            numbers = self._old_map(header)
            self._data_start = self._stream.position
            return self._segments(numbers, self._number(header[483:495]))
        if records.get("GNU.sparse.major") == b"1":
            real = self._whole(records, "GNU.sparse.realsize", b"0")
            return self._segments(self._inline_map(stored), real)
        if "GNU.sparse.map" in records:
            real = self._whole(records, "GNU.sparse.size", b"0")
            try:
                return self._segments([int(part) for part in records["GNU.sparse.map"].split(b",")], real)
            except ValueError as error:
                raise Failure(f"{self._where}: a broken sparse map") from error
        return None, 0

    def _old_map(self, header: bytes) -> list[int]:
        fields, more = header[386:482], header[482]
        numbers = [self._number(fields[at : at + 12]) for at in range(0, 96, 12) if fields[at : at + 12].strip(b"\0")]
        while more:
            block = self._stream.read(BLOCK)
            numbers += [
                self._number(block[at : at + 12]) for at in range(0, 504, 12) if block[at : at + 12].strip(b"\0")
            ]
            more = block[504]
            if len(numbers) * 12 > MOST_MAP_BYTES:
                raise Failure(f"{self._where}: a sparse map of more than {MOST_MAP_BYTES} bytes: not trusted")
        return numbers

    def _inline_map(self, stored: int) -> list[int]:
        """Decimal numbers, one a line, in whole blocks before the data."""
        text, wanted = b"", 1
        while True:
            lines = text.split(b"\n")
            if len(lines) > 1 and lines[0].isdigit():
                wanted = 1 + 2 * int(lines[0])
            if len(lines) > wanted:
                break
            if len(text) + BLOCK > min(stored, MOST_MAP_BYTES):
                raise Failure(f"{self._where}: a broken sparse map")
            text += self._stream.read(BLOCK)
        try:
            return [int(line) for line in lines[1:wanted]]
        except ValueError as error:
            raise Failure(f"{self._where}: a broken sparse map") from error

    def _segments(self, numbers: Sequence[int], real: int) -> tuple[tuple[Segment, ...], int]:
        pairs = tuple(zip(numbers[::2], numbers[1::2], strict=False))
        at = 0
        for offset, length in pairs:
            if offset < at or length < 0 or offset + length > real:
                raise Failure(f"{self._where}: a sparse map that overlaps or exceeds its file of {real} bytes")
            at = offset + length
        return tuple(pair for pair in pairs if pair[1]), real


def _shown(raw: bytes) -> str:
    """Bytes of an archive for a message."""
    text = raw.decode("utf-8", "replace")
    return repr(text if len(text) <= 80 else text[:77] + "...")  # noqa: PLR2004 - what fits on a line


def _xattrs(records: Mapping[str, bytes]) -> Mapping[str, bytes]:
    return {key[len(XATTR) :]: value for key, value in records.items() if key.startswith(XATTR)} or NO_XATTRS
