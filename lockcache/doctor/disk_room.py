# SPDX-License-Identifier: Apache-2.0
"""Surroundings of a cache: room on its disk, and what this process may open."""

from __future__ import annotations

import os
import resource
from typing import Final

from lockcache.doctor.findings import DEGRADED, GOOD, NOTE, Finding, Subject
from lockcache.errors import LockcacheError
from lockcache.lowlevel import SHARDS, Layout, StatedPolicy, count_shard, measure_shard
from lockcache.sizes import format_size

# A first opening makes a few files, a put two and perhaps a directory and a lock.
_LEAST_INODES: Final = 1000
_LEAST_BYTES: Final = 16 * 1024 * 1024

# The assumed mean if there is no entry: a small kernel's cubin.
_ASSUMED_ENTRY_BYTES: Final = 16 * 1024
# A shard of each tells enough of the sizes.
_SAMPLED_SHARDS: Final = 16

# Below this a program has hardly any left for itself.
_FEW_DESCRIPTORS: Final = 64


def room(subject: Subject) -> list[Finding]:
    """Free bytes and inodes, against the cap."""
    disk = os.statvfs(subject.place)
    free_bytes, free_inodes = disk.f_bavail * disk.f_frsize, disk.f_favail
    has_inodes = disk.f_files > 0  # btrfs and some network file systems make them as they go
    cap = _cap(subject)
    held_bytes, mean_bytes = _held(subject)
    measured = {
        "free_bytes": free_bytes,
        "free_inodes": free_inodes if has_inodes else None,
        "max_size_bytes": cap,
        "mean_entry_bytes": mean_bytes,
    }
    if not disk.f_blocks:
        return [Finding("room", NOTE, "this file system does not report how much", "set a cap", measured=measured)]
    inodes = f"{free_inodes} inodes" if has_inodes else "any number of inodes"
    found = f"{format_size(free_bytes)} and {inodes} free"
    if free_bytes < _LEAST_BYTES or (has_inodes and free_inodes < _LEAST_INODES):
        means = "writes evict entries to get room, or are dropped"
        return [Finding("room", DEGRADED, found, means, "free some, or use another disk", measured)]
    if cap is None:
        means = "the cache grows until the disk is full"
        advice = "lockcache policy set --max-size SIZE DIR, or FileStreamProgramCache(..., max_size_bytes=...)"
        return [Finding("room", NOTE, f"{found}; no cap", means, advice, measured)]
    missing_bytes = max(0, cap - held_bytes)
    if missing_bytes > free_bytes:
        found += f"; the cap of {format_size(cap)} needs {format_size(missing_bytes)} more"
        means = "the disk is full before the cap is reached: writes then evict, or are dropped"
        return [Finding("room", DEGRADED, found, means, "lower the cap, or make room on the disk", measured)]
    if has_inodes and missing_bytes // mean_bytes > free_inodes:
        found += f"; the cap holds some {missing_bytes // mean_bytes} more entries of {format_size(mean_bytes)}"
        means = "inodes run out before the cap is reached: writes then evict, or are dropped"
        return [
            Finding("room", DEGRADED, found, means, "lower the cap, or make the file system with more inodes", measured)
        ]
    return [Finding("room", GOOD, f"{found}; a cap of {format_size(cap)} fits", measured=measured)]


def _cap(subject: Subject) -> int | None:
    if subject.kind != "cache":
        return None
    try:
        return StatedPolicy(Layout(subject.root)).load().max_size_bytes
    except (LockcacheError, OSError):
        return None  # reported by the policy's own check


def _held(subject: Subject) -> tuple[int, int]:
    """Returns the bytes that all entries hold, and the mean of one, estimated from some shards."""
    if subject.kind != "cache":
        return 0, _ASSUMED_ENTRY_BYTES
    layout = Layout(subject.root)
    used = [shard for shard in range(SHARDS) if count_shard(layout, shard)]
    sampled = used[:: max(1, len(used) // _SAMPLED_SHARDS)]
    slots = [measure_shard(layout, shard) for shard in sampled]
    entries = sum(slot.entries for slot in slots)
    if not entries:
        return 0, _ASSUMED_ENTRY_BYTES
    sampled_bytes = sum(slot.bytes for slot in slots)
    return sampled_bytes * len(used) // len(sampled), max(1, sampled_bytes // entries)


def descriptors(subject: Subject) -> list[Finding]:
    """Check how many files a process started from here may have open."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    measured = {"soft": soft, "hard": hard}
    unlimited = resource.RLIM_INFINITY
    found = f"a process may open {'any number of' if soft == unlimited else soft} files"
    if soft == unlimited or soft >= 2 * SHARDS + _FEW_DESCRIPTORS:
        return [Finding("open files", GOOD, found, measured=measured)]
    if soft < _FEW_DESCRIPTORS:
        means = "programs that open files of their own soon have none left, and writes are dropped"
        return [Finding("open files", DEGRADED, found, means, "ulimit -n 1024", measured)]
    means = "some of the 256 locks are opened for each use: 2 us more for a write"
    return [Finding("open files", NOTE, found, means, "ulimit -n 1024", measured)]
