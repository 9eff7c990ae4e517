"""``--dry-run``: what a pass would evict, without touching anything.

Keeps one promise: no file and no directory is made, changed or removed, not even the policy, and no lock is taken. So
it works beside a running daemon, and on directories that may only be read.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from typing import NamedTuple

from lockcache.errors import PolicyError
from lockcache.filestream.choosing import Need
from lockcache.filestream.directory import check_directory
from lockcache.filestream.eviction import Evicted, choose_of_all, choose_victims
from lockcache.filestream.layout import SHARDS, Layout
from lockcache.filestream.policy import PolicyFile
from lockcache.filestream.priority import Priority
from lockcache.filestream.scan import Found, measure_shard
from lockcache.filestream.usage import Slot
from lockcache.integrations.pyptx_files import guest_layout
from lockcache.integrations.pyptx_scan import scan
from lockcache.integrations.pyptx_staged import staged_bytes
from lockcache_daemon import tree_files, triton_files
from lockcache_daemon.files import measure
from lockcache_daemon.report import Report
from lockcache_daemon.rules import Rules
from lockcache_daemon.signals import StopSignals

__all__ = ["View", "rehearse", "view_files", "view_lockcache", "view_pyptx", "view_triton"]


class Seen(NamedTuple):
    """A directory, as one may look at it without opening it."""

    layout: Layout
    measure: Callable[[], Slot]
    victims: Callable[[Need, Priority], list[Found]]


#: Of a root. What is seen raises :class:`Stopped`.
View = Callable[[str, StopSignals], Seen]


def view_lockcache(root: str, stop: StopSignals) -> Seen:
    """lockcache's own layout, and cuda.core's."""
    layout = Layout(root)
    return Seen(
        layout,
        lambda: _measure(layout, stop),
        lambda need, priority: choose_of_all(layout, need, stop.is_set, priority),
    )


def view_pyptx(root: str, stop: StopSignals) -> Seen:
    """pyptx's layout."""
    return _view_guest(root, lambda: scan(root, stop.raise_if_set))


def view_triton(root: str, stop: StopSignals) -> Seen:
    """Triton's layout."""
    return _view_guest(root, lambda: triton_files.view_entries(root, stop.raise_if_set))


def view_files(root: str, stop: StopSignals) -> Seen:
    """Any tree of files. Looking raises :class:`NotACacheError` for one that is no cache."""
    return _view_guest(root, lambda: tree_files.view_entries(root, stop.raise_if_set))


def _view_guest(root: str, entries: Callable[[], Iterable[Found]]) -> Seen:
    layout = guest_layout(root)
    return Seen(
        layout,
        lambda: measure(entries(), staged_bytes(layout.tmp)).slot,
        # Whatever the priority: nobody records there what compiling cost.
        lambda need, _: choose_victims(_whole(entries()), need.bytes, 0, need.entries)[0],
    )


def rehearse(root: str, rules: Rules, report: Report, stop: StopSignals, view: View = view_lockcache) -> None:
    """Say what would be evicted from ``root``. Raises what opening it would raise, and :class:`Stopped`."""
    seen = view(root, stop)
    if not os.path.lexists(root):
        report.missing(root)
        return
    check_directory(seen.layout)
    try:
        PolicyFile(seen.layout).load()
    except PolicyError as error:
        report.warned(f"{error}; a daemon would replace it")
    held = seen.measure()
    marks = rules.watermarks(rules.policy)
    evicted = Evicted()
    if marks is not None and held.bytes > marks.high_bytes:
        victims = seen.victims(Need(held.bytes - marks.low_bytes), rules.priority)
        stop.raise_if_set()
        evicted = Evicted(len(victims), sum(victim.size_bytes for victim in victims))
    report.rehearsed(root, held, evicted)


def _whole(entries: Iterable[Found]) -> Iterable[Found]:
    return (found for found in entries if found.inode)


def _measure(layout: Layout, stop: StopSignals) -> Slot:
    held = Slot(0, 0)
    for shard in range(SHARDS):
        stop.raise_if_set()
        slot = measure_shard(layout, shard)
        held = Slot(held.bytes + slot.bytes, held.entries + slot.entries)
    return held
