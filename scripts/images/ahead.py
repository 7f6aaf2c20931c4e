"""Work that runs ahead of whoever consumes it: the stages of one layer, each on a thread of its own."""

from __future__ import annotations

from collections.abc import Iterator
from queue import SimpleQueue
from threading import Semaphore, Thread
from types import TracebackType
from typing import Self

PIECES_AHEAD = 1
"""Beside the one being made and the one being consumed. Each is 1 MiB at most; more of them gained nothing."""


class Ahead:
    """Pieces made on a thread, a few at most before they are asked for; left early, the thread ends soon.

    What the maker raises is raised where its pieces are consumed, after those made before.
    """

    def __init__(self, pieces: Iterator[bytes]) -> None:
        self._pieces = pieces
        self._made: SimpleQueue[bytes | BaseException | None] = SimpleQueue()
        self._room = Semaphore(PIECES_AHEAD)
        self._left = False
        self._thread = Thread(target=self._make, name="ahead", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._left = True
        self._room.release()
        self._thread.join()

    def _make(self) -> None:
        try:
            for piece in self._pieces:
                self._room.acquire()
                if self._left:
                    return
                self._made.put(piece)
            self._made.put(None)
        except BaseException as error:  # noqa: BLE001 - raised again where the pieces are consumed
            self._made.put(error)

    def __iter__(self) -> Iterator[bytes]:
        while (made := self._made.get()) is not None:
            if isinstance(made, BaseException):
                raise made
            self._room.release()
            yield made
        self._made.put(None)
