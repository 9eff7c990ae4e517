# SPDX-License-Identifier: Apache-2.0
"""Replay: what an order of eviction saves on a trace, decided by the library's own ranking.

``value`` and ``lru`` are what writers ask too: :func:`lockcache.filestream.eviction.rank`, and last use, with their
batch, table of hits and ages. Next to them: ``cost``, the order before it; ``source``, value with entries of a
superseded source first; S3-FIFO, which knows no cost. Each request takes a second; hits are counted once a minute.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple, Protocol

from lockcache.filestream.accounting import Worth
from lockcache.filestream.eviction import BATCH_SHARE, Choice, Need, Ranked, first_enough, rank
from lockcache.lowlevel import Found
from lockcache_stress.experiments.simulate.programs import Program
from lockcache_stress.experiments.simulate.s3_fifo import S3Fifo
from lockcache_stress.experiments.simulate.traces import Request

_REQUEST_NS: Final = 10**9
_COUNTED_EVERY: Final = 60


class Saved(NamedTuple):
    """The savings of a cache."""

    hits: int
    saved_ns: int
    evictions: int = 0


class _Cache(Protocol):
    """A cache of names and sizes."""

    @property
    def evictions(self) -> int:
        """Returns how many entries it evicted."""

    def get(self, name: str, now_ns: int) -> bool:
        """Returns whether there is an entry."""

    def put(self, request: Request, name: str, program: Program, now_ns: int) -> None:
        """Store an entry that is not there."""


class _Sorting:
    """A cache that evicts as writers do, in some order."""

    def __init__(self, limit_bytes: int) -> None:
        self._limit_bytes = limit_bytes
        self._held: dict[str, Found] = {}
        self._held_bytes = 0
        self._costs: dict[str, int] = {}
        # What goes next from a small cache, by its last look.
        self._spared: list[Found] = []
        self.evictions = 0

    def get(self, name: str, now_ns: int) -> bool:
        if name not in self._held:
            return False
        self._held[name] = self._held[name]._replace(last_use_ns=now_ns)
        return True

    def put(self, request: Request, name: str, program: Program, now_ns: int) -> None:
        if program.size_bytes > self._limit_bytes:
            return  # a cache drops an entry that is larger than its cap
        self._costs[name] = program.cost_ns
        needed = self._held_bytes + program.size_bytes - self._limit_bytes
        if needed > 0:
            self._evict(needed, now_ns)
        self._held[name] = Found(now_ns, name, program.size_bytes, 1)
        self._held_bytes += program.size_bytes

    def _evict(self, needed: int, now_ns: int) -> None:
        victims = first_enough(self._spared, Need(needed)).victims
        del self._spared[: len(victims)]
        needed -= self._remove([each for each in victims if self._held.get(each.name) == each], now_ns)
        if needed > 0:
            choice = self._choose(self._sorted([*self._held.values()], now_ns), needed)
            self._remove(choice.victims, now_ns)
            self._spared = choice.spared

    def _choose(self, ordered: list[Found], needed: int) -> Choice:
        return first_enough(ordered, Need(needed, batch_entries=len(ordered) // BATCH_SHARE))

    def _remove(self, victims: list[Found], now_ns: int) -> int:
        for victim in victims:
            del self._held[victim.name]
        removed = sum(victim.size_bytes for victim in victims)
        self._held_bytes -= removed
        self.evictions += len(victims)
        if victims:
            self._note_evicted(victims, now_ns)
        return removed

    def _cost_of(self, found: Found) -> int:
        return self._costs[found.name]

    def _sorted(self, found: list[Found], now_ns: int) -> list[Found]:
        return sorted(found)

    def _note_evicted(self, victims: list[Found], now_ns: int) -> None:
        """Do nothing: last use is all that counts."""


class _ByCost(_Sorting):
    """The order that was called cost: compile time / (bytes x time since the last use), with a batch at any size."""

    def _choose(self, ordered: list[Found], needed: int) -> Choice:
        victims, _, spared = super()._choose(ordered, needed)
        return Choice(victims + spared, 0, [])

    def _sorted(self, found: list[Found], now_ns: int) -> list[Found]:
        worth = {
            entry.name: self._cost_of(entry) / (entry.size_bytes * max(1, now_ns - entry.last_use_ns))
            for entry in found
        }
        return sorted(found, key=lambda entry: (worth[entry.name], entry))


class _ByValue(_Sorting):
    def __init__(self, limit_bytes: int) -> None:
        super().__init__(limit_bytes)
        self._worth = Worth()
        self._uncounted: list[str] = []
        self._values: dict[str, float] = {}
        self._ranked = Ranked([])

    def get(self, name: str, now_ns: int) -> bool:
        is_hit = super().get(name, now_ns)
        if is_hit:
            self._uncounted.append(name)
        if not now_ns // _REQUEST_NS % _COUNTED_EVERY:
            for each in self._uncounted:
                self._worth.add(each, 1)
            self._uncounted.clear()
        return is_hit

    def _sorted(self, found: list[Found], now_ns: int) -> list[Found]:
        hits = self._worth.of_all(entry.name for entry in found).hits
        ranked = rank(found, [self._costs[entry.name] for entry in found], hits, self._worth.ages, now_ns)
        self._values = {entry.name: value for entry, value in zip(ranked.entries, ranked.values, strict=True)}
        self._ranked = ranked
        return ranked.entries

    def _choose(self, ordered: list[Found], needed: int) -> Choice:
        choice = super()._choose(ordered, needed)
        if not choice.spared:
            return choice
        return choice._replace(spared=self._ranked.spared(len(choice.victims), len(choice.spared)).entries)

    def _note_evicted(self, victims: list[Found], now_ns: int) -> None:
        self._worth.note_evicted([(victim.name, self._values[victim.name]) for victim in victims], now_ns)


class _BySource(_ByValue):
    """By value, but first what is of a source of which a newer version was stored."""

    def __init__(self, limit_bytes: int) -> None:
        super().__init__(limit_bytes)
        self._requests: dict[str, Request] = {}
        self._newest: dict[int, int] = {}

    def put(self, request: Request, name: str, program: Program, now_ns: int) -> None:
        self._requests[name] = request
        self._newest[request.program] = max(request.version, self._newest.get(request.program, 0))
        super().put(request, name, program, now_ns)

    def _sorted(self, found: list[Found], now_ns: int) -> list[Found]:
        return sorted(super()._sorted(found, now_ns), key=lambda entry: not self._is_superseded(entry))

    def _choose(self, ordered: list[Found], needed: int) -> Choice:
        return _Sorting._choose(self, ordered, needed)._replace(spared=[])  # of all values, it does not know the least

    def _note_evicted(self, victims: list[Found], now_ns: int) -> None:
        live = [victim for victim in victims if not self._is_superseded(victim)]
        if live:
            super()._note_evicted(live, now_ns)

    def _is_superseded(self, entry: Found) -> bool:
        request = self._requests[entry.name]
        return request.version < self._newest[request.program]


class _Fifo:
    def __init__(self, limit_bytes: int) -> None:
        self._queues = S3Fifo(limit_bytes)

    @property
    def evictions(self) -> int:
        """The entries that left both queues."""
        return self._queues.evictions

    def get(self, name: str, now_ns: int) -> bool:
        return self._queues.get(name)

    def put(self, request: Request, name: str, program: Program, now_ns: int) -> None:
        self._queues.put(name, program.size_bytes)


_CACHES: Final[dict[str, Callable[[int], _Cache]]] = {
    "lru": _Sorting,
    "cost": _ByCost,
    "value": _ByValue,
    "source": _BySource,
    "s3-fifo": _Fifo,
}
#: The orders that are compared.
ORDERS: Final = tuple(_CACHES)


def replay(trace: Sequence[Request], programs: Sequence[Program], limit_bytes: int, order: str) -> Saved:
    """Replay a trace on a cache of ``limit_bytes`` that evicts in one of :data:`ORDERS`, empty at first."""
    cache, names = _CACHES[order](limit_bytes), dict[Request, str]()
    hits = saved_ns = 0
    for number, request in enumerate(trace, 1):
        program, now_ns = programs[request.program], number * _REQUEST_NS
        if request not in names:
            names[request] = hashlib.sha256(f"{request.program} {request.version}".encode()).hexdigest()
        if cache.get(names[request], now_ns):
            hits += 1
            saved_ns += program.cost_ns
        else:
            cache.put(request, names[request], program, now_ns)
    return Saved(hits, saved_ns, cache.evictions)


def upper_bound(trace: Sequence[Request], programs: Sequence[Program], limit_bytes: int) -> int:
    """Returns the nanoseconds that a cache of this size saves at most, even a cache that knows the future.

    For a hit, an entry has to stay from one use to the next, which takes its bytes for that time. The sum of bytes
    times time over all stays cannot exceed the bytes of the cache times the length of the trace. The stays that save
    most for what they take are admitted first, the last one in part (PFOO-U: Berger, Beckmann, Harchol-Balter,
    Practical Bounds on Optimal Caching with Variable Object Sizes, SIGMETRICS 2018).
    """
    last: dict[Request, int] = {}
    stays: list[tuple[int, int]] = []  # the time that each saves, and the bytes times time that it takes
    for number, request in enumerate(trace):
        program = programs[request.program]
        if request in last and program.size_bytes <= limit_bytes:
            stays.append((program.cost_ns, program.size_bytes * (number - last[request])))
        last[request] = number
    left, saved_ns = limit_bytes * len(trace), 0.0
    for cost_ns, takes in sorted(stays, key=lambda stay: stay[1] / stay[0]):
        if takes > left:
            saved_ns += cost_ns * left / takes
            break
        left -= takes
        saved_ns += cost_ns
    return int(saved_ns)
