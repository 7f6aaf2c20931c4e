"""All layers of an image, several at a time; what was read before is not read again."""

from __future__ import annotations

import os
from collections.abc import Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from pathlib import Path

from scripts.failure import Failure
from scripts.images.index import LayerIndex
from scripts.images.layer import Layer, Meter, read_layer
from scripts.images.source import Image, Source

LAYERS_AT_ONCE = 4
"""Each inflates on one core and takes about 3 MiB; more would only shorten images without a fat layer."""


class _Interrupted(Exception):  # noqa: N818 - it ends a thread, nobody sees it
    """Another layer failed."""


def read_layers(
    source: Source, image: Image, *, index: LayerIndex, meter: Meter, spools: Sequence[Path | None] | None = None
) -> Sequence[Layer]:
    """Reads an image's layers, each distinct one once.

    Args:
        source: where the bytes come from.
        image: what to read.
        index: layers of earlier runs; every layer that is read is added as soon as it is whole.
        meter: told of compressed bytes.
        spools: where each layer's tar stream is kept; a layer with one is read even when it is known.

    Raises:
        Failure: of the first layer that failed; those read before it are in the index.
    """
    wanted = spools or [None] * len(image.layers)
    jobs: dict[str, tuple[int, Path | None]] = {}
    for position, (blob, spool) in enumerate(zip(image.layers, wanted, strict=True)):
        jobs.setdefault(blob.digest, (position, spool))
    stopped = False

    def stop_or_count(size: int) -> None:
        if stopped:
            raise _Interrupted
        meter(size)

    def read(position: int, spool: Path | None) -> Layer:
        blob = image.layers[position]
        known = index.find(blob.digest, blob.diff_id) if spool is None else None
        if known is not None:
            stop_or_count(blob.bytes)
            return known
        where = f"{image.name}: layer {position} ({blob.digest[7:19]})"
        layer = read_layer(source, blob, where, meter=stop_or_count, spool=spool)
        index.keep(layer)
        return layer

    workers = max(1, min(LAYERS_AT_ONCE, os.cpu_count() or 1, len(jobs)))
    with ThreadPoolExecutor(workers, thread_name_prefix="layer") as pool:
        largest_first = sorted(jobs, key=lambda digest: -image.layers[jobs[digest][0]].bytes)
        futures = {digest: pool.submit(read, *jobs[digest]) for digest in largest_first}
        try:
            done, _ = wait(futures.values(), return_when=FIRST_EXCEPTION)
            failed = [future for future in done if future.exception() is not None]
        except KeyboardInterrupt:
            stopped = True
            pool.shutdown(cancel_futures=True)
            raise
        if failed:
            stopped = True
            pool.shutdown(cancel_futures=True)
            failed[0].result()
    return [futures[blob.digest].result() for blob in image.layers]


def refuse_moved(source: Source, image: Image) -> None:
    """A tag that was moved while its image was read: what was seen is no longer what the name stands for.

    Raises:
        Failure: it was.
    """
    if source.moved(image):
        raise Failure(f"{source.name}: the tag moved while its image was read: run again, or name the image by digest")
