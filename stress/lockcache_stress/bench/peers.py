# SPDX-License-Identifier: Apache-2.0
"""The caches that are compared, where they are installed: lockcache, cuda.core's, diskcache, JAX's LRU, plain files.

Each is used as its own documents say, with last uses recorded where it can, because a cache that forgets last uses is
quicker and evicts entries that are needed. None is imported before it is measured, and none has to be installed. This
module also makes directories of each that hold a given number of entries and are full, for puts and opening.
"""

from __future__ import annotations

import hashlib
import importlib
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from lockcache.filestream.accounting import space_of
from lockcache.lowlevel import Layout, Policy
from lockcache_stress.bench.base import Bench, Line, interleaved, open_lockcache, ratio_line

# diskcache cannot be used without a limit.
_NO_LIMIT: Final = 1 << 60
# The longest wait for JAX's cache, which holds one lock while it walks the whole directory.
_LOCK_SECONDS: Final = 120.0
#: Small, so that 50,000 entries are made in seconds: the cost of many entries is measured, not that of many bytes.
ENTRY_BYTES = 1024


class Store:
    """One opened cache."""

    get: Callable[[bytes], bytes | None]
    put: Callable[[bytes, bytes], object]

    def fill(self, first: int, last: int, value: bytes) -> None:
        """Make entries ``old-FIRST`` up to ``old-LAST`` (exclusive), with the result of puts, in the quickest way."""
        for number in range(first, last):
            self.put(b"old-%d" % number, value)

    def want(self, key: bytes, compute: Callable[[], bytes]) -> None:
        """Get an entry; if it is missing, compute and put it, as users of this cache do."""
        if self.get(key) is None:
            self.put(key, compute())

    def close(self) -> None:
        """Close the cache."""


@dataclass(frozen=True)
class Peer:
    """A kind of cache."""

    name: str
    #: Opens a directory with a cap in bytes, or without one (``None``).
    open: Callable[[str, int | None], Store]
    #: Raises ImportError where the cache is not installed.
    find: Callable[[], object] = lambda: None
    #: Whether it can be given a cap.
    has_cap: bool = True

    def is_installed(self) -> bool:
        """Returns whether this cache can be measured here."""
        try:
            self.find()
        except ImportError:
            return False
        return True


class _Mapping(Store):
    """A cache of the same interface as lockcache's."""

    def __init__(self, cache: Any) -> None:
        self.cache = cache
        self.get = cache.get
        self.put = cache.__setitem__

    def close(self) -> None:
        self.cache.close()


class _Lockcache(_Mapping):
    def __init__(self, path: str, cap_bytes: int | None) -> None:
        super().__init__(open_lockcache(path, cap_bytes))

    def want(self, key: bytes, compute: Callable[[], bytes]) -> None:
        self.cache.get_or_compute(key, compute)


class _CudaCore(_Mapping):
    def __init__(self, path: str, cap_bytes: int | None) -> None:
        super().__init__(_cuda_core_class()(path, max_size_bytes=cap_bytes))
        self._path = path

    def fill(self, first: int, last: int, value: bytes) -> None:
        fill_as_cuda_core(self._path, first, last, value)


class _DiskCache(Store):
    def __init__(self, path: str, cap_bytes: int | None) -> None:
        self._module = importlib.import_module("diskcache")
        self.cache = self._module.Cache(
            path, size_limit=cap_bytes or _NO_LIMIT, eviction_policy="least-recently-used", timeout=_LOCK_SECONDS
        )
        self.get = self.cache.get
        self.put = self.cache.set

    def fill(self, first: int, last: int, value: bytes) -> None:
        with self.cache.transact():
            super().fill(first, last, value)

    def want(self, key: bytes, compute: Callable[[], bytes]) -> None:
        # Its recipe against stampedes is a lock in the cache, here one for each key.
        with self._module.Lock(self.cache, b"lock of " + key):
            super().want(key, compute)

    def close(self) -> None:
        self.cache.close()


class _Jax(Store):
    def __init__(self, path: str, cap_bytes: int | None) -> None:
        module = importlib.import_module("jax._src.lru_cache")
        limit = -1 if cap_bytes is None else cap_bytes
        self._path = path
        self._timeless: list[str] | None = [] if cap_bytes is None else None
        self._cache = module.LRUCache(path, max_size=limit, lock_timeout_secs=_LOCK_SECONDS)

    def get(self, key: bytes) -> bytes | None:
        found: bytes | None = self._cache.get(key.hex())
        return found

    def put(self, key: bytes, value: bytes) -> None:
        self._cache.put(key.hex(), value)
        if self._timeless is not None:
            self._timeless.append(key.hex())

    def fill(self, first: int, last: int, value: bytes) -> None:
        for number in range(first, last):
            name = (b"old-%d" % number).hex()
            _write(self._path, f"{name}-cache", value)
            _write(self._path, f"{name}-atime", number.to_bytes(8, "little"))

    def close(self) -> None:
        # An entry that was put without a cap has no time of its last use, and the first put with a cap fails on it.
        for name in self._timeless or ():
            _write(self._path, f"{name}-atime", bytes(8))


class _Files(Store):
    """Plain files without verification, cap or records: the cost of the file system for the same bytes."""

    def __init__(self, path: str, cap_bytes: int | None) -> None:
        self._path = path

    def get(self, key: bytes) -> bytes | None:
        try:
            fd = os.open(f"{self._path}/{key.decode()}", os.O_RDONLY)
        except FileNotFoundError:
            return None
        try:
            return os.read(fd, os.fstat(fd).st_size)
        finally:
            os.close(fd)

    def put(self, key: bytes, value: bytes) -> None:
        path = f"{self._path}/{key.decode()}"
        fd = os.open(path + ".new", os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        os.write(fd, value)
        os.close(fd)
        os.rename(path + ".new", path)

    def fill(self, first: int, last: int, value: bytes) -> None:
        for number in range(first, last):
            _write(self._path, f"old-{number}", value)


def _cuda_core_class() -> Any:
    from cuda.core.utils import FileStreamProgramCache

    return FileStreamProgramCache


def fill_as_cuda_core(path: str, first: int, last: int, value: bytes) -> None:
    """Write entries as plain files under the names of cuda.core's cache, whose own puts would take minutes."""
    for number in range(first, last):
        name = hashlib.sha256(b"old-%d" % number).hexdigest()
        _write(os.path.join(path, "entries", name[:2]), name[2:], value)


LOCKCACHE: Final = Peer("lockcache", _Lockcache)
CUDA_CORE: Final = Peer("cuda.core", _CudaCore, _cuda_core_class)
FILES: Final = Peer("plain files", _Files, has_cap=False)
#: The caches in the order of a table's columns.
PEERS: Final = (
    LOCKCACHE,
    CUDA_CORE,
    Peer("diskcache", _DiskCache, lambda: importlib.import_module("diskcache")),
    Peer("JAX", _Jax, lambda: importlib.import_module("jax._src.lru_cache")),
    FILES,
)


def installed() -> list[Peer]:
    """Returns all caches that can be measured here."""
    return [peer for peer in PEERS if peer.is_installed()]


def peer_of(name: str) -> Peer:
    """Returns the cache of this name, which can be sent to a spawned process."""
    return next(peer for peer in PEERS if peer.name == name)


def compared() -> list[Peer]:
    """Returns the caches that lockcache is compared with: cuda.core's, if it is installed, and those without a bar."""
    return [peer for peer in installed() if peer not in (LOCKCACHE, FILES)]


@contextmanager
def opened(peer: Peer, path: str, cap_bytes: int | None = None) -> Iterator[Store]:
    """Open a cache for as long as the block lasts."""
    store = peer.open(path, cap_bytes)
    try:
        yield store
    finally:
        store.close()


def compare(
    bench: Bench,
    name: str,
    make: Callable[[Store, int], Callable[[], object]],
    floor: Callable[[], object] | None,
    at_least: float | None,
    pace: tuple[int, int],
    others_pace: tuple[int, int] | None,
) -> Line:
    """Returns the line of an operation. ``make`` returns it for an empty cache of a peer and a number of calls.

    A pace is the number of rounds, and of calls in each. The default ``floor`` is the operation on plain files. Caches
    without a bar are timed in turns among themselves, or not at all, because the processor's caches after a database's
    calls would change the times that a bar compares. See :func:`ratio_line`.
    """
    pair = [peer for peer in (LOCKCACHE, CUDA_CORE, *([] if floor else [FILES])) if peer.is_installed()]
    with _opened_each(bench, name, pair) as stores:
        actions = {each: make(store, pace[0] * pace[1]) for each, store in stores.items()}
        named = {
            "ours": actions[LOCKCACHE.name],
            "theirs": actions.get(CUDA_CORE.name),
            "floor": floor or actions[FILES.name],
        }
        times_us = interleaved(named, *pace, bench.show)
    if others_pace is None:
        return ratio_line(name, times_us, at_least)
    with _opened_each(bench, name, [peer for peer in compared() if peer is not CUDA_CORE]) as stores:
        actions = {each: make(store, others_pace[0] * others_pace[1]) for each, store in stores.items()}
        return ratio_line(name, times_us, at_least, interleaved(actions, *others_pace, bench.show))


@contextmanager
def _opened_each(bench: Bench, name: str, peers: Sequence[Peer]) -> Iterator[dict[str, Store]]:
    with ExitStack() as stack:
        paths = {peer: bench.directory(f"{name.partition(',')[0]}-{peer.name}") for peer in peers}
        if LOCKCACHE in paths:
            stack.enter_context(bench.attending(paths[LOCKCACHE]))
        yield {peer.name: stack.enter_context(opened(peer, path)) for peer, path in paths.items()}


def _write(folder: str, name: str, value: bytes) -> None:
    path = os.path.join(folder, name)
    try:
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    except FileNotFoundError:
        os.makedirs(folder, mode=0o700, exist_ok=True)
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    os.write(fd, value)
    os.close(fd)


def fill(bench: Bench, peer: Peer, entries: int) -> tuple[str, int]:
    """Returns a directory with ``entries`` entries of this cache, and the cap at which it is full.

    A directory of cuda.core's can be made without cuda.core. lockcache's daemon keeps such a directory too.
    """
    path, value = bench.directory(f"{peer.name}-{entries}"), os.urandom(ENTRY_BYTES)
    with ExitStack() as stack:
        add = partial(fill_as_cuda_core, path) if peer is CUDA_CORE else stack.enter_context(opened(peer, path)).fill
        for first in range(0, entries, 1000):
            bench.show(0.0, f"filling {peer.name}'s: {first:,} of {entries:,}")
            add(first, min(first + 1000, entries), value)
    cap = full_cap(peer, path, entries)
    if peer is LOCKCACHE:
        bench.attend(path, cap)
    return path, cap


def full_cap(peer: Peer, path: str, entries: int) -> int:
    """Returns the cap at which a directory with so many entries is full; other caches count the bytes of values."""
    return cap_of_full(path) if peer is LOCKCACHE else entries * ENTRY_BYTES


def cap_of_full(path: str) -> int:
    """Returns the cap at which a directory of lockcache's is full with what it holds."""
    held = held_bytes(path)
    limit = Policy(held).entries_limit_bytes(space_of(Layout(path)))
    own = 0 if limit is None else held - limit  # the directory's own bytes, the same for all but the smallest caps
    return held + own


def held_bytes(path: str) -> int:
    """Returns the accounted bytes of a directory of lockcache's, in blocks, with those of cuda.core's entries."""
    with open_lockcache(path) as cache:
        return cache.stats().bytes


def lacking_room(path: str, entries: int, entry_bytes: int | None = None) -> str:
    """Returns whether the file system lacks bytes or inodes for so many entries, in words; empty if it has enough.

    ``entry_bytes``: the bytes of each on the disk; by default, the blocks of a small value.
    """
    status = os.statvfs(path)
    needed = entries * (max(ENTRY_BYTES, status.f_frsize) if entry_bytes is None else entry_bytes)
    if status.f_bavail * status.f_frsize < needed:
        return f"{entries:,} entries need {needed >> 20:,} MiB, and {path} has less (--directory)"
    if status.f_files and status.f_favail < entries:  # some file systems have no fixed number, and say 0
        return f"{entries:,} entries need as many inodes, and {path} has less (--directory)"
    return ""
