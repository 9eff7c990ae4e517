"""CountersPage: a small file of numbers, to which each of many processes adds what it counted since its last report.

Keeps invariant 7 (never take the job down): nothing waits longer than its caller states. Kept exact by a lock; not
promised are exact numbers where locks exclude nobody (invariant 6, locks coordinate). Nothing but people and dashboards
may rely on these numbers.

The page, little-endian: seven bytes of its kind and a version byte, then an int64 for each field in order, then zeros
up to its size. A file that is something else is removed (its name is reserved), one of a newer version left.
"""

from __future__ import annotations

import os
import random
import stat
import struct
import time
from collections.abc import Callable
from typing import Final

from filelock import lock_descriptor

from lockcache.filestream.disk import (
    READ,
    UPDATE,
    Layout,
    open_below,
    open_or_create,
    read_small,
    refuse_symlink,
    replace_file,
    unlink_below,
)

__all__ = ["CountersPage", "difference", "total"]

_VERSION: Final = 1
_HEAD_BYTES: Final = 8
_LARGEST: Final = 2**63 - 1
_DIRECT: Final[int] = getattr(os, "O_DIRECT", 0)

# A report holds the lock for some 10 us.
_LONGEST_PAUSE_SECONDS: Final = 0.002

Numbers = tuple[int, ...]


class CountersPage:
    """One page. Two of its ``fields`` it counts itself: ``reports`` and ``last_report_ns``, in ns since the epoch."""

    def __init__(self, layout: Layout, path: str, kind: bytes, fields: tuple[str, ...], size_bytes: int) -> None:
        self._layout = layout
        self._path = path
        self._base = f"{path}.base"
        self._head = kind + bytes([_VERSION])
        self._body = struct.Struct(f"<{len(fields)}q")
        self._size_bytes = size_bytes
        self._reports, self._last_report = fields.index("reports"), fields.index("last_report_ns")
        self.nothing: Numbers = (0,) * len(fields)

    def read(self) -> Numbers:
        """Returns the numbers of the page: zeros if nothing was reported, or the page cannot be read or understood."""
        try:
            with open_below(self._layout, self._path, READ) as fd:
                return self._decode(os.pread(fd, self._size_bytes, 0)) or self.nothing
        except OSError:
            return self.nothing

    def read_since(self, now: Numbers) -> Numbers | None:
        """Returns what came to ``now`` since :meth:`reset`, whose time is ``last_report_ns``; ``None`` before any.

        Returns ``None`` also if the page was made again since, and so its numbers are lower than before.
        """
        try:
            base = self._decode(read_small(self._layout, self._base, self._size_bytes))
        except OSError:
            return None
        if base is None or base == self.nothing:
            return None
        since = self._stamped(difference(now, base), base[self._last_report])
        return since if min(since) >= 0 else None

    def reset(self) -> None:
        """Begin to count again, for people: what the page says now is put next to it, to be subtracted.

        So no metric decreases, and no program's report is lost to a reset. Raises :class:`OSError`.
        """
        base = self._encode(self._stamped(self.read(), time.time_ns()))
        replace_file(self._layout, self._base, base, fsync=False)

    def add(self, delta: Numbers, patience_seconds: float, then: Callable[[], None]) -> bool:
        """Add ``delta`` to the page, which is made if it is missing (its folder is not). Returns whether that was done.

        ``then`` is called under its lock, once the page is written. Raises :class:`OSError`.
        """
        layout, path = self._layout, self._path
        refuse_symlink(layout.own)
        # To read past a client's cache is one request, and through it, after a lock, two.
        flags = UPDATE | (_DIRECT if layout.is_nfs else 0)
        with open_or_create(layout, path, flags) as fd:
            # On a network file system to look at the file is a call to the server. Nobody else puts one in its place
            # there, unless a group shares the directory; and of a page that was deleted one report is lost.
            is_looked_at = layout.is_shared or not layout.is_network
            if is_looked_at and not stat.S_ISREG(os.fstat(fd).st_mode):
                return False
            if not _lock(fd, patience_seconds):
                return False
            status = os.fstat(fd) if is_looked_at else None
            if status is not None and not os.path.samestat(status, os.lstat(path)):
                return False  # deleted underneath, and perhaps made again
            blob = os.pread(fd, self._size_bytes, 0)
            held = self._decode(blob)
            if held is None or (status is not None and status.st_nlink != 1):
                # Damaged, or a second name of another file, which must not be written to.
                if not self._is_newer(blob):
                    unlink_below(layout, path)
                return False
            counted = list(total(held, delta))
            counted[self._reports] = held[self._reports] + 1
            os.pwrite(fd, self._encode(self._stamped(tuple(counted), time.time_ns())), 0)
            then()
            return True

    def _stamped(self, numbers: Numbers, now_ns: int) -> Numbers:
        return (*numbers[: self._last_report], now_ns, *numbers[self._last_report + 1 :])

    def _encode(self, numbers: Numbers) -> bytes:
        in_range = (min(max(0, number), _LARGEST) for number in numbers)
        return (self._head + self._body.pack(*in_range)).ljust(self._size_bytes, b"\0")

    def _decode(self, blob: bytes) -> Numbers | None:
        """Returns the numbers; zeros for an empty or, by a power cut, partial page; ``None`` for any other file."""
        if not blob.strip(b"\0"):
            return self.nothing
        if len(blob) != self._size_bytes or blob[:_HEAD_BYTES] != self._head:
            return None
        return tuple(max(0, number) for number in self._body.unpack_from(blob, _HEAD_BYTES))

    def _is_newer(self, blob: bytes) -> bool:
        return blob[:7] == self._head[:7] and blob[7:8] > self._head[7:]


def difference(now: Numbers, before: Numbers) -> Numbers:
    """Returns the difference of each number."""
    return tuple(new - old for new, old in zip(now, before, strict=True))


def total(one: Numbers, other: Numbers) -> Numbers:
    """Returns each number added to the other's."""
    return tuple(mine + more for mine, more in zip(one, other, strict=True))


def _lock(fd: int, patience_seconds: float) -> bool:
    deadline = time.monotonic() + patience_seconds
    while not lock_descriptor(fd, blocking=False):
        if time.monotonic() >= deadline:
            return False
        time.sleep(random.uniform(0, _LONGEST_PAUSE_SECONDS))
    return True
