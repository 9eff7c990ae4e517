# SPDX-License-Identifier: Apache-2.0
"""The entries of a cache of folders, kept while its program uses it: each goes whole, by one rename.

Keeps the promise that no process sees a part of an entry: its folder is renamed into ``lockcache/condemned`` and then
removed, and what a process has opened stays readable. Nothing goes that changed in the last ``settle_seconds``: the
programs move a finished folder into place, and some add files to it afterwards, without a lock.

Death between the rename and the removal leaves a folder in ``condemned/`` that the next daemon removes (invariant 5,
death is free). Not promised: that a program survives losing an entry between asking for its files and opening them, a
millisecond later. The programs' own modules say which of them do.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import time
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import Final

from filelock import lock_descriptor

from lockcache.layouts.folders.scan import EntryFolder, Program, look, scan
from lockcache.layouts.openat import find_homes, folder, join, opened_root, status_in, unlink_in
from lockcache.layouts.own_folder import GuestFiles
from lockcache.layouts.protocol import THREADS, described, is_same
from lockcache.lowlevel import Described, Found

# Files of a killed compiler stay for so long: no kernel takes longer.
_COMPILING_SECONDS: Final = 3600.0

# A stat of each at every tick. Those that changed last are where the next file is most likely to come.
_MOST_WATCHED: Final = 256

# Names of one folder that are held in memory.
_AT_ONCE: Final = 4096

_log = logging.getLogger("lockcache")

# A file server takes an exclusive lock only of a file that is open for writing.
_LOCK_FILE: Final = os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
# Gone, or no file: nobody holds it.
_NO_LOCK: Final = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.EISDIR, errno.ENXIO)


class FolderFiles(GuestFiles):
    """The entries of one cache of a program. For one thread, but for evictions."""

    evicting_threads = THREADS

    def __init__(self, program: Program, root: str, settle_seconds: float) -> None:
        """Open ``root``, made (mode 0700) if it is missing. Raises as :func:`open_guest`."""
        super().__init__(root, settle_seconds)
        self.layout_name = program.name
        self._program = program
        # What could not be removed, and was reported.
        self._stubborn: set[str] = set()

    def prepare(self) -> None:
        """Make what is missing of our own directories, and remove what a dead daemon had condemned."""
        super().prepare()
        self._make_condemned()
        self._remove_condemned()

    def scan(self, between: Callable[[], object] = lambda: None) -> Iterator[Found]:
        """Yields every entry's folder. The inode is 0 for one that is not a whole entry."""
        changed: list[tuple[int, str]] = []
        for entry in scan(self._root_fd, self._program, between):
            changed.append((entry.folder_mtime_ns, entry.found.name))
            yield entry.found
        latest = [name for _, name in sorted(changed, reverse=True)[:_MOST_WATCHED]]
        self._watched = [*find_homes(self._root_fd, self._program.homes)[1], *latest]

    def evict(self, found: Found) -> bool:
        """Remove an entry if it is unchanged and at rest. Returns whether it was removed. Raises :class:`OSError`."""
        entry = look(self._root_fd, self._program, found.name)
        if entry is None or not is_same(entry.found, found) or not self._rests(entry, self.settle_seconds):
            return False
        return not _is_locked(self._root_fd, entry) and self._take(entry)

    def reap(self, names: Iterable[str]) -> None:
        """Remove what dead daemons left staged, and among ``names`` what long dead compilers left."""
        super().reap(names)
        self._remove_condemned()
        for name in names:
            entry = look(self._root_fd, self._program, name)
            if entry is not None and not entry.found.inode and self._rests(entry, _COMPILING_SECONDS):
                self._take(entry)

    def _remove_condemned(self) -> None:
        """Remove what a dead daemon had condemned, and what could not be removed when it was evicted.

        That counts as long as it is there, and each walk tries again. A warning for each, and one more at each start.
        """
        with self._condemned_if_there() as condemned_fd:
            if condemned_fd is None:
                return
            for name in os.listdir(condemned_fd):
                try:
                    _remove(condemned_fd, name)
                except OSError as error:  # the rest can go, and the daemon has to start
                    if name not in self._stubborn:
                        _log.warning("%s: what was evicted stays in lockcache/condemned/%s: %s", self.root, name, error)
                    self._stubborn.add(name)

    def _rests(self, entry: EntryFolder, seconds: float) -> bool:
        wanted = seconds if entry.is_finished else max(seconds, _COMPILING_SECONDS)
        return self._has_rested(entry.changed_ns, max(wanted, self.settle_seconds))

    def _take(self, entry: EntryFolder) -> bool:
        """Rename an entry's folder away, and remove it. Returns whether it was still the one that was seen."""
        home, name = os.path.split(entry.found.name)
        gone = _new_name()
        with folder(self._root_fd, home) as home_fd, self._condemned() as condemned_fd:
            if home_fd is None:
                return False
            try:
                os.rename(name, gone, src_dir_fd=home_fd, dst_dir_fd=condemned_fd)
            except FileNotFoundError:
                return False
            status = status_in(condemned_fd, gone)
            if status is not None and status.st_ino != entry.inode:  # a compiler has just put another there
                os.rename(gone, name, src_dir_fd=condemned_fd, dst_dir_fd=home_fd)
                return False
            _remove(condemned_fd, gone)
        return True


def view_entries(program: Program, root: str, between: Callable[[], object]) -> Iterator[Found]:
    """Yields every entry's folder, and changes nothing."""
    with opened_root(root) as fd:
        for entry in scan(fd, program, between):
            yield entry.found


def describe_entry(program: Program, root: str, found: Found) -> Described:
    """Returns the description of an entry by its name and its files."""
    with opened_root(root) as root_fd:
        entry = look(root_fd, program, found.name)
        with folder(root_fd, found.name) as fd:
            if entry is None or fd is None:
                return described(found)
            arch, label = program.describe(fd, entry)
    return described(found, kind=program.kind(entry.files), arch=arch, label=label)


def may_go(root_fd: int, entry: EntryFolder, settle_seconds: float) -> bool:
    """Returns whether an entry is at rest by the clock of this host, and no lock in it is held."""
    wanted = settle_seconds if entry.is_finished else max(settle_seconds, _COMPILING_SECONDS)
    return abs(time.time_ns() - entry.changed_ns) >= wanted * 1e9 and not _is_locked(root_fd, entry)


def _is_locked(root_fd: int, entry: EntryFolder) -> bool:
    """Returns whether a process holds one of the locks in an entry's folder."""
    for path in entry.locks:
        above, _, name = path.rpartition("/")
        with folder(root_fd, join(entry.found.name, above) if above else entry.found.name) as fd:
            if fd is not None and _is_held(fd, name):
                return True
    return False


def _is_held(folder_fd: int, name: str) -> bool:
    """Returns whether a lock is held. One that cannot be tried counts as held: its owner may be at work."""
    for access in (os.O_RDWR, os.O_RDONLY):  # the second for a file of another user's
        try:
            fd = os.open(name, access | _LOCK_FILE, dir_fd=folder_fd)
        except OSError as error:
            if error.errno in _NO_LOCK:
                return False
            continue
        try:
            return not lock_descriptor(fd, blocking=False)
        except OSError:
            return True
        finally:
            os.close(fd)  # which unlocks
    return True


def _new_name() -> str:
    """Returns a name for what is condemned. Not of this process's number, which in a container is always the same."""
    return os.urandom(8).hex()


def _remove(condemned_fd: int, name: str) -> None:
    """Remove a folder with all that is in it. Raises :class:`OSError`.

    Folders in it come up first, next to it, so that it may be of any depth, and what a death leaves is found.
    """
    left = [name]
    while left:
        name = left.pop()
        with folder(condemned_fd, name) as fd:
            if fd is None:
                continue
            left += _empty(fd, condemned_fd)
        with contextlib.suppress(FileNotFoundError):  # another of our processes removes it, too
            os.rmdir(name, dir_fd=condemned_fd)


def _empty(fd: int, condemned_fd: int) -> list[str]:
    """Remove the files in an open folder, and move its folders. Returns their new names."""
    moved = []
    while listed := _some_in(fd):
        for name, is_folder in listed:
            if is_folder:
                new_name = _new_name()
                with contextlib.suppress(FileNotFoundError):
                    os.rename(name, new_name, src_dir_fd=fd, dst_dir_fd=condemned_fd)
                    moved.append(new_name)
            else:
                unlink_in(fd, name)
    return moved


def _some_in(fd: int) -> list[tuple[str, bool]]:
    with os.scandir(fd) as listed:
        return [(each.name, each.is_dir(follow_symlinks=False)) for each in islice(listed, _AT_ONCE)]
