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
from lockcache_stress.bench.base import Bench, Line
from lockcache_stress.bench.peers import OURS, THEIRS, Peer, installed, opened, peer_of
from lockcache_stress.processes import interrupts_blocked
from lockcache_stress.run import tree_bytes
from lockcache_stress.trouble import can_mount, mounted_tmpfs

__all__ = ["measure", "peak_bytes"]

_BAR: Final = Bar("<=", 1, " x cap")
_VALUE_BYTES = 64 * 1024
# Importing cuda.core 32 times takes half a minute on two cores.
_LIMIT_SECONDS = 240.0


def measure(bench: Bench) -> list[Line]:
    """Ours never above the cap."""
    processes, puts, cap = bench.pick(32, 3), bench.pick(100, 30), bench.pick(10, 5) << 20
    peaks: dict[str, float] = {}
    exact = False
    peers = [peer for peer in installed() if peer.has_cap]
    for done, peer in enumerate(peers):
        bench.show(done / len(peers), peer.name)
        peak, exact = peak_bytes(bench, peer, cap, processes, puts)
        peaks[peer.name] = peak / cap
    ours, theirs = peaks.pop(OURS.name), peaks.pop(THEIRS.name, None)
    return [
        Line(
            f"{processes} processes x {puts} x 64 KiB into {cap >> 20} MiB, peak",
            _BAR.show(ours, 3),
            theirs="" if theirs is None else f"{theirs:.2f} x cap",
            others={name: f"{peak:.2f} x cap" for name, peak in peaks.items()},
            ratio="by statvfs" if exact else "by walking",
            bar=str(_BAR) if exact else "",
            ok=not exact or _BAR.holds(ours),
            numbers={"ours_over_cap": ours, "theirs_over_cap": theirs, "by_statvfs": exact, "others_over_cap": peaks},
        )
    ]


def peak_bytes(bench: Bench, peer: Peer, cap: int, processes: int, puts: int) -> tuple[int, bool]:
    """The most that was in use at any moment, and whether the file system itself says so."""
    path = bench.directory(f"overshoot-{peer.name}")
    with ExitStack() as stack:
        exact = can_mount() and stack.enter_context(mounted_tmpfs(path))
        if peer is OURS:
            stack.enter_context(bench.attending(path, cap))
        return _peak(path, cap, processes, puts, peer.name, by_statvfs=exact), exact


def _peak(path: str, cap: int, processes: int, puts: int, name: str, *, by_statvfs: bool) -> int:
    context = multiprocessing.get_context("spawn")
    # All open the empty directory before any writes: a cache that counts at opening must not profit from latecomers.
    barrier = context.Barrier(processes)
    workers = [
        context.Process(target=put_many, args=(path, cap, number, puts, name, barrier), daemon=True)
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
        peak = max(peak, _used(path) if by_statvfs else tree_bytes(path))
        time.sleep(0.001)
    failed = [worker.exitcode for worker in workers if worker.exitcode != 0]
    if failed:
        raise RuntimeError(f"{len(failed)} of {len(workers)} writers did not end well: {failed[:4]}")
    return max(peak, _used(path) if by_statvfs else tree_bytes(path))


def _used(path: str) -> int:
    status = os.statvfs(path)
    return (status.f_blocks - status.f_bfree) * status.f_frsize


def put_many(path: str, cap: int, number: int, puts: int, name: str, barrier: Barrier) -> None:
    """One writer process."""
    with opened(peer_of(name), path, cap) as store:
        barrier.wait(_LIMIT_SECONDS)
        for serial in range(puts):
            store.put(b"%d/%d" % (number, serial), os.urandom(_VALUE_BYTES))
