# SPDX-License-Identifier: Apache-2.0
"""Folders that are entries: a program's description of them, and each as it is now. Looking changes nothing."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from lockcache.filestream.disk import last_use_ns
from lockcache.layouts.openat import Homes, disk_bytes, find_homes, folder, folders_in, is_home, join, statuses_in
from lockcache.layouts.tree_scan import PRECIOUS
from lockcache.lowlevel import Found


@dataclass(frozen=True)
class EntryFolder:
    """One folder as it was found."""

    #: Its path below the root; the inode is 0 where it is not a whole entry.
    found: Found
    #: The files in it, with the path of those in a folder of it, and their inodes.
    files: dict[str, int]
    inode: int
    #: When anything in it was last written, put there, or taken away: the ctime, which no copy can set. With whatever
    #: is in it also when it was last used.
    changed_ns: int
    folder_mtime_ns: int
    #: Whether its program has done all that it does at a start. Else it may be compiling, for as long as kernels take.
    is_finished: bool = True
    #: The paths of the lock files in it.
    locks: tuple[str, ...] = ()


@dataclass(frozen=True)
class Program:
    """One program's folders. All patterns are regular expressions, which the whole of a name or path has to match."""

    #: The name of the layout.
    name: str
    #: Where entries are, and where they are made.
    homes: Homes
    #: The name of an entry's folder, and of one in which an entry is being made.
    folder: str
    #: The path below the root of a folder in which an entry is being made.
    unfinished: str = ""
    #: Endings of names. A whole entry has a file with one of these, the last that is there tells its kind ...
    binaries: tuple[str, ...] = ()
    #: ... and one with one of these.
    metadata: tuple[str, ...] = ()
    #: The architecture and the name of a kernel, of the open folder and what was found in it.
    describe: Callable[[int, EntryFolder], tuple[str | None, str | None]] = lambda _, __: (None, None)
    #: Folders that an entry may have in it. One that has others belongs to another program.
    inner: tuple[str, ...] = ()
    #: Whether an entry has whatever is in it, as deep as programs go: caches of other programs.
    is_deep: bool = False
    #: The path below the root of something in an entry without which a folder of its name is another program's; empty:
    #: none is needed.
    mark: str = ""
    #: The path in a deep entry of a file that its program writes at the end of a start ...
    finished: str = ".*"
    #: ... in each of the folders of these names in it; empty: one is enough.
    part: str = ""

    def is_path(self, path: str) -> bool:
        """Returns whether a folder with this path below the root is this program's."""
        home, _, name = path.rpartition("/")
        return re.fullmatch(self.folder, name, re.ASCII) is not None and is_home(home, self.homes)

    def may_hold(self, path: str) -> bool:
        """Returns whether an entry may have a folder with this path in it."""
        return path.count("/") < _DEEPEST if self.is_deep else path in self.inner

    def is_whole(self, path: str, names: Iterable[str]) -> bool:
        """Returns whether a folder with these files is an entry that the program would read."""
        is_finished = re.fullmatch(self.unfinished, path, re.ASCII) is None
        return is_finished and self.kind(names) is not None and has_one(names, self.metadata)

    def kind(self, names: Iterable[str]) -> str | None:
        """Returns the kind of an entry with these files."""
        return next((ending[1:] for ending in reversed(self.binaries) if has_one(names, (ending,))), None)


# Planted ones cost no more than a walk: a deeper folder, or one with more folders side by side, is nobody's cache.
_DEEPEST: Final = 32
_MOST_FOLDERS: Final = 100_000
# Beyond these a file counts once for each of its links, and a lock is taken to be free.
_MOST_LINKED: Final = 100_000
_MOST_LOCKS: Final = 10_000
_LOCK: Final = ".lock"


def has_one(names: Iterable[str], endings: tuple[str, ...]) -> bool:
    """Returns whether one of the names has one of the endings."""
    return any(name.endswith(endings) for name in names)


def scan(root_fd: int, program: Program, between: Callable[[], object] = lambda: None) -> Iterator[EntryFolder]:
    """Yields every entry's folder, in no order. ``between`` is called often, and may raise to give up.

    A file with several links counts in the first entry that has it.
    """
    linked: set[int] = set()
    for home in find_homes(root_fd, program.homes)[0]:
        for path in folders_in(root_fd, home, re.compile(program.folder, re.ASCII)):
            seen = look(root_fd, program, path, linked, between)
            if seen is not None:
                yield seen


def look(
    root_fd: int,
    program: Program,
    path: str,
    linked: set[int] | None = None,
    between: Callable[[], object] = lambda: None,
) -> EntryFolder | None:
    """Returns an entry's folder as it is now; ``None`` if there is none, or one that the program never made.

    ``linked``: files with several links that count elsewhere.
    """
    if not program.is_path(path):
        return None
    with folder(root_fd, path) as fd:
        if fd is None:
            return None
        itself = os.fstat(fd)
        seen = _Seen(program, path, itself, set() if linked is None else linked)
        return seen.entry(path) if seen.walk(fd, between) else None


class _Seen:
    """All that was seen in an entry's folder. Of a folder with whatever is in it only sums are kept."""

    def __init__(self, program: Program, path: str, itself: os.stat_result, linked: set[int]) -> None:
        self._program = program
        self._path = path
        self._itself = itself
        self._linked = linked
        self._bytes = disk_bytes(itself)
        self._used_ns = 0
        self._changed_ns = itself.st_ctime_ns
        self._files: dict[str, int] = {}
        self._locks: list[str] = []
        self._parts: set[str] = set()
        self._finished: set[str] = set()
        self._has_mark = False

    def walk(self, fd: int, between: Callable[[], object]) -> bool:
        """Look at everything in the open folder. Returns whether it is one that the program makes."""
        left = [""]
        while left:
            path = left.pop()
            between()
            with folder(fd, path) as inner:
                if inner is None:
                    return False  # a mount, or it has just gone
                for name, status in statuses_in(inner):
                    if name in PRECIOUS:
                        return False  # somebody works in it
                    below = join(path, name)
                    if stat.S_ISDIR(status.st_mode):
                        if status.st_dev != self._itself.st_dev or not self._program.may_hold(below):
                            return False
                        left.append(below)
                    self._add(below, status)
            if len(left) > _MOST_FOLDERS:
                return False
        return self._has_mark or not self._program.mark

    def _add(self, path: str, status: os.stat_result) -> None:
        program = self._program
        self._changed_ns = max(self._changed_ns, status.st_ctime_ns)
        if status.st_nlink == 1 or stat.S_ISDIR(status.st_mode):
            self._bytes += disk_bytes(status)
        elif status.st_ino not in self._linked:
            self._bytes += disk_bytes(status)
            if len(self._linked) < _MOST_LINKED:
                self._linked.add(status.st_ino)
        if program.mark and not self._has_mark:
            self._has_mark = re.fullmatch(program.mark, join(self._path, path), re.ASCII) is not None
        if stat.S_ISDIR(status.st_mode):
            if program.part and re.fullmatch(program.part, path, re.ASCII):
                self._parts.add(path)
            return
        self._used_ns = max(self._used_ns, last_use_ns(status))
        if not program.is_deep:
            self._files[path] = status.st_ino
        elif path.endswith(_LOCK) and len(self._locks) < _MOST_LOCKS:
            self._locks.append(path)
        elif re.fullmatch(program.finished, path, re.ASCII):
            self._finished.add(path.partition("/")[0] if program.part else "")

    def entry(self, path: str) -> EntryFolder:
        program, itself = self._program, self._itself
        used_ns = self._used_ns or itself.st_mtime_ns
        is_whole = program.is_deep or program.is_whole(path, self._files)
        return EntryFolder(
            Found(used_ns, path, self._bytes, itself.st_ino if is_whole else 0),
            dict(sorted(self._files.items())),
            itself.st_ino,
            max(self._changed_ns, used_ns) if program.is_deep else self._changed_ns,
            itself.st_mtime_ns,
            not program.is_deep or (bool(self._finished) and self._parts <= self._finished),
            tuple(self._locks),
        )
