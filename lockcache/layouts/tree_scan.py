# SPDX-License-Identifier: Apache-2.0
"""Scan of any tree of files: each regular file is an entry, whatever program it belongs to.

Decides what counts as an entry: not a lock file (unlinking one lets two holders in), nor an empty file (a mark or a
lock of some kind, which frees no space). ``NAME-cache`` and ``NAME-atime`` are one entry: JAX's cache keeps the time of
last use in the second, and raises where it finds the first without it. ``cHASH.py``, ``cHASH.so`` and the like are one
entry: the files of one code of Inductor's. Symlinks, FIFOs, sockets and devices are
nobody's entries; folders on other file systems are not entered, and ``lockcache/`` in the root is our own. A folder
with a group file of Triton's is passed over: those files go together, under :mod:`.triton`, or not at all.

Stops with :class:`NotACacheError` where it finds what no cache holds, such as a repository or a user's keys, and in
numba's cache: without its index (``.nbi``), or next to an older one, numba takes a ``.nbc`` for another kernel.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

from lockcache.errors import LockcacheError
from lockcache.filestream.disk import last_use_ns
from lockcache.layouts.openat import Descent, disk_bytes, join, status_in
from lockcache.layouts.triton_scan import GROUP_PREFIX
from lockcache.lowlevel import Found

#: Names that show, anywhere in a tree, that it is not a cache.
PRECIOUS: Final = frozenset({".git", ".hg", ".svn", ".ssh", ".gnupg"})

#: In the order in which they are removed, under JAX's lock: it asks for the second of each of the first that it finds.
PAIR: Final = ("-cache", "-atime")

#: The hash of a code of Inductor's. All files that begin with it are one entry: source, binary, and what says that the
#: binary can be loaded.
CODE: Final = re.compile(r"c[a-z2-7]{51}(?=\.|$)", re.ASCII)

_NUMBA: Final = (".nbi", ".nbc")

_OWN: Final = "lockcache"
# Names that identify one of lockcache's own directories, whose files belong together by other rules.
_OURS: Final = frozenset({_OWN, "entries"})
_LOCKPAIR: Final = (".lock", ".lockfile")
_LOCK_NAMES: Final = ("lock", "lockfile")


class NotACacheError(LockcacheError):
    """A directory that is not plainly a cache; nothing in it is touched."""


class Tree(NamedTuple):
    """One folder of the tree."""

    path: str
    mtime_ns: int
    disk_bytes: int


def scan(
    root_fd: int,
    root: str,
    folders: list[Tree],
    between: Callable[[], object] = lambda: None,
    passes_over: Callable[[str], bool] = lambda path: False,
) -> Iterator[Found]:
    """Yields every entry; ``name`` is the path below the root, for a pair that of its ``-cache``.

    The inode is 0 in what is none and yet fills the disk. The folders that were seen are added to ``folders``.
    ``between`` is called before each folder and each file, and may raise to give up. Folders with a path that
    ``passes_over`` are another layout's. Raises :class:`OSError` and :class:`NotACacheError`.
    """
    left = [""]
    with Descent(root_fd) as descent:
        while left:
            path = left.pop()
            between()
            fd = descent.go(path)
            if fd is None:
                continue
            status = os.fstat(fd)
            folders.append(Tree(path, status.st_mtime_ns, disk_bytes(status)))
            files, below = _list(fd, root, path, between)
            paths = (join(path, name) for name in below if path or name != _OWN)
            left += [each for each in paths if not passes_over(each)]
            if not any(name.startswith(GROUP_PREFIX) for name in files):
                yield from _entries(path, files)


def look(folder_fd: int, path: str) -> Found | None:
    """Returns the entry ``path``, whose folder is open, as it is now; ``None`` if there is none."""
    files: dict[str, os.stat_result] = {}
    for name in names_of(folder_fd, path):
        status = status_in(folder_fd, name)
        if status is not None and stat.S_ISREG(status.st_mode):
            files[name] = status
    for found in _entries(os.path.dirname(path), files):
        if found.name == path:
            return found
    return None


def changed_ns(folder_fd: int, path: str) -> int:
    """Returns when the files of an entry were last written or put there: the ctime, which no copy can set."""
    statuses = (status_in(folder_fd, name) for name in names_of(folder_fd, path))
    return max((status.st_ctime_ns for status in statuses if status is not None), default=0)


def names_of(folder_fd: int, path: str) -> list[str]:
    """Returns the names of an entry's files in its open folder, in the order in which they are removed."""
    name = os.path.basename(path)
    if CODE.fullmatch(name):
        return sorted((each for each in os.listdir(folder_fd) if _split(each)[0] == name), reverse=True)
    stem, suffix = _split(name)
    return [stem + each for each in PAIR] if suffix else [stem]


def _list(fd: int, root: str, path: str, between: Callable[[], object]) -> tuple[dict[str, os.stat_result], list[str]]:
    files: dict[str, os.stat_result] = {}
    below: list[str] = []
    with os.scandir(fd) as listed:
        for each in listed:
            between()
            if each.name in PRECIOUS:
                raise NotACacheError(
                    f"{root} holds {join(path, each.name)}: that is not a cache, and no file of it is evicted. Name "
                    "the directory that a program keeps only for its cache"
                )
            if each.name.endswith(_NUMBA):
                raise NotACacheError(
                    f"{root} holds {join(path, each.name)}: numba's index and data go together, and a half that is "
                    "left has it load wrong kernels; put numba on lockcache instead: lockcache.integrations.numba"
                )
            if each.is_dir(follow_symlinks=False):
                below.append(each.name)
                continue
            status = status_in(fd, each.name)
            if status is not None and stat.S_ISREG(status.st_mode):
                files[each.name] = status
    if _OURS.issubset(below):
        raise NotACacheError(f"{os.path.join(root, path)} is a cache of lockcache's: keep it as such, and not as files")
    return files, below


def _entries(path: str, files: dict[str, os.stat_result]) -> Iterator[Found]:
    groups: dict[tuple[str, bool], dict[str, os.stat_result]] = {}
    for name, status in files.items():
        stem, suffix = _split(name)
        groups.setdefault((stem, bool(suffix)), {})[name] = status
    for (stem, is_pair), parts in groups.items():
        name = stem + PAIR[0] if is_pair and not CODE.fullmatch(stem) else stem
        is_empty = not any(status.st_size for status in parts.values())
        first_inode = parts[name].st_ino if name in parts else min(status.st_ino for status in parts.values())
        inode = 0 if is_empty or _is_lock(name) else first_inode
        size = sum(map(disk_bytes, parts.values()))
        yield Found(max(map(last_use_ns, parts.values())), join(path, name), size, inode)


def _split(name: str) -> tuple[str, str]:
    """Returns ``(stem, suffix)`` of one of a pair or of a code's files; ``(name, "")`` of all others."""
    if (code := CODE.match(name)) is not None and name != code[0]:
        return code[0], name[code.end() :]
    for suffix in PAIR:
        if name.endswith(suffix) and name != suffix:
            return name.removesuffix(suffix), suffix
    return name, ""


def _is_lock(name: str) -> bool:
    return name.endswith(_LOCKPAIR) or name in _LOCK_NAMES
