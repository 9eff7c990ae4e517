"""What stands beside our cache and cuda.core's, where it is installed: diskcache, JAX's LRU cache, and plain files.

Each as its own documents say that it is used, with last uses recorded where it can: a cache that forgets them is
quicker and evicts what is needed. None of them is imported before it is measured, nor needed.
"""

from __future__ import annotations

import hashlib
import importlib
import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any, Final, Protocol

from lockcache_stress.bench.base import Bench, interleaved, open_ours, open_theirs, theirs_is_installed

__all__ = [
    "FILES",
    "OURS",
    "PEERS",
    "THEIRS",
    "Peer",
    "Store",
    "installed",
    "opened",
    "others",
    "peer_of",
    "time_others",
]

# diskcache has no "no limit".
_NO_LIMIT: Final = 1 << 60
# Of one look into the directory by JAX's cache, which holds one lock for all of it meanwhile.
_LOCK_SECONDS: Final = 120.0


class Store(Protocol):
    """One opened cache."""

    def get(self, key: bytes) -> bytes | None: ...
    def put(self, key: bytes, value: bytes) -> None: ...
    def fill(self, first: int, last: int, value: bytes) -> None:
        """Entries ``old-FIRST`` up to ``old-LAST`` (without it), by the quickest way that leaves what puts would."""

    def want(self, key: bytes, compute: Callable[[], bytes]) -> None:
        """Get it; where it is missing, compute and put it, as its users are told to."""

    def close(self) -> None: ...


@dataclass(frozen=True)
class Peer:
    """A kind of cache."""

    name: str
    #: Opens a directory; the cap in bytes, or ``None`` for none.
    open: Callable[[str, int | None], Store]
    #: Raises ImportError where it is missing.
    find: Callable[[], object] = lambda: None
    #: Whether it can be given a cap.
    has_cap: bool = True

    def is_installed(self) -> bool:
        """Whether it can be measured here."""
        try:
            self.find()
        except ImportError:
            return False
        return True


class _Mapping:
    """A cache of the same interface as ours."""

    def __init__(self, cache: Any) -> None:
        self._cache = cache
        self.get: Callable[[bytes], bytes | None] = cache.get
        self.put: Callable[[bytes, bytes], None] = cache.__setitem__

    def fill(self, first: int, last: int, value: bytes) -> None:
        for number in range(first, last):
            self.put(b"old-%d" % number, value)

    def want(self, key: bytes, compute: Callable[[], bytes]) -> None:
        _get_or_put(self, key, compute)

    def close(self) -> None:
        self._cache.close()


class _Ours(_Mapping):
    def __init__(self, path: str, cap_bytes: int | None) -> None:
        cache = open_ours(path, cap_bytes)
        super().__init__(cache)
        self._get_or_compute = cache.get_or_compute

    def want(self, key: bytes, compute: Callable[[], bytes]) -> None:
        self._get_or_compute(key, compute)


class _CudaCore(_Mapping):
    def __init__(self, path: str, cap_bytes: int | None) -> None:
        super().__init__(open_theirs(path, cap_bytes))
        self._path = path

    def fill(self, first: int, last: int, value: bytes) -> None:
        # As plain files under its names: below a cap its own puts would take hours.
        for number in range(first, last):
            name = hashlib.sha256(b"old-%d" % number).hexdigest()
            _write(os.path.join(self._path, "entries", name[:2]), name[2:], value)


class _DiskCache:
    def __init__(self, path: str, cap_bytes: int | None) -> None:
        self._module = importlib.import_module("diskcache")
        self.cache = self._module.Cache(
            path, size_limit=cap_bytes or _NO_LIMIT, eviction_policy="least-recently-used", timeout=_LOCK_SECONDS
        )
        self.get: Callable[[bytes], bytes | None] = self.cache.get
        self.put: Callable[[bytes, bytes], None] = self.cache.set

    def fill(self, first: int, last: int, value: bytes) -> None:
        with self.cache.transact():
            for number in range(first, last):
                self.cache.set(b"old-%d" % number, value)

    def want(self, key: bytes, compute: Callable[[], bytes]) -> None:
        # Its recipe against stampedes: a lock of its own in the cache, here one for each key.
        with self._module.Lock(self.cache, b"lock of " + key):
            _get_or_put(self, key, compute)

    def close(self) -> None:
        self.cache.close()


class _Jax:
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

    def want(self, key: bytes, compute: Callable[[], bytes]) -> None:
        _get_or_put(self, key, compute)

    def close(self) -> None:
        # What is put without a cap has no time of its last use, and once there is a cap, the first put fails on it.
        for name in self._timeless or ():
            _write(self._path, f"{name}-atime", bytes(8))


class _Files:
    """What a file system takes for the same bytes: nothing verified, nothing bounded, nothing recorded."""

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

    def want(self, key: bytes, compute: Callable[[], bytes]) -> None:
        _get_or_put(self, key, compute)

    def close(self) -> None:
        return None


def _find_theirs() -> None:
    if not theirs_is_installed():
        raise ImportError("cuda.core")


OURS: Final = Peer("lockcache", _Ours)
THEIRS: Final = Peer("cuda.core", _CudaCore, _find_theirs)
FILES: Final = Peer("plain files", _Files, has_cap=False)
#: In the order of a table's columns.
PEERS: Final = (
    OURS,
    THEIRS,
    Peer("diskcache", _DiskCache, lambda: importlib.import_module("diskcache")),
    Peer("JAX", _Jax, lambda: importlib.import_module("jax._src.lru_cache")),
    FILES,
)


def installed() -> list[Peer]:
    """All that can be measured here."""
    return [peer for peer in PEERS if peer.is_installed()]


def peer_of(name: str) -> Peer:
    """The one of this name: what is sent to a spawned process."""
    return next(peer for peer in PEERS if peer.name == name)


def others() -> list[Peer]:
    """Those that no bar compares with."""
    return [peer for peer in installed() if peer not in (OURS, THEIRS, FILES)]


@contextmanager
def opened(peer: Peer, path: str, cap_bytes: int | None = None) -> Iterator[Store]:
    """A cache for as long as the block lasts."""
    store = peer.open(path, cap_bytes)
    try:
        yield store
    finally:
        store.close()


def time_others(
    bench: Bench, name: str, make: Callable[[Store], Callable[[], object]], rounds: int, calls: int
) -> dict[str, float]:
    """Microseconds per call of what ``make`` makes of an empty cache of each of them.

    In turns among themselves, and apart from ours and cuda.core's: what a bar compares must not stand in the traces
    that a database leaves in the processor's caches.
    """
    with ExitStack() as stack:
        found = others()
        stores = {
            each.name: stack.enter_context(opened(each, bench.directory(f"{name}-{each.name}"))) for each in found
        }
        return interleaved({each: make(store) for each, store in stores.items()}, rounds, calls, bench.show)


def _get_or_put(store: Store, key: bytes, compute: Callable[[], bytes]) -> None:
    if store.get(key) is None:
        store.put(key, compute())


def _write(folder: str, name: str, value: bytes) -> None:
    path = os.path.join(folder, name)
    try:
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    except FileNotFoundError:
        os.makedirs(folder, mode=0o700, exist_ok=True)
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    os.write(fd, value)
    os.close(fd)
