"""Setting right what death, foreign writers and weak locks leave behind: reap and recount.

Keeps invariant 5 (death is free): staged files of dead owners go, and with them their reservations; and the repair half
of 3 (hard cap): one recount makes a shard's slot equal to what its disk holds. Idempotent, and safe while others write:
a recount holds the shard's lock, in which nobody can be between a file and its accounting.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

from filelock import lock_descriptor

from lockcache.errors import LockTimeoutError
from lockcache.filestream.accounting import Slot, bytes_beside, measure_shard, scan_records, staged_files
from lockcache.filestream.compile_once import reap_lease
from lockcache.filestream.directory import CacheDirectory
from lockcache.filestream.disk import (
    FOLDER,
    SHARDS,
    UPDATE,
    Layout,
    Owner,
    PlantedFolderError,
    StagedName,
    forget_given_up,
    is_alive,
    is_given_up,
    open_folder,
    opened,
    parse_staged_name,
    remove_files,
    unlink_below,
)
from lockcache.filestream.entry import remove_orphan_views_locked

_log = logging.getLogger("lockcache")

# A write takes milliseconds. Reaping passes over younger files, which spares asking for each owner while many write.
_YOUNG_SECONDS: Final = 1.0
# For owners on other hosts, whose pid says nothing here and whose clock may differ.
_FOREIGN_GRACE_SECONDS: Final = 60.0
# A lease file without a holder may say that a write was dropped, which counts for ten seconds.
_LEASE_GRACE_SECONDS: Final = 60.0
# The folder changes with each file that is put into it.
_FOLDER_GRACE_SECONDS: Final = 600.0
# Staged files of other programs: cuda.core gives its own an hour too.
_UNKNOWN_GRACE_SECONDS: Final = 3600.0

# ELOOP: a symlink, which is not followed (Linux says ENOTDIR where a directory is asked for).
_NO_FOLDER: Final = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP)


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


def recount_shard(
    directory: CacheDirectory,
    shard: int,
    timeout_seconds: float | None = None,
    between: Callable[[], object] = lambda: None,
) -> Repair:
    """Make one shard's slot say what its disk holds: its entries, and the staged writes of living owners.

    ``between`` is called after every thousand files, and may raise to give up; nothing is half done then. Raises
    :class:`LockTimeoutError` if the shard's lock is not free in time (``None``: the lock's own timeout).
    """
    usage = directory.usage()
    lock = directory.locks[shard]
    hold = lock.hold(lock.timeout_seconds if timeout_seconds is None else timeout_seconds)
    try:
        _reap_shard_locked(directory.layout, shard)
        _remove_orphan_records_locked(directory.layout, shard, between)
        remove_orphan_views_locked(directory.layout, shard)
        before, after = usage.slot(shard), measure_shard(directory.layout, shard, between=between)
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
    """The shards that there is anything of: for the others, lock files would be made needlessly.

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
    """Recount the shards whose accounting, at a glance, is not what their disk holds. Returns how many changed.

    ``should_stop`` is called between shards.
    """
    drifted = 0
    slots, beside = directory.usage().slots(), bytes_beside(directory.layout)
    for shard, slot in enumerate(slots):
        if should_stop():
            break
        if slot != (0, 0) and measure_shard(directory.layout, shard, beside[shard]) != slot:
            drifted += _recount_unless_busy(directory, shard)
    return drifted


def reap(directory: CacheDirectory) -> int:
    """Recount the shards in which a dead owner left a staged file, and remove abandoned files of other programs.

    Cheap while nothing is wrong: one listing of ``tmp/`` and one of the leases. Returns how many shards were set right.
    """
    shards = set()
    with _files_of(directory.layout, directory.layout.tmp) as (folder_fd, files):
        for file in files:
            age_seconds = _age_seconds(folder_fd, file)
            if age_seconds < _YOUNG_SECONDS:
                continue
            staged = parse_staged_name(file)
            if staged is None:
                if age_seconds > _UNKNOWN_GRACE_SECONDS:
                    _remove(folder_fd, file)
            elif _is_abandoned(folder_fd, file, staged, age_seconds):
                shards.add(staged.shard)
    _reap_leases(directory.layout)
    return sum(_recount_unless_busy(directory, shard) for shard in shards)


def _reap_leases(layout: Layout) -> None:
    """Remove the lease files of holders that died; a living one holds its lock."""
    with _files_of(layout, layout.leases) as (folder_fd, files):
        for file in files:
            if _age_seconds(folder_fd, file) > _LEASE_GRACE_SECONDS:
                reap_lease(folder_fd, file)


def _recount_unless_busy(directory: CacheDirectory, shard: int) -> bool:
    """Whether that changed something. A writer making room does not wait for shards that are not its own."""
    try:
        repair = recount_shard(directory, shard, 0.0)
    except (LockTimeoutError, PlantedFolderError):
        return False
    return repair.before != repair.after


def _reap_shard_locked(layout: Layout, shard: int) -> None:
    """Remove the staged files of dead owners in one shard. Requires: shard lock."""
    with _files_of(layout, layout.tmp) as (folder_fd, files):
        prefix = f"{shard:02x}."
        for file in files:
            staged = parse_staged_name(file) if file.startswith(prefix) else None
            if staged is None:
                continue
            if _is_abandoned(folder_fd, file, staged, _age_seconds(folder_fd, file)):
                _remove_staged(folder_fd, file)


def _is_abandoned(folder_fd: int, file: str, staged: StagedName, age_seconds: float) -> bool:
    if is_given_up(file):
        return True
    alive = is_alive(Owner(staged.host, staged.pid, staged.start_ticks))
    if alive is None:
        return age_seconds > _FOREIGN_GRACE_SECONDS and _is_unlocked(folder_fd, file, age_seconds)
    return not alive


def _is_unlocked(folder_fd: int, file: str, age_seconds: float) -> bool:
    """Whether nobody holds a staged file open for writing: its writer locks it for as long as that lasts."""
    try:
        file_of_other = opened(file, UPDATE, dir_fd=folder_fd)
    except IsADirectoryError:
        return age_seconds > _FOLDER_GRACE_SECONDS  # of a view that is being made: it has no lock to be tried
    except OSError:
        # Another member's, who died before the file was the group's; or planted. Its age must tell.
        return age_seconds > _UNKNOWN_GRACE_SECONDS
    with file_of_other as fd:
        try:
            return lock_descriptor(fd, blocking=False)
        except OSError:
            return True  # locks cannot tell here; its age must


def _remove_orphan_records_locked(layout: Layout, shard: int, between: Callable[[], object]) -> None:
    """Remove record files whose entry is gone. Requires: shard lock."""
    for name in scan_records(layout, shard, between):
        between()
        if not os.path.lexists(layout.entry(name)):
            with contextlib.suppress(FileNotFoundError, PlantedFolderError):
                unlink_below(layout, layout.record(name))


def _age_seconds(folder_fd: int, file: str) -> float:
    """Returns the seconds since the file was last changed; 0 for one that is gone.

    Of a change in the future, seconds until then: some clock was stepped since, and such a file is not young for as
    long as that takes.
    """
    try:
        return abs(time.time() - os.stat(file, dir_fd=folder_fd, follow_symlinks=False).st_mtime)
    except FileNotFoundError:
        return 0.0


@contextlib.contextmanager
def _files_of(layout: Layout, folder: str) -> Iterator[tuple[int, list[str]]]:
    """A folder below the root, open, and what is in it; nothing where there is no such folder, or a symlink.

    Reaping removes files of any name, so it must not be led elsewhere, not even by who replaces a folder meanwhile.
    """
    # No ExitStack: it leaves exceptions in a cycle, which keeps the folder open until the garbage is collected.
    files: list[str] | None = None
    try:
        with open_folder(layout.root, *os.path.relpath(folder, layout.root).split(os.sep)) as fd:
            files = os.listdir(fd)
            yield fd, files
    except OSError as error:
        if files is not None or error.errno not in _NO_FOLDER:
            raise
        yield -1, []


def _remove_staged(folder_fd: int, file: str) -> None:
    """Remove what an owner that is dead has staged: a file, or the folder of a view."""
    with contextlib.suppress(OSError), opened(file, FOLDER, dir_fd=folder_fd) as fd:
        remove_files(fd)
        os.rmdir(file, dir_fd=folder_fd)
    _remove(folder_fd, file)


def _remove(folder_fd: int, file: str) -> None:
    with contextlib.suppress(FileNotFoundError, IsADirectoryError):
        os.unlink(file, dir_fd=folder_fd)
    forget_given_up(file)
