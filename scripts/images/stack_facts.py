"""What is found out about an image and belongs into its stack file: the layers, from which plans predict, its place."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from infra.stack_file import PROJECT
from scripts.images.codec import Codec
from scripts.images.prediction import Sizes
from scripts.stack_edit import edited, in_a_line


def write_image(path: Path, image: str) -> None:
    """Writes another place of the image into a model's stack file."""
    with edited(path) as config:
        config[f"{PROJECT}:model"]["image"] = image


def write_image_facts(path: Path, sizes: Sequence[Sizes], waste: Sequence[int], codec: Codec) -> None:
    """Writes what an inspection found into a model's stack file.

    Args:
        path: of the stack file.
        sizes: of the layers of its image, in image order.
        waste: compressed bytes in each that do not belong there.
        codec: what they are compressed with.
    """
    layers = [round(each.bytes) for each in sizes]
    with edited(path) as config:
        model = config[f"{PROJECT}:model"]
        digest = str(model["image"]).partition("@")[2]
        model["image_facts"] = ({"digest": digest} if digest else {}) | {
            "compressed_bytes": sum(layers),
            "layers": in_a_line(layers),
            "unpacked_layers": in_a_line([round(each.unpacked_bytes) for each in sizes]),
            "waste_layers": in_a_line(waste),
            "codec": codec,
        }
