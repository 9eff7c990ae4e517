"""16 processes want the same 8 keys of an empty cache at once, each of which takes 200 ms to make: how many are made.

With ours through ``get_or_compute``; with cuda.core's by what its ``Program.compile(cache=...)`` does: get, compile,
store. The compilation is a fake that sleeps: 16 real ones beside each other would measure the machine's cores.
"""

from __future__ import annotations

import multiprocessing
import os
import time
from multiprocessing.synchronize import Barrier
from typing import Any

from lockcache_stress.bench.base import VALUE_BYTES, Bench, Line, open_ours, open_theirs, theirs_is_installed
from lockcache_stress.interrupts import interrupts_blocked

__all__ = ["measure", "want_all"]

_COMPUTE_SECONDS = 0.2
# Importing cuda.core 16 times takes a quarter of a minute on two busy cores.
_LIMIT_SECONDS = 240.0
_COMPUTED = "computed"


def measure(bench: Bench) -> list[Line]:
    """Ours computes each key once."""
    processes, keys = bench.pick(16, 4), bench.pick(8, 2)
    found: dict[str, tuple[int, float]] = {}
    for name in ("ours", "theirs") if theirs_is_installed() else ("ours",):
        bench.show(0.5 * (name == "theirs"), name)
        found[name] = _herd(bench.directory(f"herd-{name}"), processes, keys, is_ours=name == "ours")
    computes, seconds = found["ours"]
    theirs, their_seconds = found.get("theirs", (None, None))
    return [
        Line(
            f"{processes} processes x {keys} keys of 200 ms, cold: computes",
            f"{computes} in {seconds:.1f} s",
            theirs="" if theirs is None else f"{theirs} in {their_seconds:.1f} s",
            ratio="" if theirs is None else f"{theirs / computes:.1f}x fewer",
            bar=f"= {keys}",
            ok=computes == keys,
            numbers={"ours": computes, "theirs": theirs, "ours_seconds": seconds, "theirs_seconds": their_seconds},
        )
    ]


def _herd(path: str, processes: int, keys: int, *, is_ours: bool) -> tuple[int, float]:
    """How many were computed, and the seconds from the common start to the last end."""
    context = multiprocessing.get_context("spawn")
    barrier = context.Barrier(processes + 1)
    workers = [
        context.Process(target=want_all, args=(path, keys, is_ours, barrier), daemon=True) for _ in range(processes)
    ]
    try:
        with interrupts_blocked():
            for worker in workers:
                worker.start()
        barrier.wait(_LIMIT_SECONDS)
        began = time.monotonic()
        for worker in workers:
            worker.join(_LIMIT_SECONDS)
        seconds = time.monotonic() - began
    finally:
        for worker in workers:
            if worker.pid is not None:
                worker.kill()
                worker.join()
    failed = [worker.exitcode for worker in workers if worker.exitcode != 0]
    if failed:
        raise RuntimeError(f"{len(failed)} of {processes} processes did not end well: {failed[:4]}")
    return os.path.getsize(os.path.join(path, _COMPUTED)), seconds


def want_all(path: str, keys: int, is_ours: bool, barrier: Barrier) -> None:
    """One process: wants every key, in the same order as all others."""
    directory = os.path.join(path, "cache")
    cache: Any = open_ours(directory) if is_ours else open_theirs(directory)

    def compute() -> bytes:
        fd = os.open(os.path.join(path, _COMPUTED), os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
        os.write(fd, b".")
        os.close(fd)
        time.sleep(_COMPUTE_SECONDS)
        return bytes(VALUE_BYTES)

    barrier.wait(_LIMIT_SECONDS)
    for number in range(keys):
        key = b"herd-%d" % number
        if is_ours:
            cache.get_or_compute(key, compute)
        elif cache.get(key) is None:
            cache[key] = compute()
