# SPDX-License-Identifier: Apache-2.0
"""Views: what a directory of each layout holds, read without changing or locking anything.

For ``--dry-run``. Works next to a running daemon, and on directories that may only be read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import NamedTuple

from lockcache.filestream.accounting import total_of
from lockcache.filestream.eviction import Need, choose_of_all, stated_limit_bytes, unpinned
from lockcache.filestream.inspect import name_namespace
from lockcache.integrations.pyptx_directory import guest_layout
from lockcache.integrations.staged import staged_bytes
from lockcache.layouts import measure
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


class Seen(NamedTuple):
    """A directory that is read without being opened."""

    layout: Layout
    measure: Callable[[], Slot]
    victims: Callable[[Need, Priority], list[Found]]
    #: Every whole entry.
    entries: Callable[[], Iterable[Found]]
    #: The namespace of an entry; empty where entries state none.
    namespace_of: Callable[[Found], str]


#: Views the directory at a path. The functions of the result raise :class:`Stopped`.
View = Callable[[str, StopSignals], Seen]


def view_lockcache(root: str, stop: StopSignals) -> Seen:
    """Returns the view of a directory of lockcache's or cuda.core's layout."""
    layout = Layout(root)
    return Seen(
        layout,
        lambda: _measure(layout, stop),
        lambda need, priority: choose_of_all(layout, need, stop.is_set, priority),
        lambda: unpinned(layout, all_entries(layout, stop.is_set), stated_limit_bytes(layout)),
        partial(name_namespace, layout),
    )


def view_guest(scan: Callable[[str, Callable[[], object]], Iterable[Found]], root: str, stop: StopSignals) -> Seen:
    """Returns the view of another program's directory, whose entries ``scan`` lists."""
    layout = guest_layout(root)
    return Seen(
        layout,
        lambda: measure(scan(root, stop.raise_if_set), staged_bytes(layout)).slot,
        # Whatever the priority: other programs do not record what compiling cost.
        lambda need, _: choose_victims(_whole(scan(root, stop.raise_if_set)), need.bytes, need.entries),
        lambda: _whole(scan(root, stop.raise_if_set)),
        lambda found: "",
    )


def _whole(entries: Iterable[Found]) -> Iterable[Found]:
    return (found for found in entries if found.inode)


def _measure(layout: Layout, stop: StopSignals) -> Slot:
    return total_of(measured(layout, lambda stored_bytes: stop.raise_if_set(), stop.raise_if_set))
