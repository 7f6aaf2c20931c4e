"""`coldstart image repack`: the same root file system in layers that pull fast."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from budget.estimate import Estimate
from budget.problems import bad_input
from scripts.failure import Failure
from scripts.figures import size
from scripts.images.codec import Codec
from scripts.images.cut import Cut, even_cut, pull_s
from scripts.images.findings import MOST_LAYERS, rule_of
from scripts.images.index import LayerIndex
from scripts.images.inspection import WORTH_S, codec_of_layers, sizes_of
from scripts.images.layer import Layer, Steps
from scripts.images.new_layer import LayerWriter, WrittenLayer
from scripts.images.places import Target, refuse_same, refuse_source_tag
from scripts.images.prediction import Puller, Sizes
from scripts.images.reading import read_layers, refuse_moved
from scripts.images.root import Root, merged
from scripts.images.source import OCI_CONFIG, OCI_MANIFEST, Image, LayerBlob, Source
from scripts.registry import Manifest

FROM = "dev.coldstart.repacked-from"
"""Annotation of the new manifest: digest of the one it was made from."""
TOOL = "coldstart image repack"
WORTH = 0.03
"""A cut that is predicted to save less than 3 % is not made: nobody would see it, and everybody would pull again."""
LAYER_TYPES: dict[Codec, str] = {
    "gzip": "application/vnd.oci.image.layer.v1.tar+gzip",
    "zstd": "application/vnd.oci.image.layer.v1.tar+zstd",
}
ROOM = 3.3
"""Scratch space per compressed byte: the tar streams (engine images: 1.9 to 2.2) and the new layers, with a margin."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Wish:
    """What is asked for.

    Attributes:
        layers: number of new layers; None leaves it to the simulator.
        codec: of the new layers; None keeps the image's own.
        drop_waste: leaves out files that a finding marks as safe to remove.
        keep: layers at the top that stay as they are, so that a code change stays small.
    """

    layers: int | None = None
    codec: Codec | None = None
    drop_waste: bool = False
    keep: int = 0


@dataclass(frozen=True, kw_only=True, slots=True)
class Repacked:
    """What was made.

    Attributes:
        unchanged: nothing was gained by another cut, so the layers are the source's own.
        dropped_bytes: content left out by `drop_waste`.
        hidden_bytes: content of the old layers that a later one deleted or replaced.
        sent_bytes: of layers that were not there.
    """

    source: Image
    target: str
    digest: str
    codec: Codec
    before: Sequence[Sizes]
    after: Sequence[Sizes]
    before_pull: Estimate
    after_pull: Estimate
    unchanged: bool
    dropped_files: int
    dropped_bytes: int
    hidden_bytes: int
    sent_bytes: int


def repack(
    source: Source,
    target: Target,
    architecture: str,
    puller: Puller,
    wish: Wish,
    *,
    index: LayerIndex,
    meter: Steps,
) -> Repacked:
    """Reads an image, cuts its files into new layers, and writes them to the target.

    Args:
        source: the image.
        target: where the new one goes; never the source's own tag.
        architecture: `amd64` or `arm64`.
        puller: the node that the cut is made for.
        wish: what is asked for.
        index: told of every layer that was read.
        meter: makes a progress meter for a step and its bytes.

    Raises:
        BadInput: a wish that the image can't fulfil.
        Failure: reading or writing fails; the target's tag is then as it was.
    """
    refuse_same(source, target)
    image = source.image(architecture)
    refuse_source_tag(image, target)
    _check(image, wish)
    cut_layers = len(image.layers) - wish.keep
    with tempfile.TemporaryDirectory(prefix="coldstart-repack-") as folder:
        scratch = Path(folder)
        _check_room(image, scratch)
        spools = [scratch / f"{position}.tar" for position in range(cut_layers)]
        with meter("reading", image.bytes) as progress:
            layers = read_layers(source, image, index=index, meter=progress, spools=[*spools, *[None] * wish.keep])
        refuse_moved(source, image)
        return _Repack(source, target, image, layers, puller, wish, scratch, _first_spools(image, spools)).run(meter)


def _check(image: Image, wish: Wish) -> None:
    if wish.keep >= len(image.layers):
        raise bad_input(
            "--keep", f"{image.name} has {len(image.layers)} layers", f"Allowed: 0 to {len(image.layers) - 1}."
        )
    if wish.layers is not None and wish.layers + wish.keep > MOST_LAYERS:
        raise bad_input("--layers", f"{wish.layers} and {wish.keep} kept", f"Allowed: {MOST_LAYERS} layers in all.")


def _check_room(image: Image, scratch: Path) -> None:
    free, needed = shutil.disk_usage(scratch).free, int(ROOM * image.bytes)
    if free < needed:
        raise Failure(
            f"{scratch.parent} has {size(free)} free, {image.name} needs about {size(needed)}: "
            "set TMPDIR to a larger disk"
        )


def _first_spools(image: Image, spools: Sequence[Path]) -> Sequence[Path]:
    """A layer that occurs twice was spooled once."""
    first: dict[str, Path] = {}
    return [first.setdefault(blob.digest, spool) for blob, spool in zip(image.layers, spools, strict=False)]


@dataclass(slots=True)
class _Dropped:
    files: int = 0
    bytes: int = 0


class _Repack:
    """One image being cut again; every step needs what the steps before it found."""

    def __init__(
        self,
        source: Source,
        target: Target,
        image: Image,
        layers: Sequence[Layer],
        puller: Puller,
        wish: Wish,
        scratch: Path,
        spools: Sequence[Path],
    ) -> None:
        self._source, self._target, self._image, self._layers = source, target, image, layers
        self._puller, self._wish, self._scratch, self._spools = puller, wish, scratch, spools
        self._old = layers[: len(layers) - wish.keep]
        self._kept_blobs = image.layers[len(layers) - wish.keep :]
        self._codec: Codec = wish.codec or codec_of_layers(layers)
        self._before = sizes_of(layers, stored_compressed=image.stored_compressed)

    def run(self, meter: Steps) -> Repacked:
        """See `repack`."""
        root = merged(self._old, self._image.name)
        dropped = _drop(root) if self._wish.drop_waste else _Dropped()
        now = self._puller.soci(self._before, codec_of_layers(self._layers))
        kept_sizes = self._before[len(self._old) :]
        packed = self._packed(root)
        cut = even_cut(root, self._puller, self._codec, packed=packed, count=self._wish.layers, kept=kept_sizes)
        unchanged = self._is_pointless(cut, now, dropped)
        written = () if unchanged else self._write(root, cut, meter)
        after = self._sizes_after(written, kept_sizes)
        config = self._image.config if unchanged else self._config(written)
        sent = self._send(config, written, unchanged=unchanged, meter=meter)
        codec = self._codec if written else codec_of_layers(self._layers)
        return Repacked(
            source=self._image,
            target=self._target.name,
            digest=sent[0],
            codec=codec,
            before=self._before,
            after=after,
            before_pull=now,
            after_pull=self._puller.soci(after, codec),
            unchanged=unchanged,
            dropped_files=dropped.files,
            dropped_bytes=dropped.bytes,
            hidden_bytes=sum(hidden.entry.packed_bytes for hidden in root.hidden),
            sent_bytes=sent[1],
        )

    def _packed(self, root: Root) -> float:
        """Compressed bytes that the cut layers will have: the old ones' less what is hidden in them."""
        sizes = self._before[: len(self._old)]
        return sum(each.bytes for each in sizes) - sum(hidden.entry.packed_bytes for hidden in root.hidden)

    def _is_pointless(self, cut: Cut | None, now: Estimate, dropped: _Dropped) -> bool:
        """Whether the layers can stay as they are. Asked-for numbers, codecs and removals are always carried out."""
        asked = self._wish.layers is not None or self._codec != codec_of_layers(self._layers) or dropped.files > 0
        plain = any(layer.codec == "none" for layer in self._layers)
        if asked or plain or cut is None or not self._image.stored_compressed:
            return False
        now_s = pull_s(now, len(self._layers))
        return now_s - pull_s(cut.estimate, len(cut.layers) + self._wish.keep) < max(WORTH_S, WORTH * now_s)

    # -- writing ------------------------------------------------------------------------------------------------

    def _write(self, root: Root, cut: Cut | None, meter: Steps) -> Sequence[WrittenLayer]:
        writer = LayerWriter(root, self._spools, self._codec)
        contents = cut.layers if cut is not None else [()]
        workers = min(os.cpu_count() or 1, len(contents))
        total = sum(layer.unpacked_bytes for layer in self._old)
        with meter("cutting", total) as progress, ThreadPoolExecutor(workers, thread_name_prefix="cut") as pool:

            def write(position: int) -> WrittenLayer:
                # The first layer has every folder, so that empty ones are kept; the others have those they need.
                folders = writer.folders if position == 0 else ()
                where = f"{self._target.name}: new layer {position}"
                layer = writer.write(contents[position], folders, self._scratch / f"new-{position}", where)
                progress(layer.unpacked_bytes)
                return layer

            return list(pool.map(write, range(len(contents))))

    def _sizes_after(self, written: Sequence[WrittenLayer], kept: Sequence[Sizes]) -> Sequence[Sizes]:
        if not written:
            return self._before
        return [*(Sizes(bytes=each.bytes, unpacked_bytes=each.unpacked_bytes) for each in written), *kept]

    def _config(self, written: Sequence[WrittenLayer]) -> Mapping[str, Any]:
        """The configuration with new layers. What made the old ones is told on, as steps without a layer."""
        config = dict(self._image.config)
        history = [dict(entry) for entry in cast("Sequence[Mapping[str, Any]]", config.get("history") or ())]
        cut_steps = _steps_of(history, len(self._old), len(self._image.layers))
        for entry in history[:cut_steps]:
            entry["empty_layer"] = True
        made = [
            {
                "created": config.get("created", "1970-01-01T00:00:00Z"),
                "created_by": f"{TOOL}: {layer.files} files of {self._image.digest}",
                "comment": TOOL,
            }
            for layer in written
        ]
        kept_steps = history[cut_steps:] or [{"created_by": "", "comment": TOOL}] * self._wish.keep
        rootfs = {"type": "layers", "diff_ids": [layer.diff_id for layer in written]}
        rootfs["diff_ids"] = [*rootfs["diff_ids"], *(blob.diff_id for blob in self._kept_blobs)]
        return config | {"rootfs": rootfs, "history": [*history[:cut_steps], *made, *kept_steps]}

    # -- sending ------------------------------------------------------------------------------------------------

    def _send(
        self,
        config: Mapping[str, Any],
        written: Sequence[WrittenLayer],
        *,
        unchanged: bool,
        meter: Steps,
    ) -> tuple[str, int]:
        """Sends what is missing, the manifest last. Returns its digest and the bytes of layers sent."""
        kept = self._image.layers if unchanged else self._kept_blobs
        total = sum(layer.bytes for layer in written) + sum(blob.bytes for blob in kept)
        sent = 0
        with meter("sending", total) as progress:
            for layer in written:
                if not self._target.has_blob(layer.digest):
                    self._target.put_file(layer.digest, layer.path)
                    sent += layer.bytes
                progress(layer.bytes)
            for blob in kept:
                if not self._target.has_blob(blob.digest):
                    origin = getattr(self._source, "reference", None)
                    self._target.put_stream(blob.digest, blob.bytes, self._source.open(blob), origin)
                    sent += blob.bytes
                progress(blob.bytes)
        content = _json(config)
        digest = _digest(content)
        if not self._target.has_blob(digest):
            self._target.put_bytes(digest, content)
        manifest = self._manifest(digest, len(content), written, kept)
        refuse_moved(self._source, self._image)
        self._target.put_manifest(manifest)
        return manifest.digest, sent

    def _manifest(
        self, config_digest: str, config_bytes: int, written: Sequence[WrittenLayer], kept: Sequence[LayerBlob]
    ) -> Manifest:
        """An OCI manifest: Docker's own kind has no zstd layers and no annotations."""
        layers = [
            {"mediaType": LAYER_TYPES[self._codec], "digest": layer.digest, "size": layer.bytes} for layer in written
        ]
        layers += [{"mediaType": oci_type(blob.media_type), "digest": blob.digest, "size": blob.bytes} for blob in kept]
        annotations = dict(cast("Mapping[str, str]", self._image.manifest.get("annotations") or {}))
        content = _json(
            {
                "schemaVersion": 2,
                "mediaType": OCI_MANIFEST,
                "config": {"mediaType": OCI_CONFIG, "digest": config_digest, "size": config_bytes},
                "layers": layers,
                "annotations": annotations | {FROM: self._image.digest},
            }
        )
        return Manifest(digest=_digest(content), media_type=OCI_MANIFEST, content=content)


def _steps_of(history: Sequence[Mapping[str, Any]], layers: int, of: int) -> int:
    """How many steps of the history made the first `layers` layers; all of them when the history doesn't fit."""
    made = [position for position, entry in enumerate(history) if not entry.get("empty_layer")]
    if len(made) != of or layers >= of:
        return len(history)
    return made[layers]


def _drop(root: Root) -> _Dropped:
    """Removes files that a rule marks as safe to remove, and the folders that are empty then and weren't before."""
    dropped = _Dropped()
    doomed = [
        path
        for path, node in root.walk()
        if node.entry is not None
        and node.entry.kind in ("file", "symlink")
        and (rule := rule_of(path, node.entry.content_bytes)) is not None
        and rule.safe
    ]
    for path in doomed:
        folder, _, name = path.rpartition("/")
        node = root.top
        for step in folder.split("/") if folder else ():
            node = (node.children or {})[step]
        gone = (node.children or {}).pop(name)
        dropped.files += 1
        dropped.bytes += gone.entry.content_bytes if gone.entry is not None else 0
    return dropped


def oci_type(media_type: str) -> str:
    """The OCI name of a layer's media type: an OCI manifest should not list Docker's."""
    docker = {
        "application/vnd.docker.image.rootfs.diff.tar.gzip": LAYER_TYPES["gzip"],
        "application/vnd.docker.image.rootfs.diff.tar.zstd": LAYER_TYPES["zstd"],
        "application/vnd.docker.image.rootfs.diff.tar": "application/vnd.oci.image.layer.v1.tar",
    }
    return docker.get(media_type, media_type)


def _json(document: Mapping[str, Any]) -> bytes:
    return json.dumps(document, separators=(",", ":"), ensure_ascii=False).encode()


def _digest(content: bytes) -> str:
    return f"sha256:{hashlib.sha256(content).hexdigest()}"
