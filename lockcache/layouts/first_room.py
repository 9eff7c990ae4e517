# SPDX-License-Identifier: Apache-2.0
"""First room: on a disk without any, some entries go before anything is made, so that cleaning up needs no room.

A daemon makes a lock and a status, a command a folder, an eviction a mark: each takes an inode and blocks, of which a
full disk or a quota has none. Then the least recently used entries are unlinked where they are, which needs neither a
lock nor accounting: first of each what makes it an entry, so that to its program it is a miss. The accounting has too
much until the next recount, never too little (invariant 3, hard cap).
"""

from __future__ import annotations

import contextlib
import heapq
import os
import stat
import time
from collections.abc import Callable, Iterable
from typing import Final, TypeVar

from lockcache.filestream.disk import DISK_FULL
from lockcache.layouts.folders.files import may_go
from lockcache.layouts.folders.scan import look
from lockcache.layouts.folders.tilelang import TILELANG
from lockcache.layouts.folders.torchinductor import GRAPHS, NAME
from lockcache.layouts.folders.vllm import COMPILED, VLLM
from lockcache.layouts.folders.warp import WARP
from lockcache.layouts.openat import folder, join, opened_root, status_in, statuses_in, unlink_in
from lockcache.layouts.registry import GUESTS
from lockcache.layouts.tree_scan import names_of
from lockcache.layouts.triton_scan import GROUP_PREFIX, is_key
from lockcache.lowlevel import Found, Layout, all_entries

T = TypeVar("T")

# Folders, the state, a status, some shards' locks.
_ENTRIES: Final = 64
# A lock for each of 256 shards, and what they lie in.
_MOST_ROUNDS: Final = 16
_METADATA: Final = (*WARP.metadata, *TILELANG.metadata)


def with_room(root: str, program: str, work: Callable[[], T], *, settle_seconds: float = 0.0) -> T:
    """Returns what ``work`` returns, for which entries go if the disk is full. ``program``: the layout.

    Raises :class:`OSError`, as of a full disk where nothing can go that was not changed in the last ``settle_seconds``.
    """
    for _ in range(_MOST_ROUNDS):
        try:
            return work()
        except OSError as error:
            if error.errno not in DISK_FULL or not _remove_some(root, program, settle_seconds):
                raise
    return work()


def _remove_some(root: str, program: str, settle_seconds: float) -> bool:
    """Unlink files of the least recently used entries. Returns whether there were any."""
    guest = GUESTS.get(program)
    if guest is None:
        settle_seconds = 0.0  # what is whole is renamed into place, here and by cuda.core
    found = all_entries(Layout(root)) if guest is None else guest.view_entries(root, lambda: None)
    removed = False
    if program == VLLM.name:
        return _remove_one_hash(root, [each for each in found if each.inode], settle_seconds)
    with opened_root(root) as root_fd:
        for each in heapq.nsmallest(_ENTRIES, (each for each in found if each.inode)):
            path, names_in = _place_of(program, each)
            with folder(root_fd, path) as fd:
                if fd is not None:
                    removed |= _unlink(fd, names_in(fd), settle_seconds)
            if program != "files":  # whose folders stay
                _remove_empty(root_fd, path)
    return removed


def _remove_one_hash(root: str, found: list[Found], settle_seconds: float) -> bool:
    """Unlink all of the least recently used hash that is at rest. Returns whether there was one.

    First goes what tells vLLM that a rank was compiled. One is enough: it has gigabytes.
    """
    with opened_root(root) as root_fd:
        for each in sorted(found):
            entry = look(root_fd, VLLM, each.name)
            if entry is None or not may_go(root_fd, entry, settle_seconds):
                continue
            folders, files = _tree_of(root_fd, each.name)
            for path, name in sorted(files, key=lambda file: file[1] != COMPILED):
                with folder(root_fd, path) as fd:
                    if fd is not None:
                        unlink_in(fd, name)
            for path in reversed(folders):
                _remove_empty(root_fd, path)
            return True
    return False


def _tree_of(root_fd: int, path: str) -> tuple[list[str], list[tuple[str, str]]]:
    """Returns the folders of a tree, each before those in it, and its files by folder and name."""
    folders, files = [path], []
    for above in folders:
        with folder(root_fd, above) as fd:
            for name, status in () if fd is None else statuses_in(fd):
                if stat.S_ISDIR(status.st_mode):
                    folders.append(join(above, name))
                else:
                    files.append((above, name))
    return folders, files


def _place_of(program: str, found: Found) -> tuple[str, Callable[[int], Iterable[str]]]:
    """Returns the folder of an entry's files, and which of those in the open folder go, the first of them first."""
    name = found.name
    if program == "triton" or (program == NAME and is_key(os.path.basename(name))):
        return name, lambda fd: [file for file in os.listdir(fd) if file.startswith(GROUP_PREFIX)]
    if program in (WARP.name, TILELANG.name) or (program == NAME and GRAPHS.is_path(name)):
        return name, lambda fd: sorted(os.listdir(fd), key=_is_no_metadata)
    if program in (NAME, "files"):
        return os.path.dirname(name), lambda fd: names_of(fd, name)
    if program == "pyptx":
        return "", lambda _: [f"{name}.{suffix}" for suffix in ("json", "ptx", "cubin")]
    return f"entries/{name[:2]}", lambda _: [name[2:]]


def _remove_empty(root_fd: int, path: str) -> None:
    """Remove what is a folder's, where nothing else is in it. No link is followed on the way to it."""
    above, _, name = path.rpartition("/")
    with folder(root_fd, above) as fd, contextlib.suppress(OSError):
        if fd is not None:
            os.rmdir(name, dir_fd=fd)


def _is_no_metadata(file: str) -> bool:
    return not file.endswith(_METADATA)


def _unlink(folder_fd: int, names: Iterable[str], settle_seconds: float) -> bool:
    removed, now = False, time.time()
    for name in names:
        status = status_in(folder_fd, name)
        if status is None or abs(now - status.st_ctime) < settle_seconds:
            continue
        with contextlib.suppress(IsADirectoryError):
            unlink_in(folder_fd, name)
            removed = True
    return removed
