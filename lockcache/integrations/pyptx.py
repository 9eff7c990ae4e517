# SPDX-License-Identifier: Apache-2.0
"""The names of ``pyptx.cache``, with entries that many processes can share: replace the import, keep the rest.

Same directory, same three files for an entry, same hash, so that each reads what the other wrote. Keeps, beyond pyptx,
invariant 1 (a hit is whole: the three files are one entry for a reader, also while others write or die; a damaged file
is a miss) and 2 (last write wins): what this process holds in memory is served only while the entry on disk is the one
that it was stored with or read from (one small read), or is not there any more (evicted: memory is what is left of it).
As in pyptx, a disk that cannot be written does not fail a ``put``: memory has the entry, and the drop is counted and
logged.

Not promised: anything about who compiles. What pyptx itself writes there is served if it may be one entry
(:func:`.pyptx_directory.sidecar.is_plausible`), and pyptx verifies nothing of what it reads.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import re
import threading
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, NamedTuple

from lockcache import serving
from lockcache.arguments import configured_switch, is_disabled, warn_once
from lockcache.default_directory import NOWHERE, user_cache_dir
from lockcache.errors import NoDefaultDirError
from lockcache.fork import after_fork_in_child
from lockcache.integrations.pyptx_directory import Loaded, PyptxFiles
from lockcache.resource import CacheStats
from lockcache.serving import watch

__all__ = ["DEFAULT_CACHE_DIR", "CacheEntry", "CacheKey", "CubinCache", "get_global_cache", "set_global_cache"]

_log = logging.getLogger("lockcache")

_REMEDY: Final = "set PYPTX_CACHE_DIR or name a directory"


def _find_default() -> Path:
    try:
        return Path(os.environ.get("PYPTX_CACHE_DIR") or user_cache_dir("pyptx", _REMEDY))
    except NoDefaultDirError:
        return Path(NOWHERE)


#: ``$PYPTX_CACHE_DIR`` if that is set and not empty, else ``pyptx`` in the user cache directory; as it is when this
#: module is imported. A path where nothing can be, if this user has no such directory.
DEFAULT_CACHE_DIR = _find_default()

# What may become a file name.
_HASH: Final = re.compile(r"[0-9a-f]{32}", re.ASCII)


@dataclass(frozen=True)
class CacheKey:
    """What a compiled kernel depends on."""

    #: Names the function.
    fn_id: str
    #: ``(name, value)`` pairs.
    template_kwargs: tuple[tuple[str, Any], ...]
    #: ``(shape, dtype)`` of each input.
    input_shapes: tuple[tuple[tuple[int, ...], str], ...]
    #: Such as ``sm_90a``.
    arch: str

    def hash(self) -> str:
        """32 hex digits of SHA-256 over the key as JSON; the digest that pyptx computes of such a key."""
        text = json.dumps(_members(self), sort_keys=True, default=str)
        return hashlib.sha256(text.encode(), usedforsecurity=False).hexdigest()[:32]


@dataclass
class CacheEntry:
    """One compilation. ``cubin_bytes`` is ``None`` for PTX that was not assembled."""

    key: CacheKey
    ptx_source: str
    cubin_bytes: bytes | None
    metadata: dict[str, Any] = field(default_factory=dict)


class _Held(NamedTuple):
    """An entry in memory, and the json file that was on disk with it."""

    entry: CacheEntry
    stamp: bytes
    is_verified: bool


class CubinCache:
    """Entries in memory, and in a directory that other processes, and pyptx, may use at the same time.

    Args:
        cache_dir: The directory, made with mode 0700 if it is missing. ``None``: :data:`DEFAULT_CACHE_DIR`; where this
            user has none, there is only memory, with one warning.
        enable_disk: Without it there is only memory.

    Under ``$LOCKCACHE_DISABLE`` nothing is read or stored, not in memory either; under ``$LOCKCACHE_RECACHE`` only
    what this object stored is read.

    Raises:
        UnsafeCacheDirError: Somebody else owns the directory, or may write to it.
        OSError: It cannot be made, or is not a directory.
    """

    def __init__(self, cache_dir: str | os.PathLike[str] | None = None, enable_disk: bool = True) -> None:
        serving.obey_variables()
        directory = os.path.abspath(os.fspath(cache_dir or DEFAULT_CACHE_DIR))
        self._is_off, self._renews = is_disabled(), configured_switch("LOCKCACHE_RECACHE")
        if enable_disk and not self._is_off and directory == NOWHERE:
            warn_once(f"no directory for pyptx's cache, which is in memory alone: {_REMEDY}")
            enable_disk = False
        self._files = PyptxFiles(directory) if enable_disk and not self._is_off else None
        self._held: dict[str, _Held] = {}
        names = ("hits", "misses", "puts", "dropped_writes", "corrupt_entries", "unverified_hits")
        self._counts = dict.fromkeys(names, 0)
        self._after_fork_in_child()
        after_fork_in_child(self)

    def get(self, key: CacheKey) -> CacheEntry | None:
        """The entry from memory, else from disk, else ``None``. Its ``key`` is the one that was stored or asked for."""
        name = _file_name(key)
        held = self._held.get(name)
        if held is not None and self._is_current(name, held):
            self._count(hits=1)
            return held.entry
        if self._files is None or (self._renews and held is None):
            self._count(misses=1)
            return None
        loaded, is_corrupt = self._files.load(name, _members(key))
        entry = None if loaded is None else CacheEntry(key, loaded.ptx, loaded.cubin, loaded.metadata)
        with self._lock:
            if self._held.get(name) is held:  # else another thread has put a newer one
                self._hold_locked(name, entry, loaded)
        if is_corrupt:
            _log.warning("%s/%s.json and the files next to it are not one entry: a miss", self._files.root, name)
        self._count(
            hits=entry is not None,
            misses=entry is None,
            corrupt_entries=is_corrupt,
            unverified_hits=loaded is not None and not loaded.is_verified,
        )
        return entry

    def put(self, entry: CacheEntry) -> None:
        """Store an entry in memory and on disk. Once this returns no reader in any process gets an older one."""
        _check_types(entry)
        if self._is_off:
            self._count(dropped_writes=1)
            return
        name = _file_name(entry.key)
        stamp = b"" if self._files is None else self._store(self._files, name, entry)
        with self._lock:
            self._held[name] = _Held(entry, stamp, is_verified=True)
        if watch.is_on:
            serving.stored(self, name.encode(), label=entry.key.fn_id)

    def _missed(self, key: bytes) -> None:
        """Returns ``None``: its names are not those of entries."""

    def clear(self, *, disk: bool = False) -> None:
        """Forget what is in memory; with ``disk`` remove every entry of the directory too."""
        with self._lock:
            self._held.clear()
        if disk and self._files is not None:
            self._files.clear()

    def __len__(self) -> int:
        """Number of entries in memory."""
        return len(self._held)

    def __contains__(self, key: CacheKey) -> bool:
        return self.get(key) is not None

    def stats(self) -> CacheStats:
        """This object's counters, and bytes and entries of the directory (of memory, without one)."""
        if self._files is not None:
            sizes = list(self._files.names().values())
        else:
            held = list(self._held.values())
            sizes = [len(each.entry.ptx_source.encode()) + len(each.entry.cubin_bytes or b"") for each in held]
        with self._lock:
            return CacheStats(**self._counts, bytes=sum(sizes), entries=len(sizes))

    def _is_current(self, name: str, held: _Held) -> bool:
        if self._files is None:
            return True
        stamp = self._files.stamp(name)
        return not stamp or (held.is_verified and stamp == held.stamp)

    def _hold_locked(self, name: str, entry: CacheEntry | None, loaded: Loaded | None) -> None:
        """Requires: the lock."""
        if entry is None or loaded is None:
            self._held.pop(name, None)
        else:
            self._held[name] = _Held(entry, loaded.stamp, loaded.is_verified)

    def _store(self, files: PyptxFiles, name: str, entry: CacheEntry) -> bytes:
        """Store on disk, or drop that; returns the json file that the entry in memory goes with."""
        try:
            ptx = entry.ptx_source.encode()  # and no text file: that would make CRLF of LF, or the reverse
            cubin = None if entry.cubin_bytes is None else bytes(entry.cubin_bytes)
            stamp = files.store(name, _members(entry.key), entry.metadata, ptx, cubin)
        except (OSError, UnicodeEncodeError) as error:
            return self._drop(files, name, error)
        self._count(puts=1)
        return stamp

    def _drop(self, files: PyptxFiles, name: str, error: Exception) -> bytes:
        try:
            files.discard(name)
        except OSError as second:
            _log.debug("%s: an older entry may still be read by others: %s", files.root, second)
        level = logging.DEBUG if self._counts["dropped_writes"] else logging.WARNING
        self._count(dropped_writes=1)
        _log.log(level, "%s: a write was dropped, the program goes on without it: %s", files.root, error)
        return files.stamp(name)

    def _count(self, **increments: int) -> None:
        with self._lock:
            for name, increment in increments.items():
                self._counts[name] += increment

    def _after_fork_in_child(self) -> None:
        self._lock = threading.RLock()


class _Global:
    """The cache of this process."""

    def __init__(self) -> None:
        self.cache: CubinCache | None = None
        self._after_fork_in_child()
        after_fork_in_child(self)

    def _after_fork_in_child(self) -> None:
        self.lock = threading.RLock()


_global = _Global()


def get_global_cache() -> CubinCache:
    """The cache of this process; made in :data:`DEFAULT_CACHE_DIR` when it is first asked for."""
    with _global.lock:
        if _global.cache is None:
            _global.cache = CubinCache()
        return _global.cache


def set_global_cache(cache: CubinCache | None) -> None:
    """Make ``cache`` the one of this process; ``None`` has a new one made when it is next asked for."""
    with _global.lock:
        _global.cache = cache


def _members(key: CacheKey) -> dict[str, Any]:
    """A key's members as they stand in the json file, and are hashed."""
    return {
        "fn_id": key.fn_id,
        "template_kwargs": [list(pair) for pair in key.template_kwargs],
        "input_shapes": [[list(shape), dtype] for shape, dtype in key.input_shapes],
        "arch": key.arch,
    }


def _file_name(key: CacheKey) -> str:
    name = key.hash()
    if _HASH.fullmatch(name) is None:
        raise ValueError(f"key.hash() must be 32 hex digits, got {name!r:.80}")
    return name


def _check_types(entry: CacheEntry) -> None:
    if not isinstance(entry.ptx_source, str):
        raise TypeError(f"entry.ptx_source must be a str, got {type(entry.ptx_source).__name__}")
    if entry.cubin_bytes is not None and not isinstance(entry.cubin_bytes, (bytes, bytearray, memoryview)):
        raise TypeError(f"entry.cubin_bytes must be bytes or None, got {type(entry.cubin_bytes).__name__}")
    if not isinstance(entry.metadata, dict):
        raise TypeError(f"entry.metadata must be a dict, got {type(entry.metadata).__name__}")
