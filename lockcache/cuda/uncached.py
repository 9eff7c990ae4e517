"""Results that a cache does not keep: reported once for each reason, and otherwise like any other result."""

from __future__ import annotations

import logging
from typing import Final

from lockcache.resource import ProgramCacheResource

_log = logging.getLogger("lockcache")

# Reasons name options and their values, so there are as many as a program has kinds of programs.
_reported: Final[set[str]] = set()


def not_cached(cache: ProgramCacheResource, reason: str) -> None:
    """Log that a result is returned and not stored; once in this process for each ``reason``."""
    if reason not in _reported:
        _reported.add(reason)
        _log.warning("%r: a result is returned and not stored: %s", cache, reason)
