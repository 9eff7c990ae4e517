"""A directory of ours with a great many small entries, made as cheaply as they can be: some 15 us each.

Each is a whole entry with a true record, and would be a hit: its payload is a hole of :data:`ENTRY_BYTES` zeros, which
takes no block, and it is made under its final name, by as many processes as there are cores, each in shards of its own,
without syncing. What removing them costs is the inode and the name, which for files this small is nearly all of it.

Their last uses are spread over a month and their compile costs over two orders of magnitude, by name. Entries that an
earlier run left are kept, and only those that it evicted are made again.
"""

from __future__ import annotations

import hashlib
import os
import random
import time
from collections.abc import Callable
from functools import partial
from typing import Final

from lockcache.filestream.entry import XATTR, Record, pack
from lockcache.lowlevel import SHARDS, CacheDirectory, Layout
from lockcache_stress.processes import start_pool

__all__ = ["BYTES_ON_DISK", "ENTRY_BYTES", "make_entries"]

ENTRY_BYTES: Final = 1024
#: What each takes on any file system: an inode with its attribute, and a name.
BYTES_ON_DISK: Final = 1024

_PAYLOAD: Final = bytes(ENTRY_BYTES)
_CHEAPEST_NS: Final = 20_000_000
_MOST_EXPENSIVE_OVER_CHEAPEST: Final = 100
_OLDEST_NS: Final = 30 * 24 * 3600 * 10**9


def make_entries(root: str, entries: int, show: Callable[[float, str], None]) -> None:
    """Make what is missing of ``entries`` entries (a multiple of 256), and the accounting say so."""
    os.makedirs(root, mode=0o700, exist_ok=True)
    CacheDirectory(root, 5.0).close()
    with start_pool(min(8, os.cpu_count() or 1)) as pool:
        for done, _ in enumerate(pool.imap_unordered(partial(_fill_shard, root, entries // SHARDS), range(SHARDS)), 1):
            show(done / SHARDS, f"making entries: {done * entries // SHARDS:,} of {entries:,}")
    directory = CacheDirectory(root, 5.0)
    try:
        os.unlink(directory.layout.usage)  # so that all is counted afresh: as at the first opening
        directory.usage()
    finally:
        directory.close()


def _fill_shard(root: str, entries: int, shard: int) -> None:
    path = Layout(root).entry_shard(shard)
    os.makedirs(path, mode=0o700, exist_ok=True)
    there = set(os.listdir(path))
    now_ns = time.time_ns()
    for number in range(entries):
        file = hashlib.sha256(b"%d/%d" % (shard, number)).hexdigest()[2:]
        if file not in there:
            _make_entry(f"{path}/{file}", f"{shard:02x}{file}", now_ns)


def _make_entry(path: str, name: str, now_ns: int) -> None:
    rng = random.Random(name)
    cost_ns = int(_CHEAPEST_NS * _MOST_EXPENSIVE_OVER_CHEAPEST ** rng.random())
    used_ns = now_ns - int(_OLDEST_NS * rng.random())
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        os.ftruncate(fd, ENTRY_BYTES)
        os.setxattr(fd, XATTR, pack(name, _PAYLOAD, Record(ENTRY_BYTES, used_ns, cost_ns, b"")))
        os.utime(fd, ns=(used_ns, used_ns))
    finally:
        os.close(fd)
