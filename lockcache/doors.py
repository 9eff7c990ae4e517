"""Doors of rooms: a package promises names of its modules, and imports each module when one of its names is asked for.

Keeps ``import lockcache`` small: a door that imported its modules would load the whole store for one constant. Relied
on by every room (a subpackage whose ``__init__`` says what it is for, what it promises and which rooms it may use) and
by :mod:`lockcache.lowlevel`. Type checkers see the imports under ``TYPE_CHECKING``, not the call of :func:`door`, which
would let any name pass; ``make layers`` fails for a name that is imported and not promised.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any


def door(package: str, homes: Mapping[str, str]) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Returns the ``__getattr__`` and ``__dir__`` of ``package``, whose names are those of ``homes``.

    ``homes`` says for each module, relative to ``package`` (``"codec"``) or absolute (``"lockcache.keys"``), which
    names it is the home of, separated by spaces. A name is looked up in its module once. An absolute one directly in
    ``package`` is an attribute of it, too, as after an import.
    """
    home_of = {
        name: module if module.startswith("lockcache") else f"{package}.{module}"
        for module, names in homes.items()
        for name in names.split()
    }
    modules = {module for module in homes if module.rpartition(".")[0] == package}

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
