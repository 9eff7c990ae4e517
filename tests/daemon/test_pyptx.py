# SPDX-License-Identifier: Apache-2.0
"""A pyptx directory under the daemon: whole entries go, the oldest first, while processes write and read."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from lockcache.integrations.pyptx import CubinCache
from lockcache_daemon.stores.layouts import choose_layout
from tests.daemon.daemon_process import run_daemon
from tests.daemon.pyptx_crowd import (
    bytes_of,
    entry_of,
    key_of,
    parts,
    store,
)

CAP = 1_000_000
LOW = 900_000
#: Above what a sweep begins.
HIGH = 950_000


def no_warning(message: str) -> None:
    raise AssertionError(message)


# ---- which layout ----------------------------------------------------------------------------------------------------


def test_a_directory_from_which_all_was_evicted_is_still_pyptxs(cache_path: Path) -> None:
    cache = CubinCache(cache_path)
    cache.put(entry_of(0))
    cache.clear(disk=True)
    assert choose_layout(str(cache_path), "auto", no_warning) == "pyptx"


@pytest.mark.long
def test_an_empty_directory_is_pyptxs_if_the_operator_says_so_and_from_then_on(cache_path: Path) -> None:
    assert run_daemon("--max-size", CAP, "--once", "--layout", "pyptx", cache_path).returncode == 0
    assert sorted(os.listdir(cache_path)) == ["lockcache"]  # nothing of lockcache's outside it
    assert choose_layout(str(cache_path), "auto", no_warning) == "pyptx"


# ---- one pass --------------------------------------------------------------------------------------------------------


@pytest.mark.long
@pytest.mark.parametrize("by_pyptx", [False, True], ids=["ours", "pyptx's own"])
def test_a_hit_is_a_use_and_leaves_what_tells_the_order_of_writing(cache_path: Path, by_pyptx: bool) -> None:
    cache_path.mkdir(mode=0o700)
    store(cache_path, range(200), by_pyptx=by_pyptx)
    mtimes = {path: path.stat().st_mtime_ns for path in cache_path.glob("*.*")}
    for number in (0, 7):
        assert CubinCache(cache_path).get(key_of(number)) == entry_of(number)
    assert {path: path.stat().st_mtime_ns for path in mtimes} == mtimes
    assert run_daemon("--max-size", CAP, "--once", cache_path).returncode == 0
    left = parts(cache_path)
    assert [number for number in range(20) if key_of(number).hash() in left] == [0, 7]


def test_a_hit_states_its_use_where_a_mere_read_leaves_no_trace(cache_path: Path) -> None:
    store(cache_path, range(1))
    path = cache_path / f"{key_of(0).hash()}.json"
    written_ns = path.stat().st_ctime_ns
    later_ns = written_ns + 3600 * 10**9  # which relatime and noatime do not have a read replace
    os.utime(path, ns=(later_ns, written_ns))
    assert CubinCache(cache_path).get(key_of(0)) is not None
    assert (path.stat().st_atime_ns < later_ns, path.stat().st_mtime_ns) == (True, written_ns)


def test_files_that_are_nobodys_entry_stay(cache_path: Path) -> None:
    store(cache_path, range(150))
    (cache_path / "notes.json").write_text("mine")
    (cache_path / f"{'0' * 32}.json").mkdir()
    assert run_daemon("--max-size", CAP, "--once", cache_path).returncode == 0
    assert bytes_of(cache_path) <= CAP
    assert (cache_path / "notes.json").read_text() == "mine"
    assert (cache_path / f"{'0' * 32}.json").is_dir()
