# SPDX-License-Identifier: Apache-2.0
"""Plans: which experiments are run, in which order, and for how long; several at once, each in processes of its own."""

from __future__ import annotations

import gc
import logging
import os
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import combinations_with_replacement
from typing import Final

from lockcache_stress.processes import start_pool
from lockcache_stress.run import Show
from lockcache_stress.schedules.explore import Experiment, Explored, Explorer, Violation
from lockcache_stress.schedules.operations import OPERATIONS
from lockcache_stress.schedules.planted import PLANTED

_OFTEN: Final = [name for name, operation in OPERATIONS.items() if not operation.seldom]
_SELDOM: Final = [
    ("record", "get"),
    ("record", "record"),
    ("slow-lease", "lease"),
    ("put", "stepped"),
    ("tidy", "put-alone"),
    ("create", "create"),
]
#: Every two operations, and those that only make sense with some. Those under a cap have by far the most orders: they
#: come last, and have the time that the others leave.
PAIRS: Final = sorted(
    [*combinations_with_replacement(_OFTEN, 2), *_SELDOM],
    key=lambda names: sum(OPERATIONS[name].begin.is_capped for name in names),
)
#: Three operations at once: those in which two disturb a third.
TRIPLES: Final = [
    ("put", "put", "get"),
    ("put", "put", "remove"),
    ("put", "remove", "get"),
    ("replace", "evict", "get"),
    ("evict", "evict", "get"),
    ("evict", "evict", "policy"),
    ("put", "put-far", "evict"),
    ("put", "recount", "remove"),
    ("put", "reap", "recount"),
    ("put", "put", "recount"),
    ("reap", "reap", "put"),
    ("recount", "evict", "replace"),
    ("lease", "lease", "lease"),
    ("lease", "lease", "give-up"),
    ("lease", "give-up", "put"),
    ("lease", "remove", "put"),
    ("policy", "put", "evict"),
    ("put-new", "put-far", "narrow"),
    ("policy", "policy", "put"),
    ("attach", "policy", "put"),
    ("attach", "lease", "remove"),
]

# Each experiment runs a few schedules, also where the time is up.
_LEAST_SECONDS: Final = 0.2


@contextmanager
def workplace() -> Iterator[str]:
    """Yields a path for the directory of an experiment: in memory, if there is such a file system."""
    memory = "/dev/shm"
    with tempfile.TemporaryDirectory(
        prefix="lockcache-stress-", dir=memory if os.access(memory, os.W_OK) else None
    ) as parent:
        yield f"{parent}/cache"


def explore_one(experiment: Experiment, seconds: float, stop_at: int) -> Explored:
    """Explore one experiment, for so long at most."""
    logging.getLogger("lockcache").setLevel(logging.ERROR)  # what is logged there is judged here
    gc.freeze()  # thousands of forks follow: what is there is not copied for a mark
    with workplace() as root:
        explorer, until = Explorer(experiment, root), time.monotonic() + seconds
        if not experiment.fault:
            return explorer.explore(until, stop_at=stop_at)
        expected = PLANTED[experiment.fault].found_as
        return explorer.explore(until, stop_at=stop_at, counts=partial(_says, expected))


def _explore(given: tuple[Experiment, float, float, int]) -> Explored:
    experiment, until, left, stop_at = given
    return explore_one(experiment, max(_LEAST_SECONDS, (until - time.time()) / left), stop_at)


def explore_all(
    experiments: Sequence[Experiment], seconds: float, jobs: int, show: Show, *, stop_at: int = 20
) -> Iterator[Explored]:
    """Explore experiments, ``jobs`` at once, for so long in all. Yields what was found in each.

    Each may take an equal share of what is left: those that are explored whole leave time to the later ones.
    """
    until, count = time.time() + seconds, len(experiments)
    given = [(each, until, max(1.0, (count - number) / jobs), stop_at) for number, each in enumerate(experiments)]
    schedules = 0
    with start_pool(jobs) as pool:
        for number, found in enumerate(pool.imap_unordered(_explore, given), 1):
            schedules += found.schedules
            show("schedules", number / len(experiments), f"{schedules:,} schedules, {found.experiment.title}")
            yield found


def prove_all(names: Sequence[str], seconds: float, jobs: int, show: Show) -> Iterator[Explored]:
    """Explore with each of these faults planted, until it is found."""
    experiments = [planted_experiment(name) for name in names]
    yield from explore_all(experiments, seconds, jobs, show, stop_at=1)


def planted_experiment(name: str) -> Experiment:
    """Returns the experiment that has to find a fault."""
    fault = PLANTED[name]
    # A broken promise has to be found, not only that its runs are not those of the model.
    return Experiment(fault.operations, fault.most_preemptions, fault.kills, name, compares=False)


def is_found(explored: Explored) -> bool:
    """Returns whether a planted fault was found as what it is."""
    return any(_says(PLANTED[explored.experiment.fault].found_as, each) for each in explored.violations)


def _says(expected: str, violation: Violation) -> bool:
    return any(expected in wrong for wrong in violation.wrong)
