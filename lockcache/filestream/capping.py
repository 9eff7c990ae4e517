"""What a program's ``max_size_bytes`` does to the directory that it opens.

Keeps invariant 3 from the first moment: the cap becomes the directory's, for all its processes, unless an operator set
one, and what is over it is evicted before anything else is done. Keeps invariant 7: a disk that is too full for the new
policy is a warning, not an error.
"""

from __future__ import annotations

import errno
import logging
from dataclasses import replace

from lockcache.filestream.directory import CacheDirectory
from lockcache.filestream.eviction import Evicted, evict
from lockcache.filestream.policy import Policy

__all__ = ["apply_cap"]

_log = logging.getLogger("lockcache")


def apply_cap(directory: CacheDirectory, cap: int | None) -> Evicted:
    """Make ``cap`` the directory's (``None``: leave it), and evict down to the cap in force. What was evicted."""
    policy, root = directory.policy.current(), directory.layout.root
    done = Evicted()
    if cap is not None and cap != policy.max_size_bytes and directory.usage_if_writable() is not None:
        if policy.by_operator:
            _log.warning(
                "%s: max_size_bytes=%d is not applied, an operator set it to %s", root, cap, policy.max_size_bytes
            )
        else:
            done += _replace_policy(directory, replace(policy, max_size_bytes=cap))
    return done + _evict_to(directory, directory.policy.current())


def _replace_policy(directory: CacheDirectory, policy: Policy) -> Evicted:
    try:
        directory.policy.replace(policy)
        return Evicted()
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
    # It may well be this cache that fills the disk, and the cap that would have prevented it.
    done = _evict_to(directory, policy)
    try:
        directory.policy.replace(policy)
    except OSError as error:
        _log.warning("%s: max_size_bytes=%s is not applied: %s", directory.layout.root, policy.max_size_bytes, error)
    return done


def _evict_to(directory: CacheDirectory, policy: Policy) -> Evicted:
    limit = policy.entries_limit_bytes
    usage = directory.usage_if_writable()
    done = Evicted()
    while limit is not None and usage is not None and usage.total_bytes() > limit:
        evicted = evict(directory, limit)
        if not evicted.entries:
            break  # what is left is being written by others, who make room for themselves
        done += evicted
    return done
