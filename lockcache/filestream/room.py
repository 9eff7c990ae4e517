"""Room for a write: give back what the dead hold, evict, or wait for other writers; and the cap that an opener states.

Keeps invariant 3 (hard cap) for writers: a write goes on only after it has seen the sum of everything accounted for,
its own reservation included, at or under the cap. A program's ``max_size_bytes`` becomes the directory's when it opens
it (:func:`apply_cap`), unless an operator set one, and what is over it is evicted before anything else is done. Keeps
invariant 5 (death is free) without a daemon: what killed writers left reserved is reclaimed before anything is evicted
for it. Keeps invariant 4 (nobody hangs): every wait ends at the write's deadline, every pass too, but for one of a
second at most. Keeps invariant 7: a disk that is too full for a new policy is a warning, not an error.

Where many write into a full cache, one at a time evicts, the head, for all who have reserved by then and a batch for
those who come next. The others sleep. All of them looking for victims at once, and looking on again and again, took
sixty-four writers a minute where this takes seconds. That there is room the head sees for all who wait (a sum with all
of their reservations in it is the same whoever looks), and they go on without a look of their own, by when others may
have come and filled it. Writes in progress that together exceed the cap exclude each other: then all but the head give
their reservations back, and come again one at a time.

Not promised: that the queue excludes anybody, or the order. The head decides when to try, never whether there is room.
So where no lock can be had (a network mount without them, a full disk), or the head is stopped, the others try all the
same, once nothing was accounted for by anybody for a while.

Lock order: the queue's lock is taken without a shard lock held, and kept while taking one shard lock at a time.
"""

from __future__ import annotations

import errno
import logging
import random
import time
from dataclasses import replace
from typing import Final

from lockcache.filestream.accounting import Slot, UsagePage, bytes_beside
from lockcache.filestream.directory import CacheDirectory
from lockcache.filestream.disk import Hold, Queue, Woken, grant, refuse_symlink, space_of, wake_next
from lockcache.filestream.eviction import Evicted, evict_to_limit
from lockcache.filestream.policy import Policy
from lockcache.filestream.repair import reap, recount_drifted

__all__ = ["Room", "apply_cap", "reap_if_possible"]

_log = logging.getLogger("lockcache")


_SUSPICIOUS_SHARE: Final = 8

# Evicted beyond what is needed: so many times what others have on its way, but no more than this share of the cap.
_BATCH_FACTOR: Final = 4
_LARGEST_BATCH_SHARE: Final = 4

# For one look for victims and what is removed then, whatever the write's timeout: of a million entries some ms.
_LEAST_PASS_SECONDS: Final = 1.0

# Between two looks for victims while nothing seems to have changed: all in busy shards, or killed writers' files that
# are still too young to be taken for that.
_BETWEEN_PASSES_SECONDS: Final = 0.1

# Between two looks at the sum by the head, where nothing is left to evict: about what writing a MiB takes.
_HEAD_LOOKS_SECONDS: Final = (0.0005, 0.003)

# By the others, who are woken: for what wakes nobody.
_OTHERS_LOOK_SECONDS: Final = (0.1, 0.3)

# Where nothing was reserved, published or removed for so long, the head is stopped: others try without their turn.
_PATIENCE_SECONDS: Final = 0.25

# Who waits with so small a share of the cap reserved is in nobody's way, and has its room made by the head.
_SMALL_SHARE: Final = 64

# How long a reservation waits for room before it makes way for others.
_LONGEST_IN_THE_WAY_SECONDS: Final = 1.0


class Room:
    """One write's way to room in its directory, from its first :meth:`make` until :meth:`leave`.

    Of those who find none one at a time, the head, evicts: for all who have reserved by then, whom it tells to go on
    once there is room. What all of them together reserve may be more than the cap: then all but the head give their
    reservations back, and come again one after the other.
    """

    __slots__ = (
        "_deadline",
        "_directory",
        "_has_turn",
        "_head",
        "_in_vain",
        "_is_given_up",
        "_is_recounted",
        "_limit_bytes",
        "_next_pass_at",
        "_progress",
        "_queue",
        "_reserved_bytes",
        "evicted",
    )

    def __init__(self, directory: CacheDirectory, deadline: float) -> None:
        """``deadline``: no wait and no pass goes on for longer (monotonic seconds)."""
        self._directory = directory
        self._deadline = deadline
        self._progress = _Progress()
        self._head: Hold | None = None
        self._queue: Queue | None = None
        self._has_turn = self._is_recounted = False
        # To try without a turn next time.
        self._is_given_up = False
        self._limit_bytes = self._reserved_bytes = 0
        # The last look for victims that found none, and when to look again.
        self._in_vain: Slot | None = None
        self._next_pass_at = 0.0
        #: What was evicted for this write.
        self.evicted = Evicted()

    def make(self, limit_bytes: int, reserved_bytes: int) -> bool:
        """Have all that is accounted for at most ``limit_bytes``. Whether it is.

        Requires: the write's reservation, of so many bytes, stands, and no shard lock is held. ``False`` means that it
        is in the way of other writers': the caller gives it back, waits and comes again, or all would wait for ever.
        """
        self._queue = None  # what is granted there is for an older reservation
        self._limit_bytes, self._reserved_bytes = limit_bytes, reserved_bytes
        is_small = reserved_bytes * _SMALL_SHARE <= limit_bytes
        give_way_at = min(self._deadline, time.monotonic() + _LONGEST_IN_THE_WAY_SECONDS)
        is_given_up, self._is_given_up = self._is_given_up, False
        while (total := (usage := self._directory.usage()).total()).bytes > limit_bytes:
            is_stuck = is_given_up or self._progress.is_stuck(usage)
            if self._is_head() or is_stuck:
                if self._is_worth_a_pass(total) and self._evict(total):
                    continue
            elif not is_small or not total.entries:
                return False
            if is_stuck or time.monotonic() >= give_way_at:
                return False
            if self._sleep() is Woken.BY_GRANT:
                return True  # the head saw for us that there is room, with our reservation
        return True

    def wait(self) -> None:
        """Wait until it is time to reserve again; not beyond the deadline. Requires: nothing reserved."""
        if self._head is not None:  # what it wants is not to be had for now: the others may try
            self._sleep()
            return
        self._queue = None  # nothing is reserved, and nothing can be granted
        while not self._is_overdue() and not self._is_head():
            usage = self._directory.usage()
            if self._progress.is_stuck(usage):
                self._is_given_up = True
                return
            woken = self._sleep(is_granted_too=False)
            # There is room, and nobody said so: the head is stopped, or on another host.
            if woken is Woken.BY_NOBODY and usage.total_bytes() + self._reserved_bytes <= self._limit_bytes:
                return

    def leave(self) -> None:
        """Make way for the next one; nothing for who had not to wait."""
        self._queue = None
        if self._head is not None:
            self._head.release()
            self._head = None
            self._has_turn = True
        if self._has_turn:
            self._has_turn = False
            wake_next(self._directory.layout, self._directory.layout.room_queue)

    def _sleep(self, *, is_granted_too: bool = True) -> Woken:
        left_seconds = max(0.0, self._deadline - time.monotonic())
        if self._head is not None:  # it waits for writes that are under way
            time.sleep(min(left_seconds, random.uniform(*_HEAD_LOOKS_SECONDS)))
            return Woken.BY_NOBODY
        layout = self._directory.layout
        if self._queue is None:
            self._queue = Queue(layout, layout.room_queue, layout.room_bell if is_granted_too else "")
        if self._queue.join():
            return Woken.BY_NOBODY
        woken = self._queue.sleep(min(left_seconds, random.uniform(*_OTHERS_LOOK_SECONDS)))
        self._has_turn |= woken is Woken.IN_TURN
        return woken

    def _is_head(self) -> bool:
        """Whether it is, or is now."""
        if self._head is None:
            layout = self._directory.layout
            try:
                for folder in (layout.own, layout.locks):
                    refuse_symlink(folder)  # the other members of a group may have put one there
                self._head = self._directory.room_lock.try_hold()
            except OSError:
                return False
        return self._head is not None

    def _is_worth_a_pass(self, total: Slot) -> bool:
        """Whether to look for victims, after a look that found none: where there may be others, or after a while."""
        return (total.entries > 0 and total != self._in_vain) or time.monotonic() >= self._next_pass_at

    def _evict(self, total: Slot) -> bool:
        """Take back what the dead hold, and evict. Whether there was anything. ``total``: as it was a moment ago."""
        directory, limit_bytes = self._directory, self._limit_bytes
        reap(directory)
        slots, beside = directory.usage().slots(), bytes_beside(directory.layout)
        # What a name says and nobody accounts for is not reserved: others may write names.
        staged_bytes = sum(min(size, slots[shard].bytes) for shard, size in beside.items())
        held_bytes = total.bytes - staged_bytes
        # A cap just lowered accounts for some excess. This much may also be damage or drift, and to look first costs
        # less than to evict for it.
        if held_bytes - limit_bytes > limit_bytes // _SUSPICIOUS_SHARE and self._recount():
            return True
        # Others that write now write again: as much more as they have on its way, some times over.
        others_bytes = max(0, staged_bytes - self._reserved_bytes)
        # One pass there is, however little time was given: or a full cache stayed full.
        until = max(self._deadline, time.monotonic() + _LEAST_PASS_SECONDS)
        evicted = evict_to_limit(
            directory,
            limit_bytes,
            ahead_bytes=min(others_bytes * _BATCH_FACTOR, limit_bytes // _LARGEST_BATCH_SHARE),
            when_enough=self._grant,
            should_stop=lambda: time.monotonic() >= until,
        )
        self.evicted += evicted
        if evicted.entries or directory.usage().total_bytes() <= limit_bytes:
            return True
        self._in_vain, self._next_pass_at = total, time.monotonic() + _BETWEEN_PASSES_SECONDS
        # What cannot be evicted is reserved; or a drift, which would otherwise keep a small cache shut for ever.
        return held_bytes > 0 and self._recount()

    def _grant(self) -> None:
        """Tell all small writes that wait to go on, if there is room for each that has reserved by then."""
        layout = self._directory.layout
        grant(layout, layout.room_bell, self._has_room_for_all)

    def _has_room_for_all(self) -> bool:
        # By the cap in force now, which may be lower than ours.
        limit_bytes = self._directory.limit_bytes()
        return limit_bytes is None or self._directory.usage().total_bytes() <= limit_bytes

    def _recount(self) -> bool:
        """Whether the accounting said more than the disk holds; it does not for as long as a write lasts."""
        if self._is_recounted:
            return False
        self._is_recounted = True
        return recount_drifted(self._directory, self._is_overdue) > 0

    def _is_overdue(self) -> bool:
        return time.monotonic() >= self._deadline


class _Progress:
    """Whether anything was done in a directory of late, to go by its accounting."""

    __slots__ = ("_changed_at", "_image")

    def __init__(self) -> None:
        self._image = b""
        self._changed_at = 0.0

    def is_stuck(self, usage: UsagePage) -> bool:
        """Whether nobody accounted for anything for a while. Begins anew then."""
        image, now = usage.image(), time.monotonic()
        is_same = image == self._image
        if is_same and now - self._changed_at < _PATIENCE_SECONDS:
            return False
        self._image, self._changed_at = image, now
        return is_same


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
