"""Differences of two keys: the parts that changed, without those that changed only because another one did.

Line information takes the working directory into a key, a header that changed is also another digest of all headers:
the cause is named, and the consequence is not.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

from lockcache.explain.parts import OTHERS, Part

#: A part whose name begins so changes with any of those behind it, which are named in its place.
_CONSEQUENCES: Final = {
    "order of options": ("option ", "define ", "undefine ", "include path", "pre-include"),
    "order of modules": ("module ",),
    "headers": ("header ",),
}
#: The same for parts that one of the two keys lacks: these are in a key only if an option or the target wants them.
_ON_DEMAND: Final = {
    "working directory": ("option ", "target"),
    "variable ": ("target",),
}


class Difference(NamedTuple):
    """One part that differs; ``None`` where a key has no such part."""

    name: str
    mine: Part | None
    other: Part | None


def differences(mine: Iterable[Part], other: Iterable[Part]) -> list[Difference]:
    """Returns the parts in which two keys differ, in the order of ``mine``. Empty: none that is kept."""
    by_name, others = {part.name: part for part in mine}, {part.name: part for part in other}
    # What one of the two had no room for may be among the others of the other.
    is_cut = OTHERS in by_name or OTHERS in others
    found = []
    for name in [*by_name, *(name for name in others if name not in by_name)]:
        one, another = by_name.get(name), others.get(name)
        if one and another and one.hash == another.hash:
            continue
        if is_cut and name != OTHERS and not (one and another):
            continue
        found.append(Difference(name, one, another))
    return [each for each in found if not _follows(each, found)]


def _follows(difference: Difference, found: list[Difference]) -> bool:
    name = difference.name
    if name == OTHERS:
        is_comparable = bool(difference.mine and difference.other and difference.mine.value == difference.other.value)
        return len(found) > 1 and not is_comparable
    causes = _CONSEQUENCES.get(name, ())
    if not (difference.mine and difference.other):
        causes += next((each for begin, each in _ON_DEMAND.items() if name.startswith(begin)), ())
    return any(each.name.startswith(cause) for each in found for cause in causes)
