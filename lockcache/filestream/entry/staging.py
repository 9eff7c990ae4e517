# SPDX-License-Identifier: Apache-2.0
"""Staging of one entry: reserve, write, publish or abandon, each with its accounting.

Keeps invariant 2 (last write wins: what is published replaces the older value by one atomic rename, under the shard's
lock), and by its :mod:`.reservation` the writers' half of 3 (hard cap) and 5 (death is free).

Every order here is chosen so that death in between leaves the accounting too high, never too low: reserve before
writing, rename before giving back what was replaced.
"""

from __future__ import annotations

import logging
import os
from functools import partial
from typing import Final

from lockcache.filestream.accounting import ShardChange, bytes_in
from lockcache.filestream.directory import CacheDirectory
from lockcache.filestream.disk import (
    DISK_FULL,
    WRITE,
    Descriptor,
    Layout,
    Space,
    append_below,
    fsync_folder_of,
    staged_path,
    truncate_below,
    write_all,
)
from lockcache.filestream.entry.codec import LARGEST_RECORD_BYTES, NOTE_XATTR, XATTR, AttributeRefusedError
from lockcache.filestream.entry.locate import read_record_file
from lockcache.filestream.entry.removal import remove_views_locked
from lockcache.filestream.entry.reservation import RESERVATIONS, discard

_log = logging.getLogger("lockcache")


# cuda.core's clear() removes empty shard directories: in a loop of those a new one may be gone before it is used.
_MOST_RENAMES: Final = 5


class OtherPolicyError(Exception):
    """The policy has changed since a write had its room: the cap may be smaller now."""


class StagedEntry:
    """A reserved, staged write. Ends by :meth:`publish` or :meth:`abandon`, whichever comes first."""

    __slots__ = ("_directory", "_fd", "_file", "_name", "_record_path", "_surplus", "_syncs", "reservation", "space")

    def __init__(self, directory: CacheDirectory, name: str, size_bytes: int, deadline: float | None = None) -> None:
        """Stage nothing yet. No lock is waited for past ``deadline`` (monotonic seconds; default: one lock timeout)."""
        self._directory = directory
        self._name = name
        #: How files count here.
        self.space: Space = directory.layout.space or directory.space
        # The part of the reservation that the entry itself will not count for.
        self._surplus = self.space.folder_blocks * self.space.block_bytes
        self._record_path = ""
        # Whether each step has to be on the disk before the next one, because a power cut may leave them in any order.
        self._syncs = False
        self._file = Descriptor()
        # While the staged file is open.
        self._fd = -1
        kind = RESERVATIONS[directory.layout.is_network]
        self.reservation = kind(directory, int(name[:2], 16), size_bytes, deadline)

    def reserve(self) -> None:
        """Make the staged file and reserve its size, in one critical section."""
        self._fd = self.reservation.take(partial(self._directory.layout.reach.create, flags=WRITE, made=self._file))

    def spares_block(self) -> bool:
        """Returns whether the attribute took no block: then its block is given back when the entry is published.

        Requires: nothing written yet, and a space that shows blocks.
        """
        self._surplus += self.space.block_bytes * (is_spared := os.fstat(self._fd).st_blocks == 0)
        return is_spared

    def set_attributes(self, attribute: bytes, note: bytes = b"") -> None:
        """Give the staged file its record, and its note for people; either may be empty.

        Raises :class:`AttributeRefusedError` for the record. A note that the file system does not take is left out.
        """
        fd = self._fd
        try:
            if attribute:
                os.setxattr(fd, XATTR, attribute)
        except OSError as error:
            raise AttributeRefusedError(error, len(attribute)) from error
        try:
            if note:
                os.setxattr(fd, NOTE_XATTR, note)
        except OSError as error:
            _log.debug("%s: an entry goes without a note: %s", self.reservation.path, error)

    def write(self, payload: bytes, record: bytes, *, fsync: bool) -> None:
        """Write payload and record. Requires: the reservation, and that the sum with it is under the cap."""
        fd, self._syncs = self._fd, fsync
        written = os.write(fd, payload)
        if written < len(payload):  # nearly never: beyond 2 GiB, at a signal, or where the disk is full
            write_all(fd, memoryview(payload)[written:])
        self._directory.recency.touch_new(fd)
        if record:
            self._write_record(record, fsync=fsync)
        if fsync:
            os.fsync(fd)
        # Before it is published, not after: an entry that is evicted while its writer has it open still takes its bytes
        # on disk, after they were given back (seen: sixteen writers, 1.3 times the cap). And NFS reports a full disk on
        # close; an entry must not be visible by then.
        self._file.end_writing()

    def publish(self, *, fsync: bool, replaces: bool = True, admitted: bytes = b"") -> bool:
        """Let readers see the entry, in one critical section with giving back what it replaces.

        Returns whether that was done: without ``replaces``, not if there is an entry. ``admitted``: the head of the
        page by which there was room. Raises :class:`OtherPolicyError` if that has changed, and by the new one there is
        none.
        """
        layout, reserved = self._directory.layout, self.reservation
        hold = reserved.hold()
        try:
            if not reserved.known.startswith(admitted) and not self._has_room_locked():
                raise OtherPolicyError
            change = ShardChange(layout, reserved.account, reserved.shard, reserved.known, makes=replaces)
            path = f"{change.entries_folder}/{self._name[2:]}"
            # Most puts are of a key that missed, and asking is cheaper than an exception (1.2 us).
            is_there = not change.is_new and os.access(path, os.F_OK, effective_ids=True)
            replaced = change.bytes_of(self._name, path) if is_there else None
            if replaced is not None and not replaces:
                return False
            try:
                self._publish_locked(change, path, replaced)
            except OSError as error:
                # In its place, and only what it replaced is not given back: a quota may refuse a write to the page. As
                # a dropped write it would have to be removed, which such a quota may refuse as well.
                if reserved.path or error.errno not in DISK_FULL:
                    raise
        finally:
            hold.release()
        if fsync:
            fsync_folder_of(layout, path)
        return True

    def _has_room_locked(self) -> bool:
        """Returns whether the sum, with this write's reservation in it, is at or under the cap that is in force now."""
        image = self.reservation.page.whole()
        limit_bytes = self._directory.policy.stated_in(image).limit_bytes
        return limit_bytes is None or bytes_in(image) <= limit_bytes

    def _publish_locked(self, change: ShardChange, path: str, replaced_bytes: int | None) -> None:
        """Put the entry into its place. ``replaced_bytes``: of the one that is there. Requires: shard lock."""
        layout, reserved, record_path = self._directory.layout, self.reservation, self._record_path
        if record_path:
            change.make_records()
        with change:
            # The record first, and with the older one behind it, so that a reader between the two renames, or
            # after a death there, finds the record of either payload. The other order would leave a payload without a
            # record, which is served unverified.
            record_bytes = (
                self._publish_record_locked(change, has_older=replaced_bytes is not None) if record_path else None
            )
            reserved.is_standing = False
            try:
                _rename(layout, reserved.path, path, layout.entries)
            except OSError:
                # A record that is in place counts, unless there is no entry for it.
                reserved.is_standing = replaced_bytes is None or not record_path
                raise
            has_other_record = record_bytes is not None or (change.has_records and not record_path)
            if has_other_record and self._syncs:
                fsync_folder_of(layout, path)  # before the older payload's record goes
            if record_bytes is not None:
                truncate_below(layout, layout.record(self._name), record_bytes)
            elif change.has_records and not record_path:
                layout.reach.remove(layout.record(self._name))
            reserved.path = self._record_path = ""
            change.entries = int(replaced_bytes is None)
            change.bytes = -self._surplus - (replaced_bytes or 0)
            if change.has_records and replaced_bytes is not None:
                # Views of the older version go with it; a view that is in use goes later, with this entry.
                change.bytes -= remove_views_locked(layout, self._name).bytes

    def abandon(self) -> None:
        """Give everything back. Does nothing after :meth:`publish`. Raises nothing: an error is being handled."""
        self._file.close()
        if self._record_path:
            self._discard_record()
        self.reservation.give_back(self._directory.layout.reach.remove)

    def _discard_record(self) -> None:
        discard(self._record_path, self._directory.layout.reach.remove)

    def _write_record(self, record: bytes, *, fsync: bool) -> None:
        # Under a name that reserves nothing: its bytes are reserved with the payload's.
        self._record_path = path = staged_path(self._directory.layout, self.reservation.shard, 0)
        file = Descriptor()
        self._directory.layout.reach.create(path, WRITE, file)
        with file as fd:
            write_all(fd, record)
            if fsync:
                os.fsync(fd)
            file.end_writing()

    def _publish_record_locked(self, change: ShardChange, *, has_older: bool) -> int | None:
        """Put the record file into place, the older record behind it; its own length if there was an older one.

        Requires: shard lock.
        """
        layout, reserved = self._directory.layout, self.reservation
        older = (read_record_file(layout, self._name) or b"") if has_older else b""
        if len(older) > LARGEST_RECORD_BYTES:
            older = b""  # one that two publishes were cut off in; with the new one in front it would pass for damage
        older_bytes = self.space.of_bytes(len(older)) if older else 0
        if older:  # until the rename both files hold it
            change.account_for(older_bytes)
        try:
            record_bytes = append_below(layout, self._record_path, older, fsync=self._syncs) if older else None
            reserved.is_standing = False  # the record's bytes are reserved with the payload's
            _rename(layout, self._record_path, layout.record(self._name), layout.records)
            if self._syncs:
                fsync_folder_of(layout, layout.record(self._name))
        except OSError:
            reserved.is_standing = True
            self._discard_record()
            raise
        finally:
            if older:
                change.account_for(-older_bytes)
        return record_bytes


def _rename(layout: Layout, source: str, path: str, parent: str) -> None:
    """Rename into a shard's directory, making that (and its parent) if it is missing."""
    reach = layout.reach
    for _ in range(_MOST_RENAMES - 1):
        try:
            return reach.rename(source, path)
        except FileNotFoundError:
            folder = os.path.dirname(path)
        try:
            reach.make_folder(folder)
        except FileNotFoundError:
            reach.make_folder(parent)
            reach.make_folder(folder)
    return reach.rename(source, path)
