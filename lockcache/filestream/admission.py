# SPDX-License-Identifier: Apache-2.0
"""Admission: room for a write, by eviction or by waiting for other writers; and the cap of an opener.

Keeps invariant 3 (hard cap) for writers: a write goes on only after the sum of everything accounted for, with the
reservation of this write in it, was at or under the cap. A program's ``max_size_bytes`` becomes the directory's when
the program opens it (:func:`apply_policy`), unless an operator set one, and entries over a new one are evicted before
anything else is done. Keeps invariant 5 (death is free) without a daemon: reservations of killed writers are reclaimed
before anything is evicted. Keeps invariant 4 (readers never wait): every wait ends at the write's deadline. A pass of
eviction ends there too, but the first one may last a second. Keeps invariant 7 (never take the job down): a disk that
is too full for a new policy is a warning, not an error.

Where many processes write into a full cache, one at a time evicts, the head, for all writers that have reserved by then
and a batch for the next ones. The others sleep. Small writes sleep with their reservations, at a bell that the head
rings when it has evicted. It reads the sum once more when nobody can begin to listen any more, so that their
reservations are in it, and the bell says whether that was at or under the cap. Large writes give their reservations
back, and try again one after the other, in a queue. Before, all of them searched for victims at once, and sixty-four
writers took a minute for what takes seconds now.

Not promised: that the queue excludes anybody, or the order. The queue decides when a writer tries, never whether there
is room. So where no lock can be taken (a network mount without locks, a full disk), or the head is stopped, the other
writers try without their turn, once the accounting has not changed for a while.

Lock order: the queue's lock is taken without a shard lock held, and kept while taking one shard lock at a time.
"""

from __future__ import annotations

import contextlib
import logging
import random
import time
from enum import Enum, auto
from functools import partial
from typing import Final

from lockcache.errors import LockTimeoutError
from lockcache.filestream.accounting import Slot, StatePage, Sums, bytes_in, space_of, sums_in
from lockcache.filestream.directory import CacheDirectory
from lockcache.filestream.disk import DISK_FULL, Hold, Waiter, ring
from lockcache.filestream.eviction import Evicted, evict_to_limit
from lockcache.filestream.policy import Policy, Priority
from lockcache.filestream.repair import look_at_staged, reap, recount_drifted, recount_unless_busy

_log = logging.getLogger("lockcache")


# An excess over the cap of more than this share of it may be damage or drift: it is checked before eviction.
_SUSPICIOUS_SHARE: Final = 8

# The batch beyond what is needed: the other writers' reservations once more, at most this share of the cap.
_LARGEST_BATCH_SHARE: Final = 4

# The least time for a search for victims and their removal, whatever the write's timeout.
_LEAST_PASS_SECONDS: Final = 1.0

# Between two searches that found nothing: all victims are in busy shards, or the staged files of killed writers are
# still too young to be reaped.
_BETWEEN_PASSES_SECONDS: Final = 0.1

# Between two checks of the sum by the head, where nothing is left to evict: about the time to write a MiB.
_HEAD_CHECKS_SECONDS: Final = (0.0005, 0.003)

# Where the accounting has not changed for so long, the head is stopped: the others try without their turn. And for so
# long an opening tries again to come under a cap, where victims are in use or their shards are busy.
_PATIENCE_SECONDS: Final = 0.25

# A write sleeps with its reservation if that is at most this share of the cap. If all writes give their reservations
# back, 8 to 64 writers into a full cache take twice as long; if all keep them, large ones exclude each other.
_SMALL_SHARE: Final = 64

# The longest wait with a reservation, before the writer gives it back for the sake of others.
_LONGEST_RESERVED_SECONDS: Final = 1.0


class _Place(Enum):
    """The place of a write among the writes that want room."""

    #: Among none: it has not waited yet, or waits to be woken.
    NONE = auto()
    #: The first: it was woken, and wakes the next one when it has its room or gives up.
    FIRST = auto()
    #: The head: it has the lock of the queue, and evicts.
    HEAD = auto()
    #: It tries once without a turn, because the head seems to be stopped.
    PASSING = auto()


class _Tried(Enum):
    """The remedies that a write has tried."""

    NOTHING = auto()
    EVICTION = auto()
    #: Also to recount shards that drifted: once for each write.
    RECOUNT = auto()


class Admission:
    """The way of one write to its room, from its first :meth:`make_room` until :meth:`leave`."""

    def __init__(self, directory: CacheDirectory, deadline: float) -> None:
        """``deadline``: the end of every wait, in monotonic seconds."""
        self._directory, self._layout = directory, directory.layout
        self._deadline = deadline
        self._place = _Place.NONE
        self._head: Hold | None = None
        self._limit_bytes = self._reserved_bytes = 0
        # The sum at the last search that found no victims, and when the next one is due.
        self._total_in_vain: Slot | None = None
        self._next_pass_at = 0.0
        self._tried = _Tried.NOTHING
        # Whether a sum with the reservation that stands in it was found at or under the cap, here or by the head.
        self._has_room = False
        # The accounting page as it was seen last, and when it changed.
        self._image = b""
        self._changed_at = 0.0
        #: The entries evicted for this write.
        self.evicted = Evicted()

    def make_room(self, limit_bytes: int, reserved_bytes: int, usage: StatePage | None = None) -> bool:
        """Evict until all that is accounted for is at most ``limit_bytes``, if it is this write's turn.

        Returns whether it is. Requires: the write's reservation of ``reserved_bytes`` stands, on the page ``usage`` or
        the one in force, and no shard lock is held. After ``False`` the caller gives the reservation back, calls
        :meth:`wait`, and reserves again: else two writes of a third of the cap and that of the head would exclude each
        other. A small write sleeps with its reservation, from which the head knows for how much to evict, as long as
        there is something to evict.
        """
        self._limit_bytes, self._reserved_bytes, self._has_room = limit_bytes, reserved_bytes, False
        is_small = reserved_bytes * _SMALL_SHARE <= limit_bytes
        give_back_at = min(self._deadline, time.monotonic() + _LONGEST_RESERVED_SECONDS)
        bell: Waiter | None = None
        while True:
            # The page of the reservation, which is on another one if the directory is replaced meanwhile.
            if usage is None or not usage.is_at(self._layout.state):
                usage, self._has_room = self._directory.usage(), False
            image = usage.whole()
            limit_now = self._directory.policy.stated_in(image).limit_bytes
            if limit_now is not None and limit_now < limit_bytes:
                return False  # lowered while this waited: by that one it is tried again
            if bytes_in(image) <= limit_bytes or self._has_room:
                return True
            sums = sums_in(image)
            has_turn = self._place is _Place.PASSING or self._is_head()
            if has_turn and self._evict(usage, sums):
                continue
            if self._place is _Place.PASSING:
                self._place = _Place.FIRST
                return False
            if not (has_turn or (is_small and any(sums.entries))) or time.monotonic() >= give_back_at:
                return False
            if has_turn:
                self._pause()
                continue
            bell = bell or Waiter(self._layout, self._layout.room_bell)
            if not bell.listen():  # else the head may have left before
                bell.sleep(give_back_at)
                self._has_room = bell.is_granted

    def wait(self) -> None:
        """Wait until it is time to reserve again; not beyond the deadline. Requires: nothing reserved."""
        if self._head is not None:  # its room is not to be had now: other writers may try
            self._pause()
            return
        queue = Waiter(self._layout, self._layout.room_queue, is_queue=True)
        while not self._is_overdue() and not self._is_head():
            image = self._directory.usage().whole()
            if self._is_stuck(image):
                self._place = _Place.PASSING
                return
            if queue.listen():  # the head may have left before
                continue
            if queue.sleep(self._deadline):
                self._place = _Place.FIRST
            # There is room, and nobody woke this waiter: the head is stopped, or on another host.
            elif bytes_in(image) + self._reserved_bytes <= self._limit_bytes:
                return

    def leave(self) -> None:
        """Give up the place in the queue, and wake the next writer. Does nothing for a write that did not wait."""
        if self._head is not None:
            self._head.release()
            self._head = None
            ring(self._layout, self._layout.room_bell)
        if self._place is not _Place.NONE:
            self._place = _Place.NONE
            ring(self._layout, self._layout.room_queue, is_queue=True)

    def _finds_room(self, usage: StatePage) -> bool:
        """Returns whether the sum is at or under the cap, in which case this write has its room as well."""
        image = usage.whole()
        limit_bytes = self._directory.policy.stated_in(image).limit_bytes
        is_within = limit_bytes is None or bytes_in(image) <= limit_bytes
        # Those who listen by now may have reserved on another page than this.
        self._has_room = is_within and usage.is_at(self._layout.state)
        return self._has_room

    def _pause(self) -> None:
        """Let writes in progress go on."""
        left_seconds = max(0.0, self._deadline - time.monotonic())
        time.sleep(min(left_seconds, random.uniform(*_HEAD_CHECKS_SECONDS)))

    def _is_head(self) -> bool:
        """Returns whether this writer is the head, or has become it."""
        if self._head is None:
            with contextlib.suppress(OSError):  # no lock is to be had: nobody is the head
                self._head = self._directory.room_lock.try_hold()
            if self._head is not None:
                self._place = _Place.HEAD
        return self._head is not None

    def _is_stuck(self, image: bytes) -> bool:
        """Returns whether the accounting has not changed for a while. The next while begins then."""
        now = time.monotonic()
        is_same = image == self._image
        if is_same and now - self._changed_at < _PATIENCE_SECONDS:
            return False
        self._image, self._changed_at = image, now
        return is_same

    def _evict(self, usage: StatePage, sums: Sums) -> bool:
        """Reclaim what dead writers hold, and evict. Returns whether there was anything.

        ``sums``: those that were over the limit. Searches again only where there may be other victims, or after a
        while.
        """
        directory, limit_bytes, total = self._directory, self._limit_bytes, Slot(*map(sum, sums))
        if self._tried is not _Tried.NOTHING and self._is_overdue():
            return False
        if (not total.entries or total == self._total_in_vain) and time.monotonic() < self._next_pass_at:
            return False
        if self._tried is _Tried.NOTHING:
            self._tried = _Tried.EVICTION
        staged, dead, others_bytes = look_at_staged(self._layout)
        if others_bytes != directory.policy.stated.policy.others_bytes:
            directory.policy.make_room_for(others_bytes)
        for shard in dead:
            recount_unless_busy(directory, shard)
        # A name alone reserves nothing: other members of a group can make files of any name.
        staged_bytes = sum(min(size, sums.bytes[shard]) for shard, size in staged.items())
        held_bytes = total.bytes - staged_bytes
        if held_bytes - limit_bytes > limit_bytes // _SUSPICIOUS_SHARE and self._recount():
            return True
        ahead_bytes = max(0, staged_bytes - self._reserved_bytes)
        # The first pass is made however short the timeout is: else a full cache would stay full.
        until = max(self._deadline, time.monotonic() + _LEAST_PASS_SECONDS)
        evicted = evict_to_limit(
            directory,
            limit_bytes,
            ahead_bytes=min(ahead_bytes, limit_bytes // _LARGEST_BATCH_SHARE),
            should_stop=lambda: time.monotonic() >= until,
            usage=usage,
        )
        self.evicted += evicted
        # All whose reservations are in a sum that is at or under the cap have their room. Were they only woken, writers
        # that never slept would take it first, round after round, and p99 would be three times as long.
        ring(self._layout, self._layout.room_bell, is_granted=partial(self._finds_room, usage))
        if evicted.entries or usage.total_bytes() <= limit_bytes:
            return True
        self._total_in_vain, self._next_pass_at = total, time.monotonic() + _BETWEEN_PASSES_SECONDS
        # The rest is reserved by others; or it is drift, which would keep a small cache shut for ever.
        return held_bytes > 0 and self._recount()

    def _recount(self) -> bool:
        """Recount shards that drifted, once for each write. Returns whether any did."""
        if self._tried is _Tried.RECOUNT:
            return False
        self._tried = _Tried.RECOUNT
        return recount_drifted(self._directory, self._is_overdue) > 0

    def _is_overdue(self) -> bool:
        return time.monotonic() >= self._deadline


def apply_policy(directory: CacheDirectory, cap: int | None, priority: Priority | None = None) -> Evicted:
    """Set the directory's cap and priority (``None``: unchanged), and evict down to the cap. Returns what was evicted.

    Looks at what is stored only where that may be over the cap: this opening changed the policy, or counted the
    directory, or found more accounted for, as the death or an interrupt of the process that lowered the cap leaves it.

    What cannot be published now is published as soon as it can be, and until then this process alone keeps to it: see
    :meth:`.StatedPolicy.want`. How a program's policy and the directory's go together: :meth:`.Policy.over`.
    """
    rules = directory.policy  # which opening has read a moment ago
    wanted, before = Policy(cap, priority=priority or Policy.priority), rules.latest
    if wanted.over(before) != before:
        rules.want(wanted)
    elif before.by_operator:
        rules.report_refused(cap)
    is_within = rules.wanted is None and not (directory.was_counted or rules.was_exceeded)
    if is_within or directory.page is None:
        return Evicted()  # without a page nothing is stored, and what is wanted is published with it
    return _publish_wanted(directory) + evict_to_policy(directory, rules.latest)


def reap_if_possible(directory: CacheDirectory) -> None:
    """Give back what dead writers hold; without a cap no one else may ever do it. One listing if they left nothing.

    Publish also the policy that could not be published before.
    """
    try:
        reap(directory)
        if directory.policy.wanted is not None:
            directory.policy.publish_wanted()
    except OSError as error:
        _log.debug("%s: what killed writers left cannot be removed now: %s", directory.layout.root, error)


def _publish_wanted(directory: CacheDirectory) -> Evicted:
    rules, done = directory.policy, Evicted()
    try:
        rules.publish_wanted()
        return done
    except OSError as error:
        if error.errno not in DISK_FULL and not isinstance(error, LockTimeoutError):
            raise
    # It may well be this cache that fills the disk, and the cap that would have prevented it.
    done += evict_to_policy(directory, rules.latest)
    try:
        rules.publish_wanted()
    except OSError as error:
        what = "%s: only this program keeps to max_size_bytes=%s until it can be published: %s"
        _log.warning(what, directory.layout.root, rules.latest.max_size_bytes, error)
    return done


def evict_to_policy(directory: CacheDirectory, policy: Policy) -> Evicted:
    """Evict down to what a policy leaves for entries, as far as possible."""
    limit = policy.entries_limit_bytes(space_of(directory.layout))
    usage = directory.usage_if_writable()
    done = Evicted()
    if limit is not None and usage is not None and usage.total_bytes() > limit:
        reap_if_possible(directory)  # nothing needs to go for what the dead hold
    until = time.monotonic() + _PATIENCE_SECONDS
    while limit is not None and usage is not None and usage.total_bytes() > limit:
        evicted = evict_to_limit(directory, limit)
        done += evicted
        if evicted.entries:
            continue
        if time.monotonic() >= until:
            break  # what is left is in use, or others write it for so long
        # All victims were used since they were chosen, or are in a shard that is busy for some microseconds; or all is
        # reserved by writes that had their room before. At their end they find the new policy, and give it back.
        time.sleep(random.uniform(*_HEAD_CHECKS_SECONDS))
    return done
