# SPDX-License-Identifier: Apache-2.0
"""The directory is deleted under running processes: all of it, ``tmp/``, ``lockcache/``, ``entries/``; or moved away.

The first process deletes again and again, the others write and read. Proves that no process dies of the deletions, that
a write after one is read, and that no deleted entry comes back: a deletion is a removal in the history of its key.
Deleting ``lockcache/`` removes the cap and the accounting too, so both are only reported; one recount corrects them.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import time
from contextlib import ExitStack

from lockcache_stress.plan import MIB, Scenario, Step
from lockcache_stress.run import Worker

_KEYS = 32
_PARTS = ("", "tmp", "lockcache", "entries", os.path.join("lockcache", "locks"), os.path.join("lockcache", "state"))
_LONGEST_PAUSE_SECONDS = 0.1


def make_step(worker: Worker) -> Step:
    """Returns the step: the first process deletes, the others write and read."""
    if worker.index == 0:
        return _delete(worker)
    return lambda: worker.use(worker.rng.randrange(_KEYS), (200, 10_000, 100_000), writes=0.4)


def _delete(worker: Worker) -> Step:
    rng, root = worker.rng, worker.plan.directory

    def step() -> bool:
        time.sleep(rng.uniform(0, _LONGEST_PAUSE_SECONDS))
        if rng.random() < 0.2:
            _move_away(worker)
        else:
            _remove(os.path.join(root, rng.choice(_PARTS)))
        worker.count("troubles")
        return True

    return step


def _remove(path: str) -> None:
    """Remove a tree like ``rm -rf``, file by file, so that the history has each entry.

    Others make files again meanwhile.
    """
    with contextlib.suppress(FileNotFoundError):
        if not os.path.isdir(path):
            os.unlink(path)
            return
        for folder, _, files in os.walk(path, topdown=False):
            for file in files:
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(os.path.join(folder, file))
            with contextlib.suppress(OSError):  # another process filled the folder again, or removed it first
                os.rmdir(folder)


def _move_away(worker: Worker) -> None:
    root = worker.plan.directory
    away = f"{root}-away"
    with ExitStack() as stack:
        # The rename removes the entries of all keys at one instant.
        recorded = [stack.enter_context(worker.history.damage(key, worker.key(key))) for key in range(_KEYS)]
        try:
            os.rename(root, away)
        except FileNotFoundError:
            for each in recorded:
                each.nothing()
            return
    shutil.rmtree(away, ignore_errors=True)  # a writer may still be making something in it
    shutil.rmtree(away, ignore_errors=True)


SCENARIO = Scenario(
    "deleted",
    "the directory is deleted or moved away underneath, again and again",
    make_step,
    processes=5,
    max_size_bytes=4 * MIB,
    keys=_KEYS,
    samples=False,
    excused=("peak over cap", "final over cap", "bytes unaccounted for", "evicted though in use"),
    recounts_first=True,
    must_happen={"troubles": "deletions"},
)
