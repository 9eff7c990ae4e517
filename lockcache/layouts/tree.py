"""Any tree of files, kept under a cap: each file is an entry (:mod:`.tree_scan`). Only if an operator asks for it.

Keeps the promise that nothing is removed but what was seen to be an entry, and not what changed in the last
``settle_seconds`` (it may be half written: many programs write under the final name), nor what was used since it was
chosen. JAX's pairs go under JAX's own lock, if it has one. Folders stay.

Not promised: that the program survives losing a file between asking for it and opening it. It would have to survive
that anyway if another of its processes removed a file; and the evicted files are the least recently used.
"""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Callable, Iterable, Iterator
from typing import Final

from filelock import lock_descriptor

from lockcache.errors import LockTimeoutError
from lockcache.filestream.disk import UPDATE
from lockcache.layouts.openat import folder, opened_root, status_in, unlink_in
from lockcache.layouts.own_folder import GuestFiles
from lockcache.layouts.tree_scan import Tree, changed_ns, look, names_of, scan
from lockcache.lowlevel import Found

# A stat of each at every tick: 0.3 ms. Those that changed last are where the next file is most likely to come.
_MOST_WATCHED: Final = 256

_JAX_LOCK: Final = ".lockfile"


class TreeFiles(GuestFiles):
    """The entries of one tree. For one thread."""

    layout_name = "files"

    def refuse_unless_cache(self, between: Callable[[], object]) -> None:
        """Raises :class:`NotACacheError` if anything in the tree is what no cache holds. Makes and changes nothing."""
        for _ in self.scan(between):
            pass

    def scan(self, between: Callable[[], object] = lambda: None) -> Iterator[Found]:
        """Yields the entries of the tree: see :func:`.tree_scan.scan`."""
        folders: list[Tree] = []
        yield from scan(self._root_fd, self.root, folders, between)
        latest = sorted(folders, key=lambda each: each.mtime_ns, reverse=True)
        self._watched = [each.path for each in latest[:_MOST_WATCHED]]

    def evict(self, found: Found) -> bool:
        """Remove an entry if it is unchanged since the scan and at rest. Returns whether it was removed.

        Raises :class:`LockTimeoutError` where JAX holds its lock, and :class:`OSError`.
        """
        with folder(self._root_fd, os.path.dirname(found.name)) as fd:
            if fd is None:
                return False
            names = names_of(found.name)
            with _lock_of(fd, self.root, len(names) > 1):
                if look(fd, found.name) != found or not self._is_at_rest(fd, found.name):
                    return False
                for name in names:
                    unlink_in(fd, name)
        return True

    def _is_at_rest(self, folder_fd: int, path: str) -> bool:
        return self._has_rested(changed_ns(folder_fd, path), self.settle_seconds)

    def _names_of(self, name: str) -> Iterable[str]:
        return names_of(name)


def view_entries(root: str, between: Callable[[], object]) -> Iterator[Found]:
    """Yields every entry, and changes nothing."""
    with opened_root(root) as fd:
        yield from scan(fd, root, [], between)


@contextlib.contextmanager
def _lock_of(folder_fd: int, root: str, is_pair: bool) -> Iterator[None]:
    """Hold JAX's lock, if this is a pair and there is a lock: JAX makes none if only lockcache bounds the cache."""
    fd = -1
    try:
        if is_pair:
            status = status_in(folder_fd, _JAX_LOCK)
            if status is not None and stat.S_ISREG(status.st_mode):
                with contextlib.suppress(FileNotFoundError):
                    fd = os.open(_JAX_LOCK, UPDATE, dir_fd=folder_fd)
        if fd >= 0 and not lock_descriptor(fd, blocking=False):
            raise LockTimeoutError(f"{_JAX_LOCK} of {root} is held by JAX", root)
        yield
    finally:
        if fd >= 0:
            os.close(fd)  # which unlocks
