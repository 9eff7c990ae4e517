"""Contention: many processes put into a full cache at once. Measures their time, and how evenly they wait.

Each process puts 100 values of 64 KiB into a cap of 10 MiB, on a tmpfs of its own where one may be mounted. They start
at a barrier, so that start-up is not measured. The cache is full when they open it: then cuda.core's evicts too, and in
the same run ours may not be slower. Beside it stands the run from an empty cache, without a bar. There cuda.core's
never evicts, because each process counts only its own bytes, which stay under the cap. With eight writers most puts do
not wait, and the few that do are far above the mean; there p99 has no bar. Then 200 processes put values of a third of
a cap of 12 MiB, of which two fit at a time: none may be dropped.
"""

from __future__ import annotations

import multiprocessing
import os
import time
from collections.abc import Callable
from contextlib import ExitStack
from multiprocessing.connection import Connection
from multiprocessing.synchronize import Barrier
from statistics import fmean
from typing import Any, Final, NamedTuple

from lockcache_stress.bench.bars import Bar
from lockcache_stress.bench.base import Bench, Line, open_ours, open_theirs
from lockcache_stress.bench.peers import OURS, THEIRS, Peer
from lockcache_stress.processes import interrupts_blocked
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
            theirs="" if theirs is None else f"{theirs.seconds:.2f} s",
            ratio="" if ratio is None else _NO_SLOWER.show(ratio),
            bar="" if ratio is None else str(_NO_SLOWER),
            ok=ratio is None or _NO_SLOWER.holds(ratio),
            numbers=_numbers(ours, theirs),
            is_time=True,
        ),
        Line(
            "the same, p99 of a put",
            f"{ours.p99_seconds * 1000:,.0f} ms",
            theirs="" if theirs is None else f"{theirs.p99_seconds * 1000:,.0f} ms",
            ratio=f"{_EVEN.show(ours.p99_over_mean)} its mean",
            bar=str(_EVEN) if processes >= _MANY else "",
            ok=processes < _MANY or _EVEN.holds(ours.p99_over_mean),
            is_time=True,
        ),
        Line("the same, dropped", str(ours.dropped), bar="0", ok=not ours.dropped),
    ]


def _into_empty(bench: Bench, name: str, processes: int, puts: int) -> Line:
    ours, theirs = _side_by_side(bench, processes, puts, is_full=False)
    return Line(
        f"{name} into an empty {_CAP_BYTES >> 20} MiB",
        f"{ours.seconds:.2f} s",
        theirs="" if theirs is None else f"{theirs.seconds:.2f} s, evicts nothing",
        numbers=_numbers(ours, theirs),
    )


def _side_by_side(bench: Bench, processes: int, puts: int, *, is_full: bool) -> tuple[Crowd, Crowd | None]:
    def run(peer: Peer) -> Crowd:
        return _in_own_mount(bench, peer.name, processes, puts, _VALUE_BYTES, _CAP_BYTES, is_full=is_full)

    return run(OURS), run(THEIRS) if THEIRS.is_installed() else None


def _large_values(bench: Bench, processes: int) -> Line:
    found = _in_own_mount(bench, OURS.name, processes, 2, _LARGE_CAP_BYTES // 3, _LARGE_CAP_BYTES)
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
    bench: Bench, name: str, processes: int, puts: int, value_bytes: int, cap: int, *, is_full: bool = False
) -> Crowd:
    path = bench.directory(f"contention-{name}")
    with ExitStack() as stack:
        if can_mount():
            stack.enter_context(mounted_tmpfs(path))
        if name == OURS.name:
            stack.enter_context(bench.attending(path, cap))
        if is_full:
            _fill(path, name, value_bytes, cap)
        return crowd(path, name, processes, puts, value_bytes, cap, bench.show)


def _fill(path: str, name: str, value_bytes: int, cap: int) -> None:
    cache = _opened(path, name, cap)
    value = os.urandom(value_bytes)
    for number in range(cap // value_bytes + 1):
        cache[b"older %d" % number] = value
    cache.close()


def _opened(path: str, name: str, cap: int) -> Any:
    return open_ours(path, cap) if name == OURS.name else open_theirs(path, cap)


def crowd(
    path: str,
    name: str,
    processes: int,
    puts: int,
    value_bytes: int,
    cap: int,
    show: Callable[[float, str], None] = lambda share, words: None,
) -> Crowd:
    """Start ``processes``, and have them put from a common start."""
    # Forked from one process that has imported everything: 200 processes would import for minutes.
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([__name__, *(["cuda.core.utils"] if THEIRS.is_installed() else [])])
    barrier = context.Barrier(processes + 1)
    pipes, workers = [], []
    try:
        with interrupts_blocked():
            for number in range(processes):
                receiver, sender = context.Pipe(duplex=False)
                arguments = (path, name, number, puts, value_bytes, cap, barrier, sender)
                worker = context.Process(target=_put_many, args=arguments, daemon=True)
                worker.start()
                sender.close()
                pipes.append(receiver)
                workers.append(worker)
                show(number / processes / 2, f"{name}: {number + 1} of {processes} started")
        barrier.wait(_LIMIT_SECONDS)
        began = time.monotonic()
        results = [_receive(pipe) for pipe in pipes]
        return Crowd(
            max(ended for ended, _, _ in results) - began,
            sorted(each for _, seconds, _ in results for each in seconds),
            sum(dropped for _, _, dropped in results),
        )
    finally:
        for worker in workers:
            worker.kill()
            worker.join()


def _receive(pipe: Connection) -> tuple[float, list[float], int]:
    if not pipe.poll(_LIMIT_SECONDS):
        raise RuntimeError(f"a writer did not end within {_LIMIT_SECONDS:.0f} s")
    try:
        found: tuple[float, list[float], int] = pipe.recv()
    except EOFError:
        raise RuntimeError("a writer died") from None
    return found


def _put_many(
    path: str, name: str, number: int, puts: int, value_bytes: int, cap: int, barrier: Barrier, sender: Connection
) -> None:
    cache = _opened(path, name, cap)
    values = [os.urandom(value_bytes) for _ in range(2)]
    seconds = []
    barrier.wait(_LIMIT_SECONDS)
    for serial in range(puts):
        began = time.monotonic()
        cache[b"%d/%d" % (number, serial)] = values[serial % 2]
        seconds.append(time.monotonic() - began)
    ended = time.monotonic()
    sender.send((ended, seconds, cache.stats().dropped_writes if name == OURS.name else 0))
    cache.close()
