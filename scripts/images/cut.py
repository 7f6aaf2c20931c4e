"""Which file goes into which layer: files that belong together stay together, and no layer holds the others up."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush

from budget.estimate import Estimate
from scripts.images.codec import Codec
from scripts.images.prediction import Puller, Sizes
from scripts.images.root import Node, Root

COUNTS = (1, 2, 3, 4, 6, 8, 10, 12, 14, 16, 20, 24, 28, 32)
"""Numbers of layers that are tried. SOCI unpacks 12 at once at most; beyond 32 only the requests grow."""
GRAIN = 12
"""A unit is at most this fraction of a layer, so that the fullest layer exceeds the mean by a twelfth at most, unless a
single file is larger."""
GOOD_ENOUGH = 1.05
"""The fewest layers within 5 % of the fastest: what one size more would gain, nobody sees."""
LAYER_S = 0.01
"""What each layer costs besides its bytes, which the simulator does not count: a request, a process, a snapshot. On two
cores 500 MB in 4, 12 and 32 layers pulled in 1.47, 1.54 and 1.78 s (gzip), 1.32, 1.38 and 1.52 s (zstd): 7 to 11 ms."""
HEADER_BYTES = 512


@dataclass(slots=True)
class Inode:
    """Something with content or a name of its own: a file with all its names, a symlink, a device.

    Attributes:
        node: what it is.
        paths: its names, sorted; the first carries the content.
        bytes: about what it takes compressed.
        unpacked_bytes: of its tar entries.
    """

    node: Node
    paths: list[str]
    bytes: float = 0.0
    unpacked_bytes: int = 0


@dataclass(slots=True)
class Unit:
    """Inodes that stay together."""

    path: str
    inodes: list[Inode]
    bytes: float = 0.0
    unpacked_bytes: int = 0


@dataclass(slots=True)
class Bin:
    """The content of one new layer."""

    index: int
    bytes: float = 0.0
    unpacked_bytes: int = 0
    inodes: list[Inode] = field(default_factory=list[Inode])

    def __lt__(self, other: Bin) -> bool:
        """The emptier one first; its unpacked bytes are what a core is busy with."""
        return (self.unpacked_bytes, self.index) < (other.unpacked_bytes, other.index)

    def add(self, unit: Unit) -> None:
        """Takes a unit in."""
        self.bytes += unit.bytes
        self.unpacked_bytes += unit.unpacked_bytes
        self.inodes.extend(unit.inodes)


@dataclass(frozen=True, kw_only=True, slots=True)
class Cut:
    """A cut that was decided on.

    Attributes:
        layers: lowest first; each sorted by path.
        estimate: predicted SOCI pull.
    """

    layers: Sequence[Sequence[Inode]]
    sizes: Sequence[Sizes]
    estimate: Estimate


def even_cut(
    root: Root,
    puller: Puller,
    codec: Codec,
    *,
    packed: float,
    count: int | None = None,
    kept: Sequence[Sizes] = (),
) -> Cut | None:
    """The cut of a root file system that the simulated node pulls fastest.

    Args:
        root: what to cut.
        puller: the node.
        codec: of the new layers.
        packed: compressed bytes of everything, which the files' shares are scaled to.
        count: number of new layers; None leaves it to the simulator.
        kept: layers that stay as they are, above the new ones.

    Returns:
        None for an empty root.
    """
    inodes = inodes_of(root)
    if not inodes:
        return None
    _scale(inodes, packed)
    return _cut(inodes, count or _best_count(inodes, puller, codec, kept), puller, codec, kept)


def _best_count(inodes: Sequence[Inode], puller: Puller, codec: Codec, kept: Sequence[Sizes]) -> int:
    """The fewest layers that are predicted to pull about as fast as any number would."""
    seconds = {
        count: pull_s(puller.soci([*_ideal(inodes, count), *kept], codec), count + len(kept)) for count in COUNTS
    }
    best = min(seconds.values())
    return next(count for count in COUNTS if seconds[count] <= GOOD_ENOUGH * best)


def pull_s(estimate: Estimate, layers: int) -> float:
    """Seconds that a cut is compared by."""
    return estimate.expected_s + LAYER_S * layers


def _ideal(inodes: Sequence[Inode], count: int) -> Sequence[Sizes]:
    """What `count` layers would be if only single files could not be cut: those larger than a layer are one each."""
    large: list[Inode] = []
    rest = sorted(inodes, key=lambda inode: -inode.unpacked_bytes)[: count - 1]
    bytes_, unpacked = sum(inode.bytes for inode in inodes), sum(inode.unpacked_bytes for inode in inodes)
    for inode in rest:
        if inode.unpacked_bytes <= unpacked / (count - len(large)):
            break
        large.append(inode)
        bytes_, unpacked = bytes_ - inode.bytes, unpacked - inode.unpacked_bytes
    even = count - len(large)
    return [
        *(Sizes(bytes=inode.bytes, unpacked_bytes=inode.unpacked_bytes) for inode in large),
        *[Sizes(bytes=bytes_ / even, unpacked_bytes=unpacked / even)] * even,
    ]


def inodes_of(root: Root) -> list[Inode]:
    """Everything but folders, sorted by path; all names of an inode stay together, or it would be copied."""
    found: dict[int, Inode] = {}
    for path, node in root.walk():
        if node.is_folder or node.entry is None:
            continue
        inode = found.setdefault(id(node), Inode(node, []))
        inode.paths.append(path)
        inode.unpacked_bytes += HEADER_BYTES
    for inode in found.values():
        inode.paths.sort()
        entry = inode.node.entry
        if entry is not None:
            inode.bytes = float(entry.packed_bytes)
            inode.unpacked_bytes += -(-entry.stored_bytes // HEADER_BYTES) * HEADER_BYTES
    return sorted(found.values(), key=lambda inode: inode.paths[0])


def _scale(inodes: Sequence[Inode], packed: float) -> None:
    """Makes the shares sum to what is known of the whole: headers and padding belong to no file."""
    total = sum(inode.bytes for inode in inodes)
    unpacked = sum(inode.unpacked_bytes for inode in inodes) or 1
    for inode in inodes:
        inode.bytes = inode.bytes * packed / total if total else packed * inode.unpacked_bytes / unpacked


def _cut(inodes: Sequence[Inode], count: int, puller: Puller, codec: Codec, kept: Sequence[Sizes]) -> Cut:
    bins = _fill(inodes, count)
    for each in bins:
        each.inodes.sort(key=lambda inode: inode.paths[0])
    sizes = [Sizes(bytes=each.bytes, unpacked_bytes=each.unpacked_bytes) for each in bins]
    return Cut(layers=[each.inodes for each in bins], sizes=sizes, estimate=puller.soci([*sizes, *kept], codec))


def _fill(inodes: Sequence[Inode], count: int) -> list[Bin]:
    """The largest unit first, always into the emptiest layer (Graham's rule: at most 4/3 of the best there is)."""
    total = sum(inode.unpacked_bytes for inode in inodes)
    units = list(_units("", list(inodes), most=total / count / GRAIN))
    units.sort(key=lambda unit: (-unit.unpacked_bytes, unit.path))
    bins = [Bin(index) for index in range(min(count, len(units)))]
    heap = list(bins)
    heapify(heap)
    for unit in units:
        emptiest = heappop(heap)
        emptiest.add(unit)
        heappush(heap, emptiest)
    # The largest first: it is whole last, so its requests should not queue behind others.
    return sorted(bins, key=lambda each: (-each.bytes, each.index))


def _units(prefix: str, inodes: list[Inode], *, most: float) -> Iterator[Unit]:
    """Folders small enough to stay whole; larger ones are taken apart, down to single files."""
    size = sum(inode.unpacked_bytes for inode in inodes)
    if size <= most or len(inodes) == 1:
        yield Unit(prefix, inodes, sum(inode.bytes for inode in inodes), size)
        return
    parts: defaultdict[str, list[Inode]] = defaultdict(list)
    for inode in inodes:
        rest = inode.paths[0][len(prefix) :]
        head, slash, _ = rest.partition("/")
        parts[head + slash].append(inode)
    loose: list[Inode] = []
    for head, group in parts.items():
        if head.endswith("/"):
            yield from _units(prefix + head, group, most=most)
        elif group[0].unpacked_bytes > most / 2:
            yield Unit(prefix + head, group, group[0].bytes, group[0].unpacked_bytes)
        else:
            loose.extend(group)
    yield from _batches(prefix, loose, most)


def _batches(prefix: str, inodes: Sequence[Inode], most: float) -> Iterator[Unit]:
    """Small files of one folder, in batches of at most `most`."""
    batch = Unit(prefix, [])
    for inode in inodes:
        if batch.inodes and batch.unpacked_bytes + inode.unpacked_bytes > most:
            yield batch
            batch = Unit(inode.paths[0], [])
        batch.inodes.append(inode)
        batch.bytes += inode.bytes
        batch.unpacked_bytes += inode.unpacked_bytes
    if batch.inodes:
        yield batch
