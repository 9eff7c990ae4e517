# SPDX-License-Identifier: Apache-2.0
"""The contract "doors" of ``make layers``: rooms are used through their doors, and say what they use and promise.

A room is a subpackage of a house (``lockcache.filestream``, ``lockcache_daemon``, ``lockcache_stress``). Its
``__init__`` is its door. The contract is broken by

- an import of a module in a room from outside of the room, instead of an import from the room; imports that a planted
  fault needs are in ``ignore_imports``;
- an import of a room's own door from inside of the room, which hides a circle;
- a docstring without "Promises" and "May use", or a room that is used and not named after "May use", or the reverse;
- a door that imports a module of its room at once;
- a name that a door promises and its module does not define, or that is the name of a module of the room too, so that
  the import system may put the module in its place; an import of a name that a door does not promise, which type
  checkers accept, because they see all names of its modules;
- a folder with more Python files than a newcomer can overlook. A folder of like things (commands, benchmarks, trials,
  scenarios), one file each and named in ``like_things``, may have more, because a reader of one knows the others.
"""

from __future__ import annotations

import ast
import importlib.util
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

from importlinter import Contract, ContractCheck, fields, output

#: The most Python files in a folder that is not in ``like_things``.
MOST_FILES = 14
MOST_LIKE_FILES = 30


class DoorsContract(Contract):
    """See the module."""

    type_name = "doors"

    houses = fields.ListField(subfield=fields.StringField())
    #: Rooms of like things, one file each, which may have more files.
    like_things = fields.ListField(subfield=fields.StringField(), required=False)
    #: Doors that are not rooms: packages that only promise names of others.
    doors = fields.ListField(subfield=fields.StringField(), required=False)
    ignore_imports = fields.ListField(subfield=fields.StringField(), required=False)

    def check(self, graph: Any, verbose: bool) -> ContractCheck:
        checks = (self._imports, self._names, self._docstrings, self._doors, self._folders)
        faults = sorted({fault for find in checks for fault in find(graph)})
        return ContractCheck(kept=not faults, metadata={"faults": faults})

    def render_broken_contract(self, check: ContractCheck) -> None:
        for fault in check.metadata["faults"]:
            output.print_error(f"- {fault}")

    def _rooms(self, graph: Any) -> set[str]:
        return {package for package in _packages(graph) if any(package.startswith(f"{h}.") for h in self._houses())}

    def _houses(self) -> list[str]:
        return list(map(str, self.houses))

    def _imports(self, graph: Any) -> Iterator[str]:
        # A house with a door is a room for modules outside of the house.
        rooms = self._rooms(graph) | {house for house in self._houses() if any(_homes(house))}
        allowed = set(map(str, self.ignore_imports or ()))
        for module in graph.modules:
            room = _room_of(module, rooms)
            for used in graph.find_modules_directly_imported_by(module):
                other = _room_of(used, rooms)
                if other is None or f"{module} -> {used}" in allowed:
                    continue
                if used == other and room is not None and _is_in(module, other):
                    yield f"{module} imports {used}, the door of its own room: import the module that has the name"
                if used != other and not _is_in(module, other):
                    yield f"{module} imports {used}: import from {other}"

    def _names(self, graph: Any) -> Iterator[str]:
        packages = {*_packages(graph), *map(str, self.doors or ())}
        promised = {package: {name for _, names in _homes(package) for name in names} for package in packages}
        for module in (each for each in graph.modules if each.startswith("lockcache")):
            for node in ast.walk(_tree(module)):
                if isinstance(node, ast.ImportFrom) and promised.get(str(node.module)):
                    names = {alias.name for alias in node.names if f"{node.module}.{alias.name}" not in graph.modules}
                    known = promised[str(node.module)] | _promised_by(str(node.module))
                    for name in sorted(names - known):
                        yield f"{module} imports {name}, which {node.module} does not promise"

    def _docstrings(self, graph: Any) -> Iterator[str]:
        rooms = self._rooms(graph)
        for room in rooms:
            doc = ast.get_docstring(_tree(room)) or ""
            stated = re.search(r"^May use: (.+?)\.$", doc, re.MULTILINE | re.DOTALL)
            if stated is None or "romises" not in doc:
                yield f'{room}: its docstring must say what it promises ("Promises ...") and "May use: ROOM, ROOM."'
                continue
            house = max((each for each in self._houses() if room.startswith(f"{each}.")), key=len)
            used = {
                _within(imported, house)
                for module in graph.modules
                if _room_of(module, rooms) == room
                for imported in graph.find_modules_directly_imported_by(module)
                if _is_in(imported, house) and imported != house
            }
            stated_rooms = set(re.split(r",\s+", stated[1])) - {"nothing else of the package"}
            used -= {_within(room, house)}
            for name in sorted(used - stated_rooms):
                yield f'{room} uses {name}, which its "May use" does not name'
            for name in sorted(stated_rooms - used):
                yield f'{room} does not use {name}, which its "May use" names'

    def _doors(self, graph: Any) -> Iterator[str]:
        for package in [*self._rooms(graph), *self._houses(), *map(str, self.doors or ())]:
            if any(_homes(package)) and package in self._rooms(graph):
                eager = {used for used in graph.find_modules_directly_imported_by(package) if _is_in(used, package)}
                for used in sorted(eager):
                    yield f"{package} imports {used} at once: a door is lazy"
            for module, names in _homes(package):
                missing = names - _promised_by(module)
                if missing:
                    yield f"{package} promises {', '.join(sorted(missing))}, which {module} does not"
                taken = {name for name in names if f"{package}.{name}" in graph.modules}
                if taken:
                    yield f"{package} promises {', '.join(sorted(taken))}, which are modules of it too: rename one"

    def _folders(self, graph: Any) -> Iterator[str]:
        like = set(map(str, self.like_things or ()))
        for package in _packages(graph):
            count = len(list(Path(_file(package)).parent.glob("*.py")))
            most = MOST_LIKE_FILES if package in like else MOST_FILES
            if count > most:
                yield f"{package} has {count} Python files: at most {most}"


def _packages(graph: Any) -> set[str]:
    return {parent for module in graph.modules if (parent := module.rpartition(".")[0]) in graph.modules}


def _room_of(module: str, rooms: set[str]) -> str | None:
    while module:
        if module in rooms:
            return module
        module = module.rpartition(".")[0]
    return None


def _is_in(module: str, package: str) -> bool:
    return module == package or module.startswith(f"{package}.")


def _within(module: str, house: str) -> str:
    """Returns the room or module of ``house`` that ``module`` is or belongs to."""
    return module.removeprefix(f"{house}.").partition(".")[0]


def _file(module: str) -> str:
    spec = importlib.util.find_spec(module)
    if spec is None or spec.origin is None:
        raise ModuleNotFoundError(module)
    return spec.origin


@cache
def _tree(module: str) -> ast.Module:
    return ast.parse(Path(_file(module)).read_text())


def _homes(package: str) -> Iterator[tuple[str, set[str]]]:
    """Yields each module and the names that the package promises of it: those of a door's imports that never run."""
    nodes = list(ast.walk(_tree(package)))
    if any(isinstance(node, ast.Call) and getattr(node.func, "id", "") == "door" for node in nodes):
        for block in nodes:
            if isinstance(block, ast.If) and getattr(block.test, "id", "") == "TYPE_CHECKING":
                for node in (each for each in block.body if isinstance(each, ast.ImportFrom)):
                    yield str(node.module), {alias.name for alias in node.names}


def _promised_by(module: str) -> set[str]:
    """Returns a module's ``__all__``, or the names without an underscore that it defines itself, or as a door."""
    names = {name for _, names in _homes(module) for name in names}
    for node in _tree(module).body:
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            names.add(node.name)
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            names |= {target.id for target in targets if isinstance(target, ast.Name)}
            if getattr(targets[0], "id", "") == "__all__":
                return {*ast.literal_eval(node.value), "__version__"}
    return {name for name in names if not name.startswith("_")}
