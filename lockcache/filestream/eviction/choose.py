# SPDX-License-Identifier: Apache-2.0
"""Choice of victims: which entries go first, how many of them, and when an eviction stops. Pure.

Keeps the evictor's half of invariant 3 (hard cap: no more than asked for, plus one small batch) and bounds the memory
that choosing takes, however many entries there are: the victims, and half as many more.

The order is last use (``lru``), or value (:mod:`.value`). Used by eviction, by the daemon for other programs' layouts,
and by ``lockcache-stress simulate``, which therefore simulates the real choice.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import accumulate, islice
from operator import attrgetter
from typing import Final, NamedTuple

from lockcache.filestream.accounting import ANY_TIME_NS, Found, Slot

# Entries that are looked at between two cuts to the victims so far: a sweep of a million entries then needs the memory
# of its victims and of these (20 MB), not of all (300 MB), and no sort takes longer than a signal may wait.
_CHUNK_ENTRIES: Final = 65536

#: A writer looks once for what it needs and a batch of such a share of the entries: to look takes 2 ms and more.
BATCH_SHARE: Final = 16
# A smaller batch is not removed at once: of so few entries it is worth more than the looks that it saves (2 to 8 % of
# the saved seconds, at 5 % of all programs).
_FEWEST_REMOVED: Final = 8

_size_bytes = attrgetter("size_bytes")


@dataclass(frozen=True)
class Need:
    """The room that is needed: both bytes and entries, then a batch of so many more entries (:data:`BATCH_SHARE`)."""

    bytes: int
    entries: int = 0
    batch_entries: int = 0


class Choice(NamedTuple):
    """The victims, and those that may be the next ones."""

    victims: list[Found]
    #: Of the batch among the victims.
    batch_bytes: int
    #: The batch where that is too small to be removed: it goes first when there is room to be made again.
    spared: list[Found]


def choose_victims(sample: Iterable[Found], needed_bytes: int, needed_entries: int = 0) -> list[Found]:
    """Returns the least recently used, oldest first: ``needed_entries`` of at least ``needed_bytes``."""
    oldest = Oldest(Need(needed_bytes, needed_entries))
    found = iter(sample)
    while chunk := list(islice(found, _CHUNK_ENTRIES)):
        oldest.add(chunk)
    return first_enough(oldest.take(), oldest.need).victims


def first_enough(ordered: list[Found], need: Need) -> Choice:
    """Returns the first of ``ordered`` that meet ``need``."""
    count = need.entries
    if need.bytes > 0:
        # Not entry by entry: this runs for 300,000 entries several times.
        freed = list(accumulate(map(_size_bytes, ordered)))
        count = max(count, bisect_left(freed, need.bytes) + 1)
    batch = ordered[count : count + need.batch_entries]
    if need.batch_entries < _FEWEST_REMOVED:
        return Choice(ordered[:count], 0, batch)
    return Choice(ordered[:count] + batch, sum(map(_size_bytes, batch)), [])


class Oldest:
    """Keeps the least recently used of the entries that it is shown, as many as meet ``need``, and ``at_least`` so
    many."""

    def __init__(self, need: Need, at_least: int = 0, latest_ns: int = ANY_TIME_NS) -> None:
        """``latest_ns``: when the last of them was used at the latest, if known; or as guessed, see :attr:`is_met`."""
        self.need = need
        self._at_least = at_least
        self._kept: list[Found] = []
        self._cut_at = _most_before_a_cut(at_least)
        #: Entries used after that are not among them, and need not be shown.
        self.latest_ns = latest_ns

    @property
    def is_met(self) -> bool:
        """Whether the entries shown so far meet the need. Requires: :meth:`take`."""
        wanted = self.need.entries + self.need.batch_entries
        return len(self._kept) >= max(wanted, self._at_least) and (
            sum(entry.size_bytes for entry in self._kept) >= self.need.bytes
        )

    def add(self, found: Iterable[Found]) -> None:
        self._kept.extend(found)
        if len(self._kept) >= self._cut_at:
            self._cut()

    def take(self) -> list[Found]:
        """Returns the chosen entries, oldest first."""
        self._cut()
        return self._kept

    def _cut(self) -> None:
        self._kept.sort()
        wanted = max(self._at_least, len(first_enough(self._kept, self.need).victims))
        if len(self._kept) > wanted:
            del self._kept[wanted:]
            if wanted:
                self.latest_ns = self._kept[-1].last_use_ns
        self._cut_at = _most_before_a_cut(len(self._kept))


def _most_before_a_cut(kept: int) -> int:
    """Returns how many entries may be kept before the next cut, whose cost grows with that number."""
    return kept + max(_CHUNK_ENTRIES, kept // 2)


@dataclass(frozen=True)
class Goal:
    """Limits that must all hold at the end. ``None``: as much as there is."""

    limit_bytes: int | None = None
    limit_entries: int | None = None

    def surplus(self, held: Slot) -> Slot:
        """Returns the bytes and entries of ``held`` over the limits, at least 0 of each."""
        over_bytes = 0 if self.limit_bytes is None else held.bytes - self.limit_bytes
        over_entries = 0 if self.limit_entries is None else held.entries - self.limit_entries
        return Slot(max(0, over_bytes), max(0, over_entries))

    def is_met(self, held: Slot) -> bool:
        return self.surplus(held) == (0, 0)
