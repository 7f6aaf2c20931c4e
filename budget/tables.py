"""Reads the data files that ship with this room: comment lines first, then plain CSV or JSON."""

from __future__ import annotations

import csv
import json
from importlib.resources import files
from typing import cast


def rows(name: str) -> list[dict[str, str]]:
    """The rows of a CSV data file of this room; leading lines that start with `#` say where it comes from."""
    lines = files("budget").joinpath(name).read_text(encoding="utf-8").splitlines()
    return list(csv.DictReader(line for line in lines if not line.startswith("#")))


def document(name: str) -> dict[str, object]:
    """A JSON data file of this room. Its `source` keys say where its numbers come from."""
    return cast("dict[str, object]", json.loads(files("budget").joinpath(name).read_text(encoding="utf-8")))
