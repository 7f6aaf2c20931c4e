"""All files of a model, several at a time, in bounded memory; the first failure stops the rest."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import FIRST_EXCEPTION, Future, ThreadPoolExecutor, wait
from contextlib import ExitStack

from budget.staged import StagedFile, StagedModel
from scripts.staging.bucket import Bucket
from scripts.staging.buffers import Buffers, Closed
from scripts.staging.meter import Meter
from scripts.staging.parts import MIB
from scripts.staging.reading import Reader
from scripts.staging.source import Source, SourceFile
from scripts.staging.upload import FileUpload

MEMORY_BYTES = 192 * MIB
"""For bytes on their way. Python, boto3 and the hub's client take about 100 MiB beside it."""
FILES_AT_ONCE = 4
"""Each file is hashed by one thread at 0.8 to 2 GB/s, so four saturate a 25 Gbit/s network or four cores."""
READERS = 16
SENDERS = 24
"""As many parts of 8 MiB as the memory holds; at the 85 to 90 MB/s that S3 gives one connection (S3 performance
guide), 24 of them carry 16 Gbit/s."""


def transfer(
    source: Source,
    files: Sequence[SourceFile],
    *,
    bucket: Bucket,
    model: StagedModel,
    unfinished: Mapping[str, str],
    meter: Meter,
) -> Sequence[StagedFile]:
    """Puts the files under the model's prefix.

    Args:
        source: where they are read.
        files: which of them.
        bucket: where they go.
        model: names the prefix.
        unfinished: key → id of an upload that an earlier run left.
        meter: told of every byte.

    Returns:
        The files with their hashes, sorted by path.

    Raises:
        Failure: of the first file that failed; what was sent stays for the next run.
        KeyboardInterrupt: the same, when interrupted.
    """
    at_once = max(1, min(FILES_AT_ONCE, len(files)))
    buffers = Buffers(MEMORY_BYTES)
    with ExitStack() as stack:
        reader = Reader(
            threads=_pool(stack, READERS, "read"), buffers=buffers, ahead_bytes=MEMORY_BYTES // 2 // at_once
        )
        senders = _pool(stack, SENDERS, "send")
        pool = _pool(stack, at_once, "file")
        # Large files first: one that starts last would run alone at the end.
        ordered = sorted(files, key=lambda file: -file.bytes)
        futures = [
            pool.submit(
                FileUpload(
                    source=source,
                    file=file,
                    bucket=bucket,
                    key=model.key(file.path),
                    unfinished=unfinished.get(model.key(file.path)),
                    reader=reader,
                    senders=senders,
                    meter=meter,
                ).run
            )
            for file in ordered
        ]
        try:
            done, _ = wait(futures, return_when=FIRST_EXCEPTION)
            _raise_first(done)
        finally:
            buffers.close()
    return sorted((future.result() for future in futures), key=lambda file: file.path)


def _pool(stack: ExitStack, threads: int, name: str) -> ThreadPoolExecutor:
    """A pool that drops what it has not begun once the work is over."""
    pool = ThreadPoolExecutor(threads, thread_name_prefix=name)
    stack.callback(pool.shutdown, wait=True, cancel_futures=True)
    return pool


def _raise_first(done: set[Future[StagedFile]]) -> None:
    """Raises the failure that came first; the others were caused by the stop."""
    errors = [future.exception() for future in done]
    for error in errors:
        if error is not None and not isinstance(error, Closed):
            raise error
