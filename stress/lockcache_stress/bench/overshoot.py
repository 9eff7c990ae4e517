"""Bytes in use while 32 processes put 100 values of 64 KiB each into a cap of 10 MiB, with no daemon.

By statvfs of a tmpfs of its own where one may be mounted (one atomic number), else by adding up files while writers go
on, which is no instant: then it is only told.
"""

from __future__ import annotations

import multiprocessing
import os
import time
from contextlib import ExitStack
from multiprocessing.context import SpawnProcess
from multiprocessing.synchronize import Barrier
from typing import Final

from lockcache_stress.bench.bars import Bar
from lockcache_stress.bench.base import Bench, Line, open_ours, open_theirs, theirs_is_installed
from lockcache_stress.interrupts import interrupts_blocked
from lockcache_stress.sampler import bytes_on_disk
from lockcache_stress.workspace import can_mount, mounted_tmpfs

__all__ = ["measure"]

_BAR: Final = Bar("<=", 1, " x cap")
_VALUE_BYTES = 64 * 1024
# Importing cuda.core 32 times takes half a minute on two cores.
_LIMIT_SECONDS = 240.0


def measure(bench: Bench) -> list[Line]:
    """Ours never above the cap."""
    processes, puts, cap = bench.pick(32, 3), bench.pick(100, 30), bench.pick(10, 5) << 20
    peaks: dict[bool, int] = {}
    exact = False
    with ExitStack() as stack:
        for is_ours in (True, False) if theirs_is_installed() else (True,):
            path = bench.directory("overshoot")
            exact = can_mount() and stack.enter_context(mounted_tmpfs(path))
            bench.show(0.5 * (not is_ours), "ours" if is_ours else "cuda.core's")
            peaks[is_ours] = _peak(path, cap, processes, puts, is_ours=is_ours, by_statvfs=exact)
    ours, theirs = peaks[True] / cap, peaks[False] / cap if False in peaks else None
    return [
        Line(
            f"{processes} processes x {puts} x 64 KiB into {cap >> 20} MiB, peak",
            _BAR.show(ours, 3),
            theirs="" if theirs is None else f"{theirs:.2f} x cap",
            ratio="by statvfs" if exact else "by walking",
            bar=str(_BAR) if exact else "",
            ok=not exact or _BAR.holds(ours),
            numbers={"ours_over_cap": ours, "theirs_over_cap": theirs, "by_statvfs": exact},
        )
    ]


def _peak(path: str, cap: int, processes: int, puts: int, *, is_ours: bool, by_statvfs: bool) -> int:
    context = multiprocessing.get_context("spawn")
    # All open the empty directory before any writes: a cache that counts at opening must not profit from latecomers.
    barrier = context.Barrier(processes)
    workers = [
        context.Process(target=put_many, args=(path, cap, number, puts, is_ours, barrier), daemon=True)
        for number in range(processes)
    ]
    try:
        with interrupts_blocked():
            for worker in workers:
                worker.start()
        return _watch(path, workers, by_statvfs=by_statvfs)
    finally:
        for worker in workers:
            if worker.pid is not None:
                worker.kill()
                worker.join()


def _watch(path: str, workers: list[SpawnProcess], *, by_statvfs: bool) -> int:
    peak, deadline = 0, time.monotonic() + _LIMIT_SECONDS
    while any(worker.is_alive() for worker in workers) and time.monotonic() < deadline:
        peak = max(peak, _used(path) if by_statvfs else bytes_on_disk(path))
        time.sleep(0.001)
    failed = [worker.exitcode for worker in workers if worker.exitcode != 0]
    if failed:
        raise RuntimeError(f"{len(failed)} of {len(workers)} writers did not end well: {failed[:4]}")
    return max(peak, _used(path) if by_statvfs else bytes_on_disk(path))


def _used(path: str) -> int:
    status = os.statvfs(path)
    return (status.f_blocks - status.f_bfree) * status.f_frsize


def put_many(path: str, cap: int, number: int, puts: int, is_ours: bool, barrier: Barrier) -> None:
    """One writer process."""
    cache = open_ours(path, cap) if is_ours else open_theirs(path, cap)
    barrier.wait(_LIMIT_SECONDS)
    for serial in range(puts):
        cache[b"%d/%d" % (number, serial)] = os.urandom(_VALUE_BYTES)
