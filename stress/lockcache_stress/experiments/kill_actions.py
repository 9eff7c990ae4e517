# SPDX-License-Identifier: Apache-2.0
"""Actions during which a process is killed: a put, an eviction, a view, a recount, a lease, a sweep.

Each is prepared again before every death. All work on one key among a few others, in one directory, so that one line
can describe what is left.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from glob import glob
from typing import Final

from lockcache import Entry, FileStreamProgramCache
from lockcache.filestream.accounting import NOT_COUNTED, Head, encode_page, folder_of, replace_state
from lockcache.filestream.disk import Space, make_private_folder
from lockcache.filestream.eviction import evict
from lockcache.lowlevel import CacheDirectory, Goal, Layout, Policy, sweep
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
    """One action, during which its process dies."""

    help: str
    #: Prepares the directory, and returns the action, which the child runs.
    prepare: Callable[[str], Callable[[], object]]
    #: The calls that count as steps; all calls if this is empty.
    calls: tuple[str, ...] = ()


def _fill(root: str, older: Entry | None) -> FileStreamProgramCache:
    # The lock files stay, because making 256 of them again for each step would take most of the time.
    for folder in ("entries", "tmp", "lockcache/records", "lockcache/views", "lockcache/leases"):
        shutil.rmtree(os.path.join(root, folder), ignore_errors=True)
    for path in glob(os.path.join(root, "lockcache", "*")):
        if os.path.isfile(path):
            os.unlink(path)
    # Accounts as on a file system where neither folders nor attributes take blocks, so that the table is the same on
    # all file systems.
    layout = Layout(root)
    for folder in (layout.root, layout.own, layout.tmp):
        make_private_folder(folder)
    replace_state(layout, encode_page(Head(folder_of(layout) + NOT_COUNTED, _SPACE, Policy())))
    cache = FileStreamProgramCache(root, lock_timeout_seconds=_LOCK_SECONDS)
    for key, entry in OTHERS.items():
        cache.put_entry(key, entry)
    if older is not None:
        cache.put_entry(KEY, older)
    # Reports the counts of this cache now and not when it is collected, because an error that Ctrl-C raises in a
    # finalizer is lost.
    cache.stats()
    return cache


def _put(root: str, older: Entry | None = None) -> Callable[[], object]:
    cache = _fill(root, older)
    return lambda: cache.put_entry(KEY, NEWER)


def _evict(root: str) -> Callable[[], object]:
    _fill(root, None).put_entry(b"filler", Entry(bytes(_FILLER_BYTES)))
    held = CacheDirectory(root, _LOCK_SECONDS).usage().total_bytes()
    # The cap is what the directory holds now, so that the next put has to evict.
    cache = FileStreamProgramCache(root, max_size_bytes=held, lock_timeout_seconds=_LOCK_SECONDS)
    return lambda: cache.put_entry(KEY, NEWER)


def _view(root: str) -> Callable[[], object]:
    cache = _fill(root, None)
    cache.put_files(KEY, {"kernel": OLDER.code}, OLDER.metadata)
    return lambda: cache.view_files(KEY)


def _recount(root: str) -> Callable[[], object]:
    cache = _fill(root, OLDER)
    # Two writers that died just before they published. Both are alike, since a directory lists them in any order.
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
        vars(evict)["_SWEEP_THREADS"] = 1  # so that the steps always come in the same order
        sweep(directory, Goal(limit_bytes=held // 2), lambda: False)

    return act


#: The actions by name, in the order of the table.
ACTIONS: Final = {
    "put": Action("a put of a new key", _put),
    "replace": Action("a put over an older entry", lambda root: _put(root, OLDER)),
    "evict": Action("a put of a new key into a full cache, which evicts", _evict, CHANGES),
    "view": Action("a view of an entry's files, made", _view),
    "recount": Action("a recount, behind two writers that had died", _recount, CHANGES),
    "lease": Action("compile-once: lease, put, release", _lease),
    "sweep": Action("a daemon's sweep down to half", _sweep, CHANGES),
}
