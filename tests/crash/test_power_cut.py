# SPDX-License-Identifier: Apache-2.0
"""The cap and the accounting behind a power cut, by shutting a mounted ext4 down without a flush.

That nothing torn is served and nothing synced is lost is in ``tests/stress/test_power_cut.py``.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest

from lockcache import FileStreamProgramCache
from lockcache_stress.experiments import power_cut
from lockcache_stress.trouble import copy_sparse, run_quietly
from tests.crash.measure import assert_one_recount_repairs_all
from tests.processes.crowd import run_all


def _open_with_cap(path: str) -> None:
    FileStreamProgramCache(path, max_size_bytes=10**6).close()


@pytest.mark.root
def test_after_a_power_cut_the_cap_is_in_force_or_can_be_set_again_and_one_recount_mends_all() -> None:
    reason = power_cut.why_no_power_cut("ext4")
    if reason is not None:
        pytest.skip(reason)
    found = power_cut.Cut("ext4", fsync=False, writers=1)
    with power_cut._new_disk("ext4") as (parent, disk, image):
        root = Path(disk, "cache")
        # In a process of its own, which like all others does not survive the cut.
        run_all("fork", _open_with_cap, [(str(root),)])
        last = power_cut._write_and_cut(disk, parent, found, 0.1, partial(power_cut._shut_down, disk))
        run_quietly("umount", disk)
        copy_sparse(image, f"{image}.after")
        run_quietly("mount", "-o", "loop", f"{image}.after", disk)
        power_cut._read(str(root), last, found)
        assert (found.ok, found.torn) == (True, 0)
        with FileStreamProgramCache(root, max_size_bytes=10**6) as cache:
            assert cache.max_size_bytes == 10**6
            for serial in range(50):
                cache[b"%d" % serial] = bytes(50_000)
            assert cache.stats().bytes <= 10**6
            assert_one_recount_repairs_all(cache)
        assert sum(file.stat().st_size for file in (root / "entries").glob("??/*")) <= 10**6
