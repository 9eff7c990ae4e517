# SPDX-License-Identifier: Apache-2.0
"""Writers and readers of a pyptx directory for daemons to keep, in processes of their own."""

from __future__ import annotations

import contextlib
import functools
import os
import random
import time
from pathlib import Path

from lockcache.integrations.pyptx import CacheEntry, CacheKey, CubinCache
from tests.unit.integrations.pyptx_format import write_entry

SUFFIXES = {"json", "ptx", "cubin"}


def key_of(number: int) -> CacheKey:
    return CacheKey(f"kernel {number}", (("BM", 64),), (((8,), "f32"),), "sm_90a")


def entry_of(number: int, writer: int = 0, cubin_bytes: int = 9000) -> CacheEntry:
    """Returns an entry of some 10 kB, of which each part names the same write."""
    tag = f"{number} by {writer}"
    return CacheEntry(key_of(number), f"{tag}\n" * 50, tag.encode().ljust(cubin_bytes, b"."), {"tag": tag})


def prove(entry: CacheEntry) -> None:
    """Assert that the entry is whole, and from one writer."""
    tag = entry.metadata["tag"]
    assert entry.key == key_of(int(tag.split()[0]))
    assert entry.ptx_source == f"{tag}\n" * 50
    assert entry.cubin_bytes is not None
    assert entry.cubin_bytes.rstrip(b".") == tag.encode()


def store(root: Path, numbers: range, *, by_pyptx: bool = False) -> None:
    """Store entries that were used an hour ago, in the order of their numbers."""
    cache = CubinCache(root)
    for number in numbers:
        write_entry(root, entry_of(number)) if by_pyptx else cache.put(entry_of(number))
        set_age(root, number)


@functools.cache
def _an_hour_ago(root: Path) -> int:
    """Returns a time an hour before the directory was filled. Only the order counts.

    With any mount option, a mere read leaves an atime that is newer than the mtime and younger than a day.
    """
    return int(time.time()) - 3600


def set_age(root: Path, number: int) -> None:
    with contextlib.suppress(FileNotFoundError):  # a running daemon may have evicted it by now
        for suffix in SUFFIXES:
            seconds = _an_hour_ago(root) + number
            os.utime(root / f"{key_of(number).hash()}.{suffix}", (seconds, seconds - 10))


def parts(root: Path) -> dict[str, set[str]]:
    """Returns the suffixes of each name."""
    found: dict[str, set[str]] = {}
    for path in root.glob("*.*"):
        found.setdefault(path.stem, set()).add(path.suffix[1:])
    return found


def bytes_of(root: Path) -> int:
    """Returns the bytes of entries, of their remains, and of staged files."""
    total = 0
    for path in [*root.glob("*.*"), *root.glob("lockcache/staged/*")]:
        with contextlib.suppress(FileNotFoundError):
            total += path.lstat().st_size
    return total


def put_many(root: str, writer: int, turns: int) -> int:
    cache = CubinCache(root)
    draw = random.Random(writer)
    for _ in range(turns):
        cache.put(entry_of(draw.randrange(400), writer))
    return cache.stats().dropped_writes


def put_many_as_pyptx(root: str, first: int, turns: int) -> int:
    for number in range(first, first + turns):
        write_entry(Path(root), entry_of(number))
    return 0


def read_many(root: str, reader: int, turns: int) -> tuple[int, int]:
    """Read entries and prove every hit. Returns (hits, corrupt entries)."""
    cache = CubinCache(root)
    draw = random.Random(reader)
    for _ in range(turns):
        cache.clear()
        found = cache.get(key_of(draw.randrange(400)))
        if found is not None:
            prove(found)
    return cache.stats().hits, cache.stats().corrupt_entries
