# SPDX-License-Identifier: Apache-2.0
"""Abandoned files: staged files and leases of killed processes, and their removal.

Decides for how long leases, folders of views and files of unknown programs stay;
:mod:`lockcache.filestream.disk.owners` decides it for staged files whose owner is known. Keeps invariant 5 (death is
free): nothing that a living owner has is touched, on whatever host, and what a dead one left goes. Files of any name
are removed by a descriptor of their folder: so nobody leads a reaper elsewhere by replacing a folder meanwhile.
"""

from __future__ import annotations

import contextlib
import os
import random
import stat
import time
from collections import Counter
from typing import Final, NamedTuple

from filelock import lock_descriptor

from lockcache.filestream.compile_once import reap_lease
from lockcache.filestream.disk import (
    FOLDER,
    FOREIGN_GRACE_SECONDS,
    UPDATE,
    YOUNG_SECONDS,
    Layout,
    Owner,
    StagedName,
    age_seconds_of,
    forget_given_up,
    is_abandoned,
    opened,
    parse_staged_name,
    remove_files,
)

# The folder changes with each file that is put into it.
_FOLDER_GRACE_SECONDS: Final = 600.0
# Staged files of other programs: cuda.core gives its own an hour too.
_UNKNOWN_GRACE_SECONDS: Final = 3600.0

# Others may put files of any name into a shared directory, and a fleet that was killed leaves thousands: no write looks
# at more of them, 20 ms, or recounts more shards than so many names are listed for, 50 ms. The next one goes on.
_MOST_LOOKED_AT: Final = 1024
_MOST_LISTED: Final = 65536


class Staged(NamedTuple):
    """What stands in ``tmp/``."""

    #: By shard, what staged writes of living owners reserve.
    reserved: Counter[int]
    #: The shards in which a dead owner left a file.
    dead: set[int]
    #: What files of other programs take on disk: cuda.core's writers, at work or killed.
    others_bytes: int = 0


def look_at_staged(layout: Layout) -> Staged:
    """Returns what is staged. Removes abandoned files of other programs.

    Of very many files some are looked at, and the others are what they say.
    """
    reserved, dead, others_bytes = Counter[int](), set[int](), 0
    folder = layout.reach.opened_if_there(layout.tmp)
    if folder is None:
        return Staged(reserved, dead)
    with folder:
        files = os.listdir(folder.number)
        most_dead = _MOST_LISTED // max(1, len(files))
        if len(files) > _MOST_LOOKED_AT:
            files, others = _some_and_others(files)
            for other in filter(None, map(parse_staged_name, others)):
                reserved[other.shard] += other.size_bytes
        for file in files:
            staged = parse_staged_name(file)
            try:
                status = folder.stat(file)
            except FileNotFoundError:
                continue  # gone since the listing, and what it reserved with it
            # Nearly all are young, by the first of the times that count.
            is_young = abs(time.time() - status.st_mtime) < YOUNG_SECONDS
            age_seconds = 0.0 if is_young else age_seconds_of(folder.number, file)
            if staged is None:
                others_bytes += _bytes_of_other(folder.number, file, status, age_seconds)
            elif age_seconds >= YOUNG_SECONDS and _is_abandoned(folder.number, file, staged, age_seconds):
                dead.add(staged.shard)
                if len(dead) > most_dead:
                    break
            else:
                reserved[staged.shard] += staged.size_bytes
    return Staged(reserved, dead, others_bytes)


def _bytes_of_other(folder_fd: int, file: str, status: os.stat_result, age_seconds: float) -> int:
    """Returns what a file of another program takes. Removes one that is abandoned."""
    if age_seconds > _UNKNOWN_GRACE_SECONDS:
        _remove(folder_fd, file)
        return 0
    return status.st_blocks * 512 if stat.S_ISREG(status.st_mode) else 0


def _some_and_others(files: list[str]) -> tuple[list[str], list[str]]:
    """Returns as many files as a write may look at, from a random one on, and the others."""
    first = random.randrange(len(files))
    files = files[first:] + files[:first]
    return files[:_MOST_LOOKED_AT], files[_MOST_LOOKED_AT:]


def reap_leases(layout: Layout) -> None:
    """Remove the lease files of holders that died, or some of very many; a living one holds its lock."""
    folder = layout.reach.opened_if_there(layout.leases)
    if folder is None:
        return
    with folder:
        files = os.listdir(folder.number)
        if len(files) > _MOST_LOOKED_AT:
            files, _ = _some_and_others(files)
        for file in files:
            # A file without a holder may say that a write was dropped, which counts for ten seconds.
            if age_seconds_of(folder.number, file) > FOREIGN_GRACE_SECONDS:
                reap_lease(folder.number, file)


def reap_shard_locked(layout: Layout, shard: int, *, in_a_moment: bool = False) -> bool:
    """Remove the staged files of dead owners in one shard. Requires: shard lock.

    Returns whether all were looked at: not of very many ``in_a_moment``.
    """
    folder, others = layout.reach.opened_if_there(layout.tmp), list[str]()
    if folder is None:
        return True
    prefix = f"{shard:02x}."
    with folder:
        files = [file for file in os.listdir(folder.number) if file.startswith(prefix)]
        if in_a_moment and len(files) > _MOST_LOOKED_AT:
            files, others = _some_and_others(files)
        for file in files:
            staged = parse_staged_name(file)
            if staged is None:
                continue
            if _is_abandoned(folder.number, file, staged, age_seconds_of(folder.number, file)):
                _remove_staged(folder.number, file)
    return not others


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
