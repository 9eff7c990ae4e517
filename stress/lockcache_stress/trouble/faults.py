# SPDX-License-Identifier: Apache-2.0
"""Faults to plant (``--plant``), which the checks have to find: bugs of the library, and a cache that is wrong.

A check that has never failed proves nothing. Each fault is one that a store of this kind could really have. Most faults
replace one function of the library, in the process of a worker or in one of a herd; the others are a wrapper between
the worker and the real cache, so that a fault meets the same register, judge, sampler and exit code as a real bug.
``lockcache-stress bugs`` and the tests plant each bug in its scenario, and fail if the bug is not found.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from lockcache import Entry, FileStreamProgramCache, ProgramCacheResource
from lockcache.filestream.accounting import Found
from lockcache.filestream.compile_once import LeaseTurn, lease
from lockcache.filestream.disk import Folder, Pace, Recency, Waiter, myself
from lockcache.filestream.entry import StagedEntry, as_entry, reader
from lockcache.filestream.eviction import remove
from lockcache.resource import join_metadata
from lockcache_stress.judge import Stamp, make_value
from lockcache_stress.plan import Plan

_POLL_SECONDS: Final = 0.005
# The fault happens once in so many reads or writes: often enough to be found on a slow machine too.
_EVERY: Final = 5
_AT_WRITES: Final = ("crash", "overshoot")


@dataclass(frozen=True)
class Fault:
    """One fault, the scenario that finds it, and the checks that fail."""

    help: str
    #: The scenario; empty for a fault that any scenario finds.
    scenario: str = ""
    #: The names of checks, of which any that fails has found the fault.
    found_by: tuple[str, ...] = ()
    #: Breaks the library in this process, for good; ``None`` for a fault that is made in another way.
    plant: Callable[[], None] | None = None


def plant_bug(fault: Fault | None) -> None:
    """Break the library in this process for good, for a fault that is made so."""
    if fault is not None and fault.plant is not None:
        fault.plant()


def _rename_first() -> None:
    write, publish = StagedEntry.write, StagedEntry.publish
    later: dict[int, tuple[Any, ...]] = {}

    def write_later(self: StagedEntry, payload: bytes, record: bytes, *, fsync: bool) -> None:
        later[id(self)] = payload, record
        if record:
            write(self, payload, record, fsync=fsync)

    def publish_first(self: StagedEntry, **options: Any) -> bool:
        payload, record = later.pop(id(self))
        is_published = publish(self, **options)
        if not record:
            write(self, payload, record, fsync=options["fsync"])
        return is_published

    _replace(StagedEntry, "write", write_later)
    _replace(StagedEntry, "publish", publish_first)


class _EqualToAll(bytes):
    """A digest that equals every other."""

    __hash__ = bytes.__hash__

    def __eq__(self, other: object) -> bool:
        return True


def _no_digest() -> None:
    _replace(reader, "_xxh3_128", lambda data: _EqualToAll(bytes(16)))


def _no_second_look() -> None:
    def take_what_stands_there(folder: Folder, victim: Found) -> os.stat_result | None:
        try:
            return folder.stat(victim.name[2:])
        except FileNotFoundError:
            return None

    _replace(remove, "_look_again", take_what_stands_there)


class _Mute:
    """An accounting page to which nothing can be added."""

    def __init__(self, real: Any) -> None:
        self._real = real

    def add_locked(self, *_: Any) -> None:
        """Do nothing."""

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)


def _no_reservation() -> None:
    reserve = StagedEntry.reserve

    def reserve_nothing(self: StagedEntry) -> None:
        real, self.reservation.page = self.reservation.page, _Mute(self.reservation.page)  # type: ignore[assignment]
        try:
            reserve(self)
        finally:
            self.reservation.page = real

    _replace(StagedEntry, "reserve", reserve_nothing)


class _NoLock:
    def release(self) -> None:
        """Do nothing: there is no lock to release."""


def _no_lock_in_publish() -> None:
    publish = StagedEntry.publish

    def hold_nothing(reserved: Any, *_: float) -> _NoLock:
        reserved.known = reserved.page.image()
        return _NoLock()

    def publish_unlocked(self: StagedEntry, **options: Any) -> bool:
        kind = type(self.reservation)
        real, kind.hold = kind.hold, hold_nothing  # type: ignore[method-assign, assignment]
        try:
            return publish(self, **options)
        finally:
            kind.hold = real  # type: ignore[method-assign]

    _replace(StagedEntry, "publish", publish_unlocked)


def _no_recency() -> None:
    _replace(reader, "_utime", lambda *_: None)
    _replace(Recency, "_touch_exactly", lambda self, fd, status=None: None)


def _record_apart() -> None:
    publish_record = StagedEntry._publish_record_locked
    _replace(
        StagedEntry,
        "_publish_record_locked",
        lambda self, change, *, has_older: publish_record(self, change, has_older=False),
    )


def _lease_kept() -> None:
    end = LeaseTurn.end
    kept: list[LeaseTurn] = []  # keeps the turns alive, because a turn that is collected ends

    def end_unless_failed(self: LeaseTurn, *given: bool, **known: bool) -> None:
        if any(each is self for each in kept):
            return  # a caller that gives up twice
        if sys.exc_info()[0] is None:
            end(self, *given, **known)
        else:
            kept.append(self)
            self._turns.pop(self.name, None)  # otherwise this thread itself would report the fault at once

    _replace(LeaseTurn, "end", end_unless_failed)


def _waiters_poll() -> None:
    waiting = sys.modules[Waiter.__module__]
    for name in ("WOKEN", "LOCAL"):
        _replace(waiting, name, Pace(_POLL_SECONDS, 1.0, _POLL_SECONDS, 1.0, _POLL_SECONDS))


def _starts_by_the_clock() -> None:
    import psutil

    def start_seconds(pid: int) -> int | None:
        try:
            return int(psutil.Process(pid).create_time())
        except psutil.Error:
            return None

    owners = sys.modules[myself.__module__]
    _replace(owners, "_start_ticks", start_seconds)
    myself.cache_clear()


def _replace(owner: Any, name: str, by: object) -> None:
    if not hasattr(owner, name):
        raise AttributeError(f"{owner!r} has no {name}: the library has changed, and this bug must follow it")
    setattr(owner, name, by)


def _leases_exclude_nobody() -> None:
    _replace(lease, "lock_descriptor", lambda *_, **__: True)


def _no_fingerprints() -> None:
    from lockcache import headers

    examine = headers.examine
    _replace(
        headers, "examine", lambda *one, **more: examine(*one, **more)._replace(digest=bytes(32), placed=bytes(32))
    )


def _other_mapping() -> None:
    def join(*given: Any) -> dict[str, Any]:
        found = join_metadata(*given)
        # Not an empty one, which a program takes for an entry that lost its metadata.
        return {**found, "symbol_mapping": dict.fromkeys(found.get("symbol_mapping", {}), b"_Z5other")}

    _replace(sys.modules[as_entry.__module__], "join_metadata", join)


#: Every bug that can be planted, by name.
BUGS: Final = {
    "rename-first": Fault(
        "an entry is renamed into place before its bytes are written",
        "same-key",
        ("illegal histories",),
        _rename_first,
    ),
    "no-digest": Fault("what is read is not checked against its digest", "rot", ("torn", "foreign"), _no_digest),
    "no-second-look": Fault(
        "an evictor removes what it chose without looking whether it was used or replaced meanwhile",
        "evict-rewrite",
        ("evicted though in use",),
        _no_second_look,
    ),
    "no-reservation": Fault(
        "a write does not reserve its room",
        "distinct-keys",
        ("peak over cap", "bytes unaccounted for"),
        _no_reservation,
    ),
    "no-lock-in-publish": Fault(
        "an entry is published without its shard's lock",
        "same-key",
        ("accounting drift", "bytes unaccounted for"),
        _no_lock_in_publish,
    ),
    "no-recency": Fault("a hit does not count as a use", "recency", ("hot keys evicted",), _no_recency),
    "record-apart": Fault(
        "a record file is published apart from its payload", "record-files", ("illegal histories",), _record_apart
    ),
    "lease-kept": Fault(
        "a lease is not released when compiling fails", "single-flight", ("longest wait for nobody",), _lease_kept
    ),
    "starts-by-the-clock": Fault(
        "live writers are distinguished from dead ones by when the wall clock says that they started",
        "clock-step",
        ("worker deaths", "dropped writes"),
        _starts_by_the_clock,
    ),
    "waiters-poll": Fault(
        "who waits for a compilation asks for its lease two hundred times a second",
        "pile",
        ("processor time of waiters",),
        _waiters_poll,
    ),
}
#: The faults of a wrapper around the cache that a worker uses.
CACHE_FAULTS: Final = {
    "torn": Fault("now and then a read gives only the first half of a value"),
    "foreign": Fault("now and then a read gives another key's value"),
    "stale": Fault("now and then a read gives the value that was there before the last write"),
    "overshoot": Fault("a file of the cap's size is put among the entries"),
    "crash": Fault("a worker dies by a signal that nobody sent it"),
}
#: All faults of a worker, by name.
FAULTS: Final = {**CACHE_FAULTS, **BUGS}
#: All faults of a process of a herd; the process itself crashes when it compiles.
HERD_FAULTS: Final = {
    "leases": Fault("locks on leases exclude nobody", plant=_leases_exclude_nobody),
    "stale": Fault("changed headers do not change the key", plant=_no_fingerprints),
    "mapping": Fault("a hit comes with another symbol mapping", plant=_other_mapping),
    "crash": Fault("the first process that compiles is SIGKILLed while it does"),
}


def plant(plan: Plan, writer: int, cache: FileStreamProgramCache) -> ProgramCacheResource:
    """Returns ``cache``, or the faulty cache in its place."""
    return _Faulty(cache, plan, writer) if plan.plant in CACHE_FAULTS else cache


class _Faulty(ProgramCacheResource):
    def __init__(self, cache: FileStreamProgramCache, plan: Plan, writer: int) -> None:
        self._cache = cache
        self._plan = plan
        self._is_first = writer == 0
        self._operations = 0
        self._last: dict[bytes, Entry] = {}
        self._older: dict[bytes, Entry] = {}

    def __getitem__(self, key: bytes | str) -> bytes:
        entry = self.get_entry(key)
        if entry is None:
            raise KeyError(key)
        return entry.code

    def get_entry(self, key: bytes | str) -> Entry | None:
        found = self._cache.get_entry(key)
        if found is None:
            return None
        false = self._falsified(key.encode() if isinstance(key, str) else key, found)
        return false if false is not found and self._is_time() else found

    def __setitem__(self, key: bytes | str, value: object) -> None:
        if not isinstance(value, bytes):
            raise TypeError("workers store bytes")
        self._remember(key, Entry(value))
        self._cache[key] = value

    def put_entry(self, key: bytes | str, entry: Entry) -> None:
        self._remember(key, entry)
        self._cache.put_entry(key, entry)

    def __delitem__(self, key: bytes | str) -> None:
        del self._cache[key]

    def __len__(self) -> int:
        return len(self._cache)

    def clear(self) -> None:
        self._cache.clear()

    def _is_time(self) -> bool:
        self._operations += 1
        return self._operations % _EVERY == 0

    def _remember(self, key: bytes | str, entry: Entry) -> None:
        name = key.encode() if isinstance(key, str) else key
        if name in self._last:
            self._older[name] = self._last[name]
        self._last[name] = entry
        if self._is_first and self._plan.plant in _AT_WRITES and self._is_time():
            self._break()

    def _falsified(self, key: bytes, found: Entry) -> Entry:
        fault = self._plan.plant
        if fault == "torn":
            return Entry(found.code[: len(found.code) // 2], found.metadata)
        if fault == "foreign":
            nobodys = Entry(make_value(self._plan.token, self._plan.keys, Stamp(0, 0, 1, 0), len(found.code)))
            return next((entry for other, entry in self._last.items() if other != key), nobodys)
        if fault == "stale":
            return self._older.get(key, found)
        return found

    def _break(self) -> None:
        if self._plan.plant == "crash":
            os.kill(os.getpid(), signal.SIGSEGV)
        if self._plan.plant == "overshoot":
            path = os.path.join(self._plan.directory, "entries", "00")
            os.makedirs(path, mode=0o700, exist_ok=True)
            with open(os.path.join(path, "0" * 62), "wb") as file:
                file.truncate(self._plan.max_size_bytes)
