"""Directories that hold a given number of entries and are full, on which puts and opening are measured."""

from __future__ import annotations

import os
from contextlib import ExitStack
from functools import partial

from lockcache.filestream.disk import space_of
from lockcache.lowlevel import Layout, Policy
from lockcache_stress.bench.base import Bench, open_ours
from lockcache_stress.bench.peers import OURS, THEIRS, Peer, fill_as_theirs, opened

__all__ = ["ENTRY_BYTES", "cap_of_full", "fill", "full_cap", "held_bytes", "lacking_room"]

#: Small, so that 50,000 are made in seconds: what is measured is the cost of many entries, not of many bytes.
ENTRY_BYTES = 1024


def fill(bench: Bench, peer: Peer, entries: int) -> tuple[str, int]:
    """Returns a directory with ``entries`` entries of this cache, and the cap at which it is full.

    One of cuda.core's can be had where cuda.core is not installed. Our daemon keeps such a directory too.
    """
    path, value = bench.directory(f"{peer.name}-{entries}"), os.urandom(ENTRY_BYTES)
    with ExitStack() as stack:
        add = partial(fill_as_theirs, path) if peer is THEIRS else stack.enter_context(opened(peer, path)).fill
        for first in range(0, entries, 1000):
            bench.show(0.0, f"filling {peer.name}'s: {first:,} of {entries:,}")
            add(first, min(first + 1000, entries), value)
    cap = full_cap(peer, path, entries)
    if peer is OURS:
        bench.attend(path, cap)
    return path, cap


def full_cap(peer: Peer, path: str, entries: int) -> int:
    """Returns the cap at which a directory that holds so many entries is full; that of others counts values."""
    return cap_of_full(path) if peer is OURS else entries * ENTRY_BYTES


def cap_of_full(path: str) -> int:
    """Returns the cap at which a directory of ours is full with what it holds."""
    held = held_bytes(path)
    limit = Policy(held).entries_limit_bytes(space_of(Layout(path)))
    own = 0 if limit is None else held - limit  # which is the same for all caps but the smallest
    return held + own


def held_bytes(path: str) -> int:
    """Returns what a directory of ours holds by its own accounting: in blocks, and entries of cuda.core's too."""
    with open_ours(path) as cache:
        return cache.stats().bytes


def lacking_room(path: str, entries: int, entry_bytes: int | None = None) -> str:
    """What the file system has too little of for so many entries; empty if it has enough.

    ``entry_bytes``: what each takes on the disk; by default, the blocks of a small value.
    """
    status = os.statvfs(path)
    needed = entries * (max(ENTRY_BYTES, status.f_frsize) if entry_bytes is None else entry_bytes)
    if status.f_bavail * status.f_frsize < needed:
        return f"{entries:,} entries need {needed >> 20:,} MiB, and {path} has less (--directory)"
    if status.f_files and status.f_favail < entries:  # some file systems have no fixed number, and say 0
        return f"{entries:,} entries need as many inodes, and {path} has less (--directory)"
    return ""
