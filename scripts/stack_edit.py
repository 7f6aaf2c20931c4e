"""A stack file changed in its place: comments, order and quotes stay, and it is replaced whole or not at all."""

from __future__ import annotations

import io
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

from ruamel.yaml import YAML, YAMLError
from ruamel.yaml.comments import CommentedSeq

from budget.problems import bad_input


@contextmanager
def edited(path: Path, *, without_comment: str | None = None) -> Generator[dict[str, Any]]:
    """The `config` of a stack file, to be changed; it is written when the block ends without an error.

    Args:
        path: of the stack file.
        without_comment: lines that hold this text go.

    Raises:
        BadInput: the file is not YAML, or has no `config`.
        OSError: it can't be read or written; it is as it was.
    """
    yaml = YAML()
    yaml.preserve_quotes = True
    yaml.width = 4096
    yaml.indent(mapping=2, sequence=4, offset=2)
    try:
        document = cast("object", yaml.load(path.read_text(encoding="utf-8")))
    except YAMLError as error:
        raise bad_input(path.name, "is not YAML", "Mend it by hand, or take it from version control.") from error
    config = cast("dict[str, object]", document).get("config") if isinstance(document, dict) else None
    if not isinstance(config, dict):
        raise bad_input(path.name, "has no config", "A stack file holds its settings below `config:`.")
    yield cast("dict[str, Any]", config)
    text = io.StringIO()
    yaml.dump(document, text)
    lines = text.getvalue().splitlines(keepends=True)
    fresh = path.with_suffix(".yaml.new")
    fresh.write_text("".join(line for line in lines if not without_comment or without_comment not in line), "utf-8")
    fresh.replace(path)


def in_a_line(numbers: Sequence[int]) -> CommentedSeq:
    """A list as `[1, 2]`, which a dozen layers fit into."""
    sequence = CommentedSeq(numbers)
    sequence.fa.set_flow_style()
    return sequence
