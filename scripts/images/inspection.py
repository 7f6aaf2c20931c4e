"""`coldstart image inspect`: an image explained, and what its pull costs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from budget.estimate import Estimate
from budget.image import without_waste
from budget.scenario import LayerCase
from scripts.figures import size
from scripts.images.codec import Codec
from scripts.images.cut import LAYER_S, even_cut
from scripts.images.findings import Finding, findings
from scripts.images.index import LayerIndex
from scripts.images.layer import Layer, Meter
from scripts.images.prediction import Puller, Sizes
from scripts.images.reading import read_layers, refuse_moved
from scripts.images.root import Root, merged
from scripts.images.source import Image, Source

ASSUMED_RATIO = 1.95
"""Unpacked / compressed where a source keeps layers uncompressed and nobody knows what a registry would store: the
budget's own figure for engine images (measured pulls: 1.86 to 1.95)."""
ZSTD_SHARE = 0.9
"""zstd against gzip for the same layers: 8 to 20 % smaller (containerd#13559's survey of popular images)."""
WORTH_S = 0.1
"""What saves less is not worth saying, or doing."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Action:
    """Something to do, and what it saves of the predicted SOCI pull."""

    name: str
    what: str
    saves_s: float
    soci_s: float


@dataclass(frozen=True, kw_only=True, slots=True)
class Inspection:
    """An image that was read.

    Attributes:
        sizes: of the layers, as a pull sees them.
        soci: predicted pull with SOCI tuned for the instance.
        containerd: predicted pull with default containerd.
        waste: compressed bytes in each layer of what was found not to belong there.
        binding: index of the layer that a SOCI pull waits for last.
        actions: what to do, the largest saving first.
    """

    image: Image
    architecture: str
    layers: Sequence[Layer]
    root: Root
    findings: Sequence[Finding]
    puller: Puller
    sizes: Sequence[Sizes]
    waste: Sequence[int]
    soci: Estimate
    containerd: Estimate
    binding: int
    actions: Sequence[Action]

    @property
    def codec(self) -> Codec:
        """What most bytes are compressed with."""
        return codec_of_layers(self.layers)

    @property
    def unpacked_bytes(self) -> int:
        """Of all tar streams."""
        return sum(layer.unpacked_bytes for layer in self.layers)

    @property
    def files(self) -> int:
        """Names in the root file system."""
        return sum(1 for _ in self.root.walk()) - 1


def codec_of_layers(layers: Sequence[Layer]) -> Codec:
    """The codec of most bytes; plain layers count as gzip, which a registry client would make of them."""
    zstd = sum(layer.bytes for layer in layers if layer.codec == "zstd")
    return "zstd" if 2 * zstd > sum(layer.bytes for layer in layers) else "gzip"


def sizes_of(layers: Sequence[Layer], *, stored_compressed: bool) -> Sequence[Sizes]:
    """Layers as a pull sees them.

    Args:
        layers: of an image.
        stored_compressed: see `Image`; where they are not, plain ones count at the size they would have in a registry.
    """
    return [
        Sizes(
            bytes=layer.bytes if stored_compressed or layer.codec != "none" else layer.unpacked_bytes / ASSUMED_RATIO,
            unpacked_bytes=layer.unpacked_bytes,
        )
        for layer in layers
    ]


def inspect(
    source: Source, image: Image, architecture: str, puller: Puller, *, index: LayerIndex, meter: Meter
) -> Inspection:
    """Reads an image and explains it.

    Args:
        source: where its layers come from.
        image: what the source has for this architecture.
        architecture: of the instance, `amd64` or `arm64`.
        puller: the node that would pull it.
        index: layers known from earlier runs.
        meter: told of progress.

    Raises:
        Failure: anything in the way of reading it, or its tag moved meanwhile.
    """
    layers = read_layers(source, image, index=index, meter=meter)
    refuse_moved(source, image)
    root = merged(layers, image.name)
    found = findings(layers, root, image.config)
    sizes, codec = sizes_of(layers, stored_compressed=image.stored_compressed), codec_of_layers(layers)
    waste = _waste(found, sizes)
    soci = puller.soci(sizes, codec)
    return Inspection(
        image=image,
        architecture=architecture,
        layers=layers,
        root=root,
        findings=found,
        puller=puller,
        sizes=sizes,
        waste=waste,
        soci=soci,
        containerd=puller.containerd(sizes, codec),
        binding=_binding(sizes),
        actions=_actions(root, waste, puller, sizes, codec, soci.expected_s),
    )


def _binding(sizes: Sequence[Sizes]) -> int:
    return max(range(len(sizes)), key=lambda each: (sizes[each].unpacked_bytes, -each)) if sizes else 0


def _actions(
    root: Root, waste: Sequence[int], puller: Puller, sizes: Sequence[Sizes], codec: Codec, now_s: float
) -> Sequence[Action]:
    """Each action alone, predicted; those that save nothing are left out."""
    tried = [
        _even(root, puller, sizes, codec),
        _slim(waste, puller, sizes, codec),
        _zstd(puller, sizes, codec),
    ]
    actions = [
        Action(name=name, what=what, saves_s=now_s - seconds, soci_s=seconds)
        for name, what, seconds in filter(None, tried)
        if now_s - seconds >= WORTH_S
    ]
    return sorted(actions, key=lambda action: -action.saves_s)


Tried = tuple[str, str, float] | None


def _even(root: Root, puller: Puller, sizes: Sequence[Sizes], codec: Codec) -> Tried:
    cut = even_cut(root, puller, codec, packed=sum(each.bytes for each in sizes))
    if cut is None:
        return None
    largest = max(each.bytes for each in sizes)
    return (
        "repack",
        f"`coldstart image repack` into {len(cut.layers)} even layers; the largest now has {size(largest)}",
        cut.estimate.expected_s + LAYER_S * (len(cut.layers) - len(sizes)),
    )


def _waste(found: Sequence[Finding], sizes: Sequence[Sizes]) -> Sequence[int]:
    """A file may be found twice, as a header in a CUDA development package is: no layer holds more than itself."""
    waste = [0] * len(sizes)
    for finding in found:
        if finding.bytes:
            for layer, found_bytes in finding.layers.items():
                waste[layer] += found_bytes
    return [min(each, round(layer.bytes)) for each, layer in zip(waste, sizes, strict=True)]


def _slim(waste: Sequence[int], puller: Puller, sizes: Sequence[Sizes], codec: Codec) -> Tried:
    """Everything that was found, removed from its layer."""
    cases = [
        LayerCase(bytes=each.bytes, unpacked_bytes=each.unpacked_bytes, waste_bytes=gone)
        for each, gone in zip(sizes, waste, strict=True)
        if each.bytes
    ]
    slimmed = [Sizes(bytes=each.bytes, unpacked_bytes=each.unpacked_bytes or 0.0) for each in without_waste(cases)]
    if not slimmed:
        return None
    return "slim", f"remove what the findings name, {size(sum(waste))}", puller.soci(slimmed, codec).expected_s


def _zstd(puller: Puller, sizes: Sequence[Sizes], codec: Codec) -> Tried:
    if codec == "zstd":
        return None
    smaller = [Sizes(bytes=each.bytes * ZSTD_SHARE, unpacked_bytes=each.unpacked_bytes) for each in sizes]
    return "zstd", "compress with zstd instead of gzip (`repack --codec zstd`)", puller.soci(smaller, "zstd").expected_s
