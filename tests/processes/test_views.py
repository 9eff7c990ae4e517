# SPDX-License-Identifier: Apache-2.0
"""Views among real processes: under the cap, one version in a path, and whole for who holds one."""

from __future__ import annotations

import os
import random
from pathlib import Path
from typing import Any

import pytest

from lockcache import FileStreamProgramCache
from lockcache_stress.run.sampler import Sampler
from tests.crash.measure import accounted, on_disk
from tests.processes.crowd import crowd

VIEWS = 60
KEYS = 12
CAP = 60_000


def _files(key: int, version: int) -> dict[str, bytes]:
    mark = b"%d %d;" % (key, version)
    return {f"part {number}": mark * (150 * number + 1) for number in range(4)}


def _work(path: str, is_writer: bool) -> list[Any]:
    cache, wrong, viewed = FileStreamProgramCache(path, lock_timeout_seconds=20.0), [], 0
    choose = random.Random(os.getpid())
    while viewed < VIEWS:
        key = choose.randrange(KEYS)
        if is_writer or cache.get(f"{key}") is None:
            cache.put_files(f"{key}", _files(key, choose.randrange(3)))
        view = cache.view_files(f"{key}")
        if view is None:
            continue
        viewed += 1
        # A process that holds the path reads all of it, whatever goes on around.
        found = {name: Path(view, name).read_bytes() for name in os.listdir(view)}
        if found not in [_files(key, version) for version in range(3)]:
            wrong.append((str(view), {name: len(content) for name, content in found.items()}))
    return wrong


@pytest.mark.long
def test_views_never_exceed_the_cap_mix_versions_or_vanish_while_they_are_held(cache_path: Path) -> None:
    cache = FileStreamProgramCache(cache_path, max_size_bytes=CAP)
    sampler = Sampler(str(cache_path), is_own_mount=False)
    with crowd("fork", _work, [(str(cache_path), number % 2 == 0) for number in range(6)]) as workers:
        while running := [worker.pid for worker in workers.processes if worker.is_alive()]:
            sampler.sample(running)
        found = workers.results()
    sampler.sample_final()
    assert found == [[]] * 6
    peaks = sampler.peaks
    assert peaks.samples > 3
    assert CAP / 2 < peaks.disk_bytes <= CAP
    assert peaks.unaccounted_bytes <= 0
    assert cache.recount() == []
    assert accounted(cache_path) == on_disk(cache_path)
