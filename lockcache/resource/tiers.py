# SPDX-License-Identifier: Apache-2.0
"""Tiers: storing in one and removing from one, for caches that are made of several.

Promises that a copy in a tier is neither reported nor counted as a compilation, and that a tier that takes none fails
nobody.
"""

from __future__ import annotations

import contextlib
import logging

from lockcache.resource.interface import ProgramCacheResource
from lockcache.resource.values import Entry
from lockcache.serving import unreported

__all__ = ["copy_into", "put_copy_into", "put_into", "remove_from"]

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


def put_copy_into(tier: ProgramCacheResource, name: bytes, entry: Entry, source: str = "found") -> None:
    """Store an entry that was found in another tier, or ``stored`` there just now. Raises what the tier raises."""
    origin = unreported.origin
    unreported.origin = origin or source
    try:
        put_into(tier, name, entry)
    finally:
        unreported.origin = origin


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
