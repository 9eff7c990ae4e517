# SPDX-License-Identifier: Apache-2.0
"""``lockcache-stress power-cut``: real cuts, and a judge that tells what is torn or lost."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from lockcache import FileStreamProgramCache
from lockcache_stress.experiments import power_cut
from lockcache_stress.experiments.power_cut import _KEYS as KEYS, _TOKEN as TOKEN, Cut, _key_of as key_of
from lockcache_stress.judge.reads import make_value
from lockcache_stress.judge.register import Stamp
from lockcache_stress.trouble import mount_forgetful_disk, sync_below, why_no_fuse


@pytest.fixture
def fuse() -> None:
    reason = why_no_fuse()
    if reason is not None:
        pytest.skip(reason)


@pytest.mark.root
def test_nothing_that_was_synced_is_lost_in_a_cut() -> None:
    reason = power_cut.why_no_power_cut("ext4")
    if reason is not None:
        pytest.skip(reason)
    cut = power_cut.cut_once("ext4", fsync=True, writers=2, seconds=0.1)
    assert (cut.torn, cut.lost) == (0, 0)
    assert min(cut.writes, cut.served) > 0


@pytest.mark.root
@pytest.mark.usefixtures("fuse")
@pytest.mark.long
def test_what_had_returned_is_there_where_all_is_forgotten_that_was_not_synced() -> None:
    found = [power_cut.cut_once("fuse", fsync=fsync, writers=2, seconds=0.1) for fsync in (True, False)]
    assert [cut.torn for cut in found] == [0, 0]
    assert (found[0].lost, found[1].served) == (0, 0)
    assert found[0].served == 2 * KEYS


@pytest.mark.root
@pytest.mark.usefixtures("fuse")
@pytest.mark.slow
def test_a_sync_of_a_file_keeps_its_bytes_and_one_of_its_folder_its_name(tmp_path: Path) -> None:
    def write(name: str, content: bytes, *, syncs: bool = False) -> None:
        with open(path / name, "wb") as file:
            file.write(content)
            file.flush()
            if syncs:
                os.fsync(file.fileno())

    with mount_forgetful_disk(str(tmp_path / "disk")) as disk:
        path = Path(disk.path)
        write("named", b"")
        write("written", b"older", syncs=True)
        write("replaced", b"older", syncs=True)
        sync_below(disk.path)
        write("nameless", b"bytes", syncs=True)
        write("named", b"bytes")
        write("written", b"newer", syncs=True)
        write("newer", b"newer", syncs=True)
        os.rename(path / "newer", path / "replaced")
        (path / "folder").mkdir()
        assert (path / "replaced").read_bytes() == b"newer"
        disk.cut()
        disk.make_after()
    left = {each.name: each.read_bytes() for each in Path(disk.after).iterdir()}
    assert left == {"named": b"", "written": b"newer", "replaced": b"older"}


def test_an_older_value_is_lost_work_and_a_half_or_anothers_is_torn(cache_path: Path) -> None:
    with FileStreamProgramCache(cache_path) as cache:
        for key in range(KEYS):
            cache[key_of(0, key)] = make_value(TOKEN, key, Stamp(0, 0, 2, 0), 1000)
        cache[key_of(0, 1)] = make_value(TOKEN, 1, Stamp(0, 0, 2, 0), 1000)[:-1]
        cache[key_of(0, 2)] = make_value(TOKEN, 3, Stamp(0, 0, 2, 0), 1000)
    found = Cut("ext4", fsync=True, writers=1, writes=1)
    power_cut._read(str(cache_path), {(0, 4): 3, (0, 5): 2}, found)
    assert (found.served, found.torn, found.lost, found.ok) == (KEYS, 2, 1, False)
