# SPDX-License-Identifier: Apache-2.0
"""FileStreamProgramCache: a directory of programs that many processes share.

Joins the parts of this package into the mapping API and decides nothing else. Keeps invariant 7 (never take the job
down) at the edge: what a caller cannot help (a full disk, a hung lock, a stale handle, a directory that may only be
read) is a counted, logged miss or dropped write. Explicit deletes do raise.
"""

from __future__ import annotations

import hashlib
import logging
import os
import time
from collections.abc import Callable
from typing import Any, Final, Literal, TypeVar, overload

from lockcache import serving
from lockcache.arguments import default_cap
from lockcache.composition.computing import SharedComputations
from lockcache.composition.modes import open_in_mode, renew
from lockcache.composition.null_store import NullStore
from lockcache.composition.only_read import ReadOnlyParts
from lockcache.composition.parts import Parts, coerce_arguments, reopen
from lockcache.explain import Stated, known_statement, statement_of
from lockcache.filestream import Outcome
from lockcache.filestream.accounting import Slot, count_shard
from lockcache.filestream.disk import SHARDS, entry_name
from lockcache.filestream.entry import Load, Record, as_entry
from lockcache.filestream.repair import Repair, empty_quarantine
from lockcache.filestream.seeding import detach_seed
from lockcache.reports import reports
from lockcache.resource import (
    CacheStats,
    Entry,
    coerce_entry,
    coerce_key,
    coerce_value,
    split_metadata,
)
from lockcache.serving import unreported, watch

_T = TypeVar("_T")

_log = logging.getLogger("lockcache")

# Looked up once, as in .entry.reader.
_access, _sha256 = os.access, hashlib.sha256
_EXISTS: Final = os.F_OK


class FileStreamProgramCache(SharedComputations):
    """Compiled programs in a directory that any number of threads and processes share.

    A read takes no lock and returns only bytes that some writer stored under that key, proven by a digest. Once a write
    has returned, no later read in any process gives an older value from the directory; a seed or a server behind it is
    asked for what the directory lacks, and may have another value. With a cap, entries and writes in progress never
    exceed it, whichever process writes. A killed process never blocks the others.

    Args:
        path: The directory; made with mode 0700 if missing. ``None``: ``$LOCKCACHE_DIR``, else ``lockcache`` in the
            user cache directory; where there is no home for it, nothing is kept, with one warning. A directory that
            cuda.core's own ``FileStreamProgramCache`` filled is a valid one.
        max_size_bytes: The directory's cap, in bytes or as ``"10G"``, for every process that uses it. ``None``:
            ``$LOCKCACHE_MAX_SIZE``, else the cap that it has, which for a new default directory is 10 GB. One that an
            operator set (the daemon, ``lockcache policy``) is not replaced. Likewise ``$LOCKCACHE_POLICY``, ``lru`` or
            ``cost``.
        lock_timeout_seconds: How long a write waits for a lock or for room before it is dropped.
        fsync: Sync each entry to disk before it is published, for entries that must survive a power cut. Without it a
            power cut can lose recent entries, but what it leaves half written is a miss, never a result.
        compile_once: For callers that only look up and store, such as ``cuda.core.Program.compile(cache=...)``: a
            lookup that misses obliges its thread to store, and lookups of that key elsewhere wait for it. So ``get``
            may wait (at most for the lease timeout), and a caller that looks up without meaning to store keeps the
            others waiting until it looks up something else. ``get_or_compute`` needs no such switch. ``None``:
            ``$LOCKCACHE_COMPILE_ONCE``, else False.
        lease_timeout_seconds: How long a compiling process is waited for, before one waiter takes over. ``None``:
            ``$LOCKCACHE_LEASE_TIMEOUT``, else a minute, or four times what compiling that key took, if that is longer.
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
        seed: A bundle (``lockcache bundle make``) below the directory: what the directory does not have is read from
            it, but for what was deleted. The first process to open the directory copies it there, where it counts under
            the cap; all others read that copy. ``None``: ``$LOCKCACHE_SEED``, else the one that the directory has. One
            that cannot be had is a line in the log.
        read_only: True: make and change nothing in the directory; what is stored is dropped, counted and logged once,
            what is not there is compiled without waiting for others, and a directory that is missing is an empty one.
            ``"auto"``: so if ``$LOCKCACHE_READONLY`` says so, or the directory may be read and not written when it is
            opened. False: a directory that may not be written is a :class:`PermissionError`.

    Raises:
        UnsafeCacheDirError: Someone else owns the directory, or may write to it.
        FormatError: The directory was made by a newer lockcache.
        SigningKeyError: The file of keys holds none, or others could know them.
        OSError: It cannot be made, or is not a directory.

    Where only reading is allowed, ``del``, :meth:`clear` and :meth:`recount` raise :class:`PermissionError`. Objects
    can be pickled (the copy opens the same directory) and survive ``fork``.
    """

    def __init__(
        self,
        path: str | os.PathLike[str] | None = None,
        *,
        max_size_bytes: int | str | None = None,
        lock_timeout_seconds: float = 5.0,
        fsync: bool = False,
        record_files: bool = False,
        verified_only: bool = False,
        compile_once: bool | None = None,
        lease_timeout_seconds: float | None = None,
        group: bool | str | None = None,
        signing_key_file: str | os.PathLike[str] | bool | None = None,
        seed: str | os.PathLike[str] | None = None,
        read_only: bool | Literal["auto"] = "auto",
    ) -> None:
        arguments = coerce_arguments(dict(locals()))
        serving.obey_variables()
        directory = open_in_mode(arguments, default_cap(path))
        kind = ReadOnlyParts if directory is not None and directory.is_read_only else Parts
        parts = self._parts = NullStore(arguments) if directory is None else kind(arguments, directory)
        # What a pickled copy opens with. Not the policy: it is the directory's, and may have been changed by then.
        self._arguments = {**arguments}
        del self._arguments["max_size_bytes"], self._arguments["priority"]
        self._directory, self._counts, self._report = parts.directory, parts.counts, parts.report
        self._is_only_read = self._directory.is_read_only
        self._implicit, self._renewed = parts.implicit, parts.renewed
        self._backing, self._backed, self._seeded = parts.backing, parts.backed, parts.seeded
        # Bound once: a hit spares the choice.
        self._reader, self._load, self._here = parts.reader, parts.load, parts.here
        self._entries = f"{self._directory.layout.entries}/"
        self._held = Slot(0, 0)
        reports.add(self, self._report, counted=self._report.counted)

    @property
    def path(self) -> str:
        """The directory, as an absolute path."""
        return str(self._arguments["path"])

    @property
    def max_size_bytes(self) -> int | None:
        """The cap in force now, whichever program set it."""
        return self._directory.policy.current().max_size_bytes

    @property
    def is_forgeable(self) -> bool:
        """Whether other members of a group can forge what this cache serves: it is shared, and no key signs."""
        return self._directory.is_shared and not self._arguments["signing_key_file"]

    @property
    def _closures(self) -> Any:
        return self._parts.closures

    def __getitem__(self, key: bytes | str) -> bytes:
        # Not self.get: a subclass may have one of its own, made of self[key].
        code = FileStreamProgramCache.get(self, key)
        if code is None:
            raise KeyError(key)
        return code

    @overload
    def get(self, key: bytes | str, *, turn: bool = ...) -> bytes | None: ...
    @overload
    def get(self, key: bytes | str, default: _T, *, turn: bool = ...) -> bytes | _T: ...
    def get(self, key: bytes | str, default: object = None, *, turn: bool = True) -> object:
        """Returns the code stored under ``key``, or ``default``. ``turn=False``: take no turn for ``compile_once``."""
        # entry_name, layout.entry and a miss, written out: each call is 4 % of a miss.
        digest = _sha256(key if type(key) is bytes else coerce_key(key), usedforsecurity=False)
        reader = self._reader
        # 31 bytes behind the slash, one before it: the shard.
        if reader.expects_miss and not _access(self._entries + digest.digest().hex("/", 31), _EXISTS):
            reader.misses += 1
            return default
        loaded = (self._load if turn else self._load_without_turn)(digest.hexdigest())
        if loaded is not None:
            return loaded[0]
        if watch.is_on and turn and self._implicit is not None:
            serving.refuse(self, coerce_key(key), self._implicit.end_mine)
        return default

    def get_entry(self, key: bytes | str) -> Entry | None:
        """Returns the entry with its metadata, or ``None``. An entry of cuda.core's own cache has no metadata."""
        raw = coerce_key(key)
        entry = self._entry(self._load(entry_name(raw)))
        if entry is None and watch.is_on and self._implicit is not None:
            serving.refuse(self, raw, self._implicit.end_mine)
        return entry

    def _peek(self, name: bytes) -> Entry | None:
        return self._entry(self._load_without_turn(entry_name(name)))

    def _load_without_turn(self, name: str) -> tuple[bytes, bytes] | None:
        if self._implicit is None:
            return self._load(name)
        return self._here(name) or (None if self._backed is None else self._backed.found(name))

    def __setitem__(self, key: bytes | str, value: object) -> None:
        raw = key if type(key) is bytes else coerce_key(key)
        if type(value) is bytes and self._implicit is None:  # saves 3 us of a put compared with the code below
            self._write(entry_name(raw), value, b"", 0, known_statement(raw))
            if watch.is_on and not unreported.depth:
                serving.stored(self, raw)
        else:
            self._store(raw, lambda: split_metadata(*coerce_value(value)))

    def put_entry(self, key: bytes | str, entry: Entry) -> None:
        """Store code and metadata as one unit: a reader sees both or neither."""
        self._store(coerce_key(key), lambda: coerce_entry(entry))

    def view_files(self, key: bytes | str) -> str | None:
        """Returns the files stored by :meth:`put_files` as files in a folder, whose path this is; to be read only.

        The folder is named by a digest of the files, appears whole, and is compared with the entry each time; a path
        never leads to files of two versions. It counts under the cap, and goes when its entry does. For as long as the
        returned object itself lives, no eviction removes either; so keep it until the files are open.

        ``None`` if there are no files under ``key``, or they cannot be shown: there is no room for them twice, the
        directory may not be written, the disk is full. Then there is :meth:`get_files`.
        """
        return self._view(entry_name(coerce_key(key)), self._load_without_turn)

    def _view(self, name: str, load: Load) -> str | None:
        return self._parts.viewer.view(name, load)

    def _missed(self, key: bytes) -> serving.Missed:
        return self._parts.missed(entry_name(key), statement_of(key))

    def __delitem__(self, key: bytes | str) -> None:
        name = _sha256(key if type(key) is bytes else coerce_key(key), usedforsecurity=False).hexdigest()
        if not self._parts.writer.remove(name):
            raise KeyError(key)

    def __len__(self) -> int:
        """Returns the number of entries on disk, which it lists (0.1 ms for 100), and of those in a seed."""
        own = sum(count_shard(self._directory.layout, shard) for shard in range(SHARDS))
        return own + (0 if self._seeded is None else len(self._seeded.names()))

    def clear(self) -> None:
        """Remove every entry, quarantined ones too, and detach a seed. Safe next to writers.

        Entries that they publish meanwhile stay or go, and none of the writers fails. The seed is attached again once
        its file is another one.
        """
        self._directory.refuse_if_read_only()
        self._parts.writer.remove_all()
        if self._parts.closures is None:
            return  # there is no directory
        detach_seed(self._directory)  # behind the entries, which may have to make room on a full disk
        self._parts.closures.clear()
        empty_quarantine(self._directory, waits=True)

    def recount(self) -> list[Repair]:
        """Make the shared accounting say what the disk holds, and remove what killed writers left staged.

        Needed only after processes were killed, or where other programs write the directory, and no daemon runs (which
        does this all the time). Returns the shards that were wrong, and by how much.
        """
        return self._parts.recount()

    def stats(self) -> CacheStats:
        """Returns this object's counters, and bytes and entries of the directory as accounted (staged writes included).

        From a disk that gives no answer, bytes and entries are those of the last call that got one.
        Adds the counts since the last report to the directory's totals (``lockcache stats``), as ``close`` does.
        """
        self._report.report()
        try:
            self._held = self._directory.held()
        except OSError as error:  # statistics must not take the job down
            _log.debug("%s: the disk gives no answer, so stats are those of before: %s", self.path, error)
        reads = self._reader
        counted = {**reads.counts(), **self._held._asdict(), **self._counts}
        return CacheStats(refused_entries=reads.refused_entries, **counted)

    def close(self) -> None:
        """Close the descriptors that are held open. The cache may be used again; it opens what it needs."""
        if self._implicit is not None:
            self._implicit.close()
        if self._backing is not None:
            self._backing.store.flush()
        self._report.report_patiently()
        if self._seeded is not None:
            self._seeded.close()
        self._directory.close()

    def _entry(self, loaded: tuple[bytes, bytes] | None) -> Entry | None:
        return None if loaded is None else as_entry(self.path, *loaded)

    def _store(self, key: bytes, coerce: Callable[[], tuple[bytes, bytes, int]]) -> None:
        name, was_dropped, cost_ns = entry_name(key), True, 0
        try:
            was_dropped = not self._write(name, *coerce(), statement_of(key))
        finally:
            if self._implicit is not None:
                cost_ns = self._implicit.stored(name, was_dropped=was_dropped)
        if watch.is_on and not unreported.depth:
            serving.stored(self, key, cost_ns=cost_ns)

    def _write(self, name: str, code: bytes, tail: bytes, cost_ns: int, stated: Stated | None) -> bool:
        """Store one entry. Returns whether it was stored."""
        now_ns = time.time_ns()
        if stated is not None:
            self._parts.note_miss(now_ns, name, stated)
        note = b"" if stated is None else stated.note()
        if self._renewed is not None:
            renew(self._reader, self._renewed, name, code, "" if stated is None else stated.label)
        written = self._parts.writer.store(name, code, Record(len(code), now_ns, cost_ns, tail), note)
        if self._reader.run is not None:
            label = "" if stated is None else stated.label
            self._reader.run.put(name, label, cost_ns, unreported.origin, is_stored=written.outcome is Outcome.STORED)
        if now_ns not in self._report.quiet_ns:
            self._report.report()
        self._counts["evictions"] += written.evicted.entries
        if written.outcome is Outcome.DROPPED:
            self._parts.count_dropped(written.why)
            return False
        self._counts["puts"] += 1
        return True

    def _note_uncacheable(self, reason: str) -> None:
        super()._note_uncacheable(reason)
        if self._reader.run is not None:
            self._reader.run.compiled("", f"cannot be cached: {reason}", is_stored=False)

    def _recount(self, *, hits: int = 0, misses: int = 0, waits: int = 0, **counts: int) -> None:
        self._reader.hits += hits
        self._reader.misses += misses
        self._reader.waits += waits
        for name, count in counts.items():
            self._counts[name] += count

    def __reduce__(self) -> Any:
        return reopen, (type(self), self._arguments)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.path!r})"
