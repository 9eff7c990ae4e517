"""Bytes in use while 32 processes put 100 values of 64 KiB each into a cap of 10 MiB, with no daemon.

By statvfs of a tmpfs of its own where one may be mounted (one atomic number), else by adding up files while writers go
on, which is not an instant: then it is only reported.
"""

from __future__ import annotations

import os
from contextlib import ExitStack
from multiprocessing.connection import Connection
from typing import Final

from lockcache_stress.bench.bars import Bar
from lockcache_stress.bench.base import Bench, Line, shown
from lockcache_stress.bench.peers import OURS, THEIRS, Peer, installed, opened, peer_of
from lockcache_stress.run import Group, take_turn, tree_bytes, used_bytes
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
            theirs=shown(theirs, "{:.2f} x cap"),
            others={name: f"{peak:.2f} x cap" for name, peak in peaks.items()},
            ratio="by statvfs" if exact else "by walking",
            **_BAR.judged(ours if exact else None),
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
    peak = 0

    def look() -> None:
        nonlocal peak
        peak = max(peak, used_bytes(path) if by_statvfs else tree_bytes(path))

    # All open the empty directory before any writes: a cache that counts at opening must not profit from latecomers.
    with Group(_put_many, (path, cap, puts, name), processes, 1, _LIMIT_SECONDS) as group:
        group.run_phase(0, look, every_seconds=0.001)
        look()
    return peak


def _put_many(
    path: str, cap: int, puts: int, name: str, number: int, parent: Connection, gates: list[Connection]
) -> None:
    """One writer process."""
    with opened(peer_of(name), path, cap) as store:
        take_turn(parent, gates[0])
        for serial in range(puts):
            store.put(b"%d/%d" % (number, serial), os.urandom(_VALUE_BYTES))
    parent.send(None)
