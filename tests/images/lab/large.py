"""What inspecting a large image takes: `python -m tests.images.lab.large [--gigabytes G] [--files N] [--layers L]`.

Makes an image of that many compressed bytes in an OCI layout: 60 % of them in one layer, and N tiny files in the first.
Then `coldstart image inspect` reads it in a process of its own, twice: the second time everything is known. Prints
seconds, processor time, the peak of resident memory, and what zlib alone takes for the same bytes on the same machine.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import random
import subprocess
import sys
import tarfile
import tempfile
import time
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

from tests.images.lab.build import LAB
from tests.images.lab.content import FAT_SHARE
from tests.images.synthetic import LAYER, write_layout_of

FILE_BYTES = 1 << 20
BLOCKS = 48
"""Different contents of files; each is compressed once and used again and again."""
NOISE_SHARE = 0.45
"""Of a file that deflate can't shrink; with text of 4 to 1 for the rest, 1.7 bytes out for each in."""
LEVEL = 6
TINY_BYTES = 200


@dataclass
class GzipLayer:
    """One gzip member written from pieces that were compressed alone: deflate may be joined at a full flush."""

    file: BinaryIO
    packed: object = field(default_factory=hashlib.sha256)
    unpacked: object = field(default_factory=hashlib.sha256)
    bytes: int = 0
    plain_bytes: int = 0
    crc: int = 0

    def __post_init__(self) -> None:
        self._write(bytes([0x1F, 0x8B, 8, 0, 0, 0, 0, 0, 0, 255]))

    def _write(self, piece: bytes) -> None:
        self.file.write(piece)
        self.packed.update(piece)
        self.bytes += len(piece)

    def add(self, plain: bytes, deflated: bytes) -> None:
        self._write(deflated)
        self.unpacked.update(plain)
        self.crc = zlib.crc32(plain, self.crc)
        self.plain_bytes += len(plain)

    def close(self) -> None:
        end = zlib.compressobj(LEVEL, zlib.DEFLATED, -15).flush()
        self._write(end + self.crc.to_bytes(4, "little") + (self.plain_bytes % 2**32).to_bytes(4, "little"))


def deflated(plain: bytes) -> bytes:
    packer = zlib.compressobj(LEVEL, zlib.DEFLATED, -15)
    return packer.compress(plain) + packer.flush(zlib.Z_FULL_FLUSH)


def header(path: str, size: int) -> bytes:
    entry = tarfile.TarInfo(path)
    entry.size, entry.mtime = size, 1_700_000_000
    return entry.tobuf(tarfile.GNU_FORMAT)


def contents() -> list[tuple[bytes, bytes]]:
    dice, words = random.Random(11), [b"attention", b"kernel", b"tensor ", b"def ", b"return\n", b"\0\0\0\0"]  # noqa: S311 - repeatable
    made = []
    for _ in range(BLOCKS):
        noise = dice.randbytes(int(FILE_BYTES * NOISE_SHARE))
        text = bytearray()
        while len(text) + len(noise) < FILE_BYTES:
            text += dice.choice(words) + bytes([dice.randrange(97, 123)])
        plain = bytes(text[: FILE_BYTES - len(noise)]) + noise
        made.append((plain, deflated(plain)))
    return made


def tiny_files(count: int) -> Iterator[tuple[bytes, bytes]]:
    """Files as an interpreter's packages have them: names of 60 characters, a few hundred bytes."""
    batch = b""
    for index in range(count):
        name = f"usr/lib/python3/dist-packages/package{index // 500:04d}/module_{index:06d}.py"
        batch += header(name, TINY_BYTES) + (f"# {index}\n".encode() * 40)[:TINY_BYTES].ljust(512, b"\0")
        if len(batch) > FILE_BYTES or index == count - 1:
            yield batch, deflated(batch)
            batch = b""


def write_image(folder: Path, gigabytes: float, files: int, layers: int) -> tuple[int, int]:
    """Writes the layout; returns compressed and unpacked bytes."""
    blobs = folder / "blobs" / "sha256"
    blobs.mkdir(parents=True)
    pool = contents()
    small = (1 - FAT_SHARE) / max(1, layers - 1)
    shares = [1.0] if layers == 1 else [FAT_SHARE if index == layers // 2 else small for index in range(layers)]
    listed, diff_ids, unpacked = [], [], 0
    for number, share in enumerate(shares):
        path = folder / "layer"
        with path.open("wb") as file:
            layer, index = GzipLayer(file), 0
            for piece in tiny_files(files) if number == 0 else ():
                layer.add(*piece)
            while layer.bytes < share * gigabytes * 1e9:
                head = header(
                    f"opt/venv/lib/python3.12/site-packages/p{number:02d}/d{index // 200:03d}/f{index:05d}.so",
                    FILE_BYTES,
                )
                plain, packed = pool[index % BLOCKS]
                layer.add(head, deflated(head))
                layer.add(plain, packed)
                index += 1
            layer.add(bytes(1024), deflated(bytes(1024)))
            layer.close()
        name = layer.packed.hexdigest()
        path.rename(blobs / name)
        listed.append({"mediaType": f"{LAYER}+gzip", "digest": f"sha256:{name}", "size": layer.bytes})
        diff_ids.append(f"sha256:{layer.unpacked.hexdigest()}")
        unpacked += layer.plain_bytes
    write_layout_of(folder, listed, diff_ids)
    return sum(each["size"] for each in listed), unpacked


def inspected(folder: Path) -> dict[str, float]:
    """One run of the command."""
    argv = [str(Path(sys.executable).with_name("coldstart")), "image", "inspect", f"oci:{folder}/image:v1", "--json"]
    environment = os.environ | {"XDG_CACHE_HOME": str(folder / "cache")}
    began = time.monotonic()
    with (folder / "out.json").open("w") as out:
        process = subprocess.Popen(argv, stdout=out, stderr=subprocess.DEVNULL, env=environment)
        _, status, used = os.wait4(process.pid, 0)
    seconds = time.monotonic() - began
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode != 0:
        raise RuntimeError(f"inspect ended with {process.returncode}")
    return {
        "seconds": round(seconds, 1),
        "cpu_s": round(used.ru_utime + used.ru_stime, 1),
        "peak_mb": round(used.ru_maxrss * 1024 / 1e6, 1),
    }


def zlib_alone(image: Path) -> float:
    """Unpacked bytes a second on one core, inflated to nowhere: half a gigabyte of the largest layer."""
    blob = max((image / "blobs" / "sha256").iterdir(), key=lambda path: path.stat().st_size)
    packed, made = blob.open("rb").read(1 << 29), 0
    unpacker, began = zlib.decompressobj(31), time.process_time()
    for at in range(0, len(packed), 1 << 16):
        made += len(unpacker.decompress(packed[at : at + (1 << 16)]))
    return made / (time.process_time() - began)


def main() -> int:
    """Makes, reads, prints one JSON document."""
    parser = argparse.ArgumentParser(description=__doc__.partition(":")[0])
    parser.add_argument("--gigabytes", type=float, default=10.0)
    parser.add_argument("--files", type=int, default=100_000)
    parser.add_argument("--layers", type=int, default=12)
    asked = parser.parse_args()
    LAB.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=LAB) as name:
        folder = Path(name)
        packed, unpacked = write_image(folder / "image", asked.gigabytes, asked.files, asked.layers)
        first, second = inspected(folder), inspected(folder)
        found = json.loads((folder / "out.json").read_text())
        alone = zlib_alone(folder / "image")
    print(  # noqa: T201 - a console program
        json.dumps(
            {
                "bytes": packed,
                "unpacked_bytes": unpacked,
                "files": found["files"],
                "first": first,
                "again": second,
                "unpacked_mb_per_cpu_s": round(unpacked / 1e6 / first["cpu_s"], 1),
                "zlib_alone_mb_s": round(alone / 1e6, 1),
            },
            indent=2,
        )
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
