# SPDX-License-Identifier: Apache-2.0
"""BundleProgramCache: reads the programs in one file that is never changed.

Keeps invariant 1 (a hit is whole): see :mod:`lockcache.filestream.bundle`. Keeps invariant 2 (last write wins) for the
object that writes: what it would have replaced is not read through it any more. Keeps invariant 4 (readers never wait)
and 7 (never take the job down): nothing is locked, and whatever happens to the file, a read is a hit or a miss.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import logging
import os
from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar, overload

from lockcache import serving
from lockcache.arguments import coerce_seconds, configured_switch, is_disabled, resolve_path
from lockcache.explain import statement_of
from lockcache.filestream.bundle import BundleFile, RefusedEntryError
from lockcache.filestream.disk import entry_name
from lockcache.filestream.entry import KeyRing, as_entry, load_keys
from lockcache.resource import (
    CacheStats,
    Entry,
    ProgramCacheResource,
    coerce_entry,
    coerce_key,
    coerce_value,
    computed_entry,
    in_namespace,
)
from lockcache.serving import unreported, watch
from lockcache.single_flight import Turn

__all__ = ["BundleProgramCache"]

_T = TypeVar("_T")
_log = logging.getLogger("lockcache")

# Looked up once, for the hit path.
_sha256 = hashlib.sha256


class BundleProgramCache(ProgramCacheResource):
    """The programs of a bundle, as ``lockcache bundle make`` writes them. Read-only.

    ``path`` may be on any file system, and any number of processes may read it at once: on a local disk all of them
    share one copy in memory. Writes are dropped, counted and logged once, as by a directory that may only be read;
    programs that compile what is missing put a cache that keeps it in front::

        cache = TieredProgramCache(directory, bundle)

    A damaged bundle is a warning, and every lookup misses; so is a damaged entry. ``signing_key_file`` names the keys
    with which entries have to be signed; without, ``$LOCKCACHE_SIGNING_KEY_FILE`` does, and ``False`` means none.

    A bundle that takes the place of the file, by rename, is read after :meth:`close`.

    Raises :class:`FileNotFoundError` and other :class:`OSError`, and :class:`UnsafeCacheDirError` for a file that
    somebody else owns or may write to, unless its entries are signed.
    """

    _is_only_read = _is_fixed = True

    def __init__(
        self, path: str | os.PathLike[str], *, signing_key_file: str | os.PathLike[str] | bool | None = None
    ) -> None:
        serving.obey_variables()
        self.path = resolve_path(path)
        self._key_file = signing_key_file
        self._keys: KeyRing | None = load_keys(signing_key_file)
        # Under $LOCKCACHE_RECACHE a program reads what it has stored itself, which is nothing here.
        self._is_off = is_disabled() or configured_switch("LOCKCACHE_RECACHE")
        self._file: BundleFile | None = None
        self._warned: set[str] = set()
        self._hidden: set[bytes] = set()
        self._counts = dict.fromkeys(
            ("hits", "misses", "corrupt_entries", "refused_entries", "dropped_writes", "uncacheable"), 0
        )
        self._opened()

    def __getitem__(self, key: bytes | str) -> bytes:
        loaded = self._load(coerce_key(key), BundleFile.load)
        if loaded is None:
            raise KeyError(key)
        return loaded[0]

    @overload
    def get(self, key: bytes | str) -> bytes | None: ...
    @overload
    def get(self, key: bytes | str, default: _T) -> bytes | _T: ...
    def get(self, key: bytes | str, default: object = None) -> object:
        """Returns the code stored under ``key``, or ``default``."""
        loaded = self._load(key if type(key) is bytes else coerce_key(key), BundleFile.load)
        return default if loaded is None else loaded[0]

    def view(self, key: bytes | str) -> memoryview | None:
        """Returns the code stored under ``key``, verified, or ``None``. It is a copy: the file may be cut meanwhile.

        Read-only. It stays what it is when the cache is closed and when another bundle takes the file's place.
        """
        return self._load(coerce_key(key), BundleFile.view)

    def get_entry(self, key: bytes | str) -> Entry | None:
        """Returns the entry with its metadata, or ``None``."""
        loaded = self._load(coerce_key(key), BundleFile.load)
        return None if loaded is None else as_entry(self.path, *loaded)

    def __setitem__(self, key: bytes | str, value: object) -> None:
        self._drop_put(coerce_key(key), coerce_value(value))

    def put_entry(self, key: bytes | str, entry: Entry) -> None:
        """Drop the entry: a bundle is never changed."""
        self._drop_put(coerce_key(key), coerce_entry(entry))

    def _drop_put(self, name: bytes, _: object) -> None:
        self._drop(name)
        if watch.is_on and not unreported.depth:
            serving.stored(self, name)

    def begin(self, key: bytes | str, *, label: str = "", namespace: str = "") -> Entry | Turn[Entry]:
        """Returns the entry, or the caller's turn to compute it. No turn waits for another: a bundle stores nothing."""
        found = self.get_entry(key)
        if found is not None:
            return found
        raw = coerce_key(key)
        publish = in_namespace(namespace, partial(self._computed, raw))
        return serving.unawaited(self, raw, label, publish)

    def wait(self, key: bytes | str, timeout_seconds: float) -> Entry | None:
        """Returns the entry, or ``None`` at once: nothing is ever stored here."""
        coerce_seconds("timeout_seconds", timeout_seconds)
        return self.get_entry(key)

    def __delitem__(self, key: bytes | str) -> None:
        coerce_key(key)
        raise PermissionError(f"{self.path} is a bundle, which is never changed")

    def __len__(self) -> int:
        """Returns the number of entries in the file, damaged ones too."""
        return self._opened().entries

    def clear(self) -> None:
        """Raise :class:`PermissionError`: a bundle is never changed."""
        raise PermissionError(f"{self.path} is a bundle, which is never changed")

    def stats(self) -> CacheStats:
        """Returns the counters of this object, and bytes (of the file) and entries of the bundle."""
        file = self._opened()
        return CacheStats(**self._counts, bytes=file.size_bytes, entries=file.entries)

    def _missed(self, key: bytes) -> serving.Missed:
        from lockcache.remote.manifest import MissedKey  # few are sealed

        return MissedKey(entry_name(key), statement_of(key))

    def _recount(self, **counts: int) -> None:
        for name, count in counts.items():
            self._counts[name] += count

    def close(self) -> None:
        """Close the file. The cache may be used again, and then opens what has its name by then.

        A key whose write was dropped, and which the closed bundle lacked, is then read from a bundle that has it.
        """
        file, self._file = self._file, None
        if file is not None:
            file.close()

    def _load(self, key: bytes, load: Callable[[BundleFile, bytes], _T | None]) -> _T | None:
        try:
            name = _sha256(key, usedforsecurity=False).digest()
            loaded = None if name in self._hidden or self._is_off else load(self._file or self._opened(), name)
        except (OSError, ValueError, MemoryError) as error:
            if isinstance(error, RefusedEntryError):
                self._counts["refused_entries"] += 1
            elif isinstance(error, ValueError):
                self._counts["corrupt_entries"] += 1
            elif error.args[:1] == (errno.EBADF,):
                self.close()
            self._warn("an entry cannot be read, and is compiled again", str(error) or "it does not fit into memory")
            loaded = None
        self._counts["misses" if loaded is None else "hits"] += 1
        return loaded

    def _opened(self) -> BundleFile:
        """Returns the open file, and opens it if needed. Raises :class:`OSError`."""
        file = self._file
        if file is None:
            file = self._file = BundleFile(self.path, self._keys)
            if file.damage:
                self._warn("every lookup misses", file.damage)
        return file

    def _computed(self, key: bytes, value: object, cost_ns: int) -> Entry:
        self._drop(key)
        return computed_entry(value, cost_ns)

    def _drop(self, key: bytes) -> None:
        self._hide(_sha256(key, usedforsecurity=False).digest())
        self._counts["dropped_writes"] += 1
        self._warn("a write was dropped, the program goes on without it", "a bundle is never changed")

    def _hide(self, name: bytes) -> None:
        with contextlib.suppress(OSError, ValueError):  # hidden if the bundle cannot say
            if self._opened().find(name) is None:
                return  # a program may store any number of other keys
        self._hidden.add(name)

    def _warn(self, what: str, why: object) -> None:
        """Log what is wrong: as a warning the first time, for debugging afterwards."""
        level = logging.DEBUG if what in self._warned else logging.WARNING
        self._warned.add(what)
        _log.log(level, "%s: %s: %s", self.path, what, why)

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        return partial(type(self), signing_key_file=self._key_file), (self.path,)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.path!r})"
