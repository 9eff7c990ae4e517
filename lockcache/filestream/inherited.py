"""What a forked child inherits of its parent's reads and writes: open files, which it must not keep.

Keeps invariants 3 and 5 across fork: a child that kept the descriptor of an entry would keep its blocks on disk after
its eviction, for as long as it lives (seen: 80 children, 11 times the cap), and that of a staged file its lock, by
which others take the writer for alive. Found in the process's own table of descriptors, because a thread of the parent
may have been anywhere in ``open`` when the fork came. Where there is no such table (not Linux), nothing is closed.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
from typing import Final

from lockcache.filestream.layout import Layout

__all__ = ["close_inherited"]

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
                os.close(int(number))


def _is_ours(layout: Layout, fd: int, path: str) -> bool:
    if not path.startswith((f"{layout.entries}/", f"{layout.records}/", f"{layout.tmp}/")):
        return False
    return fcntl.fcntl(fd, fcntl.F_GETFL) & _OURS == _OURS
