# SPDX-License-Identifier: Apache-2.0
"""Curves: every operation against the number of entries, and the peak against the number of processes.

Measured only on request (``--curve``), because to make 200,000 entries for each kind of cache takes minutes, and a
cache that walks its directory at every put takes seconds for each. The curves are reported and not judged; a point is
the mean over as many calls as fit into half a second, for opening a median.
"""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable, Mapping
from itertools import count
from typing import Final

from lockcache_stress.bench.base import Bench, Line, median_us
from lockcache_stress.bench.contention import peak_bytes
from lockcache_stress.bench.peers import ENTRY_BYTES, Peer, Store, full_cap, installed, lacking_room, opened

_ENTRIES: Final = (1000, 10_000, 50_000, 200_000)
_QUICK_ENTRIES: Final = (50, 100)
_PROCESSES: Final = (1, 2, 4, 8, 16, 32)
_QUICK_PROCESSES: Final = (1, 2)
_OPERATIONS: Final = ("hit", "miss", "put", "put at cap", "open")
# The time of one point: enough for a mean, and few calls of an operation that takes seconds.
_MOMENT_SECONDS: Final = 0.5
_FEWEST_CALLS: Final = 3
_OPENINGS: Final = 5
# More than any cache takes in addition to its values.
_ROOM_BYTES: Final = 64 << 20
_CAP_BYTES: Final = 10 << 20
_PUTS_IN_ALL: Final = 3200

#: The points of each peer: (number of entries or processes, measured value).
_Points = dict[str, list[tuple[int, float]]]


def measure_entries(bench: Bench) -> list[Line]:
    """Measure hit, miss, put, put at the cap and opening, from 1,000 entries to 200,000."""
    sizes = _QUICK_ENTRIES if bench.quick else _ENTRIES
    # One cache has two files for each entry. No directory is removed before the end, because after ten thousands of
    # deletions the puts of the next caches would take several times as long.
    reason = lacking_room(bench.root, (len(installed()) + 1) * sum(sizes))
    if reason:
        return [Line("curves over entries", skipped=reason)]
    found: dict[str, _Points] = {operation: {} for operation in _OPERATIONS}
    peers = installed()
    for done, peer in enumerate(peers):
        for number, entries in enumerate(sizes):
            bench.show((done + number / len(sizes)) / len(peers), f"{peer.name}, {entries:,} entries")
            path = bench.directory(f"curve-{peer.name}-{entries}")
            with opened(peer, path) as store:
                store.fill(0, entries, os.urandom(ENTRY_BYTES))
            for operation, taken_us in _times_us(bench, peer, path, entries).items():
                found[operation].setdefault(peer.name, []).append((entries, taken_us))
    return [_line(operation, found[operation], "entries", "us") for operation in _OPERATIONS]


def measure_processes(bench: Bench) -> list[Line]:
    """Measure the most bytes in use over the cap, from one writer to 32."""
    counts = _QUICK_PROCESSES if bench.quick else _PROCESSES
    cap, points = bench.pick(_CAP_BYTES, _CAP_BYTES // 2), dict[str, list[tuple[int, float]]]()
    peers = [peer for peer in installed() if peer.has_cap]
    for done, peer in enumerate(peers):
        for number, processes in enumerate(counts):
            bench.show((done + number / len(counts)) / len(peers), f"{peer.name}, {processes} processes")
            puts = bench.pick(_PUTS_IN_ALL, 100) // processes
            peak, _ = peak_bytes(bench, peer, cap, processes, puts)
            points.setdefault(peer.name, []).append((processes, peak / cap))
    return [_line("peak", points, "processes", "x cap")]


def _times_us(bench: Bench, peer: Peer, path: str, entries: int) -> dict[str, float]:
    rng, value, new = random.Random(entries), os.urandom(ENTRY_BYTES), count()
    # With a cap that is never reached, because many caches count their bytes only if they have a cap.
    unreached = 2 * entries * max(ENTRY_BYTES, os.statvfs(path).f_frsize) + _ROOM_BYTES
    taken = {"open": median_us(_OPENINGS, lambda: peer.open(path, unreached), lambda store: store.close())}
    with opened(peer, path) as store:
        taken["hit"] = _mean_us(bench, lambda: store.get(b"old-%d" % rng.randrange(entries)))
        taken["miss"] = _mean_us(bench, lambda: store.get(b"none-%d" % next(new)))
        few = max(_FEWEST_CALLS, entries // 20)  # few enough that the number of entries hardly changes
        taken["put"] = _mean_us(bench, lambda: store.put(b"new-%d-%d" % (entries, next(new)), value), few)
    if peer.has_cap:
        taken["put at cap"] = _put_at_cap_us(bench, peer, path, entries, value)
    return taken


def _put_at_cap_us(bench: Bench, peer: Peer, path: str, entries: int, value: bytes) -> float:
    """Returns the microseconds of a put into a directory that is full already when it is opened."""
    new = count()

    def put(store: Store) -> Callable[[], object]:
        return lambda: store.put(b"full-%d-%d" % (entries, next(new)), value)

    with opened(peer, path, full_cap(peer, path, entries)) as store:
        put(store)()
        return _mean_us(bench, put(store))


def _mean_us(bench: Bench, action: Callable[[], object], most_calls: int = 10**6) -> float:
    began = now = time.perf_counter()
    deadline = began + (_MOMENT_SECONDS / 50 if bench.quick else _MOMENT_SECONDS)
    calls = 0
    while calls < _FEWEST_CALLS or (now < deadline and calls < most_calls):
        action()
        calls += 1
        now = time.perf_counter()
    return (now - began) / calls * 1e6


def _line(what: str, points: Mapping[str, list[tuple[int, float]]], over: str, unit: str) -> Line:
    first, last = (f"{next(iter(points.values()))[index][0]:,}" for index in (0, -1))
    cells = {name: _text(each, unit) for name, each in points.items()}
    return Line(
        f"{what}, at {first} and at {last} {over}",
        cells.pop("lockcache"),
        theirs=cells.pop("cuda.core", ""),
        floor=cells.pop("plain files", ""),
        others=cells,
        numbers={"curve": {"what": what, "over": over, "unit": unit, "points": dict(points)}},
    )


def _text(points: list[tuple[int, float]], unit: str) -> str:
    decimals = 2 if unit == "x cap" else 0 if max(value for _, value in points) >= 100 else 1
    return f"{points[0][1]:,.{decimals}f}; {points[-1][1]:,.{decimals}f} {unit}"
