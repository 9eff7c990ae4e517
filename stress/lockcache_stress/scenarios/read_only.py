# SPDX-License-Identifier: Apache-2.0
"""The file system becomes read-only under writers and readers, and writable again, all the time.

A read-only mount of the same file system is put on top of the directory and removed again, because the kernel refuses
to remount while files are open for writing. Files that were open before stay writable, as they do when a server changes
its export. Proves that readers notice nothing, that a write is dropped and logged where it had to leave an older value,
that a deletion raises EROFS, and that writes succeed when the directory is writable again.
"""

from __future__ import annotations

import errno
import time

from lockcache_stress.plan import MIB, Scenario, Step
from lockcache_stress.run import Worker
from lockcache_stress.trouble import needs_mounts, read_only_view, run_quietly, view_of

_KEYS = 32
_LONGEST_PAUSE_SECONDS = 0.15


def make_step(worker: Worker) -> Step:
    """Returns the step: the first process mounts, the others write, read and delete."""
    return _mount(worker) if worker.index == 0 else _use(worker)


def _use(worker: Worker) -> Step:
    def step() -> bool:
        try:
            worker.use(worker.rng.randrange(_KEYS), (200, 20_000, 100_000), writes=0.37, deletes=0.03)
        except OSError as error:
            if error.errno != errno.EROFS:
                raise
            worker.count("refused")
        return True

    return step


def _mount(worker: Worker) -> Step:
    rng, path = worker.rng, worker.plan.directory

    def step() -> bool:
        time.sleep(rng.uniform(0, _LONGEST_PAUSE_SECONDS))
        run_quietly("mount", "--bind", view_of(path), path)
        before = worker.counters.total("hits")
        time.sleep(rng.uniform(0, _LONGEST_PAUSE_SECONDS))
        worker.count("hits_in_trouble", worker.counters.total("hits") - before)
        run_quietly("umount", "-l", path)
        worker.count("troubles")
        return True

    return step


SCENARIO = Scenario(
    "read-only",
    "the directory becomes read-only and writable again",
    make_step,
    processes=5,
    max_size_bytes=2 * MIB,
    keys=_KEYS,
    place=read_only_view,
    why_not=needs_mounts,
    samples=False,
    must_happen={
        "troubles": "times it was read-only",
        "hits_in_trouble": "hits meanwhile",
        "dropped": "writes that were dropped",
    },
    excused=("dropped, older value kept",),
    # A write that was refused halfway leaves its file staged and its bytes reserved until its process ends.
    recounts_first=True,
)
