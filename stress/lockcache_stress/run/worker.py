# SPDX-License-Identifier: Apache-2.0
"""One worker process: does a scenario's steps, and judges every read that it makes.

Workers are spawned and never forked, because fork has tests of its own. A worker ends at the stop time, when its parent
dies, or with an error, which it writes down before.
"""

from __future__ import annotations

import copy
import faulthandler
import json
import logging
import os
import random
import signal
import time
import traceback
from collections.abc import Callable, Sequence
from typing import Any, Final

from lockcache import Entry, FileStreamProgramCache, ProgramCacheResource
from lockcache_stress.errors import ComputeFailedError
from lockcache_stress.judge import (
    ByteJudge,
    History,
    Judge,
    Register,
    Snapshot,
    Stamp,
    Verdict,
    is_stamped,
    make_value,
    stamp_metadata,
)
from lockcache_stress.plan import Plan, Step, now_us
from lockcache_stress.processes import die_with_parent
from lockcache_stress.run.counters import Counters, Latencies
from lockcache_stress.trouble import FAULTS, plant, plant_bug

# Statistics of the cache object are copied into shared memory this often, so that a SIGKILL loses few of them.
_OPERATIONS_PER_FLUSH: Final = 64
_POLL_SECONDS: Final = 0.005
_COMPUTED_BYTES: Final = 4000
# A few findings show what is wrong; a million would fill the disk.
_MOST_FINDINGS: Final = 20


class Worker:
    """The tools of a scenario's step: the cache, choices drawn from the seed, and operations that are judged."""

    def __init__(self, plan: Plan, writer: int, index: int, epoch_us: int) -> None:
        self.plan = plan
        #: The column of this process in all shared tables; the replacement of a killed worker has another one.
        self.writer = writer
        #: The number of the process in the plan, which decides its role.
        self.index = index
        self.rng = random.Random(f"{plan.seed}/{plan.scenario}/{writer}")
        self.register = Register(plan, writer, epoch_us)
        self.counters = Counters(plan)
        if "policy" in plan.extra:
            os.environ["LOCKCACHE_POLICY"] = plan.extra["policy"]
        cap = None if plan.cap_from_daemon else plan.max_size_bytes
        # Made before the cache, because opening a cache that is over its cap evicts, which is recorded.
        self.history = History(plan, writer)
        self._real = FileStreamProgramCache(plan.directory, max_size_bytes=cap, **plan.extra.get("cache", {}))
        self.cache: ProgramCacheResource = plant(plan, writer, self._real)
        self.judge: Judge = ByteJudge(plan.token, self.register)
        self.get_latencies, self.put_latencies = Latencies(), Latencies()
        self._findings = 0
        self._epoch_us = epoch_us

    def key(self, index: int) -> bytes:
        """Returns the cache key number ``index``."""
        return self.plan.key(index)

    def count(self, name: str, amount: int = 1) -> None:
        """Add to a counter."""
        self.counters.add(self.writer, name, amount)

    def get(self, index: int, *, with_metadata: bool = False, key: bytes | None = None) -> bytes | None:
        """Read a key and judge the result."""
        cache_key = self.key(index) if key is None else key
        snapshot = self.register.begin_read(index)
        found: Entry | None
        with self.history.read(index, cache_key) as recorded:
            began = time.perf_counter_ns()
            if with_metadata:
                found = self.cache.get_entry(cache_key)
            else:
                code = self.cache.get(cache_key)
                found = None if code is None else Entry(code)
            elapsed = time.perf_counter_ns() - began
            recorded.returned()
            if found is None:
                self.count("misses")
                if self.plan.misses_tell_nothing:
                    recorded.nothing()
                return None
            self.get_latencies.add(elapsed)
            self.count("hits")
            recorded.hit(self._judge(index, snapshot, found.code, dict(found.metadata) if with_metadata else None))
        return found.code

    def put(self, index: int, size_bytes: int) -> None:
        """Write a value that proves which write it is."""
        stamp = self.register.begin_write(index)
        value = make_value(self.plan.token, index, stamp, size_bytes)
        self.write(index, stamp, value, self.key(index))

    def write(self, index: int, stamp: Stamp, value: bytes | Entry, key: bytes) -> None:
        """Store the value of ``stamp``."""
        with self.history.write(index, key, stamp):
            began = time.perf_counter_ns()
            if isinstance(value, Entry):
                self.cache.put_entry(key, value)
            else:
                self.cache[key] = value
            self.put_latencies.add(time.perf_counter_ns() - began)
        self.count("puts")
        if self.history.kept_older:
            self.count("kept_older")
        else:
            self.register.end_write(index, stamp)

    def use(
        self, index: int, sizes: Sequence[int], *, writes: float, deletes: float = 0.0, computes: float = 0.0
    ) -> bool:
        """Delete, compute, write or read a key, with these probabilities. A write has one of ``sizes``.

        Returns ``True``, so that it can be a whole step, which has more to do.
        """
        roll = self.rng.random()
        if roll < deletes:
            self.delete(index)
        elif roll < deletes + computes:
            self.compute(index, _COMPUTED_BYTES)
        elif roll < deletes + computes + writes:
            self.put(index, self.rng.choice(sizes))
        else:
            self.get(index)
        return True

    def put_own(self, count: int, sizes: Sequence[int]) -> Step:
        """Returns the step of a worker that writes ``count`` keys of its own once each, and reads each back at once.

        The values have each of ``sizes`` in turn. After the last key the worker ends.
        """
        numbers = iter(range(count))

        def step() -> bool:
            number = next(numbers, None)
            if number is None:
                return False
            key = self.index * count + number
            self.put(key, sizes[number % len(sizes)])
            self.get(key)
            return True

        return step

    def compute(self, index: int, size_bytes: int) -> None:
        """Ask compile-once for a key, with a value that takes no time to compute, and note how long the call took."""
        stamp = self.register.begin_write(index)
        entry = Entry(make_value(self.plan.token, index, stamp, size_bytes), stamp_metadata(stamp))
        began = time.monotonic()
        self.get_or_write(index, stamp, lambda: entry, self.key(index))
        self.waited(time.monotonic() - began)

    def get_or_write(self, index: int, stamp: Stamp, compute: Callable[[], Entry], key: bytes) -> None:
        """Read a key and judge the result, or store the value of ``stamp``, as compile-once decides.

        ``stamp`` was begun before this call. The cache looks for the entry once more after it has the lease, and then a
        value that another writer has finished must not count as overwritten by the write of ``stamp``, which does not
        happen.
        """
        snapshot = self.register.begin_read(index)
        with self.history.write(index, key, stamp) as recorded:
            try:
                found = self.cache.get_or_compute_entry(key, compute)
            except ComputeFailedError:
                recorded.nothing()
                self.register.abandon_write(index, stamp)
                raise
            recorded.returned()
            is_mine = is_stamped(found.metadata, stamp)
            seen = self._judge(index, snapshot, found.code, dict(found.metadata))
            if not is_mine:
                recorded.hit(seen)
        if is_mine:
            self.register.end_write(index, stamp)
            self.count("puts")
        else:
            self.register.abandon_write(index, stamp)
            self.count("hits")

    def delete(self, index: int, key: bytes | None = None) -> None:
        """Delete a key, which may be missing."""
        cache_key = self.key(index) if key is None else key
        started_us = self.register.elapsed_us()
        with self.history.delete(index, cache_key) as recorded:
            try:
                del self.cache[cache_key]
            except KeyError:
                recorded.absent()
                return
        self.register.overwritten(index, started_us)
        self.count("deletes")

    def sibling(self, number: int) -> Worker:
        """Returns another writer on the same cache object, for a thread or a child. ``number`` begins with 0.

        Only one writer may use a number at a time. In a child, call :meth:`moved` first.
        """
        each = (self.plan.columns - self.plan.processes) // self.plan.processes
        other = copy.copy(self)
        other.writer = self.plan.processes + self.index * each + number
        other.rng = random.Random(f"{self.plan.seed}/{self.plan.scenario}/{other.writer}/{self.rng.random()}")
        other.register = Register(self.plan, other.writer, self._epoch_us)
        other.register.resume()
        other.judge = ByteJudge(self.plan.token, other.register)
        other.get_latencies, other.put_latencies = Latencies(), Latencies()
        return other

    def moved(self) -> None:
        """Note that this process is a forked child, which records in a file of its own, and ends with its parent."""
        die_with_parent()
        self.history.move_to(self.plan, self.writer)

    def recount(self) -> None:
        """Recount: repair the accounting, and remove the files of dead writers."""
        self._real.recount()

    def waited(self, seconds: float) -> None:
        """Remember the longest time that this process waited for others."""
        longest = max(int(seconds * 1e6), self.counters.get(self.writer, "longest_wait_us"))
        self.counters.set(self.writer, "longest_wait_us", longest)

    def flush(self) -> None:
        """Copy the counts of the cache object to the shared table, which survives a SIGKILL."""
        stats = self._real.stats()
        self.counters.set(self.writer, "dropped", stats.dropped_writes)
        self.counters.set(self.writer, "evictions", stats.evictions)
        self.counters.set(self.writer, "evicted_in_use", self.history.evicted_in_use)
        self.counters.set(self.writer, "digest_failures", stats.corrupt_entries)

    def report(self, **finding: Any) -> None:
        """Write a finding for the parent, at once."""
        path = os.path.join(self.plan.control, f"findings-{self.writer}.jsonl")
        with open(path, "a") as file:
            file.write(json.dumps({"writer": self.writer, **finding}) + "\n")

    def _judge(self, index: int, snapshot: Snapshot, code: bytes, metadata: dict[str, Any] | None) -> Stamp | None:
        """Judge a read and count the verdict. Returns the write that the bytes come from, if they prove it."""
        verdict, stamp = self.judge.judge(index, snapshot, code, metadata)
        if verdict is Verdict.OK:
            if stamp is not None:
                self.register.overwritten(index, stamp.started_us)
            return stamp
        self.count(verdict.value)
        self._findings += 1
        if self._findings <= _MOST_FINDINGS:
            self.report(
                verdict=verdict.value,
                key=index,
                bytes=len(code),
                head=code[:64].hex(),
                stamp=stamp,
                floor_us=snapshot.floor_us,
                at_us=self.register.elapsed_us(),
            )
        return stamp


def stacks_path(plan: Plan, writer: int | str) -> str:
    """Returns the file into which a worker writes where its threads are when it gets SIGUSR1; a pattern for ``*``."""
    return os.path.join(plan.control, f"stacks-{writer}")


def run_worker(plan: Plan, writer: int, index: int, epoch_us: int) -> None:
    """Run a worker process from start to end."""
    die_with_parent()
    stacks = open(stacks_path(plan, writer), "wb")  # noqa: SIM115 - for the signal, until the process ends
    faulthandler.register(signal.SIGUSR1, stacks)
    plant_bug(FAULTS.get(plan.plant or ""))
    if plan.extra.get("damages"):
        logging.getLogger("lockcache").setLevel(logging.ERROR)  # every damaged entry logs a warning, as expected here
    worker = Worker(plan, writer, index, epoch_us)
    try:
        _work(worker)
    except BaseException:
        worker.report(error=traceback.format_exc(limit=-6))
        raise
    finally:
        worker.flush()
    path = os.path.join(plan.control, f"latencies-{writer}.json")
    with open(path, "w") as file:
        json.dump({"get": worker.get_latencies.as_json(), "put": worker.put_latencies.as_json()}, file)
    worker.counters.set(writer, "finished", 1)


def _work(worker: Worker) -> None:
    if worker.plan.make_step is None:
        raise ValueError(f"the plan of {worker.plan.scenario} has no step")
    step = worker.plan.make_step(worker)
    counters = worker.counters
    counters.set(worker.writer, "ready", 1)
    while not counters.go_us:
        time.sleep(_POLL_SECONDS)
    done = 0
    while now_us() < counters.stop_us and step():
        worker.count("operations")
        done += 1
        if done % _OPERATIONS_PER_FLUSH == 0:
            worker.flush()
