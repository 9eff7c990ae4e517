"""``--dry-run``: what a pass would evict, without touching anything.

Keeps one promise: no file and no directory is made, changed or removed, not even the policy, and no lock is taken. So
it works beside a running daemon, and on directories that may only be read.
"""

from __future__ import annotations

import os

from lockcache.errors import PolicyError
from lockcache.filestream.directory import check_directory
from lockcache.filestream.eviction import Evicted, all_entries, choose_victims
from lockcache.filestream.layout import SHARDS, Layout
from lockcache.filestream.policy import PolicyFile
from lockcache.filestream.scan import measure_shard
from lockcache.filestream.usage import Slot
from lockcache_daemon.report import Report
from lockcache_daemon.rules import Rules
from lockcache_daemon.signals import StopSignals

__all__ = ["rehearse"]


def rehearse(root: str, rules: Rules, report: Report, stop: StopSignals) -> None:
    """Say what would be evicted from ``root``. Raises what opening it would raise, and :class:`Stopped`."""
    layout = Layout(root)
    if not os.path.lexists(root):
        report.missing(root)
        return
    check_directory(layout)
    try:
        PolicyFile(layout).load()
    except PolicyError as error:
        report.warned(f"{error}; a daemon would replace it")
    held = _measure(layout, stop)
    marks = rules.watermarks(rules.policy)
    evicted = Evicted()
    if marks is not None and held.bytes > marks.high_bytes:
        victims, _ = choose_victims(all_entries(layout, stop.is_set), held.bytes - marks.low_bytes, 0)
        stop.raise_if_set()
        evicted = Evicted(len(victims), sum(victim.size_bytes for victim in victims))
    report.rehearsed(root, held, evicted)


def _measure(layout: Layout, stop: StopSignals) -> Slot:
    held = Slot(0, 0)
    for shard in range(SHARDS):
        stop.raise_if_set()
        slot = measure_shard(layout, shard)
        held = Slot(held.bytes + slot.bytes, held.entries + slot.entries)
    return held
