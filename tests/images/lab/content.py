"""Images of realistic content for pulls: files of this project's own virtual environment, and noise."""

from __future__ import annotations

import random
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from tests.images.synthetic import MadeImage, Tar, image

FAT_SHARE = 0.6
"""Of the bytes in the fat layer: what published engine images have in the one with the Python packages."""
FAT_INDEX, LAYERS = 6, 12
NOISE_SHARE = 0.25
"""Of every file, so that all layers compress alike: weights, cubins and compressed data in real images."""
FILE_BYTES = 1 << 20


def pool(total_bytes: int, seed: int = 7) -> Iterator[tuple[str, bytes]]:
    """Files of about 1 MiB until the total is reached; the same on every run on the same environment."""
    dice = random.Random(seed)  # noqa: S311 - repeatable noise, nothing secret
    text = _real_bytes()
    made = index = 0
    while made < total_bytes:
        noise = dice.randbytes(int(FILE_BYTES * NOISE_SHARE))
        real = bytearray()
        while len(real) + len(noise) < FILE_BYTES:
            real += next(text)
        content = bytes(real[: FILE_BYTES - len(noise)]) + noise
        yield f"opt/d{index % 20:02d}/f{index:05d}", content
        made, index = made + len(content), index + 1


def _real_bytes() -> Iterator[bytes]:
    files = sorted(
        path for path in Path(sys.prefix).rglob("*") if path.suffix in (".py", ".so", ".pyi") and path.is_file()
    )
    while True:
        for path in files:
            yield path.read_bytes()


def shares(layout: str) -> Sequence[float]:
    """Each layer's share of the bytes."""
    if layout == "one":
        return [1.0]
    if layout == "even":
        return [1 / LAYERS] * LAYERS
    small = (1 - FAT_SHARE) / (LAYERS - 1)
    return [FAT_SHARE if index == FAT_INDEX else small for index in range(LAYERS)]


def laid_out(layout: str, total_bytes: int, codec: str = "gzip") -> MadeImage:
    """The same files in the layers of a layout: `fat`, `even` or `one`; the first layer has something to run."""
    files = pool(total_bytes)
    layers: list[Tar] = []
    for position, share in enumerate(shares(layout)):
        layer = Tar().folder("opt")
        if position == 0:
            layer.folder("bin").file("bin/busybox", Path("/bin/busybox").read_bytes(), mode=0o755)
        written, folders = 0, set[str]()
        for name, content in files:
            folder = name.rpartition("/")[0]
            if folder not in folders:
                folders.add(folder)
                layer.folder(folder)
            layer.file(name, content)
            written += len(content)
            if written >= share * total_bytes:
                break
        layers.append(layer)
    return image(*layers, codec=codec)
