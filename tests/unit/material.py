# SPDX-License-Identifier: Apache-2.0
"""Material of unit tests: paths of one entry, puts by a writer, the bytes on disk, open descriptors."""

from __future__ import annotations

import gc
import os
from pathlib import Path

from hypothesis import settings

from lockcache.filestream.accounting.scan import measure_shard
from lockcache.filestream.accounting.state import Slot
from lockcache.filestream.directory import CacheDirectory
from lockcache.filestream.disk.layout import SHARDS, Layout, entry_name
from lockcache.filestream.entry.codec import Record
from lockcache.filestream.writer import EntryWriter, Outcome

#: For property tests: no example database in the tree, no wall-time limits.
property_test = settings(deadline=None, database=None, max_examples=60)


def entry_path(root: str | Path, key: bytes = b"k") -> str:
    return Layout(str(root)).entry(entry_name(key))


def record_path(root: str | Path, key: bytes = b"k") -> str:
    return Layout(str(root)).record(entry_name(key))


def shard_of(key: bytes) -> int:
    return int(entry_name(key)[:2], 16)


def keys_in_shard(shard: int, count: int) -> list[bytes]:
    """Returns the first ``count`` keys whose entries are in one shard."""
    found: list[bytes] = []
    number = 0
    while len(found) < count:
        key = b"%d" % number
        if shard_of(key) == shard:
            found.append(key)
        number += 1
    return found


def open_directory(path: str | Path, timeout_seconds: float = 5.0) -> CacheDirectory:
    return CacheDirectory(str(path), timeout_seconds)


def put(directory: CacheDirectory, key: bytes, payload: bytes, *, record_files: bool = False, tail: bytes = b"") -> str:
    """Store through a writer. Returns the entry's name."""
    writer = EntryWriter(directory, 5.0, fsync=False, use_record_files=record_files)
    name = entry_name(key)
    assert writer.store(name, payload, Record(len(payload), 1, 0, tail)).outcome is Outcome.STORED
    return name


def on_disk(root: str | Path) -> Slot:
    """Returns what the accounting should state: entries, and the reservations of staged files."""
    slots = [measure_shard(Layout(str(root)), shard) for shard in range(SHARDS)]
    return Slot(sum(slot.bytes for slot in slots), sum(slot.entries for slot in slots))


def set_last_use(path: str, seconds: float) -> None:
    os.utime(path, (seconds, seconds))


def descriptors() -> set[str]:
    """Returns the open descriptors by number and target, without sockets: a thread of an earlier test may close one."""
    found = set()
    for number in os.listdir("/proc/self/fd"):
        try:
            found.add(f"{number} {os.readlink(f'/proc/self/fd/{number}')}")
        except FileNotFoundError:
            pass  # the descriptor of the listing itself
    return {each for each in found if " socket:" not in each}


def descriptors_to_begin_with() -> set[str]:
    """Returns :func:`descriptors` once those are closed that earlier tests left to the garbage collector."""
    gc.collect()
    return descriptors()
