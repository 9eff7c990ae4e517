# SPDX-License-Identifier: Apache-2.0
"""Checks of each disk: it is built as a directory, opened, read, verified, recounted, and written to.

An operation is traced on a directory all of which is durable. After a cut nothing torn is served, what the operation
does not touch is there, and where it synced, what it had returned is there. What is served passes verification. One
recount makes the accounting exact, and the next put and read work.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final

from lockcache import Entry, FileStreamProgramCache
from lockcache.filestream.repair import verify_in_steps
from lockcache.lowlevel import CacheDirectory, Policy, entry_name, recount_all
from lockcache_stress.crash_states.disks import Disk, after_cuts, read_disk, steps_of
from lockcache_stress.crash_states.traced import trace
from lockcache_stress.schedules import Begin, Workplace, disk_bytes, name_of, names_of_entries, value_of

_NEXT: Final = b"the next key"


@dataclass(frozen=True)
class Case:
    """One operation, whose power cuts are tried."""

    help: str
    begin: Begin
    #: Does it with a cache; ``fsync`` is the cache's.
    act: Callable[[FileStreamProgramCache], object]
    #: The keys that it stores, and those of which any may go.
    stores: tuple[bytes, ...] = ()
    may_go: tuple[bytes, ...] = ()
    #: The cap that it sets.
    cap: Callable[[int | None], int | None] = lambda cap: cap


@dataclass
class Cuts:
    """What was found after the power cuts of one case."""

    name: str
    promise: str
    fsync: bool
    changes: int = 0
    states: int = 0
    #: How often each value was served under the key that is stored.
    served: dict[str, int] = field(default_factory=dict)
    wrong: list[str] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        """Whether no state broke a promise."""
        return self.states > 0 and not self.wrong

    def as_json(self) -> dict[str, Any]:
        """Returns plain values."""
        return {"case": self.name, **{name: value for name, value in vars(self).items() if name != "name"}}


def try_cuts(name: str, case: Case, promise: str, root: str, *, fsync: bool) -> Cuts:
    """Build every disk that a cut may leave, and check it."""
    found = Cuts(name, promise, fsync)
    place = Workplace(root, case.begin)
    place.reset()
    cache = FileStreamProgramCache(root, fsync=fsync, record_files=case.begin.has_record_files)
    cache.get(_NEXT)
    changes = trace(root, lambda: case.act(cache))
    cache.close()
    place.reset()
    disk = read_disk(root)
    steps = steps_of(disk, changes)
    found.changes = len(steps)
    for returned in (False, True):
        for each in after_cuts(disk, steps, promise, returned=returned):
            found.states += 1
            _build(place, each)
            wrong = _check(found, case, place, promise, is_acknowledged=returned and fsync)
            if wrong and len(found.wrong) < _MOST_KEPT:
                found.wrong.append(f"{wrong}; on the disk: {_in_words(disk, each)}")
    return found


_MOST_KEPT: Final = 10


def _in_words(before: Disk, after: Disk) -> str:
    """Returns what differs from the disk before the operation."""
    old, new = dict(_by_path(before)), dict(_by_path(after))
    return ", ".join(f"{path} {new.get(path, 'gone')}" for path in sorted(old | new) if old.get(path) != new.get(path))


def _by_path(disk: Disk) -> Iterator[tuple[str, str]]:
    for path, content, attributes in disk.visible():
        is_zero = content and not content.strip(b"\0")
        yield path, f"({len(content)} bytes{' of zeros' if is_zero else ''}, {len(attributes)} attributes)"


def _build(place: Workplace, disk: Disk) -> None:
    """Make the directory as the disk has it. The folder whose inode the page states stays."""
    own = place.layout.own
    for folder, folders, files in os.walk(place.root, topdown=False):
        for name in files:
            os.unlink(os.path.join(folder, name))
        for name in folders:
            path = os.path.join(folder, name)
            if path != own:
                shutil.rmtree(path)
    for path, content, attributes in disk.visible():
        full = os.path.join(place.root, path)
        if attributes == (("folder", b""),):
            with suppress(FileExistsError):
                os.mkdir(full, 0o700)
            continue
        with open(full, "wb", opener=lambda path, flags: os.open(path, flags, 0o600)) as file:
            file.write(content)
        for name, value in attributes:
            os.setxattr(full, name, value)


def _check(found: Cuts, case: Case, place: Workplace, promise: str, *, is_acknowledged: bool) -> str:
    """Returns what is wrong with a state; empty if nothing is."""
    # Where attributes are in no order, what has no record is not to be believed: that is what the argument is for.
    is_strict = promise == "posix" and not found.fsync
    with FileStreamProgramCache(
        place.root, verified_only=is_strict, record_files=case.begin.has_record_files, lock_timeout_seconds=1.0
    ) as cache:
        wrong = _check_entries(found, case, cache, is_acknowledged=is_acknowledged)
        caps = {place.cap, case.cap(place.cap)}
        stated = cache.max_size_bytes
        if found.fsync and stated not in ({case.cap(place.cap)} if is_acknowledged else caps):
            wrong.append(f"the cap is {stated}")
        wrong += _go_on(cache, place)
    return "; ".join(wrong)


def _check_entries(found: Cuts, case: Case, cache: FileStreamProgramCache, *, is_acknowledged: bool) -> list[str]:
    wrong = []
    directory: CacheDirectory = cache._parts.directory
    for key, before in (dict.fromkeys(case.stores, "") | names_of_entries(case.begin)).items():
        name = name_of(cache.get_entry(key))
        if key in case.stores:
            found.served[name or "nothing"] = found.served.get(name or "nothing", 0) + 1
        after = name_of(value_of(0, key)) if key in case.stores else before
        allowed = {before, after} | ({""} if key in case.may_go or not found.fsync else set())
        if is_acknowledged and key in case.stores:
            allowed = {after}
        if name not in allowed and not (not found.fsync and not name):
            wrong.append(f"{name or 'nothing'} is served where {' or '.join(sorted(allowed)) or 'nothing'} may be")
        verdict = _verdict(directory, entry_name(key))
        if name and verdict not in ("whole", "unverified"):
            wrong.append(f"{name} is served, and is {verdict}")
    return wrong


def _verdict(directory: CacheDirectory, name: str) -> str:
    steps = verify_in_steps(directory, name)
    while True:
        try:
            next(steps)
        except StopIteration as ended:
            return "" if ended.value is None else str(ended.value.state)


def _go_on(cache: FileStreamProgramCache, place: Workplace) -> list[str]:
    directory: CacheDirectory = cache._parts.directory
    recount_all(directory)  # also shards for which nothing is accounted: the page is not synced
    drift, left = directory.usage().total_bytes() - disk_bytes(place), os.listdir(place.layout.tmp)
    wrong = [f"after one recount {drift:,} bytes are wrong, {len(left)} staged files are left"] if drift or left else []
    cache.put_entry(_NEXT, Entry(b"next" * 100, {"name": "next"}))
    if cache._parts.counts["dropped_writes"] or cache.get(_NEXT) != b"next" * 100:
        wrong.append("the next put is not served")
    return wrong


def change_policy(cache: FileStreamProgramCache, cap: int | None) -> None:
    """Set the cap as an operator does."""
    directory: CacheDirectory = cache._parts.directory
    directory.policy.replace(Policy(cap, by_operator=True))


def count_again(cache: FileStreamProgramCache) -> None:
    """Replace the page by one that is counted."""
    directory: CacheDirectory = cache._parts.directory
    with directory.lock:
        directory.count_again_all_locked()


def stored(key: bytes) -> Callable[[FileStreamProgramCache], object]:
    """Returns a put of a key."""
    return lambda cache: cache.put_entry(key, value_of(0, key))


def all_ways(names: Sequence[str]) -> list[tuple[str, str, bool]]:
    """Returns (case, promise, fsync) of what is to be tried."""
    return [(name, promise, fsync) for name in names for promise in ("journal", "posix") for fsync in (False, True)]
