# SPDX-License-Identifier: Apache-2.0
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
from contextlib import AbstractContextManager
from typing import Final

from filelock import lock_descriptor

from lockcache.errors import LockTimeoutError
from lockcache.filestream.disk import UPDATE
from lockcache.layouts.openat import folder, join, opened_root, status_in, unlink_in
from lockcache.layouts.own_folder import GuestFiles
from lockcache.layouts.protocol import is_same
from lockcache.layouts.tree_scan import CODE, PAIR, Tree, changed_ns, look, names_of, scan
from lockcache.lowlevel import Found

# A stat of each at every tick: 0.3 ms. Those that changed last are where the next file is most likely to come.
_MOST_WATCHED: Final = 256

_JAX_LOCK: Final = ".lockfile"
_INDUCTOR_LOCKS: Final = "locks"


class TreeFiles(GuestFiles):
    """The entries of one tree. For one thread."""

    layout_name = "files"

    def __init__(
        self, root: str, settle_seconds: float, passes_over: Callable[[str], bool] = lambda path: False
    ) -> None:
        """Open ``root``, made (mode 0700) if it is missing. Raises as :func:`open_guest`.

        Folders with a path that ``passes_over`` are another layout's.
        """
        super().__init__(root, settle_seconds)
        self._passes_over = passes_over
        #: The folders of the last scan.
        self.folders: list[Tree] = []

    def refuse_unless_cache(self, between: Callable[[], object]) -> None:
        """Raises :class:`NotACacheError` if anything in the tree is what no cache holds. Makes and changes nothing."""
        for _ in self.scan(between):
            pass

    def scan(self, between: Callable[[], object] = lambda: None) -> Iterator[Found]:
        """Yields the entries of the tree: see :func:`.tree_scan.scan`."""
        self.folders = []
        yield from scan(self._root_fd, self.root, self.folders, between, self._passes_over)
        latest = sorted(self.folders, key=lambda each: each.mtime_ns, reverse=True)
        self._watched = [each.path for each in latest[:_MOST_WATCHED]]

    def evict(self, found: Found) -> bool:
        """Remove an entry if it is unchanged since the scan and at rest. Returns whether it was removed.

        Raises :class:`LockTimeoutError` where JAX or Inductor hold their lock, and :class:`OSError`.
        """
        with folder(self._root_fd, os.path.dirname(found.name)) as fd:
            if fd is None:
                return False
            with self._lock_of(fd, found.name):
                names = names_of(fd, found.name)
                now = look(fd, found.name)
                if now is None or not is_same(now, found) or not self._is_at_rest(fd, found.name):
                    return False
                for name in names:
                    unlink_in(fd, name)
        return True

    def _is_at_rest(self, folder_fd: int, path: str) -> bool:
        return self._has_rested(changed_ns(folder_fd, path), self.settle_seconds)

    def _lock_of(self, folder_fd: int, path: str) -> AbstractContextManager[None]:
        """Returns the lock under which an entry goes, for a ``with`` block."""
        above, name = os.path.split(path)
        if CODE.fullmatch(name):
            return self._lock_of_code(os.path.dirname(above), name)
        return _lock_of(folder_fd, _JAX_LOCK if name.endswith(PAIR) else "", "JAX")

    @contextlib.contextmanager
    def _lock_of_code(self, above: str, name: str) -> Iterator[None]:
        with folder(self._root_fd, join(above, _INDUCTOR_LOCKS)) as fd, _lock_of(fd, f"{name}.lock", "Inductor"):
            yield

    def _names_of(self, folder_fd: int, name: str) -> Iterable[str]:
        return names_of(folder_fd, name)


def view_entries(root: str, between: Callable[[], object]) -> Iterator[Found]:
    """Yields every entry, and changes nothing."""
    with opened_root(root) as fd:
        yield from scan(fd, root, [], between)


@contextlib.contextmanager
def _lock_of(folder_fd: int | None, name: str, program: str) -> Iterator[None]:
    """Hold a program's lock, if there is one: JAX makes none if only lockcache bounds the cache."""
    fd = -1
    try:
        if folder_fd is not None and name:
            status = status_in(folder_fd, name)
            if status is not None and stat.S_ISREG(status.st_mode):
                with contextlib.suppress(FileNotFoundError):
                    fd = os.open(name, UPDATE, dir_fd=folder_fd)
        if fd >= 0 and not lock_descriptor(fd, blocking=False):
            raise LockTimeoutError(f"{name} is held by {program}", name)
        yield
    finally:
        if fd >= 0:
            os.close(fd)  # which unlocks
