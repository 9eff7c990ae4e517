"""Abandoned files: staged files and leases of killed processes, and their removal.

Decides for how long leases, folders of views and files of unknown programs stay;
:mod:`lockcache.filestream.disk.owners` decides it for staged files whose owner is known. Keeps invariant 5 (death is
free): nothing that a living owner has is touched, on whatever host, and what a dead one left goes. Files of any name
are removed by a descriptor of their folder: so nobody leads a reaper elsewhere by replacing a folder meanwhile.
"""

from __future__ import annotations

import contextlib
import os
from collections import Counter
from typing import Final

from filelock import lock_descriptor

from lockcache.filestream.compile_once import reap_lease
from lockcache.filestream.disk import (
    FOLDER,
    UPDATE,
    YOUNG_SECONDS,
    Layout,
    Owner,
    StagedName,
    age_seconds_of,
    folder_if_there,
    forget_given_up,
    is_abandoned,
    opened,
    parse_staged_name,
    remove_files,
)

# A lease file without a holder may say that a write was dropped, which counts for ten seconds.
_LEASE_GRACE_SECONDS: Final = 60.0
# The folder changes with each file that is put into it.
_FOLDER_GRACE_SECONDS: Final = 600.0
# Staged files of other programs: cuda.core gives its own an hour too.
_UNKNOWN_GRACE_SECONDS: Final = 3600.0


def reserved_and_dead(layout: Layout) -> tuple[Counter[int], set[int]]:
    """Returns by shard what staged writes of living owners reserve, and the shards in which a dead one left a file.

    Removes abandoned files of other programs.
    """
    reserved, dead = Counter[int](), set[int]()
    folder = folder_if_there(layout.reach.opened, layout.tmp)
    if folder is None:
        return reserved, dead
    with folder:
        for file in os.listdir(folder.number):
            staged, age_seconds = parse_staged_name(file), age_seconds_of(folder.number, file)
            if staged is None:
                if age_seconds > _UNKNOWN_GRACE_SECONDS:
                    _remove(folder.number, file)
            elif age_seconds >= YOUNG_SECONDS and _is_abandoned(folder.number, file, staged, age_seconds):
                dead.add(staged.shard)
            else:
                reserved[staged.shard] += staged.size_bytes
    return reserved, dead


def reap_leases(layout: Layout) -> None:
    """Remove the lease files of holders that died; a living one holds its lock."""
    folder = folder_if_there(layout.reach.opened, layout.leases)
    if folder is None:
        return
    with folder:
        for file in os.listdir(folder.number):
            if age_seconds_of(folder.number, file) > _LEASE_GRACE_SECONDS:
                reap_lease(folder.number, file)


def reap_shard_locked(layout: Layout, shard: int) -> None:
    """Remove the staged files of dead owners in one shard. Requires: shard lock."""
    folder = folder_if_there(layout.reach.opened, layout.tmp)
    if folder is None:
        return
    prefix = f"{shard:02x}."
    with folder:
        for file in os.listdir(folder.number):
            staged = parse_staged_name(file) if file.startswith(prefix) else None
            if staged is None:
                continue
            if _is_abandoned(folder.number, file, staged, age_seconds_of(folder.number, file)):
                _remove_staged(folder.number, file)


def _is_abandoned(folder_fd: int, file: str, staged: StagedName, age_seconds: float) -> bool:
    owner = Owner(staged.host, staged.pid, staged.start_ticks)
    return is_abandoned(file, owner, age_seconds, is_unlocked=lambda: _is_unlocked(folder_fd, file, age_seconds))


def _is_unlocked(folder_fd: int, file: str, age_seconds: float) -> bool:
    """Returns whether no process holds a staged file open for writing: its writer keeps it locked until then."""
    try:
        file_of_other = opened(file, UPDATE, dir_fd=folder_fd)
    except IsADirectoryError:
        return age_seconds > _FOLDER_GRACE_SECONDS  # a view that is being made has no lock to try
    except OSError:
        # A file of another member who died before it got the group's mode, or a planted one: judged by its age.
        return age_seconds > _UNKNOWN_GRACE_SECONDS
    with file_of_other as fd:
        try:
            return lock_descriptor(fd, blocking=False)
        except OSError:
            return True  # locks do not work here: judged by its age


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
