# SPDX-License-Identifier: Apache-2.0
"""The constants of a Triton kernel that Triton's key lacks.

Triton's key has a kernel's source, the functions that it calls, of other modules too, and the constants of its own
module. It lacks what is compiled into the kernel in other ways: constants that a module, a class or an object names
(``config.BLOCK``), defaults of the functions that it calls, what functions of ``constexpr_function`` read, and the
types of constants that print alike (``"1"`` and ``1``); before 3.5 constants of the kernel's own module too. In a
directory that others share, one would be given a kernel with another's constant: here the values are added to the key.
A kernel that has none of them keeps Triton's key.
"""

from __future__ import annotations

import contextlib
import dis
import enum
import functools
import hashlib
import os
import re
import types
from collections.abc import Iterator
from typing import Any, Final, NamedTuple

from lockcache.arguments import warn_once
from lockcache.integrations.framework_keys.known_modules import is_known

__all__ = ["add_constants_to_keys", "constants_elsewhere", "constants_lacking", "constants_printed_alike"]

# Known by Triton's version, which is in the key.
_KNOWN: Final = frozenset({"triton"})
_GLOBALS: Final = ("LOAD_GLOBAL", "LOAD_NAME")
# Of values in values.
_DEEPEST: Final = 16
_NUMBERS: Final = (type(None), bool, int, float, complex)
# Texts that no number and no type of Triton's prints: Triton joins what constants print by "-".
_PLAIN_TEXT: Final = re.compile(r"(?!(?:True|False|None|inf|nan|void)$)[A-Za-z_]+")


def add_constants_to_keys(source_type: Any) -> None:
    """Have the keys of Triton's sources of this type include the constants that Triton's own lack."""
    own = source_type.hash

    @functools.wraps(own)
    def hash_(self: Any) -> str:
        key: str = own(self)
        try:
            found = constants_lacking(self)
        except Exception as error:  # noqa: BLE001 - of a program's object, which compiling may not ask
            warn_once(f"triton compiles in each process what lockcache cannot share: {type(error).__name__}: {error}")
            found = os.urandom(16).hex()
        return key if not found else hashlib.sha256(f"{key}{found}".encode(), usedforsecurity=False).hexdigest()

    source_type.hash = hash_


def constants_lacking(source: Any) -> str:
    """Returns the constants that Triton's own key of a source lacks, with their values."""
    constants = getattr(source, "constants", None)
    passed = constants if isinstance(constants, dict) else {}
    kernel = getattr(source, "fn", None)
    found = constants_elsewhere([kernel], [*passed.values()], has_own=_has_constants(type(kernel)))
    return found + constants_printed_alike(passed)


def _has_constants(function_type: type) -> bool:
    """Returns whether Triton's keys of functions have the constants of their own module, as they do from 3.5 on."""
    make_key = getattr(getattr(function_type, "cache_key", None), "fget", None)
    return "constexpr" in getattr(getattr(make_key, "__code__", None), "co_names", ())


def constants_elsewhere(kernels: list[Any], called: list[Any] | None = None, *, has_own: bool = True) -> str:
    """Returns names and values of all constants that these functions, and those that they call, take from elsewhere.

    ``called``: what may be functions that are called. Their defaults are constants; those of kernels are passed.
    ``has_own``: those of the functions' own modules are in Triton's key.
    """
    found, seen, left = set[str](), set[int](), [(kernel, False) for kernel in kernels]
    left += [(each, True) for each in called or ()]
    while left:
        function, is_called = left.pop()
        python = getattr(function, "fn", None)
        if not isinstance(python, types.FunctionType) or id(function) in seen or _is_known(python.__module__):
            continue
        seen.add(id(function))
        # Its body is run by Python, which lets it name any constant.
        are_lacking = not has_own or type(function).__name__ == "ConstexprFunction"
        values = [*_named(python), *(_defaults(python) if is_called else ())]
        for name, value in values:
            if hasattr(value, "fn"):
                left.append((value, True))
            elif _is_lacking(name, value, are_lacking):
                found.add(f"{python.__module__}.{python.__qualname__} {name} {_in_words(value)}")
    return "\n".join(sorted(found))


def constants_printed_alike(passed: dict[Any, Any]) -> str:
    """Returns the types and values of those constants that others may print like, by which Triton knows them."""
    return "\n".join(f"{place} {_in_words(value)}" for place, value in passed.items() if _is_printed_alike(value))


def _is_lacking(name: str, value: Any, are_lacking: bool) -> bool:
    if _is_constexpr(value):
        return "." in name or are_lacking or _is_printed_alike(value)
    return not callable(value)


def _is_printed_alike(value: Any) -> bool:
    if _is_constexpr(value):
        value = value.value
    if isinstance(value, str):
        return _PLAIN_TEXT.fullmatch(value) is None
    is_tritons = hasattr(value, "cache_key") or _is_known(type(value).__module__)
    return not (type(value) in _NUMBERS or (is_tritons and type(value).__module__ != "builtins"))


def _is_constexpr(value: Any) -> bool:
    return type(value).__name__ == "constexpr" and _is_known(type(value).__module__)


def _in_words(value: Any, depth: int = _DEEPEST) -> str:
    if _is_constexpr(value):
        value = value.value
    kind = f"{type(value).__module__}.{type(value).__qualname__}"
    if isinstance(value, enum.Enum):
        return f"{kind} {value.name} {value.value!r}"
    if isinstance(value, (tuple, list)) and depth:
        return f"{kind} {getattr(value, '_fields', '')} [{', '.join(_in_words(each, depth - 1) for each in value)}]"
    printed = repr(value)
    # Of an object that only prints where it lies, what is asked of it counts.
    return kind if " at 0x" in printed else f"{kind} {printed}"


class _Names(NamedTuple):
    """What the code of a function names."""

    names: tuple[str, ...]
    #: All attributes that it asks of anything.
    attributes: tuple[str, ...]


@functools.lru_cache(maxsize=4096)
def _names_of(code: types.CodeType) -> _Names:
    """Returns what this code names, and code within it: comprehensions and functions."""
    names = {each.argval for each in dis.get_instructions(code) if each.opname in _GLOBALS}
    attributes = {*code.co_names}
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            within = _names_of(constant)
            names.update(within.names)
            attributes.update(within.attributes)
        elif isinstance(constant, str) and "getattr" in code.co_names:
            attributes.add(constant)
    return _Names(tuple(sorted(names)), tuple(sorted(attributes)))


def _named(function: types.FunctionType) -> Iterator[tuple[str, Any]]:
    """Yields what the code of a function may name, by all attributes that it asks of anything."""
    named = _names_of(function.__code__)
    spaces = dict(function.__globals__)
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=False):
        try:
            spaces[name] = cell.cell_contents
        except ValueError:  # it has no value yet
            continue
    for name in dict.fromkeys((*named.names, *function.__code__.co_freevars)):
        if name in spaces:
            yield from _values_within(name, spaces[name], named.attributes, set())


def _defaults(function: types.FunctionType) -> Iterator[tuple[str, Any]]:
    """Yields the defaults of a function, which Triton knows by the names that they have in its source."""
    given = function.__defaults__ or ()
    parameters = function.__code__.co_varnames[: function.__code__.co_argcount]
    for name, value in (*zip(parameters[::-1], given[::-1], strict=False), *(function.__kwdefaults__ or {}).items()):
        yield f"default.{name}", value


def _values_within(name: str, value: Any, attributes: tuple[str, ...], seen: set[int]) -> Iterator[tuple[str, Any]]:
    """Yields a value, and of one that has parts all that may be asked of it."""
    is_space = isinstance(value, (types.ModuleType, type))
    if not is_space:
        yield name, value
        if not _is_object(value):
            return
    module = value.__name__ if isinstance(value, types.ModuleType) else getattr(value, "__module__", None)
    if id(value) in seen or _is_known(module):
        return
    seen.add(id(value))
    # What an aggregate of Triton's calls without naming it.
    for number, part in enumerate(getattr(value, "hash_attrs", ()) if isinstance(value, type) else ()):
        yield from _values_within(f"{name}.{number}", part, attributes, seen)
    for attribute in attributes:
        found: Any = seen
        with contextlib.suppress(Exception):  # of a user's object, which Triton gets too if it asks for it
            found = getattr(value, attribute, seen)
        if found is not seen:
            yield from _values_within(f"{name}.{attribute}", found, attributes, seen)


def _is_object(value: Any) -> bool:
    """Returns whether this is an object of a program's, which may have constants as its attributes."""
    return not (callable(value) or hasattr(value, "fn") or _is_constexpr(value) or _is_known(type(value).__module__))


def _is_known(module: str | None) -> bool:
    return is_known(module, _KNOWN)
