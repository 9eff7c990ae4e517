# SPDX-License-Identifier: Apache-2.0
"""Contention: many processes put or want the same keys at once. They begin together, so that start-up is not measured.

Puts go to a tmpfs of its own where one may be mounted.

Contention: the time of all puts, and how evenly the processes wait. Each process puts 100 values of 64 KiB into a cap
of 10 MiB. The cache is full when the processes open it, so that cuda.core's evicts too, and lockcache may not be slower
in the same run. Next to this number is that of a run from an empty cache, without a bar: there cuda.core's never
evicts, because each process counts only its own bytes, which stay under the cap. Then 200 processes put values of a
third of a cap of 12 MiB, of which two fit at a time: none may be dropped.

Overshoot: the most bytes in use while 32 processes do the same, with no daemon. The number is statvfs of the tmpfs,
which is atomic; without a tmpfs it is the sum of file sizes while writers go on, which is not atomic, and is only
reported.

Herd: 16 processes want the same 8 keys of an empty cache at once, each of which takes 200 ms to compute: the number of
computations. lockcache uses ``get_or_compute``. cuda.core's does what its ``Program.compile(cache=...)`` does: get,
compile, store; JAX does the same with its own cache. diskcache takes a lock for each key, as its recipes say. The
compilation only sleeps, because 16 real ones next to each other would measure the machine's cores.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from multiprocessing.connection import Connection
from statistics import fmean
from typing import Any, Final, NamedTuple

from lockcache_stress.bench.base import VALUE_BYTES, Bar, Bench, Line, shown
from lockcache_stress.bench.peers import CUDA_CORE, LOCKCACHE, Peer, installed, opened, peer_of
from lockcache_stress.processes import Group, take_turn
from lockcache_stress.run import tree_bytes, used_bytes
from lockcache_stress.trouble import can_mount, mounted_tmpfs

_EVEN: Final = Bar("<=", 5, "x")
_NO_SLOWER: Final = Bar("<=", 1, "x")
_VALUE_BYTES: Final = 64 << 10
_CAP_BYTES: Final = 10 << 20
_LARGE_CAP_BYTES: Final = 12 << 20
_LIMIT_SECONDS: Final = 300.0
_PEAK: Final = Bar("<=", 1, " x cap")
_COMPUTE_SECONDS = 0.2
# Importing cuda.core 16 times takes a quarter of a minute on two busy cores.
_HERD_SECONDS = 240.0
_COMPUTED = "computed"


class Crowd(NamedTuple):
    """The times of many processes that put at once."""

    #: The time from the common start to the last end.
    seconds: float
    #: The time of each put of each process, in ascending order.
    put_seconds: list[float]
    dropped: int

    @property
    def p99_seconds(self) -> float:
        return self.put_seconds[int(len(self.put_seconds) * 0.99)]

    @property
    def p99_over_mean(self) -> float:
        return self.p99_seconds / fmean(self.put_seconds)


def measure_contention(bench: Bench) -> list[Line]:
    """Returns the lines: the time of all puts, how evenly the processes wait, and the number of dropped puts."""
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
            **_EVEN.judged(ours.p99_over_mean),
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

    return run(LOCKCACHE), run(CUDA_CORE) if CUDA_CORE.is_installed() else None


def _large_values(bench: Bench, processes: int) -> Line:
    found = _in_own_mount(bench, LOCKCACHE, processes, 2, _LARGE_CAP_BYTES // 3, _LARGE_CAP_BYTES)
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
    with own_mount(bench, "contention", peer, cap) as (path, _):
        if is_full:
            with opened(peer, path, cap) as store:
                value = os.urandom(value_bytes)
                for number in range(cap // value_bytes + 1):
                    store.put(b"older %d" % number, value)
        bench.show(0.0, f"{peer.name}: {processes} processes")
        return crowd(path, peer.name, processes, puts, value_bytes, cap)


@contextmanager
def own_mount(bench: Bench, name: str, peer: Peer, cap: int) -> Iterator[tuple[str, bool]]:
    """Yields a directory of this cache, and whether it is a tmpfs of its own, which it is where one may be mounted."""
    path = bench.directory(f"{name}-{peer.name}")
    with ExitStack() as stack:
        is_mounted = can_mount() and stack.enter_context(mounted_tmpfs(path))
        if peer is LOCKCACHE:
            stack.enter_context(bench.attending(path, cap))
        yield path, is_mounted


def crowd(
    path: str,
    name: str,
    processes: int,
    puts: int,
    value_bytes: int,
    cap: int,
    meanwhile: Callable[[], object] | None = None,
) -> Crowd:
    """Start ``processes``, and have them put from a common start; ``meanwhile`` is called every millisecond.

    All processes open the directory before any of them writes, because a cache that counts at opening would profit from
    processes that open it late.
    """
    # Forked from one process that has imported everything, because 200 processes would import for minutes.
    preload = [__name__, *(["cuda.core.utils"] if CUDA_CORE.is_installed() else [])]
    given = (path, name, puts, value_bytes, cap)
    with Group(_put_many, given, processes, 1, _LIMIT_SECONDS, needs_all=True, preload=preload) as group:
        results = group.run_phase(0, meanwhile, every_seconds=0.001)
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
    parent.send((first, ended, seconds, store.cache.stats().dropped_writes if name == LOCKCACHE.name else 0))
    store.close()


def measure_overshoot(bench: Bench) -> list[Line]:
    """Measure the peak: lockcache's must never be above the cap."""
    processes, puts, cap = bench.pick(32, 3), bench.pick(100, 30), bench.pick(10, 5) << 20
    peaks: dict[str, float] = {}
    exact = False
    peers = [peer for peer in installed() if peer.has_cap]
    for done, peer in enumerate(peers):
        bench.show(done / len(peers), peer.name)
        peak, exact = peak_bytes(bench, peer, cap, processes, puts)
        peaks[peer.name] = peak / cap
    ours, theirs = peaks.pop(LOCKCACHE.name), peaks.pop(CUDA_CORE.name, None)
    return [
        Line(
            f"{processes} processes x {puts} x 64 KiB into {cap >> 20} MiB, peak",
            _PEAK.show(ours, 3),
            theirs=shown(theirs, "{:.2f} x cap"),
            others={name: f"{peak:.2f} x cap" for name, peak in peaks.items()},
            ratio="by statvfs" if exact else "by walking",
            **_PEAK.judged(ours if exact else None),
            numbers={"ours_over_cap": ours, "theirs_over_cap": theirs, "by_statvfs": exact, "others_over_cap": peaks},
        )
    ]


def peak_bytes(bench: Bench, peer: Peer, cap: int, processes: int, puts: int) -> tuple[int, bool]:
    """Returns the most bytes that were in use at any moment, and whether the file system itself counted them."""
    peak = 0
    with own_mount(bench, "overshoot", peer, cap) as (path, is_exact):

        def measure() -> None:
            nonlocal peak
            peak = max(peak, used_bytes(path) if is_exact else tree_bytes(path))

        crowd(path, peer.name, processes, puts, _VALUE_BYTES, cap, measure)
        measure()
    return peak, is_exact


def measure_herd(bench: Bench) -> list[Line]:
    """Measure the herd: lockcache must compute each key once."""
    processes, keys = bench.pick(16, 4), bench.pick(8, 2)
    found: dict[str, tuple[int, float]] = {}
    peers = [peer for peer in installed() if peer.has_cap]
    for done, peer in enumerate(peers):
        bench.show(done / len(peers), peer.name)
        path = bench.directory(f"herd-{peer.name}")
        with bench.attending(_cache(path)) if peer is LOCKCACHE else nullcontext():
            found[peer.name] = _stampede(path, processes, keys, peer.name)
    computes, seconds = found.pop(LOCKCACHE.name)
    theirs, their_seconds = found.pop(CUDA_CORE.name, (None, None))
    return [
        Line(
            f"{processes} processes x {keys} keys of 200 ms, cold: computes",
            f"{computes} in {seconds:.1f} s",
            theirs="" if theirs is None else f"{theirs} in {their_seconds:.1f} s",
            others={name: f"{count} in {taken:.1f} s" for name, (count, taken) in found.items()},
            ratio="" if theirs is None else f"{theirs / computes:.1f}x fewer",
            bar=f"= {keys}",
            ok=computes == keys,
            numbers={
                "ours": computes,
                "theirs": theirs,
                "ours_seconds": seconds,
                "theirs_seconds": their_seconds,
                "others": {name: {"computes": count, "seconds": taken} for name, (count, taken) in found.items()},
            },
        )
    ]


def _stampede(path: str, processes: int, keys: int, name: str) -> tuple[int, float]:
    """Returns the number of computations, and the seconds from the common start to the last end."""
    with Group(_want_all, (path, keys, name), processes, 1, _HERD_SECONDS, needs_all=True) as group:
        group.gather()
        began = time.monotonic()
        group.open_gate(0)
        seconds = max(group.gather()) - began
    return os.path.getsize(os.path.join(path, _COMPUTED)), seconds


def _cache(path: str) -> str:
    return os.path.join(path, "cache")


def _want_all(path: str, keys: int, name: str, index: int, parent: Connection, gates: list[Connection]) -> None:
    """Run one process that wants every key, in the same order as all others."""

    def compute() -> bytes:
        fd = os.open(os.path.join(path, _COMPUTED), os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
        os.write(fd, b".")
        os.close(fd)
        time.sleep(_COMPUTE_SECONDS)
        return bytes(VALUE_BYTES)

    with opened(peer_of(name), _cache(path)) as store:
        take_turn(parent, gates[0])
        for number in range(keys):
            store.want(b"herd-%d" % number, compute)
        parent.send(time.monotonic())
