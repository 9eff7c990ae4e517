# SPDX-License-Identifier: Apache-2.0
"""``lockcache-stress power-cut``: real cuts, and a judge that tells what is torn or lost."""

from __future__ import annotations

from pathlib import Path

import pytest

from lockcache import FileStreamProgramCache
from lockcache_stress.experiments import power_cut
from lockcache_stress.experiments.power_cut import _KEYS as KEYS, _TOKEN as TOKEN, Cut, _key_of as key_of
from lockcache_stress.judge.reads import make_value
from lockcache_stress.judge.register import Stamp


@pytest.mark.root
def test_nothing_that_was_synced_is_lost_in_a_cut() -> None:
    reason = power_cut.why_no_power_cut("ext4")
    if reason is not None:
        pytest.skip(reason)
    cut = power_cut.cut_once("ext4", fsync=True, writers=2, seconds=0.1)
    assert (cut.torn, cut.lost) == (0, 0)
    assert min(cut.writes, cut.served) > 0


def test_an_older_value_is_lost_work_and_a_half_or_anothers_is_torn(cache_path: Path) -> None:
    with FileStreamProgramCache(cache_path) as cache:
        for key in range(KEYS):
            cache[key_of(0, key)] = make_value(TOKEN, key, Stamp(0, 0, 2, 0), 1000)
        cache[key_of(0, 1)] = make_value(TOKEN, 1, Stamp(0, 0, 2, 0), 1000)[:-1]
        cache[key_of(0, 2)] = make_value(TOKEN, 3, Stamp(0, 0, 2, 0), 1000)
    found = Cut("ext4", fsync=True, writers=1, writes=1)
    power_cut._read(str(cache_path), {(0, 4): 3, (0, 5): 2}, found)
    assert (found.served, found.torn, found.lost, found.ok) == (KEYS, 2, 1, False)
