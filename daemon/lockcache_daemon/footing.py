"""Whether a directory is still what was opened: as safe as then.

Keeps the promise of :mod:`lockcache.filestream.safety` over time: a daemon runs for months, and a directory that
somebody opens to others meanwhile (chmod, chown) is not swept, counted or verified until that is mended. What is looked
at is the root and the folders that are checked at an opening, by their modes and owners: five stats a tick, 7 us.

Not promised: that a shard's own folder is looked at, which is out of others' reach below a private root; nor that
nothing was planted between two looks. What is there is verified before it is served, as ever.
"""

from __future__ import annotations

import os
from collections.abc import Callable

from lockcache.filestream.layout import Layout

__all__ = ["Footing"]

_Look = tuple[tuple[int, int, int, int] | None, ...]


class Footing:
    """One directory that is open. ``refuse`` raises what opening it now would raise."""

    def __init__(self, layout: Layout, refuse: Callable[[], object]) -> None:
        self._layout = layout
        self._refuse = refuse
        self._seen: _Look = ()
        #: Whether it was safe when it was looked at last.
        self.is_safe = True

    def check(self) -> None:
        """Raises what ``refuse`` does, as long as it does."""
        look = self._look()
        if look == self._seen:
            return
        self.is_safe = False
        self._refuse()
        self.is_safe, self._seen = True, look

    def _look(self) -> _Look:
        # The root may be reached through a symlink.
        root, *below = self._layout.directories()
        return (_of(root, follow_symlinks=True), *(_of(path) for path in below))


def _of(path: str, *, follow_symlinks: bool = False) -> tuple[int, int, int, int] | None:
    try:
        status = os.stat(path, follow_symlinks=follow_symlinks)
    except (FileNotFoundError, NotADirectoryError):
        return None
    return status.st_mode, status.st_uid, status.st_gid, status.st_ino
