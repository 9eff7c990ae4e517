# SPDX-License-Identifier: Apache-2.0
"""TieredProgramCache: fast caches in front of a shared one.

Keeps invariant 2 (last write wins) as far as an object in one process can, and says exactly how far. The last tier that
takes writes is the truth; the tiers before it (the upper ones) hold copies. What is behind it, tiers that are only read
and a server, is asked for what it lacks, and is one tier with it in all that follows.

- **Through one object**, whatever its threads do at once: once a write, delete or clear has returned, no read gives
  what was there before. A read that found an older value below and fills the upper tiers with it too late would break
  that; so writes of one key exclude each other, and a fill gives way to any write that began after its read did.
- **Across processes**: what another process stored or removed in the last tier is seen by reads that get there, and a
  copy is answered from above for ``recheck_seconds`` at most before the last tier is asked again. So a read may be
  older than the last tier by that much and no more, counted from when this object first met the copy. An upper tier
  that outlives the process (a directory on a local disk) may hold a copy that was older when it was met.
- **Why that is enough for programs**: a key from ``make_program_cache_key`` is a digest of all that the program depends
  on, so two values under one key are both right. A program that stores other things under its own keys, and must not
  see an old one, passes ``recheck_seconds=0``: then every read asks the last tier.

Asking again shows the last tier, too, which entries are in use; without that it would evict the hottest ones first.

Keeps invariant 7 (never take the job down): an upper tier that takes no copy makes no read fail; that key is read from
below from then on. A signal handler may use the cache during a write, in the same thread, and waits for nobody: locks
are reentrant, and a write that finds the version changed when it is done leaves the key to the last tier.

Compile-once is the last tier's, since that is where the others look. Lock order: a stripe is held while tiers take
their own locks, never the reverse; only :meth:`~TieredProgramCache.clear` holds several, in their order.
"""

from __future__ import annotations

import contextlib
import functools
import math
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any, Final, TypeVar, overload

from lockcache import serving
from lockcache.arguments import coerce_recheck_seconds, coerce_seconds
from lockcache.fork import after_fork_in_child
from lockcache.resource import (
    CacheStats,
    Entry,
    ProgramCacheResource,
    coerce_key,
    coerce_value,
    copy_into,
    put_copy_into,
    put_into,
    remove_from,
)
from lockcache.serving import unreported, watch
from lockcache.single_flight import Turn, refuse_reentrance

__all__ = ["TieredProgramCache"]

_T = TypeVar("_T")
_Tiers = tuple[ProgramCacheResource, ...]

# A program has some hundred kernels, each read a few times a minute at most: a read of the last tier for each of them
# once a minute is not felt, and an entry that is a minute old is not evicted before those of last week.
_RECHECK_SECONDS: Final = 60.0
# Writes take turns within a stripe. 16 threads that compile at once rarely meet in 64.
_STRIPES: Final = 64
# Times of copies kept, 100 bytes each. Beyond them, copies without a time are asked for below, which is always sound.
_MOST_TIMES: Final = 65_536
# The time of a copy that must not be answered: it is being replaced, or could not be.
_SUSPECT: Final = -math.inf


class TieredProgramCache(ProgramCacheResource):
    """Reads fall through from the first tier to the last and fill the tiers above; writes go to all of them.

    Args:
        tiers: At least one back end, fastest first, the shared one last. They may be used by themselves as well, but
            what is stored in an upper one by itself is not stored in the last.
        recheck_seconds: For how long an upper tier's copy is answered before the last tier is asked again; ``None`` is
            for ever. If the last tier has it no more (removed, or evicted), that is a miss, and the copies go. See
            :mod:`lockcache.tiered` for what this promises.

    What is only read (a :class:`BundleProgramCache`, a directory that may be read and not written) belongs behind the
    tiers that are written; a :class:`RemoteProgramCache` may only be last. Neither is the truth for the others: they
    are asked for what the last tier that takes writes lacks, and are one tier with it in all that follows. What is only
    read can be replaced, and not removed: ``del`` and :meth:`clear` raise :class:`PermissionError`.

    ``len`` is the last tier's. A write that raises has stored nothing if it was the last tier's error; if it was an
    upper one's, the value is in the last. Either way the next read finds what is in the last tier.
    """

    def __init__(self, *tiers: ProgramCacheResource, recheck_seconds: float | None = _RECHECK_SECONDS) -> None:
        for index, tier in enumerate(tiers):
            if not isinstance(tier, ProgramCacheResource):
                raise TypeError(f"tiers[{index}] must be a lockcache.ProgramCacheResource, got {type(tier).__name__}")
        if not tiers:
            raise TypeError("tiers must be one cache or more, got none")
        self._recheck_seconds = coerce_recheck_seconds(recheck_seconds)
        self._fresh_seconds = math.inf if self._recheck_seconds is None else self._recheck_seconds
        self._given = tiers
        self._tiers = _with_backing(tiers)
        self._uppers, self._last = self._tiers[:-1], self._tiers[-1]
        self._closures = next((tier._closures for tier in reversed(tiers) if tier._closures is not None), None)
        # When each copy was last known to be the last tier's, and whether some of those times were thrown away.
        self._times: dict[bytes, float] = {}
        self._forgot_times = False
        self._hits = self._misses = 0
        self._after_fork_in_child()
        after_fork_in_child(self)

    @property
    def tiers(self) -> tuple[ProgramCacheResource, ...]:
        """The tiers, fastest first."""
        return self._given

    def __getitem__(self, key: bytes | str) -> bytes:
        code = self._code(coerce_key(key))
        if code is None:
            raise KeyError(key)
        return code

    @overload
    def get(self, key: bytes | str) -> bytes | None: ...
    @overload
    def get(self, key: bytes | str, default: _T) -> bytes | _T: ...
    def get(self, key: bytes | str, default: object = None) -> object:
        code = self._code(coerce_key(key))
        return default if code is None else code

    def get_entry(self, key: bytes | str) -> Entry | None:
        name = coerce_key(key)
        entry = self._above(name, lambda tier: tier.get_entry(name)) or self._below(name, self._last.get_entry)
        self._recount(hits=entry is not None, misses=entry is None)
        return entry

    def _peek(self, name: bytes) -> Entry | None:
        entry = self._above(name, lambda tier: tier._peek(name)) or self._below(name, self._last._peek)
        self._recount(hits=entry is not None, misses=entry is None)
        return entry

    def view_files(self, key: bytes | str) -> str | None:
        """As :meth:`FileStreamProgramCache.view_files`, of the last tier: what stands in front may be older."""
        return self._last.view_files(coerce_key(key))

    def __setitem__(self, key: bytes | str, value: object) -> None:
        self._write(coerce_key(key), Entry(*coerce_value(value)))  # once: the file behind an ObjectCode may go

    def put_entry(self, key: bytes | str, entry: Entry) -> None:
        """Store code and metadata as one unit, in each tier."""
        if not isinstance(entry, Entry):
            raise TypeError(f"entry must be a lockcache.Entry, got {type(entry).__name__} {entry!r:.80}")
        self._write(coerce_key(key), entry)

    def begin(self, key: bytes | str, *, label: str = "", namespace: str = "") -> Entry | Turn[Entry]:
        """The entry, or the caller's turn to compute it. It is the last tier's turn."""
        name = coerce_key(key)
        entry = self._above(name, lambda tier: tier.get_entry(name))
        if entry is not None:
            self._recount(hits=1)
            return entry
        refuse_reentrance(self, name)
        found = self._from_last(name, lambda: self._last.begin(name, label=label, namespace=namespace))
        self._recount(hits=isinstance(found, Entry), misses=not isinstance(found, Entry))
        return found

    def _begin_replacing(self, name: bytes, is_whole: Callable[[Entry], bool], label: str) -> Entry | Turn[Entry]:
        # The last tier's entry may be whole where a copy of it is not.
        return self._from_last(name, lambda: self._last._begin_replacing(name, is_whole, label))

    def wait(self, key: bytes | str, timeout_seconds: float) -> Entry | None:
        """The entry, as soon as the caller that has its turn stores it. Takes no turn."""
        name, seconds = coerce_key(key), coerce_seconds("timeout_seconds", timeout_seconds)
        entry = self._above(name, lambda tier: tier.get_entry(name))
        if entry is None:
            version = self._version(name)
            found = self._last.wait(name, seconds)
            entry = None if found is None else self._filled(name, version, found)
        self._recount(hits=entry is not None, misses=entry is None)
        return entry

    def __delitem__(self, key: bytes | str) -> None:
        """Remove the entry from every tier; :class:`KeyError` only if none had it."""
        name = coerce_key(key)
        with self._writing(name):
            version = self._version(name)
            # Not any() over a generator: every tier must be asked. The copies first: a reader between finds the truth.
            found = [remove_from(tier, name) for tier in self._tiers]
            if self._version(name) == version:
                self._times.pop(name, None)
            else:
                self._set_time(name, _SUSPECT)
        if not any(found):
            raise KeyError(key)

    def __len__(self) -> int:
        return len(self._last)

    def clear(self) -> None:
        """Remove every entry from every tier."""
        with contextlib.ExitStack() as stack:
            for stripe in range(_STRIPES):
                stack.enter_context(self._writing_stripe(stripe))
            versions = list(self._versions)
            for tier in self._tiers:
                tier.clear()
            if self._versions != versions:
                self._forgot_times = True
                self._times.clear()

    def stats(self) -> CacheStats:
        """Hits and misses of this object; damage that any tier met; all else as the last tier counts it.

        A hit in any tier is one hit, a miss is a read that no tier had. Waits, puts, evictions, dropped writes,
        bytes and entries are the last tier's: copies are not counted twice.
        """
        each = [tier.stats() for tier in self._tiers]
        with self._counting:
            hits, misses = self._hits, self._misses
        return CacheStats(
            hits=hits,
            misses=misses,
            puts=each[-1].puts,
            evictions=each[-1].evictions,
            dropped_writes=each[-1].dropped_writes,
            corrupt_entries=sum(stats.corrupt_entries for stats in each),
            unverified_hits=sum(stats.unverified_hits for stats in each),
            waits=each[-1].waits,
            uncacheable=each[-1].uncacheable,
            bytes=each[-1].bytes,
            entries=each[-1].entries,
        )

    def close(self) -> None:
        """Close every tier. The cache may be used again."""
        for tier in self._tiers:
            tier.close()

    def _code(self, name: bytes) -> bytes | None:
        code = self._above(name, lambda tier: tier.get(name))
        if code is None and (entry := self._below(name, self._last.get_entry)) is not None:
            code = entry.code
        self._recount(hits=code is not None, misses=code is None)
        return code

    def _above(self, name: bytes, look: Callable[[ProgramCacheResource], _T | None]) -> _T | None:
        """Returns the value of an upper tier, unless it is time to ask the last one. Fills the tiers above it."""
        if not self._uppers or self._is_due(name):
            return None
        version = self._version(name)
        for number, tier in enumerate(self._uppers):
            found = look(tier)
            if found is not None:
                if name not in self._times:
                    self._meet(name)
                if number:
                    self._copy_up(number, name, version)
                return found
        return None

    def _copy_up(self, number: int, name: bytes, version: int) -> None:
        entry = self._uppers[number].get_entry(name)
        if entry is not None:
            self._fill(self._uppers[:number], name, entry, version)

    def _below(self, name: bytes, get_entry: Callable[[bytes], Entry | None]) -> Entry | None:
        """Returns the entry of the last tier, which is the truth: the upper tiers get it, or lose the key."""
        version = self._version(name)
        entry = get_entry(name)
        if entry is not None or name in self._times or self._forgot_times:
            self._fill(self._uppers, name, entry, version, is_truth=True)
        return entry

    def _is_due(self, name: bytes) -> bool:
        known = self._times.get(name)
        if known is None:
            return self._forgot_times or not self._fresh_seconds  # first met: its tier may outlive processes
        return not time.monotonic() - known < self._fresh_seconds

    def _from_last(self, name: bytes, begin: Callable[[], Entry | Turn[Entry]]) -> Entry | Turn[Entry]:
        version = self._version(name)
        found = begin()
        if isinstance(found, Entry):
            return self._filled(name, version, found)

        def publish(value: object, cost_ns: int) -> Entry:
            entry = found.store(value, cost_ns)
            origin = unreported.origin
            unreported.origin = origin or "stored"
            try:
                return self._filled(name, version, entry)
            finally:
                unreported.origin = origin

        return Turn(publish, found._end)

    def _filled(self, name: bytes, version: int, entry: Entry) -> Entry:
        self._fill(self._uppers, name, entry, version, is_truth=True)
        return entry

    def _fill(self, uppers: _Tiers, name: bytes, entry: Entry | None, version: int, *, is_truth: bool = False) -> None:
        """Put a copy into ``uppers``, or remove it; unless anybody wrote the key, or filled it, since ``version``."""
        lock = self._locks[hash(name) % _STRIPES]
        if not uppers or not lock.acquire(blocking=False):
            return  # a write that is under way writes what is newer
        try:
            # Busy, though the lock is this thread's: we are a signal handler during a write of this thread.
            if self._busy[hash(name) % _STRIPES] or self._version(name) != version:
                return
            self._versions[hash(name) % _STRIPES] += 1
            taken = [copy_into(tier, name, entry) for tier in uppers]
            if not all(taken) or self._version(name) != version + 1:
                self._set_time(name, _SUSPECT)
            elif entry is None:
                self._times.pop(name, None)
            elif is_truth:
                self._set_time(name, time.monotonic())
        finally:
            lock.release()

    def _write(self, name: bytes, entry: Entry) -> None:
        with self._writing(name):
            # From here to the end readers go below: they may see the new value early, but never the old one after it.
            self._set_time(name, _SUSPECT)
            version = self._version(name)
            put_into(self._last, name, entry)
            try:
                for tier in reversed(self._uppers):
                    put_copy_into(tier, name, entry, "stored")
            except BaseException:
                for tier in self._uppers:
                    copy_into(tier, name, None)  # for the next process, which knows of no suspicion
                raise
            self._set_time(name, time.monotonic() if self._version(name) == version else _SUSPECT)
        if watch.is_on and not unreported.depth:
            serving.stored(self, name)

    def _set_time(self, name: bytes, when: float) -> None:
        self._limit_times()
        self._times[name] = when

    def _meet(self, name: bytes) -> None:
        self._limit_times()
        self._times.setdefault(name, time.monotonic())  # not over the mark of a writer that came just now

    def _limit_times(self) -> None:
        if len(self._times) >= _MOST_TIMES:
            self._forgot_times = True
            self._times.clear()

    def _version(self, name: bytes) -> int:
        return self._versions[hash(name) % _STRIPES]

    def _writing(self, name: bytes) -> contextlib.AbstractContextManager[None]:
        return self._writing_stripe(hash(name) % _STRIPES)

    @contextlib.contextmanager
    def _writing_stripe(self, stripe: int) -> Iterator[None]:
        with self._locks[stripe]:
            self._versions[stripe] += 1
            was_busy = self._busy[stripe]
            self._busy[stripe] = True
            try:
                yield
            finally:
                self._busy[stripe] = was_busy
                # Again: a reader that took the version in between may have read what was there before.
                self._versions[stripe] += 1

    def _missed(self, key: bytes) -> serving.Missed | None:
        return self._last._missed(key)

    def _note_uncacheable(self, reason: str) -> None:
        self._last._note_uncacheable(reason)

    def _recount(self, *, hits: int = 0, misses: int = 0, **counts: int) -> None:
        with self._counting:
            self._hits += hits
            self._misses += misses
        if counts:
            self._last._recount(**counts)

    def _after_fork_in_child(self) -> None:
        self._counting = threading.RLock()
        self._locks = [threading.RLock() for _ in range(_STRIPES)]
        self._versions = [0] * _STRIPES
        self._busy = [False] * _STRIPES

    def __reduce__(self) -> Any:
        return functools.partial(type(self), recheck_seconds=self._recheck_seconds), self._given

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(map(repr, self._given))})"


def _with_backing(tiers: _Tiers) -> _Tiers:
    """The tiers, of which the last that decides and those behind it are one."""
    if any(tier._is_backing or tier._is_only_read for tier in tiers):
        from lockcache.remote import with_backing  # few have one

        return with_backing(tiers)
    return tiers
