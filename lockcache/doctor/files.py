# SPDX-License-Identifier: Apache-2.0
"""Abilities of one file: attributes, times, syncs; and whether its times can be set by a member of its group."""

from __future__ import annotations

import errno
import os
import random
import time
from collections.abc import Callable
from typing import Any, Final

from lockcache.doctor.findings import DEGRADED, GOOD, UNTESTED, Finding, Subject
from lockcache.filestream.entry import HEAD_BYTES, XATTR

# More than any file system gives to one attribute of a user.
_LARGEST_ATTRIBUTE_BYTES: Final = 64 * 1024
# Head and metadata of a templated kernel: kind, arch, ten symbols.
_ORDINARY_RECORD_BYTES: Final = 1024

# Coarsest first. FAT keeps two seconds, exFAT ten milliseconds, HFS+ and some NFS servers one second.
_TICKS_NS: Final = (2 * 10**9, 10**9, 10**8, 10**7, 10**6, 10**5, 10**4, 1000, 100, 10, 1)
_COARSE_TICK_NS: Final = 10**8

SKEW_SECONDS: Final = 2.0

# Nobody's, as far as anybody can tell; only numbers matter.
_A_USER, _A_GROUP = 65534, 64321


def attributes(subject: Subject) -> list[Finding]:
    """Find the largest extended attribute, and compare it with what a record needs."""
    path = _make(subject, "attribute")
    largest = _largest(path)
    measured = {"largest_bytes": largest, "head_bytes": HEAD_BYTES}
    if largest < HEAD_BYTES:
        found = "none" if not largest else f"at most {largest} bytes; a record's head is {HEAD_BYTES}"
        means = "records go into files of their own: each hit opens two files, each write makes two"
        advice = "use a file system with user attributes: ext4, xfs, btrfs, tmpfs; JuiceFS with --enable-xattr"
        return [Finding("attributes", DEGRADED, found, means, advice, measured)]
    if largest < _ORDINARY_RECORD_BYTES:
        found = f"at most {largest} bytes; a record has {HEAD_BYTES} and its metadata"
        means = "metadata that does not fit go into a separate file: a second file for hits and writes of such entries"
        return [
            Finding("attributes", DEGRADED, found, means, "use ext4 with 4 KiB blocks, xfs, btrfs or tmpfs", measured)
        ]
    more = " or more" if largest == _LARGEST_ATTRIBUTE_BYTES else ""
    return [Finding("attributes", GOOD, f"up to {largest} bytes{more}", measured=measured)]


def _largest(path: str) -> int:
    fits, too_big = 0, _LARGEST_ATTRIBUTE_BYTES + 1
    while too_big - fits > 1:
        size = (fits + too_big) // 2
        try:
            os.setxattr(path, XATTR, bytes(size))
            os.removexattr(path, XATTR)
            fits = size
        except OSError:
            too_big = size
    return fits


def times(subject: Subject) -> list[Finding]:
    """Check whether a file's times can be set, and with what resolution they are kept."""
    path = _make(subject, "times")
    kept = []
    for _ in range(8):
        wanted = 1_700_000_000 * 10**9 + random.randrange(10**17)
        try:
            os.utime(path, ns=(wanted, wanted))
        except OSError as error:
            means = "what was used last is not known: the oldest entries are evicted, however often they are read"
            return [
                Finding(
                    "times",
                    DEGRADED,
                    f"cannot be set: {error.strerror}",
                    means,
                    "mount the file system so that times can be set",
                )
            ]
        kept.append(os.stat(path).st_mtime_ns)
    tick_ns = next((tick for tick in _TICKS_NS if all(time_ns % tick == 0 for time_ns in kept)), 1)
    measured = {"tick_ns": tick_ns}
    found = f"kept in steps of {_in_words(tick_ns)}"
    if tick_ns < _COARSE_TICK_NS:
        return [Finding("times", GOOD, found, measured=measured)]
    means = "entries used within one step are evicted in no order"
    return [
        Finding("times", DEGRADED, found, means, "harmless unless the cap is small; ext4, xfs, tmpfs keep ns", measured)
    ]


def clock(subject: Subject) -> list[Finding]:
    """Measure how far the clock that stamps files is from this machine's."""
    path = _make(subject, "clock")
    before = time.time_ns()
    os.utime(path)
    after = time.time_ns()
    stamped = os.stat(path).st_mtime_ns
    skew_seconds = (stamped - min(max(stamped, before), after)) / 1e9
    measured = {"skew_seconds": round(skew_seconds, 6)}
    if abs(skew_seconds) <= SKEW_SECONDS:
        return [
            Finding(
                "clock",
                GOOD,
                f"file times differ from this machine's clock by {skew_seconds:+.3f} s",
                measured=measured,
            )
        ]
    found = f"file times differ from this machine's clock by {skew_seconds:+.1f} s"
    means = "--max-age, --newer-than and the age of abandoned files are judged wrongly by as much"
    return [Finding("clock", DEGRADED, found, means, "synchronise the clocks of server and clients (NTP)", measured)]


def syncing(subject: Subject) -> list[Finding]:
    """Check whether a file and a directory can be synced, and measure how long that takes."""
    path = _make(subject, "sync")
    start = time.perf_counter()
    try:
        for target in (path, subject.probe):
            _sync(target)
    except OSError as error:
        means = "no cache can be made, whose own files are synced, and with fsync=True all writes are dropped"
        return [Finding("fsync", DEGRADED, f"fails: {error.strerror}", means, "check the disk or the server")]
    took_ms = (time.perf_counter() - start) * 1000
    found = f"file and directory: {took_ms:.1f} ms"
    return [Finding("fsync", GOOD, found, measured={"took_ms": round(took_ms, 3)})]


def _sync(path: str) -> None:
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def group_member(subject: Subject) -> list[Finding]:
    """Check whether a member of a file's group can mark it as used now, as hits in a shared cache do."""
    if os.geteuid() != 0:
        return [Finding("group", UNTESTED, "another user's hits can be tried as root only")]
    path = _make(subject, "group")
    fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    try:
        os.fchown(fd, 0, _A_GROUP)
        os.fchmod(fd, 0o660)
        os.utime(fd, ns=(10**18, 10**18))
        refused = _as_group_member(lambda: os.utime(fd))
        was_set = os.fstat(fd).st_mtime_ns != 10**18
    except OSError as error:
        return [Finding("group", UNTESTED, f"a file with another group cannot be made here: {error.strerror}")]
    finally:
        os.close(fd)
    if not refused and was_set:
        return [Finding("group", GOOD, "a member of a file's group can record its use")]
    means = "in a cache that a group shares, only the owner's hits count as uses"
    found = f"a member of a file's group cannot state its use ({os.strerror(refused) if refused else 'without effect'})"
    return [Finding("group", DEGRADED, found, means, "give each user a cache, or let one user own all entries")]


def _as_group_member(act: Callable[[], Any]) -> int:
    """Returns the errno with which ``act`` fails for another user in the file's group; 0 if it succeeds."""
    child = os.fork()
    if child == 0:
        code = errno.EIO
        try:
            os.setgroups([_A_GROUP])
            os.setgid(_A_USER)
            os.setuid(_A_USER)
            act()
            code = 0
        except OSError as error:
            code = error.errno or errno.EIO
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def _make(subject: Subject, name: str) -> str:
    path = os.path.join(subject.probe, name)
    os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
    return path


def _in_words(ns: int) -> str:
    for unit, name in ((10**9, "s"), (10**6, "ms"), (1000, "us")):
        if ns >= unit:
            return f"{ns // unit} {name}"
    return f"{ns} ns"
