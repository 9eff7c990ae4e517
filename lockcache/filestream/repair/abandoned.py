"""Abandoned files: staged files and leases of killed processes, and their removal.

Decides for how long leases, folders of views and files of unknown programs stay;
:mod:`lockcache.filestream.disk.owners` decides it for staged files whose owner is known. Keeps invariant 5 (death is
free): nothing that a living owner has is touched, on whatever host, and what a dead one left goes.
"""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Iterator
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
    forget_given_up,
    is_abandoned,
    open_folder,
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

# ELOOP: a symlink, which is not followed (Linux says ENOTDIR where a directory is asked for).
_NO_FOLDER: Final = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP)


def shards_of_the_dead(layout: Layout) -> set[int]:
    """Returns the shards in which a dead owner left a staged file. Removes abandoned files of other programs."""
    shards = set()
    with _files_of(layout, layout.tmp) as (folder_fd, files):
        for file in files:
            age_seconds = age_seconds_of(folder_fd, file)
            if age_seconds < YOUNG_SECONDS:
                continue
            staged = parse_staged_name(file)
            if staged is None:
                if age_seconds > _UNKNOWN_GRACE_SECONDS:
                    _remove(folder_fd, file)
            elif _is_abandoned(folder_fd, file, staged, age_seconds):
                shards.add(staged.shard)
    return shards


def reap_leases(layout: Layout) -> None:
    """Remove the lease files of holders that died; a living one holds its lock."""
    with _files_of(layout, layout.leases) as (folder_fd, files):
        for file in files:
            if age_seconds_of(folder_fd, file) > _LEASE_GRACE_SECONDS:
                reap_lease(folder_fd, file)


def reap_shard_locked(layout: Layout, shard: int) -> None:
    """Remove the staged files of dead owners in one shard. Requires: shard lock."""
    with _files_of(layout, layout.tmp) as (folder_fd, files):
        prefix = f"{shard:02x}."
        for file in files:
            staged = parse_staged_name(file) if file.startswith(prefix) else None
            if staged is None:
                continue
            if _is_abandoned(folder_fd, file, staged, age_seconds_of(folder_fd, file)):
                _remove_staged(folder_fd, file)


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


@contextlib.contextmanager
def _files_of(layout: Layout, folder: str) -> Iterator[tuple[int, list[str]]]:
    """Yields a folder below the root, open, with the names in it; no names if there is no such folder, or a symlink.

    Reaping removes files of any name, so no one may lead it elsewhere, even by replacing a folder meanwhile.
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
