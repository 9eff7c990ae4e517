"""A put of a new key, 16 KiB, into a directory without a cap; write and rename of a plain file as the floor.

What is judged is a new ext4, mounted for this by root from an image, unless a directory was named: what a disk takes to
make a file depends on what was deleted there before. An ext4 without a journal, as many virtual machines have, gives no
inode again within minutes after it was freed and looks at each such whenever a file is made: up to 1 ms, for each
program. What the same takes in the directory is reported next to it, and judged where nothing can be mounted.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from itertools import count, repeat
from typing import Final

from lockcache_stress.bench.base import VALUE_BYTES, Bench, Line
from lockcache_stress.bench.peers import Store, compare
from lockcache_stress.errors import UnusableError
from lockcache_stress.trouble import mounted_image, needs_mounts

__all__ = ["measure"]

_NAME: Final = "put, new key, 16 KiB"
_TIMES_FASTER: Final = 4.0
# Some 40 MB for each cache. All inodes are written at once: the kernel would do that while puts are measured.
_DISK_MIB: Final = 1024
_MKFS_OPTIONS: Final = ("-q", "-E", "lazy_itable_init=0,lazy_journal_init=0")


def measure(bench: Bench) -> list[Line]:
    """At least 4x faster than cuda.core."""
    with _new_disk(bench) as disk:
        if disk is None:
            return [_measure(bench, _NAME, _TIMES_FASTER, with_others=True)]
        judged = _measure(replace(bench, root=disk), f"{_NAME}, new ext4", _TIMES_FASTER, with_others=True)
    return [judged, _measure(bench, f"{_NAME}, this disk", None, with_others=False)]


@contextmanager
def _new_disk(bench: Bench) -> Iterator[str | None]:
    """Where a new ext4 is mounted; ``None`` where that may not or cannot be."""
    has_room = shutil.disk_usage(bench.root).free > _DISK_MIB << 20  # the image grows as it is filled
    if not bench.may_mount or not has_room or needs_mounts("mkfs.ext4") is not None:
        yield None
        return
    path = bench.directory("disk")
    with ExitStack() as stack:
        try:
            stack.enter_context(mounted_image(path, "ext4", _DISK_MIB, *_MKFS_OPTIONS))
        except (UnusableError, OSError):  # in a container, say, or with a limit to the size of files
            yield None
            return
        yield path


def _measure(bench: Bench, name: str, times_faster: float | None, *, with_others: bool) -> Line:
    value = os.urandom(VALUE_BYTES)

    def make(store: Store, calls: int) -> Callable[[], object]:
        return map(store.put, map(b"new-%d".__mod__, count()), repeat(value)).__next__

    others_pace = (bench.pick(51, 2), bench.pick(12, 5)) if with_others else None
    pace = bench.pick(101, 3), bench.pick(24, 10)
    return compare(bench, name, make, None, times_faster, pace, others_pace)
