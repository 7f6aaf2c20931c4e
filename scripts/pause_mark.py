"""The mark of a paused stack in its stack file: the one line by which the program knows."""

from __future__ import annotations

import io
import os
from pathlib import Path
from typing import Any, cast

from ruamel.yaml import YAML, YAMLError

from budget.problems import BadInput
from infra.paused import CONFIG_KEY
from infra.stack_file import PROJECT, path_of

KEY = f"{PROJECT}:{CONFIG_KEY}"


def mark(stack: str, directory: Path, *, paused: bool) -> bool:
    """Writes or removes the mark and keeps everything else of the file; False when there is no file that parses.

    The file is replaced whole: an interrupted write leaves the old one.
    """
    try:
        path = path_of(stack, directory)
    except BadInput:
        return False
    yaml = YAML()
    yaml.preserve_quotes = True
    yaml.width = 4096
    try:
        document = cast("object", yaml.load(path.read_text(encoding="utf-8")))
    except YAMLError:
        return False
    found = cast("dict[str, object]", document).get("config") if isinstance(document, dict) else None
    if not isinstance(found, dict):
        return False
    config = cast("dict[str, Any]", found)
    if bool(config.get(KEY)) == paused:
        return True
    if paused:
        config[KEY] = True
    else:
        del config[KEY]
    text = io.StringIO()
    yaml.dump(document, text)
    fresh = path.with_suffix(".yaml.new")
    fresh.write_text(text.getvalue(), encoding="utf-8")
    os.replace(fresh, path)  # noqa: PTH105 - Path.replace is the same; this one says atomic
    return True
