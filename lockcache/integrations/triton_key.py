"""The constants that a Triton kernel takes from other modules and from classes, which Triton's key lacks.

Triton's key has a kernel's source, the functions that it calls, of other modules too, and the constants of its own
module. A constant that is named by a module or a class (``config.BLOCK``) is compiled into the kernel, and Triton does
not look at it. In a directory that others share, one would be given a kernel with another's constant: here the values
are added to the key. A kernel that names none keeps Triton's key.
"""

from __future__ import annotations

import functools
import hashlib
import sys
import types
from collections.abc import Iterator
from typing import Any, Final

__all__ = ["add_constants_to_keys", "constants_elsewhere"]

# Known by Triton's version, which is in the key, and Python's.
_KNOWN: Final = frozenset({"triton", *sys.stdlib_module_names}) - {"__main__"}


def add_constants_to_keys(source_type: Any) -> None:
    """Have the keys of Triton's sources of this type include the constants that :func:`constants_elsewhere` finds."""
    own = source_type.hash

    @functools.wraps(own)
    def hash_(self: Any) -> str:
        key: str = own(self)
        passed = getattr(self, "constants", None)
        functions = [getattr(self, "fn", None), *(passed.values() if isinstance(passed, dict) else ())]
        found = constants_elsewhere(functions)
        return key if not found else hashlib.sha256(f"{key}{found}".encode(), usedforsecurity=False).hexdigest()

    source_type.hash = hash_


def constants_elsewhere(functions: list[Any]) -> str:
    """Returns names and values of all constants that these functions, and those that they call, name by a namespace."""
    found, seen, left = set[str](), set[int](), [*functions]
    while left:
        function = left.pop()
        python = getattr(function, "fn", None)
        if not isinstance(python, types.FunctionType) or id(function) in seen or _is_known(python.__module__):
            continue
        seen.add(id(function))
        for name, value in _named(python):
            if hasattr(value, "fn"):
                left.append(value)
            elif "." in name and (_is_constexpr(value) or not callable(value)):
                found.add(f"{python.__module__}.{python.__qualname__} {name} {_in_words(value)}")
    return "\n".join(sorted(found))


def _is_constexpr(value: Any) -> bool:
    return type(value).__name__ == "constexpr" and _is_known(type(value).__module__)


def _in_words(value: Any) -> str:
    if _is_constexpr(value):
        value = value.value
    return f"{type(value).__name__} {value!r}"


def _named(function: types.FunctionType) -> Iterator[tuple[str, Any]]:
    """Yields what the code of a function may name, by all attributes that it asks of anything."""
    names = function.__code__.co_names
    spaces = dict(function.__globals__)
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=False):
        try:
            spaces[name] = cell.cell_contents
        except ValueError:  # it has no value yet
            continue
    for name in dict.fromkeys((*names, *function.__code__.co_freevars)):
        if name in spaces:
            yield from _within(name, spaces[name], names, set())


def _within(name: str, value: Any, attributes: tuple[str, ...], seen: set[int]) -> Iterator[tuple[str, Any]]:
    is_space = isinstance(value, (types.ModuleType, type))
    if not is_space:
        yield name, value
        return
    module = value.__name__ if isinstance(value, types.ModuleType) else value.__module__
    if id(value) not in seen and not _is_known(module):
        seen.add(id(value))
        for attribute in attributes:
            if attribute in vars(value):
                yield from _within(f"{name}.{attribute}", vars(value)[attribute], attributes, seen)


def _is_known(module: str | None) -> bool:
    return module is not None and module.partition(".")[0] in _KNOWN
