"""The code that a pod runs: a package of ours and whatever it imports, as text for a ConfigMap."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from importlib.resources import files

_ROOMS = ("budget", "scripts")


def code(package: str) -> Mapping[str, str]:
    """Every Python file of ours that a package needs, path → text: its own, and whatever those import."""
    found: dict[str, str] = {}
    waiting = [f"{package}.{name}" for name in _modules(package)]
    while waiting:
        module = waiting.pop()
        path = _path(module)
        if path is None or path in found:
            continue
        found[path] = _text(path)
        waiting += [module.rpartition(".")[0], *_imports(found[path])]
    return found


def _modules(package: str) -> Iterator[str]:
    for item in files(package).iterdir():
        if item.name.endswith(".py"):
            yield item.name.removesuffix(".py")


def _path(module: str) -> str | None:
    """File of a module of ours; None for anything else."""
    room, *rest = module.split(".")
    if room not in _ROOMS:
        return None
    for names in ([*rest, "__init__.py"], [*rest[:-1], f"{rest[-1]}.py"] if rest else []):
        if names and files(room).joinpath(*names).is_file():
            return "/".join([room, *names])
    return None


def _text(path: str) -> str:
    room, *rest = path.split("/")
    return files(room).joinpath(*rest).read_text(encoding="utf-8")


def _imports(text: str) -> Iterator[str]:
    """Modules that a file imports; what is imported from a package may be a module too."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
            yield from (f"{node.module}.{name.name}" for name in node.names)
        elif isinstance(node, ast.Import):
            yield from (name.name for name in node.names)
