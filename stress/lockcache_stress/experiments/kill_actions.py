"""Actions that die: a put, an eviction, a view, a recount, a lease, a sweep, each prepared again before every death.

All of them work on one key among a few others, in one directory, so that what is left can be described in a line.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from glob import glob
from typing import Final

from lockcache import Entry, FileStreamProgramCache
from lockcache.filestream.disk import Space, encode_format, make_private_folder
from lockcache.filestream.eviction import evict
from lockcache.lowlevel import CacheDirectory, Goal, Layout, sweep
from lockcache_stress.experiments.kill_points import CHANGES, die

KEY: Final = b"the key"
OLDER: Final = Entry(b"older" * 300, {"name": "older"})
NEWER: Final = Entry(b"newer" * 700, {"name": "newer"})
OTHERS: Final = {b"other %d" % number: Entry(b"%d" % number * 900, {"n": number}) for number in range(6)}
_FILLER_BYTES: Final = 15_000
_SPACE: Final = Space(4096)
_LOCK_SECONDS: Final = 2.0


@dataclass(frozen=True)
class Action:
    """One action of a process, during which it dies."""

    help: str
    #: Makes the directory as it is before, and gives what the child does.
    prepare: Callable[[str], Callable[[], object]]
    #: The calls that count as steps; all of them if none are named.
    calls: tuple[str, ...] = ()


def _fill(root: str, older: Entry | None) -> FileStreamProgramCache:
    # The lock files stay: making 256 again for each step would be most of the time.
    for folder in ("entries", "tmp", "lockcache/records", "lockcache/views", "lockcache/leases"):
        shutil.rmtree(os.path.join(root, folder), ignore_errors=True)
    for path in glob(os.path.join(root, "lockcache", "*")):
        if os.path.isfile(path):
            os.unlink(path)
    # As on a file system where neither folders nor attributes take blocks, so that the table is the same on all.
    layout = Layout(root)
    for folder in (layout.root, layout.own):
        make_private_folder(folder)
    with open(layout.format, "wb") as file:
        file.write(encode_format(_SPACE))
    cache = FileStreamProgramCache(root, lock_timeout_seconds=_LOCK_SECONDS)
    for key, entry in OTHERS.items():
        cache.put_entry(key, entry)
    if older is not None:
        cache.put_entry(KEY, older)
    # Its counts are reported here and not when it is collected: what Ctrl-C raises in a finalizer is lost.
    cache.stats()
    return cache


def _put(root: str, older: Entry | None = None) -> Callable[[], object]:
    cache = _fill(root, older)
    return lambda: cache.put_entry(KEY, NEWER)


def _evict(root: str) -> Callable[[], object]:
    _fill(root, None).put_entry(b"filler", Entry(bytes(_FILLER_BYTES)))
    held = CacheDirectory(root, _LOCK_SECONDS).usage().total_bytes()
    # One more put and something has to go.
    cache = FileStreamProgramCache(root, max_size_bytes=held, lock_timeout_seconds=_LOCK_SECONDS)
    return lambda: cache.put_entry(KEY, NEWER)


def _view(root: str) -> Callable[[], object]:
    cache = _fill(root, None)
    cache.put_files(KEY, {"kernel": OLDER.code}, OLDER.metadata)
    return lambda: cache.view_files(KEY)


def _recount(root: str) -> Callable[[], object]:
    cache = _fill(root, OLDER)
    # Two writers that died just before their entry was in place. Alike, since a directory lists them in any order.
    for _ in range(2):
        if die(lambda: cache.put_entry(KEY, NEWER), 1, ("rename",)) is None:
            raise RuntimeError("a put makes no call to rename any more, and this has to follow")
    return cache.recount


def _lease(root: str) -> Callable[[], object]:
    cache = _fill(root, None)
    return lambda: cache.get_or_compute_entry(KEY, lambda: NEWER)


def _sweep(root: str) -> Callable[[], object]:
    _fill(root, OLDER).close()
    directory = CacheDirectory(root, _LOCK_SECONDS)
    held = directory.usage().total_bytes()

    def act() -> None:
        vars(evict)["_SWEEP_THREADS"] = 1  # so that the steps come in one order
        sweep(directory, Goal(limit_bytes=held // 2), lambda: False)

    return act


#: By name, in the order of the table.
ACTIONS: Final = {
    "put": Action("a put of a new key", _put),
    "replace": Action("a put over an older entry", lambda root: _put(root, OLDER)),
    "evict": Action("a put of a new key into a full cache, which evicts", _evict, CHANGES),
    "view": Action("a view of an entry's files, made", _view),
    "recount": Action("a recount, behind two writers that had died", _recount, CHANGES),
    "lease": Action("compile-once: lease, put, release", _lease),
    "sweep": Action("a daemon's sweep down to half", _sweep, CHANGES),
}
