# SPDX-License-Identifier: Apache-2.0
"""Reading one entry: lock-free, verified, five system calls.

Keeps invariants 1 (a hit is whole) and 4 (readers never wait): what is returned passed its record's digest (or carries
no record at all, and is counted), and no lock is taken, no directory walked. Keeps invariant 7 (never take the job
down): whatever a shared file system answers, the worst is a miss.

A hit is open, fgetxattr, read, utime, close; a miss is one failed open, or one access in
:meth:`lockcache.composition.cache.FileStreamProgramCache.get`.

:class:`FolderReader` reads the directories that others change, too, by way of the shard's folder. Where a group shares
the directory, it opens the folders on the way to an entry, so that no symlink below the root is followed though
somebody swaps them meanwhile, for four more calls a read. On network file systems, where the kernel remembers names, it
opens the folder first, for one call to the server: else a client that has an entry's older file open, or the host that
replaced it, would be served that older one for as long as it stays open (seen: 19 s), and what was once missing stays
missing.
"""

from __future__ import annotations

import errno
import logging
import math
import os
import stat
import struct
import time
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from xxhash import xxh3_128_digest

from lockcache.filestream.disk import NOATIME, READ, READ_ANYHOW_BYTES, Layout, Recency, is_hole, opening, read_all
from lockcache.filestream.entry.codec import (
    HEAD_BYTES,
    LARGEST_COST_NS,
    ORDINARY,
    XATTR,
    cost_of,
    is_known,
    is_understood,
    is_whole,
    length_and_cost,
    may_have,
)
from lockcache.filestream.entry.locate import find_records

if TYPE_CHECKING:
    from lockcache.filestream.accounting import RunCounts
    from lockcache.filestream.entry.signing import KeyRing

_log = logging.getLogger("lockcache")

# ESTALE means that the name was looked up before and replaced on the server since. The next look succeeds, unless it is
# not a race.
_ATTEMPTS: Final = 3

# A payload can be replaced twice between opening it and opening its record file, and again at the next look: by writers
# of one key on a busy machine (seen: three times in a row).
_MOST_REPLACED: Final = 100

# The hits whose entries are noted until the next report, 0.5 MB. Of more the last ones are a fair sample.
_MOST_USES: Final = 4096

# A process that only hits reports once in so many seconds.
_REPORT_SECONDS: Final = 60.0

# Names of damaged entries that are remembered, 100 KB.
_MOST_REPORTED: Final = 1000

_XATTR: Final = XATTR.encode()

# Looked up once: a hit is 8 us, and each attribute of a module costs 0.05 of them.
_open, _close, _closerange, _read_fd, _getxattr = os.open, os.close, os.closerange, os.read, os.getxattr
_utime, _time, _xxh3_128 = os.utime, time.time, xxh3_128_digest


class EntryReader:
    """Reads the entries of one directory, and counts how that went."""

    def __init__(
        self,
        layout: Layout,
        recency: Recency,
        keys: KeyRing | None = None,
        *,
        verified_only: bool = False,
        asks_first: bool = False,
    ) -> None:
        """With ``keys``, what one of them signed is served; anything else is a miss, counted in refused_entries."""
        self._keys = keys
        # By the checksum in the hit itself, if there are no keys.
        self._verify = None if keys is None else keys.is_whole
        self._verified_only = verified_only and keys is None
        self._layout = layout
        self._shards = _Shards(layout.entries)
        self._recency = recency
        # A hit states its use itself; the kernel's own atime update on top is 0.6 us more. Only the owner may decline.
        self._flags = (READ | NOATIME,)
        # A cold job misses repeatedly, a warm one hits. After a miss, an ``access`` first makes the next miss cheaper:
        # a failed open builds an exception, 1.1 us of 3. After a hit it would be a call too many.
        self._asks_first = asks_first and _is_asked_as_who_opens()
        #: Whether the caller should check by ``access`` that there is such a file before it calls :meth:`load`, and
        #: count a miss itself.
        self.expects_miss = False
        # Incremented without a lock, on the hot path: CPython switches threads between function calls and loops, so
        # that an increment between them is not cut in two. Nor is a signal handled there: it may read and add as well.
        self.hits = self.misses = self.unverified_hits = 0
        #: Hits of callers that waited for another one to compute the entry: :mod:`..compile_once` counts them.
        self.waits = 0
        #: What compiling took, of each hit, as its record says. Free of charge: the head is unpacked for the length.
        self.saved_ns = 0
        #: The counts for ``lockcache run``, if that started this process.
        self.run: RunCounts | None = None
        #: The names of entries that were hit since the last report.
        self.uses: deque[str] = deque(maxlen=_MOST_USES)
        self._note_use = self.uses.append
        #: Gives the report of these counts, if there is one, which is made when a hit finds that it is due. On network
        #: file systems it never is: a hit asks nothing more there.
        self.report: Callable[[], Any] = bool
        self._report_at = _time() + _REPORT_SECONDS if recency.is_exact else math.inf
        #: Misses on entries with a signature that cannot be verified here, or without a required one.
        self.refused_entries = 0
        #: Reads that found what no writer had stored under that name.
        self.corrupt_entries = 0
        self._reported: set[str] = set()

    def counts(self) -> dict[str, int]:
        """Returns the counts that a cache's statistics and the directory's counters both have."""
        names = ("hits", "misses", "waits", "corrupt_entries", "unverified_hits")
        return {name: getattr(self, name) for name in names}

    def load(self, name: str, file: str = "", folder_fd: int | None = None) -> tuple[bytes, bytes] | None:  # noqa: C901, PLR0912 - the hot path
        """Returns payload, verified and marked as used, and record (head and tail, or empty) of the entry ``name``.

        ``file`` in the open folder ``folder_fd`` is where to find it, for a caller that opened its shard.
        """
        path = file or self._shards[name[:2]] + name[2:]
        try:
            # As :func:`.descriptors.opening` does it, written out.
            [fd] = map(_open if folder_fd is None else partial(_open, dir_fd=folder_fd), (path,), self._flags)
        except FileNotFoundError:
            self.expects_miss = self._asks_first
            self.misses += 1
            return None
        except OSError:
            return self.load_carefully(name, path, folder_fd)
        self.expects_miss = False
        try:
            length, cost_ns = length_and_cost(blob := _getxattr(fd, _XATTR))
            payload = _read_fd(fd, length) if length <= READ_ANYHOW_BYTES else b""  # which no digest is of
            if self._verify is not None:
                is_verified = self._verify(blob, name, payload)
            else:  # is_whole, and touch below, written out: the two calls are 0.3 us
                bound = blob[:28] + name.encode()
                if len(blob) > HEAD_BYTES:
                    bound += blob[HEAD_BYTES:]
                is_verified = blob[:4] == ORDINARY and blob[28:44] == _xxh3_128(bound + _xxh3_128(payload))
            if is_verified:
                if self._recency.is_exact:
                    now = _time()
                    _utime(fd, (now, now))
                    if now > self._report_at:
                        self._report_now(now)
                else:
                    self._recency.touch(fd)
                self.hits += 1
                self._note_use(name)
                if 0 < cost_ns <= LARGEST_COST_NS:  # cost_of, written out
                    self.saved_ns += cost_ns
                return payload, blob
        except (OSError, MemoryError, struct.error):
            # No attribute or a short one, no plain file, a damaged length of gigabytes, a time that may not be set:
            # nothing is decided here, the careful path looks again.
            pass
        finally:
            try:  # as :func:`.descriptors.close_quietly`, whose system call is 0.35 us more
                _close(fd)
            except OSError:
                pass  # it is closed all the same
        return self.load_carefully(name, path, folder_fd)

    def load_carefully(self, name: str, path: str, folder_fd: int | None = None) -> tuple[bytes, bytes] | None:
        """Load like :meth:`load` what is not an ordinary hit or miss: record files, no record, damage, ESTALE."""
        is_corrupt, attempts, replaced = False, 0, 0
        while attempts < _ATTEMPTS and replaced < _MOST_REPLACED:
            try:
                loaded = self._load_once(name, path, folder_fd)
            except FileNotFoundError:
                break
            except MemoryError:
                is_corrupt = True  # longer than memory: a hole of a terabyte, say
                break
            except _ReplacedError:
                replaced += 1
                continue
            except OSError as error:
                attempts += 1
                if error.errno == errno.EPERM and self._flags[0] & NOATIME:
                    self._flags = (READ,)  # someone else's entries
                elif error.errno != errno.ESTALE:
                    break  # ELOOP, ENOTCONN, EIO, EACCES, ...: nothing that can be served
                continue
            if loaded is not None:
                self._note_hit(name)
                self.unverified_hits += not loaded[1]
                self.saved_ns += cost_of(loaded[1])
                return loaded
            is_corrupt = True
            attempts += 1
        self.misses += 1
        if is_corrupt:
            self.note_corrupt(self._layout.entry(name))
        return None

    def _note_hit(self, name: str) -> None:
        self.hits += 1
        self._note_use(name)
        if (now := _time()) > self._report_at:
            self._report_now(now)

    def _report_now(self, now: float) -> None:
        self._report_at = now + _REPORT_SECONDS
        if report := self.report():
            report.report()

    def take_back(self, loaded: tuple[bytes, bytes]) -> None:
        """Count a hit on ``loaded`` no more: no caller looked it up."""
        self.hits -= 1
        self.unverified_hits -= not loaded[1]
        self.saved_ns -= cost_of(loaded[1])

    def take_back_computed(self, name: str, loaded: tuple[bytes, bytes]) -> None:
        """Count a hit no more: the caller computed the entry, which another one stored meanwhile."""
        self.take_back(loaded)
        if self.run is not None:
            self.run.compiled_in_vain(name, cost_of(loaded[1]))

    def note_found(self, name: str, loaded: tuple[bytes, bytes]) -> None:
        """Count for ``lockcache run`` that a caller was served ``loaded``."""
        if self.run is not None:
            self.run.found(name, cost_of(loaded[1]))

    def note_wait(self, name: str, seconds: float) -> None:
        """Count that the caller who was just served the entry had waited for it."""
        self.waits += 1
        if self.run is not None:
            self.run.waited(name, int(seconds * 1e9))

    def note_corrupt(self, path: str) -> None:
        """Count a damaged entry, and warn of it."""
        self.corrupt_entries += 1
        # Once for each entry: an entry that stays damaged is read repeatedly, and would fill the disk with its log.
        is_new = path not in self._reported
        if is_new:
            if len(self._reported) >= _MOST_REPORTED:
                self._reported.clear()
            self._reported.add(path)
        level = logging.WARNING if is_new else logging.DEBUG
        _log.log(level, "%s is not what a writer stored there: a miss", path)

    def _load_once(self, name: str, path: str, folder_fd: int | None) -> tuple[bytes, bytes] | None:
        """Read once. Returns ``None`` for bytes that fail their digest. Raises :class:`OSError` for other failures."""
        [fd] = opening(path, self._flags[0], folder_fd)
        try:
            records = find_records(self._layout, fd, name)
            status = os.fstat(fd)
            if not stat.S_ISREG(status.st_mode):
                raise OSError(errno.EINVAL, "not a regular file")
            if self._verified_only and not records:
                raise OSError(errno.ENODATA, "no record")
            if not records and status.st_nlink > 1:
                # Neither lockcache nor cuda.core gives an entry two names: this one was planted, whatever it leads to.
                raise OSError(errno.EMLINK, "a hard link without a record")
            self._refuse(records)
            # Not if the length is wrong: another member may have made the file a hole of a terabyte.
            is_there = not is_hole(status)
            fitting = [blob for blob in records if is_there and may_have(blob, status.st_size)]
            payload = read_all(fd, status.st_size) if fitting or (is_there and not records) else b""
            for blob in fitting:
                if self._vouches(blob, name, payload):
                    self._recency.touch(fd, status)
                    return payload, blob
            if not os.fstat(fd).st_nlink:
                # The payload was replaced or removed since it was opened, and the record file with it: no damage, look
                # again.
                raise _ReplacedError
            # Empty files under final names are what a power cut leaves of writes that were not synced. An empty value
            # of lockcache's has a record; one without was emptied.
            if records or not payload or len(payload) != status.st_size:
                return None
            self._recency.touch(fd, status)
            return payload, b""
        finally:
            _closerange(fd, fd + 1)

    def _vouches(self, blob: bytes, name: str, payload: bytes) -> bool:
        """Returns whether a record proves that this payload was stored under this name."""
        if self._verify is not None:
            return self._verify(blob, name, payload)
        return is_understood(blob) and is_whole(blob, name, payload)

    def _refuse(self, records: list[bytes]) -> None:
        """Raise :class:`OSError` for records that may be in order, but cannot be verified here."""
        if self._keys is not None:
            if any(map(self._keys.knows, records)):
                return
            self.refused_entries += 1
            raise OSError(errno.EKEYREJECTED, "not signed with one of the given keys")
        if records and all(is_known(blob) and not is_understood(blob) for blob in records):
            self.refused_entries += 1
            raise OSError(errno.EKEYREJECTED, "signed, and there is no key here")


class _ReplacedError(OSError):
    """The payload was replaced or removed while its records were read."""


class _Shards(dict[str, str]):
    """The paths of shards, by the two digits, with the slash: of each when it is first asked for, after one look at it.

    A process looks once whether a symlink stands in a shard's place. Where others than the owner may put one there
    later, :mod:`.reader` looks each time.
    """

    def __init__(self, entries: str) -> None:
        super().__init__()
        self._entries = entries

    def __missing__(self, digits: str) -> str:
        path = f"{self._entries}/{digits}"
        if os.path.islink(path):
            return "/dev/null/"  # nothing can be below it; not kept, for the symlink may go
        return self.setdefault(digits, f"{path}/")


#: Returns payload and record of an entry, verified, by its name; ``None`` for a miss.
Load: TypeAlias = "Callable[[str], tuple[bytes, bytes] | None]"


class FolderReader(EntryReader):
    """Reads the entries of a directory that a group or several hosts share."""

    __slots__ = ("_load",)

    def __init__(self, layout: Layout, *arguments: Any, **named: Any) -> None:
        """``asks_first`` means nothing here: the folders are looked at before the files in them."""
        super().__init__(layout, *arguments, **named | {"asks_first": False})
        # On a server by the careful path: it takes the times before it reads, and a read makes the client forget them.
        self._load = EntryReader.load_carefully if layout.is_network else EntryReader.load

    def load(self, name: str, file: str = "", folder_fd: int | None = None) -> tuple[bytes, bytes] | None:
        """Load like :meth:`EntryReader.load`; a symlink in the place of a folder is a miss.

        A server is asked again for a missing entry after a second.
        """
        layout = self._layout
        try:
            if layout.hosts.may_have(layout.entry(name)):
                with layout.hosts.at(layout.reach, layout.entry_shard(int(name[:2], 16))) as folder:
                    return self._load(self, name, folder.at(name[2:]), folder.fd)
        except OSError:
            pass  # no shard, no entry
        self.misses += 1
        return None


def reader_of(layout: Layout) -> type[EntryReader]:
    """Returns the kind of reader that a directory takes: by paths where nobody else can plant or replace a folder."""
    return FolderReader if layout.is_shared or layout.is_network else EntryReader


def _is_asked_as_who_opens() -> bool:
    """Returns whether ``access`` and ``open`` act for the same user: not if this process is setuid, say.

    Else ``access`` would take a private directory's hits for misses. ``effective_ids`` prevents that, for 35 ns a miss.
    """
    return (os.getuid(), os.getgid()) == (os.geteuid(), os.getegid())
