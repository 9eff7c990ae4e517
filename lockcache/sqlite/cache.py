# SPDX-License-Identifier: Apache-2.0
"""SQLiteProgramCache: the programs of one process in one file, least recently used first out.

Joins the parts of this package into the mapping API. Keeps invariant 7 (never take the job down) at the edge: what a
caller cannot help (a full disk, a locked or damaged database, a file that may only be read) is a counted, logged miss
or dropped write. Explicit deletes do raise. Relied on by programs that want their cache to outlive them and share it
with nobody.

Not promised: compile-once among processes; :class:`~lockcache.FileStreamProgramCache` is for those. A second process
is not refused, though: what either reads is whole and the latest, and a write that meets the other's lock for too long
is dropped.
"""

from __future__ import annotations

import errno
import logging
import os
import threading
from functools import partial
from typing import Any, Final

from lockcache import serving
from lockcache.arguments import coerce_seconds, is_disabled, resolve_path_or_nowhere
from lockcache.default_directory import NOWHERE
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
    renewed_keys,
    split_metadata,
)
from lockcache.serving import unreported, watch
from lockcache.sqlite.location import FILE_NAME

_log = logging.getLogger("lockcache")

# Errors in spite of which opening goes on: they may be over by the next read or write.
_PASSING: Final = (errno.EIO, errno.ENOSPC, errno.EDQUOT, errno.ETIMEDOUT)


class SQLiteProgramCache(ProgramCacheResource):
    """Compiled programs in one SQLite file (WAL mode) on a local disk, for the threads of one process.

    Reading an entry makes it the most recently used; eviction is strictly least recently used. A read never waits for a
    write. A row that is not what was stored is a miss and is removed; a file that is not a sound database is set aside
    under another name, with a logged warning, and a new one begun.

    Args:
        path: The file; made with mode 0600 if missing, its directory with 0700. ``None``: ``programs.sqlite3`` in
            ``$LOCKCACHE_DIR``, else in ``lockcache`` in the user cache directory; where this user has none, nothing is
            kept, with one warning.
        max_size_bytes: Bound for the bytes of code and metadata (a number, or ``"2G"``), for what this object writes;
            ``None`` means no bound.
            The file is a few per cent larger, and its log (``-wal``) takes up to 4 MiB or the largest entry next to it.
            An entry larger than the cap is not stored and evicts nothing, and an older value under its key is removed.
        lock_timeout_seconds: How long a write waits for another process that has the database locked before it is
            dropped. Reads wait for a quarter of a second at most, then miss.

    Raises:
        UnsafeCacheDirError: Somebody else owns the file or may write to it, or it is a symbolic link.
        FormatError: The file is of a newer lockcache, or a database of another program.
        OSError: It cannot be made, or is not a file.

    A file that may only be read opens: hits work, writes are dropped, deletes raise. Objects can be pickled (the copy
    opens the same file) and survive ``fork``. Under ``$LOCKCACHE_DISABLE`` no file is opened, nothing stored.
    """

    def __init__(
        self,
        path: str | os.PathLike[str] | None = None,
        *,
        max_size_bytes: int | str | None = None,
        lock_timeout_seconds: float = 5.0,
    ) -> None:
        serving.obey_variables()
        self._max_size_bytes = coerce_max_size_bytes(max_size_bytes)
        self._wait_seconds = coerce_seconds("lock_timeout_seconds", lock_timeout_seconds)
        # Here and not above: sqlite3 takes 10 ms to import, and most programs use another cache.
        from lockcache.sqlite import rows
        from lockcache.sqlite.store import Store

        self._rows = rows
        self._store = Store(resolve_path_or_nowhere(path, FILE_NAME), self._wait_seconds)
        self._is_off = is_disabled() or self.path == NOWHERE
        # The keys that this process stored, if nothing else is to be read.
        self._renewed = renewed_keys(self.path)
        self._counting = threading.RLock()
        after_fork_in_child(self)
        names = ("hits", "misses", "puts", "evictions", "dropped_writes", "corrupt_entries", "waits", "uncacheable")
        self._counts = dict.fromkeys(names, 0)
        self._said: set[str] = set()
        if not self._is_off:
            self._open()

    @property
    def path(self) -> str:
        """The file, as an absolute path."""
        return self._store.path

    @property
    def max_size_bytes(self) -> int | None:
        """The cap of this object."""
        return self._max_size_bytes

    def __getitem__(self, key: bytes | str) -> bytes:
        program = self._read(coerce_key(key))
        if program is None:
            raise KeyError(key)
        code: bytes = program.code
        return code

    def get_entry(self, key: bytes | str) -> Entry | None:
        """Returns the entry with its metadata, or ``None``."""
        program = self._read(coerce_key(key))
        return None if program is None else Entry(program.code, join_metadata(program.tail, program.cost_ns))

    def __setitem__(self, key: bytes | str, value: object) -> None:
        name = coerce_key(key)
        self._write(name, *split_metadata(*coerce_value(value)))
        if watch.is_on and not unreported.depth:
            serving.stored(self, name)

    def put_entry(self, key: bytes | str, entry: Entry) -> None:
        """Store code and metadata as one unit: a reader sees both or neither."""
        name = coerce_key(key)
        self._write(name, *coerce_entry(entry))
        if watch.is_on and not unreported.depth:
            serving.stored(self, name)

    def __delitem__(self, key: bytes | str) -> None:
        """Remove the entry. Raises :class:`LockTimeoutError` where another process has the database locked too long."""
        name = coerce_key(key)
        if self._is_off or not self._store.change(lambda connection: self._rows.remove(connection, (name,))):
            raise KeyError(key)

    def __len__(self) -> int:
        return self._totals()[1]

    def clear(self) -> None:
        """Remove every entry and give the disk space back. Raises as ``del`` does."""
        if not self._is_off:
            self._store.change(self._rows.clear)
            self._store.shrink()

    def stats(self) -> CacheStats:
        """Returns this object's counters, and bytes and entries of the file."""
        size_bytes, entries = self._totals()
        with self._counting:
            return CacheStats(**self._counts, bytes=size_bytes, entries=entries)

    def close(self) -> None:
        """Write what is noted of the order of use, and close the file. The next use opens it again."""
        self._store.close()

    def _recount(self, **counts: int) -> None:
        self._count(**counts)

    def _open(self) -> None:
        try:
            self._store.read(self._rows.totals)
            self._evict_to_cap()
        except OSError as error:
            if not isinstance(error, TimeoutError) and error.errno not in _PASSING:
                raise
            self._say("not usable now, reads miss and writes are dropped until it is", error)

    def _evict_to_cap(self) -> None:
        cap = self._max_size_bytes
        if cap is None or self._totals()[0] <= cap:
            return
        try:
            self._count(evictions=self._store.change(lambda connection: self._rows.evict(connection, cap)))
        except OSError as error:
            if not _is_misconfigured(error):
                raise  # and a file that may only be read keeps what it has

    def _read(self, name: bytes) -> Any:
        if self._is_off or (self._renewed is not None and name not in self._renewed):
            self._count(misses=1)
            return None
        try:
            program, is_corrupt = self._store.load(name)
        except OSError as error:
            self._say("a read failed and is a miss", error)
            program, is_corrupt = None, False
        self._count(hits=program is not None, misses=program is None, corrupt_entries=is_corrupt)
        return program

    def _totals(self) -> tuple[int, int]:
        if self._is_off:
            return 0, 0
        try:
            return self._store.read(self._rows.totals) or (0, 0)
        except OSError as error:
            self._say("cannot be counted", error)
            return 0, 0

    def _write(self, name: bytes, code: bytes, tail: bytes, cost_ns: int) -> None:
        program, cap = self._rows.Program(code, tail, cost_ns), self._max_size_bytes
        if self._is_off:
            self._count(dropped_writes=1)
            return
        if cap is not None and program.size_bytes > cap:
            self._drop(name, f"{program.size_bytes} bytes are more than the cap ({cap})")
            return
        try:
            evicted = self._store.change(lambda connection: self._rows.store(connection, name, program, cap))
        except OSError as error:
            self._drop(name, str(error))
            return
        self._count(puts=1, evictions=evicted)
        if self._renewed is not None:
            self._renewed.add(name)

    def _drop(self, name: bytes, reason: str) -> None:
        self._store.supersede(name)
        self._count(dropped_writes=1)
        self._say("a write was dropped, the program goes on without it", reason)

    def _say(self, what: str, why: object) -> None:
        # The first time is logged, a disk that stays full is not.
        level = logging.DEBUG if what in self._said else logging.WARNING
        self._said.add(what)
        _log.log(level, "%s: %s: %s", self.path, what, why)

    def _count(self, **increments: int) -> None:
        with self._counting:
            for name, increment in increments.items():
                self._counts[name] += increment

    def _after_fork_in_child(self) -> None:
        self._counting = threading.RLock()

    def __reduce__(self) -> Any:
        given: dict[str, Any] = {"max_size_bytes": self._max_size_bytes, "lock_timeout_seconds": self._wait_seconds}
        return partial(type(self), self.path, **given), ()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.path!r})"


def _is_misconfigured(error: OSError) -> bool:
    return isinstance(error, PermissionError) or error.errno == errno.EROFS
