"""Descriptors that a forked child has from its parent: closes those of entries, staged files and queues.

Keeps invariants 3 (hard cap) and 5 (death is free) across fork (:func:`close_inherited`): a child that kept the
descriptor of an entry would keep its blocks on disk after its eviction, for as long as it lives (seen: 80 children, 11
times the cap), that of a staged file its lock, by which others take the writer for alive, and that of a queue a place
in it. Such descriptors are found in the process's own table, because a thread of the parent may have been anywhere in
``open`` when the fork came. Where there is no such table (not Linux), nothing is closed.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
from typing import Final

from lockcache.filestream.disk.descriptors import close_quietly
from lockcache.filestream.disk.layout import Layout

_TABLE: Final = "/proc/self/fd"

# How we open entries and staged files, and hardly anybody else: a user's own file in this directory is left alone.
_OURS: Final = os.O_NOFOLLOW | os.O_NONBLOCK


def close_inherited(layout: Layout) -> None:
    """Close the descriptors of entries and staged files that this process, a child just forked, has from its parent."""
    try:
        numbers = os.listdir(_TABLE)
    except OSError:
        return
    for number in numbers:
        with contextlib.suppress(OSError):  # the listing's own descriptor, and others that are gone by now
            if _is_ours(layout, int(number), os.readlink(f"{_TABLE}/{number}")):
                close_quietly(int(number))


def _is_ours(layout: Layout, fd: int, path: str) -> bool:
    if not path.startswith((f"{layout.entries}/", f"{layout.records}/", f"{layout.tmp}/", f"{layout.room_lock}.")):
        return False
    return fcntl.fcntl(fd, fcntl.F_GETFL) & _OURS == _OURS
