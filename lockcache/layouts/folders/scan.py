"""Folders that are entries: a program's description of them, and each as it is now. Looking changes nothing."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from lockcache.filestream.disk import last_use_ns
from lockcache.layouts.openat import folder, status_in
from lockcache.lowlevel import Found


@dataclass(frozen=True)
class EntryFolder:
    """One folder as it was found."""

    #: Its path below the root; the inode is 0 where it is not a whole entry.
    found: Found
    #: The files in it, with the path of those in a folder of it, and their inodes.
    files: dict[str, int]
    inode: int
    #: When anything in it was last written, put there, or taken away: the ctime, which no copy can set.
    changed_ns: int
    folder_mtime_ns: int


@dataclass(frozen=True)
class Program:
    """One program's folders. All patterns are regular expressions, which the whole of a name or path has to match."""

    #: The name of the layout.
    name: str
    #: Where entries are, and where they are made: the patterns of the folders' names that lead there from the root.
    homes: tuple[tuple[str, ...], ...]
    #: The name of an entry's folder, and of one in which an entry is being made.
    folder: str
    #: The path below the root of a folder in which an entry is being made.
    unfinished: str
    #: Endings of names. A whole entry has a file with one of these, the last that is there tells its kind ...
    binaries: tuple[str, ...]
    #: ... and one with one of these.
    metadata: tuple[str, ...]
    #: The architecture and the name of a kernel, of the open folder and what was found in it.
    describe: Callable[[int, EntryFolder], tuple[str | None, str | None]]
    #: Folders that an entry may have in it. One that has others belongs to another program.
    inner: tuple[str, ...] = ()

    def is_path(self, path: str) -> bool:
        """Returns whether a folder with this path below the root is this program's."""
        *above, name = path.split("/")
        return re.fullmatch(self.folder, name, re.ASCII) is not None and any(
            len(above) == len(home) and all(re.fullmatch(*pair, re.ASCII) for pair in zip(home, above, strict=True))
            for home in self.homes
        )

    def is_whole(self, path: str, names: Iterable[str]) -> bool:
        """Returns whether a folder with these files is an entry that the program would read."""
        is_finished = re.fullmatch(self.unfinished, path, re.ASCII) is None
        return is_finished and self.kind(names) is not None and has_one(names, self.metadata)

    def kind(self, names: Iterable[str]) -> str | None:
        """Returns the kind of an entry with these files."""
        return next((ending[1:] for ending in reversed(self.binaries) if has_one(names, (ending,))), None)


def has_one(names: Iterable[str], endings: tuple[str, ...]) -> bool:
    """Returns whether one of the names has one of the endings."""
    return any(name.endswith(endings) for name in names)


def find_homes(root_fd: int, program: Program) -> tuple[list[str], list[str]]:
    """Returns the folders in which entries are, and those with all that lead to them from the root."""
    homes, passed = [], {"": None}
    for patterns in program.homes:
        paths = [""]
        for pattern in patterns:
            paths = [path for above in paths for path in _folders_in(root_fd, above, pattern)]
            passed.update(dict.fromkeys(paths))
        homes += paths
    return homes, [*passed]


def scan(root_fd: int, program: Program, between: Callable[[], object] = lambda: None) -> Iterator[EntryFolder]:
    """Yields every entry's folder, in no order. ``between`` is called before each, and may raise to give up."""
    for home in find_homes(root_fd, program)[0]:
        for path in _folders_in(root_fd, home, program.folder):
            between()
            seen = look(root_fd, program, path)
            if seen is not None:
                yield seen


def look(root_fd: int, program: Program, path: str) -> EntryFolder | None:
    """Returns an entry's folder as it is now; ``None`` if there is none, or one that the program never made."""
    if not program.is_path(path):
        return None
    with folder(root_fd, path) as fd:
        statuses = None if fd is None else _statuses_in(fd, program.inner)
        if fd is None or statuses is None:
            return None
        itself = os.fstat(fd)
    files = {name: status for name, (status, is_folder) in statuses.items() if not is_folder}
    changed_ns = max(status.st_ctime_ns for status in (itself, *(status for status, _ in statuses.values())))
    return EntryFolder(
        Found(
            max(map(last_use_ns, files.values()), default=itself.st_mtime_ns),
            path,
            sum(status.st_size for status in files.values()),
            itself.st_ino if program.is_whole(path, files) else 0,
        ),
        {name: files[name].st_ino for name in sorted(files)},
        itself.st_ino,
        changed_ns,
        itself.st_mtime_ns,
    )


def _statuses_in(fd: int, inner: tuple[str, ...]) -> dict[str, tuple[os.stat_result, bool]] | None:
    """Returns the status of all in a folder, and whether it is a folder; ``None`` if one of another name is in it."""
    statuses = {}
    with os.scandir(fd) as listed:
        for each in listed:
            is_folder = each.is_dir(follow_symlinks=False)
            if is_folder and each.name not in inner:
                return None
            status = status_in(fd, each.name)
            if status is not None:
                statuses[each.name] = status, is_folder
    for name in [name for name, (_, is_folder) in statuses.items() if is_folder]:
        with folder(fd, name) as below_fd:
            below = {} if below_fd is None else _statuses_in(below_fd, ())
        if below is None:
            return None
        statuses.update({f"{name}/{file}": found for file, found in below.items()})
    return statuses


def _folders_in(root_fd: int, path: str, pattern: str) -> list[str]:
    """Returns the paths of the folders in a folder whose names match."""
    with folder(root_fd, path) as fd:
        if fd is None:
            return []
        with os.scandir(fd) as listed:
            names = [
                each.name
                for each in listed
                if re.fullmatch(pattern, each.name, re.ASCII) and each.is_dir(follow_symlinks=False)
            ]
    return [f"{path}/{name}" if path else name for name in names]
