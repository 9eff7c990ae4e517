# SPDX-License-Identifier: Apache-2.0
"""Repair of what death, foreign writers and weak locks leave behind: reap and recount.

Keeps invariant 5 (death is free): staged files of dead owners go, and with them their reservations; and the repair half
of 3 (hard cap): one recount makes a shard's slot equal to what its disk holds. Idempotent, and safe while others write:
a recount holds the shard's lock, so that no process is between a change of a file and its accounting.
"""

from __future__ import annotations

import contextlib
import logging
import os
import time
from collections.abc import Callable
from dataclasses import dataclass

from lockcache.errors import LockTimeoutError
from lockcache.filestream.accounting import Slot, bytes_beside, measure_shard, scan_records, slots_in, staged_files
from lockcache.filestream.directory import CacheDirectory
from lockcache.filestream.disk import (
    SHARDS,
    Layout,
    PlantedFolderError,
)
from lockcache.filestream.entry import remove_orphan_views_locked
from lockcache.filestream.repair.abandoned import look_at_staged, reap_leases, reap_shard_locked

_log = logging.getLogger("lockcache")


@dataclass(frozen=True)
class Repair:
    """The result of a recount: the accounting of a shard before and after."""

    shard: int
    before: Slot
    after: Slot

    @property
    def drift_bytes(self) -> int:
        """Bytes that the accounting had too much (positive) or too little (negative)."""
        return self.before.bytes - self.after.bytes


def recount_shard(
    directory: CacheDirectory,
    shard: int,
    timeout_seconds: float | None = None,
    between: Callable[[], object] = lambda: None,
    *,
    in_a_moment: bool = False,
) -> Repair:
    """Make one shard's slot say what its disk holds: its entries, and the staged writes of living owners.

    Where dead owners left so many files that they are not removed ``in_a_moment``, the slot stays as it is: whatever
    others put there, a write is not kept from its room by it.

    ``between`` is called after every thousand files, and may raise to give up; nothing is half done then. Raises
    :class:`LockTimeoutError` if the shard's lock is not free in time (``None``: the lock's own timeout).
    """
    until = None if timeout_seconds is None else time.monotonic() + timeout_seconds
    hold, usage, known = directory.hold_shard(shard, until)
    try:
        before = slots_in(known)[shard]
        directory.refuse_planted(shard)
        if not reap_shard_locked(directory.layout, shard, in_a_moment=in_a_moment):
            return Repair(shard, before, before)
        _remove_orphan_records_locked(directory.layout, shard, between)
        remove_orphan_views_locked(directory.layout, shard)
        after = measure_shard(directory.layout, shard, between=between)
        if after != before:
            usage.set_locked(shard, after)
    finally:
        hold.release()
    return Repair(shard, before, after)


def recount_all(directory: CacheDirectory) -> list[Repair]:
    """Recount every shard; the repairs that changed something.

    One that hangs, or for whose folder a symlink stands, is passed over, with a warning.
    """
    repairs = []
    for shard in _used_shards(directory):
        try:
            repairs.append(recount_shard(directory, shard))
        except (LockTimeoutError, PlantedFolderError) as error:
            _log.warning("not recounted: %s", error)
    return [repair for repair in repairs if repair.before != repair.after]


def _used_shards(directory: CacheDirectory) -> list[int]:
    """Returns the shards that hold anything: for the others, lock files would be made needlessly.

    250 of them may be more than a disk has inodes left.
    """
    layout, slots = directory.layout, directory.usage().slots()
    staged = {file.shard for file in staged_files(layout)}
    paths = (layout.lock, layout.entry_shard, layout.record_shard)
    return [
        shard
        for shard in range(SHARDS)
        if slots[shard] != (0, 0) or shard in staged or any(os.path.exists(path(shard)) for path in paths)
    ]


def recount_drifted(directory: CacheDirectory, should_stop: Callable[[], bool] = lambda: False) -> int:
    """Recount the shards whose accounting differs from a measurement without lock. Returns how many changed.

    ``should_stop`` is called between shards.
    """
    drifted = 0
    slots, other_bytes = directory.usage().slots(), bytes_beside(directory.layout)
    for shard, slot in enumerate(slots):
        if should_stop():
            break
        if slot != (0, 0) and measure_shard(directory.layout, shard, other_bytes[shard]) != slot:
            drifted += recount_unless_busy(directory, shard)
    return drifted


def reap(directory: CacheDirectory) -> int:
    """Recount the shards in which a dead owner left a staged file, and remove abandoned files of other programs.

    Removes the leases of dead holders. Cheap while nothing is wrong: one listing of ``tmp/`` and one of the leases.
    Returns how many shards were set right.
    """
    staged = look_at_staged(directory.layout)
    if staged.others_bytes != directory.policy.stated.policy.others_bytes:
        directory.policy.make_room_for(staged.others_bytes)
    reap_leases(directory.layout)
    return sum(recount_unless_busy(directory, shard) for shard in staged.dead)


def recount_unless_busy(directory: CacheDirectory, shard: int) -> bool:
    """Recount a shard unless it is locked: a writer waits for no other shard. Returns whether the sums changed."""
    try:
        repair = recount_shard(directory, shard, 0.0, in_a_moment=True)
    except (LockTimeoutError, PlantedFolderError):
        return False
    return repair.before != repair.after


def _remove_orphan_records_locked(layout: Layout, shard: int, between: Callable[[], object]) -> None:
    """Remove record files whose entry is gone. Requires: shard lock."""
    for name in scan_records(layout, shard, between):
        between()
        if not os.path.lexists(layout.entry(name)):
            with contextlib.suppress(FileNotFoundError, PlantedFolderError):
                layout.reach.unlink(layout.record(name))
