"""Directories that hold a given number of entries and are full: the ground on which puts and opening are measured."""

from __future__ import annotations

import hashlib
import os

from lockcache.filestream.disk import space_of
from lockcache.lowlevel import Layout, Policy
from lockcache_stress.bench.base import Bench, open_ours
from lockcache_stress.bench.peers import Peer, opened

__all__ = ["ENTRY_BYTES", "cap_of_full", "fill_other", "fill_ours", "fill_theirs", "held_bytes", "lacking_room"]

#: Small, so that 50,000 are made in seconds: what is measured is the cost of many entries, not of many bytes.
ENTRY_BYTES = 1024


def fill_ours(bench: Bench, entries: int) -> tuple[str, int]:
    """A directory of ours with ``entries`` entries, and the cap at which it is full."""
    path = bench.directory(f"ours-{entries}")
    cache, value = open_ours(path), os.urandom(ENTRY_BYTES)
    for number in range(entries):
        cache[b"old-%d" % number] = value
        if number % 1000 == 0:
            bench.show(0.0, f"filling: {number:,} of {entries:,}")
    cap = cap_of_full(path)
    bench.attend(path, cap)
    return path, cap


def cap_of_full(path: str) -> int:
    """The cap at which a directory of ours is full with what it holds."""
    held = held_bytes(path)
    limit = Policy(held).entries_limit_bytes(space_of(Layout(path)))
    own = 0 if limit is None else held - limit  # which is the same for all caps but the smallest
    return held + own


def held_bytes(path: str) -> int:
    """What a directory of ours holds by its own accounting: in blocks, and entries of cuda.core's too."""
    with open_ours(path) as cache:
        return cache.stats().bytes


def fill_theirs(bench: Bench, entries: int) -> tuple[str, int]:
    """The same for cuda.core's cache, written as plain files under its names: its own puts would take minutes.

    Our daemon keeps such a directory too, and counts more of it than the lengths that are returned.
    """
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


def fill_other(bench: Bench, peer: Peer, entries: int) -> tuple[str, int]:
    """The same for another's cache; its cap counts values."""
    path = bench.directory(f"{peer.name}-{entries}")
    bench.show(0.0, f"filling {peer.name}'s")
    with opened(peer, path) as store:
        store.fill(0, entries, os.urandom(ENTRY_BYTES))
    return path, entries * ENTRY_BYTES


def lacking_room(path: str, entries: int) -> str:
    """What the file system has too little of for so many entries; empty if it has enough."""
    status = os.statvfs(path)
    needed = entries * max(ENTRY_BYTES, status.f_frsize)
    if status.f_bavail * status.f_frsize < needed:
        return f"{entries:,} entries need {needed >> 20:,} MiB, and {path} has less (--directory)"
    if status.f_files and status.f_favail < entries:  # some file systems have no fixed number, and say 0
        return f"{entries:,} entries need as many inodes, and {path} has less (--directory)"
    return ""
