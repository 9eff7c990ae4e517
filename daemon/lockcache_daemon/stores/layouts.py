# SPDX-License-Identifier: Apache-2.0
"""Layouts: which store manages a directory of each layout, and how it is viewed without being changed.

Layouts of other programs are all managed alike (:mod:`.foreign`), by their rows in :data:`lockcache.layouts.GUESTS`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final

from lockcache.layouts import (
    GUESTS,
    WITH_ALL_IN_THEM,
    WrongLayoutError,
    guests_in,
    has_entries,
    recognise,
    refuse_parts,
    refuse_unless_cache,
)
from lockcache_daemon.stores.foreign import ForeignStore
from lockcache_daemon.stores.protocol import OpenStore
from lockcache_daemon.stores.sharded import ShardStore
from lockcache_daemon.stores.views import View, view_guest, view_lockcache


def choose_layout(root: str, wanted: str, warn: Callable[[str], None], *, has_namespaces: bool = False) -> str:
    """Returns the layout of ``root``: the one that the operator wants, or, for ``auto``, the one that is recognised.

    ``has_namespaces``: whether there are budgets of namespaces, which only lockcache's own entries state.

    Raises :class:`WrongLayoutError`, :class:`NotACacheError`, and :class:`OSError` for a directory that cannot be read.
    """
    layout = _choose(root, wanted, warn)
    if has_namespaces and layout in GUESTS:
        warn(f"{root} is of layout {layout}, whose files state no namespace: --namespaces has no effect there")
    return layout


def _choose(root: str, wanted: str, warn: Callable[[str], None]) -> str:
    if wanted in ("lockcache", "cuda.core"):
        return wanted
    if wanted == "auto":
        layout, others = recognise(root)
        for other in others:
            warn(
                f"{root} holds both entries/ and files of {other}: only entries/ is managed; --layout {other} for the "
                "others"
            )
        return layout
    refuse_parts(root)
    if wanted in WITH_ALL_IN_THEM:
        refuse_unless_cache(root, wanted)
    guests = guests_in(root)
    if has_entries(root) and wanted not in guests:
        raise WrongLayoutError(
            f"{root} holds entries/ of lockcache or cuda.core and nothing of {wanted}; use --layout auto"
        )
    if guests and wanted not in guests:
        raise WrongLayoutError(f"{root} is of layout {guests[0]}, whose files go together; use --layout {guests[0]}")
    return wanted


def store_of(layout: str) -> OpenStore:
    """Returns the function that opens a directory of this layout."""
    return _STORES[layout]


def view(layout: str) -> View:
    """Returns the view of ``--dry-run`` on a directory of this layout."""
    return _VIEWS[layout]


_STORES: Final[dict[str, OpenStore]] = {
    "lockcache": ShardStore,
    "cuda.core": ShardStore,
    **{name: partial(ForeignStore, guest) for name, guest in GUESTS.items()},
}

_VIEWS: Final[dict[str, View]] = {
    "lockcache": view_lockcache,
    "cuda.core": view_lockcache,
    **{name: partial(view_guest, guest.view_entries) for name, guest in GUESTS.items()},
}
