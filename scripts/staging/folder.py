"""A model in a local folder: fine-tuned weights that no hub holds."""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from budget.problems import BadInput, Problem, bad_input
from scripts.failure import Failure
from scripts.staging.selection import select
from scripts.staging.source import SourceFile

_SAMPLES = 1_024
_SAMPLE_BYTES = 4_096
_WHOLE_BYTES = 16 * 2**20
"""Files up to this size enter the fingerprint whole."""


@dataclass(frozen=True, kw_only=True, slots=True)
class _Seen:
    """What a file looked like when it was listed."""

    bytes: int
    modified_ns: int


class FolderSource:
    """The files of a folder, as they were when it was listed.

    A folder has no commit. It is staged under a fingerprint of what an engine reads of it: paths, sizes, small files
    whole, and of large ones 1,024 pieces of 4 KiB spread evenly. Two checkpoints of one model differ in practically
    every piece; the rare pair that does not is told apart by the hashes in the manifest, and refused.
    """

    def __init__(self, folder: Path, *, name: str, trust_remote_code: bool) -> None:
        self._folder = folder
        self._seen = _listed(folder)
        self._open: dict[str, int] = {}
        self.name = name
        self.files: Sequence[SourceFile] = [
            SourceFile(path=path, bytes=seen.bytes) for path, seen in sorted(self._seen.items())
        ]
        self.revision = self._fingerprint(select(self.files, trust_remote_code=trust_remote_code).kept)
        self.requested_revision = self.revision

    @property
    def identity(self) -> str:
        """`folder:` and the fingerprint."""
        return f"folder:{self.revision}"

    def read_into(self, file: SourceFile, offset: int, buffer: memoryview) -> None:
        """See `Source`."""
        descriptor = self._descriptor(file.path)
        filled = 0
        while filled < len(buffer):
            try:
                count = os.preadv(descriptor, [buffer[filled:]], offset + filled)
            except OSError as error:
                raise Failure(f"{self._folder / file.path} cannot be read: {error.strerror}") from error
            if count == 0:
                raise Failure(
                    f"{self._folder / file.path} became shorter while it was read. Stage when nothing writes to it"
                )
            filled += count

    def check_unchanged(self) -> None:
        """See `Source`."""
        now = _listed(self._folder)
        changed = sorted(path for path in now.keys() | self._seen.keys() if now.get(path) != self._seen.get(path))
        if changed:
            raise Failure(
                f"{self._folder} changed while it was staged ({', '.join(changed[:3])}). "
                "Nothing was published; stage it when nothing writes to it"
            )

    def close(self) -> None:
        """Closes the files."""
        while self._open:
            os.close(self._open.popitem()[1])

    def _descriptor(self, path: str) -> int:
        # A second thread may open the same file at the same time; the loser closes its own.
        if path not in self._open:
            try:
                descriptor = os.open(self._folder / path, os.O_RDONLY)
            except OSError as error:
                raise Failure(f"{self._folder / path} cannot be opened: {error.strerror}") from error
            if self._open.setdefault(path, descriptor) != descriptor:
                os.close(descriptor)
        return self._open[path]

    def _fingerprint(self, files: Sequence[SourceFile]) -> str:
        digest = hashlib.sha256()
        for file in files:
            digest.update(f"{file.path}\0{file.bytes}\0".encode("utf-8", "surrogateescape"))
            for offset, length in sample(file.bytes):
                buffer = bytearray(length)
                self.read_into(file, offset, memoryview(buffer))
                digest.update(buffer)
        return digest.hexdigest()[:40]


def sample(file_bytes: int) -> Iterator[tuple[int, int]]:
    """(offset, length) of the pieces of a file that enter the fingerprint."""
    if file_bytes <= _WHOLE_BYTES:
        yield 0, file_bytes
        return
    last = file_bytes - _SAMPLE_BYTES
    for index in range(_SAMPLES):
        yield index * last // (_SAMPLES - 1), _SAMPLE_BYTES


def open_folder(folder: Path, *, name: str, trust_remote_code: bool = False) -> FolderSource:
    """Lists a folder.

    Raises:
        BadInput: no folder, nothing in it, links that lead out of it, things that are no files.
        Failure: it cannot be read.
    """
    if not folder.is_dir():
        raise bad_input("--source", f"{folder} is not a folder", "Name a folder, or hf:ORG/NAME@REVISION.")
    source = FolderSource(folder.resolve(), name=name, trust_remote_code=trust_remote_code)
    if not source.files:
        raise bad_input("--source", f"{folder} is empty", "Name the folder that holds config.json and the weights.")
    return source


def _listed(folder: Path) -> Mapping[str, _Seen]:
    problems: list[Problem] = []
    seen: dict[str, _Seen] = {}
    for path in _paths(folder):
        name = path.relative_to(folder).as_posix()
        problem = _problem(folder, path, name)
        if problem is not None:
            problems.append(problem)
            continue
        status = path.stat()
        seen[name] = _Seen(bytes=status.st_size, modified_ns=status.st_mtime_ns)
    if problems:
        raise BadInput(problems)
    return seen


def _paths(folder: Path) -> Iterator[Path]:
    def refuse(error: OSError) -> None:
        raise Failure(f"{error.filename} cannot be listed: {error.strerror}") from error

    for parent, folders, names in os.walk(folder, onerror=refuse):
        folders[:] = sorted(name for name in folders if name != ".git")
        for name in [*names, *(entry for entry in folders if Path(parent, entry).is_symlink())]:
            yield Path(parent, name)


def _problem(folder: Path, path: Path, name: str) -> Problem | None:
    if not path.exists():
        return Problem(ascii(name), "a link to nothing", "Restore what it points to, or remove it.")
    if not path.resolve().is_relative_to(folder):
        fix = "Copy the folder with its links followed (`cp -rL`); a hub cache is staged with --source hf:..."
        return Problem(ascii(name), f"a link that leaves the folder ({path.resolve()})", fix)
    if not stat.S_ISREG(path.stat().st_mode):
        return Problem(ascii(name), "not a regular file", "Remove it, or a link to it.")
    return None
