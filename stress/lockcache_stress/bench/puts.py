# SPDX-License-Identifier: Apache-2.0
"""Puts of a new key: into a directory without a cap, and into a full one, evictions included.

Without a cap, a put of 16 KiB is measured, with write and rename of a plain file as the floor. The bar is judged on a
new ext4, which root mounts from an image, unless a directory was named: the time to make a file on a disk depends on
what was deleted there before. An ext4 without a journal, as many virtual machines have, reuses no inode within minutes
after it was freed, and inspects each such inode whenever a file is made, which takes any program up to 1 ms. The time
of a put in the directory is reported too, and judged where no file system can be mounted.

Into a full directory, puts are measured at 1,000 and at 50,000 entries, and cuda.core's at 50,000. Each block is long
enough for several puts that pay for the evictions of many others; the number is the median over blocks of the mean.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from itertools import count, repeat
from typing import Final

from lockcache_stress.bench.base import VALUE_BYTES, Bar, Bench, Line, interleaved, median_us, open_lockcache, shown
from lockcache_stress.bench.peers import CUDA_CORE, ENTRY_BYTES, LOCKCACHE, Peer, Store, compare, compared, fill, opened
from lockcache_stress.errors import UnusableError
from lockcache_stress.trouble import mounted_image, needs_mounts

_NAME: Final = "put, new key, 16 KiB"
_TIMES_FASTER: Final = 4.0
# Some 40 MB for each cache. All inodes are written when the disk is made, or the kernel would write them during puts.
_DISK_MIB: Final = 1024
_MKFS_OPTIONS: Final = ("-q", "-E", "lazy_itable_init=0,lazy_journal_init=0")
_GROWTH: Final = Bar("<=", 2, "x")
_FASTER: Final = Bar(">=", 500, "x")
# Two evictions of a sixteenth of the sample of 4,096 entries.
_CALLS_PER_BLOCK = 512


def measure_put(bench: Bench) -> list[Line]:
    """Measure puts: at least 4x faster than cuda.core's."""
    with _new_disk(bench) as disk:
        if disk is None:
            return [_put_line(bench, _NAME, _TIMES_FASTER, with_others=True)]
        judged = _put_line(replace(bench, root=disk), f"{_NAME}, new ext4", _TIMES_FASTER, with_others=True)
    return [judged, _put_line(bench, f"{_NAME}, this disk", None, with_others=False)]


@contextmanager
def _new_disk(bench: Bench) -> Iterator[str | None]:
    """Yields the path of a new ext4; ``None`` where none may or can be mounted."""
    has_room = shutil.disk_usage(bench.root).free > _DISK_MIB << 20  # the image grows as it is filled
    if not bench.may_mount or not has_room or needs_mounts("mkfs.ext4") is not None:
        yield None
        return
    path = bench.directory("disk")
    with ExitStack() as stack:
        try:
            stack.enter_context(mounted_image(path, "ext4", _DISK_MIB, *_MKFS_OPTIONS))
        except (UnusableError, OSError):  # such as in a container, or with a limit for the size of files
            yield None
            return
        yield path


def _put_line(bench: Bench, name: str, times_faster: float | None, *, with_others: bool) -> Line:
    value = os.urandom(VALUE_BYTES)

    def make(store: Store, calls: int) -> Callable[[], object]:
        return map(store.put, map(b"new-%d".__mod__, count()), repeat(value)).__next__

    others_pace = (bench.pick(51, 2), bench.pick(12, 5)) if with_others else None
    pace = bench.pick(101, 3), bench.pick(24, 10)
    return compare(bench, name, make, None, times_faster, pace, others_pace)


def measure_put_full(bench: Bench) -> list[Line]:
    """Measure puts into a full directory: within 2x of the smaller one, at least 500x faster than cuda.core's."""
    few, many = bench.pick(1000, 50), bench.pick(50_000, 300)
    small, large = (_putter(open_lockcache(*fill(bench, LOCKCACHE, entries)).__setitem__) for entries in (few, many))
    calls = bench.pick(_CALLS_PER_BLOCK, 64)
    times_us = interleaved({"small": small, "large": large}, bench.pick(9, 2), calls, bench.show)
    others_us = {peer.name: _other(bench, peer, many) for peer in compared()}
    theirs_us = others_us.pop(CUDA_CORE.name, None)
    return _lines(few, many, times_us["small"], times_us["large"], theirs_us, others_us)


def _lines(
    few: int,
    many: int,
    small_us: float,
    large_us: float,
    theirs_us: float | None,
    others_us: Mapping[str, float],
) -> list[Line]:
    growth = large_us / small_us
    faster = None if theirs_us is None else theirs_us / large_us
    numbers = {
        "small_us": small_us,
        "large_us": large_us,
        "theirs_us": theirs_us,
        "growth": growth,
        "ratio": faster,
        "others_us": dict(others_us),
    }
    name, ours = f"put into a full cache of {many:,}, mean", f"{large_us:,.1f} us"
    return [
        Line(f"put into a full cache of {few:,}, mean", f"{small_us:,.1f} us"),
        Line(
            name,
            ours,
            **_GROWTH.in_ratio(growth, f" that at {few:,}"),
            is_time=True,
            numbers=numbers,
        ),
        Line(
            "the same against cuda.core",
            ours,
            theirs=shown(theirs_us, "{:,.0f} us"),
            others={each: f"{taken:,.0f} us" for each, taken in others_us.items()},
            **_FASTER.in_ratio(faster, " faster"),
            is_time=True,
        ),
    ]


def _putter(put: Callable[[bytes, bytes], object]) -> Callable[[], object]:
    numbers, value = count(), os.urandom(ENTRY_BYTES)
    return lambda: put(b"new-%d" % next(numbers), value)


def _other(bench: Bench, peer: Peer, entries: int) -> float:
    """Returns the median of a few puts of another cache; a put of cuda.core takes half a second at 50,000 entries."""
    path, cap = fill(bench, peer, entries)
    with opened(peer, path, cap) as store:
        return median_us(bench.pick(5, 2), _putter(store.put))
