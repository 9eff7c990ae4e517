# SPDX-License-Identifier: Apache-2.0
"""Storing one value from start to end: reserve, make room, write, publish, and what to do when that fails.

Decides which failures are tried again (a directory deleted underneath and a record that did not fit where it was put,
once; a full disk, after each of a few evictions; room that others hold, until the timeout) and which end as a dropped
write. Keeps invariant 2 (last write wins) for those: a dropped write removes the older value under its key. Keeps
invariant 7 (never take the job down): nothing here raises for what the caller cannot help.
"""

from __future__ import annotations

import enum
import errno
import os
import time
from collections.abc import Callable
from functools import partial
from typing import Final, NamedTuple, Protocol

from lockcache.errors import more_to_do
from lockcache.filestream.accounting import HEAD_BYTES, bytes_in, scan_shard
from lockcache.filestream.admission import Admission, reap_if_possible
from lockcache.filestream.directory import CacheDirectory
from lockcache.filestream.disk import DISK_FULL, SHARDS
from lockcache.filestream.entry import (
    AttributeRefusedError,
    KeyRing,
    OtherPolicyError,
    Pack,
    Packed,
    Record,
    RecordPlacement,
    StagedEntry,
    pack,
    remove_entry,
    unpack,
)
from lockcache.filestream.eviction import Evicted, evict_to_limit, most_pinned_bytes, pinned_bytes

# Puts between two reaps of what killed writers left, if there is no cap and no daemon. A listing takes some 20 us.
_PUTS_BETWEEN_REAPS: Final = 256

# Evictions for one write on a full disk. The first frees its length, each further one twice as much: what a write needs
# is blocks, inodes, perhaps a directory, and what an entry frees is not always all of it.
_MOST_EVICTIONS: Final = 4


class Outcome(enum.Enum):
    """The end of a write, or of one attempt at it."""

    STORED = enum.auto()
    #: There was an entry, which a copy does not replace.
    IS_THERE = enum.auto()
    #: Of an attempt: the reservations of other writers take the room, or the cap has changed. It is made again.
    NO_ROOM = enum.auto()
    DROPPED = enum.auto()


class Written(NamedTuple):
    """The outcome of a write."""

    outcome: Outcome
    evicted: Evicted
    #: Why it was dropped, for people.
    why: str = ""

    @property
    def is_dropped(self) -> bool:
        """Whether the value is not there now, because something failed."""
        return self.outcome is Outcome.DROPPED


class RefusedError(OSError):
    """A write that is dropped for a reason of lockcache's own. Its text says which."""


class Writer(Protocol):
    """What a cache object stores and removes by: in its directory alone, or also behind it."""

    directory: CacheDirectory

    def store(self, name: str, payload: bytes, record: Record, note: bytes = b"") -> Written:
        """See :meth:`EntryWriter.store`."""

    def store_copy(self, name: str, loaded: tuple[bytes, bytes]) -> Written:
        """See :meth:`EntryWriter.store_copy`."""

    @property
    def remove(self) -> Callable[[str], bool]:
        """See :attr:`EntryWriter.remove`."""

    def remove_all(self) -> None:
        """See :meth:`EntryWriter.remove_all`."""


class EntryWriter:
    """Stores and removes the entries of one directory."""

    __slots__ = ("_puts", "directory", "fsync", "pack", "placement", "remove", "timeout_seconds")

    #: Removes an entry, also for good from the seed, if there is one. Returns whether there was one.
    remove: Callable[[str], bool]

    def __init__(
        self,
        directory: CacheDirectory,
        timeout_seconds: float,
        *,
        fsync: bool,
        use_record_files: bool,
        keys: KeyRing | None = None,
    ) -> None:
        self.pack: Pack = pack if keys is None else keys.pack
        self.directory = directory
        self.remove = partial(remove_entry, directory, timeout_seconds=timeout_seconds, for_good=True)
        self.timeout_seconds = timeout_seconds
        self.fsync = fsync
        self.placement = RecordPlacement(use_files=use_record_files)
        # The first put reaps, so that a program that only reads pays nothing for what others left.
        self._puts = _PUTS_BETWEEN_REAPS - 1

    def store(self, name: str, payload: bytes, record: Record, note: bytes = b"", *, replaces: bool = True) -> Written:
        """Store ``payload`` and its record under ``name``, or drop the write and the older value with it.

        ``note``: :data:`~.entry.codec.NOTE_XATTR`. Without ``replaces``, an entry that is there stays, and so does one
        that another process stores meanwhile.
        """
        write, why = _Write(self, name, payload, record, note, replaces=replaces), ""
        try:
            outcome = write.run()
        except OSError as error:
            outcome, why = Outcome.DROPPED, f"{error}{more_to_do(error)}"
            if replaces:
                why += self._remove_older(name)
        self._puts += 1
        if self._puts % _PUTS_BETWEEN_REAPS == 0:
            reap_if_possible(self.directory)
        return Written(outcome, write.evicted, why)

    def store_copy(self, name: str, loaded: tuple[bytes, bytes]) -> Written:
        """Store an entry of a source, its payload and record, unless there is one by then: a copy replaces nothing."""
        return self.store(name, loaded[0], unpack(loaded[1]), replaces=False)

    def remove_all(self) -> None:
        """Remove all entries that are there. Those that are published meanwhile stay or go."""
        for shard in range(SHARDS):
            for found in scan_shard(self.directory.layout, shard):
                remove_entry(self.directory, found.name, self.timeout_seconds)

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

    # Made when it is needed: that is 2 us of a put.
    _admission: Admission | None = None
    # Kept between attempts: the digest in it is most of what a large value costs.
    _packed: Packed | None = None
    _retried: frozenset[str] = frozenset()
    _evictions = 0
    #: The entries that were evicted for this write.
    evicted = Evicted()

    def __init__(
        self, writer: EntryWriter, name: str, payload: bytes, record: Record, note: bytes, *, replaces: bool
    ) -> None:
        self._writer = writer
        self._directory = writer.directory
        self._name = name
        self._payload = payload
        self._record = record
        self._note = note
        self._replaces = replaces
        self._deadline = time.monotonic() + writer.timeout_seconds

    def run(self) -> Outcome:
        """Try until it is stored, or there is an entry that it does not replace. Raises :class:`OSError` to drop it."""
        try:
            while True:
                try:
                    outcome = self._attempt()
                except OSError as error:
                    remedy = self._remedy(error)
                    if remedy is None or remedy in self._retried:
                        raise
                    self._retried |= {remedy}
                    continue
                if outcome is not Outcome.NO_ROOM:
                    return outcome
                if time.monotonic() >= self._deadline:
                    raise RefusedError(f"other writers held all of the cap for {self._writer.timeout_seconds} s")
                if self._admission is not None:
                    self._admission.wait()
        finally:
            if self._admission is not None:
                self._admission.leave()
                self.evicted += self._admission.evicted

    def _attempt(self) -> Outcome:
        writer, directory, placement = self._writer, self._directory, self._writer.placement
        packed = self._packed or placement.pack(writer.pack, self._name, self._payload, self._record, self._note)
        self._packed = packed
        space = directory.layout.space or directory.space
        has_block = packed.inode_bytes > placement.fits_bytes and space.has_block_of_attribute(len(self._payload))
        size = space.most_of_entry(len(self._payload), len(packed.file), has_block=has_block)
        limit_bytes = directory.policy.stated.limit_bytes
        # By the policy as last read, which costs no call; if that refuses, it is read again.
        if limit_bytes is not None and size > limit_bytes:
            _refuse_above(directory.limit_bytes(), size)
        staged = StagedEntry(directory, self._name, size, self._deadline)
        is_published = False
        try:
            staged.reserve()
            # Cap and sum by one read, after the reservation: a process that lowers the limit does so before it reads
            # the reservations.
            image = staged.reservation.whole_after()
            limit_bytes = directory.policy.stated_in(image).limit_bytes
            if limit_bytes is not None and not self._has_room(staged, limit_bytes, image, size):
                return Outcome.NO_ROOM
            staged.set_attributes(packed.attribute, packed.note)
            # Other threads may have learned it since; what we reserved is what we have to give back.
            if has_block and staged.spares_block():
                placement.learn_fit(packed.attribute, packed.note)
            staged.write(self._payload, packed.file, fsync=writer.fsync)
            admitted = image[:HEAD_BYTES]
            is_published = staged.publish(fsync=writer.fsync, replaces=self._replaces, admitted=admitted)
        except OtherPolicyError:
            return Outcome.NO_ROOM  # by the cap that it had room under it may not be stored any more
        finally:
            if not is_published:
                staged.abandon()
        return Outcome.STORED if is_published else Outcome.IS_THERE

    def _has_room(self, staged: StagedEntry, limit_bytes: int, image: bytes, size_bytes: int) -> bool:
        if size_bytes > limit_bytes:
            _refuse_above(limit_bytes, size_bytes)
        if bytes_in(image) > limit_bytes:
            layout = self._directory.layout
            may_be_pinned = self._admission is None and os.access(layout.pins, os.F_OK, effective_ids=True)
            if may_be_pinned and size_bytes > limit_bytes - most_pinned_bytes(limit_bytes):
                # Next to what is pinned, before everything else goes for it in vain.
                _refuse_above(limit_bytes - pinned_bytes(layout, limit_bytes), size_bytes, " next to pins")
            if self._admission is None:
                self._admission = Admission(self._directory, self._deadline)
            if not self._admission.make_room(limit_bytes, size_bytes, staged.reservation.page):
                return False
        if self._admission is not None:
            self._admission.leave()  # before the write: the next writer need not wait until it is done
        return True

    def _remedy(self, error: OSError) -> str | None:
        """Do what may help against ``error``. Returns a name for it, so that it is done once; ``None`` for nothing."""
        if isinstance(error, AttributeRefusedError):
            learned = self._writer.placement.learn_from(error)
            if learned is not None:
                self._packed = None
                return learned
        if isinstance(error, FileNotFoundError) or error.errno in _LOST:
            if error.errno in _LOST:  # open descriptors are stale, though their paths look right
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
        self.evicted += evicted
        return f"evicted {self._evictions} times for a full disk" if evicted.entries else None


def _refuse_above(limit_bytes: int | None, size_bytes: int, where: str = "") -> None:
    """Raise :class:`RefusedError` for so many bytes, if they can never be stored, however long the write waits."""
    if limit_bytes is not None and size_bytes > limit_bytes:
        left = f"the directory's cap leaves{where} ({limit_bytes})"
        raise RefusedError(f"{size_bytes} bytes on disk are more than {left}")


# Of descriptors that are stale, or that the program closed: a file, a folder or a pipe may have the number.
_LOST: Final = (errno.ESTALE, errno.EBADF, errno.EISDIR, errno.ESPIPE)
