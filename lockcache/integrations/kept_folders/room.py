# SPDX-License-Identifier: Apache-2.0
"""Room for folders in a program's own cache: which stored ones are laid down, and which of those there make room.

Keeps the directory's cap there too, for folders that are stored, or were until they were evicted: the last used ones
stay. What was never stored is never removed; and a command adds what it builds, until the next one begins.
"""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Iterable
from typing import Final, NamedTuple

from lockcache.filestream.disk import last_use_ns
from lockcache.integrations.kept_folders.contents import walk
from lockcache.integrations.kept_folders.in_use import is_loaded_from, is_worked_in

__all__ = ["Held", "choose", "is_unused", "measure"]

# A program may find a folder, and open its files later.
_UNUSED_SECONDS: Final = 3600.0
_BLOCK_BYTES: Final = 512


class Held(NamedTuple):
    """A stored folder: there, or to be laid down."""

    last_use_ns: int
    path: str
    size_bytes: int
    is_there: bool


def choose(held: Iterable[Held], most_bytes: int) -> tuple[list[Held], list[Held]]:
    """Returns the folders to lay down, the last used one last, and those there for which there is no room."""
    laid, removed, left_bytes = [], [], most_bytes
    for each in sorted(held, reverse=True):
        left_bytes -= each.size_bytes
        if left_bytes < 0 and each.is_there:
            removed.append(each)
        elif left_bytes >= 0 and not each.is_there:
            laid.append(each)
    return laid[::-1], removed


def measure(folder_fd: int) -> tuple[int, int]:
    """Returns when a folder was last used, as far as its file system notes that, and the bytes that it takes."""
    used_ns = size_bytes = 0
    for _, _, status in walk(folder_fd):
        size_bytes += status.st_blocks * _BLOCK_BYTES
        if stat.S_ISREG(status.st_mode):  # the times of folders are those of looks like this
            used_ns = max(used_ns, last_use_ns(status))
    return used_ns, size_bytes


def is_unused(root: str, held: Held) -> bool:
    """Returns whether a folder may be removed: not used for an hour, and by no process of this host now."""
    age_seconds = (time.time_ns() - held.last_use_ns) / 1e9
    path = os.path.join(root, held.path)
    return age_seconds > _UNUSED_SECONDS and not (is_worked_in(path) or is_loaded_from(path))
