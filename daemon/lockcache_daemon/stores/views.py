"""Views: what a directory of each layout holds, gathered without changing or locking anything.

For ``--dry-run``. Works next to a running daemon, and on directories that may only be read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

from lockcache.filestream.accounting import total_of
from lockcache.filestream.eviction import Need, choose_of_all
from lockcache.integrations.pyptx_files import guest_layout
from lockcache.integrations.pyptx_scan import scan
from lockcache.integrations.pyptx_staged import staged_bytes
from lockcache.lowlevel import (
    Found,
    Layout,
    Priority,
    Slot,
    all_entries,
    choose_victims,
    measured,
)
from lockcache_daemon.signals import StopSignals
from lockcache_daemon.stores import tree, triton
from lockcache_daemon.stores.protocol import measure

__all__ = ["View", "view_files", "view_lockcache", "view_pyptx", "view_triton"]


class Seen(NamedTuple):
    """A directory, as one may look at it without opening it."""

    layout: Layout
    measure: Callable[[], Slot]
    victims: Callable[[Need, Priority], list[Found]]
    #: The whole ones.
    entries: Callable[[], Iterable[Found]]


#: Of a root. What is seen raises :class:`Stopped`.
View = Callable[[str, StopSignals], Seen]


def view_lockcache(root: str, stop: StopSignals) -> Seen:
    """lockcache's own layout, and cuda.core's."""
    layout = Layout(root)
    return Seen(
        layout,
        lambda: _measure(layout, stop),
        lambda need, priority: choose_of_all(layout, need, stop.is_set, priority),
        lambda: all_entries(layout, stop.is_set),
    )


def view_pyptx(root: str, stop: StopSignals) -> Seen:
    """pyptx's layout."""
    return _view_guest(root, lambda: scan(root, stop.raise_if_set))


def view_triton(root: str, stop: StopSignals) -> Seen:
    """Triton's layout."""
    return _view_guest(root, lambda: triton.view_entries(root, stop.raise_if_set))


def view_files(root: str, stop: StopSignals) -> Seen:
    """Any tree of files. Looking raises :class:`NotACacheError` for one that is not a cache."""
    return _view_guest(root, lambda: tree.view_entries(root, stop.raise_if_set))


def _view_guest(root: str, entries: Callable[[], Iterable[Found]]) -> Seen:
    layout = guest_layout(root)
    return Seen(
        layout,
        lambda: measure(entries(), staged_bytes(layout)).slot,
        # Whatever the priority: nobody records there what compiling cost.
        lambda need, _: choose_victims(_whole(entries()), need.bytes, 0, need.entries)[0],
        lambda: _whole(entries()),
    )


def _whole(entries: Iterable[Found]) -> Iterable[Found]:
    return (found for found in entries if found.inode)


def _measure(layout: Layout, stop: StopSignals) -> Slot:
    return total_of(measured(layout, lambda stored_bytes: stop.raise_if_set(), stop.raise_if_set))
