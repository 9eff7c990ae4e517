# SPDX-License-Identifier: Apache-2.0
"""Identity: the names under which the results of a memoized function are kept, and the refusal of a second function.

Keeps the rule that two functions have one identity only if they do the same. An identity is a module, a qualified name
and a version, and not the code: code differs between Python versions, which would share nothing, and says nothing about
the functions that it calls. So a second function under one identity is refused, unless it is the same code, loaded
again. Only this process notices it; in another one, ``version`` tells edited code from what it was.
"""

from __future__ import annotations

import functools
import inspect
import os
import sys
import weakref
from collections.abc import Callable
from types import CellType, CodeType, FunctionType, ModuleType
from typing import Any, Final, NamedTuple

PLAIN: Final = (bool, int, float, str, bytes)

# A spawned process has the program's script under the second name, runpy.run_path any script under the third.
_SCRIPTS: Final = ("__main__", "__mp_main__", "<run_path>")

# functools.wraps copies attributes, so that a decorator above a memoized function has its mark too.
_MARK: Final = "__lockcache_memoized__"

_WHOLE_KEY: Final = "state the whole key: cache.get_or_compute(key, compute)"


class Layer(NamedTuple):
    """A function that is memoized, and the version."""

    function: object
    version: str


class _Made(NamedTuple):
    """The function that has an identity, without its module's names, which it would keep alive."""

    function: Callable[[], object]
    code: object
    made_of: object


# Of the process, and not of one cache: two may be one directory, and a module that is reloaded opens its cache again.
_first: Final[dict[tuple[str, ...], _Made]] = {}


def stack(function: object, version: str) -> tuple[Layer, ...]:
    """Returns a layer for ``function`` on top of those of the memoized functions that it wraps."""
    below: tuple[Layer, ...] = getattr(function, _MARK, ())
    return (*below, Layer(_held(function), version))


def mark(memoized_function: object, layers: tuple[Layer, ...]) -> None:
    """Make ``memoized_function``, and what wraps it, known as memoized."""
    setattr(memoized_function, _MARK, layers)


def name_of(function: object, *, is_keyed: bool) -> tuple[str, str]:
    """Returns the module and the qualified name, or raises an error for a function that they do not identify."""
    module, name = getattr(function, "__module__", None), getattr(function, "__qualname__", None)
    if not callable(function) or not module or not name:
        raise TypeError(
            f"memoize wants a function, got {type(function).__name__} {function!r:.80}; memoize a function at the top "
            f"of a module that takes as arguments what its result depends on, or {_WHOLE_KEY}"
        )
    if "<lambda>" in name or "<locals>" in name:
        raise ValueError(
            f"{name} cannot be memoized: others may have that name, or another result by what it is defined in; "
            "define it at the top of a module or in a class, and take as an argument what it depends on"
        )
    if not is_keyed and not isinstance(getattr(function, "__self__", None), (ModuleType, type(None))):
        raise ValueError(
            f"{name} cannot be memoized: it is bound to an object, which is not in its keys; state in memoize(key=...) "
            f"what the result depends on, or {_WHOLE_KEY}"
        )
    return module, name


def identify(module: str, name: str, layers: tuple[Layer, ...]) -> list[str]:
    """Returns the identity of the uppermost layer; raises :class:`ValueError` if another function has it.

    To be called when the function is, not when it is decorated: its name leads to nothing yet, or to a former function.
    """
    made, names = _made(layers[-1].function), _names(module, layers[-1].function)
    named, is_memoized = _namesake(module, name, names, layers)
    identity = (_script(names) if module in _SCRIPTS else module, name, *(layer.version for layer in layers))
    if named is not None and not _are_alike(_made(named), made):
        raise _refusal(module, name, is_memoized=is_memoized)
    if not _are_alike(_first.setdefault(identity, made), made):
        raise _refusal(module, name, is_memoized=True)
    return list(identity)


def _refusal(module: str, name: str, *, is_memoized: bool) -> ValueError:
    if is_memoized:
        problem, advice = "memoized function of this name and version", "give one another version: memoize(version=...)"
    else:
        problem, advice = "function of this name", "rename one"
    return ValueError(
        f"{name} cannot be memoized: module {module} has another {problem}, whose calls would have the same keys; "
        f"{advice}, or {_WHOLE_KEY}"
    )


def _names(module: str, function: object) -> dict[str, Any]:
    """Returns the names of the module in which the function is defined.

    Its own, if it has: a profiler or a debugger that runs a script has another ``__main__``, a plugin may be no module.
    """
    own: dict[str, Any] = getattr(inspect.unwrap(function), "__globals__", {})  # type: ignore[arg-type] # callable
    return own if own.get("__name__") == module else getattr(sys.modules.get(module), "__dict__", {})


def _namesake(module: str, name: str, names: dict[str, Any], layers: tuple[Layer, ...]) -> tuple[object, bool]:
    """Returns the function of this name whose calls have these keys, or could have; and whether it is memoized.

    ``None`` if the name leads to nothing, to a thing that has another name, or to what is memoized with other versions.
    """
    found = _held(_find(names, name))
    if (getattr(found, "__module__", None), getattr(found, "__qualname__", None)) != (module, name):
        return None, False
    memoized: tuple[Layer, ...] = getattr(found, _MARK, ())
    if not memoized:
        return found, False
    same = memoized[: len(layers)]
    has_same_versions = [layer.version for layer in same] == [layer.version for layer in layers]
    return (same[-1].function if has_same_versions else None), True


def _find(names: dict[str, Any], name: str) -> object:
    """Returns what is stored under a qualified name, or ``None``."""
    found, holder = None, ""
    for part in name.split("."):
        # The second: a private name of a class.
        found = names.get(part, names.get(f"_{holder.lstrip('_')}{part}"))
        names, holder = getattr(found, "__dict__", {}), part
    return found


def _held(found: object) -> object:
    """Returns the function in what a class may hold it in, or binds it to."""
    if isinstance(found, property):
        return found.fget
    if isinstance(found, functools.cached_property):
        return found.func
    return getattr(found, "__func__", found)


def _script(names: dict[str, Any]) -> str:
    """Returns a name that distinguishes this ``__main__`` from that of other programs."""
    if names.get("__spec__") is not None:
        return str(names["__spec__"].name)
    if names.get("__file__") is None:
        raise ValueError(
            "what is defined at a prompt cannot be memoized: others define the same names there; put it into a file, "
            f"or {_WHOLE_KEY}"
        )
    return os.path.realpath(str(names["__file__"]))


def _made(function: Any) -> _Made:
    return _Made(_reference(function), getattr(inspect.unwrap(function), "__code__", None), _made_of(function))


def _reference(function: object) -> Callable[[], object]:
    try:
        return weakref.ref(function)
    except TypeError:  # some callables of C have none
        return lambda: function


def _are_alike(one: _Made, two: _Made) -> bool:
    """Returns whether both are one function, or one source that was loaded twice.

    One code object is not enough: a class that is made in a loop has it each time, and the functions of a decorator.
    """
    return one.function() is two.function() or (one.code is not two.code and one.made_of == two.made_of)


def _made_of(value: Any) -> object:
    """Returns a value that is equal when a source is loaded again, even if its lines have moved.

    For what is neither a function nor a constant, it equals nothing else.
    """
    if isinstance(value, FunctionType):
        named = sorted((value.__kwdefaults__ or {}).items())
        return _made_of((value.__code__, value.__defaults__, tuple(named), _closed_over(value)))
    if isinstance(value, CodeType):
        constants = tuple(_made_of(each) if isinstance(each, CodeType) else each for each in value.co_consts)
        return value.replace(co_filename="", co_firstlineno=1, co_linetable=b"", co_consts=constants)
    if isinstance(value, tuple):
        return tuple(map(_made_of, value))
    return (type(value), value) if value is None or type(value) in PLAIN else object()


def _closed_over(function: FunctionType) -> tuple[object, ...]:
    """Returns the values of its closure; of functions, only the one that it wraps, as others may lead back to it."""
    wrapped = getattr(function, "__wrapped__", None)
    cells = [cell for cell in function.__closure__ or () if cell != CellType()]  # not what has no value yet
    values = [cell.cell_contents for cell in cells]
    return tuple(value if value is wrapped or not isinstance(value, FunctionType) else object() for value in values)
