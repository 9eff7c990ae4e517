"""FileStreamProgramCache: a directory of programs that many processes share.

Joins the parts of this package into the mapping API and decides nothing else. Keeps invariant 7 at the edge: what a
caller cannot help (a full disk, a hung lock, a stale handle) is a counted, logged miss or dropped write; a
PermissionError and EROFS on a write are configuration and do raise.
"""

from __future__ import annotations

import errno
import logging
import os
import threading
import time
from typing import Any, TypeVar, overload

from lockcache.filestream.directory import CacheDirectory
from lockcache.filestream.eviction import evict
from lockcache.filestream.layout import SHARDS, entry_name
from lockcache.filestream.location import resolve_path
from lockcache.filestream.policy import Policy
from lockcache.filestream.read import EntryReader
from lockcache.filestream.record import Record, unpack
from lockcache.filestream.recovery import Repair, recount_all
from lockcache.filestream.scan import count_shard, measure_shard, scan_shard
from lockcache.filestream.usage import Slot
from lockcache.filestream.writer import EntryWriter
from lockcache.fork import after_fork_in_child
from lockcache.resource import (
    CacheStats,
    Entry,
    ProgramCacheResource,
    coerce_entry,
    coerce_key,
    coerce_max_size_bytes,
    coerce_value,
    join_metadata,
    split_metadata,
)

__all__ = ["FileStreamProgramCache"]

_T = TypeVar("_T")

_log = logging.getLogger("lockcache")


class FileStreamProgramCache(ProgramCacheResource):
    """Compiled programs in a directory that any number of threads and processes share.

    A read takes no lock and returns only bytes that some writer stored under that key, proven by a digest. Once a write
    has returned, no later read in any process gives an older value. With a cap, entries and writes in progress never
    exceed it, whoever writes. A killed process leaves nothing that anybody waits for.

    Args:
        path: The directory; made with mode 0700 if missing. ``None``: ``$LOCKCACHE_DIR``, else ``lockcache`` in the
            user cache directory. A directory that cuda.core's own ``FileStreamProgramCache`` filled is a valid one.
        max_size_bytes: The directory's cap in bytes, for every process that uses it. ``None`` leaves the cap that it
            has. A cap that an operator set (the daemon, ``lockcache policy``) is not replaced.
        lock_timeout_seconds: How long a write waits for a lock or for room before it is dropped.
        fsync: Sync each entry to disk before it is published, for entries that must survive a power cut. Without it a
            power cut can lose recent entries, but what it leaves half written is a miss, never a result.
        record_files: Keep records in files beside the entries even where the file system has extended attributes, for
            directories that are copied by tools which drop those.
        verified_only: Entries without a record are misses. By default they are served, unverified, and counted: that is
            how cuda.core's own cache leaves them, but also how a copy that dropped its attributes looks.

    Raises:
        UnsafeCacheDirError: Someone else owns the directory, or may write to it.
        FormatError: The directory was made by a newer lockcache.
        PolicyError: Its ``policy.json`` cannot be understood.
        OSError: It cannot be made, or is no directory.

    A directory that may only be read opens: hits work, writes raise. Objects can be pickled (the copy opens the same
    directory) and survive ``fork``.
    """

    def __init__(
        self,
        path: str | os.PathLike[str] | None = None,
        *,
        max_size_bytes: int | None = None,
        lock_timeout_seconds: float = 5.0,
        fsync: bool = False,
        record_files: bool = False,
        verified_only: bool = False,
    ) -> None:
        cap = coerce_max_size_bytes(max_size_bytes)
        timeout = _coerce_timeout(lock_timeout_seconds)
        # What a pickled copy opens with. Not the cap: it is the directory's by now, and may have been changed since.
        self._arguments = {
            "path": resolve_path(path),
            "lock_timeout_seconds": timeout,
            "fsync": _coerce_switch("fsync", fsync),
            "record_files": _coerce_switch("record_files", record_files),
            "verified_only": _coerce_switch("verified_only", verified_only),
        }
        self._directory = CacheDirectory(resolve_path(path), timeout)
        layout = self._directory.layout
        self._reader = EntryReader(layout, self._directory.recency, verified_only=verified_only)
        self._writer = EntryWriter(self._directory, timeout, fsync=fsync, use_record_files=record_files)
        self._counting = threading.Lock()
        after_fork_in_child(self)
        self._counts = dict.fromkeys(("puts", "evictions", "dropped_writes"), 0)
        self._apply_cap(cap)

    @property
    def path(self) -> str:
        """The directory, as an absolute path."""
        return self._directory.layout.root

    @property
    def max_size_bytes(self) -> int | None:
        """The cap in force now, whoever set it."""
        return self._directory.policy.current().max_size_bytes

    def __getitem__(self, key: bytes | str) -> bytes:
        loaded = self._reader.load(entry_name(key if type(key) is bytes else coerce_key(key)))
        if loaded is None:
            raise KeyError(key)
        return loaded[0]

    @overload
    def get(self, key: bytes | str) -> bytes | None: ...
    @overload
    def get(self, key: bytes | str, default: _T) -> bytes | _T: ...
    def get(self, key: bytes | str, default: object = None) -> object:
        loaded = self._reader.load(entry_name(key if type(key) is bytes else coerce_key(key)))
        return default if loaded is None else loaded[0]

    def get_entry(self, key: bytes | str) -> Entry | None:
        """The entry with its metadata, or ``None``. An entry of cuda.core's own cache has no metadata."""
        loaded = self._reader.load(entry_name(coerce_key(key)))
        if loaded is None:
            return None
        payload, blob = loaded
        if not blob:
            return Entry(payload)
        record = unpack(blob)
        try:
            return Entry(payload, join_metadata(record.tail, record.cost_ns))
        except ValueError as error:
            # Whole, and stored by a version that knows more: half of an entry is none (invariant 7).
            _log.warning("%s: the metadata of %r cannot be read here: %s", self.path, key, error)
            return None

    def __setitem__(self, key: bytes | str, value: object) -> None:
        name = entry_name(coerce_key(key))
        self._store(name, *split_metadata(*coerce_value(value)))

    def put_entry(self, key: bytes | str, entry: Entry) -> None:
        """Store code and metadata as one unit: a reader sees both or neither."""
        name = entry_name(coerce_key(key))
        self._store(name, *coerce_entry(entry))

    def __delitem__(self, key: bytes | str) -> None:
        if not self._writer.remove(entry_name(coerce_key(key))):
            raise KeyError(key)

    def __len__(self) -> int:
        """Number of entries on disk now, counted by listing the directory (0.1 ms for 100)."""
        return sum(count_shard(self._directory.layout, shard) for shard in range(SHARDS))

    def clear(self) -> None:
        """Remove every entry. Safe beside writers: what they publish meanwhile stays or goes, none of them fails."""
        for shard in range(SHARDS):
            for found in scan_shard(self._directory.layout, shard):
                self._writer.remove(found.name)

    def recount(self) -> list[Repair]:
        """Make the shared accounting say what the disk holds, and remove what killed writers left staged.

        Needed only after processes were killed, or where other programs write the directory, and no daemon runs (which
        does this all the time). Returns the shards that were wrong, and by how much.
        """
        return recount_all(self._directory)

    def stats(self) -> CacheStats:
        """This object's counters, and bytes and entries of the directory as accounted (staged writes included)."""
        slot = self._accounted()
        reads = self._reader
        with self._counting:
            return CacheStats(
                hits=reads.hits,
                misses=reads.misses,
                corrupt_entries=reads.corrupt_entries,
                unverified_hits=reads.unverified_hits,
                bytes=slot.bytes,
                entries=slot.entries,
                **self._counts,
            )

    def close(self) -> None:
        """Close the descriptors that are held open. The cache may be used again; it opens what it needs."""
        self._directory.close()

    def _store(self, name: str, code: bytes, tail: bytes, cost_ns: int) -> None:
        written = self._writer.store(name, code, Record(len(code), time.time_ns(), cost_ns, tail))
        if written.dropped is None:
            self._count(puts=1, evictions=written.evicted.entries)
            return
        # The first drop is news, a disk that stays full is not.
        level = logging.DEBUG if self._counts["dropped_writes"] else logging.WARNING
        self._count(dropped_writes=1, evictions=written.evicted.entries)
        _log.log(level, "%s: a write was dropped, the program goes on without it: %s", self.path, written.dropped)

    def _apply_cap(self, cap: int | None) -> None:
        policy = self._directory.policy.current()
        if cap is not None and cap != policy.max_size_bytes and self._directory.usage_if_writable() is not None:
            if policy.by_operator:
                _log.warning(
                    "%s: max_size_bytes=%d is not applied, an operator set it to %s",
                    self.path,
                    cap,
                    policy.max_size_bytes,
                )
            else:
                self._set_cap(Policy(cap))
        self._evict_to(self._directory.policy.current())

    def _set_cap(self, policy: Policy) -> None:
        try:
            self._directory.policy.replace(policy)
            return
        except OSError as error:
            if error.errno not in (errno.ENOSPC, errno.EDQUOT):
                raise
        # It may well be this cache that fills the disk, and the cap that would have prevented it.
        self._evict_to(policy)
        try:
            self._directory.policy.replace(policy)
        except OSError as error:
            _log.warning("%s: max_size_bytes=%s is not applied: %s", self.path, policy.max_size_bytes, error)

    def _evict_to(self, policy: Policy) -> None:
        limit = policy.entries_limit_bytes
        usage = self._directory.usage_if_writable()
        while limit is not None and usage is not None and usage.total_bytes() > limit:
            evicted = evict(self._directory, limit)
            if not evicted.entries:
                return  # what is left is being written by others, who make room for themselves
            self._count(evictions=evicted.entries)

    def _accounted(self) -> Slot:
        try:
            usage = self._directory.usage_if_writable()
            if usage is not None:
                return usage.total()
        except OSError as error:
            _log.debug("%s: the accounting cannot be read, so the directory is measured: %s", self.path, error)
        return self._measured()

    def _measured(self) -> Slot:
        slots = [measure_shard(self._directory.layout, shard) for shard in range(SHARDS)]
        return Slot(sum(slot.bytes for slot in slots), sum(slot.entries for slot in slots))

    def _count(self, **increments: int) -> None:
        with self._counting:
            for name, increment in increments.items():
                self._counts[name] += increment

    def _after_fork_in_child(self) -> None:
        self._counting = threading.Lock()

    def __reduce__(self) -> Any:
        return _reopen, (type(self), self._arguments)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.path!r})"


def _reopen(kind: type[FileStreamProgramCache], arguments: dict[str, Any]) -> FileStreamProgramCache:
    return kind(**arguments)


def _coerce_switch(name: str, value: object) -> bool:
    # bool("no") is True, and would go unnoticed.
    if not isinstance(value, bool):
        raise TypeError(f"{name} must be True or False, got {value!r}")
    return value


def _coerce_timeout(seconds: object) -> float:
    if isinstance(seconds, bool) or not isinstance(seconds, (int, float)):
        raise TypeError(f"lock_timeout_seconds must be a number of seconds, got {seconds!r}")
    if not 0 <= seconds <= threading.TIMEOUT_MAX:
        raise ValueError(f"lock_timeout_seconds must be between 0 and {threading.TIMEOUT_MAX:.0f}, got {seconds!r}")
    return float(seconds)
