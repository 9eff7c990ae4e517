"""16 processes want the same 8 keys of an empty cache at once, each of which takes 200 ms to make: how many are made.

With ours through ``get_or_compute``; with cuda.core's by what its ``Program.compile(cache=...)`` does: get, compile,
store; JAX does the same with its own. With diskcache under a lock of its own for each key, as its recipes say. The
compilation is a fake that sleeps: 16 real ones next to each other would measure the machine's cores.
"""

from __future__ import annotations

import os
import time
from contextlib import nullcontext
from multiprocessing.connection import Connection

from lockcache_stress.bench.base import VALUE_BYTES, Bench, Line
from lockcache_stress.bench.peers import OURS, THEIRS, installed, opened, peer_of
from lockcache_stress.processes import Group, take_turn

_COMPUTE_SECONDS = 0.2
# Importing cuda.core 16 times takes a quarter of a minute on two busy cores.
_LIMIT_SECONDS = 240.0
_COMPUTED = "computed"


def measure(bench: Bench) -> list[Line]:
    """Ours computes each key once."""
    processes, keys = bench.pick(16, 4), bench.pick(8, 2)
    found: dict[str, tuple[int, float]] = {}
    peers = [peer for peer in installed() if peer.has_cap]
    for done, peer in enumerate(peers):
        bench.show(done / len(peers), peer.name)
        path = bench.directory(f"herd-{peer.name}")
        with bench.attending(_cache(path)) if peer is OURS else nullcontext():
            found[peer.name] = _stampede(path, processes, keys, peer.name)
    computes, seconds = found.pop(OURS.name)
    theirs, their_seconds = found.pop(THEIRS.name, (None, None))
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
    """Returns how many were computed, and the seconds from the common start to the last end."""
    with Group(_want_all, (path, keys, name), processes, 1, _LIMIT_SECONDS, needs_all=True) as group:
        group.gather()
        began = time.monotonic()
        group.open_gate(0)
        seconds = max(group.gather()) - began
    return os.path.getsize(os.path.join(path, _COMPUTED)), seconds


def _cache(path: str) -> str:
    return os.path.join(path, "cache")


def _want_all(path: str, keys: int, name: str, index: int, parent: Connection, gates: list[Connection]) -> None:
    """One process: wants every key, in the same order as all others."""

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
