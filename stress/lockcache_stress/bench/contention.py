"""Contention: many processes put into a full cache at once. Measures their time, and how evenly they wait.

Each process puts 100 values of 64 KiB into a cap of 10 MiB, on a tmpfs of its own where one may be mounted. They begin
together, so that start-up is not measured. The cache is full when they open it: then cuda.core's evicts too, and in
the same run ours may not be slower. Next to it stands the run from an empty cache, without a bar. There cuda.core's
never evicts, because each process counts only its own bytes, which stay under the cap. With eight writers most puts do
not wait, and the few that do take four to six times the mean; there p99 has no bar. Then 200 processes put values of a
third of a cap of 12 MiB, of which two fit at a time: none may be dropped.
"""

from __future__ import annotations

import os
import time
from contextlib import ExitStack
from multiprocessing.connection import Connection
from statistics import fmean
from typing import Any, Final, NamedTuple

from lockcache_stress.bench.bars import Bar
from lockcache_stress.bench.base import Bench, Line, shown
from lockcache_stress.bench.peers import OURS, THEIRS, Peer, opened, peer_of
from lockcache_stress.run import Group, take_turn
from lockcache_stress.trouble import can_mount, mounted_tmpfs

__all__ = ["crowd", "measure"]

_EVEN: Final = Bar("<=", 5, "x")
_NO_SLOWER: Final = Bar("<=", 1, "x")
_MANY: Final = 32
_VALUE_BYTES: Final = 64 << 10
_CAP_BYTES: Final = 10 << 20
_LARGE_CAP_BYTES: Final = 12 << 20
_LIMIT_SECONDS: Final = 300.0


class Crowd(NamedTuple):
    """The times of many processes that put at once."""

    #: From the common start to the last end.
    seconds: float
    #: Of each put of each process, in ascending order.
    put_seconds: list[float]
    dropped: int

    @property
    def p99_seconds(self) -> float:
        return self.put_seconds[int(len(self.put_seconds) * 0.99)]

    @property
    def p99_over_mean(self) -> float:
        return self.p99_seconds / fmean(self.put_seconds)


def measure(bench: Bench) -> list[Line]:
    """Returns the lines: how long it takes, how evenly they wait, and what was dropped."""
    lines = []
    puts = bench.pick(100, 20)
    for processes in (8, 32, 64) if not bench.quick else (3,):
        name = f"{processes} writers at once x {puts} x 64 KiB"
        lines += _into_full(bench, name, processes, puts)
        lines.append(_into_empty(bench, name, processes, puts))
    return [*lines, _large_values(bench, bench.pick(200, 4))]


def _into_full(bench: Bench, name: str, processes: int, puts: int) -> list[Line]:
    ours, theirs = _side_by_side(bench, processes, puts, is_full=True)
    ratio = None if theirs is None else ours.seconds / theirs.seconds
    return [
        Line(
            f"{name} into a full {_CAP_BYTES >> 20} MiB",
            f"{ours.seconds:.2f} s",
            theirs=shown(theirs and theirs.seconds, "{:.2f} s"),
            **_NO_SLOWER.in_ratio(ratio),
            numbers=_numbers(ours, theirs),
            is_time=True,
        ),
        Line(
            "the same, p99 of a put",
            f"{ours.p99_seconds * 1000:,.0f} ms",
            theirs=shown(theirs and theirs.p99_seconds * 1000, "{:,.0f} ms"),
            ratio=f"{_EVEN.show(ours.p99_over_mean)} its mean",
            **_EVEN.judged(ours.p99_over_mean if processes >= _MANY else None),
            is_time=True,
        ),
        Line("the same, dropped", str(ours.dropped), bar="0", ok=not ours.dropped),
    ]


def _into_empty(bench: Bench, name: str, processes: int, puts: int) -> Line:
    ours, theirs = _side_by_side(bench, processes, puts, is_full=False)
    return Line(
        f"{name} into an empty {_CAP_BYTES >> 20} MiB",
        f"{ours.seconds:.2f} s",
        theirs=shown(theirs and theirs.seconds, "{:.2f} s, evicts nothing"),
        numbers=_numbers(ours, theirs),
    )


def _side_by_side(bench: Bench, processes: int, puts: int, *, is_full: bool) -> tuple[Crowd, Crowd | None]:
    def run(peer: Peer) -> Crowd:
        return _in_own_mount(bench, peer, processes, puts, _VALUE_BYTES, _CAP_BYTES, is_full=is_full)

    return run(OURS), run(THEIRS) if THEIRS.is_installed() else None


def _large_values(bench: Bench, processes: int) -> Line:
    found = _in_own_mount(bench, OURS, processes, 2, _LARGE_CAP_BYTES // 3, _LARGE_CAP_BYTES)
    return Line(
        f"{processes} writers at once x 2 x a third of {_LARGE_CAP_BYTES >> 20} MiB, dropped",
        str(found.dropped),
        ratio=f"{found.seconds:.1f} s",
        bar="0",
        ok=not found.dropped,
        numbers=_numbers(found, None),
    )


def _numbers(ours: Crowd, theirs: Crowd | None) -> dict[str, float | int | None]:
    return {
        "ours_seconds": ours.seconds,
        "theirs_seconds": None if theirs is None else theirs.seconds,
        "mean_seconds": fmean(ours.put_seconds),
        "p99_over_mean": ours.p99_over_mean,
        "theirs_p99_over_mean": None if theirs is None else theirs.p99_over_mean,
        "dropped": ours.dropped,
    }


def _in_own_mount(
    bench: Bench, peer: Peer, processes: int, puts: int, value_bytes: int, cap: int, *, is_full: bool = False
) -> Crowd:
    path = bench.directory(f"contention-{peer.name}")
    with ExitStack() as stack:
        if can_mount():
            stack.enter_context(mounted_tmpfs(path))
        if peer is OURS:
            stack.enter_context(bench.attending(path, cap))
        if is_full:
            with opened(peer, path, cap) as store:
                value = os.urandom(value_bytes)
                for number in range(cap // value_bytes + 1):
                    store.put(b"older %d" % number, value)
        bench.show(0.0, f"{peer.name}: {processes} processes")
        return crowd(path, peer.name, processes, puts, value_bytes, cap)


def crowd(path: str, name: str, processes: int, puts: int, value_bytes: int, cap: int) -> Crowd:
    """Start ``processes``, and have them put from a common start."""
    # Forked from one process that has imported everything: 200 processes would import for minutes.
    preload = [__name__, *(["cuda.core.utils"] if THEIRS.is_installed() else [])]
    given = (path, name, puts, value_bytes, cap)
    with Group(_put_many, given, processes, 1, _LIMIT_SECONDS, preload=preload) as group:
        results = group.run_phase(0)
    return Crowd(
        max(ended for _, ended, _, _ in results) - min(began for began, _, _, _ in results),
        sorted(each for _, _, seconds, _ in results for each in seconds),
        sum(dropped for _, _, _, dropped in results),
    )


def _put_many(
    path: str,
    name: str,
    puts: int,
    value_bytes: int,
    cap: int,
    number: int,
    parent: Connection,
    gates: list[Connection],
) -> None:
    store: Any = peer_of(name).open(path, cap)
    values = [os.urandom(value_bytes) for _ in range(2)]
    seconds = []
    take_turn(parent, gates[0])
    first = time.monotonic()
    for serial in range(puts):
        began = time.monotonic()
        store.put(b"%d/%d" % (number, serial), values[serial % 2])
        seconds.append(time.monotonic() - began)
    ended = time.monotonic()
    parent.send((first, ended, seconds, store.cache.stats().dropped_writes if name == OURS.name else 0))
    store.close()
