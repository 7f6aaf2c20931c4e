"""The mark of a paused stack in its stack file: the one line by which the program knows."""

from __future__ import annotations

from pathlib import Path

from budget.problems import BadInput
from infra.paused import CONFIG_KEY
from infra.stack_file import PROJECT, path_of
from scripts.stack_edit import edited

KEY = f"{PROJECT}:{CONFIG_KEY}"


def mark(stack: str, directory: Path, *, paused: bool) -> bool:
    """Writes or removes the mark and keeps everything else of the file; False when there is no file that parses.

    Raises:
        OSError: the file can't be written; it is as it was.
    """
    try:
        with edited(path_of(stack, directory)) as config:
            if paused:
                config[KEY] = True
            else:
                config.pop(KEY, None)
    except BadInput:
        return False
    return True
