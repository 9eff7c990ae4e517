"""Directories that hold a given number of entries and are full: the ground on which puts and opening are measured."""

from __future__ import annotations

import hashlib
import os

from lockcache_stress.bench.base import Bench, open_ours
from lockcache_stress.bench.peers import Peer, opened

__all__ = ["ENTRY_BYTES", "cap_for", "fill_other", "fill_ours", "fill_theirs", "lacking_room"]

#: Small, so that 50,000 are made in seconds: what is measured is the cost of many entries, not of many bytes.
ENTRY_BYTES = 1024
# What our cache sets aside of a cap for its own files.
_OWN_BYTES = 40 * 1024


def fill_ours(bench: Bench, entries: int) -> tuple[str, int]:
    """A directory of ours with ``entries`` entries, and the cap at which it is full."""
    path = bench.directory(f"ours-{entries}")
    cache, value = open_ours(path), os.urandom(ENTRY_BYTES)
    for number in range(entries):
        cache[b"old-%d" % number] = value
        if number % 1000 == 0:
            bench.show(0.0, f"filling: {number:,} of {entries:,}")
    cap = cap_for(cache.stats().bytes)
    bench.attend(path, cap)
    return path, cap


def cap_for(held_bytes: int) -> int:
    """The cap at which a directory of ours that holds so much is full."""
    return held_bytes if held_bytes < 4 << 20 else held_bytes + _OWN_BYTES


def fill_theirs(bench: Bench, entries: int) -> tuple[str, int]:
    """The same for cuda.core's cache, written as plain files under its names: its own puts would take minutes.

    Our daemon keeps such a directory too.
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
