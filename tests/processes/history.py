"""Histories of operations with their times, and the judge of last-write-wins over them.

Times are CLOCK_MONOTONIC, one clock for all processes of a machine. A read is stale if what it returned had certainly
been overwritten: some other write (or delete) of the key began after the returned write had ended, and itself ended
before the read began. Writes that overlap may win in either order, so they prove nothing against each other.
"""

from __future__ import annotations

import random
import time
from bisect import bisect_left
from collections import defaultdict
from typing import Any, NamedTuple

from lockcache import FileStreamProgramCache
from tests.processes.proof import Proof, prove, value_for

__all__ = ["Read", "Write", "operate", "stale_reads"]


class Write(NamedTuple):
    key: bytes
    proof: Proof | None
    """``None`` for a delete."""
    began: float
    ended: float


class Read(NamedTuple):
    key: bytes
    proof: Proof
    began: float
    ended: float


def operate(path: str, writer: int, operations: int, keys: int, start: Any, options: dict[str, Any]) -> list[Any]:
    """Put, delete and get at random, all on few keys; returns the history. Every read is proven on the spot."""
    draw = random.Random(writer)
    cache = FileStreamProgramCache(path, lock_timeout_seconds=60, **options)
    start.wait()
    history: list[Any] = []
    for serial in range(operations):
        key = b"key %d" % draw.randrange(keys)
        kind = draw.random()
        value = value_for(key, writer, serial, draw.choice((64, 1000, 4096, 65536)))
        began = time.monotonic()
        if kind < 0.3:
            cache[key] = value
            history.append(Write(key, Proof(writer, serial), began, time.monotonic()))
        elif kind < 0.35:
            try:
                del cache[key]
            except KeyError:
                continue
            history.append(Write(key, None, began, time.monotonic()))
        else:
            found = cache.get(key)
            ended = time.monotonic()
            if found is not None:
                history.append(Read(key, prove(key, found), began, ended))
    assert cache.stats().corrupt_entries == 0
    assert cache.stats().dropped_writes == 0
    return history


def stale_reads(histories: list[list[Any]]) -> list[str]:
    """Every read that returned what had been overwritten before it began, or what had not been written yet."""
    writes: dict[bytes, list[Write]] = defaultdict(list)
    for event in (event for history in histories for event in history):
        if isinstance(event, Write):
            writes[event.key].append(event)
    complaints = []
    for event in (event for history in histories for event in history):
        if isinstance(event, Read):
            complaints.extend(_complaints(event, writes[event.key]))
    return complaints


def _complaints(read: Read, writes: list[Write]) -> list[str]:
    writes.sort(key=lambda write: write.ended)
    [origin] = [write for write in writes if write.proof == read.proof]
    if origin.began > read.ended:
        return [f"{read} returned {origin} before it was written"]
    before = writes[: bisect_left([write.ended for write in writes], read.began)]
    return [f"{read} returned {origin}, overwritten by {write}" for write in before if write.began > origin.ended]
