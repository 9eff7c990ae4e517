# SPDX-License-Identifier: Apache-2.0
"""Counts of the source: lines of code, lengths of functions, conditions on special cases, circles of imports."""

from __future__ import annotations

import ast
import io
import tokenize
from collections.abc import Iterable, Iterator
from pathlib import Path

import grimp

_SKIPPED = {
    *(tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER),
    tokenize.ENCODING,
}
#: The names by which code asks for the kind of a file system, a group, or a mode.
SPECIAL_CASES = frozenset(
    {
        *("is_network", "is_nfs", "is_nfs_3", "is_fuse", "shows_blocks", "is_guest"),
        *("is_shared", "is_read_only", "is_nowhere", "is_seeded", "has_seed"),
    }
)

Function = ast.FunctionDef | ast.AsyncFunctionDef


def sources(folder: str) -> list[Path]:
    """Returns the Python files below ``folder``."""
    return sorted(Path(folder).rglob("*.py"))


def code_lines(path: Path) -> int:
    """Returns the lines with code: without docstrings, comments and blank lines."""
    text = path.read_text()
    lines: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type not in _SKIPPED:
            lines.update(range(token.start[0], token.end[0] + 1))
    for node in ast.walk(ast.parse(text)):
        docstring = _docstring_of(node)
        if docstring is not None:
            lines.difference_update(range(docstring.lineno, (docstring.end_lineno or docstring.lineno) + 1))
    return len(lines)


def function_lengths(paths: Iterable[Path]) -> list[int]:
    """Returns the lengths of all functions in lines, without their docstrings, in ascending order."""
    functions = (node for path in paths for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, Function))
    return sorted(map(_length_of, functions))


def special_cases(paths: Iterable[Path]) -> int:
    """Returns how often a condition asks for one of :data:`SPECIAL_CASES`."""
    return sum(len(_asked_in(ast.parse(path.read_text()))) for path in paths)


def circles(package: str) -> tuple[int, int]:
    """Returns how many circles of imports there are among the modules of ``package``, and among its subpackages."""
    graph = grimp.build_graph(package, exclude_type_checking_imports=True, cache_dir=None)
    modules = {module: graph.find_modules_directly_imported_by(module) for module in graph.modules}
    packages: dict[str, set[str]] = {}
    for module, imported in modules.items():
        room = _room_of(module, modules)
        rooms = {_room_of(other, modules) for other in imported}
        packages.setdefault(room, set()).update(other for other in rooms if not _is_within(other, room))
    return len(_components(modules)), len(_components(packages))


def _docstring_of(node: ast.AST) -> ast.Expr | None:
    if not isinstance(node, ast.Module | ast.ClassDef | Function) or ast.get_docstring(node, clean=False) is None:
        return None
    first = node.body[0]
    return first if isinstance(first, ast.Expr) else None


def _length_of(function: Function) -> int:
    docstring = _docstring_of(function)
    without = 0 if docstring is None else (docstring.end_lineno or 0) - docstring.lineno + 1
    return (function.end_lineno or function.lineno) - function.lineno + 1 - without


def _asked_in(tree: ast.Module) -> set[tuple[int, int]]:
    found: set[tuple[int, int]] = set()
    for condition in _conditions(tree):
        for node in ast.walk(condition):
            name = node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else ""
            if name in SPECIAL_CASES and isinstance(node, ast.expr):
                found.add((node.lineno, node.col_offset))
    return found


def _conditions(tree: ast.Module) -> Iterator[ast.expr]:
    for node in ast.walk(tree):
        if isinstance(node, ast.If | ast.IfExp | ast.While):
            yield node.test
        elif isinstance(node, ast.comprehension):
            yield from node.ifs
        elif isinstance(node, ast.BoolOp) or (isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not)):
            yield node


def _room_of(module: str, modules: dict[str, set[str]]) -> str:
    """Returns the package that a module is in; a package is in itself."""
    is_package = any(other.startswith(f"{module}.") for other in modules)
    return module if is_package else module.rpartition(".")[0]


def _is_within(room: str, other: str) -> bool:
    """Returns whether one of two packages contains the other, or they are one."""
    return f"{room}.".startswith(f"{other}.") or f"{other}.".startswith(f"{room}.")


def _components(arrows: dict[str, set[str]]) -> list[set[str]]:
    """Returns the sets of nodes, more than one each, of which each reaches each other (Tarjan's algorithm)."""
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    path: list[str] = []
    found: list[set[str]] = []
    for root in sorted(arrows):
        work = [(root, iter(sorted(arrows[root])))] if root not in index else []
        while work:
            node, following = work[-1]
            if node not in index:
                index[node] = low[node] = len(index)
                path.append(node)
            for other in following:
                if other in arrows and other not in index:
                    work.append((other, iter(sorted(arrows[other]))))
                    break
                if other in path:
                    low[node] = min(low[node], index[other])
            else:
                work.pop()
                if work:
                    low[work[-1][0]] = min(low[work[-1][0]], low[node])
                if low[node] == index[node]:
                    component = {path.pop()}
                    while node not in component:
                        component.add(path.pop())
                    found += [component] if len(component) > 1 else []
    return found
