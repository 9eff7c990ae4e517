# SPDX-License-Identifier: Apache-2.0
"""Files of a walk: one stat, one read, and whether both can be trusted the next time.

Keeps invariant 1 (a hit is whole) for the memo: content is taken as unchanged only where device, inode, size, mtime and
ctime are what they were, and only if the file had been left alone for two seconds when it was read. A change in the
same tick of the clock leaves all five as they are, and ticks of a whole second are seen on network file systems. ctime
is what cannot be set back; mtime is for file systems that keep no ctime. Not promised: a server whose clock is behind
this machine's by more than two seconds and which ticks coarsely can hide a change that falls into the tick of our read.
"""

from __future__ import annotations

import errno
import hashlib
import os
import stat
import threading
import time
from typing import NamedTuple

from lockcache.errors import UncacheableError
from lockcache.fork import after_fork_in_child
from lockcache.headers.source import Source, scan

#: Device, inode, size in bytes, mtime and ctime in nanoseconds.
Signature = tuple[int, int, int, int, int]

#: Longer than the coarsest tick of mtime that is in use (FAT: 2 s; network file systems: 1 s).
_RACY_NS = 2_000_000_000
#: Contents remembered. CCCL with cooperative_groups is 1,200 files, all of a CUDA toolkit 2,500; about 2 KB each.
_CONTENTS_LIMIT = 16_384
#: The errors of stat for names that NVRTC skips: nothing there, or nothing that can be reached.
_ABSENT = frozenset({errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.EACCES, errno.ENAMETOOLONG})
_STALE_RETRIES = 3
#: The largest header that is read. CCCL's largest has 0.5 MB; 64 MiB made to be hard to read take two minutes.
_LARGEST_BYTES = 64 * 1024 * 1024
#: Read at once where the status says less.
_LEAST_BYTES = 65_536
#: File systems whose files the kernel generates as they are read: regular ones by their status, and one of them is the
#: kernel's log.
_KERNEL_MADE = ("/proc", "/sys", "/sys/fs/bpf", "/sys/fs/cgroup", "/sys/kernel/debug", "/sys/kernel/security",
                "/sys/kernel/tracing")  # fmt: skip


class Content(NamedTuple):
    """The content of a file."""

    digest: bytes
    source: Source


def signature(status: os.stat_result) -> Signature:
    """Returns what identifies an unchanged file."""
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns


def regular(path: bytes) -> os.stat_result | None:
    """Returns the status of a regular file, or of the one that a link leads to; None where NVRTC would look further.

    NVRTC passes over directories, devices and dangling links in its search. Raises OSError for a failing disk or
    network, which says nothing about what is there.
    """
    try:
        status = os.stat(path)
    except OSError as error:
        if error.errno in _ABSENT:
            return None
        raise
    return status if stat.S_ISREG(status.st_mode) else None


def load(path: bytes) -> tuple[Signature, Content, bool]:
    """Returns signature, content, and whether the signature may be trusted to mean this content from now on.

    Raises OSError naming the path where the file cannot be read, and UncacheableError for one that is too large to be.
    """
    for attempt in range(_STALE_RETRIES):
        try:
            return _load(path)
        except OSError as error:
            # The server replaced the file between open and read; the kernel repeats a stale open, not a stale read.
            if error.errno != errno.ESTALE or attempt == _STALE_RETRIES - 1:
                raise _unreadable(error, path) from error
    raise AssertionError("unreachable")


def _unreadable(error: OSError, path: bytes) -> OSError:
    what = f"cannot read a header, so nothing can be said about what it includes ({error.strerror})"
    return type(error)(error.errno, what, os.fsdecode(path))


def _load(path: bytes) -> tuple[Signature, Content, bool]:
    # The clock first: a change while we read is then younger than this.
    now_ns = time.time_ns()
    # Not blocking: between stat and open the name may have become a pipe.
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    try:
        status = os.fstat(descriptor)
        found = signature(status)
        known = _contents.get(found)
        if known is not None:
            return found, known, True
        data = _read(descriptor, status, path)
        settled = _is_settled(found, now_ns) and signature(os.fstat(descriptor)) == found
    finally:
        os.closerange(descriptor, descriptor + 1)  # the content was read, whatever close returns
    content = Content(hashlib.sha256(data, usedforsecurity=False).digest(), scan(data))
    if settled:
        _contents.put(found, content)
    return found, content, settled


def _read(descriptor: int, status: os.stat_result, path: bytes) -> bytes:
    # Files of the kernel take no blocks, like empty ones: nothing more is asked about all others.
    if not status.st_blocks and status.st_dev in {
        os.stat(point).st_dev for point in _KERNEL_MADE if os.path.exists(point)
    }:
        raise OSError(errno.EINVAL, "the kernel makes it up as it is read")
    parts: list[bytes] = []
    size_bytes = status.st_size
    # A byte more than there is, so that one call is enough and the next one says so.
    while size_bytes <= _LARGEST_BYTES and (part := os.read(descriptor, max(status.st_size, _LEAST_BYTES) + 1)):
        parts.append(part)
        size_bytes = max(size_bytes, sum(map(len, parts)))
    if size_bytes > _LARGEST_BYTES:
        raise UncacheableError(
            f"{os.fsdecode(path)} has {size_bytes} bytes, and a header of more than {_LARGEST_BYTES} is not read. Take "
            "it out of the directories that are searched, pass a digest of your own, or compile without a cache"
        )
    return b"".join(parts)


def _is_settled(found: Signature, now_ns: int) -> bool:
    """Returns whether the file was unchanged for long enough that a change would alter its signature."""
    mtime_ns, ctime_ns = found[3:]
    # A ctime ahead of our clock is a server's that is ahead: not settled until we are there. An mtime ahead comes out
    # of an archive, mostly: it says nothing, and ctime tells.
    return ctime_ns <= now_ns - _RACY_NS and not now_ns - _RACY_NS < mtime_ns <= now_ns


class _Contents:
    """Contents by signature: which path led to a file does not matter. Emptied when full. Safe for threads and fork."""

    def __init__(self) -> None:
        self._known: dict[Signature, Content] = {}
        self._after_fork_in_child()
        after_fork_in_child(self)

    def get(self, key: Signature) -> Content | None:
        return self._known.get(key)

    def put(self, key: Signature, content: Content) -> None:
        with self._lock:
            if len(self._known) >= _CONTENTS_LIMIT:
                self._known.clear()
            self._known[key] = content

    def clear(self) -> None:
        self._known.clear()

    def _after_fork_in_child(self) -> None:
        self._lock = threading.RLock()


_contents = _Contents()
