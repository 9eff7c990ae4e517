# SPDX-License-Identifier: Apache-2.0
"""AskedOnce: an attribute that is made when it is first asked for, and then stands in the object itself.

Keeps the cost of an opening: what only some programs need is made at its first use, and costs nothing afterwards.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeVar

_Value = TypeVar("_Value")


class AskedOnce(Generic[_Value]):
    """Decorates a method, whose result is the attribute. All threads get the same one.

    Not ``functools.cached_property``, which takes a lock before Python 3.12: a fork may come meanwhile.
    """

    def __init__(self, make: Callable[[Any], _Value]) -> None:
        self._make = make
        self.__doc__ = make.__doc__

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    def __get__(self, thing: object, owner: type) -> _Value:
        # setdefault is one step: of two threads that come first, both get what one of them made.
        return vars(thing).setdefault(self._name, self._make(thing))  # type: ignore[no-any-return]
