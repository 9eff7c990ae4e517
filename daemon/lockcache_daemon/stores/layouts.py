"""Layouts: which store manages a directory of each layout, and how it is viewed without being changed.

A further layout is a name in :data:`.settings.model.LAYOUTS`, a sign in :mod:`.recognise`, an implementation of
:class:`.protocol.Files`, and a line in each of the tables here. pyptx's is here too: what :class:`PyptxFiles` lacks for
a walk, since no program but the daemon asks for it.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from typing import Final

from lockcache.integrations.pyptx_files import PyptxFiles
from lockcache_daemon.stores.protocol import Opening, OpenStore
from lockcache_daemon.stores.recognise import WrongLayoutError, guests_in, has_entries, recognise, refuse_unless_cache
from lockcache_daemon.stores.sharded import open_shards
from lockcache_daemon.stores.tree import TreeFiles
from lockcache_daemon.stores.triton import TritonFiles
from lockcache_daemon.stores.views import View, view_files, view_lockcache, view_pyptx, view_triton
from lockcache_daemon.stores.walked import WalkedStore

__all__ = ["PyptxGuest", "choose_layout", "store_of", "view"]

# Writers hold a lock for some 100 us. Short, because a signal has to be heard within a second while one hangs with it.
_LOCK_TIMEOUT_SECONDS: Final = 0.02


def choose_layout(root: str, wanted: str, warn: Callable[[str], None]) -> str:
    """The layout of ``root``: what the operator wants, or, for ``auto``, what is recognised.

    Raises :class:`WrongLayoutError`, :class:`NotACacheError`, and :class:`OSError` for a directory that cannot be read.
    """
    if wanted in ("lockcache", "cuda.core"):
        return wanted
    if wanted == "auto":
        layout, others = recognise(root)
        for other in others:
            warn(
                f"{root} holds both entries/ and files of {other}: only entries/ is kept; --layout {other} for the "
                "others"
            )
        return layout
    if wanted == "files":
        refuse_unless_cache(root)
    guests = guests_in(root)
    if has_entries(root) and wanted not in guests:
        raise WrongLayoutError(
            f"{root} holds entries/ of lockcache or cuda.core and nothing of {wanted}; use --layout auto"
        )
    if guests and wanted not in guests:
        raise WrongLayoutError(f"{root} is of layout {guests[0]}, whose files go together; use --layout {guests[0]}")
    return wanted


def store_of(layout: str) -> OpenStore:
    """What opens a directory of this layout."""
    return _STORES[layout]


def view(layout: str) -> View:
    """How ``--dry-run`` looks at a directory of this layout."""
    return _VIEWS[layout]


def _open_pyptx(opening: Opening) -> WalkedStore:
    return WalkedStore(opening, lambda root: PyptxGuest(root, _LOCK_TIMEOUT_SECONDS))


def _open_triton(opening: Opening) -> WalkedStore:
    return WalkedStore(opening, lambda root: TritonFiles(root, opening.rules.settle_seconds))


def _open_files(opening: Opening) -> WalkedStore:
    def open_tree(root: str) -> TreeFiles:
        files = TreeFiles(root, opening.rules.settle_seconds)
        try:
            files.refuse_unless_cache(opening.stop.raise_if_set)
        except BaseException:
            files.close()
            raise
        return files

    return WalkedStore(opening, open_tree)


_STORES: Final[dict[str, OpenStore]] = {
    "lockcache": open_shards,
    "cuda.core": open_shards,
    "pyptx": _open_pyptx,
    "triton": _open_triton,
    "files": _open_files,
}

_VIEWS: Final[dict[str, View]] = {
    "lockcache": view_lockcache,
    "cuda.core": view_lockcache,
    "pyptx": view_pyptx,
    "triton": view_triton,
    "files": view_files,
}


class PyptxGuest(PyptxFiles):
    """As :class:`.protocol.Files`. Its writers lock and stage, so that nothing has to settle before it may go."""

    settle_seconds = 0.0

    @property
    def is_pending(self) -> bool:
        """Never: what is evicted is gone at once."""
        return False

    def finish(self) -> bool:
        """Nothing is left to do after an eviction."""
        return False

    def glance(self) -> object:
        """All files are in one folder, and every write renames into it."""
        with contextlib.suppress(FileNotFoundError):
            return os.stat(self.root).st_mtime_ns
        return 0
