"""Room for a write: give back what the dead hold, evict, or wait for other writers; and the cap that an opener states.

Keeps invariant 3 (hard cap) for writers: a write goes on only after it has seen the sum of everything accounted for,
its own reservation included, at or under the cap. A program's ``max_size_bytes`` becomes the directory's when it opens
it (:func:`apply_cap`), unless an operator set one, and what is over it is evicted before anything else is done. Keeps
invariant 5 (death is free) without a daemon: what killed writers left reserved is reclaimed before anything is evicted
for it. Keeps invariant 4 (nobody hangs) where writes in progress together exceed the cap, by a queue: its head tries
again, the others wait. Writers whose reservations exclude each other, and who all come again, meet again: of 64 writers
of a third of the cap each on two cores hardly any got through within a minute. One at a time, all of them do, in
seconds. Keeps invariant 7: a disk that is too full for a new policy is a warning, not an error.

Not promised: that the queue excludes anybody, or the order. The head decides when to try, never whether there is room.
So where no lock can be had (a network mount without them, a full disk), where the head is stopped, or where what it
wants is not to be had for long, the others try all the same.

Lock order: the queue's lock is taken without a shard lock held, and kept while taking one shard lock at a time.
"""

from __future__ import annotations

import errno
import logging
import random
import time
from dataclasses import replace
from typing import Final

from lockcache.filestream.accounting import UsagePage
from lockcache.filestream.directory import CacheDirectory
from lockcache.filestream.disk import Hold, refuse_symlink, space_of
from lockcache.filestream.eviction import Evicted, evict_to_limit
from lockcache.filestream.policy import Policy
from lockcache.filestream.repair import reap, recount_drifted

__all__ = ["RoomQueue", "apply_cap", "make_room", "reap_if_possible"]

_log = logging.getLogger("lockcache")


# Each round evicts what it can; more than one is only needed while others fill what was freed, or hold shard locks.
_ROUNDS: Final = 8

_SUSPICIOUS_SHARE: Final = 8

# Between two tries: about what writing a few MiB takes, at random, so that those who met do not meet again.
_LONGEST_PAUSE_SECONDS: Final = 0.02

# How long a writer waits to become the head before it tries without; each further time twice as long, up to a limit. A
# head needs milliseconds: this is met where it is stopped or wants much, or a hundred are in front.
_FIRST_PATIENCE_SECONDS: Final = 0.25
_LONGEST_PATIENCE_SECONDS: Final = 1.0


def make_room(directory: CacheDirectory, usage: UsagePage, limit_bytes: int) -> tuple[bool, Evicted]:
    """Evict until all that is accounted for is at most ``limit_bytes``. Whether it is, and what was evicted.

    Requires: the caller's reservation stands in ``usage``, and no lock is held. ``False`` means that what is left
    belongs to other writers' reservations: the caller gives its own back, queues and comes again, or all of them would
    wait for ever.
    """
    done = Evicted()
    if usage.total_bytes() <= limit_bytes:
        return True, done
    reap(directory)
    # Writers in flight, or a cap just lowered, account for some excess. This much may also be damage or drift, and to
    # look first costs less than to evict for it.
    if usage.total_bytes() - limit_bytes > limit_bytes // _SUSPICIOUS_SHARE:
        recount_drifted(directory)
    for _ in range(_ROUNDS):
        if usage.total_bytes() <= limit_bytes:
            return True, done
        evicted = evict_to_limit(directory, limit_bytes)
        done += evicted
        # Nothing to evict: reservations, or a drift, which would otherwise keep a small cache shut for ever.
        if not evicted.entries and not recount_drifted(directory):
            break
    return usage.total_bytes() <= limit_bytes, done


class RoomQueue:
    """One writer's place in the queue of its directory, from :meth:`wait` until :meth:`leave`."""

    __slots__ = ("_directory", "_head", "_patience_seconds")

    def __init__(self, directory: CacheDirectory) -> None:
        self._directory = directory
        self._patience_seconds = _FIRST_PATIENCE_SECONDS
        self._head: Hold | None = None

    def wait(self, deadline: float) -> None:
        """Wait until it is time to try again; not beyond ``deadline`` (monotonic seconds)."""
        if self._head is None:
            self._head = self._become_head(deadline - time.monotonic())
            if self._head is not None:
                return
        left_seconds = max(0.0, deadline - time.monotonic())
        time.sleep(min(left_seconds, random.uniform(0, _LONGEST_PAUSE_SECONDS)))

    def leave(self) -> None:
        """Make way for the next one; nothing for who is not the head."""
        if self._head is not None:
            self._head.release()
            self._head = None

    def _become_head(self, left_seconds: float) -> Hold | None:
        layout = self._directory.layout
        patience_seconds = max(0.0, min(self._patience_seconds, left_seconds))
        self._patience_seconds = min(self._patience_seconds * 2, _LONGEST_PATIENCE_SECONDS)
        try:
            for folder in (layout.own, layout.locks):
                refuse_symlink(folder)  # the other members of a group may have put one there
            return self._directory.room_lock.hold(patience_seconds)
        except OSError:
            return None


def apply_cap(directory: CacheDirectory, cap: int | None) -> Evicted:
    """Make ``cap`` the directory's (``None``: leave it), and evict down to the cap in force. What was evicted."""
    policy, root = directory.policy.current(), directory.layout.root
    done = Evicted()
    if directory.usage_if_writable() is not None:
        reap_if_possible(directory)
    if cap is not None and cap != policy.max_size_bytes and directory.usage_if_writable() is not None:
        if policy.by_operator:
            _log.warning(
                "%s: max_size_bytes=%d is not applied, an operator set it to %s", root, cap, policy.max_size_bytes
            )
        else:
            done += _replace_policy(directory, replace(policy, max_size_bytes=cap))
    return done + _evict_to(directory, directory.policy.current())


def reap_if_possible(directory: CacheDirectory) -> None:
    """Give back what the dead hold; without a cap nobody else may ever look. One listing where they left nothing."""
    try:
        reap(directory)
    except OSError as error:
        _log.debug("%s: what killed writers left cannot be removed now: %s", directory.layout.root, error)


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
    limit = policy.entries_limit_bytes(space_of(directory.layout))
    usage = directory.usage_if_writable()
    done = Evicted()
    while limit is not None and usage is not None and usage.total_bytes() > limit:
        evicted = evict_to_limit(directory, limit)
        if not evicted.entries:
            break  # what is left is being written by others, who make room for themselves
        done += evicted
    return done
