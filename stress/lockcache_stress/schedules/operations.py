# SPDX-License-Identifier: Apache-2.0
"""The operations whose orders are run.

Each is one real call of a program on a cache that it has open. All work on one key, among two others of its shard and
one of another shard.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

from lockcache import Entry, FileStreamProgramCache
from lockcache.filestream.disk import Space
from lockcache.filestream.entry import StagedEntry, remove_empty_folders_locked
from lockcache.lowlevel import CacheDirectory, entry_name, reap, recount_shard
from lockcache_stress.schedules.worker import Stepper

SPACE: Final = Space(4096)
LOCK_SECONDS: Final = 5.0


def _keys_in_shard(shard: str) -> Iterator[bytes]:
    return (key for number in range(10**6) if entry_name(key := b"key %d" % number)[:2] == shard)


KEY: Final = b"the key"
SHARD: Final = int(entry_name(KEY)[:2], 16)
_near = _keys_in_shard(entry_name(KEY)[:2])
#: Entries of the same shard, one of another, and a key of the same shard that has no entry.
NEAR: Final = (next(_near), next(_near))
NEW: Final = next(_near)
#: A key whose entry takes two blocks.
WIDE: Final = next(_near)
FAR: Final = b"far"
FAR_SHARD: Final = 0xA0
FARTHER: Final = next(_keys_in_shard("a0"))
OLDER: Final = Entry(b"older" * 500, {"name": "older"})
OTHER: Final = Entry(b"other" * 500, {"name": "other"})
NAMES: Final = {
    KEY: "key",
    NEW: "new",
    FAR: "far",
    FARTHER: "farther",
    NEAR[0]: "near",
    NEAR[1]: "nearer",
    WIDE: "wide",
}


def value_of(number: int, key: bytes = KEY) -> Entry:
    """Returns what process ``number`` stores under a key."""
    name = f"{NAMES[key]}-{number}"
    return Entry(name.encode() * (1200 if key == WIDE else 300), {"name": name})


def name_of(entry: Entry | None) -> str:
    """Returns the name of a value: empty for none, ``torn`` for one that nobody stored."""
    if entry is None:
        return ""
    name = str(entry.metadata.get("name"))
    return name if _CODES.get(name) == entry.code else "torn"


def names_of_entries(begin: Begin) -> dict[bytes, str]:
    """Returns the names of the values that a directory begins with, by their keys."""
    found = dict.fromkeys(() if begin.is_bare else (*NEAR, FAR), "other")
    return found | {KEY: "older"} if begin.has_older else found


_CODES: Final = {
    "older": OLDER.code,
    "other": OTHER.code,
    **{f"{NAMES[key]}-{number}": value_of(number, key).code for key in NAMES for number in range(4)},
}


@dataclass(frozen=True)
class Begin:
    """The directory in which an experiment begins."""

    #: Whether there is an older entry under the key.
    has_older: bool = False
    #: Whether the cap is what the directory holds, so that what is new has to evict.
    is_full: bool = False
    #: Whether the cap is one entry more than the directory holds.
    has_room_for_one: bool = False
    #: Whether a writer died before it published.
    has_dead: bool = False
    #: Whether there is no directory yet.
    is_missing: bool = False
    #: Whether there is an empty folder for the shard of the far key.
    has_empty_folder: bool = False
    #: Whether records are files of their own.
    has_record_files: bool = False
    #: Whether there are no entries, and a cap of two.
    is_bare: bool = False

    @property
    def is_capped(self) -> bool:
        """Whether there is a cap."""
        return self.is_full or self.has_room_for_one or self.is_bare

    def with_(self, other: Begin) -> Begin:
        """Returns the beginning that suits both."""
        return Begin(*(mine or its for mine, its in zip(vars(self).values(), vars(other).values(), strict=True)))


@dataclass(frozen=True)
class Actor:
    """The process of an operation: what it works with, and where it notes what it does."""

    stepper: Stepper
    number: int
    root: str
    #: Open, unless the operation opens it.
    cache: FileStreamProgramCache | None

    @property
    def opened(self) -> FileStreamProgramCache:
        """The open cache."""
        if self.cache is None:
            raise RuntimeError("this operation opens the cache itself")
        return self.cache

    @property
    def directory(self) -> CacheDirectory:
        """The open directory of the cache."""
        found: CacheDirectory = self.opened._parts.directory
        return found

    def open(self, cap: int | None = None) -> FileStreamProgramCache:
        """Returns another cache object."""
        return open_cache(self.root, cap)


def open_cache(root: str, cap: int | None = None, *, record_files: bool = False) -> FileStreamProgramCache:
    """Returns a cache object on the directory of an experiment."""
    return FileStreamProgramCache(
        root, max_size_bytes=cap, lock_timeout_seconds=LOCK_SECONDS, record_files=record_files
    )


def _store(actor: Actor, cache: FileStreamProgramCache, key: bytes = KEY) -> None:
    value = value_of(actor.number, key)
    event = actor.stepper.begin("put", NAMES[key], name_of(value))
    cache.put_entry(key, value)
    if cache._parts.counts["dropped_writes"]:
        event["kind"] = "dropped"
    actor.stepper.end(event)


def _put(actor: Actor) -> None:
    _store(actor, actor.opened)


def _put_new(actor: Actor) -> None:
    _store(actor, actor.opened, NEW)


def _put_far(actor: Actor) -> None:
    _store(actor, actor.opened, FARTHER)


def _slow_wide(actor: Actor) -> None:
    """Take a second of the explorer's clock between the bytes and the rename."""
    write = StagedEntry.write

    def write_slowly(self: StagedEntry, *given: Any, **named: Any) -> None:
        write(self, *given, **named)
        time.sleep(1.0)

    setattr(StagedEntry, "write", write_slowly)  # noqa: B010 - an assignment is an error of types
    _store(actor, actor.opened, WIDE)


def tidy(directory: CacheDirectory) -> None:
    """Remove the folder of the far key, if it is empty."""
    hold = directory.hold_shard(FAR_SHARD)[0]
    try:
        remove_empty_folders_locked(directory.layout, FAR_SHARD)
    finally:
        hold.release()


def _tidy(actor: Actor) -> None:
    event = actor.stepper.begin("tidy", "")
    tidy(actor.directory)
    actor.stepper.end(event)


def _get(actor: Actor) -> None:
    for _ in range(2):
        event = actor.stepper.begin("get", NAMES[KEY])
        actor.stepper.end(event, name_of(actor.opened.get_entry(KEY)))


def _remove(actor: Actor) -> None:
    event = actor.stepper.begin("remove", NAMES[KEY])
    with suppress(KeyError):
        del actor.opened[KEY]
    actor.stepper.end(event)


def _recount(actor: Actor) -> None:
    event = actor.stepper.begin("recount", "")
    recount_shard(actor.directory, SHARD)
    actor.stepper.end(event)


def _reap(actor: Actor) -> None:
    event = actor.stepper.begin("reap", "")
    reap(actor.directory)
    actor.stepper.end(event)


def _lease(actor: Actor, *, fails: bool = False) -> None:
    event = actor.stepper.begin("lease", NAMES[KEY])

    def compute() -> Entry:
        event["computed"] = event.get("computed", 0) + 1
        if fails:
            event["failed"] = 1
            raise _GivenUpError
        return value_of(actor.number)

    found = ""
    with suppress(_GivenUpError):
        found = name_of(actor.opened.get_or_compute_entry(KEY, compute))
    actor.stepper.end(event, found)


def _give_up(actor: Actor) -> None:
    """Fail, and go on with something else for a while: the process does not end."""
    _lease(actor, fails=True)
    time.sleep(30.0)


def _attach(actor: Actor) -> None:
    with actor.open() as other:
        event = actor.stepper.begin("get", NAMES[KEY])
        actor.stepper.end(event, name_of(other.get_entry(KEY)))


def _policy(actor: Actor) -> None:
    cap = lower_cap(actor.directory.policy.latest.max_size_bytes)
    event = actor.stepper.begin("cap", "", str(cap))
    actor.open(cap).close()
    actor.stepper.end(event)


def lower_cap(cap: int | None) -> int:
    """Returns the cap that the operation ``policy`` sets: one entry less."""
    return (cap or 0) - SPACE.block_bytes


def _count(actor: Actor) -> None:
    directory = actor.directory
    with directory.lock:
        directory.count_again_all_locked()


def _slow_lease(actor: Actor) -> None:
    """Compute for a second of the explorer's clock."""
    event = actor.stepper.begin("lease", NAMES[KEY])

    def compute() -> Entry:
        event["computed"] = event.get("computed", 0) + 1
        time.sleep(1.0)
        return value_of(actor.number)

    actor.stepper.end(event, name_of(actor.opened.get_or_compute_entry(KEY, compute)))


def _stepped(actor: Actor) -> None:
    """Recount in a process that began after the wall clock was stepped, by which the boot seems to be later."""
    import psutil

    boot = psutil.boot_time() + 3600
    vars(sys.modules["psutil._pslinux"])["boot_time"] = lambda: boot
    vars(sys.modules["psutil._pslinux"])["BOOT_TIME"] = boot
    recount_shard(actor.directory, SHARD)


def _create(actor: Actor) -> None:
    with actor.open() as other:
        _store(actor, other)


class _GivenUpError(Exception):
    """The computation of this operation fails."""


@dataclass(frozen=True)
class Operation:
    """One operation of one process."""

    help: str
    #: Does it, as this process.
    act: Callable[[Actor], None]
    begin: Begin = Begin()
    #: Whether the cache is opened in the operation, and not before it.
    opens: bool = False
    #: Whether it leaves its process changed, so that the next run has another one.
    alters: bool = False
    #: Whether it is left out of the pairs of all operations, because it is for one fault or has very many steps.
    seldom: bool = False


_OLDER: Final = Begin(has_older=True)
_FULL: Final = Begin(has_older=True, is_full=True)
#: Every operation, by name.
OPERATIONS: Final = {
    "put": Operation("a put of a key that has no entry", _put),
    "replace": Operation("a put over an older entry", _put, _OLDER),
    "get": Operation("two reads", _get, _OLDER),
    "evict": Operation(
        "a put of a new key into a full cache: the key's older entry is the first to go", _put_new, _FULL
    ),
    "remove": Operation("a removal", _remove, _OLDER),
    "recount": Operation("a recount of the shard", _recount),
    "reap": Operation("a reap, behind a writer that died", _reap, Begin(has_dead=True)),
    "lease": Operation("compile-once: lease, put, release", _lease),
    "give-up": Operation("compile-once, where the computation fails", _give_up),
    "attach": Operation("another cache object opens the directory, and reads", _attach),
    "policy": Operation("a program opens the directory with a smaller cap", _policy, _FULL),
    "put-new": Operation("a put of another key that has no entry", _put_new, seldom=True),
    "narrow": Operation(
        "a program opens a directory without entries, whose cap was two, with a cap of one",
        _policy,
        Begin(is_bare=True),
        seldom=True,
    ),
    "slow-wide": Operation(
        "a put of two blocks into an empty directory whose cap was two, and the disk takes a second",
        _slow_wide,
        Begin(is_bare=True),
        alters=True,
        seldom=True,
    ),
    "put-far": Operation(
        "a put of a key in another shard; there is room for one", _put_far, Begin(has_room_for_one=True)
    ),
    "put-alone": Operation("a put of the only key of a shard", _put_far, Begin(has_empty_folder=True), seldom=True),
    "tidy": Operation("an empty folder is removed", _tidy, Begin(has_empty_folder=True), seldom=True),
    "count": Operation("the page is counted again, whole, and replaced", _count, seldom=True),
    "slow-lease": Operation("compile-once, where the computation takes a second", _slow_lease, seldom=True),
    "stepped": Operation("a recount after the wall clock was stepped", _stepped, alters=True, seldom=True),
    "record": Operation(
        "a put whose record is a file", _put, Begin(has_older=True, has_record_files=True), seldom=True
    ),
    "create": Operation(
        "the directory is made, and a key is put", _create, Begin(is_missing=True), opens=True, seldom=True
    ),
}
