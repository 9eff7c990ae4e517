"""Tiers: storing in one and removing from one, for caches that are made of several.

Promises that a copy in a tier is neither reported nor counted as a compilation, and that a tier that takes none fails
nobody.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator
from typing import Literal

from lockcache.resource.interface import ProgramCacheResource
from lockcache.resource.values import Entry
from lockcache.serving import unreported

__all__ = ["copy_into", "copying", "put_copy_into", "put_into", "remove_from"]

_log = logging.getLogger("lockcache")


def put_into(tier: ProgramCacheResource, name: bytes, entry: Entry) -> None:
    """Store an entry. Raises what the tier raises."""
    unreported.depth += 1  # the store through all tiers is, if it is a compilation
    try:
        if entry.metadata:
            tier.put_entry(name, entry)
        else:
            tier[name] = entry.code
    finally:
        unreported.depth -= 1


def put_copy_into(tier: ProgramCacheResource, name: bytes, entry: Entry) -> None:
    """Store an entry that was found in another tier. Raises what the tier raises."""
    with copying("found"):
        put_into(tier, name, entry)


@contextlib.contextmanager
def copying(origin: Literal["found", "stored", "imported"]) -> Iterator[None]:
    """A block in which ``lockcache run`` counts otherwise what this thread stores, unless the process knows it already.

    ``found``: in another tier. ``stored``: in another tier just now, which may have counted it as compiled.
    ``imported``: from elsewhere; it is neither found nor compiled.
    """
    before = unreported.origin
    unreported.origin = before or origin  # the block around this one knows more
    try:
        yield
    finally:
        unreported.origin = before


def copy_into(tier: ProgramCacheResource, name: bytes, entry: Entry | None) -> bool:
    """Make a tier hold a copy, or none; whether it did: one that may only be read, or keeps no metadata, does not."""
    try:
        if entry is not None:
            put_copy_into(tier, name, entry)
        else:
            remove_from(tier, name)
    except (OSError, TypeError) as error:
        _log.debug("%r takes no copy: %s", tier, error)
        return False
    return True


def remove_from(tier: ProgramCacheResource, name: bytes) -> bool:
    """Remove an entry. Returns whether it was there. Raises what the tier raises otherwise."""
    with contextlib.suppress(KeyError):
        del tier[name]
        return True
    return False
