"""Directories that hold a given number of entries and are full: the ground on which puts and opening are measured."""

from __future__ import annotations

import hashlib
import os

from lockcache_stress.bench.base import Bench, open_ours

__all__ = ["ENTRY_BYTES", "fill_ours", "fill_theirs"]

#: Small, so that 50,000 are made in seconds: what is measured is the cost of many entries, not of many bytes.
ENTRY_BYTES = 1024
# What our cache sets aside of a cap for its own files.
_OWN_BYTES = 32 * 1024


def fill_ours(bench: Bench, entries: int) -> tuple[str, int]:
    """A directory of ours with ``entries`` entries, and the cap at which it is full."""
    path = bench.directory(f"ours-{entries}")
    cache, value = open_ours(path), os.urandom(ENTRY_BYTES)
    for number in range(entries):
        cache[b"old-%d" % number] = value
        if number % 1000 == 0:
            bench.show(0.0, f"filling: {number:,} of {entries:,}")
    held = cache.stats().bytes
    return path, held if held < 4 << 20 else held + _OWN_BYTES


def fill_theirs(bench: Bench, entries: int) -> tuple[str, int]:
    """The same for cuda.core's cache, written as plain files under its names: its own puts would take minutes."""
    path, value = bench.directory(f"theirs-{entries}"), os.urandom(ENTRY_BYTES)
    for number in range(entries):
        name = hashlib.sha256(b"old-%d" % number).hexdigest()
        shard = os.path.join(path, "entries", name[:2])
        os.makedirs(shard, mode=0o700, exist_ok=True)
        with open(os.path.join(shard, name[2:]), "wb") as file:
            file.write(value)
        if number % 1000 == 0:
            bench.show(0.0, f"filling: {number:,} of {entries:,}")
    return path, entries * ENTRY_BYTES
