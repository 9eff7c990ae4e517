# SPDX-License-Identifier: Apache-2.0
"""Top entries: finds the largest, oldest and most expensive entries of a directory, a few at a time.

Keeps an idle daemon's cost bounded whatever the size of the directory: a rotation over the shards, in slices of some
2 ms and for a thousandth of a core (a round takes a minute at 10,000 entries, under two hours at a million). The best
entries of each shard are kept, and listed entries are inspected again now and then, so that evicted entries do not stay
on the list. Reads no payload, states no use of an entry, takes no lock.

Not promised: that the lists are up to date. They say when each entry was seen, and how far the first round is.
"""

from __future__ import annotations

import heapq
import itertools
import os
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Final, NamedTuple

from lockcache.filestream.disk import last_use_ns
from lockcache.filestream.entry import Prices
from lockcache.filestream.inspect import Statement, read_statement
from lockcache.lowlevel import SHARDS, Described, Found, Layout, scan_shard
from lockcache_daemon.settings import Rules
from lockcache_daemon.throttle import Throttle

#: Entries on each of the three lists.
LISTED: Final = 10

# A share of one core; with the shares of Counting the sum stays below 0.8 %.
_DUTY: Final = 0.001
_SLICE_SECONDS: Final = 0.002
# The time between two joins of the lists, 1 ms each; they are joined at a round's end too. A round over a million
# entries takes two hours, and its first results are worth showing.
_JOIN_SECONDS: Final = 5.0
# The entries between two readings of the clock.
_STEP_ENTRIES: Final = 32
# Sweeps take the oldest entries first: when listed ones are gone, the next may be gone too. One review takes 60 us.
_REVIEW_SECONDS: Final = 5.0
_MOST_REVIEWS: Final = 8
# Longer texts are cut, so that the page stays readable.
_LONGEST_TEXT: Final = 40


class Standout(NamedTuple):
    """One entry, as it was when it was inspected."""

    name: str
    size_bytes: int
    last_use_ns: int
    #: The time that compiling took; 0: not recorded.
    cost_ns: int
    kind: str
    arch: str
    seen: float
    #: The name of the program; empty: not recorded.
    label: str = ""


class StandoutsSeen(NamedTuple):
    """The lists, best first. Immutable: for other threads."""

    largest: tuple[Standout, ...] = ()
    oldest: tuple[Standout, ...] = ()
    most_expensive: tuple[Standout, ...] = ()
    #: How many of all shards the lists know (in other layouts there is one, the whole).
    shards_seen: int = 0
    shards: int = SHARDS


class Source(NamedTuple):
    """The entries of a directory, in parts that are scanned one after the other."""

    parts: Sequence[Callable[[], Iterator[Found]]]
    part_of: Callable[[str], int]
    #: For a scan of one part: a function for the compile time in an entry's record; 0 if it has none.
    costs: Callable[[], Callable[[Found], int]]
    #: The rest of an entry's record, read for listed entries.
    statement: Callable[[Found], Statement]
    #: Inspects an entry again; ``None`` if it is gone.
    again: Callable[[Standout], Standout | None]


def in_shards(layout: Layout) -> Source:
    """Returns the source for lockcache's own layout, and cuda.core's."""
    parts = [partial(scan_shard, layout, shard) for shard in range(SHARDS)]
    return Source(
        parts,
        part_of=lambda name: int(name[:2], 16),
        costs=lambda: Prices(layout).cost_ns,
        statement=partial(read_statement, layout),
        again=partial(_again, layout),
    )


def in_walks(entries: Callable[[], Iterator[Found]], describe: Callable[[Found], Described]) -> Source:
    """Returns the source for another program's layout: no records, and evicted entries go with the next round."""

    def state(found: Found) -> Statement:
        entry = describe(found)
        return Statement("none", metadata={"kind": entry.kind or "", "arch": entry.arch or ""}, label=entry.label)

    return Source(
        [entries],
        part_of=lambda name: 0,
        costs=lambda: lambda found: 0,
        statement=state,
        again=lambda each: each,
    )


class Standouts:
    """Finds the top entries, a slice at each :meth:`tick`. For one thread; any thread may read :attr:`seen`."""

    def __init__(self, source: Source, rules: Rules) -> None:
        self._source = source
        self._throttle = Throttle(*rules.pace(_DUTY))
        self._best: dict[int, tuple[list[Standout], ...]] = {}
        self._rotation = self._rotate()
        self._review_due = self._join_due = 0.0
        self.seen = StandoutsSeen()

    def tick(self) -> None:
        """Scan some more entries, if it is due. Raises :class:`OSError`."""
        if not self._throttle.is_due:
            return
        with self._throttle:
            until = time.perf_counter() + _SLICE_SECONDS
            for _ in self._rotation:
                if time.perf_counter() >= until:
                    break
            if time.monotonic() >= self._review_due:
                self._review_due = time.monotonic() + _REVIEW_SECONDS
                for _ in range(_MOST_REVIEWS):
                    if not self._review():
                        break

    def _rotate(self) -> Iterator[None]:
        """Scan part after part, for ever. Yields every few entries."""
        source = self._source
        for part in itertools.cycle(range(len(source.parts))):
            best, cost_of = _Best(), source.costs()
            try:
                for number, found in enumerate(source.parts[part]()):
                    best.add(found, cost_of(found))
                    if number % _STEP_ENTRIES == 0:
                        yield
            except OSError:
                best = _Best()  # the step that counts the entries meets the error too, and reports it
            self._best[part] = best.lists(source.statement)
            if time.monotonic() >= self._join_due or part == len(source.parts) - 1:
                self._join_due = time.monotonic() + _JOIN_SECONDS
                self._join()
            yield

    def _review(self) -> bool:
        """Take evicted entries off the lists, and bring last uses up to date. Returns whether an entry was gone."""
        is_any_gone = False
        for each in {*self.seen.largest, *self.seen.oldest, *self.seen.most_expensive}:
            now = self._source.again(each)
            is_any_gone |= now is None
            for one in self._best.get(self._source.part_of(each.name), ()):
                if each in one:
                    one.remove(each)
                    if now is not None:
                        one.append(now)
        self._join()
        return is_any_gone

    def _join(self) -> None:
        by_list = zip(*self._best.values(), strict=True) if self._best else ((), (), ())
        largest, oldest, most_expensive = (
            tuple(heapq.nlargest(LISTED, itertools.chain.from_iterable(parts), key=key))
            for parts, key in zip(by_list, _KEYS, strict=True)
        )
        self.seen = StandoutsSeen(largest, oldest, most_expensive, len(self._best), len(self._source.parts))


_KEYS: Final[tuple[Callable[[Standout], int], ...]] = (
    lambda each: each.size_bytes,
    lambda each: -each.last_use_ns,
    lambda each: each.cost_ns,
)


class _Best:
    """The best entries of one part, by each of the keys."""

    def __init__(self) -> None:
        self._heaps: tuple[list[tuple[int, Found, int]], ...] = ([], [], [])

    def add(self, found: Found, cost_ns: int) -> None:
        for heap, value in zip(self._heaps, (found.size_bytes, -found.last_use_ns, cost_ns), strict=True):
            if len(heap) < LISTED:
                heapq.heappush(heap, (value, found, cost_ns))
            elif value > heap[0][0]:
                heapq.heapreplace(heap, (value, found, cost_ns))

    def lists(self, statement: Callable[[Found], Statement]) -> tuple[list[Standout], ...]:
        now = time.time()
        standouts = {
            found: _standout(found, cost_ns, statement(found), now)
            for found, cost_ns in {(found, cost_ns) for heap in self._heaps for _, found, cost_ns in heap}
        }
        largest, oldest, most_expensive = ([standouts[found] for _, found, _ in heap] for heap in self._heaps)
        return largest, oldest, [each for each in most_expensive if each.cost_ns]


def _standout(found: Found, cost_ns: int, said: Statement, now: float) -> Standout:
    known = said.metadata or {}
    kind, arch = (str(known.get(name, ""))[:_LONGEST_TEXT] for name in ("kind", "arch"))
    label = (said.label or "")[:_LONGEST_TEXT]
    return Standout(found.name, found.size_bytes, found.last_use_ns, cost_ns, kind, arch, now, label)


def _again(layout: Layout, each: Standout) -> Standout | None:
    """Returns the same entry as it is now; ``None`` if it is gone."""
    try:
        status = os.lstat(layout.entry(each.name))
    except OSError:
        return None
    return each._replace(last_use_ns=last_use_ns(status), seen=time.time())
