# SPDX-License-Identifier: Apache-2.0
"""Mutants of the store: every small fault that can be made, and the sample of them.

A mutant has a name that does not depend on what stands above it: its module, its function and the change. The sample
is drawn by names, so a commit changes only the part of the sample whose code it changes.
"""

from __future__ import annotations

import ast
import difflib
import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import cosmic_ray.plugins
from cosmic_ray.ast import ast_nodes, get_ast
from cosmic_ray.mutating import mutate_code

from tests.mutants.covering import STORE

ROOT = Path(__file__).resolve().parents[2]
_SEED = 20261128


@dataclass(frozen=True)
class Mutant:
    """One fault in one place."""

    module: str
    function: str
    line: int
    operator: str
    occurrence: int
    #: How many lines of the function above it have the same text.
    twins: int = 0
    change: str = ""

    @property
    def name(self) -> str:
        return "\n".join((self.module, self.function, self.change, *([f"after {self.twins}"] if self.twins else ())))

    def changed_source(self) -> str:
        """Returns the source of the module with the fault."""
        operator = cosmic_ray.plugins.get_operator(self.operator)()
        return str(mutate_code((ROOT / STORE / self.module).read_text(), operator, self.occurrence))


def modules() -> list[str]:
    """Returns the modules of the store, with code of their own."""
    found = (ROOT / STORE).rglob("*.py")
    return sorted(str(path.relative_to(ROOT / STORE)) for path in found if path.name != "__init__.py")


def sample(most: int) -> list[Mutant]:
    """Returns ``most`` mutants of the store, each of another line or kind of fault, the same for the same code."""
    ranked = sorted((rank, each) for module in modules() for rank, each in _one_for_each_line_and_kind(module))
    chosen: list[Mutant] = []
    for _, mutant in ranked:
        if len(chosen) == most:
            break
        if change := _describe(mutant):
            chosen.append(Mutant(**{**mutant.__dict__, "change": change}))
    return chosen


def lines_of_statement(module: str, line: int) -> range:
    """Returns the lines of the statement that ``line`` is in, of one with a body only those of its head."""
    found = range(line, line + 1)
    for node in ast.walk(ast.parse((ROOT / STORE / module).read_text())):
        if isinstance(node, ast.stmt) and node.end_lineno is not None:
            body = getattr(node, "body", None)
            last = body[0].lineno - 1 if body else node.end_lineno
            if node.lineno <= line <= last and not isinstance(node, ast.ClassDef):
                found = range(node.lineno, last + 1)  # the innermost comes last
    return found


def _one_for_each_line_and_kind(module: str) -> Iterator[tuple[str, Mutant]]:
    source = (ROOT / STORE / module).read_text()
    texts = source.splitlines()
    groups: dict[tuple[int, str], tuple[str, Mutant]] = {}
    for mutant in _mutants_of(module, source):
        family = mutant.operator.split("/")[-1].split("_")[0]
        text = f"{_SEED} {module} {mutant.function} {texts[mutant.line - 1].strip()}"
        by_operator = hashlib.sha256(f"{text} {mutant.operator} {mutant.occurrence}".encode()).hexdigest()
        by_line = hashlib.sha256(f"{text} {family}".encode()).hexdigest()
        key = (mutant.line, family)
        groups[key] = min(
            groups.get(key, (by_line + "z", mutant)), (by_line + by_operator, mutant), key=lambda it: it[0]
        )
    yield from groups.values()


def _mutants_of(module: str, source: str) -> Iterator[Mutant]:
    """Yields every mutant, except those of annotations, which no code evaluates."""
    tree = ast.parse(source)
    nodes = list(ast_nodes(get_ast(source)))
    annotated = list(_annotations(tree))
    functions = list(_functions(tree))
    texts = [line.strip() for line in source.splitlines()]
    for name in cosmic_ray.plugins.operator_names():
        kind: Any = cosmic_ray.plugins.get_operator(name)
        if kind.arguments():
            continue
        operator = kind()
        positions = [start for node in nodes for start, _ in operator.mutation_positions(node)]
        for occurrence, (line, column) in enumerate(positions):
            if not any(first <= (line, column) < last for first, last in annotated):
                inside = [(qualified, first) for qualified, first, last in functions if first <= line <= last]
                function, begin = inside[-1] if inside else ("", 1)
                twins = texts[begin - 1 : line - 1].count(texts[line - 1])
                yield Mutant(module, function, line, name, occurrence, twins)


def _functions(node: ast.AST, within: str = "") -> Iterator[tuple[str, int, int]]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, (ast.FunctionDef, ast.ClassDef)):
            qualified = f"{within}{child.name}"
            yield qualified, child.lineno, child.end_lineno or child.lineno
            yield from _functions(child, f"{qualified}.")
        else:
            yield from _functions(child, within)


def _annotations(tree: ast.AST) -> Iterator[tuple[tuple[int, int], tuple[int, int]]]:
    for node in ast.walk(tree):
        for name in ("annotation", "returns"):
            found = getattr(node, name, None)
            if found is not None:
                yield (found.lineno, found.col_offset), (found.end_lineno, found.end_col_offset)


def _describe(mutant: Mutant) -> str:
    """Returns the change, or nothing where it does not compile or only turns ``*,`` of parameters into ``/,``."""
    source = (ROOT / STORE / mutant.module).read_text()
    try:
        changed = mutant.changed_source()
        ast.parse(changed)
    except (SyntaxError, AttributeError):  # the latter: cosmic-ray cannot replace a dotted name of an exception
        return ""
    lines = difflib.unified_diff(source.splitlines(), changed.splitlines(), n=0, lineterm="")
    change = [line for line in lines if not line.startswith(("---", "+++", "@@"))]
    if any(_is_star_of_parameters(line) for line in change):
        return ""
    return "\n".join(line[0] + " " + line[1:].strip() for line in change)


def _is_star_of_parameters(line: str) -> bool:
    return line.startswith("+") and "/," in line.replace(" ", "")
