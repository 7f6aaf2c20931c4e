"""What is found out about an image and belongs into its stack file: the layers, from which plans predict, its place."""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

from ruamel.yaml import YAML

from budget.problems import bad_input
from infra.stack_file import PROJECT
from scripts.images.codec import Codec
from scripts.images.prediction import Sizes


def write_image(path: Path, image: str) -> None:
    """Writes another place of the image into a model's stack file; comments and order stay.

    Raises:
        BadInput: the file can't be written.
    """
    _edit(path, "image", image)


def write_facts(path: Path, sizes: Sequence[Sizes], waste: Sequence[int], codec: Codec) -> None:
    """Writes what an inspection found into a model's stack file; comments and order stay.

    Args:
        path: of the stack file.
        sizes: of the layers of its image, in image order.
        waste: compressed bytes in each that do not belong there.
        codec: what they are compressed with.

    Raises:
        BadInput: the file can't be written.
    """
    layers = [round(each.bytes) for each in sizes]
    facts = {
        "compressed_bytes": sum(layers),
        "layers": layers,
        "unpacked_layers": [round(each.unpacked_bytes) for each in sizes],
        "waste_layers": list(waste),
        "codec": codec,
    }
    _edit(path, "image_facts", facts)


def _edit(path: Path, key: str, value: object) -> None:
    yaml = YAML()
    yaml.preserve_quotes = True
    yaml.width = 4096
    document = cast("dict[str, Any]", yaml.load(path.read_text(encoding="utf-8")))
    model = cast("dict[str, Any]", document["config"][f"{PROJECT}:model"])
    model[key] = value
    text = io.StringIO()
    yaml.dump(document, text)
    try:
        path.write_text(text.getvalue(), encoding="utf-8")
    except OSError as error:
        raise bad_input(str(path), f"cannot be written: {error.strerror}", "Give yourself write access.") from error
