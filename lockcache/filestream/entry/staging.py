"""Staging of one entry: reserve, write, publish or abandon, each with its accounting.

Keeps invariant 2 (last write wins: what is published replaces the older value by one atomic rename, under the shard's
lock), the writers' half of 3 (hard cap: room is reserved, in the same critical section that makes the staged file,
before a byte of it is written) and 5 (death is free: the staged file's name states its owner and what it has reserved,
so any process can give that back).

Every order here is chosen so that death in between leaves the accounting too high, never too low: reserve before
writing, rename before giving back what was replaced.
"""

from __future__ import annotations

import contextlib
import logging
import os
import time
from typing import Final

from filelock import lock_descriptor

from lockcache.errors import LockTimeoutError
from lockcache.filestream.accounting import Slot, StatePage, bytes_on_disk, folder_bytes
from lockcache.filestream.directory import CacheDirectory
from lockcache.filestream.disk import (
    WRITE,
    Descriptor,
    Hold,
    Layout,
    Space,
    StagedName,
    append_below,
    fsync_folder_of,
    give_up,
    myself,
    next_serial,
    truncate_below,
    write_all,
)
from lockcache.filestream.entry.codec import LARGEST_RECORD_BYTES, NOTE_XATTR, XATTR, AttributeRefusedError
from lockcache.filestream.entry.locate import read_record_file
from lockcache.filestream.entry.removal import leave_to_reap, remove_views_locked, unlink_entry_file

_log = logging.getLogger("lockcache")


# By how much the two folders of a shard may grow when a name is added: on ext4 each by two, when its first is full.
_FOLDER_BLOCKS: Final = 4

# Written within one hold of the shard's lock on a network file system: some 10 ms on a slow one.
_MOST_KEPT_BYTES: Final = 1 << 20

# A write that is given up has often waited its whole timeout for this lock; it does not wait as long again.
_ABANDON_SECONDS: Final = 0.25
# The same on a network file system, where each step of the lock's holder is a call to the server.
_REMOTE_ABANDON_SECONDS: Final = 2.0


# cuda.core's clear() removes empty shard directories: in a loop of those a new one may be gone before it is used.
_MOST_RENAMES: Final = 5


def reserved_bytes(space: Space, payload_bytes: int, record_bytes: int, *, has_block: bool) -> int:
    """Returns the most that storing an entry may add to what the disk holds: the entry, and folders that grow.

    ``has_block``: a block for the attribute is among it.
    """
    most = space.of_bytes(payload_bytes) + (space.of_bytes(record_bytes) if record_bytes else 0)
    if space.shows_blocks:
        most += space.block_bytes * (_FOLDER_BLOCKS + has_block)
    return most


class StagedEntry:
    """A reserved, staged write. Ends by :meth:`publish` or :meth:`abandon`, whichever comes first."""

    __slots__ = (
        "_deadline",
        "_directory",
        "_entries",
        "_file",
        "_is_reserved",
        "_kept",
        "_lock",
        "_name",
        "_path",
        "_record_path",
        "_shard",
        "_size",
        "_slot",
        "_surplus",
        "space",
        "usage",
    )

    # The entries that this write adds.
    _counts_as = 1

    def __init__(self, directory: CacheDirectory, name: str, size_bytes: int, deadline: float | None = None) -> None:
        """Stage nothing yet. No lock is waited for past ``deadline`` (monotonic seconds; default: one lock timeout)."""
        self._directory = directory
        self._name = name
        self._shard = shard = int(name[:2], 16)
        self._size = size_bytes
        #: How files count here.
        self.space: Space = directory.layout.space or directory.space
        # The part of the reservation that the entry itself will not count for.
        self._surplus = _FOLDER_BLOCKS * self.space.block_bytes if self.space.shows_blocks else 0
        self._path = self._record_path = ""
        self._file = Descriptor()
        self._is_reserved = False
        # Entries accounted for already: this one, while the lock is kept, which saves a change at the end.
        self._entries = 0
        # The shard's lock, from the reservation on, see :meth:`reserve`.
        self._kept: Hold | None = None
        # The shard's slot, while that lock is kept.
        self._slot: Slot | None = None
        #: The page that holds the reservation.
        self.usage: StatePage = directory.attached()
        self._lock = lock = directory.locks[shard]
        self._deadline = time.monotonic() + lock.timeout_seconds if deadline is None else deadline

    def reserve(self) -> None:
        """Make the staged file and reserve its size, in one critical section.

        On a network file system that section lasts until the entry is published, unless it is a large one: giving the
        lock back and taking it again is eight calls to the server of twenty. See :meth:`give_way`.
        """
        layout, path = self._directory.layout, self._staged_path(self._size)
        hold = self._hold()
        try:
            self._path = path  # before there is such a file: an interrupt must not leave it
            self._make(path)
            if layout.is_network and self._size <= _MOST_KEPT_BYTES:
                self._kept, self._entries = hold, self._counts_as
            else:
                self._state_life()
            self._add_locked(self._size, self._entries)
            self._is_reserved = True
        finally:
            if self._kept is None:
                hold.release()

    def _make(self, path: str) -> None:
        """Make what is staged; a file is open from here on."""
        self._directory.layout.reach.create(path, WRITE, self._file)

    def _remove(self, path: str) -> bool:
        """Remove what is staged. Returns whether it was there. Raises :class:`OSError`."""
        return unlink_entry_file(self._directory.layout, path)

    def give_way(self) -> None:
        """Let other processes have the shard's lock, before a wait. Requires: nothing written yet."""
        hold, self._kept, self._slot = self._kept, None, None
        if hold is None:
            return
        try:
            self._state_life()
            self._uncount_entry_locked()
        finally:
            hold.release()

    def _uncount_entry_locked(self) -> None:
        """Account for no entry any more, before the lock is given up: a recount finds what is published."""
        entries, self._entries = self._entries, 0
        with contextlib.suppress(OSError):  # one too many is accounted for, until a recount
            self._add_locked(0, -entries)

    def _state_life(self) -> None:
        """Lock the staged file: reapers on other hosts, which cannot check our pid, then see that the writer lives."""
        lock_descriptor(self._file.number, blocking=False)  # closing the file releases the lock, and so does death

    def _add_locked(self, bytes_: int, entries: int) -> None:
        """Account for so much more. Requires: shard lock."""
        if not bytes_ and not entries:
            return
        slot = self.usage.add_locked(self._shard, bytes_, entries, self._slot)
        self._slot = slot if self._kept is not None else None

    def _hold(self) -> Hold:
        """Take the shard's lock, and the current accounting page.

        The page is read under the lock, because a page that is replaced is measured under it: so a reservation is on
        the new page, or was measured for it; but see :meth:`.NfsPage.was_at`.
        """
        lock, page = self._lock, self._directory.layout.state
        while True:
            # Nearly always at once, and 1 us less than to begin with a deadline.
            hold = lock.try_hold() or lock.hold(max(0.0, self._deadline - time.monotonic()))
            try:
                if self.usage.was_at(page):
                    return hold
            except BaseException:
                hold.release()
                raise
            hold.release()
            if time.monotonic() > self._deadline:
                raise LockTimeoutError(f"{page}: replaced again and again", page)
            self.usage = self._directory.usage()

    def fits_inode(self) -> bool:
        """Returns whether the attribute took no block. Requires: nothing written yet, and a space that shows blocks."""
        return os.fstat(self._file.number).st_blocks == 0

    def expect_less(self, surplus_bytes: int) -> None:
        """Give back so many more bytes when the entry is published: it will not take them."""
        self._surplus += surplus_bytes

    def set_attributes(self, attribute: bytes, note: bytes = b"") -> None:
        """Give the staged file its record, and its note for people; either may be empty.

        Raises :class:`AttributeRefusedError` for the record. A note that the file system does not take is left out.
        """
        fd = self._file.number
        try:
            if attribute:
                os.setxattr(fd, XATTR, attribute)
        except OSError as error:
            raise AttributeRefusedError(error, len(attribute)) from error
        try:
            if note:
                os.setxattr(fd, NOTE_XATTR, note)
        except OSError as error:
            _log.debug("%s: an entry goes without a note: %s", self._path, error)

    def write(self, payload: bytes, record: bytes, *, fsync: bool) -> None:
        """Write payload and record. Requires: the reservation, and that the sum with it is under the cap."""
        fd = self._file.number
        write_all(fd, payload)
        self._directory.recency.touch_new(fd)
        if record:
            self._write_record(record, fsync=fsync)
        if fsync:
            os.fsync(fd)
        # Before it is published, not after: an entry that is evicted while its writer has it open still takes its bytes
        # on disk, after they were given back (seen: sixteen writers, 1.3 times the cap). And NFS reports a full disk on
        # close; an entry must not be visible by then.
        self._file.end_writing()

    def publish(self, *, fsync: bool, replaces: bool = True) -> bool:
        """Let readers see the entry, in one critical section with giving back what it replaces.

        Returns whether that was done: without ``replaces``, not if there is an entry.
        """
        layout = self._directory.layout
        path = layout.entry(self._name)
        hold, self._kept = self._kept or self._hold(), None
        try:
            is_new = layout.reach.look_at_shard_locked(self._shard, makes=replaces)
            has_records = os.access(layout.record_shard(self._shard), os.F_OK, effective_ids=True)
            folders = folder_bytes(layout, self._shard, has_records)
            makes_records = has_records or bool(self._record_path)
            replaced = None if is_new else bytes_on_disk(layout, self._name, has_records)
            if replaced is not None and not replaces:
                return False
            # The record first, and with the older one behind it, so that a reader between the two renames, or
            # after a death there, finds the record of either payload. The other order would leave a payload without a
            # record, which is served unverified.
            record_bytes = self._publish_record_locked(has_older=replaced is not None) if self._record_path else None
            # An interrupt from here on leaves too much accounted for; giving back what is published, too little.
            self._is_reserved = False
            try:
                _rename(layout, self._path, path, layout.entries)
            except OSError:
                # A record that is in place counts, unless there is no entry for it. So does a folder that was made.
                self._is_reserved = replaced is None or not self._record_path
                self._add_locked(folder_bytes(layout, self._shard, makes_records) - folders, 0)
                raise
            if record_bytes is not None:
                truncate_below(layout, layout.record(self._name), record_bytes)
            elif has_records and not self._record_path:
                unlink_entry_file(layout, layout.record(self._name))
            self._path = self._record_path = ""
            # Views of the older version go with it; a view that is in use goes later, with this entry.
            views = remove_views_locked(layout, self._name).bytes if has_records and replaced is not None else 0
            growth = folder_bytes(layout, self._shard, makes_records) - folders
            bytes_ = growth - self._surplus - (replaced or 0) - views
            self._add_locked(bytes_, int(replaced is None) - self._entries)
            self._entries = 0
        finally:
            self._uncount_entry_locked()  # of one that was not published
            hold.release()
        if fsync:
            fsync_folder_of(layout, path)
        return True

    def abandon(self) -> None:
        """Give everything back. Does nothing after :meth:`publish`. Raises nothing: an error is being handled."""
        self._file.close()
        if self._record_path:
            self._discard(self._record_path)
        path, lock = self._path, self._lock
        kept, self._kept, self._slot = self._kept, None, None
        if not path:
            return
        longest_seconds = _REMOTE_ABANDON_SECONDS if self._directory.layout.is_network else _ABANDON_SECONDS
        patience_seconds = min(lock.timeout_seconds, longest_seconds)
        try:
            hold = kept or lock.hold(patience_seconds)
            if not self.usage.is_at(self._directory.layout.state):
                # The page was replaced, and what is staged was measured for the new one: there it is given back.
                hold.release()
                self.usage, self._entries, self._is_reserved = self._directory.usage(), 0, True
                hold = lock.hold(patience_seconds)
        except OSError:
            # Without the lock the page is not to be changed. What stays of the file says so to the next reap.
            self._leave_to_reap(path)
            return
        try:
            # A missing file was taken for a dead owner's, and its reservation was given back with it.
            if self._discard(path) and self._is_reserved:
                try:
                    self._add_locked(-self._size, -self._entries)
                except OSError:  # by now another host may have replaced the page, with this on it
                    leave_to_reap(self._directory.layout, self._shard)
        finally:
            hold.release()
        self._path = ""

    def _discard(self, path: str) -> bool:
        """Remove what is staged, or leave it to the next reap if that fails. Returns whether it is gone."""
        try:
            return self._remove(path)
        except OSError:
            give_up(os.path.basename(path))
            return False

    def _leave_to_reap(self, path: str) -> None:
        """Leave an empty file, for whose shard the next reap corrects the accounting."""
        give_up(os.path.basename(path))
        with contextlib.suppress(OSError):
            truncate_below(self._directory.layout, path, 0)

    def _staged_path(self, size_bytes: int) -> str:
        return self._directory.layout.staged(StagedName(self._shard, size_bytes, *myself(), next_serial()))

    def _write_record(self, record: bytes, *, fsync: bool) -> None:
        # Under a name that reserves nothing: its bytes are reserved with the payload's.
        self._record_path = path = self._staged_path(0)
        file = Descriptor()
        self._directory.layout.reach.create(path, WRITE, file)
        with file as fd:
            write_all(fd, record)
            if fsync:
                os.fsync(fd)
            file.end_writing()

    def _publish_record_locked(self, *, has_older: bool) -> int | None:
        """Put the record file into place, the older record behind it; its own length if there was an older one.

        Requires: shard lock.
        """
        layout = self._directory.layout
        older = (read_record_file(layout, self._name) or b"") if has_older else b""
        if len(older) > LARGEST_RECORD_BYTES:
            older = b""  # one that two publishes were cut off in; with the new one in front it would pass for damage
        # Until the rename both files hold the older record.
        if older:
            self._add_locked(self.space.of_bytes(len(older)), 0)
        try:
            record_bytes = append_below(layout, self._record_path, older) if older else None
            self._is_reserved = False  # as in :meth:`publish`: the record's bytes are reserved with the payload's
            _rename(layout, self._record_path, layout.record(self._name), layout.records)
        except OSError:
            self._is_reserved = True
            self._discard(self._record_path)
            raise
        finally:
            if older:
                self._add_locked(-self.space.of_bytes(len(older)), 0)
        return record_bytes


def _rename(layout: Layout, source: str, path: str, parent: str) -> None:
    """Rename into a shard's directory, making that (and its parent) if it is missing."""
    for _ in range(_MOST_RENAMES - 1):
        try:
            layout.reach.rename(source, path)
            return
        except FileNotFoundError:
            _make_shard_folder(layout, parent, os.path.dirname(path))
    layout.reach.rename(source, path)


def _make_shard_folder(layout: Layout, parent: str, path: str) -> None:
    with contextlib.suppress(FileNotFoundError):
        layout.reach.make_folder(path)
        return
    layout.reach.make_folder(parent)
    layout.reach.make_folder(path)
