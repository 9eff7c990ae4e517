"""Which program's directory it is, and so how it is kept and rehearsed.

Decides by what is in it, and only where that is clear; an empty directory is lockcache's own. A further layout is a
name in :data:`.settings.LAYOUTS`, a sign to recognise it by, and an implementation of :class:`.files.Files`.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from typing import Final

from lockcache.errors import LockcacheError
from lockcache.filestream.layout import Layout
from lockcache.integrations.pyptx_files import PyptxFiles, guest_layout
from lockcache.integrations.pyptx_scan import parse_name
from lockcache_daemon.rehearsal import View, view_lockcache, view_pyptx
from lockcache_daemon.shards import open_shards
from lockcache_daemon.store import Opening, OpenStore
from lockcache_daemon.walking import WalkedStore

__all__ = ["WrongLayoutError", "choose_layout", "store_of", "view"]

# Writers hold a lock for some 100 us. Short, because a signal has to be heard within a second while one hangs with it.
_LOCK_TIMEOUT_SECONDS: Final = 0.02


class WrongLayoutError(LockcacheError):
    """The operator named a layout, and the directory is plainly another's."""


def choose_layout(root: str, wanted: str, warn: Callable[[str], None]) -> str:
    """The layout of ``root``: what the operator wants, or, for ``auto``, what is recognised.

    Raises :class:`WrongLayoutError`, and :class:`OSError` for a directory that cannot be read.
    """
    if wanted == "lockcache":
        return wanted
    has_pyptx, has_entries = _is_pyptx(root), _has_any(Layout(root).entries)
    if wanted == "pyptx" and has_entries and not has_pyptx:
        raise WrongLayoutError(
            f"{root} holds entries/ of lockcache or cuda.core and nothing of pyptx; use --layout auto"
        )
    if wanted == "pyptx":
        return wanted
    if has_pyptx and has_entries:
        warn(f"{root} holds both entries/ and files of pyptx: only entries/ is kept; --layout pyptx for the others")
    return "pyptx" if has_pyptx and not has_entries else "lockcache"


def store_of(layout: str) -> OpenStore:
    """What opens a directory of this layout."""
    return _open_pyptx if layout == "pyptx" else open_shards


def view(layout: str) -> View:
    """How ``--dry-run`` looks at a directory of this layout."""
    return view_pyptx if layout == "pyptx" else view_lockcache


def _open_pyptx(opening: Opening) -> WalkedStore:
    return WalkedStore(opening, lambda root: PyptxFiles(root, _LOCK_TIMEOUT_SECONDS))


def _is_pyptx(root: str) -> bool:
    """Whether entries of pyptx are here, or were: the adapter's folder for staged files stays when all is evicted."""
    if os.path.isdir(guest_layout(root).tmp):
        return True
    with contextlib.suppress(FileNotFoundError, NotADirectoryError), os.scandir(root) as files:
        return any(parse_name(file.name) is not None for file in files)
    return False


def _has_any(folder: str) -> bool:
    with contextlib.suppress(FileNotFoundError, NotADirectoryError), os.scandir(folder) as files:
        return next(files, None) is not None
    return False
