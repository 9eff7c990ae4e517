"""Reasons of misses: counts the parts in which keys that missed differ from the nearest stored keys.

Each miss that programs report (:mod:`lockcache.filestream.accounting.misses`, the last few of each report) is compared
with the entries once, those of the directory's seed too: a few entries at a time and for a thousandth of a core, as in
:mod:`.top_entries`, so that it is a minute behind at 10,000 entries, an hour at a million. Misses that come meanwhile
wait in the programs' ring, where later misses replace them. So the reasons are a sample, and say what is typical; the
counters say how many misses there are.

Keeps the number of reasons bounded, since programs name the parts of their own keys: a macro, a header, a variable is
counted by its kind alone, and past some forty reasons the rest are one. Takes no lock, states no use, reads no payload.
"""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Final

from lockcache.filestream.accounting import Miss, read_misses
from lockcache.filestream.bundle import SeededRecords
from lockcache.filestream.entry import Search, consider_all, consider_seed
from lockcache.lowlevel import Layout
from lockcache_daemon.throttle import Throttle

_log = logging.getLogger("lockcache")

#: The same key was compiled before: its entry had gone, was not whole, or was not waited for.
GONE: Final = "stored before"
#: No entry that was stored before, also in a seed, has a part in common with the key.
NOTHING_LIKE_IT: Final = "nothing like it"
#: All reasons beyond :data:`_MOST_REASONS`.
OTHER: Final = "other"

_DUTY: Final = 0.001
_SLICE_SECONDS: Final = 0.002
_BETWEEN_LOOKS_SECONDS: Final = 10.0
_MOST_REASONS: Final = 40
# One more than is used: of two nearest entries, mostly at least one was stored before the miss.
_NEAREST: Final = 2
# The most names of keys that missed that are remembered, to recognise a key that misses again.
_MOST_NAMES: Final = 4096
# A program may have any number of parts of these kinds, so they are counted by kind. Options have the compiler's names.
_BY_KIND: Final = ("define ", "undefine ", "header ", "variable ", "module ", "include path", "pre-include")


class MissReasons:
    """Counts the reasons for one directory, a slice at each :meth:`tick`. For one thread; :attr:`counts` is for any."""

    def __init__(self, layout: Layout, share_of_duty: float, tick_seconds: float) -> None:
        self._layout = layout
        self._throttle = Throttle(_DUTY * share_of_duty, tick_seconds)
        # Misses that were reported before were counted by the daemon that ran then, or by none.
        self._seen_ns = time.time_ns()
        self._look_due = 0.0
        self._comparing: Iterator[None] = iter(())
        self._waiting: list[tuple[Miss, Search]] = []
        self._names: dict[str, None] = {}
        #: How many misses had each reason; a miss with two reasons counts for both. Replaced as a whole.
        self.counts: dict[str, int] = {}

    def tick(self) -> None:
        """Compare some more, if it is due. Raises :class:`OSError`."""
        if not self._throttle.is_due:
            return
        with self._throttle:
            if not self._waiting and time.monotonic() >= self._look_due:
                self._look_due = time.monotonic() + _BETWEEN_LOOKS_SECONDS
                self._begin(read_misses(self._layout))
            until = time.perf_counter() + _SLICE_SECONDS
            for _ in self._comparing:
                if time.perf_counter() >= until:
                    break

    def _begin(self, misses: list[Miss]) -> None:
        new = [miss for miss in misses if self._seen_ns < miss.time_ns <= time.time_ns()]
        self._seen_ns = max((miss.time_ns for miss in new), default=self._seen_ns)
        again = [miss for miss in new if miss.replaced or miss.name in self._names]
        self._waiting = [(miss, Search(miss.name, miss.parts, _NEAREST)) for miss in new if miss not in again]
        self._count([GONE] * len(again))
        for miss in new:
            self._names[miss.name] = None
        for name in list(self._names)[:-_MOST_NAMES]:
            del self._names[name]
        self._comparing = self._compare()

    def _compare(self) -> Iterator[None]:
        """Compare the waiting misses. Yields after each entry, and after each miss."""
        searches = [search for _, search in self._waiting]
        if not searches:
            return
        yield from consider_all(self._layout, searches)
        with _opened_seed(self._layout) as seed:
            if seed is not None:
                for _ in consider_seed(searches, seed):
                    yield
            while self._waiting:
                miss, search = self._waiting.pop()
                found = search.found(self._layout, miss.time_ns, seed=seed)
                differing = {reason_of(each.name) for each in found[0].differences} if found else {NOTHING_LIKE_IT}
                self._count(sorted(differing))
                yield

    def _count(self, reasons: list[str]) -> None:
        counts = Counter(self.counts)
        for reason in reasons:
            counts[reason if reason in counts or len(counts) < _MOST_REASONS else OTHER] += 1
        self.counts = dict(counts)


@contextmanager
def _opened_seed(layout: Layout) -> Iterator[SeededRecords | None]:
    """Open the seed of a directory; ``None`` without one, or if it cannot be read: then only entries are compared."""
    try:
        seed = SeededRecords(layout)
    except OSError as error:
        if not isinstance(error, FileNotFoundError):
            _log.debug("%s: misses are not compared with the seed: %s", layout.root, error)
        yield None
        return
    with closing(seed):
        yield seed


def reason_of(part: str) -> str:
    """Returns the name under which a differing part is counted: ``option arch``, ``define``, ``compiler``."""
    kind = next((each for each in _BY_KIND if part.startswith(each)), None)
    return part if kind is None else kind.strip()
