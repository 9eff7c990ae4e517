"""Unpacking: entries from an archive into a directory that others may be using.

Keeps invariants 1 (a hit is whole) to 5 (death is free) by going through the directory's own writer: each entry is
verified on the way in, room is reserved before a byte of it is on disk, it appears whole or not at all, and a death
leaves nothing that anybody waits for. Only 64 hex digits of an archive decide where something is written. Memory is
bounded by the largest entry that is accepted: it is there once, and the one that it would replace is not held too. Time
is bounded by the size of the archive: content that compresses to almost nothing is not a list of entries.

The last use of an entry is what it was where it was packed (but never in the future, which would keep it for ever), so
that of old and unpacked entries the cap keeps those that were used last.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import BinaryIO, Final

from lockcache.archive.compression import Decompressed
from lockcache.archive.members import Manifest, Member, Members, possible
from lockcache.archive.reading import Onlooker, StatedUse
from lockcache.errors import ArchiveError
from lockcache.filestream import EntryWriter
from lockcache.filestream.entry import Record, is_understood, is_whole, unpack
from lockcache.lowlevel import CacheDirectory, Evicted, load_keys
from lockcache.sizes import counted

#: The largest entry that is accepted by default: it has to fit into memory, and no known kernel is a tenth.
LARGEST_ENTRY_BYTES: Final = 1 << 30

# The bytes that the name of an entry takes, however it is compressed: 32 of a hash. And members that any archive may
# have.
_LEAST_MEMBER_BYTES: Final = 32
_ALWAYS_ALLOWED: Final = 1000

# Problems that are reported one by one; all are counted.
_MOST_REPORTED: Final = 20


@dataclass(frozen=True)
class Acceptance:
    """The rules for accepting entries of an archive."""

    #: Replace entries that are there. By default they are kept: they may be newer.
    overwrite: bool = False
    #: Also entries without a record, which nothing can verify. They get one, of the bytes that came.
    include_unverified: bool = False
    #: Give up at the first entry that is not as it should be.
    strict: bool = False
    #: The bytes of payload and record together.
    largest_entry_bytes: int = LARGEST_ENTRY_BYTES


@dataclass
class Unpacked:
    """The outcome of unpacking, in counts of entries."""

    stored: int = 0
    #: The bytes of payloads stored.
    bytes: int = 0
    #: Were there already.
    kept: int = 0
    #: Failed their digest.
    damaged: int = 0
    #: Members that are not entries: links, devices, names that lead elsewhere, sizes beyond what is accepted.
    refused: int = 0
    #: Have no record, and were not asked for.
    unverified: int = 0
    #: Could not be stored: larger than the cap, disk full, lock not free in time.
    dropped: int = 0
    #: Made room for others.
    evicted: int = 0
    freed_bytes: int = 0
    #: Why, for the first of those that were not as they should be.
    problems: list[str] = field(default_factory=list)

    @property
    def is_complete(self) -> bool:
        """Whether no entry was damaged, refused or dropped; one that the cap evicted does not count."""
        return not (self.damaged or self.refused or self.dropped)


def unpack_archive(
    file: BinaryIO,
    open_directory: Callable[[], CacheDirectory],
    acceptance: Acceptance | None = None,
    progress: Callable[[int, Manifest], object] = lambda done, manifest: None,
) -> tuple[Manifest, Unpacked]:
    """Store the entries of an archive. ``progress`` is given the bytes of payloads so far (0 first), and the manifest.

    The directory is opened, which may make it, when the file has proven to be an archive.

    Raises :class:`ArchiveError` for a file that is not an archive, is damaged or cut off (what came before stays,
    whole), and the :class:`OSError` of a directory that may not be written.
    """
    source = Decompressed(file)
    members = Members(source)
    unpacking = _Unpacking(open_directory(), acceptance or Acceptance())
    done_bytes = 0
    progress(done_bytes, members.manifest)
    try:
        for count, member in enumerate(members, 1):
            if count > _ALWAYS_ALLOWED + source.packed_bytes // _LEAST_MEMBER_BYTES:
                raise ArchiveError(f"{count} members in {source.packed_bytes} bytes, which no entries are")
            unpacking.take(member, members.payload)
            done_bytes += member.size_bytes
            progress(done_bytes, members.manifest)
    except ArchiveError as error:
        raise ArchiveError(f"{error} ({counted(unpacking.done.stored, 'entry')} stored before that)") from error
    return members.manifest, unpacking.done


class _Unpacking:
    def __init__(self, directory: CacheDirectory, acceptance: Acceptance) -> None:
        self._directory = directory
        self._acceptance = acceptance
        self._use = StatedUse(directory.layout.root)
        directory.recency = self._use
        keys = load_keys(None)
        self._reader = Onlooker(directory.layout, keys)
        timeout = directory.locks[0].timeout_seconds
        self._writer = EntryWriter(directory, timeout, fsync=False, use_record_files=False, keys=keys)
        self.done = Unpacked()

    def take(self, member: Member, payload: Callable[[], bytes]) -> None:
        """Store one member, or count why not. ``payload`` reads it; unless it is called nothing of it is in memory."""
        done = self.done
        if member.problem is not None:
            done.refused += 1
            return self._tell(member, member.problem)
        size_bytes = member.size_bytes + len(member.record)
        if size_bytes > self._acceptance.largest_entry_bytes:
            done.refused += 1
            return self._tell(
                member, f"{size_bytes} bytes; accepted: {self._acceptance.largest_entry_bytes} (--max-entry)"
            )
        limit_bytes = self._directory.limit_bytes()
        if limit_bytes is not None and size_bytes > limit_bytes:
            done.dropped += 1
            return self._tell(member, f"{size_bytes} bytes are more than the directory's cap leaves", fatal=False)
        if not member.record and not self._acceptance.include_unverified:
            done.unverified += 1
            return None
        # Looked for before the payload is read: the two need not be in memory at once.
        is_there = not self._acceptance.overwrite and self._reader.load(member.name) is not None
        return self._verify(member, payload(), is_there)

    def _verify(self, member: Member, payload: bytes, is_there: bool) -> None:
        # Not in the future either: 64 bits of a record end in 2262, and a header states what it likes.
        record = Record(len(payload), min(member.last_use_ns, time.time_ns()), 0, b"")
        if member.record:
            if not is_understood(member.record) or not is_whole(member.record, member.name, payload):
                self.done.damaged += 1
                return self._tell(member, "not what was packed: its digest is another")
            record = possible(unpack(member.record))
        if is_there:
            self.done.kept += 1
            return None
        return self._store(member, payload, record)

    def _store(self, member: Member, payload: bytes, record: Record) -> None:
        done = self.done
        self._use.last_use_ns = min(member.last_use_ns, time.time_ns())
        written = self._writer.store(member.name, payload, Record(len(payload), *record[1:]))
        evicted: Evicted = written.evicted
        done.evicted += evicted.entries
        done.freed_bytes += evicted.bytes
        if written.dropped is not None:
            done.dropped += 1
            return self._tell(member, written.dropped, fatal=False)
        done.stored += 1
        done.bytes += len(payload)
        return None

    def _tell(self, member: Member, problem: str, *, fatal: bool = True) -> None:
        text = f"{member.name}: {problem}"
        if fatal and self._acceptance.strict:
            raise ArchiveError(text)
        if len(self.done.problems) < _MOST_REPORTED:
            self.done.problems.append(text)
