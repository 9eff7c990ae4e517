# SPDX-License-Identifier: Apache-2.0
"""Samples of the bytes on disk, each at one instant: the proof of invariant 3 (hard cap).

A walk while writers go on adds up files that never existed at the same time, and would both miss and invent overshoot.
So the workers are stopped (SIGSTOP, at any point, also in the middle of a write or with a lock), the directory is
walked, and the workers go on. No other process adds bytes, so all counted bytes were there when the workers stopped. At
the same instants the accounting page must state at least the bytes on disk: the library always changes it in an order
that ensures this.

Changes between two samples are not seen. If the directory is a mount of its own, statvfs is read much more often: its
number is atomic, whatever the workers do. For a plot, :class:`Samples` keeps a bounded number of samples, however long
the run, and never drops the peak.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Final

from lockcache import FileStreamProgramCache
from lockcache.filestream.accounting import space_of
from lockcache.filestream.disk import Space, parse_staged_name
from lockcache.lowlevel import Layout

# More than the columns of a plot; when there are twice as many samples, half of them are dropped.
_KEPT: Final = 1000

# Between two walks at least this many times the duration of a walk passes, so that walks are not most of the load.
_PAUSE_FACTOR: Final = 8
_SHORTEST_PAUSE_SECONDS: Final = 0.04
_STOPPED: Final = frozenset("TtZXx")
_GIVE_UP_SECONDS: Final = 2.0
_ENTRY_FOLDERS: Final = ("entries", os.path.join("lockcache", "records"), os.path.join("lockcache", "views"))


class Samples:
    """(seconds, bytes) in the order of time. If there are too many, only the largest of several neighbours stays."""

    def __init__(self) -> None:
        self._points: list[tuple[float, int]] = []
        #: The number of neighbours that share a point, the same for all, so that the past is as dense as the present.
        self._each = 1
        self._in_last = 1

    def add(self, seconds: float, count_bytes: int) -> None:
        """Add a sample."""
        point = (seconds, count_bytes)
        if self._in_last < self._each:
            self._in_last += 1
            self._points[-1] = _larger(self._points[-1], point)
            return
        self._points.append(point)
        self._in_last = 1
        if len(self._points) >= 2 * _KEPT:
            self._points = [_larger(*pair) for pair in zip(self._points[::2], self._points[1::2], strict=True)]
            self._in_last = self._each + 1
            self._each *= 2

    def points(self) -> list[tuple[float, int]]:
        """Returns the points that are left."""
        return list(self._points)


def _larger(one: tuple[float, int], other: tuple[float, int]) -> tuple[float, int]:
    return max(one, other, key=lambda point: point[1])


@dataclass
class Peaks:
    """The peaks of the samples."""

    samples: int = 0
    #: The largest sum of the sizes of entries and staged files.
    disk_bytes: int = 0
    #: The most bytes that the file system stated for them, in whole blocks.
    statvfs_bytes: int | None = None
    #: The most bytes that were on the disk and not accounted for. Every positive number is wrong.
    unaccounted_bytes: int = 0
    final_bytes: int = 0
    #: The same over time: the sum of sizes, the number of the accounting page, and that of the file system.
    disk: Samples = field(default_factory=Samples)
    accounted: Samples = field(default_factory=Samples)
    statvfs: Samples = field(default_factory=Samples)
    #: The begins of the rounds of a run on the axis of those plots, if there are several.
    begins_seconds: list[float] = field(default_factory=list)


class Sampler:
    """Samples one cache directory."""

    def __init__(self, directory: str, *, is_own_mount: bool) -> None:
        self._directory = directory
        self._cache = FileStreamProgramCache(directory)
        self._is_own_mount = is_own_mount
        self._next = 0.0
        self._began: float | None = None
        self.peaks = Peaks(statvfs_bytes=0 if is_own_mount else None)

    def sample(self, pids: Iterable[int]) -> None:
        """Take a sample if one is due. ``pids`` are all processes that write."""
        self.sample_mount()
        now = time.monotonic()
        if now < self._next:
            return
        with stopped(list(pids)) as are_still:
            if are_still:
                self._count()
        ended = time.monotonic()
        self._next = ended + max(_SHORTEST_PAUSE_SECONDS, _PAUSE_FACTOR * (ended - now))

    def sample_mount(self) -> None:
        """Read the used bytes of the file system, if it has only the directory on it."""
        if self.peaks.statvfs_bytes is not None:
            used = used_bytes(self._directory)
            self.peaks.statvfs_bytes = max(self.peaks.statvfs_bytes, used)
            self.peaks.statvfs.add(self._seconds(), used)

    def sample_final(self) -> None:
        """Take the last sample, after all writers have ended."""
        self._count()
        self.peaks.final_bytes = bytes_on_disk(self._directory)

    def _count(self) -> None:
        accounted, disk, unaccounted = self._weigh()
        peaks = self.peaks
        peaks.samples += 1
        peaks.disk_bytes = max(peaks.disk_bytes, disk)
        peaks.unaccounted_bytes = max(peaks.unaccounted_bytes, unaccounted)
        seconds = self._seconds()
        peaks.disk.add(seconds, disk)
        peaks.accounted.add(seconds, accounted)

    def _weigh(self) -> tuple[int, int, int]:
        """Returns the bytes by the accounting, on the disk, and on the disk beyond the accounting."""
        # The page is read first, because a daemon goes on, and its removals in between must not count as bytes that
        # are not accounted for.
        accounted = self._cache.stats().bytes
        entries = _counted(self._directory, _ENTRY_FOLDERS)
        staged, own = _staged_bytes(self._directory)
        return accounted, entries + staged, entries + staged - own - accounted

    def _seconds(self) -> float:
        """Returns the seconds since the first sample."""
        now = time.monotonic()
        if self._began is None:
            self._began = now
        return now - self._began


def bytes_on_disk(directory: str) -> int:
    """Returns the bytes that all files of entries, staged files, records and views should count for."""
    return _counted(directory, (*_ENTRY_FOLDERS, "tmp"))


def drift_bytes(directory: str) -> int:
    """Returns the bytes that the accounting states beyond what the disk holds."""
    return FileStreamProgramCache(directory).stats().bytes - bytes_on_disk(directory)


def used_bytes(path: str) -> int:
    """Returns the used bytes of the file system of ``path``."""
    status = os.statvfs(path)
    return (status.f_blocks - status.f_bfree) * status.f_frsize


def _counted(directory: str, names: Iterable[str]) -> int:
    space = _space(directory)
    return sum(tree_bytes(os.path.join(directory, name), space.of_file, space.of_folder) for name in names)


def _space(directory: str) -> Space:
    try:
        return space_of(Layout(directory))
    except FileNotFoundError:
        return Space(1)  # the directory is deleted, or not made yet, and has no bytes to count


def _staged_bytes(directory: str) -> tuple[int, int]:
    """Returns the bytes of staged files, and those of them that need not be accounted for.

    Both come from one listing, because files come and go. A policy or a status that is being replaced need not be
    accounted for, nor the inode (xfs) of an empty file, which is made just before its reservation: the cap has room for
    one of these in each shard.
    """
    staged = own = 0
    space = _space(directory)

    def of_empty(status: os.stat_result) -> int:
        return 0 if status.st_size else space.inode_bytes

    try:
        with os.scandir(os.path.join(directory, "tmp")) as found:
            for file in found:
                if file.is_dir(follow_symlinks=False):  # a view
                    staged += tree_bytes(file.path, space.of_file) + _size(file, space.of_folder)
                    continue
                staged += _size(file, space.of_file)
                own += _size(file, space.of_file if _is_no_entry(file.name) else of_empty)
    except FileNotFoundError:
        return 0, 0  # the folder is deleted, or not made yet
    return staged, own


def tree_bytes(
    path: str,
    of_file: Callable[[os.stat_result], int] = lambda status: status.st_size,
    of_folder: Callable[[os.stat_result], int] = lambda status: 0,
) -> int:
    """Returns the bytes that files and folders under ``path`` count for: by default, the lengths of the files."""
    total = 0
    try:
        with os.scandir(path) as found:
            for file in found:
                if file.is_dir(follow_symlinks=False):
                    total += _size(file, of_folder) + tree_bytes(file.path, of_file, of_folder)
                else:
                    total += _size(file, of_file)
    except FileNotFoundError:
        return 0
    return total


def _size(file: os.DirEntry[str], count: Callable[[os.stat_result], int]) -> int:
    try:
        return count(file.stat(follow_symlinks=False))
    except FileNotFoundError:
        return 0


@contextmanager
def stopped(pids: Sequence[int]) -> Iterator[bool]:
    """Stop these processes until the block ends. Yields whether all of them have stopped."""
    try:
        for pid in pids:
            _signal(pid, signal.SIGSTOP)
        yield all(is_stopped(pid) for pid in pids)
    finally:
        for pid in pids:
            _signal(pid, signal.SIGCONT)


def _signal(pid: int, number: signal.Signals) -> None:
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return  # the process has ended, and adds no more bytes


def is_stopped(pid: int) -> bool:
    """Returns whether the process has stopped. A process finishes a system call before it obeys SIGSTOP."""
    deadline = time.monotonic() + _GIVE_UP_SECONDS
    while time.monotonic() < deadline:
        try:
            with open(f"/proc/{pid}/stat") as file:
                state = file.read().rpartition(")")[2].split()[0]
        except (FileNotFoundError, ProcessLookupError):
            return True
        if state in _STOPPED:
            return True
        time.sleep(0.0002)
    return False


def _is_no_entry(file_name: str) -> bool:
    staged = parse_staged_name(file_name)
    return staged is None or staged.is_own_file
