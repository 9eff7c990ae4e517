# SPDX-License-Identifier: Apache-2.0
"""Memoization: a function whose results a cache keeps, and the keys of its calls.

Keeps the rule that two calls have one key only if they may have one result. A name that other functions have too, and
an argument whose bytes nobody knows, are refused, never guessed.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from lockcache.calling.identity import PLAIN, identify, mark, name_of, stack
from lockcache.keys.hashing import key as key_of

if TYPE_CHECKING:
    from lockcache.resource import Entry, ProgramCacheResource


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
    module, name = name_of(function, is_keyed=key is not None)
    layers = stack(function, version)
    signature, returned = inspect.signature(function), f"what {name} returned"

    @functools.cache
    def identity() -> list[str]:
        return identify(module, name, layers)

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
    mark(memoized_function, layers)
    return memoized_function


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
    if value is None or kind in PLAIN:
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
