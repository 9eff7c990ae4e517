"""The register: every process's knowledge of all writes, enough to prove that a value is too old, never to guess it.

A write of a key begins at ``s`` and has returned at ``f``. A value is stale for a read that began at ``r`` if another
write to the key began after that value's own write had returned and itself returned before ``r``: ``f_old < s_new`` and
``f_new < r``. Then the older value was overwritten for certain, in whatever order overlapping writes took effect
(invariant 2, last write wins). Writes that overlap each other are never ordered here, so there is no false alarm; a
delete that found something, and a write that the cache dropped, count as writes. A read that saw a value proves it
written, so that the value's begin counts from the end of that read too: reads may not go back either.

Shared memory without locks, because a lock would fall to whom we SIGKILL: each cell is one aligned int64 that one
writer number alone stores. Ends are rounded up to microseconds and begins down, so that rounding only ever excuses.
A replaced worker gets a new number; what its predecessor had in flight stays unfinished for ever, which excuses it.
"""

from __future__ import annotations

import mmap
import os
from typing import NamedTuple

from lockcache_stress.plan import Plan, now_us

# A cell holds serial and end: 27 bits for 134 million writes, 36 bits of microseconds for 19 hours.
_TIME_BITS = 36
_TIME_MASK = (1 << _TIME_BITS) - 1


class Stamp(NamedTuple):
    """The write that a value comes from."""

    writer: int
    variant: int
    #: Counts the writes of one variant of one key by one writer, from 1.
    serial: int
    #: When it began, in microseconds since the run's epoch.
    started_us: int


class Snapshot(NamedTuple):
    """The knowledge about a key when a read began."""

    #: The latest begin of any write that had returned by then.
    floor_us: int
    #: The last finished write of each writer and variant.
    done: list[int]


class Register:
    """The shared tables, as one writer number sees and fills them."""

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
        """Returns what is known now about a key. Call it before the read."""
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
        """Go on counting where another process left this writer number; it has ended."""
        for cell, serial in enumerate(self._begun.tolist()):
            key, rest = divmod(cell, self._cells)
            writer, variant = divmod(rest, self._variants)
            if serial and writer == self._writer:
                self._serials[key, variant] = max(serial, self._serials.get((key, variant), 0))

    def abandon_write(self, key: int, stamp: Stamp) -> None:
        """Note, instead of :meth:`end_write`, that nothing was stored: no read can give this write's value."""
        cell = self._cell(key, stamp.writer, stamp.variant)
        self._begun[cell] = self._done[cell] >> _TIME_BITS

    def overwritten(self, key: int, started_us: int) -> None:
        """Note that a write or delete begun at ``started_us`` has taken effect: all that was complete then is gone."""
        cell = key * self._floors + self._writer
        self._floor[cell] = max(self._floor[cell], started_us)

    def is_stale(self, snapshot: Snapshot, stamp: Stamp) -> bool:
        """Returns whether a read that began at ``snapshot`` must not give the value of exactly this write."""
        cell = snapshot.done[stamp.writer * self._variants + stamp.variant]
        serial, ended_us = cell >> _TIME_BITS, cell & _TIME_MASK
        if serial == stamp.serial:
            return ended_us < snapshot.floor_us
        return serial > stamp.serial  # that writer itself had finished a newer one

    def is_stale_variant(self, key: int, snapshot: Snapshot, variant: int) -> bool:
        """Returns whether bytes are stale that name a variant but not the write: no write of it may excuse them.

        To be called after the read. The begun cell is read first: a write that ends in between excuses by its end.
        """
        for writer in range(self._floors):
            cell = self._cell(key, writer, variant)
            begun = self._begun[cell]
            done = self._done[cell]
            if begun > done >> _TIME_BITS or (done and done & _TIME_MASK >= snapshot.floor_us):
                return False
        return True

    def knows(self, stamp: Stamp) -> bool:
        """Returns whether there can be such a writer and variant at all."""
        return 0 <= stamp.writer < self._floors and 0 <= stamp.variant < self._variants

    def elapsed_us(self) -> int:
        """Returns the microseconds since the run's epoch, rounded down."""
        return now_us() - self._epoch_us

    def _cell(self, key: int, writer: int, variant: int) -> int:
        return key * self._cells + writer * self._variants + variant


def attach(path: str, cells: int) -> memoryview:
    """Returns so many int64 that all processes share, zero at first: a file that is mapped."""
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        os.ftruncate(fd, 8 * cells)
        return memoryview(mmap.mmap(fd, 8 * cells)).cast("q")
    finally:
        os.close(fd)
