"""Survey of what a dead process has left, as everybody else sees it: is it as it must be?

Looks first and repairs then: the next put, which must not wait or fail, and one recount, after which nothing of the
dead may be left.
"""

from __future__ import annotations

import os
from array import array
from dataclasses import dataclass
from typing import Final

from lockcache import Entry, FileStreamProgramCache
from lockcache.lowlevel import Layout, entry_name
from lockcache_stress.experiments.kill_table.actions import KEY, NEWER, OLDER, OTHERS
from lockcache_stress.run import bytes_on_disk

__all__ = ["Survey", "survey"]

_ENTRIES: Final = {(each.code, each.metadata["name"]): each.metadata["name"] for each in (OLDER, NEWER)}
_NEXT: Final = Entry(b"next" * 500, {"name": "next"})


@dataclass(frozen=True)
class Survey:
    """What is left. Invariant 5 allows all of it but for what :attr:`wrong` names."""

    #: ``older``, ``newer`` or ``none``.
    entry: str
    #: Of the others, how many are there, each as it was.
    others: int
    #: Files of the dead in ``tmp/``.
    staged: int
    #: Its lease files: without a lock they hinder nobody, and a daemon's round removes them.
    leases: int
    #: What the page says more than the disk holds.
    surplus_bytes: int
    wrong: tuple[str, ...]


def survey(root: str) -> Survey:
    """Look at what is left in ``root``, then have the next process go on there."""
    wrong = []
    # Before the directory is opened, which evicts where a reservation of the dead is too much for the cap.
    surplus = _page_bytes(root) - bytes_on_disk(root)
    staged, leases = _count(root, "tmp"), _count(root, "lockcache", "leases")
    others = sum(os.path.exists(Layout(root).entry(entry_name(key))) for key in OTHERS)
    cache = FileStreamProgramCache(root, lock_timeout_seconds=2.0)
    if surplus < 0:
        wrong.append(f"the page says {-surplus} bytes too little: writers would overshoot the cap")
    found = cache.get_entry(KEY)
    entry = "none" if found is None else _ENTRIES.get((found.code, found.metadata.get("name")), "torn")
    if entry == "torn":
        wrong.append("what is served under the key is not a whole entry that anybody stored")
    seen = {key: cache.get_entry(key) for key in OTHERS}
    if any(each not in (None, OTHERS[key]) for key, each in seen.items()):
        wrong.append("another entry is not what was stored")
    wrong += _go_on(cache, root)
    cache.close()
    return Survey(entry, others, staged, leases, surplus, tuple(wrong))


def _go_on(cache: FileStreamProgramCache, root: str) -> list[str]:
    """The next process: compile-once and a put must not be hindered, and one recount corrects all."""
    wrong = []
    cache.get_or_compute_entry(KEY, lambda: _NEXT)
    cache.put_entry(KEY, _NEXT)
    if cache.get_entry(KEY) != _NEXT or cache.stats().dropped_writes:
        wrong.append("the next put did not store its entry")
    cache.recount()
    drift = cache.stats().bytes - bytes_on_disk(root)
    if drift or _count(root, "tmp"):
        wrong.append(f"after one recount {drift} bytes are wrong, or staged files are left")
    if cache.get_entry(KEY) != _NEXT:
        wrong.append("the recount took an entry")
    return wrong


def _page_bytes(root: str) -> int:
    with open(Layout(root).usage, "rb") as file:
        numbers = array("q", file.read())
    return sum(numbers[::2])


def _count(root: str, *folder: str) -> int:
    try:
        return len(os.listdir(os.path.join(root, *folder)))
    except FileNotFoundError:
        return 0
