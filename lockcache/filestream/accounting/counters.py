# SPDX-License-Identifier: Apache-2.0
"""Counters of all programs that share a directory, hits, misses and the like: one sector that they add to.

Those of the directory are in the head of the state page (:mod:`.head`), and changed under the directory's lock. Nothing
but people and dashboards may rely on these numbers: a sector that is damaged counts for nothing and is begun again, and
where locks exclude nobody (invariant 6, locks coordinate) a report may be lost.

The sector, little-endian: 31 int64, the numbers; 31 int64, what they were at the last reset; 8 zeros; the digest.
Numbers that this version does not know are left as they are. A power cut leaves an old sector or a new one.
"""

from __future__ import annotations

import struct
import time
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Final, Generic, TypeVar

from xxhash import xxh3_64_intdigest

from lockcache.filestream.accounting.head import COUNTERS_AT, COUNTERS_END
from lockcache.filestream.accounting.state import FILE_BYTES, StatePage, read_state
from lockcache.filestream.accounting.worth import Worth
from lockcache.filestream.disk import Layout
from lockcache.reports import Counters, Numbers, difference, total

__all__ = ["SECTOR_BYTES", "CountersCodec", "HeldCounters", "read_counters", "read_since"]

_T = TypeVar("_T")

_MOST: Final = 31
_NUMBERS: Final = struct.Struct(f"<{2 * _MOST}q8x")
_DIGEST: Final = struct.Struct("<Q")
#: The bytes of a sector.
SECTOR_BYTES: Final = _NUMBERS.size + _DIGEST.size
_NOTHING: Final = (0,) * _MOST
_LARGEST: Final = 2**63 - 1
# At a sector that may just be written: that takes less than a microsecond.
_LOOKS: Final = 3


class CountersCodec(Generic[_T]):
    """The bytes of a sector, for one kind of counters.

    Two of their fields it counts itself: ``reports`` and, next to it, ``last_report_ns``, in ns since the epoch.
    """

    def __init__(self, make: Callable[..., _T], fields: tuple[str, ...]) -> None:
        self._make = make
        self._fields = len(fields)
        self._reports = fields.index("reports")

    def read(self, sector: bytes) -> _T:
        """Returns the counters; zeros if nothing was reported, or the sector cannot be understood."""
        return self._make(*_decode(sector)[0][: self._fields])

    def read_since(self, sector: bytes) -> _T | None:
        """Returns what came since :meth:`reset`, whose time is ``last_report_ns``; ``None`` before any."""
        now, base = _decode(sector)
        if not base[self._reports + 1]:
            return None
        since = self._stamped(difference(now, base), base[self._reports + 1])
        return self._make(*since[: self._fields])

    def add(self, sector: bytes, delta: Numbers) -> bytes:
        """Returns the sector with ``delta`` added to it."""
        now, base = _decode(sector)
        counted = list(total(now, (*delta, *_NOTHING[len(delta) :])))
        counted[self._reports] = now[self._reports] + 1
        return _encode(self._stamped(tuple(counted), time.time_ns()), base)

    def reset(self, sector: bytes) -> bytes:
        """Returns the sector from which people count again: what it says now stands next to it, to be subtracted.

        So no metric decreases.
        """
        now, _ = _decode(sector)
        return _encode(now, self._stamped(now, time.time_ns()))

    def _stamped(self, numbers: Numbers, now_ns: int) -> Numbers:
        return (*numbers[: self._reports + 1], now_ns, *numbers[self._reports + 2 :])


_PROGRAMS: Final = CountersCodec(Counters, Counters._fields)


class HeldCounters:
    """The counters of all programs. Requires: the directory's lock."""

    def __init__(self, page: StatePage) -> None:
        self._page = page

    def add(self, delta: Numbers) -> None:
        """Add to each number. Raises :class:`OSError`."""
        self._page.write(COUNTERS_AT, _PROGRAMS.add(_sector_in(self._page.image()), delta))

    def add_hits(self, names: Iterable[str]) -> None:
        """Count a hit on each of these entries, for eviction by value. Raises :class:`OSError`."""
        worth = Worth(self._page.image(FILE_BYTES))
        for name, hits in Counter(names).items():
            worth.add(name, hits)
        for at, block in worth.changed():
            self._page.write(at, block)

    def reset(self) -> None:
        """Begin to count again, for people. Raises :class:`OSError`."""
        self._page.write(COUNTERS_AT, _PROGRAMS.reset(_sector_in(self._page.image())))


def read_counters(layout: Layout) -> Counters:
    """Returns the counters of a directory: zeros if nothing was reported, or they cannot be read or understood."""
    return _PROGRAMS.read(_read(layout))


def read_since(layout: Layout) -> Counters | None:
    """Returns what was counted since :meth:`HeldCounters.reset`, whose time is ``last_report_ns``; ``None``: never."""
    return _PROGRAMS.read_since(_read(layout))


def is_sector(blob: bytes) -> bool:
    """Returns whether these are the bytes of a sector that counts."""
    return len(blob) == SECTOR_BYTES and _DIGEST.unpack_from(blob, _NUMBERS.size)[0] == xxh3_64_intdigest(
        blob[: _NUMBERS.size]
    )


def _read(layout: Layout) -> bytes:
    sector = b""
    for _ in range(_LOOKS):
        try:
            sector = _sector_in(read_state(layout))
        except OSError:
            return b""
        if is_sector(sector) or not sector.strip(b"\0"):
            break
    return sector


def _sector_in(image: bytes) -> bytes:
    return image[COUNTERS_AT:COUNTERS_END]


def _decode(blob: bytes) -> tuple[Numbers, Numbers]:
    if not is_sector(blob):
        return _NOTHING, _NOTHING
    numbers = tuple(max(0, number) for number in _NUMBERS.unpack_from(blob))
    return numbers[:_MOST], numbers[_MOST:]


def _encode(now: Numbers, base: Numbers) -> bytes:
    blob = _NUMBERS.pack(*(min(max(0, number), _LARGEST) for number in (*now, *base)))
    return blob + _DIGEST.pack(xxh3_64_intdigest(blob))
