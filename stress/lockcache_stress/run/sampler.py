"""Samples of the bytes on disk, each at one instant: the proof of invariant 3 (hard cap).

A walk while writers go on adds up files that were never there together, and would both miss and invent overshoot. So
the workers are stopped (SIGSTOP, wherever they are: in the middle of a write, with a lock in hand), the directory is
walked, and they go on. Nobody else adds bytes, so what is counted was there when they stopped. At the same instants the
accounting page must say at least what is on the disk: every order in which it is changed is chosen for that.

What happens between two samples is not seen. Where the directory is a mount of its own, statvfs is asked much more
often: one atomic number, whatever is under way. For a plot :class:`Samples` keeps a bounded number of them,
however long the run, and never drops the peak.
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
from lockcache.filestream.disk import Space, parse_staged_name, space_of
from lockcache.lowlevel import Layout

# More than a plot has columns; past twice as many samples they are halved.
_KEPT: Final = 1000

# A walk must not become the load: at least this many times its duration passes between two walks.
_PAUSE_FACTOR: Final = 8
_SHORTEST_PAUSE_SECONDS: Final = 0.04
_STOPPED: Final = frozenset("TtZXx")
_GIVE_UP_SECONDS: Final = 2.0
_ENTRY_FOLDERS: Final = ("entries", os.path.join("lockcache", "records"), os.path.join("lockcache", "views"))


class Samples:
    """(seconds, bytes) in the order of time. Where there are too many, the largest of several neighbours stays."""

    def __init__(self) -> None:
        self._points: list[tuple[float, int]] = []
        #: How many neighbours share a point; the same all along, so that the past is as dense as the present.
        self._each = 1
        self._in_last = 1

    def add(self, seconds: float, count_bytes: int) -> None:
        """Keep one more."""
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
    #: Largest sum of the sizes of entries and staged files.
    disk_bytes: int = 0
    #: Largest sum of what the file system says it uses for them, in whole blocks.
    statvfs_bytes: int | None = None
    #: Most bytes that were on the disk and not accounted for. Nothing positive is right.
    unaccounted_bytes: int = 0
    final_bytes: int = 0
    #: The same over time: sums of sizes, what the accounting page said, and the file system's own number.
    disk: Samples = field(default_factory=Samples)
    accounted: Samples = field(default_factory=Samples)
    statvfs: Samples = field(default_factory=Samples)
    #: When the rounds of a run began on those plots' axis, where there are several.
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
        """Take a sample, if it is due; ``pids`` are all processes that write."""
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
        """Ask the file system for its used bytes, where nothing but the directory is on it."""
        if self.peaks.statvfs_bytes is not None:
            used = used_bytes(self._directory)
            self.peaks.statvfs_bytes = max(self.peaks.statvfs_bytes, used)
            self.peaks.statvfs.add(self._seconds(), used)

    def sample_final(self) -> None:
        """Take the last sample, when all writers have ended."""
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
        # The page first: a daemon goes on, and its removals in between must not look like bytes unaccounted for.
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
    """Returns what all files of entries, staged ones, records and views should count for, whatever their names."""
    return _counted(directory, (*_ENTRY_FOLDERS, "tmp"))


def drift_bytes(directory: str) -> int:
    """Returns what the accounting says more than the disk holds."""
    return FileStreamProgramCache(directory).stats().bytes - bytes_on_disk(directory)


def used_bytes(path: str) -> int:
    """Returns what the file system of ``path`` says that it uses."""
    status = os.statvfs(path)
    return (status.f_blocks - status.f_bfree) * status.f_frsize


def _counted(directory: str, names: Iterable[str]) -> int:
    space = _space(directory)
    return sum(tree_bytes(os.path.join(directory, name), space.of_file, space.of_folder) for name in names)


def _space(directory: str) -> Space:
    try:
        return space_of(Layout(directory))
    except FileNotFoundError:
        return Space(1)  # deleted, or not there yet: there is nothing to count


def _staged_bytes(directory: str) -> tuple[int, int]:
    """Returns the bytes of staged files, and those that need not be accounted for, by one listing: files come and go.

    That is a policy or a status being replaced, and the inode (xfs) of a file in which nothing stands yet: it is made
    just before its reservation, and the cap has room for one in each shard.
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
        return 0, 0  # deleted, or not there yet
    return staged, own


def tree_bytes(
    path: str,
    of_file: Callable[[os.stat_result], int] = lambda status: status.st_size,
    of_folder: Callable[[os.stat_result], int] = lambda status: 0,
) -> int:
    """Returns what all files and folders under ``path`` count for: by default, the lengths of the files."""
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
    """Stop these processes for as long as the block lasts; gives whether all of them have come to their stop."""
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
        return  # ended meanwhile, and adds no bytes any more


def is_stopped(pid: int) -> bool:
    """Returns whether the process has stopped. A signal only asks: the system call in hand is finished first."""
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
