# SPDX-License-Identifier: Apache-2.0
"""The table of hits: how often entries were asked for, roughly, for eviction by value.

A count-min sketch (Cormode, Muthukrishnan 2005) with conservative update, behind the table of costs in the file of the
state page: 16,376 counters of 8 bits, of which an entry's name, a digest, chooses two; the smaller one counts. So it
takes the same room for any number of entries, and an entry that shares both counters with others counts too much. It
ages: after eight hits for each counter all are halved, and an eviction halves those of its victims, so that an entry
that comes back is known, and has to earn its place.

Counts are advice. They are kept in the process and added now and then, by pread and pwrite under the directory's lock;
where that is not to be had, or the process is killed, they are lost, and nothing else. The bytes may be anything.
"""

from __future__ import annotations

import os
import struct
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Final

from lockcache.filestream.accounting.state import HITS_AT, HITS_BYTES
from lockcache.filestream.disk import READ, UPDATE, Layout, is_alone, refuse_symlink

__all__ = ["MOST_HITS", "HitCounts", "add_hits_locked", "halve_hits_locked", "read_hits"]

#: The most that is counted for an entry.
MOST_HITS: Final = 255
# The hits since all counters were halved.
_HEAD: Final = struct.Struct("<q")
_COUNTERS: Final = HITS_BYTES - _HEAD.size
_HITS_FOR_EACH_COUNTER: Final = 8
_HALVED: Final = bytes(count // 2 for count in range(256))


class HitCounts:
    """The counts, in memory."""

    def __init__(self, blob: bytes = b"") -> None:
        blob = blob[:HITS_BYTES].ljust(HITS_BYTES, b"\0")
        self._hits = max(0, _HEAD.unpack_from(blob)[0])
        self._counters = bytearray(blob[_HEAD.size :])

    def __bytes__(self) -> bytes:
        return _HEAD.pack(self._hits) + self._counters

    def of(self, name: str) -> int:
        """Returns how often an entry was hit, by its name: roughly, and at most :data:`MOST_HITS`."""
        one, other = _places(name)
        return min(self._counters[one], self._counters[other])

    def add(self, name: str, hits: int) -> None:
        """Count hits on an entry."""
        count = min(MOST_HITS, self.of(name) + hits)
        for place in _places(name):
            self._counters[place] = max(self._counters[place], count)
        self._hits += hits
        if self._hits >= _HITS_FOR_EACH_COUNTER * _COUNTERS:
            self._hits = 0
            self._counters = self._counters.translate(_HALVED)

    def halve(self, name: str) -> None:
        """Halve what is counted for an entry, and take as much off those that share a counter with it."""
        count = self.of(name)
        for place in {*_places(name)}:  # one, of one name in 16,376
            self._counters[place] -= count - count // 2


def read_hits(layout: Layout) -> HitCounts:
    """Returns the counts of a directory: none where they cannot be read."""
    try:
        with layout.reach.open(layout.state, READ) as fd:
            return HitCounts(os.pread(fd, HITS_BYTES, HITS_AT))
    except OSError:
        return HitCounts()


def add_hits_locked(layout: Layout, names: Iterable[str]) -> None:
    """Count a hit for each of ``names``. Requires: the directory's lock. Raises :class:`OSError`."""
    with _changed(layout) as counts:
        for name, hits in Counter(names).items():
            counts.add(name, hits)


def halve_hits_locked(layout: Layout, names: Iterable[str]) -> None:
    """Halve what is counted for each of ``names``. Requires: the directory's lock. Raises :class:`OSError`."""
    with _changed(layout) as counts:
        for name in names:
            counts.halve(name)


@contextmanager
def _changed(layout: Layout) -> Iterator[HitCounts]:
    """Yields the counts, and writes what they are then: by one call, so that a death leaves the old ones or the new."""
    refuse_symlink(os.path.dirname(layout.state))
    file = layout.reach.open(layout.state, UPDATE)
    with file as fd:
        if is_alone(fd):  # not a link that somebody planted
            before = os.pread(fd, HITS_BYTES, HITS_AT)
            yield (counts := HitCounts(before))
            if (after := bytes(counts)) != before:
                os.pwrite(fd, after, HITS_AT)
                file.end_writing()
        else:
            yield HitCounts()


def _places(name: str) -> tuple[int, int]:
    # Not the digits that choose the shard, or the slot of the cost.
    return int(name[8:16], 16) % _COUNTERS, int(name[16:24], 16) % _COUNTERS
