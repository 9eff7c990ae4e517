# SPDX-License-Identifier: Apache-2.0
"""A disk of 8 MiB, without a cap that keeps the cache below it; another process fills the rest, and frees it again.

The first process fills the disk, the others write and read. Proves invariant 7 (never take the job down) for ENOSPC: no
process dies, writes find room by evicting or are dropped, and no value that is torn or stale is read. ``quota`` proves
the same for EDQUOT, in a limited subvolume of a btrfs that has room. On btrfs, removing a file needs room too, so that
now and then a dropped write cannot remove the older value: the library logs this, and the scenario reports it without
judging it.
"""

from __future__ import annotations

import contextlib
import os
import time
from dataclasses import replace

from lockcache_stress.plan import MIB, Scenario, Step
from lockcache_stress.run import Worker, some
from lockcache_stress.trouble import needs_mounts, quota, small_disk
from lockcache_stress.zipf import Zipf

_KEYS = 200
_PIECE = bytes(128 * 1024)
_LONGEST_PAUSE_SECONDS = 0.05


def make_step(worker: Worker) -> Step:
    """Returns the step: the first process fills the disk, the others write and read."""
    if worker.index == 0:
        return _fill(worker)
    zipf = Zipf(worker.rng, worker.plan.keys, 0.7)
    return lambda: worker.use(zipf.draw(), (200, 20_000, 120_000, 700_000), writes=0.5)


def _fill(worker: Worker) -> Step:
    rng, path = worker.rng, os.path.join(worker.plan.directory, "ballast")

    def step() -> bool:
        try:
            _write(path, rng.randrange(8, 64))
        except OSError:
            worker.count("troubles")  # the disk is full, as is wanted
        time.sleep(rng.uniform(0, _LONGEST_PAUSE_SECONDS))
        if rng.random() < 0.5:
            with contextlib.suppress(OSError):  # at its quota, btrfs may refuse to remove
                os.unlink(path)
        time.sleep(rng.uniform(0, _LONGEST_PAUSE_SECONDS))
        return True

    return step


def _write(path: str, pieces: int) -> None:
    with open(path, "wb", buffering=0) as file:
        for _ in range(pieces):
            file.write(_PIECE)


SCENARIO = Scenario(
    "disk-full",
    "a disk of 8 MiB, which others fill",
    make_step,
    processes=5,
    max_size_bytes=64 * MIB,
    keys=_KEYS,
    place=small_disk,
    why_not=needs_mounts,
    checks=lambda outcome: [
        some("writes that found no room at first", outcome.totals["evictions"] + outcome.totals["dropped"])
    ],
    must_happen={"troubles": "times the disk was full"},
)

QUOTA = replace(
    SCENARIO,
    name="quota",
    help="a quota of 8 MiB, of which others use their share",
    place=quota,
    why_not=lambda: needs_mounts("mkfs.btrfs", "btrfs"),
    excused=("dropped, older value kept",),
)
