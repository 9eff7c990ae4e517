# SPDX-License-Identifier: Apache-2.0
"""Spawned processes, their threads and their forked children all use the same keys at once, on one cache object each.

Of every three processes one is plain, one has threads, and one forks while a thread of its own is in the middle of a
call. Proves that threads may share a cache object and that a forked child may use its parent's: no child holds or frees
a lock of its parent, no call is counted twice, and all calls fit into the histories.
"""

from __future__ import annotations

import os
import traceback
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

from lockcache_stress.plan import MIB, Scenario, Step
from lockcache_stress.run import Worker

_KEYS = 48
_THREADS = 3
# Operations of each writer between two forks, or two starts of threads, so that these are not most of the work.
_BURST = 20


def make_step(worker: Worker) -> Step:
    """Returns the step: plain, with threads, or with threads and forked children."""
    step = (_plain, _threads, _forks)[worker.index % 3]

    def run() -> bool:
        step(worker)
        return True

    return run


def _plain(worker: Worker) -> None:
    _operate(worker, 1)


def _threads(worker: Worker) -> None:
    with _in_threads([worker.sibling(number) for number in range(_THREADS)]):
        _operate(worker, _BURST)


def _forks(worker: Worker) -> None:
    child = worker.sibling(0)
    with _in_threads([worker.sibling(1)]):
        pid = os.fork()
        if not pid:
            _be_child(child)
        _operate(worker, _BURST)
    _, status = os.waitpid(pid, 0)
    if status:
        raise ChildProcessError(f"a forked child ended with {os.waitstatus_to_exitcode(status)}")
    worker.count("troubles")


def _be_child(child: Worker) -> None:
    code = 1
    try:
        child.moved()
        _operate(child, _BURST)
        code = 0
    except BaseException:  # noqa: BLE001 - it must not run what its parent has on the stack
        child.report(error=traceback.format_exc(limit=-6))
    finally:
        os._exit(code)


def _operate(worker: Worker, times: int) -> None:
    for _ in range(times):
        worker.use(worker.rng.randrange(_KEYS), (200, 5000, 60_000), writes=0.37, deletes=0.03)


@contextmanager
def _in_threads(writers: list[Worker]) -> Iterator[None]:
    """Run a burst on each writer in a thread; an error in one is raised when the block ends."""
    with ThreadPoolExecutor(len(writers)) as pool:
        bursts = [pool.submit(_operate, each, _BURST) for each in writers]
        yield
        for burst in bursts:
            burst.result()


SCENARIO = Scenario(
    "mixed",
    "spawned processes, threads and forked children on the same keys",
    make_step,
    processes=6,
    max_size_bytes=MIB,
    keys=_KEYS,
    writers_each=_THREADS,
    # Children end too soon to be stopped with the workers while a sample is taken.
    samples=False,
    must_happen={"troubles": "forks"},
)
