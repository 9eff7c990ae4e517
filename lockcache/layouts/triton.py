# SPDX-License-Identifier: Apache-2.0
"""A Triton cache (``~/.triton/cache``), kept while Triton uses it: a key's directory is one entry and goes as one.

Keeps what Triton's own code takes for granted. It has no locks. A reader looks whether ``__grp__NAME.json`` is there,
then whether each file that it lists is, and then reads them; a file that goes between the last two is an exception in
the middle of somebody's training run. So an entry goes in two steps:

1. Its group file is renamed away, into ``lockcache/condemned/KEY``. From then on the key is a miss to Triton, which
   compiles into the same directory and replaces whatever is there, file by file.
2. After ``_READING_SECONDS``, when every reader that had seen the group file has read the rest, what else was there is
   removed, unless a compiler has come back to it.

Renaming the whole directory away at once, which looks safer, is not: it takes the files from readers of step 1, and a
compiler that is between making its staging folder and renaming out of it loses both. Only the empty directory that is
left is removed as such, which fails where a compiler has put anything in.

Nothing is evicted that changed in the last ``settle_seconds``, and nothing that a compiler is at work in (another
process may still compile a key that the first one has published, and reads back all that it wrote at its end).

Death between any two steps leaves an entry, or none and a name in ``condemned/`` that the next daemon finishes
(invariant 5, death is free). Not promised: that Triton survives on a file system where a reader needs longer than
``_READING_SECONDS`` for the files of one kernel, or a compiler, after its last file, longer than ``settle_seconds``.
"""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Callable, Iterable, Iterator
from itertools import islice, takewhile
from typing import Final

from lockcache.layouts.openat import (
    NOT_A_FOLDER,
    ROOT,
    Homes,
    find_homes,
    folder,
    is_home,
    opened_root,
    status_in,
    unlink_in,
)
from lockcache.layouts.own_folder import GuestFiles
from lockcache.layouts.protocol import THREADS, described, is_same, mapping
from lockcache.layouts.triton_scan import GROUP_PREFIX, KeyFolder, is_key, look, scan
from lockcache.lowlevel import Described, Found

# Reading the files of one kernel takes a millisecond. A process that lost its core or its file server to others for
# longer than that gets an exception; each second is one during which evicted bytes are still on the disk.
_READING_SECONDS: Final = 2.0

# No ptxas takes longer. Files of a killed compiler stay for as long.
_COMPILING_SECONDS: Final = 3600.0

# Keys whose step 2 is done between two looks at signals.
_MOST_FINISHED: Final = 256

# Step 1 sets the mtime of the directory and the ctime of what it moved; kernels take them from a clock that may tick in
# between.
_TICK_NS: Final = 50_000_000

_MARK: Final = os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK

# The one that is launched, of each back end.
_KINDS: Final = ("cubin", "hsaco", "spv", "ptx")

# Directories in which a compiler may be at work: those in which something may come without the root's mtime telling.
_MOST_WATCHED: Final = 256


# Between the parts of a key's path in the name of what was condemned: in the names of neither homes nor keys.
_PART: Final = ","


class TritonFiles(GuestFiles):
    """The entries of one Triton cache, or of all in the ``homes`` of another program's. For one thread, but
    for evictions."""

    layout_name = "triton"
    evicting_threads = THREADS

    def __init__(self, root: str, settle_seconds: float, homes: Homes = ROOT) -> None:
        """Open ``root``, made (mode 0700) if it is missing. Raises as :func:`open_guest`."""
        super().__init__(root, settle_seconds)
        self._homes = homes
        # When each condemned key was first seen, on our own clock: that of a file server may differ. Oldest first.
        self._seen: dict[str, float] = {}

    def owns(self, path: str) -> bool:
        """Returns whether a folder with this path below the root may be a key's."""
        home, _, name = path.rpartition("/")
        return is_key(name) and is_home(home, self._homes)

    @property
    def is_pending(self) -> bool:
        """Whether evicted entries are still on the disk."""
        return bool(self._seen)

    def prepare(self) -> None:
        """Make what is missing of our own directories, and find what a dead daemon had condemned."""
        super().prepare()
        self._make_condemned()
        with self._condemned() as condemned_fd:
            for name in os.listdir(condemned_fd):
                path = name.replace(_PART, "/")
                if self.owns(path):
                    self._seen.setdefault(path, time.monotonic())

    def scan(self, between: Callable[[], object] = lambda: None) -> Iterator[Found]:
        """Yields every key's directory. The inode is 0 for one that is not an entry: unfinished, or condemned."""
        watched: list[tuple[int, str]] = []
        for key in scan(self._root_fd, self._homes, between):
            if key.is_unfinished:
                watched.append((key.changed_ns, key.found.name))
            yield key.found._replace(inode=0) if key.found.name in self._seen else key.found
        latest = [path for _, path in sorted(watched, reverse=True)[:_MOST_WATCHED]]
        self._watched = [*find_homes(self._root_fd, self._homes)[1], *latest]

    def evict(self, found: Found) -> bool:
        """Do step 1 for an entry if it is unchanged since the scan and at rest. Returns whether that was done."""
        key = look(self._root_fd, found.name)
        if key is None or not is_same(key.found, found) or not self._is_at_rest(key):
            return False
        mark = found.name.replace("/", _PART)
        with folder(self._root_fd, found.name) as fd, self._condemned() as condemned_fd:
            if fd is None:
                return False
            # What stands alone has no group file and nothing to rename: an empty file is its mark.
            if not key.groups:
                os.close(os.open(mark, _MARK, 0o600, dir_fd=condemned_fd))
            for group in key.groups:
                try:
                    os.rename(group, mark, src_dir_fd=fd, dst_dir_fd=condemned_fd)
                except FileNotFoundError:
                    return False  # the directory, or its group file, was removed by somebody else
        self._seen[found.name] = time.monotonic()
        return True

    def finish(self) -> bool:
        """Do step 2 for some of the keys condemned long enough ago. Returns whether there were any.

        Raises :class:`OSError` for what cannot be removed, after the rest. It is not tried again before the next start:
        what stays pending would keep everything else from being evicted.
        """
        latest = time.monotonic() - _READING_SECONDS
        seen = islice(self._seen.items(), _MOST_FINISHED)
        ripe = [path for path, _ in takewhile(lambda condemned: condemned[1] <= latest, seen)]
        for path in ripe:
            del self._seen[path]
        with mapping(THREADS if len(ripe) > THREADS else 1) as (mapped, _):
            failures = [error for error in mapped(self._try_to_finish, ripe) if error is not None]
        if failures:
            raise failures[-1]
        return bool(ripe)

    def _try_to_finish(self, path: str) -> OSError | None:
        try:
            self._finish(path)
        except OSError as error:
            return error
        return None

    def reap(self, names: Iterable[str]) -> None:
        """Remove what dead daemons left staged, and among ``names`` what long dead compilers left."""
        super().reap(names)
        for name in filter(self.owns, names):
            key = look(self._root_fd, name)
            if key is not None and not key.is_entry and name not in self._seen and self._is_at_rest(key):
                self._remove(key)

    def _is_at_rest(self, key: KeyFolder) -> bool:
        wanted = max(self.settle_seconds, _COMPILING_SECONDS) if key.is_unfinished else self.settle_seconds
        return self._has_rested(key.changed_ns, wanted)

    def _finish(self, name: str) -> None:
        key, mark = look(self._root_fd, name), name.replace("/", _PART)
        with self._condemned() as condemned_fd:
            status = status_in(condemned_fd, mark)
            if status is None:
                return  # lockcache's folder was emptied: the key is no longer an entry, and is reaped
            if key is not None and _is_left_alone(key, status.st_ctime_ns):
                self._remove(key)
            unlink_in(condemned_fd, mark)

    def _remove(self, key: KeyFolder) -> None:
        """Remove the files that were seen in a key's directory, and the directory if nothing else is in it by now."""
        with folder(self._root_fd, key.found.name) as fd:
            if fd is None:
                return
            for staged in key.staged:
                _remove_staged(fd, staged)
            for name, inode in key.files:
                status = status_in(fd, name)
                if status is not None and status.st_ino == inode:  # else a compiler has just replaced it
                    unlink_in(fd, name)
        home, _, own_name = key.found.name.rpartition("/")
        with folder(self._root_fd, home) as home_fd:
            if home_fd is not None:
                _remove_empty(home_fd, own_name)


def view_entries(root: str, between: Callable[[], object], homes: Homes = ROOT) -> Iterator[Found]:
    """Yields every key's directory, and changes nothing."""
    with opened_root(root) as fd:
        for key in scan(fd, homes, between):
            yield key.found


def describe_entry(root: str, found: Found) -> Described:
    """Returns the description of an entry by the names of its files: its group file has the kernel's name."""
    with opened_root(root) as fd:
        key = look(fd, found.name)
    if key is None:
        return described(found)
    kinds = {name.rpartition(".")[2] for name, _ in key.files}
    label = key.groups[0].removeprefix(GROUP_PREFIX).removesuffix(".json") if key.groups else None
    return described(found, kind=next((kind for kind in _KINDS if kind in kinds), None), label=label)


def _is_left_alone(key: KeyFolder, condemned_ns: int) -> bool:
    """Returns whether no compiler came back to a key since it was condemned."""
    return not key.groups and not key.staged and key.folder_mtime_ns <= condemned_ns + _TICK_NS


def _remove_staged(folder_fd: int, name: str) -> None:
    with folder(folder_fd, name) as fd:
        if fd is not None:
            for file in os.listdir(fd):
                unlink_in(fd, file)
    _remove_empty(folder_fd, name)


def _remove_empty(folder_fd: int, name: str) -> None:
    try:
        os.rmdir(name, dir_fd=folder_fd)
    except OSError as error:
        if error.errno not in (*NOT_A_FOLDER, errno.ENOTEMPTY, errno.EEXIST):
            raise
