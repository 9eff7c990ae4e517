# SPDX-License-Identifier: Apache-2.0
"""Every budget on real directories, of every way in which they are kept."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.daemon.daemon_process import run_daemon
from tests.daemon.directories import fill, names_on_disk
from tests.daemon.directory_kinds import KINDS
from tests.daemon.pyptx_crowd import bytes_of, store


def once(*arguments: object) -> list[dict[str, Any]]:
    """Returns what one pass reports of its sweeps."""
    done = run_daemon("--once", "--json", *arguments)
    assert (done.returncode, done.stderr) == (0, "")
    return [said for said in map(json.loads, done.stdout.splitlines()) if said["event"] == "sweep"]


def names(paths: list[Path]) -> set[str]:
    return {path.parent.name + path.name for path in paths}


def free_bytes(path: Path) -> int:
    found = os.statvfs(path)
    return found.f_bavail * found.f_frsize


# ---- entries ---------------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("name", KINDS)
def test_too_many_entries_and_what_nobody_used_for_too_long_go_whole(cache_path: Path, name: str) -> None:
    kind = KINDS[name]
    kind.fill(cache_path, range(40))
    (sweep,) = once("--max-entries", "20", *kind.options, cache_path)
    assert (sweep["budget"], sweep["evicted_entries"]) == ("max-entries", 22)
    assert kind.names(cache_path) == set(map(kind.name_of, range(22, 40)))
    assert kind.is_whole(cache_path)
    assert once("--max-entries", "20", *kind.options, cache_path) == []
    (sweep,) = once("--max-age", "50m", *kind.options, cache_path)
    assert (sweep["budget"], sweep["evicted_entries"]) == ("max-age", 18)
    kind.fill(cache_path, range(20))
    kind.touch(cache_path)
    assert once("--max-age", "50m", *kind.options, cache_path) == []
    assert len(kind.names(cache_path)) == 20


# ---- age -------------------------------------------------------------------------------------------------------------


# ---- free space ------------------------------------------------------------------------------------------------------


@pytest.mark.long
@pytest.mark.root
def test_when_others_fill_the_file_system_entries_make_room(mount_tmpfs: Callable[[str], Path]) -> None:
    path = mount_tmpfs("size=64m")
    cache = path / "cache"
    fill(cache, 400, 10_000)
    assert once("--min-free", "56M", cache) == []
    (path / "ballast").write_bytes(bytes(4_000_000))
    assert free_bytes(path) < 58_800_000
    (sweep,) = once("--min-free", "56M", cache)
    assert sweep["budget"] == "min-free"
    assert free_bytes(path) >= 58_800_000
    assert 0 < len(names_on_disk(cache)) < 400


@pytest.mark.long
@pytest.mark.root
def test_a_share_counts_for_inodes_too(mount_tmpfs: Callable[[str], Path]) -> None:
    path = mount_tmpfs("size=64m,nr_inodes=2000")
    cache = path / "cache"
    fill(cache, 400, 10)
    assert once("--min-free", "50%", cache) == []
    (path / "ballast").mkdir()
    while os.statvfs(path).f_favail >= 980:
        (path / "ballast" / str(os.statvfs(path).f_favail)).touch()
    (sweep,) = once("--min-free", "50%", cache)
    assert sweep["budget"] == "min-free"
    assert 1100 <= os.statvfs(path).f_favail <= 1105  # the daemon's own files come and go


# ---- a total ---------------------------------------------------------------------------------------------------------


def test_directories_of_different_layouts_share_a_total(tmp_path: Path) -> None:
    ours, theirs = tmp_path / "ours", tmp_path / "theirs"
    store(theirs, range(100))
    made = fill(ours, 100, 10_000)
    for path in made:
        os.utime(path)
    before = bytes_of(theirs)
    (sweep,) = once("--total", "1500k", ours, theirs)
    assert sweep["directory"] == str(theirs)
    assert names_on_disk(ours) == names(made)
    assert 1_000_000 + bytes_of(theirs) <= 1_350_000 < 1_000_000 + before


# ---- a dry run -------------------------------------------------------------------------------------------------------


def rehearse(*arguments: object) -> dict[str, dict[str, Any]]:
    """Returns what a dry run reports, by directory."""
    done = run_daemon("--dry-run", "--json", *arguments)
    assert (done.returncode, done.stderr) == (0, "")
    return {said["directory"]: said for said in map(json.loads, done.stdout.splitlines())}


@pytest.mark.long
def test_a_dry_run_says_which_budget_would_bite_and_what_would_go(cache_path: Path) -> None:
    for path in fill(cache_path, 200, 10_000)[150:]:
        os.utime(path)
    arguments = ("--max-entries", "180", "--max-age", "50m", cache_path)
    said = rehearse(*arguments)[str(cache_path)]
    assert {budget: each["evicted_entries"] for budget, each in said["budgets"].items()} == {
        "max-entries": 38,
        "max-age": 112,
    }
    assert said["evicted_entries"] == 150
    assert [sweep["evicted_entries"] for sweep in once(*arguments)] == [38, 112]
    after = rehearse(*arguments)[str(cache_path)]
    assert (after["evicted_entries"], after["budgets"]) == (0, {})


@pytest.mark.long
def test_a_dry_run_of_a_total_says_what_would_go_from_which_directory(tmp_path: Path) -> None:
    old, new = tmp_path / "old", tmp_path / "new"
    fill(old, 100, 10_000)
    fill(new, 100, 10_000, first=1000)
    arguments = ("--total", "1500k", "--floor", "500k", old, new)
    said = rehearse(*arguments)
    expected = {str(old): {"evicted_entries": 50, "evicted_bytes": 500_000}}
    expected[str(new)] = {"evicted_entries": 15, "evicted_bytes": 150_000}
    assert {root: each["budgets"]["total"] for root, each in said.items()} == expected
    assert {sweep["directory"]: sweep["evicted_entries"] for sweep in once(*arguments)} == {str(old): 50, str(new): 15}
