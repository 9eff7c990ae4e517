# SPDX-License-Identifier: Apache-2.0
"""The contract "descriptors" of ``make layers``: files that others could swap for symlinks are reached by descriptors.

Each call looks a path up again, and a user who may write to a folder of the path may put a symlink there between two
calls. So in the rooms that work below such a root the contract is broken by

- a call that opens, makes, renames, removes or changes a file or folder by a path: ``os.open`` and its like without
  ``dir_fd`` (``src_dir_fd`` and ``dst_dir_fd`` to rename), where the first argument is not a descriptor (``fd`` or
  ``..._fd`` by name, or the ``number`` of its owner), ``open``, and anything of ``shutil`` or ``tempfile``. Use the
  ``reach`` of the directory's layout (:class:`lockcache.filestream.disk.Reach`), or a folder that it gives;
- ``Descriptor.open`` and ``opened``, which are built on ``os.open``, in the same way;
- such a function under another name, by which its calls would not be found;
- a ``ProcessLock`` without ``layout``, which does not know the cache of its file;
- an exception in ``allowed`` that is not needed. Each has its reason next to it.

Calls that only ask (``stat``, ``access``) may take a path, since no action by path may follow from their answers.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import Any

from importlinter import Contract, ContractCheck, fields, output

from tests.layers.doors import _is_in, _tree

_ACTS = {
    *("open", "rename", "replace", "renames", "unlink", "remove", "chmod", "lchmod", "chown", "lchown", "mkdir"),
    *("makedirs", "rmdir", "removedirs", "link", "symlink", "truncate", "utime", "setxattr", "removexattr", "listdir"),
    *("scandir", "walk", "mkfifo", "mknod", "chdir"),
}
_WHOLE_MODULES = ("shutil", "tempfile")
# Owners of methods that open as the directory is reached.
_WAYS = ("reach", "BY_PATH", "folder")
_TWO_PLACES = frozenset({"rename", "replace"})


class DescriptorsContract(Contract):
    """See the module."""

    type_name = "descriptors"

    #: Packages, and modules.
    rooms = fields.ListField(subfield=fields.StringField())
    #: ``MODULE.FUNCTION CALL``, such as ``lockcache.x.Reader.load os.open``.
    allowed = fields.ListField(subfield=fields.StringField(), required=False)

    def check(self, graph: Any, verbose: bool) -> ContractCheck:
        allowed, used = set(map(str, self.allowed or ())), set()
        faults = []
        for module in sorted(each for each in graph.modules if any(_is_in(each, str(room)) for room in self.rooms)):
            for scope, line, what, why in _acts(module):
                exception = f"{scope} {what}"
                used.add(exception)
                if exception not in allowed:
                    faults.append(f"{scope}, line {line}: {what} {why}")
        faults += [f"{exception} is allowed and not there" for exception in sorted(allowed - used)]
        return ContractCheck(kept=not faults, metadata={"faults": faults})

    def render_broken_contract(self, check: ContractCheck) -> None:
        for fault in check.metadata["faults"]:
            output.print_error(f"- {fault}")


def _acts(module: str) -> Iterator[tuple[str, int, str, str]]:
    """Yields each use of a path: the function, the line, the call, and the fault."""
    called: set[int] = set()
    for scope, node in _walk(_tree(module), module):
        if isinstance(node, ast.Call):
            called.add(id(node.func))
            name = _name(node.func)
            if name is not None and not _is_by_descriptor(node, name):
                yield scope, node.lineno, name, "by a path"
            if _opens_by_path(node):
                yield scope, node.lineno, "Descriptor.open", "by a path"
            if getattr(node.func, "id", "") == "ProcessLock" and not _has(node, "layout"):
                yield scope, node.lineno, "ProcessLock", "without layout"
        elif isinstance(node, ast.Attribute) and id(node) not in called and _name(node) is not None:
            yield scope, node.lineno, str(_name(node)), "under another name"
        elif isinstance(node, ast.ImportFrom) and node.module in ("os", *_WHOLE_MODULES):
            for alias in node.names:
                if node.module != "os" or alias.name in _ACTS:
                    yield scope, node.lineno, f"{node.module}.{alias.name}", "under another name"


def _walk(node: ast.AST, scope: str) -> Iterator[tuple[str, ast.AST]]:
    """Yields every node, a call before the called function, with the name of its function or class."""
    for child in ast.iter_child_nodes(node):
        yield scope, child
        is_scope = isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef))
        yield from _walk(child, f"{scope}.{child.name}" if is_scope else scope)  # type: ignore[attr-defined]


def _name(function: ast.expr) -> str | None:
    """Returns the name of a call that acts on a path; ``None`` for other functions."""
    if isinstance(function, ast.Name):
        return "open" if function.id == "open" else None
    if isinstance(function, ast.Attribute) and isinstance(function.value, ast.Name):
        owner, name = function.value.id, function.attr
        if owner in _WHOLE_MODULES or (owner == "os" and name in _ACTS):
            return f"{owner}.{name}"
    return None


def _opens_by_path(call: ast.Call) -> bool:
    """Returns whether it calls :meth:`lockcache.filestream.disk.Descriptor.open` or ``opened`` without a ``dir_fd``."""
    function = call.func
    is_method = isinstance(function, ast.Attribute) and function.attr == "open" and len(call.args) > 1
    is_os = isinstance(function, ast.Attribute) and _last(function.value) in ("os", *_WAYS)
    is_opened = isinstance(function, ast.Name) and function.id == "opened" and len(call.args) > 1
    return (is_opened or (is_method and not is_os)) and not _has(call, "dir_fd")


def _is_by_descriptor(call: ast.Call, name: str) -> bool:
    act = name.rpartition(".")[2]
    if name.startswith("os.") and act in _TWO_PLACES:
        return _has(call, "src_dir_fd") and _has(call, "dst_dir_fd")
    if name == "os.link":
        return _has(call, "dst_dir_fd")
    first = _last(call.args[0]) if call.args else ""
    return _has(call, "dir_fd") or first in ("fd", "number") or first.endswith("_fd")


def _last(owner: ast.expr) -> str:
    """Returns the last name of ``a.b.name``, of ``name``, or of a choice between two of them."""
    if isinstance(owner, ast.IfExp):
        return _last(owner.body)
    return str(getattr(owner, "attr", getattr(owner, "id", "")))


def _has(call: ast.Call, keyword: str) -> bool:
    return any(each.arg == keyword for each in call.keywords)
