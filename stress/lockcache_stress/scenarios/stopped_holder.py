# SPDX-License-Identifier: Apache-2.0
"""A process is stopped (SIGSTOP) while it holds a shard's lock, and goes on later.

All keys are in one shard. Proves invariant 4 (readers never wait): readers have hits all the while. Proves also that
writers of the shard give their writes up after the lock's timeout and do not hang, that they store again after SIGCONT,
and that the write that the stopped process then completes fits into the history. The first process watches; the second
stops itself when the watcher asks for it, by a file.
"""

from __future__ import annotations

import os
import signal
import time

from lockcache.filestream.entry import staging
from lockcache.lowlevel import Layout, entry_name
from lockcache_stress.plan import MIB, Plan, Scenario, Step
from lockcache_stress.run import Check, Outcome, Worker, is_stopped, some, zero

_LOCK_SECONDS = 0.15
# Long enough that every waiting writer gives up, some of them twice.
_STOP_SECONDS = 3 * _LOCK_SECONDS
_HITS = 20
_MOST_SECONDS = 20.0
_READ = 4
_WRITTEN = 4
_SHARDS = 256


def make_step(worker: Worker) -> Step:
    """Returns the step: one process watches, one holds the lock, the third of every three reads, the others write."""
    keys = _keys_of_one_shard(worker.plan)
    if worker.index == 0:
        return _watch(worker, keys[:_READ])
    if worker.index == 1:
        _stop_at_word(worker.plan)
    return _read(worker, keys[:_READ]) if worker.index % 3 == 2 else _write(worker, keys[_READ:])


def _keys_of_one_shard(plan: Plan) -> list[int]:
    shard = entry_name(plan.key(0))[:2]
    found = [index for index in range(plan.keys) if entry_name(plan.key(index))[:2] == shard]
    return found[: _READ + _WRITTEN]


def _write(worker: Worker, keys: list[int]) -> Step:
    rng = worker.rng

    def step() -> bool:
        worker.put(rng.choice(keys), rng.choice((200, 20_000)))
        worker.get(rng.choice(keys))
        return True

    return step


def _read(worker: Worker, keys: list[int]) -> Step:
    rng = worker.rng

    def step() -> bool:
        worker.get(rng.choice(keys))
        return True

    return step


def _stop_at_word(plan: Plan) -> None:
    """Have this process stop itself in the middle of publishing, as soon as the watcher's file is there."""
    word, rename = _word(plan), vars(staging)["_rename"]
    with open(_pid(plan), "w") as file:
        file.write(str(os.getpid()))

    def stopping(layout: Layout, *paths: str) -> None:
        if os.path.exists(word):
            os.unlink(word)
            os.kill(os.getpid(), signal.SIGSTOP)
        rename(layout, *paths)

    vars(staging)["_rename"] = stopping


def _watch(worker: Worker, read: list[int]) -> Step:
    """Store the values that are read, once and before any stop; then have the other process stop again and again.

    A put during a stop is dropped and removes the older value, so readers that put what they miss would soon have no
    hits.
    """
    plan, counters = worker.plan, worker.counters
    missing = list(read)

    def step() -> bool:
        if missing:
            worker.put(missing[-1], 5000)
            if worker.get(missing[-1]) is not None:  # on a busy machine a write may be dropped for want of the lock
                missing.pop()
            return True
        if not os.path.exists(_pid(plan)) or not counters.get(2, "hits"):
            time.sleep(0.01)
            return True
        with open(_pid(plan)) as file:
            holder = int(file.read())
        with open(_word(plan), "w"):
            pass
        while os.path.exists(_word(plan)):
            if counters.get(1, "finished"):
                return False
            time.sleep(0.002)
        if is_stopped(holder):
            try:
                _count_hits(worker)
            finally:
                os.kill(holder, signal.SIGCONT)
        return True

    return step


def _count_hits(worker: Worker) -> None:
    """Wait until the writers must have given up, and count how often readers hit meanwhile."""
    counters, began, before = worker.counters, time.monotonic(), worker.counters.total("hits")
    while True:
        hits, passed = counters.total("hits") - before, time.monotonic() - began
        if (passed > _STOP_SECONDS and hits >= _HITS) or passed > _MOST_SECONDS:
            break
        if counters.total("finished"):
            return  # the run is over, and the readers have stopped
        time.sleep(0.005)
    worker.count("troubles")
    worker.count("hits_in_trouble", hits)
    if hits < _HITS:
        worker.count("failures")
        worker.report(error=f"{hits} hits in {passed:.1f} s while the lock's holder was stopped")


def _pid(plan: Plan) -> str:
    return os.path.join(plan.control, "holder")


def _word(plan: Plan) -> str:
    return os.path.join(plan.control, "stop")


def _checks(outcome: Outcome) -> list[Check]:
    total = outcome.totals
    return [
        some("stops of a lock's holder", total["troubles"]),
        some("hits during stops", total["hits_in_trouble"]),
        zero("stops that held readers up", total["failures"]),
        some("writes given up for the lock", total["dropped"]),
    ]


SCENARIO = Scenario(
    "stopped-holder",
    "a process is stopped while it holds a shard's lock",
    make_step,
    processes=6,
    # One process watches, one holds the lock, one reads, one writes.
    least_processes=4,
    max_size_bytes=4 * MIB,
    # So many keys that some are in the same shard as the first.
    keys=16 * _SHARDS,
    samples=False,
    checks=_checks,
    needs=("troubles", "hits_in_trouble", "dropped"),
    # A write given up for want of the lock removes the older value without accounting for it.
    recounts_first=True,
    extra={"cache": {"lock_timeout_seconds": _LOCK_SECONDS}},
)
