# SPDX-License-Identifier: Apache-2.0
"""Walking a shard: what counts as an entry, and for how much."""

from __future__ import annotations

import os
import time

import pytest

from lockcache.filestream.accounting.scan import (
    ShardFolders,
    count_shard,
    measure_shard,
    scan_records,
    scan_shard,
    staged_files,
)
from lockcache.filestream.accounting.state import Slot
from lockcache.filestream.disk import recency
from lockcache.filestream.disk.layout import SHARDS, Layout, StagedName
from tests.crash.strace import run_traced
from tests.unit.material import keys_in_shard, put


@pytest.mark.parametrize("record_files", [False, True])
def test_a_shard_shows_its_entries_with_size_use_and_inode(directory, record_files):
    keys = keys_in_shard(7, 3)
    names = [put(directory, key, b"x" * 100, record_files=record_files, tail=b"t" * 6) for key in keys]
    put(directory, keys_in_shard(8, 1)[0], b"elsewhere")
    found = {entry.name: entry for entry in scan_shard(directory.layout, 7)}
    assert set(found) == set(names)
    for name in names:
        status = os.stat(directory.layout.entry(name))
        assert found[name].inode == status.st_ino
        assert found[name].last_use_ns == max(status.st_atime_ns, status.st_mtime_ns)
        assert found[name].size_bytes == 100 + (50 if record_files else 0)
    assert count_shard(directory.layout, 7) == 3
    assert sorted(scan_records(directory.layout, 7)) == (sorted(names) if record_files else [])


@pytest.mark.parametrize("evicts", [False, True])
def test_an_evictor_alone_dates_a_use_that_is_to_come(directory, monkeypatch, evicts):
    path = directory.layout.entry(put(directory, keys_in_shard(7, 1)[0], b"x"))
    while os.stat(path).st_ctime_ns <= os.stat(directory.layout.tmp).st_ctime_ns:  # the last one that a server dated
        os.utime(path, ns=(2**62, 2**62))
    before, set_back_ns = os.stat(path), time.time_ns() - 86400 * 10**9
    monkeypatch.setattr(recency, "_time_ns", lambda: set_back_ns)
    monkeypatch.setattr(time, "time", lambda: set_back_ns / 1e9)
    [found] = ShardFolders(directory.layout, evicts=evicts).scan(7)
    assert found.last_use_ns == (set_back_ns if evicts else before.st_ctime_ns)
    assert os.stat(path).st_mtime_ns == (found.last_use_ns if evicts else before.st_mtime_ns)


def test_a_missing_shard_is_empty(directory):
    layout = directory.layout
    assert (list(scan_shard(layout, 5)), count_shard(layout, 5), measure_shard(layout, 5)) == ([], 0, Slot(0, 0))
    assert scan_records(layout, 5) == []


def test_only_regular_files_with_an_entrys_name_are_entries(directory, tmp_path):
    name = put(directory, keys_in_shard(7, 1)[0], b"entry")
    shard = directory.layout.entry_shard(7)
    (tmp_path / "target").write_bytes(b"planted")
    os.symlink(tmp_path / "target", f"{shard}/{'0' * 62}")
    os.mkdir(f"{shard}/{'1' * 62}")
    os.mkfifo(f"{shard}/{'2' * 62}")
    for other in ("3" * 61, "4" * 63, "A" * 62, ".nfs0001", "README"):
        with open(f"{shard}/{other}", "w") as file:
            file.write("no entry")
    assert [entry.name for entry in scan_shard(directory.layout, 7)] == [name]
    assert (count_shard(directory.layout, 7), measure_shard(directory.layout, 7)) == (1, Slot(5, 1))


@pytest.mark.parametrize("kind", ["symlink", "file"])
def test_what_is_no_directory_holds_no_entries(directory, tmp_path, kind):
    put(directory, keys_in_shard(7, 1)[0], b"entry")
    shard = directory.layout.entry_shard(7)
    os.rename(shard, tmp_path / "moved")
    if kind == "symlink":
        os.symlink(tmp_path / "moved", shard)
    else:
        (tmp_path / "moved").with_name("f").touch()
        os.rename(tmp_path / "f", shard)
    assert (list(scan_shard(directory.layout, 7)), count_shard(directory.layout, 7)) == ([], 0)


def test_what_is_staged_counts_by_its_name_whatever_is_written_yet(directory):
    layout = directory.layout
    mine = StagedName(7, 1000, "0" * 16, 1, 1, 1)
    for staged in (mine, mine._replace(shard=8), mine._replace(size_bytes=0, serial=2)):
        with open(f"{layout.tmp}/{staged}", "w") as file:
            file.write("three")
    for other in ("tmpabc", "policy.json.0123456789abcdef"):  # of cuda.core, and of a small file being replaced
        with open(f"{layout.tmp}/{other}", "w") as file:
            file.write("x")
    assert len(list(staged_files(layout))) == 3
    assert [measure_shard(layout, shard) for shard in (6, 7, 8)] == [Slot(0, 0), Slot(1000, 0), Slot(1000, 0)]


def test_without_tmp_nothing_is_staged(directory):
    os.rmdir(directory.layout.tmp)
    assert list(staged_files(directory.layout)) == []


def test_an_unlinked_entry_is_passed_over_in_the_middle_of_a_walk(directory):
    keys = keys_in_shard(7, 40)
    for key in keys:
        put(directory, key, b"x")
    walk = scan_shard(directory.layout, 7)
    seen = {next(walk).name}
    for entry in list(scan_shard(directory.layout, 7)):
        if entry.name not in seen:
            os.unlink(directory.layout.entry(entry.name))
    assert {entry.name for entry in walk} | seen == seen


LOOK = """
import errno, sys
from lockcache.filestream.disk.layout import Layout
from lockcache.filestream.accounting.scan import count_shard, measure_shard, quarantined_files, scan_shard, staged_files
layout = Layout(sys.argv[1])
LOOKS = {
    "count": lambda: count_shard(layout, 7),
    "measure": lambda: measure_shard(layout, 7),
    "scan": lambda: list(scan_shard(layout, 7)),
    "staged": lambda: list(staged_files(layout)),
    "quarantined": lambda: list(quarantined_files(layout)),
}
for look in sys.argv[2:]:
    try:
        found = LOOKS[look]()
    except OSError as error:
        assert error.errno == errno.EIO, error
    else:
        raise AssertionError(f"{look} took a failing disk for an empty directory: {found}")
"""


@pytest.mark.parametrize(
    "folder, looks",
    [
        ("entries/07", ("count", "measure", "scan")),
        ("tmp", ("staged", "measure")),
        ("lockcache/quarantine", ("quarantined", "measure")),
    ],
)
def test_a_directory_that_the_disk_does_not_give_is_not_taken_for_an_empty_one(directory, folder, looks):
    put(directory, keys_in_shard(7, 1)[0], b"x" * 100)
    path = f"{directory.layout.root}/{folder}"
    os.makedirs(path, exist_ok=True)
    paths = (path, os.path.basename(folder))  # by its name alone where the folder above it is open
    assert run_traced(LOOK, directory.layout.root, *looks, inject="openat:error=EIO:when=1+", paths=paths) == 0


def test_every_shard_is_walked_once(directory):
    for number in range(300):
        put(directory, b"%d" % number, b"x")
    assert sum(count_shard(directory.layout, shard) for shard in range(SHARDS)) == 300
    assert Layout(directory.layout.root).entry_shard(255).endswith("/ff")


def test_a_walk_of_a_large_shard_can_be_given_up_in_between(cache_path):
    shard = cache_path / "entries" / "00"
    shard.mkdir(parents=True)
    for number in range(3000):
        (shard / f"{number:062x}").touch()
    layout, asked = Layout(str(cache_path)), []

    class GivenUpError(Exception):
        pass

    def give_up_at_the_second():
        asked.append(1)
        if len(asked) == 2:
            raise GivenUpError

    for walk in (
        lambda: measure_shard(layout, 0, between=give_up_at_the_second),
        lambda: list(scan_shard(layout, 0, between=give_up_at_the_second)),
    ):
        asked.clear()
        with pytest.raises(GivenUpError):
            walk()
    descriptors = os.listdir("/proc/self/fd")
    assert not [fd for fd in descriptors if os.path.realpath(f"/proc/self/fd/{fd}") == str(shard)]
