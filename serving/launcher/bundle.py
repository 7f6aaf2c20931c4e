"""The launcher as it is shipped: one file.

In this repository the launcher is a package, one noun per file. A pod gets it as a single plain-text module in a
ConfigMap, so that nothing has to be installed in the engine's image and anyone can read what runs: the package's
modules one after another, their imports of each other left out.
"""

from __future__ import annotations

import ast
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

PACKAGE = "serving.launcher"
ENTRY = "launch"


@cache
def source() -> str:
    """The text of `launch.py` for the pod. The same modules always give the same text.

    Raises:
        ValueError: modules import each other in a circle, or two of them define the same name.
    """
    modules = dict(_reached(ENTRY, {}))
    _check_names(modules)
    futures = "from __future__ import annotations"
    head = ast.get_docstring(modules[ENTRY], clean=False) or ""
    parts = [f'"""{head}"""', futures]
    for name, tree in modules.items():
        parts.append(f"# --- {PACKAGE}.{name} " + "-" * (80 - len(name)))
        parts.append("\n".join(_kept_lines(name, tree)).strip("\n"))
    return "\n\n".join(parts) + "\n"


def _text(name: str) -> str:
    return files(PACKAGE).joinpath(f"{name}.py").read_text(encoding="utf-8")


def _reached(name: str, begun: dict[str, bool]) -> Iterator[tuple[str, ast.Module]]:
    """A module after everything it imports of this package: name and tree, each once."""
    if name in begun:
        if not begun[name]:
            raise ValueError(f"{PACKAGE}.{name} is imported in a circle")
        return
    begun[name] = False
    tree = ast.parse(_text(name))
    for statement in tree.body:
        for own in _own_imports(statement):
            yield from _reached(own, begun)
    begun[name] = True
    yield name, tree


def _own_imports(statement: ast.stmt) -> Sequence[str]:
    """The modules of this package that a top-level statement imports, also those for type checkers only."""
    if isinstance(statement, ast.ImportFrom) and statement.module and statement.module.startswith(f"{PACKAGE}."):
        return [statement.module.removeprefix(f"{PACKAGE}.")]
    if isinstance(statement, ast.If):
        return [own for inner in statement.body for own in _own_imports(inner)]
    return []


def _check_names(modules: Mapping[str, ast.Module]) -> None:
    """Refuses two definitions of one name: in one file the later would silently replace the earlier."""
    defined: dict[str, str] = {}
    for module, tree in modules.items():
        for name in _defined(tree):
            if defined.setdefault(name, module) != module:
                raise ValueError(f"{name} is defined in both {defined[name]} and {module}")


def _defined(tree: ast.Module) -> Iterator[str]:
    for statement in tree.body:
        match statement:
            case ast.FunctionDef(name=name) | ast.ClassDef(name=name):
                yield name
            case ast.Assign(targets=[ast.Name(id=name)]) | ast.AnnAssign(target=ast.Name(id=name)):
                yield name
            case _:
                pass


def _kept_lines(name: str, tree: ast.Module) -> list[str]:
    """A module's lines without its docstring, its __future__ import and its imports of this package."""
    lines = _text(name).splitlines()
    for index, statement in enumerate(tree.body):
        docstring = index == 0 and isinstance(statement, ast.Expr)
        future = isinstance(statement, ast.ImportFrom) and statement.module == "__future__"
        for_types = isinstance(statement, ast.If) and ast.unparse(statement.test) == "TYPE_CHECKING"
        if docstring or future or for_types or _own_imports(statement):
            lines[statement.lineno - 1 : statement.end_lineno] = [""] * (
                (statement.end_lineno or 0) - statement.lineno + 1
            )
    return lines
