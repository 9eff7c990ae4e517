# SPDX-License-Identifier: Apache-2.0
"""The threads of one process at one database: a connection for reads, one for writes, a lock for each.

Keeps invariant 4 (readers never wait) within the process: a read never waits for a write, nor for another process that
has the database locked. Keeps invariant 2 (last write wins) where a write had to be dropped: the older value that could
not be removed is not read any more through this object, and goes with the next write that succeeds. Keeps invariant 5
(death is free) for fork: SQLite forbids a child even to close its parent's connection, so all are closed before a fork,
and both sides open their own.

The order of use: a read notes its key in memory, and the notes are written with the next write, before it evicts, or
when there are :data:`_NOTES` of them. So the order is exact for one object, and off by that many reads between two
objects. Measured: 2 us a note when 64 are written together, 40 us for each one by itself.

Lock order: writing, then reading.
"""

from __future__ import annotations

import errno
import os
import sqlite3
import threading
import time
import weakref
from collections.abc import Callable
from typing import Final, TypeVar

from lockcache.errors import LockTimeoutError
from lockcache.sqlite import rows
from lockcache.sqlite.connection import FAILURES, Link, as_os_error, is_corruption, transaction
from lockcache.sqlite.location import denied, set_aside
from lockcache.sqlite.rows import CorruptRow, Program

_T = TypeVar("_T")

# In WAL mode a reader only ever waits for a process that opens or closes the database.
_READ_WAIT_SECONDS: Final = 0.25
_NOTES: Final = 64
# Seconds in addition to an operation's wait for other processes: the time to get its turn on a busy machine.
_FORK_GRACE_SECONDS: Final = 5.0


class Store:
    """One database file, as one object uses it."""

    def __init__(self, path: str, wait_seconds: float) -> None:
        self.path = path
        self._wait_seconds = wait_seconds
        self._reader = Link(path, _READ_WAIT_SECONDS)
        self._writer = Link(path, wait_seconds)
        # Reentrant, for signal handlers that use the cache during a use: a read between two statements of
        # another is sound, a transaction within another is not.
        self._reading = threading.RLock()
        self._writing = threading.RLock()
        self._is_writing = False
        # Both guarded by the reading lock. Keys in order of use, the latest last; keys whose rows must not be read.
        self._uses: dict[bytes, None] = {}
        self._superseded: set[bytes] = set()
        self._reads = 0
        with _living:
            _live.add(self)

    def load(self, key: bytes) -> tuple[Program | None, bool]:
        """Returns the program under ``key``, and whether what was found there was corrupt. Raises :class:`OSError`."""
        found = self.read(lambda connection: rows.load(connection, key), key)
        if isinstance(found, CorruptRow):
            self._try_change(lambda connection: rows.prune(connection, found))
            return None, True
        if found is not None and self._note(key):
            self._try_change(_nothing)
        return found, False

    def read(self, look: Callable[[sqlite3.Connection], _T], key: bytes | None = None) -> _T | None:
        """Returns ``look(connection)``; ``None`` for a superseded key. Sets a damaged file aside, and reads a new one.

        Raises :class:`OSError`: what is misconfigured, or what may pass (a locked database, a failing disk).
        """
        with self._reading:
            if key in self._superseded:
                return None
            # All in one critical section: another thread that found the same damage must not set our new file aside for
            # it.
            try:
                return look(self._reader.connection())
            except FAILURES as error:
                if not is_corruption(error, self.path):
                    raise as_os_error(error, self.path) from error
            self._set_aside_locked(self._reader)
            try:
                return look(self._reader.connection())
            except FAILURES as error:
                raise as_os_error(error, self.path) from error

    def change(self, action: Callable[[sqlite3.Connection], _T], wait_seconds: float | None = None) -> _T:
        """Returns ``action(connection)`` in one write transaction, after what is due in it.

        Raises :class:`LockTimeoutError` if another thread or process is at it for too long, and any other
        :class:`OSError`; then nothing was changed.
        """
        wait = self._wait_seconds if wait_seconds is None else wait_seconds
        deadline = time.monotonic() + wait
        if not self._writing.acquire(timeout=wait):
            raise LockTimeoutError(f"{self.path}: another thread was writing for {wait} s", self.path)
        try:
            if self._is_writing:
                raise LockTimeoutError(f"{self.path}: this thread itself is writing", self.path)
            self._is_writing = True
            try:
                return self._change_locked(action, deadline)
            finally:
                self._is_writing = False
        finally:
            self._writing.release()

    def supersede(self, key: bytes) -> None:
        """Ensure that the value under ``key`` is not read any more; remove it now if that needs no wait."""
        with self._reading:
            self._superseded.add(key)
        self._try_change(_nothing)

    def shrink(self) -> None:
        """Give free pages and the log back to the file system, as far as no other connection uses them."""
        with self._writing:
            if self._is_writing:
                return  # a signal handler during a write of its own thread
            self._is_writing = True
            try:
                connection = self._writer.connection()
                connection.executescript("PRAGMA incremental_vacuum")  # a page a step, and execute() steps once
                connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
            except FAILURES:
                return  # locked, say; they are used again anyway
            finally:
                self._is_writing = False

    def close(self) -> None:
        """Write what is noted, close the connections. The next use opens them again."""
        if self._uses or self._superseded:
            self._try_change(_nothing)
        with self._writing:
            if not self._is_writing:
                self._writer.close()
        with self._reading:
            self._reader.close()

    def _note(self, key: bytes) -> bool:
        """Note a use. Returns whether it is time to write the notes."""
        with self._reading:
            if not self._reader.is_writable:
                return False
            self._uses.pop(key, None)
            self._uses[key] = None
            self._reads += 1
            # Not at every further read: there may be so many because the database is locked.
            return len(self._uses) >= _NOTES and self._reads % _NOTES == 0

    def _try_change(self, action: Callable[[sqlite3.Connection], object]) -> None:
        """Change like :meth:`change`, but without waiting and without an error: the change can be made later."""
        try:
            self.change(action, 0.0)
        except OSError:
            return  # what is noted stays noted; a corrupt row is a miss again

    def _change_locked(self, action: Callable[[sqlite3.Connection], _T], deadline: float) -> _T:
        """Requires: the writing lock."""
        try:
            return self._transact_locked(action, deadline)
        except FAILURES as error:
            if not is_corruption(error, self.path):
                raise as_os_error(error, self.path) from error
        self._set_aside_locked(self._writer)
        try:
            return self._transact_locked(action, deadline)
        except FAILURES as error:
            raise as_os_error(error, self.path) from error

    def _transact_locked(self, action: Callable[[sqlite3.Connection], _T], deadline: float) -> _T:
        """Requires: the writing lock."""
        connection = self._writer.connection()
        if not self._writer.is_writable:
            raise denied(self.path)
        with self._reading:
            uses, self._uses = self._uses, {}
            superseded = set(self._superseded)
        try:
            with transaction(connection, max(0.0, deadline - time.monotonic())):
                rows.remove(connection, superseded)
                rows.touch(connection, uses)
                result = action(connection)
        except BaseException:
            self._note_again(uses)
            raise
        with self._reading:
            self._superseded -= superseded
        return result

    def _note_again(self, uses: dict[bytes, None]) -> None:
        with self._reading:
            for key in list(self._uses):
                uses.pop(key, None)
            self._uses = {**uses, **self._uses}

    def _set_aside_locked(self, link: Link) -> None:
        """Requires: the link's lock."""
        link.close()
        if not link.is_writable:
            raise OSError(errno.EIO, "the database is damaged, and may only be read", self.path)
        set_aside(self.path, link.identity)

    def _before_fork(self) -> bool:
        """Close the connections and prevent new ones. Returns whether that was possible in bounded time."""
        longest = min(self._wait_seconds + _FORK_GRACE_SECONDS, threading.TIMEOUT_MAX)
        if not self._writing.acquire(timeout=longest):
            return False
        if self._is_writing:  # in a signal handler
            self._writing.release()
            return False
        if not self._reading.acquire(timeout=_READ_WAIT_SECONDS + _FORK_GRACE_SECONDS):
            self._writing.release()
            return False
        self._writer.close()
        self._reader.close()
        return True

    def _after_fork_in_parent(self) -> None:
        self._reading.release()
        self._writing.release()

    def _after_fork_in_child(self) -> None:
        self._reading, self._writing = threading.RLock(), threading.RLock()
        self._is_writing = False
        _abandoned.extend([self._reader.abandon(), self._writer.abandon()])

    def __del__(self) -> None:
        for link in (self._reader, self._writer):
            link.close()


def _nothing(connection: sqlite3.Connection) -> None:
    """Do nothing, in a transaction that is only for the work due in it."""


class _Fork:
    """Stops all stores of this process during a fork.

    In addition to the connections, SQLite's own locks must not be held by a thread that the child does not have.
    """

    def __init__(self) -> None:
        self._one_at_a_time = threading.Lock()
        self._stopped: list[Store] = []

    def before(self) -> None:
        self._one_at_a_time.acquire()
        with _living:
            stores = list(_live)
        self._stopped = [store for store in stores if store._before_fork()]

    def after_in_parent(self) -> None:
        for store in self._stopped:
            store._after_fork_in_parent()
        self._one_at_a_time.release()

    def after_in_child(self) -> None:
        global _living
        self._one_at_a_time = threading.Lock()
        _living = threading.RLock()
        for store in _live:
            store._after_fork_in_child()


_live: weakref.WeakSet[Store] = weakref.WeakSet()
_living = threading.RLock()
# Connections of a parent that could not be closed in time, kept from being closed in its child.
_abandoned: list[sqlite3.Connection | None] = []
_fork: Final = _Fork()

if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_fork.before, after_in_parent=_fork.after_in_parent, after_in_child=_fork.after_in_child)
