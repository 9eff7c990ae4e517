"""How a directory of each layout is kept and rehearsed, and which layout it is where the operator does not say.

A further layout is a name in :data:`.settings.LAYOUTS`, a sign in :mod:`.recognition`, an implementation of
:class:`.files.Files`, and a line in each of the tables here.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from lockcache_daemon.pyptx_guest import PyptxGuest
from lockcache_daemon.recognition import WrongLayoutError, guests_in, has_entries, recognise
from lockcache_daemon.rehearsal import View, view_files, view_lockcache, view_pyptx, view_triton
from lockcache_daemon.shards import open_shards
from lockcache_daemon.store import Opening, OpenStore
from lockcache_daemon.tree_files import TreeFiles
from lockcache_daemon.tree_safety import refuse_unless_cache
from lockcache_daemon.triton_files import TritonFiles
from lockcache_daemon.walking import WalkedStore

__all__ = ["choose_layout", "store_of", "view"]

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
