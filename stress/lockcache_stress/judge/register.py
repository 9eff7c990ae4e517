# SPDX-License-Identifier: Apache-2.0
"""The register: every process's knowledge of all writes, enough to prove that a value is too old, never to guess it.

A write of a key begins at ``s`` and has returned at ``f``. A value is stale for a read that began at ``r`` if another
write to the key began after that value's own write had returned and itself returned before ``r``: ``f_old < s_new`` and
``f_new < r``. Then the older value was overwritten for certain, in whatever order overlapping writes took effect
(invariant 2, last write wins). Writes that overlap each other are never ordered here, so there is no false alarm; a
delete that found an entry, and a write that the cache dropped, count as writes. A read that gave a value proves that
the value was written, so that later reads may not give older values either.

The memory is shared without locks, because a killed process would hold its lock for ever: each cell is one aligned
int64 that only one writer number stores. Ends are rounded up to microseconds and begins down, so that rounding can only
excuse a value. The replacement of a killed worker gets a new number; writes that the killed worker had begun stay
unfinished for ever, which excuses their values.
"""

from __future__ import annotations

import mmap
import os
from typing import NamedTuple

from lockcache_stress.plan import Plan, now_us

# A cell has a serial of 27 bits, for 134 million writes, and an end of 36 bits in microseconds, for 19 hours.
_TIME_BITS = 36
_TIME_MASK = (1 << _TIME_BITS) - 1


class Stamp(NamedTuple):
    """The write that a value comes from."""

    writer: int
    variant: int
    #: The number of this write among those of one variant of one key by one writer, from 1.
    serial: int
    #: The time of its begin, in microseconds since the run's epoch.
    started_us: int


class Snapshot(NamedTuple):
    """The knowledge about a key when a read began."""

    #: The latest begin of any write that had returned by then.
    floor_us: int
    #: The last finished write of each writer and variant.
    done: list[int]


class Register:
    """The shared tables, which one writer number reads and fills."""

    def __init__(self, plan: Plan, writer: int, epoch_us: int) -> None:
        self._writer = writer
        self._variants = plan.variants
        self._floors = plan.columns
        self._cells = plan.columns * plan.variants
        self._epoch_us = epoch_us
        self._serials: dict[tuple[int, int], int] = {}
        counts = (plan.keys * self._cells, plan.keys * self._cells, plan.keys * self._floors)
        table = attach(os.path.join(plan.control, "register"), sum(counts))
        self._done = table[: counts[0]]
        self._begun = table[counts[0] : counts[0] + counts[1]]
        self._floor = table[counts[0] + counts[1] :]

    def begin_read(self, key: int) -> Snapshot:
        """Returns the present knowledge about a key. Call it before the read."""
        floor = max(self._floor[key * self._floors : (key + 1) * self._floors].tolist())
        return Snapshot(floor, self._done[key * self._cells : (key + 1) * self._cells].tolist())

    def begin_write(self, key: int, variant: int = 0) -> Stamp:
        """Returns the stamp that the value must prove. Call it before the write."""
        serial = self._serials.get((key, variant), 0) + 1
        self._serials[key, variant] = serial
        self._begun[self._cell(key, self._writer, variant)] = serial
        return Stamp(self._writer, variant, serial, self.elapsed_us())

    def end_write(self, key: int, stamp: Stamp) -> None:
        """Note that a write was stored or dropped. Call it after the write has returned."""
        ended_us = self.elapsed_us() + 1
        self._done[self._cell(key, stamp.writer, stamp.variant)] = stamp.serial << _TIME_BITS | ended_us
        self.overwritten(key, stamp.started_us)

    def resume(self) -> None:
        """Go on counting after another process that had this writer number, and has ended."""
        for cell, serial in enumerate(self._begun.tolist()):
            key, rest = divmod(cell, self._cells)
            writer, variant = divmod(rest, self._variants)
            if serial and writer == self._writer:
                self._serials[key, variant] = max(serial, self._serials.get((key, variant), 0))

    def abandon_write(self, key: int, stamp: Stamp) -> None:
        """Note, instead of :meth:`end_write`, that the write stored nothing, so that no read can give its value."""
        cell = self._cell(key, stamp.writer, stamp.variant)
        self._begun[cell] = self._done[cell] >> _TIME_BITS

    def overwritten(self, key: int, started_us: int) -> None:
        """Note that a write or delete which began at ``started_us`` took effect: values complete by then are gone."""
        cell = key * self._floors + self._writer
        self._floor[cell] = max(self._floor[cell], started_us)

    def is_stale(self, snapshot: Snapshot, stamp: Stamp) -> bool:
        """Returns whether a read that began at ``snapshot`` must not give the value of exactly this write."""
        cell = snapshot.done[stamp.writer * self._variants + stamp.variant]
        serial, ended_us = cell >> _TIME_BITS, cell & _TIME_MASK
        if serial == stamp.serial:
            return ended_us < snapshot.floor_us
        return serial > stamp.serial  # the same writer had finished a newer write

    def is_stale_variant(self, key: int, snapshot: Snapshot, variant: int) -> bool:
        """Returns whether bytes that name a variant but not a write are stale: no write of the variant excuses them.

        Call it after the read. The cell of begins is read first, so that a write that ends in between excuses by its
        end.
        """
        for writer in range(self._floors):
            cell = self._cell(key, writer, variant)
            begun = self._begun[cell]
            done = self._done[cell]
            if begun > done >> _TIME_BITS or (done and done & _TIME_MASK >= snapshot.floor_us):
                return False
        return True

    def knows(self, stamp: Stamp) -> bool:
        """Returns whether there is such a writer and such a variant."""
        return 0 <= stamp.writer < self._floors and 0 <= stamp.variant < self._variants

    def elapsed_us(self) -> int:
        """Returns the microseconds since the run's epoch, rounded down."""
        return now_us() - self._epoch_us

    def _cell(self, key: int, writer: int, variant: int) -> int:
        return key * self._cells + writer * self._variants + variant


def attach(path: str, cells: int) -> memoryview:
    """Map a file of so many int64, zero at first, which all processes share."""
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        os.ftruncate(fd, 8 * cells)
        return memoryview(mmap.mmap(fd, 8 * cells)).cast("q")
    finally:
        os.close(fd)
