"""Setting right what death, foreign writers and weak locks leave behind: reap and recount.

Keeps invariant 5: staged files of dead owners go, and with them their reservations; and the repair half of 3: one
recount makes a shard's slot equal to what its disk holds. Idempotent, and safe beside live writers: a recount holds the
shard's lock, in which nobody can be between a file and its accounting.
"""

from __future__ import annotations

import contextlib
import logging
import os
import time
from dataclasses import dataclass
from typing import Final

from filelock import lock_descriptor

from lockcache.errors import LockTimeoutError
from lockcache.filestream.directory import CacheDirectory
from lockcache.filestream.layout import SHARDS, Layout, StagedName, parse_staged_name
from lockcache.filestream.lease import reap_lease
from lockcache.filestream.owner import Owner, is_alive
from lockcache.filestream.scan import measure_shard, scan_records, staged_files
from lockcache.filestream.usage import Slot

__all__ = ["Repair", "reap", "recount", "recount_all", "recount_drifted"]

_log = logging.getLogger("lockcache")

# A write takes milliseconds. Reaping passes over younger files, which spares asking for each owner while many write.
_YOUNG_SECONDS: Final = 1.0
# For owners on other hosts, whose pid says nothing here and whose clock may differ.
_FOREIGN_GRACE_SECONDS: Final = 60.0
# A lease file without a holder may say that a write was dropped, which counts for ten seconds.
_LEASE_GRACE_SECONDS: Final = 60.0
# Staged files that are not ours: cuda.core gives its own an hour too.
_UNKNOWN_GRACE_SECONDS: Final = 3600.0


@dataclass(frozen=True)
class Repair:
    """What a recount found: what the accounting said of a shard, and what it says now."""

    shard: int
    before: Slot
    after: Slot

    @property
    def drift_bytes(self) -> int:
        """Bytes that the accounting had too much (positive) or too little (negative)."""
        return self.before.bytes - self.after.bytes


def recount(directory: CacheDirectory, shard: int, timeout_seconds: float | None = None) -> Repair:
    """Make one shard's slot say what its disk holds: its entries, and the staged writes of living owners.

    Raises :class:`LockTimeoutError` if the shard's lock is not free in time (``None``: the lock's own timeout).
    """
    usage = directory.usage()
    lock = directory.locks[shard]
    lock.acquire(lock.timeout_seconds if timeout_seconds is None else timeout_seconds)
    try:
        _reap_shard_locked(directory.layout, shard)
        _remove_orphan_records_locked(directory.layout, shard)
        before, after = usage.slot(shard), measure_shard(directory.layout, shard)
        if after != before:
            usage.set_locked(shard, after)
    finally:
        lock.release()
    return Repair(shard, before, after)


def recount_all(directory: CacheDirectory) -> list[Repair]:
    """Recount every shard; the repairs that changed something. One that hangs is passed over, with a warning."""
    repairs = []
    for shard in _used_shards(directory):
        try:
            repairs.append(recount(directory, shard))
        except LockTimeoutError as error:
            _log.warning("not recounted: %s", error)
    return [repair for repair in repairs if repair.before != repair.after]


def _used_shards(directory: CacheDirectory) -> list[int]:
    """The shards that there is anything of: for the others, lock files would be made for nothing.

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


def recount_drifted(directory: CacheDirectory) -> int:
    """Recount the shards whose accounting, at a glance, is not what their disk holds. Returns how many changed."""
    drifted = 0
    for shard, slot in enumerate(directory.usage().slots()):
        if slot != (0, 0) and measure_shard(directory.layout, shard) != slot:
            drifted += _recount_unless_busy(directory, shard)
    return drifted


def reap(directory: CacheDirectory) -> int:
    """Recount the shards in which a dead owner left a staged file, and remove abandoned files of other programs.

    Cheap while nothing is wrong: one listing of ``tmp/`` and one of the leases. Returns how many shards were set right.
    """
    layout = directory.layout
    shards = set()
    for file in _listdir(layout.tmp):
        path = f"{layout.tmp}/{file}"
        age_seconds = _age_seconds(path)
        if age_seconds < _YOUNG_SECONDS:
            continue
        staged = parse_staged_name(file)
        if staged is None:
            if age_seconds > _UNKNOWN_GRACE_SECONDS:
                _remove(path)
        elif _is_abandoned(path, staged, age_seconds):
            shards.add(staged.shard)
    _reap_leases(layout)
    return sum(_recount_unless_busy(directory, shard) for shard in shards)


def _reap_leases(layout: Layout) -> None:
    """Remove the lease files of holders that died; a living one holds its lock."""
    for file in _listdir(layout.leases):
        path = f"{layout.leases}/{file}"
        if _age_seconds(path) > _LEASE_GRACE_SECONDS:
            reap_lease(path)


def _recount_unless_busy(directory: CacheDirectory, shard: int) -> bool:
    """Whether that changed something. A writer making room does not wait for shards that are not its own."""
    try:
        repair = recount(directory, shard, 0.0)
    except LockTimeoutError:
        return False
    return repair.before != repair.after


def _reap_shard_locked(layout: Layout, shard: int) -> None:
    """Remove the staged files of dead owners in one shard. Requires: shard lock."""
    for file in _listdir(layout.tmp):
        staged = parse_staged_name(file)
        path = f"{layout.tmp}/{file}"
        if staged is not None and staged.shard == shard and _is_abandoned(path, staged, _age_seconds(path)):
            _remove(path)


def _is_abandoned(path: str, staged: StagedName, age_seconds: float) -> bool:
    alive = is_alive(Owner(staged.host, staged.pid, staged.start_seconds))
    if alive is None:
        return age_seconds > _FOREIGN_GRACE_SECONDS and _is_unlocked(path)
    return not alive


def _is_unlocked(path: str) -> bool:
    """Whether nobody holds a staged file open for writing: its writer locks it for as long as that lasts."""
    try:
        fd = os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return False
    try:
        return lock_descriptor(fd, blocking=False)
    except OSError:
        return True  # locks cannot tell here; its age must
    finally:
        os.close(fd)


def _remove_orphan_records_locked(layout: Layout, shard: int) -> None:
    """Remove record files whose entry is gone. Requires: shard lock."""
    for name in scan_records(layout, shard):
        if not os.path.lexists(layout.entry(name)):
            _remove(layout.record(name))


def _age_seconds(path: str) -> float:
    """Seconds since the file was last changed; 0 for one that is gone."""
    try:
        return time.time() - os.lstat(path).st_mtime
    except FileNotFoundError:
        return 0.0


def _listdir(path: str) -> list[str]:
    try:
        return os.listdir(path)
    except FileNotFoundError:
        return []


def _remove(path: str) -> None:
    with contextlib.suppress(FileNotFoundError, IsADirectoryError):
        os.unlink(path)
