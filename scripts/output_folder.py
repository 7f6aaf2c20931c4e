"""A folder that a verb is asked to write into: it may be missing, but nothing else may stand in its place."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import click


class OutputFolder(click.Path):
    """The type of an option that names one: refuses what can't become a folder, before any work is done for it."""

    def __init__(self) -> None:
        super().__init__(path_type=Path)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:  # noqa: ANN401 - click's signature
        """The path.

        Raises:
            BadParameter: a file or a device is there, or above it.
        """
        path = Path(os.fsdecode(super().convert(value, param, ctx)))
        there = next(each for each in (path, *path.absolute().parents) if each.exists())
        if not there.is_dir():
            self.fail(f"{there} is not a folder. Name a folder; it is made where there is none.", param, ctx)
        return path
