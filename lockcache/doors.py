# SPDX-License-Identifier: Apache-2.0
"""Doors of rooms: a package promises names of its modules, and imports each module when one of its names is asked for.

Keeps ``import lockcache`` small: a door that imported its modules would load the whole store for one constant. Relied
on by every room (a subpackage whose ``__init__`` says what it is for, what it promises and which rooms it may use) and
by :mod:`lockcache.lowlevel`.

The names stand once, in imports under ``TYPE_CHECKING``, where type checkers, linters and editors see them. They never
run, and their names stand in the compiled code of the package, where :func:`door` finds them. ``make layers`` fails for
a name that is imported and not promised, and a test asks each door for each of its names. Imports of one module
stand next to each other: of one that comes twice, with another in between, the second list is not found. Compilers that
drop such a block leave the door empty.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from importlib import import_module
from types import CodeType
from typing import Any


def door(package: str) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Returns the ``__getattr__`` and ``__dir__`` of ``package``, whose code calls this, for the names it imports.

    A name is looked up in its module once. A module directly in ``package`` is an attribute of it, too, as after an
    import.
    """
    home_of = _homes(sys._getframe(1).f_code, package)
    modules = {module for module in home_of.values() if module.rpartition(".")[0] == package}

    def find(name: str) -> Any:
        module = home_of.get(name)
        if module is None and f"{package}.{name}" in modules:
            return import_module(f"{package}.{name}")
        if module is None:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        value = getattr(import_module(module), name)
        setattr(sys.modules[package], name, value)
        return value

    def names() -> list[str]:
        return sorted({*vars(sys.modules[package]), *home_of})

    return find, names


def _homes(code: CodeType, package: str) -> dict[str, str]:
    """Returns for each name that the code of a package imports from this project the module that has it.

    A code object lists the names that it uses, a module before those that are imported from it. Modules are the names
    with a dot.
    """
    imported = {name for names in code.co_consts if isinstance(names, tuple) for name in names}
    home_of: dict[str, str] = {}
    module = ""
    for name in code.co_names:
        if "." in name:
            module = name
        elif module.startswith("lockcache") and module not in (package, __name__) and name in imported:
            home_of.setdefault(name, module)
    return home_of
