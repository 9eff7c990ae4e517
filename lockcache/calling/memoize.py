"""Memoization: a function whose results a cache keeps, and the keys of its calls.

Keeps the rule that two calls have one key only if they may have one result. A name that other functions have too (a
lambda, a bound method, a name that leads to another function) and an argument whose bytes nobody knows are refused,
never guessed.
"""

from __future__ import annotations

import functools
import inspect
import os
import sys
from collections.abc import Callable
from types import ModuleType
from typing import TYPE_CHECKING, Any, Final

from lockcache.keys.hashing import key as key_of

if TYPE_CHECKING:
    from lockcache.resource import Entry, ProgramCacheResource

_PLAIN = (bool, int, float, str, bytes)

# A spawned process has the program's script under the second name.
_SCRIPTS: Final = ("__main__", "__mp_main__")

_OTHERWISE: Final = (
    "memoize a function at the top of a module that takes as arguments what its result depends on, or state the whole "
    "key: cache.get_or_compute(key, compute)"
)


def memoized(
    cache: ProgramCacheResource,
    function: Callable[..., object],
    key: Callable[..., object] | None,
    version: str,
    as_entry: Callable[[object, str], Entry],
) -> Callable[..., Any]:
    """Returns ``function``, its results kept in ``cache``; see :meth:`lockcache.ProgramCacheResource.memoize`.

    ``as_entry`` makes an entry of a result, or raises an error that calls the result as its second argument says.
    """
    module, name = _name_of(function)
    signature, returned = inspect.signature(function), f"what {name} returned"

    @functools.cache
    def identity() -> list[str]:
        # Not before the first call: when a decorator runs, the name leads to nothing yet, or to a former function.
        _refuse_another(module, name, function, memoized_function)
        return [_script(module) if module in _SCRIPTS else module, name, version]

    def key_for(args: tuple[Any, ...], kwargs: dict[str, Any]) -> bytes:
        described = _arguments(signature, args, kwargs) if key is None else _given(key(*args, **kwargs))
        return key_of(["memoize", *identity(), described])

    async def call_async(*args: Any, **kwargs: Any) -> bytes:
        async def compute() -> Entry:
            return as_entry(await function(*args, **kwargs), returned)  # type: ignore[misc] # a coroutine function

        return await cache.aget_or_compute(key_for(args, kwargs), compute, label=name)

    def call(*args: Any, **kwargs: Any) -> bytes:
        def compute() -> Entry:
            return as_entry(function(*args, **kwargs), returned)

        return cache.get_or_compute(key_for(args, kwargs), compute, label=name)

    memoized_function = functools.wraps(function)(call_async if inspect.iscoroutinefunction(function) else call)
    return memoized_function


def _name_of(function: object) -> tuple[str, str]:
    """Returns module and qualified name, which identify the function in every process."""
    module, name = getattr(function, "__module__", None), getattr(function, "__qualname__", None)
    if not callable(function) or not module or not name:
        raise TypeError(f"memoize wants a function, got {type(function).__name__} {function!r:.80}; {_OTHERWISE}")
    if "<lambda>" in name or "<locals>" in name:
        raise ValueError(
            f"{name} cannot be memoized: others may have that name, or another result by what it is defined in; "
            "define it at the top of a module or in a class, and take as an argument what it depends on"
        )
    bound = getattr(function, "__self__", None)
    if bound is not None and not isinstance(bound, ModuleType):
        raise ValueError(f"{name} cannot be memoized: its key does not tell {bound!r:.80} from others; {_OTHERWISE}")
    return module, name


def _refuse_another(module: str, name: str, function: object, memoized_function: object) -> None:
    """Raise :class:`ValueError` unless the name leads to ``function``, or to what was made of it by memoizing it."""
    found = _found(module, name)
    named: Any = _held(found)
    memoized_below = inspect.unwrap(named, stop=lambda layer: layer is memoized_function)
    if named is not _held(function) and memoized_below is not memoized_function:
        raise ValueError(
            f"{name} cannot be memoized: {module}.{name} is {found!r:.80}, and not {function!r:.80}, so that calls of "
            f"both would have one key; {_OTHERWISE}"
        )


def _found(module: str, name: str) -> object:
    """Returns what a module has under a qualified name, as it is stored there; ``None`` for nothing."""
    found: object = sys.modules.get(module)
    for part in name.split("."):
        names = getattr(found, "__dict__", {})
        # The second: a private name of a class.
        found = names.get(part, names.get(f"_{getattr(found, '__name__', '').lstrip('_')}{part}"))
    return found


def _held(found: object) -> object:
    """Returns the function in what a class may hold it in."""
    if isinstance(found, (classmethod, staticmethod)):
        return found.__func__
    if isinstance(found, property):
        return found.fget
    return found.func if isinstance(found, functools.cached_property) else found


def _script(module: str) -> str:
    """Returns a name that distinguishes the ``__main__`` of this program from that of others."""
    main = sys.modules[module]
    if main.__spec__ is not None:
        return main.__spec__.name
    if main.__dict__.get("__file__") is None:
        raise ValueError("what is defined at a prompt cannot be memoized: others define the same names there")
    return os.path.realpath(str(main.__file__))


def _arguments(signature: inspect.Signature, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[object]:
    """Returns the same description for all ways to pass the same arguments."""
    bound = signature.bind(*args, **kwargs)
    bound.apply_defaults()
    for name, value in bound.arguments.items():
        given = [list(item) for item in sorted(value.items())] if _takes_names(signature, name) else value
        bound.arguments[name] = _described(name, given)
    return [[name, value] for name, value in bound.arguments.items()]


def _takes_names(signature: inspect.Signature, name: str) -> bool:
    return signature.parameters[name].kind is inspect.Parameter.VAR_KEYWORD


def _described(name: str, value: Any) -> object:
    """Returns a description of ``value`` that differs for a list and a tuple, an enumeration's member and its value."""
    kind = type(value)
    if kind in (list, tuple):
        return [kind.__name__, *(_described(name, item) for item in value)]
    if value is None or kind in _PLAIN:
        return value
    accepted = "None, bool, int, float, str, bytes, lists and tuples of these"
    raise TypeError(
        f"argument {name} has a {kind.__name__} ({value!r:.80}), and keys are made of {accepted}; "
        "state what the result depends on by memoize(key=...)"
    )


def _given(key: object) -> object:
    if not isinstance(key, (bytes, str)):
        raise TypeError(f"what memoize's key returns must be bytes or str, got {type(key).__name__} {key!r:.80}")
    return key
