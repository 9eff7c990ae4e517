# SPDX-License-Identifier: Apache-2.0
"""A directory that somebody opens to others while it is kept is left alone until that is fixed."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from lockcache_daemon.budgets.shared import SharedBudgets
from lockcache_daemon.settings.model import Settings
from tests.daemon.daemon_process import until
from tests.daemon.directories import fill, grow, photograph
from tests.daemon.keepers import CAP, Kept
from tests.daemon.pyptx_crowd import store
from tests.daemon.triton_format import fill as fill_as_triton
from tests.state_pages import policy_of

SOMEBODY = 65534

FILL: dict[str, Callable[[Path], object]] = {
    "lockcache": lambda root: fill(root, 150, 10_000),
    "cuda.core": lambda root: fill(root, 150, 10_000),
    "pyptx": lambda root: store(root, range(120)),
    "triton": lambda root: fill_as_triton(root, range(150)),
    "files": lambda root: grow(root, range(150)),
}


def bytes_of(root: Path) -> int:
    return sum(path.lstat().st_size for path in root.rglob("*") if path.is_file() and "lockcache" not in path.parts)


@pytest.mark.slow
@pytest.mark.parametrize("layout", FILL)
def test_a_directory_that_is_opened_to_others_is_left_alone_and_kept_again_when_that_is_mended(
    layout: str, cache_path: Path, keep: Callable[..., Kept]
) -> None:
    cache_path.mkdir(mode=0o700)
    kept = keep(cache_path, layout)
    kept.keeper.tick()
    FILL[layout](cache_path)
    assert bytes_of(cache_path) > CAP
    cache_path.chmod(0o777)
    before = photograph(cache_path)
    for _ in range(5):
        kept.keeper.tick()
    assert photograph(cache_path) == before
    (error,) = kept.said("error")
    assert error["error"]["kind"] == "UnsafeCacheDirError"
    assert f"chmod -R go-w {cache_path}" in error["error"]["message"]
    assert not kept.keeper.is_well
    cache_path.chmod(0o700)
    until(lambda: kept.keeper.tick() is None and bytes_of(cache_path) <= CAP)
    assert len(kept.said("recovered")) == 1
    assert kept.keeper.is_well


@pytest.mark.parametrize("folder", ["entries", "tmp", "lockcache", "lockcache/locks"])
def test_a_folder_below_that_is_opened_to_others_counts_as_well(
    folder: str, cache_path: Path, keep: Callable[..., Kept]
) -> None:
    kept = keep(cache_path)
    kept.keeper.tick()
    (cache_path / folder).chmod(0o770)
    kept.keeper.tick()
    assert [said["error"]["kind"] for said in kept.said("error")] == ["UnsafeCacheDirError"]
    (cache_path / folder).chmod(0o700)
    kept.keeper.tick()
    assert kept.keeper.is_well


@pytest.mark.root
@pytest.mark.parametrize("layout", ["lockcache", "files"])
def test_a_directory_that_is_given_to_somebody_else_is_left_alone(
    layout: str, cache_path: Path, keep: Callable[..., Kept]
) -> None:
    kept = keep(cache_path, layout)
    kept.keeper.tick()
    os.chown(cache_path, SOMEBODY, SOMEBODY)
    before = photograph(cache_path)
    kept.keeper.tick()
    assert photograph(cache_path) == before
    assert f"belongs to uid {SOMEBODY}" in kept.said("error")[0]["error"]["message"]
    os.chown(cache_path, os.geteuid(), os.getegid())
    kept.keeper.tick()
    assert kept.keeper.is_well


def test_a_symlink_in_the_place_of_a_folder_is_seen_at_the_next_tick(
    cache_path: Path, tmp_path: Path, keep: Callable[..., Kept]
) -> None:
    kept = keep(cache_path)
    kept.keeper.tick()
    (cache_path / "entries").rmdir()
    (tmp_path / "elsewhere").mkdir(mode=0o700)
    (cache_path / "entries").symlink_to(tmp_path / "elsewhere")
    kept.keeper.tick()
    assert "in the way of a cache directory" in str(kept.said("error")[0]["error"])
    (cache_path / "entries").unlink()
    for _ in range(2):  # the first makes the folder again
        kept.keeper.tick()
    assert kept.keeper.is_well


def test_what_cannot_be_touched_counts_for_a_total_and_loses_nothing(tmp_path: Path, keep: Callable[..., Kept]) -> None:
    fill(tmp_path / "open", 50, 10_000)
    fill(tmp_path / "private", 50, 10_000, first=50)
    keepers = [keep(tmp_path / name).keeper for name in ("open", "private")]
    budgets, plenty = SharedBudgets(), Settings(total=10_000_000)
    for keeper in keepers:
        keeper.tick()
    budgets.tick(plenty, keepers)
    (tmp_path / "open").chmod(0o777)
    for keeper in keepers:
        keeper.tick()
    before = photograph(tmp_path / "open")
    budgets.tick(Settings(total=800_000), keepers)
    assert photograph(tmp_path / "open") == before
    assert bytes_of(tmp_path / "private") <= 300_000


@pytest.mark.slow
@pytest.mark.root
@pytest.mark.parametrize("layout", ["lockcache", "pyptx", "files"])
@pytest.mark.parametrize("below", ["", "cache", "a/cache"])
def test_what_was_unmounted_underneath_is_not_made_below_the_mount_point_and_kept_again_when_it_is_back(
    below: str, layout: str, mount_tmpfs: Callable[[str], Path], keep: Callable[..., Kept]
) -> None:
    point = mount_tmpfs("size=8m")
    root = point / below
    kept = keep(root, layout)
    FILL[layout](root)
    kept.keeper.tick()
    subprocess.run(["umount", "-l", point], check=True)
    for _ in range(3):
        kept.keeper.tick()
    assert os.listdir(point) == []
    assert not kept.keeper.is_well
    (error,) = kept.said("error")
    assert f"was unmounted from {point}" in error["error"]["message"]
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=8m,mode=0700", "another", point], check=True)
    kept.keeper.tick()
    assert kept.keeper.is_well
    FILL[layout](root)
    until(lambda: kept.keeper.tick() is None and bytes_of(root) <= CAP)
    kept.keeper.close()


@pytest.mark.root
def test_a_directory_that_is_deleted_on_its_mount_is_made_anew(
    mount_tmpfs: Callable[[str], Path], keep: Callable[..., Kept]
) -> None:
    root = mount_tmpfs("size=8m") / "a" / "cache"
    kept = keep(root)
    kept.keeper.tick()
    shutil.rmtree(root.parent)
    kept.keeper.tick()
    assert kept.keeper.is_well
    assert policy_of(root).by_operator
    kept.keeper.close()


@pytest.mark.root
def test_a_symlink_that_is_led_to_another_file_system_is_followed(
    tmp_path: Path, mount_tmpfs: Callable[[str], Path], keep: Callable[..., Kept]
) -> None:
    point, here = mount_tmpfs("size=8m"), tmp_path / "here"
    for directory in (point / "cache", here):
        directory.mkdir(mode=0o700)
    root = tmp_path / "root"
    root.symlink_to(point / "cache")
    kept = keep(root)
    kept.keeper.tick()
    root.unlink()
    root.symlink_to(here)
    kept.keeper.tick()
    assert kept.keeper.is_well
    assert policy_of(here).by_operator
    kept.keeper.close()


@pytest.mark.root
def test_who_stands_by_does_not_take_over_what_was_unmounted(
    mount_tmpfs: Callable[[str], Path], keep: Callable[..., Kept]
) -> None:
    point = mount_tmpfs("size=8m")
    first = keep(point / "cache")
    second = Kept(point / "cache")
    second.keeper.rules = replace(second.keeper.rules, standby=True)
    second.keeper.open_or_stand_by()
    assert second.keeper.is_standing_by
    subprocess.run(["umount", "-l", point], check=True)
    first.keeper.close()
    for _ in range(3):
        second.keeper.tick()
    assert os.listdir(point) == []
    assert "was unmounted" in second.said("error")[0]["error"]["message"]
    second.keeper.close()
    with second.stop:
        subprocess.run(["mount", "-t", "tmpfs", "another", point], check=True)  # for the fixture to unmount
