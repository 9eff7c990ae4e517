"""FileStreamProgramCache: a directory of programs that many processes share.

Joins the parts of this package into the mapping API and decides nothing else. Keeps invariant 7 (never take the job
down) at the edge: what a caller cannot help (a full disk, a hung lock, a stale handle) is a counted, logged miss or
dropped write; a PermissionError and EROFS on a write are configuration and do raise.
"""

from __future__ import annotations

import hashlib
import logging
import os
import time
from collections.abc import Callable
from functools import partial
from typing import Any, Final, TypeVar, overload

from lockcache.arguments import (
    coerce_group,
    coerce_key_file,
    coerce_seconds,
    coerce_switch,
    default_cap,
    resolve_path,
)
from lockcache.explain import Stated, statement_of
from lockcache.filestream.accounting import (
    Counters,
    CountersReport,
    Miss,
    Slot,
    count_shard,
    report_at_end,
    scan_shard,
    total_of,
)
from lockcache.filestream.compile_once import CompileOnce, ImplicitTurns, Turn
from lockcache.filestream.directory import CacheDirectory
from lockcache.filestream.disk import SHARDS, entry_name
from lockcache.filestream.entry import (
    EntryReader,
    Record,
    load_keys,
    loader_of,
    make_reader,
    unpack,
)
from lockcache.filestream.policy import policy_left_alone, stated_policy
from lockcache.filestream.repair import Repair, empty_quarantine, recount_all
from lockcache.filestream.room import apply_policy
from lockcache.filestream.writer import EntryWriter
from lockcache.resource import (
    CacheStats,
    Entry,
    ProgramCacheResource,
    coerce_entry,
    coerce_key,
    coerce_max_size_bytes,
    coerce_value,
    join_metadata,
    run_compute,
    split_metadata,
)

__all__ = ["FileStreamProgramCache"]

_T = TypeVar("_T")

_log = logging.getLogger("lockcache")

# Looked up once, as in .entry.reader.
_access, _sha256 = os.access, hashlib.sha256
_EXISTS: Final = os.F_OK


class FileStreamProgramCache(ProgramCacheResource):
    """Compiled programs in a directory that any number of threads and processes share.

    A read takes no lock and returns only bytes that some writer stored under that key, proven by a digest. Once a write
    has returned, no later read in any process gives an older value. With a cap, entries and writes in progress never
    exceed it, whichever process writes. A killed process leaves nothing that anybody waits for.

    Args:
        path: The directory; made with mode 0700 if missing. ``None``: ``$LOCKCACHE_DIR``, else ``lockcache`` in the
            user cache directory. A directory that cuda.core's own ``FileStreamProgramCache`` filled is a valid one.
        max_size_bytes: The directory's cap in bytes, for every process that uses it. ``None``: ``$LOCKCACHE_MAX_SIZE``,
            else the cap that it has, which for a new default directory is 10 GB. One that an operator set (the daemon,
            ``lockcache policy``) is not replaced. Likewise ``$LOCKCACHE_POLICY``, ``lru`` or ``cost``.
        lock_timeout_seconds: How long a write waits for a lock or for room before it is dropped.
        fsync: Sync each entry to disk before it is published, for entries that must survive a power cut. Without it a
            power cut can lose recent entries, but what it leaves half written is a miss, never a result.
        compile_once: For callers that only look up and store, such as ``cuda.core.Program.compile(cache=...)``: a
            lookup that misses obliges its thread to store, and lookups of that key elsewhere wait for it. So ``get``
            may wait (at most for the lease timeout), and a caller that looks up without meaning to store keeps the
            others waiting until it looks up something else. ``get_or_compute`` needs no such switch.
        lease_timeout_seconds: How long a compiling process is waited for. ``None``: a minute, or four times what
            compiling that key took the last time, whichever is longer. Then one waiter takes over.
        record_files: Keep records in files next to the entries even where the file system has extended attributes, for
            directories that are copied by tools which drop those.
        verified_only: Entries without a record are misses. By default they are served, unverified, and counted: that is
            how cuda.core's own cache leaves them, but also how a copy that dropped its attributes looks.
        group: Share the directory with a group: its name or number, or True for the one that the directory has. A new
            one is made with mode 2770, one that is there must have it, and all members read, write and evict. ``None``:
            ``$LOCKCACHE_GROUP``, else False: the directory is this user's alone.
        signing_key_file: Sign what is stored with the first key of this file, and serve only what one of its keys
            signed. ``None``: ``$LOCKCACHE_SIGNING_KEY_FILE``, if that is set; False: neither. ``lockcache key new``
            makes such a file.

    Raises:
        UnsafeCacheDirError: Someone else owns the directory, or may write to it.
        FormatError: The directory was made by a newer lockcache.
        SigningKeyError: The file of keys holds none, or others could know them.
        PolicyError: Its ``policy.json`` cannot be understood.
        OSError: It cannot be made, or is not a directory.

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
        compile_once: bool = False,
        lease_timeout_seconds: float | None = None,
        group: bool | str | None = None,
        signing_key_file: str | os.PathLike[str] | bool | None = None,
    ) -> None:
        stated = stated_policy(coerce_max_size_bytes(max_size_bytes))
        timeout = coerce_seconds("lock_timeout_seconds", lock_timeout_seconds)
        if lease_timeout_seconds is not None:
            lease_timeout_seconds = coerce_seconds("lease_timeout_seconds", lease_timeout_seconds)
        # What a pickled copy opens with. Not the cap: it is the directory's by now, and may have been changed since.
        self._arguments = {
            "path": resolve_path(path),
            "lock_timeout_seconds": timeout,
            "fsync": coerce_switch("fsync", fsync),
            "record_files": coerce_switch("record_files", record_files),
            "verified_only": coerce_switch("verified_only", verified_only),
            "compile_once": coerce_switch("compile_once", compile_once),
            "lease_timeout_seconds": lease_timeout_seconds,
            "group": coerce_group(group),
            "signing_key_file": coerce_key_file(signing_key_file) or False,
        }
        self._directory = CacheDirectory(resolve_path(path), timeout, group=group, first_cap_bytes=default_cap(path))
        layout, is_shared = self._directory.layout, self._directory.is_shared
        keys = load_keys(signing_key_file)
        # A miss has more to do there than to be counted, and folders are looked at before anything in them.
        asks_first = not (compile_once or is_shared or layout.is_network)
        self._reader = make_reader(
            layout, self._directory.recency, keys, verified_only=verified_only, asks_first=asks_first
        )
        self._entries = f"{layout.entries}/"
        reader = loader_of(layout, self._reader, is_shared=is_shared)
        self._once = CompileOnce(layout, reader, lease_timeout_seconds)
        self._implicit = ImplicitTurns(self._once, reader) if compile_once else None
        # Bound once: a hit spares the choice.
        self._load = reader.load if self._implicit is None else self._implicit.load
        self._writer = EntryWriter(self._directory, timeout, fsync=fsync, use_record_files=record_files, keys=keys)
        self._held = Slot(0, 0)
        # Incremented without a lock, as in .entry.reader: a signal handler may count in the midst of anything.
        self._counts = dict.fromkeys(("puts", "evictions", "dropped_writes"), 0)
        self._report = CountersReport(layout, partial(_counted, self._reader, self._counts))
        report_at_end(self, self._report)
        self._count(evictions=apply_policy(self._directory, *stated).entries)

    @property
    def path(self) -> str:
        """The directory, as an absolute path."""
        return self._directory.layout.root

    @property
    def max_size_bytes(self) -> int | None:
        """The cap in force now, whichever program set it."""
        return self._directory.policy.current().max_size_bytes

    def __getitem__(self, key: bytes | str) -> bytes:
        # Not self.get: a subclass may have one of its own, made of self[key].
        code = FileStreamProgramCache.get(self, key)
        if code is None:
            raise KeyError(key)
        return code

    @overload
    def get(self, key: bytes | str) -> bytes | None: ...
    @overload
    def get(self, key: bytes | str, default: _T) -> bytes | _T: ...
    def get(self, key: bytes | str, default: object = None) -> object:
        # entry_name, layout.entry and a miss, written out: each call is 4 % of a miss.
        digest = _sha256(key if type(key) is bytes else coerce_key(key), usedforsecurity=False)
        reader = self._reader
        # 31 bytes behind the slash, one before it: the shard.
        if reader.expects_miss and not _access(self._entries + digest.digest().hex("/", 31), _EXISTS):
            reader.misses += 1
            return default
        loaded = self._load(digest.hexdigest())
        return default if loaded is None else loaded[0]

    def get_entry(self, key: bytes | str) -> Entry | None:
        """The entry with its metadata, or ``None``. An entry of cuda.core's own cache has no metadata."""
        loaded = self._load(entry_name(coerce_key(key)))
        if loaded is None:
            return None
        return self._entry(*loaded)

    def __setitem__(self, key: bytes | str, value: object) -> None:
        raw = coerce_key(key)
        if type(value) is bytes and self._implicit is None:  # 3 us of a put less than by what stands below
            self._write(entry_name(raw), value, b"", 0, statement_of(raw))
        else:
            self._store(raw, lambda: split_metadata(*coerce_value(value)))

    def put_entry(self, key: bytes | str, entry: Entry) -> None:
        """Store code and metadata as one unit: a reader sees both or neither."""
        self._store(coerce_key(key), lambda: coerce_entry(entry))

    def get_or_compute_entry(self, key: bytes | str, compute: Callable[[], object], *, label: str = "") -> Entry:
        """As ``get_or_compute``, with the metadata. Compile-once across all processes that share the directory."""
        raw = coerce_key(key)
        name = entry_name(raw)
        if self._implicit is not None:
            self._implicit.end_mine()
        loaded = self._once.load(name)
        if loaded is None:
            outcome = self._once.wait_or_turn(name, label)
            if isinstance(outcome, Turn):
                return self._take(outcome, compute, statement_of(raw, label))
            loaded = outcome
        # What a newer version stored, with metadata that cannot be read here, is left as it is.
        return self._entry(*loaded) or run_compute(compute)

    def __delitem__(self, key: bytes | str) -> None:
        if not self._writer.remove(entry_name(coerce_key(key))):
            raise KeyError(key)

    def __len__(self) -> int:
        """Number of entries on disk now, counted by listing the directory (0.1 ms for 100)."""
        return sum(count_shard(self._directory.layout, shard) for shard in range(SHARDS))

    def clear(self) -> None:
        """Remove every entry, quarantined ones too. Safe next to writers.

        What they publish meanwhile stays or goes, none of them fails.
        """
        for shard in range(SHARDS):
            for found in scan_shard(self._directory.layout, shard):
                self._writer.remove(found.name)
        empty_quarantine(self._directory, waits=True)

    def recount(self) -> list[Repair]:
        """Make the shared accounting say what the disk holds, and remove what killed writers left staged.

        Needed only after processes were killed, or where other programs write the directory, and no daemon runs (which
        does this all the time). Returns the shards that were wrong, and by how much.
        """
        return recount_all(self._directory)

    def stats(self) -> CacheStats:
        """This object's counters, and bytes and entries of the directory as accounted (staged writes included).

        From a disk that gives no answer, bytes and entries are those of the last call that got one.
        What is new in them is added to what all programs counted together (``lockcache stats``), as ``close`` does.
        """
        self._report.report()
        slot = self._accounted()
        reads = self._reader
        return CacheStats(
            hits=reads.hits,
            misses=reads.misses,
            corrupt_entries=reads.corrupt_entries,
            unverified_hits=reads.unverified_hits,
            refused_entries=reads.refused_entries,
            bytes=slot.bytes,
            entries=slot.entries,
            **self._counts,
        )

    def close(self) -> None:
        """Close the descriptors that are held open. The cache may be used again; it opens what it needs."""
        if self._implicit is not None:
            self._implicit.close()
        self._report.report_patiently()
        self._directory.close()

    def _take(self, turn: Turn, compute: Callable[[], object], stated: Stated | None) -> Entry:
        was_dropped = False
        try:
            turn.begin()
            entry = run_compute(compute)
            code, tail, cost_ns = coerce_entry(entry)
            published = self._published_meanwhile(turn.name)
            if published is not None:
                return published
            try:
                was_dropped = not self._write(turn.name, code, tail, cost_ns, stated)
            except OSError as error:
                # A directory that may not be written raises for cache[key] = value; here the code must not be lost.
                was_dropped = True
                self._count_dropped(str(error))
            self._once.costs.remember(turn.name, cost_ns)
            return entry
        finally:
            turn.end(was_dropped=was_dropped)

    def _published_meanwhile(self, name: str) -> Entry | None:
        """What somebody published while we computed: we were overdue, and the process that took over was first."""
        loaded = self._once.look(name)
        return None if loaded is None else self._entry(*loaded)

    def _entry(self, payload: bytes, blob: bytes) -> Entry | None:
        if not blob:
            return Entry(payload)  # written by cuda.core's own cache
        record = unpack(blob)
        try:
            return Entry(payload, join_metadata(record.tail, record.cost_ns))
        except ValueError as error:
            # Whole, and stored by a version that knows more: half of an entry is none (invariant 7, never take the job
            # down).
            _log.warning("%s: the metadata of an entry cannot be read here: %s", self.path, error)
            return None

    def _store(self, key: bytes, coerce: Callable[[], tuple[bytes, bytes, int]]) -> None:
        name, was_dropped = entry_name(key), True
        try:
            was_dropped = not self._write(name, *coerce(), statement_of(key))
        finally:
            if self._implicit is not None:
                self._implicit.stored(name, was_dropped=was_dropped)

    def _write(self, name: str, code: bytes, tail: bytes, cost_ns: int, stated: Stated | None) -> bool:
        """Whether it was stored."""
        now_ns = time.time_ns()
        if stated is not None:
            self._report.note(Miss(now_ns, name, stated.label, stated.parts))
        note = b"" if stated is None else stated.note()
        written = self._writer.store(name, code, Record(len(code), now_ns, cost_ns, tail), note)
        self._report.report_if_due(now_ns)
        if written.dropped is None:
            self._counts["puts"] += 1
            self._counts["evictions"] += written.evicted.entries
            return True
        self._count(evictions=written.evicted.entries)
        self._count_dropped(written.dropped)
        return False

    def _count_dropped(self, reason: str) -> None:
        # The first drop is a warning, a disk that stays full is not.
        level = logging.DEBUG if self._counts["dropped_writes"] else logging.WARNING
        self._count(dropped_writes=1)
        _log.log(level, "%s: a write was dropped, the program goes on without it: %s", self.path, reason)

    def _accounted(self) -> Slot:
        try:
            usage = self._directory.usage_if_writable()
            if usage is not None:
                self._held = usage.total()
                return self._held
        except OSError as error:
            _log.debug("%s: the accounting cannot be read, so the directory is measured: %s", self.path, error)
        try:
            from lockcache.filestream.accounting import measured  # spread and medians, which programs have no need of

            return total_of(measured(self._directory.layout))
        except OSError as error:
            # What fills a graph must not take the job down.
            _log.debug("%s: the disk gives no answer, so stats are those of before: %s", self.path, error)
            return self._held

    def _count(self, **increments: int) -> None:
        for name, increment in increments.items():
            self._counts[name] += increment

    def __reduce__(self) -> Any:
        return _reopen, (type(self), self._arguments)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.path!r})"


def _counted(reader: EntryReader, counts: dict[str, int]) -> Counters:
    return Counters(
        hits=reader.hits,
        misses=reader.misses,
        corrupt_entries=reader.corrupt_entries,
        unverified_hits=reader.unverified_hits,
        saved_ns=reader.saved_ns,
        **counts,
    )


def _reopen(kind: type[FileStreamProgramCache], arguments: dict[str, Any]) -> FileStreamProgramCache:
    with policy_left_alone():
        return kind(**arguments)
