# SPDX-License-Identifier: Apache-2.0
"""All processes want one key whose compiler needs the processor: one computes, and waiting does not disturb it.

Proves compile-once where it saves most and where waiting could undo it: a waiter that polls takes processor time from
the compiler that it waits for, and two hundred waiters took all of it. The scenario judges the processor time that
waiting takes for each second waited, which another program's load changes little, and that no key was computed twice.
"""

from __future__ import annotations

import itertools
import time

from lockcache import Entry
from lockcache.filestream.disk import mount_of
from lockcache_stress.judge import Stamp, make_value, stamp_metadata
from lockcache_stress.plan import MIB, Scenario, Step
from lockcache_stress.run import Check, Outcome, Worker

_KEYS = 4096
_BYTES = 50_000
# Much longer than the first moments of a wait, in which a waiter looks often since most compilations are short: the
# looks of those moments take some 5 ms of a slow processor.
_BURNED_SECONDS = 2.0
# Waiters took 1 to 3.5 ms on two busy cores and 7 ms on slow ones, the first moments and the reading of the entry
# included. Waiters that look two hundred times a second took 50 ms and more; waiters that ask for the lease every 25 ms
# took 10 to 14 ms.
_MOST_MS_A_SECOND = 10.0


def make_step(worker: Worker) -> Step:
    """Returns the step: want the next key. All processes want the same one, wait for each other, and begin together."""
    plan, indices = worker.plan, itertools.count()
    mount_of(plan.directory)  # takes 15 ms, which would count as the cost of the first entry that this process reads

    def step() -> bool:
        index = next(indices)
        burned_ns = 0

        def compute(stamp: Stamp) -> Entry:
            nonlocal burned_ns
            began_ns = time.thread_time_ns()
            worker.count("compiles")
            _burn(_BURNED_SECONDS)
            burned_ns = time.thread_time_ns() - began_ns
            return Entry(make_value(plan.token, index, stamp, _BYTES), stamp_metadata(stamp))

        stamp = worker.register.begin_write(index)
        began, began_ns = time.monotonic(), time.thread_time_ns()
        worker.get_or_write(index, stamp, lambda: compute(stamp), worker.key(index))
        if not burned_ns:
            worker.count("waited_us", int((time.monotonic() - began) * 1e6))
            worker.count("waiting_cpu_us", (time.thread_time_ns() - began_ns) // 1000)
        worker.counters.set(worker.writer, "piles", index + 1)
        return index + 1 < _KEYS

    return step


def _burn(seconds: float) -> None:
    """Use so much processor time, however long other processes delay this one."""
    until = time.thread_time() + seconds
    while time.thread_time() < until:
        sum(range(10_000))


def _checks(outcome: Outcome) -> list[Check]:
    found = outcome.totals
    compiled, wanted = found["compiles"], found["piles"]
    cost = 1000 * found["waiting_cpu_us"] / max(found["waited_us"], 1)
    return [
        Check("keys computed", f"{compiled:,} times, {wanted:,} keys", "once each", compiled == wanted),
        Check("seconds waited", f"{found['waited_us'] / 1e6:,.1f}", "> 0", found["waited_us"] > 0),
        Check(
            "processor time of waiters",
            f"{cost:.2f} ms for each second",
            f"< {_MOST_MS_A_SECOND:g} ms",
            cost < _MOST_MS_A_SECOND,
        ),
    ]


SCENARIO = Scenario(
    "pile",
    "every process wants the same key: those who wait leave the processor to the one that compiles",
    make_step,
    processes=24,
    max_size_bytes=256 * MIB,
    keys=_KEYS,
    checks=_checks,
    needs=("waited_us",),
)
