"""The root file system that an image's layers make together: what a later layer deletes or replaces is gone from it.

Rules are those of the OCI image specification as containerd and umoci apply them: whiteouts hide what lies below and
never what their own layer brings, a folder over a folder merges, anything else replaces, a parent that is a symlink is
followed within the root, a hard link joins its target's inode.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from scripts.failure import Failure
from scripts.images.entry import OPAQUE, WHITEOUT, WHITEOUT_META, Entry
from scripts.images.layer import Layer

MOST_LINKS = 255
"""Symlinks followed for one path, containerd's own limit."""


@dataclass(slots=True, eq=False)
class Node:
    """An inode. Several names may lead to it.

    Attributes:
        entry: its attributes and where its content lies; None for a folder that no layer lists.
        layer: index of the layer that brought the content.
        children: of a folder, by name; None for anything else.
    """

    entry: Entry | None
    layer: int
    children: dict[str, Node] | None = None

    @property
    def is_folder(self) -> bool:
        """Whether it can hold others."""
        return self.children is not None


@dataclass(frozen=True, slots=True)
class Hidden:
    """A file that is in a layer and not in the root file system.

    Attributes:
        entry: the file.
        layer: the layer that has it.
        by_layer: the layer that deletes or replaces it.
    """

    entry: Entry
    layer: int
    by_layer: int


@dataclass(slots=True)
class Root:
    """A root file system.

    Attributes:
        top: `/` itself.
        hidden: files paid for and never seen.
    """

    top: Node = field(default_factory=lambda: Node(None, 0, {}))
    hidden: list[Hidden] = field(default_factory=list[Hidden])

    def walk(self) -> Iterator[tuple[str, Node]]:
        """Every name in it with its inode; a folder comes before what it holds, the root is empty text."""
        yield "", self.top
        stack = [(name, node) for name, node in _sorted(self.top)]
        while stack:
            path, node = stack.pop()
            yield path, node
            if node.children:
                stack.extend((_path(f"{path}/{name}", child), child) for name, child in _sorted(node))


def _sorted(node: Node) -> list[tuple[str, Node]]:
    return sorted((node.children or {}).items(), reverse=True)


def _path(path: str, node: Node) -> str:
    """The entry's own text where it is the same: a hundred thousand copies would be felt."""
    entry = node.entry
    return entry.path if entry is not None and entry.path == path else path


def merged(layers: Sequence[Layer], name: str) -> Root:
    """Applies layers one over another, lowest first.

    Args:
        layers: of the image.
        name: of the image, for messages.

    Raises:
        Failure: layers that no runtime could apply.
    """
    root = Root()
    for index, layer in enumerate(layers):
        _Application(root, index, f"{name}: layer {index}").apply(layer)
    seen = {id(node.entry) for _, node in root.walk()}
    # Another name of the same inode may have stayed; several that went are one file.
    root.hidden = list({id(hidden.entry): hidden for hidden in root.hidden if id(hidden.entry) not in seen}.values())
    return root


class _Application:
    """One layer being applied."""

    def __init__(self, root: Root, index: int, where: str) -> None:
        self._root, self._index, self._where = root, index, where
        self._mine: set[int] = set()

    def apply(self, layer: Layer) -> None:
        """Whiteouts first: they never hide what their own layer brings."""
        for entry in layer.entries:
            if entry.is_whiteout:
                self._white_out(entry)
        for entry in layer.entries:
            if not entry.is_whiteout:
                self._add(entry)

    def _white_out(self, entry: Entry) -> None:
        name = entry.name[len(WHITEOUT) :]
        if name in ("", ".", ".."):
            raise Failure(f"{self._where}: {entry.path}: a whiteout of no name: refused")
        parent = self._folder(entry.path.rpartition("/")[0], create=False)
        if parent is None or parent.children is None:
            return
        if entry.name == OPAQUE:
            for child in list(parent.children):
                self._remove(parent, child)
        elif not entry.name.startswith(WHITEOUT_META):
            self._remove(parent, name)

    def _remove(self, parent: Node, name: str) -> None:
        node = (parent.children or {}).pop(name, None)
        stack = [node] if node else []
        while stack:
            gone = stack.pop()
            if gone.children is not None:
                stack.extend(gone.children.values())
            elif gone.entry is not None and gone.entry.kind == "file":
                self._root.hidden.append(Hidden(gone.entry, gone.layer, self._index))

    def _add(self, entry: Entry) -> None:
        if not entry.path:
            self._root.top.entry = entry
            return
        folder, _, name = entry.path.rpartition("/")
        parent = self._folder(folder, create=True)
        if parent is None or parent.children is None:
            raise Failure(f"{self._where}: {entry.path}: {folder} is not a folder in the layers below")
        linked = self._target(entry) if entry.kind == "link" else None
        there = parent.children.get(name)
        if entry.kind == "dir" and there is not None and there.is_folder:
            there.entry, there.layer = entry, self._index
            return
        if there is not None and there is not linked:
            self._remove(parent, name)
        if linked is not None:
            parent.children[name] = linked
            return
        parent.children[name] = Node(entry, self._index, {} if entry.kind == "dir" else None)

    def _target(self, entry: Entry) -> Node:
        folder, _, name = (entry.target or "").rpartition("/")
        parent = self._folder(folder, create=False)
        node = (parent.children or {}).get(name) if parent is not None else None
        if node is None or node.is_folder or node.entry is None:
            raise Failure(f"{self._where}: {entry.path}: its hard link leads to {entry.target}, which is not a file")
        # containerd applies the link's owner and time to the inode, which is its target's too.
        node.entry.uid, node.entry.gid, node.entry.mtime_ns = entry.uid, entry.gid, entry.mtime_ns
        return node

    def _folder(self, path: str, *, create: bool) -> Node | None:
        """The folder at a path, symlinks followed within the root; None if there is none and none is made."""
        steps = path.split("/")[::-1] if path else []
        trail, followed = [self._root.top], 0
        while steps:
            step = steps.pop()
            if step in ("", "."):
                continue
            if step == "..":
                del trail[max(1, len(trail) - 1) :]
                continue
            here = trail[-1]
            if here.children is None:
                return None
            child = here.children.get(step)
            if child is None:
                if not create:
                    return None
                child = here.children[step] = Node(None, self._index, {})
            if child.entry is not None and child.entry.kind == "symlink":
                followed += 1
                if followed > MOST_LINKS:
                    raise Failure(f"{self._where}: {path}: symlinks that lead in a circle")
                target = child.entry.target or ""
                if target.startswith("/"):
                    trail = trail[:1]
                steps.extend(target.split("/")[::-1])
                continue
            trail.append(child)
        return trail[-1]
