# SPDX-License-Identifier: Apache-2.0
"""The worth of entries, as the file of the state page knows it: ages, hits and costs, for eviction by value.

- **Ages** (:mod:`.ages`): 1,024 bytes of the head's block, 64 times (int64, ns since the epoch), each with its age
  (double); zeros for none. Whatever they are, those that are read are finite, rise with time, and leave room to rise.
- **Hits**, roughly: a count-min sketch (Cormode, Muthukrishnan 2005) with conservative update, 16,376 counters of 8
  bits, of which an entry's name, a digest, chooses two; the smaller one counts. So it takes the same room for any
  number of entries, and an entry that shares both counters with others counts too much. It ages: after eight hits for
  each counter all are halved, and an eviction halves those of its victims, so that an entry that comes back is known,
  and has to earn its place.
- **Costs** that an eviction read in records, for the next one, which then reads only the records of newer entries: up
  to 4,096, of the entries that it looked at. First the parts of names (4 bytes of each, with the inode mixed in, so
  that a value that replaces another one is asked itself), then the costs
  (single-precision ns; 0 where a record states none), in no order.

All of it is advice, and changed under the directory's lock; where that is not to be had, or the process is killed, a
change is lost, and nothing else. The bytes may be anything.
"""

from __future__ import annotations

import struct
import sys
from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import accumulate, islice
from typing import Final, NamedTuple

from lockcache.filestream.accounting.ages import MOST_AGE, Ages
from lockcache.filestream.accounting.head import AGES_AT, AGES_END
from lockcache.filestream.accounting.state import FILE_BYTES, HITS_AT, PRICES_AT, PRICES_BYTES
from lockcache.filestream.disk import Layout, read_small

__all__ = ["MOST_HITS", "UNKNOWN", "Known", "Worth", "read_worth"]

#: The most that is counted for an entry.
MOST_HITS: Final = 255
#: The cost of an entry whose record has to be asked.
UNKNOWN: Final = -1.0
_POINT: Final = struct.Struct("<qd")
_LATEST_NS: Final = 2**63 - 1
# The hits since all counters were halved.
_HEAD: Final = struct.Struct("<q")
_COUNTERS: Final = PRICES_AT - HITS_AT - _HEAD.size
_HITS_FOR_EACH_COUNTER: Final = 8
_HALVED: Final = bytes(count // 2 for count in range(256))
#: The most costs that are remembered.
MOST_COSTS: Final = PRICES_BYTES // 8
_COSTS_AT: Final = PRICES_AT + 4 * MOST_COSTS
# Odd: neighbouring inodes differ in all digits.
_MIX: Final = 0x9E3779B1
# Longer than any compilation, as in records.
_LARGEST_COST_NS: Final = 24 * 3600 * 10**9
# Of a name: not the digits that choose the shard, or the slot in the table of costs.
_parts: Final = struct.Struct(">4x3I16x").iter_unpack


class Known(NamedTuple):
    """What is known of some entries, in their order."""

    #: The parts of their names by which costs are remembered.
    parts: Sequence[int]
    #: How often each was hit: roughly, and at most :data:`MOST_HITS`.
    hits: list[int]
    #: What each cost, in ns; 0 where its record does not state it, and :data:`UNKNOWN` where that has to be asked.
    costs: list[float]


class Worth:
    """The worth of entries, in memory."""

    __slots__ = ("_counters", "_hits", "_image", "_learned", "ages")

    def __init__(self, image: bytes = b"") -> None:
        """``image``: the file's bytes, or some of them. What cannot be is left out."""
        self._image = image = image.ljust(FILE_BYTES, b"\0")
        points = sorted(
            (time_ns, age)
            for time_ns, age in _POINT.iter_unpack(image[AGES_AT:AGES_END])
            if 0 < time_ns < _LATEST_NS and 0 <= age < MOST_AGE  # nor what is not a number
        )
        #: The ages of the directory.
        self.ages = Ages(tuple(time_ns for time_ns, _ in points), tuple(accumulate((age for _, age in points), max)))
        self._hits = max(0, _HEAD.unpack_from(image, HITS_AT)[0])
        self._counters = bytearray(image[HITS_AT + _HEAD.size : PRICES_AT])
        self._learned: Mapping[int, float] = {}

    def of(self, name: str) -> int:
        """Returns how often an entry was hit."""
        return min(map(self._counters.__getitem__, _places(name)))

    def of_all(self, names: Iterable[str], inodes: Iterable[int] = ()) -> Known:
        """Returns what is known of entries, whose files have these inodes."""
        numbers = array("I", bytes.fromhex("".join(names)))  # eight of each name; no object for each name
        if sys.byteorder == "little":
            numbers.byteswap()
        counters, image = self._counters, self._image
        parts: Sequence[int] = numbers[3::8]
        if marks := [inode * _MIX & 0xFFFFFFFF for inode in inodes]:
            parts = [part ^ mark for part, mark in zip(parts, marks, strict=True)]
        count = -(-len(image[PRICES_AT:_COSTS_AT].rstrip(b"\0")) // 4)
        costs = struct.unpack_from(f"<{count}f", image, _COSTS_AT)
        if not (min(costs, default=0) >= 0 and max(costs, default=0) <= _LARGEST_COST_NS and sum(costs) >= 0):
            count = 0  # damaged: it is learned again
        cost_of = dict(zip(struct.unpack_from(f"<{count}I", image, PRICES_AT), costs, strict=False)).get
        return Known(
            parts,
            [
                one if (one := counters[first % _COUNTERS]) < (other := counters[second % _COUNTERS]) else other
                for first, second in zip(numbers[1::8], numbers[2::8], strict=True)
            ],
            [cost_of(part, UNKNOWN) for part in parts],
        )

    def add(self, name: str, hits: int) -> None:
        """Count hits on an entry."""
        count = min(MOST_HITS, self.of(name) + hits)
        for place in _places(name):
            self._counters[place] = max(self._counters[place], count)
        self._hits += hits
        if self._hits >= _HITS_FOR_EACH_COUNTER * _COUNTERS:
            self._hits = 0
            self._counters = self._counters.translate(_HALVED)

    def note_evicted(
        self, gone: Sequence[tuple[str, float]], now_ns: int, learned: Mapping[int, float] | None = None
    ) -> None:
        """Raise the age to the values of what was evicted, and halve what is counted for its hits.

        Takes as much off those that share a counter with it. ``gone``: the names and values, one at least. ``learned``:
        costs to remember, by the parts of names, in place of those that were.
        """
        self.ages = self.ages.raised(now_ns, max(value for _, value in gone))
        counters, self._learned = self._counters, learned or {}
        for first, second, _ in _parts(bytes.fromhex("".join(name for name, _ in gone))):
            places = {first % _COUNTERS, second % _COUNTERS}  # one, of one name in 16,376
            count = min(map(counters.__getitem__, places))
            for place in places:
                counters[place] -= count - count // 2

    def changed(self) -> Iterator[tuple[int, bytes]]:
        """Yields what is to be written into the file, and where: each by one call, which leaves old bytes or new."""
        ages = b"".join(map(_POINT.pack, *self.ages)).ljust(AGES_END - AGES_AT, b"\0")
        for at, block in ((AGES_AT, ages), (HITS_AT, _HEAD.pack(self._hits) + self._counters)):
            if self._image[at : at + len(block)] != block:
                yield at, block
        if pairs := dict(islice(self._learned.items(), MOST_COSTS)):
            parts, costs = struct.pack(f"<{len(pairs)}I", *pairs), struct.pack(f"<{len(pairs)}f", *pairs.values())
            yield PRICES_AT, parts.ljust(4 * MOST_COSTS, b"\0") + costs.ljust(4 * MOST_COSTS, b"\0")


def read_worth(layout: Layout) -> Worth:
    """Returns what a directory knows: nothing where it cannot be read."""
    try:
        return Worth(read_small(layout, layout.state, FILE_BYTES))
    except OSError:
        return Worth()


def _places(name: str) -> tuple[int, int]:
    [(first, second, _)] = _parts(bytes.fromhex(name))
    return first % _COUNTERS, second % _COUNTERS
