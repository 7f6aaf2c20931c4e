"""Image pull: a fluid simulation that jumps from event to event.

What it reproduces, and how it was seen (containerd 2.2, soci-snapshotter 0.16, source and measured pulls):

* Requests take slots in the order the layers ask. A layer asks for its next chunk as soon as the last one got a slot,
  so the first layer to run takes every free slot, and from then on unfinished layers take turns. Whole-layer requests
  hold a slot until the layer is there.
* All open connections are equally fast: their own limit, or an equal share of the network.
* A layer is unpacked once it is whole, by one pipeline with a rate of its own; SOCI (and containerd with parallel
  unpacks) runs several at once in the order the layers became whole, default containerd one at a time in image order.
* Everything costs CPU; unpack pipelines share what downloads leave.
* Writes go to the page cache. Below the dirty allowance the disk is not felt; above it writers are held to its speed.
  Kept blobs are flushed one by one before they count as whole; discarded ones mostly never reach the disk.

Open connections share one virtual clock (bytes that one of them has carried), running unpacks another, flushes a third.
A piece of work ends when its clock reaches the value it had at the start plus the piece's bytes, so a change of rate
touches no queue and an event costs one heap operation.
"""

from __future__ import annotations

import math
from collections import defaultdict, deque
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from heapq import heappop, heappush
from typing import Literal

Snapshotter = Literal["soci", "overlayfs"]

MAX_REQUESTS = 1_500
"""Requests simulated per pull. Smaller chunks are merged up to this count: their size no longer matters then."""
BACKGROUND_SHARE = 2 / 3
"""Writeback starts at this share of the allowance: 10 % of memory against throttling near 15 % (kernel defaults)."""
COMMIT_FLUSH_BYTES = 16_000_000
"""Committing a layer fsyncs the snapshot database, which waits for data of the same journal transaction. Fitted on
pulls whose writes were throttled; it is felt on slow disks only."""
WRITEBACK_EFFICIENCY = 0.85
"""Share of the sequential rate that writeback of many unpacked files reaches, journal included. Fitted on the same."""
NO_LIMIT_BYTES_S = 1e15
"""Stands for an infinite rate: the clocks need finite ones."""
_TINY = 1e-9


@dataclass(frozen=True, kw_only=True, slots=True)
class Layer:
    """One layer.

    Attributes:
        bytes: compressed, as the manifest says.
        unpacked_bytes: of its tar stream.
    """

    bytes: float
    unpacked_bytes: float


@dataclass(frozen=True, kw_only=True, slots=True)
class PullSettings:
    """How a node pulls.

    Attributes:
        downloads: requests of one image at once.
        unpacks: layers of one image unpacked at once.
        chunk_bytes: size of one ranged request; None asks for whole layers.
        discard: blobs are dropped once unpacked, without a flush (SOCI's discard-unpacked-layers).
    """

    snapshotter: Snapshotter = "soci"
    downloads: int = 20
    unpacks: int = 12
    chunk_bytes: float | None = 16_000_000
    discard: bool = True

    @property
    def in_order(self) -> bool:
        """Default containerd applies layers one after another, each on top of the last."""
        return self.snapshotter == "overlayfs" and self.unpacks == 1

    @property
    def flushes_blobs(self) -> bool:
        """Blobs that stay in the content store are fsynced when they are complete."""
        return self.snapshotter == "overlayfs" or not self.discard


@dataclass(frozen=True, kw_only=True, slots=True)
class PullHost:
    """What a pull has to work with. Infinite rates are allowed and mean "no limit".

    Attributes:
        cores: CPU cores the pull may use.
        network_bytes_s: of the node.
        connection_bytes_s: one connection to the registry.
        unpack_bytes_s: output of one layer's unpack pipeline, its slowest stage.
        unpack_cpu_s_per_byte: CPU of unpacking, per byte of output.
        download_cpu_s_per_byte: CPU of downloading, per compressed byte.
        disk_bytes_s: sequential writes.
        dirty_bytes: unwritten data at which writers are held to the disk's speed.
        latency_s: manifest and config before the first layer byte.
    """

    cores: float
    network_bytes_s: float
    connection_bytes_s: float
    unpack_bytes_s: float
    unpack_cpu_s_per_byte: float = 0.0
    download_cpu_s_per_byte: float = 0.0
    disk_bytes_s: float = math.inf
    dirty_bytes: float = math.inf
    latency_s: float = 0.0


@dataclass(frozen=True, kw_only=True, slots=True)
class PullTrace:
    """What a simulated pull did.

    Attributes:
        seconds: from the call to the last layer unpacked.
        downloaded_s: when the last byte had arrived.
        bound_s: constraint → seconds during which it was what held the pull back.
        last_layer: index of the layer that finished last.
        events: steps the simulation took.
    """

    seconds: float
    downloaded_s: float
    bound_s: dict[str, float]
    last_layer: int
    events: int

    @property
    def bound_by(self) -> str:
        """The constraint that held the pull back longest."""
        return max(self.bound_s, key=lambda name: self.bound_s[name]) if self.bound_s else "nothing"


def pull(
    layers: Sequence[Layer], settings: PullSettings, host: PullHost, *, order: Sequence[int] | None = None
) -> PullTrace:
    """Simulates one pull.

    Args:
        layers: in image order.
        settings: how the node pulls.
        host: what it has.
        order: the order in which layers ask for slots; None is image order. Default containerd's is random.
    """
    return _Pull(layers, settings, host, list(order) if order is not None else list(range(len(layers)))).run()


@dataclass(slots=True)
class _Clock:
    """Work of equal speed: `value` is what one piece has done so far, the heap holds (value at its end, what it is)."""

    value: float = 0.0
    ends: list[tuple[float, int]] = field(default_factory=list[tuple[float, int]])

    def add(self, amount: float, item: int) -> None:
        heappush(self.ends, (self.value + amount, item))

    def wait_s(self, rate: float) -> float:
        """Seconds until the first piece ends at this rate."""
        if not self.ends or rate <= 0:
            return math.inf
        return max(0.0, self.ends[0][0] - self.value) / rate

    def advance(self, amount: float) -> None:
        self.value += amount

    def ended(self) -> list[int]:
        done: list[int] = []
        limit = self.value + _TINY * max(1.0, self.value)
        while self.ends and self.ends[0][0] <= limit:
            done.append(heappop(self.ends)[1])
        return done


@dataclass(frozen=True, slots=True)
class _Rates:
    """Bytes per second of one connection, one unpack, one flush, of writeback; growth of dirty data; what binds."""

    connection: float
    unpack: float
    flush: float
    drain: float
    dirty: float
    binds: str


def _finite(host: PullHost) -> PullHost:
    return replace(
        host,
        network_bytes_s=min(host.network_bytes_s, NO_LIMIT_BYTES_S),
        connection_bytes_s=min(host.connection_bytes_s, NO_LIMIT_BYTES_S),
        unpack_bytes_s=min(host.unpack_bytes_s, NO_LIMIT_BYTES_S),
    )


class _Pull:
    """The state of one simulated pull."""

    def __init__(self, layers: Sequence[Layer], settings: PullSettings, host: PullHost, order: list[int]) -> None:
        self.layers, self.settings, self.host = layers, settings, _finite(host)
        self.time = host.latency_s
        self.downloads, self.unpacks, self.flushes, self.commits = _Clock(), _Clock(), _Clock(), _Clock()
        self.chunk = self._chunk_bytes()
        self.unasked = [max(0.0, layer.bytes) for layer in layers]
        self.pending = [0] * len(layers)
        self.asking: deque[int] = deque(order)
        self.whole: deque[int] = deque()
        self.unpacked = [False] * len(layers)
        self.next_in_order = 0
        self.dirty = self.live = 0.0
        self.bound_s: defaultdict[str, float] = defaultdict(float)
        self.downloaded_s = self.time
        self.last = 0

    def _chunk_bytes(self) -> float:
        chunk = self.settings.chunk_bytes
        if not chunk:
            return math.inf
        return max(chunk, sum(layer.bytes for layer in self.layers) / MAX_REQUESTS)

    def run(self) -> PullTrace:
        self._ask_greedily()
        self._start_unpacks()
        events = 0
        while self.downloads.ends or self.unpacks.ends or self.flushes.ends or self.commits.ends:
            self._step()
            events += 1
        return PullTrace(
            seconds=self.time,
            downloaded_s=self.downloaded_s,
            bound_s=dict(self.bound_s),
            last_layer=self.last,
            events=events,
        )

    # -- slots ----------------------------------------------------------------------------------------------------

    def _ask_greedily(self) -> None:
        """At the start a layer takes every free slot it can use before the next layer runs."""
        waiting: deque[int] = deque()
        while self.asking:
            layer = self.asking.popleft()
            while self._free_slots() and self._ask(layer):
                pass
            if self.unasked[layer] > 0:
                waiting.append(layer)
        self.asking = waiting

    def _ask_in_turn(self) -> None:
        """A freed slot goes to the layer that has waited longest; it then queues again for its next chunk."""
        while self.asking and self._free_slots():
            layer = self.asking.popleft()
            self._ask(layer)
            if self.unasked[layer] > 0:
                self.asking.append(layer)

    def _free_slots(self) -> bool:
        # A blob being flushed still holds its slot: the fetch returns only when it is committed.
        return len(self.downloads.ends) + len(self.flushes.ends) < self.settings.downloads

    def _ask(self, layer: int) -> bool:
        size = min(self.unasked[layer], self.chunk)
        if self.layers[layer].bytes <= 0 and not self.pending[layer]:
            self._is_whole(layer)
            return False
        if size <= 0:
            return False
        self.unasked[layer] -= size
        self.pending[layer] += 1
        self.downloads.add(size, layer)
        return True

    # -- one step -------------------------------------------------------------------------------------------------

    def _step(self) -> None:
        rates = self._rates()
        wait = min(
            self.downloads.wait_s(rates.connection),
            self.unpacks.wait_s(rates.unpack),
            self.flushes.wait_s(rates.flush),
            self.commits.wait_s(rates.drain),
            self._dirty_wait_s(rates.dirty),
        )
        self.time += wait
        self.bound_s[rates.binds] += wait
        written = self._advance(rates, wait)
        self.live += written
        self.dirty = min(self.live, max(0.0, self.dirty + rates.dirty * wait))
        self._end_downloads()
        self._end_flushes()
        self._end_commits()
        self._end_unpacks()
        self._ask_in_turn()
        self._start_unpacks()

    def _advance(self, rates: _Rates, wait: float) -> float:
        """Moves the clocks; returns the bytes written to the page cache meanwhile."""
        written = 0.0
        for clock, rate in ((self.downloads, rates.connection), (self.unpacks, rates.unpack)):
            if clock.ends:
                written += rate * wait * len(clock.ends)
                clock.advance(rate * wait)
        if self.flushes.ends:
            self.flushes.advance(rates.flush * wait)
        if self.commits.ends:
            self.commits.advance(rates.drain * wait)
        return written

    def _rates(self) -> _Rates:
        host = self.host
        open_, running = len(self.downloads.ends), len(self.unpacks.ends)
        share = host.network_bytes_s / open_ if open_ else math.inf
        connection, binds = (
            (host.connection_bytes_s, "connection") if host.connection_bytes_s <= share else (share, "network")
        )
        if open_ and host.download_cpu_s_per_byte:
            connection = min(connection, host.cores / (host.download_cpu_s_per_byte * open_))
        unpack = host.unpack_bytes_s
        if running:
            if not open_:
                binds = "unpack"
            left = host.cores - (connection * open_ * host.download_cpu_s_per_byte if open_ else 0.0)
            if host.unpack_cpu_s_per_byte:
                by_cpu = max(left, _TINY * host.cores) / (running * host.unpack_cpu_s_per_byte)
                if by_cpu < unpack:
                    unpack, binds = by_cpu, "cpu"
        return self._held_to_disk(connection, unpack, binds)

    def _held_to_disk(self, connection: float, unpack: float, binds: str) -> _Rates:
        """Applies the disk: writeback, flushes, and writers slowed once too much is unwritten."""
        host, flushing = self.host, len(self.flushes.ends)
        inflow = len(self.downloads.ends) * connection if self.downloads.ends else 0.0
        inflow += len(self.unpacks.ends) * unpack if self.unpacks.ends else 0.0
        if not self.downloads.ends and not self.unpacks.ends:
            binds = "disk"
        if math.isinf(host.disk_bytes_s):
            return _Rates(connection, unpack, NO_LIMIT_BYTES_S, NO_LIMIT_BYTES_S, 0.0, binds)
        background = BACKGROUND_SHARE * host.dirty_bytes
        draining = bool(self.commits.ends) or self.dirty >= background * (1 - _TINY)
        share = host.disk_bytes_s / max(1, flushing + draining)
        drain = share * WRITEBACK_EFFICIENCY if draining else 0.0
        if draining and self.dirty >= host.dirty_bytes * (1 - _TINY) and inflow > drain:
            held = drain / inflow
            return _Rates(connection * held, unpack * held, share, drain, 0.0, "disk")
        growth = inflow - drain
        settled = background if not self.commits.ends else 0.0
        if growth < 0 and self.dirty <= settled * (1 + _TINY):
            growth = 0.0
        return _Rates(connection, unpack, share, drain, growth, binds)

    def _dirty_wait_s(self, growth: float) -> float:
        """Seconds until unwritten data crosses the next threshold."""
        background, ceiling = BACKGROUND_SHARE * self.host.dirty_bytes, self.host.dirty_bytes
        if growth > 0:
            above = [mark for mark in (background, ceiling) if mark > self.dirty * (1 + _TINY)]
            return (min(above) - self.dirty) / growth if above else math.inf
        if growth < 0 and self.dirty > background * (1 + _TINY):
            return (self.dirty - background) / -growth
        return math.inf

    # -- what ends ------------------------------------------------------------------------------------------------

    def _end_downloads(self) -> None:
        for layer in self.downloads.ended():
            self.pending[layer] -= 1
            if self.pending[layer] == 0 and self.unasked[layer] <= 0:
                self.downloaded_s = self.time
                if self.settings.flushes_blobs and math.isfinite(self.host.disk_bytes_s):
                    self.flushes.add(self._unwritten(self.layers[layer].bytes), layer)
                else:
                    self._is_whole(layer)

    def _unwritten(self, written: float) -> float:
        return written * (self.dirty / self.live if self.live > 0 else 0.0)

    def _end_flushes(self) -> None:
        for layer in self.flushes.ended():
            self.dirty = max(0.0, self.dirty - self._unwritten(self.layers[layer].bytes))
            self._is_whole(layer)

    def _end_commits(self) -> None:
        for layer in self.commits.ended():
            self._is_unpacked(layer)

    def _end_unpacks(self) -> None:
        for layer in self.unpacks.ended():
            if self.settings.discard:
                gone = self.layers[layer].bytes
                self.dirty -= self._unwritten(gone)
                self.live -= gone
            if self.dirty >= BACKGROUND_SHARE * self.host.dirty_bytes:
                self.commits.add(min(self.dirty, COMMIT_FLUSH_BYTES), layer)
            else:
                self._is_unpacked(layer)

    def _is_whole(self, layer: int) -> None:
        self.whole.append(layer)

    def _is_unpacked(self, layer: int) -> None:
        self.unpacked[layer] = True
        self.last = layer
        if self.settings.in_order:
            self.next_in_order = layer + 1

    def _start_unpacks(self) -> None:
        while self.whole and len(self.unpacks.ends) + len(self.commits.ends) < self.settings.unpacks:
            if not self.settings.in_order:
                layer = self.whole.popleft()
            elif self.next_in_order in self.whole:
                layer = self.next_in_order
                self.whole.remove(layer)
            else:
                return
            self.unpacks.add(self.layers[layer].unpacked_bytes, layer)
