# SPDX-License-Identifier: Apache-2.0
"""Reservations: bytes that a write may add to a shard, accounted for before one of them reaches the disk.

Keeps the writers' half of invariant 3 (hard cap: room is reserved in the same critical section that makes what is
staged) and 5 (death is free: the name of what is staged states its owner and what it has reserved, so any process can
give that back). Decides for how long a writer keeps its shard's lock, which is what differs on network file systems.

What is reserved ends as a part of an entry or a view, or is given back. Death in between leaves the accounting too
high, never too low.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable
from operator import attrgetter
from typing import Final, Protocol

from filelock import lock_descriptor

from lockcache.filestream.accounting import StatePage, bytes_in
from lockcache.filestream.directory import CacheDirectory
from lockcache.filestream.disk import give_up, staged_path, truncate_below
from lockcache.filestream.entry.removal import leave_to_reap

# Written within one hold of the shard's lock on a network file system: some 10 ms on a slow one.
_MOST_KEPT_BYTES: Final = 1 << 20

# A write that is given up has often waited its whole timeout for this lock; it does not wait as long again.
_ABANDON_SECONDS: Final = 0.25
# The same on a network file system, where each step of the lock's holder is a call to the server.
_REMOTE_ABANDON_SECONDS: Final = 2.0


class _Held(Protocol):
    def release(self) -> None:
        """Give the lock back."""


class Reservation:
    """The reservation of one staged write, and the path of what is staged. See :data:`RESERVATIONS`."""

    __slots__ = ("_deadline", "_directory", "is_standing", "known", "page", "path", "shard", "size_bytes")

    _abandon_seconds = _ABANDON_SECONDS

    #: What a shard is accounted for on, while its lock is held. A property without a function: each put asks for it.
    account = property(attrgetter("page"))
    #: Returns the page as it was read once the reservation stood: with cap and sum. A property for the same reason.
    whole_after = property(attrgetter("page.whole"))

    def __init__(self, directory: CacheDirectory, shard: int, size_bytes: int, deadline: float | None = None) -> None:
        """Reserve nothing yet. No lock is waited for past ``deadline`` (monotonic seconds; default: a lock timeout)."""
        self._directory = directory
        self.shard = shard
        self.size_bytes = size_bytes
        #: The page that holds the reservation.
        self.page: StatePage = directory.page or directory.attached()
        #: What the page stated when the shard's lock was taken.
        self.known = b""
        self._deadline = time.monotonic() + directory.lock_timeout_seconds if deadline is None else deadline
        #: Of what is staged; empty before, and once it is in its place.
        self.path = ""
        #: Whether it is still to be given back. Cleared just before what is staged takes its place: an interrupt from
        #: there on leaves too much accounted for; giving back what is published, too little.
        self.is_standing = False

    def take(self, make: Callable[[str], int | None]) -> int:
        """Make what is staged, and reserve its size, in one critical section. Returns its descriptor; -1 for a folder.

        ``make`` gets its path, and returns the descriptor of a file. That is locked, so that reapers on other hosts,
        which cannot check our pid, see that its owner lives. A folder has no lock that a reaper could try.
        """
        path = staged_path(self._directory.layout, self.shard, self.size_bytes)
        # self.hold, written out.
        hold, self.page, self.known = self._directory.hold_shard(self.shard, self._deadline, self.page)
        try:
            self.path = path  # before there is such a file: an interrupt must not leave it
            fd = make(path)
            if fd is not None:
                lock_descriptor(fd, blocking=False)  # closing the file releases the lock, and so does death
            self.page.add_locked(self.shard, self.size_bytes, 0, self.known)
            self.is_standing = True
            return -1 if fd is None else fd
        finally:
            hold.release()

    def give_way(self) -> None:
        """Let other processes have the shard's lock, before a wait. Requires: nothing written yet."""

    def hold(self, deadline: float | None = None) -> _Held:
        """Take the shard's lock, and the page that is in force under it. See :meth:`.CacheDirectory.hold_shard`."""
        until = self._deadline if deadline is None else deadline
        hold, self.page, self.known = self._directory.hold_shard(self.shard, until, self.page)
        return hold

    def give_back(self, remove: Callable[[str], bool]) -> None:
        """Remove what is staged, by ``remove`` with its path, and account for it no more.

        ``remove`` returns whether it was there. Does nothing for what is in its place. Raises nothing: an error is
        being handled.
        """
        path, directory = self.path, self._directory
        if not path:
            return
        try:
            hold = self.hold(time.monotonic() + min(directory.lock_timeout_seconds, self._abandon_seconds))
        except OSError:
            # Without the lock the page is not to be changed. What stays of the file says so to the next reap.
            give_up(os.path.basename(path))
            with contextlib.suppress(OSError):
                truncate_below(directory.layout, path, 0)
            return
        try:
            # A missing file was taken for a dead owner's, and its reservation was given back with it.
            if discard(path, remove):
                try:
                    if self.is_standing:
                        self.account.add_locked(self.shard, -self.size_bytes, 0, self.known)
                    else:  # it was cut short, or counted from the disk since
                        self._count_again_locked()
                except OSError:  # by now another host may have replaced the page, with this on it
                    leave_to_reap(directory.layout, self.shard)
        finally:
            hold.release()
        self.path = ""

    def _count_again_locked(self) -> None:
        self._directory.count_again_locked(self.shard, self.page)


class NetworkReservation(Reservation):
    """A reservation on a network file system: a small write keeps the lock until what is staged is in its place.

    Giving the lock back and taking it again is eight calls to the server of twenty. See :meth:`give_way`.
    """

    __slots__ = ("_ahead", "_fd", "_hold", "_slot")

    _abandon_seconds = _REMOTE_ABANDON_SECONDS

    def __init__(self, directory: CacheDirectory, shard: int, size_bytes: int, deadline: float | None = None) -> None:
        super().__init__(directory, shard, size_bytes, deadline)
        # Of what is staged.
        self._fd: int | None = None
        self._hold: _Held | None = None
        # The shard's slot, while the lock is kept.
        self._slot: tuple[int, int] | None = None
        # An entry that is accounted for already, while the lock is kept: so one that is new needs no change at the end.
        self._ahead = 0

    def take(self, make: Callable[[str], int | None]) -> int:
        path = staged_path(self._directory.layout, self.shard, self.size_bytes)
        self.hold()
        self.path = path
        self._fd = make(path)
        self._slot = self.page.add_locked(self.shard, self.size_bytes, 1, self.known)
        self._ahead, self.is_standing = 1, True
        if self.size_bytes > _MOST_KEPT_BYTES:
            self.give_way()
        return -1 if self._fd is None else self._fd

    def whole_after(self) -> bytes:
        """Returns the page as it was read: again, after the reservation, only where a cap limits that.

        Before a first cap is in force, each shard is counted under its lock, and this write's with it. Gives the lock
        back where the write has to make room first: others must not wait for that.
        """
        if self._directory.policy.stated_in(self.known).limit_bytes is None:
            return self.known
        image = self.page.whole()
        limit_bytes = self._directory.policy.stated_in(image).limit_bytes
        if limit_bytes is not None and bytes_in(image) > limit_bytes:
            self.give_way()
        return image

    def give_way(self) -> None:
        if self._hold is not None:
            try:
                if self._fd is not None:
                    lock_descriptor(self._fd, blocking=False)  # until now the shard's lock stated that the owner lives
            finally:
                self.release()

    def hold(self, deadline: float | None = None) -> _Held:
        if self._hold is not None:
            try:
                if not self.page.was_at(self._directory.layout.state):
                    self._ahead = 0  # was on the page that was replaced
                    self.release()
            except OSError:
                self.release()  # for its caller there is no lock
                raise
        if self._hold is None:
            self._hold = super().hold(deadline)
        return self

    @property
    def account(self) -> NetworkReservation:
        return self

    def add_locked(self, shard: int, bytes_: int, entries: int, _: bytes | tuple[int, int] = b"") -> tuple[int, int]:
        """Account for so much more. Requires: shard lock."""
        ahead, self._ahead = self._ahead, 0
        if bytes_ or entries != ahead:
            self._slot = self.page.add_locked(shard, bytes_, entries - ahead, self._slot or self.known)
        return self._slot or (0, 0)

    def _count_again_locked(self) -> None:
        self._ahead, self._slot = 0, None
        super()._count_again_locked()

    def release(self) -> None:
        """Give the lock back. An entry that is not there is not accounted for any more: a recount finds what is."""
        hold, self._hold = self._hold, None
        try:
            if self._ahead:
                with contextlib.suppress(OSError):  # one too many is accounted for, until a recount
                    self.add_locked(self.shard, 0, 0)
        finally:
            self._slot = None
            if hold is not None:
                hold.release()


#: The kinds of reservation, by whether the directory is on a network file system.
RESERVATIONS: Final[dict[bool, type[Reservation]]] = {False: Reservation, True: NetworkReservation}


def discard(path: str, remove: Callable[[str], bool]) -> bool:
    """Remove what is staged, or leave it to the next reap if that fails. Returns whether it is gone."""
    try:
        return remove(path)
    except OSError:
        give_up(os.path.basename(path))
        return False
