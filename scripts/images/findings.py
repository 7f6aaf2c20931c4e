"""What is in an image that does not belong there: bytes, examples, the layer, and the remedy."""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, cast

from scripts.images.entry import Entry
from scripts.images.layer import Layer
from scripts.images.root import Root

EXAMPLES = 5
LEAST_LIBRARY_BYTES = 1_000_000
"""Small libraries share names by chance; twins that matter are large."""
MOST_LAYERS = 127
"""What the overlay snapshotters can stack (the kernel's option string, Docker's own limit)."""
ECR_LAYER_BYTES = 52_000 * 2**20
"""Largest layer of a private ECR repository (ECR service quotas)."""
EARLY_SHARE = 0.25
"""Of the bytes above a layer: changing the layer makes all of them new."""
WORLD_WRITABLE, STICKY = 0o002, 0o1000
SLASH = "(^|/)"
"""How a pattern begins that may match below any folder."""
NEVER = "(?!)"
_LIBRARY = re.compile(r"^(?P<stem>lib[\w+-]+?)(-[0-9a-f]{8})?\.so(\.[\w.]+)?$")
_CUDA = re.compile(r"(?:usr/local/cuda-|/nvidia_cuda_runtime[\w]*-)(\d+\.\d+)")
_BYTE_CODE = re.compile(r"^(?P<stem>[^.]+)\.[\w-]+(\.opt-\d)?\.pyc$")


@dataclass(slots=True, kw_only=True)
class Finding:
    """One kind of waste.

    Attributes:
        kind: stable, for machines.
        remedy: what to do, in a line.
        safe: `repack --drop-waste` may remove the files.
        bytes: about what they take of the compressed layers.
        unpacked_bytes: of their content.
        files: how many.
        examples: a few paths, largest first.
        layers: compressed bytes by layer.
    """

    kind: str
    title: str
    remedy: str
    safe: bool = False
    bytes: int = 0
    unpacked_bytes: int = 0
    files: int = 0
    layers: dict[int, int] = field(default_factory=dict[int, int])
    _largest: list[tuple[int, str]] = field(default_factory=list[tuple[int, str]])

    def add(self, path: str, entry: Entry, layer: int) -> None:
        """Counts a file in."""
        self.files += 1
        self.bytes += entry.packed_bytes
        self.unpacked_bytes += entry.content_bytes
        self.layers[layer] = self.layers.get(layer, 0) + entry.packed_bytes
        self._largest.append((-entry.content_bytes, path))
        if len(self._largest) > 2 * EXAMPLES:
            self._largest = sorted(self._largest)[:EXAMPLES]

    @property
    def examples(self) -> Sequence[str]:
        """A few paths, largest first."""
        return [path for _, path in sorted(self._largest)[:EXAMPLES]]


class Paths:
    """Paths that match any of some patterns.

    They are kept apart by where they begin: a search for those that begin with a slash looks at slashes alone, which is
    ten times as fast as one search for all. An image has a hundred thousand paths.
    """

    def __init__(self, patterns: Sequence[str]) -> None:
        self._from_root = _any(each[1:] for each in patterns if each.startswith("^"))
        self._from_slash = _any(each.replace(SLASH, "/", 1) for each in patterns if each.startswith(SLASH))
        self._anywhere = _any(each for each in patterns if not each.startswith(("^", SLASH)))

    def __contains__(self, path: str) -> bool:
        return bool(self._from_root.match(path) or self._from_slash.search(f"/{path}") or self._anywhere.search(path))


def _any(patterns: Iterable[str]) -> re.Pattern[str]:
    return re.compile("|".join(patterns) or NEVER)


@dataclass(frozen=True, slots=True)
class Seen:
    """A file of the root file system."""

    path: str
    entry: Entry
    layer: int
    rule: Rule | None


@dataclass(frozen=True, kw_only=True, slots=True)
class Rule:
    """Files by path."""

    kind: str
    title: str
    remedy: str
    safe: bool
    least_bytes: int
    paths: Paths


@cache
def _table() -> Mapping[str, Any]:
    return cast("Mapping[str, Any]", json.loads(Path(__file__).with_name("waste.json").read_text(encoding="utf-8")))


@cache
def rules() -> Sequence[Rule]:
    """The rules by path, in the order in which they are tried."""
    return [
        Rule(
            kind=rule["kind"],
            title=rule["title"],
            remedy=rule["remedy"],
            safe=rule["safe"],
            least_bytes=rule["least_bytes"],
            paths=Paths(rule["patterns"]),
        )
        for rule in cast("Sequence[Mapping[str, Any]]", _table()["rules"])
    ]


def rule_of(path: str, size: int) -> Rule | None:
    """The rule that a file falls under, if any."""
    return next((rule for rule in rules() if size >= rule.least_bytes and path in rule.paths), None)


def findings(layers: Sequence[Layer], root: Root, config: Mapping[str, Any]) -> Sequence[Finding]:
    """Everything that was found, largest first; what costs no bytes but should be known comes last.

    Args:
        layers: of the image.
        root: what they make together.
        config: the image's configuration.
    """
    seen = list(_seen(root))
    found = [
        *_by_path(seen),
        *_hidden(root),
        *_twins(seen),
        *_cuda_versions(seen),
        *_byte_code(seen),
        *_beyond_limits(layers),
        *_early(seen, layers, config),
        *_exposed(seen),
    ]
    return sorted(found, key=lambda each: (-each.bytes, each.kind))


def _seen(root: Root) -> Iterator[Seen]:
    """Every file once, by its first name."""
    known: set[int] = set()
    for path, node in root.walk():
        if node.entry is not None and node.entry.kind == "file" and id(node) not in known:
            known.add(id(node))
            yield Seen(path, node.entry, node.layer, rule_of(path, node.entry.content_bytes))


def _by_path(seen: Sequence[Seen]) -> Iterator[Finding]:
    found: dict[str, Finding] = {}
    for file in seen:
        rule = file.rule
        if rule is not None:
            finding = found.setdefault(
                rule.kind, Finding(kind=rule.kind, title=rule.title, remedy=rule.remedy, safe=rule.safe)
            )
            finding.add(file.path, file.entry, file.layer)
    yield from found.values()


def _hidden(root: Root) -> Iterator[Finding]:
    finding = Finding(
        kind="hidden",
        title="deleted or overwritten by a later layer",
        remedy="Delete or replace in the RUN that creates; `repack` leaves them out.",
        safe=True,
    )
    for each in root.hidden:
        finding.add(each.entry.path, each.entry, each.layer)
    if finding.files:
        yield finding


def _twins(seen: Sequence[Seen]) -> Iterator[Finding]:
    """The same library from two packages, such as a system package and a wheel. The largest counts as wanted."""
    groups: defaultdict[str, dict[int, Seen]] = defaultdict(dict)
    for file in seen:
        library = _LIBRARY.match(file.entry.name)
        if library and file.entry.content_bytes >= LEAST_LIBRARY_BYTES:
            groups[library["stem"]][id(file.entry)] = file
    finding = Finding(
        kind="library-twice",
        title="the same library twice",
        remedy="Keep one: the wheels bring their own CUDA libraries, so a runtime base without them will do.",
    )
    for group in groups.values():
        for file in sorted(group.values(), key=lambda each: (-each.entry.content_bytes, each.path))[1:]:
            finding.add(file.path, file.entry, file.layer)
    if finding.files:
        yield finding


def _cuda_versions(seen: Sequence[Seen]) -> Iterator[Finding]:
    versions: defaultdict[str, list[Seen]] = defaultdict(list)
    for file in seen:
        version = _CUDA.search(file.path)
        if version:
            versions[version[1]].append(file)
    if len(versions) < 2:  # noqa: PLR2004 - two are one too many
        return
    names = sorted(versions, key=lambda each: tuple(int(part) for part in each.split(".")))
    finding = Finding(
        kind="cuda-versions",
        title=f"several CUDA minor versions: {', '.join(names)}",
        remedy=f"Build against one; {names[-1]} is the newest here.",
    )
    for name in names[:-1]:
        for file in versions[name]:
            finding.add(file.path, file.entry, file.layer)
    yield finding


def _byte_code(seen: Sequence[Seen]) -> Iterator[Finding]:
    """Compiled Python of one source for several interpreters or optimisation levels."""
    finding = Finding(
        kind="byte-code-twice",
        title="Python byte code twice",
        remedy="Compile for the interpreter that runs, once: PYTHONDONTWRITEBYTECODE=1, then compileall.",
    )
    sources: defaultdict[str, list[Seen]] = defaultdict(list)
    for file in seen:
        folder, _, name = file.path.rpartition("/")
        compiled = _BYTE_CODE.match(name)
        if compiled and folder.endswith("__pycache__"):
            sources[f"{folder}/{compiled['stem']}"].append(file)
    for group in sources.values():
        for file in sorted(group, key=lambda each: each.path)[:-1]:
            finding.add(file.path, file.entry, file.layer)
    if finding.files:
        yield finding


def _beyond_limits(layers: Sequence[Layer]) -> Iterator[Finding]:
    large = [index for index, layer in enumerate(layers) if layer.bytes > ECR_LAYER_BYTES]
    if large:
        yield Finding(
            kind="layer-too-large",
            title=f"layer {', '.join(map(str, large))} beyond ECR's 52,000 MiB",
            remedy="`repack` cuts it.",
            layers={index: layers[index].bytes for index in large},
        )
    if len(layers) > MOST_LAYERS:
        yield Finding(
            kind="too-many-layers",
            title=f"{len(layers)} layers, overlay takes {MOST_LAYERS}",
            remedy="`repack` joins them.",
        )


def _early(seen: Sequence[Seen], layers: Sequence[Layer], config: Mapping[str, Any]) -> Iterator[Finding]:
    """Application code below large layers: each change of it makes them all new."""
    application = Paths([*_table()["application"], *_working_folder(config)])
    finding = Finding(
        kind="early-application",
        title="application code or weights in an early layer",
        remedy="Copy what changes most in the last layer: now every change pulls all layers above it again.",
    )
    total = sum(layer.bytes for layer in layers) or 1
    above = [sum(layer.bytes for layer in layers[index + 1 :]) for index in range(len(layers))]
    for file in seen:
        if above[file.layer] <= EARLY_SHARE * total:
            continue
        if file.path in application or (file.rule is not None and file.rule.kind == "weights"):
            finding.add(file.path, file.entry, file.layer)
    if finding.files:
        finding.layers = {index: above[index] for index in finding.layers}
        finding.bytes = 0  # nothing to save in a first pull; `layers` has what a change pulls again
        yield finding


def _working_folder(config: Mapping[str, Any]) -> Sequence[str]:
    folder = str(cast("Mapping[str, Any]", config.get("config") or {}).get("WorkingDir") or "").strip("/")
    return [f"^{re.escape(folder)}/"] if folder and folder not in ("root", "home", "usr", "opt") else []


def _exposed(seen: Sequence[Seen]) -> Iterator[Finding]:
    writable = Finding(
        kind="world-writable",
        title="files that anybody may write",
        remedy="chmod o-w: a process that breaks out of its user could change what others run.",
    )
    secret = Finding(
        kind="secret-like",
        title="files named like secrets",
        remedy="Whoever may pull the image has them: mount secrets in the build, and replace what was published.",
    )
    secrets = Paths(_table()["secrets"])
    for file in seen:
        if file.entry.mode & WORLD_WRITABLE:
            writable.add(file.path, file.entry, file.layer)
        if file.path in secrets:
            secret.add(file.path, file.entry, file.layer)
    for finding in (writable, secret):
        if finding.files:
            finding.bytes = 0  # not paid for needlessly, only exposed
            yield finding
