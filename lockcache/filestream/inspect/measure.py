# SPDX-License-Identifier: Apache-2.0
"""A directory as a whole: what is accounted for, how it is spread, and how far that is from what the disk holds.

For programs that only inspect (``lockcache stats``, ``top``): makes no file and takes no lock, so it works while others
write and on read-only directories, and does not recreate a deleted one. Not promised: a snapshot of one moment.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable
from typing import Final, NamedTuple

from lockcache.filestream.accounting import (
    Slot,
    bytes_beside,
    decode_head,
    is_of,
    measure_shard,
    measure_shard_in_full,
    read_state,
    slots_in,
    staged_files,
)
from lockcache.filestream.disk import SHARDS, Layout

# Two equal looks in a row are believed; a shard that is written all the time gives none.
_LOOKS: Final = 4


class Spread(NamedTuple):
    """The spread of one number over the shards."""

    smallest: int
    median: int
    largest: int
    #: The number of shards in each of equally wide steps from the smallest to the largest.
    histogram: list[int]


class Drift(NamedTuple):
    """The excess (positive) or lack (negative) of the accounting."""

    bytes: int
    entries: int
    #: Shards that are wrong.
    shards: int
    #: Shards that were written during all attempts, so that their drift is not known.
    busy_shards: int


def accounted(layout: Layout) -> list[Slot] | None:
    """Returns the accounting of each shard; ``None`` where no lockcache ever wrote, or it cannot be read."""
    try:
        image = read_state(layout)
        head = decode_head(image)
        return slots_in(image) if head is not None and is_of(layout, head.folder) else None
    except OSError:
        return None


def measured(
    layout: Layout,
    after_shard: Callable[[int], object] = lambda stored_bytes: None,
    between: Callable[[], object] = lambda: None,
) -> list[Slot]:
    """Measure what the disk holds of each shard: 3 s for a million entries.

    ``after_shard`` is called, 256 times, with the bytes stored in the shard's entries: the lengths of their files.
    ``between`` is called after every thousand files, and may raise to give up. A write that is published meanwhile may
    count twice, as staged and as an entry.
    """
    slots, other_bytes = [], bytes_beside(layout)
    for shard in range(SHARDS):
        slot, stored_bytes = measure_shard_in_full(layout, shard, other_bytes[shard], between)
        slots.append(slot)
        after_shard(stored_bytes)
    return slots


def staged(layout: Layout) -> Slot:
    """Returns the bytes that unfinished writes reserve, and how many such writes there are."""
    sizes = [found.size_bytes for found in staged_files(layout)]
    return Slot(sum(sizes), len(sizes))


def spread(numbers: list[int], steps: int = 16) -> Spread:
    """Returns minimum, median, maximum and histogram of ``numbers``, of which there is at least one."""
    low, high = min(numbers), max(numbers)
    histogram = [0] * steps
    for number in numbers:
        histogram[min(steps - 1, (number - low) * steps // max(1, high - low))] += 1
    return Spread(low, int(statistics.median(numbers)), high, histogram)


def find_drift(layout: Layout, after_shard: Callable[[int], object] = lambda stored_bytes: None) -> Drift:
    """Measure how far the accounting is from the disk. Writers may go on meanwhile: what they change is not drift.

    ``after_shard`` as for :func:`measured`.
    """
    slots, beside = accounted(layout), bytes_beside(layout)
    doubtful = {}
    for shard, slot in enumerate(slots or ()):
        held, stored_bytes = measure_shard_in_full(layout, shard, beside[shard])
        if held != slot:
            doubtful[shard] = slot, held
        after_shard(stored_bytes)
    return _drift_of(layout, doubtful) if doubtful else Drift(0, 0, 0, 0)


def _drift_of(layout: Layout, doubtful: dict[int, tuple[Slot, Slot]]) -> Drift:
    """Returns the drift of shards, given what was accounted for and held: where a second look finds the same."""
    total = Drift(0, 0, 0, 0)
    for _ in range(_LOOKS):
        # Listed once for all shards, in which others may have made any number of names.
        slots, beside = accounted(layout), bytes_beside(layout)
        if not doubtful or slots is None:
            return total
        for shard, before in list(doubtful.items()):
            now = doubtful[shard] = slots[shard], measure_shard(layout, shard, beside[shard])
            if now[0] == now[1] or now == before:
                del doubtful[shard]
            if now == before:
                bytes_, entries = now[0].bytes - now[1].bytes, now[0].entries - now[1].entries
                total = Drift(total.bytes + bytes_, total.entries + entries, total.shards + 1, 0)
    return total._replace(busy_shards=len(doubtful))
