"""Storing one value from start to end: reserve, make room, write, publish, and what to do when that fails.

Decides which failures are tried again (a directory deleted underneath and a record that did not fit where it was put,
once; a full disk, after each of a few evictions; room that others hold, until the timeout) and which end as a dropped
write. Keeps invariant 2 (last write wins) for those: a dropped write removes the older value under its key. Keeps
invariant 7 (never take the job down): nothing here raises for what the caller cannot help.
"""

from __future__ import annotations

import errno
import os
import time
from typing import Final, NamedTuple, Protocol

from lockcache.filestream.accounting import bytes_in, scan_shard
from lockcache.filestream.directory import CacheDirectory
from lockcache.filestream.disk import DISK_FULL, SHARDS
from lockcache.filestream.entry import (
    AttributeRefusedError,
    KeyRing,
    Record,
    RecordPlacement,
    StagedEntry,
    delete_entry,
    pack,
    remove_entry,
    reserved_bytes,
    unpack,
)
from lockcache.filestream.eviction import Evicted, evict_to_limit
from lockcache.filestream.policy import Policy
from lockcache.filestream.room import Room, reap_if_possible
from lockcache.metadata import join_fields

# Puts between two reaps of what killed writers left, if there is no cap and no daemon. A listing takes some 20 us.
_PUTS_BETWEEN_REAPS: Final = 256

# Evictions for one write on a full disk. The first frees its length, each further one twice as much: what a write needs
# is blocks, inodes, perhaps a directory, and what an entry frees is not always all of it.
_MOST_EVICTIONS: Final = 4


# The bytes that an attribute takes in an inode in addition to its value: on ext4, 16 and the name.
_SECOND_ATTRIBUTE_BYTES: Final = 64


#: How a copy ends that is not stored, where nothing has failed.
IS_THERE: Final = "there is an entry by now"


class _Pack(Protocol):
    def __call__(self, name: str, payload: bytes, record: Record, *, beside: bool = False) -> bytes: ...


class Written(NamedTuple):
    """The outcome of a write."""

    #: Why it was dropped; ``None`` if it was stored.
    dropped: str | None
    evicted: Evicted


class Writer(Protocol):
    """What a cache object stores and removes by: in its directory alone, or also behind it."""

    directory: CacheDirectory

    def store(self, name: str, payload: bytes, record: Record, note: bytes = b"") -> Written:
        """See :meth:`EntryWriter.store`."""

    def store_copy(self, name: str, loaded: tuple[bytes, bytes]) -> Written:
        """See :meth:`EntryWriter.store_copy`."""

    def remove(self, name: str) -> bool:
        """See :meth:`EntryWriter.remove`."""

    def remove_all(self) -> None:
        """See :meth:`EntryWriter.remove_all`."""


class EntryWriter:
    """Stores and removes the entries of one directory."""

    __slots__ = ("_fsync", "_pack", "_placement", "_puts", "_timeout_seconds", "directory")

    def __init__(
        self,
        directory: CacheDirectory,
        timeout_seconds: float,
        *,
        fsync: bool,
        use_record_files: bool,
        keys: KeyRing | None = None,
    ) -> None:
        self._pack: _Pack = pack if keys is None else keys.pack
        self.directory = directory
        self._timeout_seconds = timeout_seconds
        self._fsync = fsync
        self._placement = RecordPlacement(use_files=use_record_files)
        # Opening has reaped, but on a network file system, where the first put does.
        self._puts = _PUTS_BETWEEN_REAPS - 1 if directory.layout.is_network else 0

    def store(self, name: str, payload: bytes, record: Record, note: bytes = b"") -> Written:
        """Store ``payload`` and its record under ``name``, or drop the write and the older value with it.

        ``note``: :data:`~.entry.codec.NOTE_XATTR`.
        """
        write = _Write(self.directory, self._placement, self._pack, name, payload, record, note, self._timeout_seconds)
        try:
            dropped = write.run(fsync=self._fsync)
        except OSError as error:
            dropped = str(error)
        if dropped is not None:
            dropped += self._remove_older(name)
        self._puts += 1
        if self._puts % _PUTS_BETWEEN_REAPS == 0:
            reap_if_possible(self.directory)
        return Written(dropped, write.evicted)

    def store_copy(self, name: str, loaded: tuple[bytes, bytes]) -> Written:
        """Store an entry of a source, its payload and record, unless there is one by then: a copy replaces nothing."""
        payload, record = loaded[0], unpack(loaded[1])
        write = _Write(self.directory, self._placement, self._pack, name, payload, record, b"", self._timeout_seconds)
        write.replaces = False
        try:
            return Written(write.run(fsync=self._fsync), write.evicted)
        except OSError as error:
            return Written(str(error), write.evicted)

    def remove(self, name: str) -> bool:
        """Remove an entry, also for good from the seed, if there is one. Returns whether there was one."""
        return delete_entry(self.directory, name, self._timeout_seconds)

    def remove_all(self) -> None:
        """Remove all entries that are there. Those that are published meanwhile stay or go."""
        for shard in range(SHARDS):
            for found in scan_shard(self.directory.layout, shard):
                remove_entry(self.directory, found.name, self._timeout_seconds)

    def _remove_older(self, name: str) -> str:
        """Remove what must no longer be served. Returns what to add to the reason if that fails."""
        # Without waiting: a holder that outlasted the timeout would be waited for a second time.
        try:
            remove_entry(self.directory, name, 0.0)
        except FileNotFoundError:
            return ""  # the directory is gone, and the older value with it
        except OSError as error:
            return f"; and an older value may still be read, because it cannot be removed: {error}"
        return ""


class _Write:
    """One value on its way into the directory."""

    def __init__(
        self,
        directory: CacheDirectory,
        placement: RecordPlacement,
        pack: _Pack,
        name: str,
        payload: bytes,
        record: Record,
        note: bytes,
        timeout_seconds: float,
    ) -> None:
        self._directory = directory
        self._pack = pack
        self._placement = placement
        self._name = name
        self._payload = payload
        self._record = record
        self._note = note
        self._timeout_seconds = timeout_seconds
        self._deadline = time.monotonic() + timeout_seconds
        #: Whether an entry that is there is replaced; else it stays.
        self.replaces = True
        # Made when it is needed: that is 2 us of a put.
        self._room: Room | None = None
        # Kept between attempts: the digest in it is most of what a large value costs.
        self._blob: bytes | None = None
        self._packed_for = (False, False)
        self._retried: set[str] = set()
        self._evictions = 0
        self._evicted = _NOTHING

    @property
    def evicted(self) -> Evicted:
        """The entries evicted for this write."""
        return self._evicted if self._room is None else self._evicted + self._room.evicted

    def run(self, *, fsync: bool) -> str | None:
        """Try until it is stored (``None``) or there is a reason to drop it."""
        try:
            while (outcome := self._store(fsync=fsync)) is _NO_ROOM:
                if time.monotonic() >= self._deadline:
                    return f"other writers held all of the cap for {self._timeout_seconds} s"
                if self._room is not None:
                    self._room.wait()
        finally:
            self._leave_queue()
        return outcome

    def _store(self, *, fsync: bool) -> str | None:
        """Store like :meth:`run`, but without waiting for others' reservations to end."""
        while True:
            try:
                return self._attempt(fsync=fsync)
            except OSError as error:
                remedy = self._remedy(error)
                if remedy is None or remedy in self._retried:
                    raise
                self._retried.add(remedy)

    def _attempt(self, *, fsync: bool) -> str | None:
        directory = self._directory
        space = directory.layout.space or directory.space
        attribute, record = self._packed()
        note = self._note if attribute else b""
        inode_bytes = len(attribute) + (len(note) + _SECOND_ATTRIBUTE_BYTES if note else 0)
        has_block = space.has_block_of_attribute(len(self._payload)) and self._placement.may_leave_inode(inode_bytes)
        size = reserved_bytes(space, len(self._payload), len(record), has_block=has_block)
        # By the policy as last read, which costs no call; if it refuses, it is read again.
        refusal = self._refusal(directory.policy.latest, size) and self._refusal(directory.policy.current(), size)
        if refusal:
            return refusal
        staged = StagedEntry(directory, self._name, size, self._deadline)
        is_published = False
        try:
            staged.reserve()
            # Cap and sum by one read, after the reservation: a process that lowers the limit does so before it reads
            # the reservations.
            image = staged.usage.whole()
            policy = directory.policy.stated_in(image)
            refusal = self._refusal(policy, size)
            if refusal:
                return refusal
            limit_bytes = policy.entries_limit_bytes(space)
            if limit_bytes is not None and not self._has_room(staged, limit_bytes, bytes_in(image), size):
                return _NO_ROOM
            staged.set_attribute(attribute)
            staged.set_note(note)
            # Other threads may have learned it since; what we reserved is what we have to give back.
            if has_block and staged.fits_inode():
                self._placement.learn_fit(len(attribute) + len(note))
                staged.expect_less(space.block_bytes)
            staged.write(self._payload, record, fsync=fsync)
            is_published = staged.publish(fsync=fsync, replaces=self.replaces)
        finally:
            if not is_published:
                staged.abandon()
        return None if is_published else IS_THERE

    def _refusal(self, policy: Policy, size_bytes: int) -> str:
        """Returns why so many bytes are not stored, however long the write waits; empty if they may be."""
        limit_bytes = policy.entries_limit_bytes(self._directory.layout.space or self._directory.space)
        if limit_bytes is None or size_bytes <= limit_bytes:
            return ""
        return f"{size_bytes} bytes on disk are more than the directory's cap leaves ({limit_bytes})"

    def _has_room(self, staged: StagedEntry, limit_bytes: int, held_bytes: int, size_bytes: int) -> bool:
        if held_bytes > limit_bytes:
            staged.give_way()
            if self._room is None:
                self._room = Room(self._directory, self._deadline)
            if not self._room.make(limit_bytes, size_bytes):
                return False
            limit_now = self._directory.limit_bytes()
            if limit_now is not None and limit_now < limit_bytes:
                return False  # lowered while this waited: by that one it is tried again
        self._leave_queue()  # before the write: the next writer need not wait until it is done
        return True

    def _leave_queue(self) -> None:
        if self._room is not None:
            self._room.leave()

    def _packed(self) -> tuple[bytes, bytes]:
        is_beside, in_file = self._placement.tail_is_beside(len(self._record.tail)), self._placement.uses_files
        if self._blob is None or (is_beside, in_file) != self._packed_for:
            self._packed_for = (is_beside, in_file)
            record = self._record
            if in_file and self._note:
                record = record._replace(tail=join_fields(self._note, record.tail))
            self._blob = self._pack(self._name, self._payload, record, beside=is_beside)
        return self._placement.split(self._blob)

    def _remedy(self, error: OSError) -> str | None:
        """Do what may help against ``error``. Returns a name for it, so that it is done once; ``None`` for nothing."""
        if isinstance(error, AttributeRefusedError):
            learned = self._placement.learn_from(error)
            if learned is not None:
                return learned
        if isinstance(error, FileNotFoundError) or error.errno == errno.ESTALE:
            if error.errno == errno.ESTALE:  # open descriptors are stale, though their paths look right
                self._directory.close()
            self._directory.remake()
            return "remade the directory"
        if error.errno in DISK_FULL:
            return self._evict_for_full_disk()
        return None

    def _evict_for_full_disk(self) -> str | None:
        needed = max(1, len(self._payload)) << self._evictions
        self._evictions += 1
        total = self._directory.usage().total_bytes()
        disk = os.statvfs(self._directory.layout.root)
        if self._evictions > _MOST_EVICTIONS or disk.f_bavail * disk.f_frsize + total < len(self._payload):
            return None  # nor would it fit if every entry went for it
        evicted = evict_to_limit(self._directory, max(0, total - needed))
        self._evicted += evicted
        return f"evicted {self._evictions} times for a full disk" if evicted.entries else None


_NO_ROOM: Final = "no room"
_NOTHING: Final = Evicted()
