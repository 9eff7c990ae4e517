"""``--dry-run`` over all directories: which budget would bite, and what would go.

Keeps :mod:`.rehearsal`'s promise to touch nothing. Budgets have their turns as in a tick: each directory's own, then
the total, then what is to stay free, each seeing what those before it would have left.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence

from lockcache.filestream.usage import Slot
from lockcache_daemon.budgets import Member, free_shortage, share_out, total_surplus
from lockcache_daemon.layouts import view
from lockcache_daemon.rehearsal import Rehearsal
from lockcache_daemon.report import Report
from lockcache_daemon.rules import Bite, rules_for
from lockcache_daemon.settings import DirectorySettings, Settings
from lockcache_daemon.shared import look_at_file_system
from lockcache_daemon.signals import StopSignals

__all__ = ["rehearse_all"]


def rehearse_all(settings: Settings, layouts: Mapping[str, str], report: Report, stop: StopSignals) -> None:
    """Say what would be evicted from each directory; ``layouts`` by path.

    Raises what opening one of them would raise, and :class:`Stopped`.
    """
    seen = []
    for directory in settings.directories:
        if os.path.lexists(directory.path):
            seen.append(_look(settings, directory, layouts[directory.path], report, stop))
        else:
            report.missing(directory.path)
    if settings.total is not None and seen:
        _apply_total(settings.total, seen)
    _apply_free(seen)
    for rehearsal in seen:
        report.rehearsed(rehearsal.root, rehearsal.held, rehearsal.evicted, rehearsal.budgets)


def _look(
    settings: Settings, directory: DirectorySettings, layout: str, report: Report, stop: StopSignals
) -> Rehearsal:
    rehearsal = Rehearsal(directory.path, rules_for(settings, directory), report, stop, view(layout))
    rehearsal.apply_own()
    return rehearsal


def _apply_total(total_bytes: int, seen: Sequence[Rehearsal]) -> None:
    low_share = max(each.rules.low_share for each in seen)
    surplus = total_surplus(total_bytes, low_share, [(each.left.bytes, each.rules.floor_bytes) for each in seen])
    if surplus:
        _share("total", Slot(surplus, 0), seen)


def _apply_free(seen: Sequence[Rehearsal]) -> None:
    by_device: dict[int, list[Rehearsal]] = {}
    for each in seen:
        by_device.setdefault(os.stat(each.root).st_dev, []).append(each)
    for sharing in by_device.values():
        room = look_at_file_system(sharing[0].root)
        freed = [each.evicted for each in sharing]
        room = room._replace(
            free_bytes=room.free_bytes + sum(each.bytes for each in freed),
            free_inodes=room.free_inodes + sum(each.entries for each in freed),
        )
        short = []
        for each in sharing:
            wanted = each.rules.min_free
            shortage = Slot(0, 0) if wanted is None else free_shortage(wanted, room, each.rules.low_share)
            if shortage != (0, 0):
                short.append((each, shortage))
        if short:
            needed = Slot(max(slot.bytes for _, slot in short), max(slot.entries for _, slot in short))
            _share("min-free", needed, [each for each, _ in short])


def _share(budget: str, needed: Slot, seen: Sequence[Rehearsal]) -> None:
    members = [Member(each.left, each.rules.floor_bytes, each.entries()) for each in seen]
    for each, goal in zip(seen, share_out(needed, members), strict=True):
        if goal is not None:
            each.apply(Bite(budget, goal))
