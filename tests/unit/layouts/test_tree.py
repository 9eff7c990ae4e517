# SPDX-License-Identifier: Apache-2.0
"""Any tree of files: what is an entry, what is never removed, and which trees are refused whole."""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
import socket
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from lockcache import FileStreamProgramCache
from lockcache.errors import LockTimeoutError, UnsafeCacheDirError
from lockcache.filestream.accounting.scan import Found
from lockcache.layouts import first_room
from lockcache.layouts.openat import opened_root
from lockcache.layouts.recognition import refuse_unless_cache
from lockcache.layouts.tree import TreeFiles
from lockcache.layouts.tree_scan import NotACacheError
from tests.daemon.directories import disk_usage, photograph
from tests.daemon.triton_format import compile_kernel


@pytest.fixture
def root(tmp_path: Path) -> Path:
    path = tmp_path / "cache"
    path.mkdir(mode=0o700)
    return path


@pytest.fixture
def open_files(root: Path, keep_open: Callable[[TreeFiles], TreeFiles]) -> Callable[..., TreeFiles]:
    return lambda settle_seconds=0.0: keep_open(TreeFiles(str(root), settle_seconds))


def write(path: Path, size_bytes: int = 100) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(bytes(size_bytes))
    return path


def found(files: TreeFiles) -> dict[str, Found]:
    return {each.name: each for each in files.scan()}


# ---- what is an entry ------------------------------------------------------------------------------------------------


def test_each_file_is_an_entry_at_any_depth(root: Path, open_files: Callable[..., TreeFiles]) -> None:
    for name in ("a.cubin", "ab/cd/e", ".hidden/f"):
        write(root / name)
    seen = found(open_files())
    assert set(seen) == {"a.cubin", "ab/cd/e", ".hidden/f"}
    assert all(each.inode and each.size_bytes == disk_usage(root / name) for name, each in seen.items())


def test_its_last_use_is_the_newer_of_its_times(root: Path, open_files: Callable[..., TreeFiles]) -> None:
    os.utime(write(root / "read"), ns=(8 * 10**18 // 5, 10**18))
    os.utime(write(root / "written"), ns=(10**18, 10**18 + 5))
    seen = found(open_files())
    assert (seen["read"].last_use_ns, seen["written"].last_use_ns) == (8 * 10**18 // 5, 10**18 + 5)


def test_the_two_files_of_jax_are_one_entry_and_go_together(root: Path, open_files: Callable[..., TreeFiles]) -> None:
    write(root / "jit_f-0a-cache", 100)
    os.utime(write(root / "jit_f-0a-atime", 8), ns=(10**18, 10**18))
    files = open_files()
    (entry,) = found(files).values()
    assert (entry.name, entry.size_bytes) == ("jit_f-0a-cache", sum(map(disk_usage, root.glob("jit*"))))
    assert files.evict(entry)
    assert not list(root.glob("jit*"))


def test_a_pair_goes_under_jaxs_own_lock(root: Path, open_files: Callable[..., TreeFiles]) -> None:
    write(root / "k-cache")
    write(root / "k-atime", 8)
    files = open_files()
    with (root / ".lockfile").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        (entry,) = (each for each in found(files).values() if each.inode)
        with pytest.raises(LockTimeoutError, match="JAX"):
            files.evict(entry)
        assert (root / "k-cache").exists()
    assert files.evict(entry)


def test_what_is_planted_in_the_place_of_jaxs_lock_is_not_opened(
    root: Path, open_files: Callable[..., TreeFiles], tmp_path: Path
) -> None:
    for plant in (os.mkfifo, lambda lock: os.symlink(tmp_path / "elsewhere", lock)):
        for suffix in ("-cache", "-atime"):
            (root / f"k{suffix}").write_text("x")
        plant(root / ".lockfile")
        (found,) = [each for each in open_files().scan() if each.inode]
        assert open_files().evict(found)
        (root / ".lockfile").unlink()
    assert not (tmp_path / "elsewhere").exists()


def test_lock_files_and_empty_files_are_no_entries(root: Path, open_files: Callable[..., TreeFiles]) -> None:
    for name in (".lockfile", "locks/x.lock", "lock"):
        write(root / name, 5)
    write(root / "mark", 0)
    files = open_files()
    assert {each.inode for each in found(files).values()} == {0}
    files.reap(list(found(files)))
    assert len(found(files)) == 4


def test_what_is_no_regular_file_is_passed_over(
    root: Path, open_files: Callable[..., TreeFiles], tmp_path: Path
) -> None:
    outside = write(tmp_path / "outside" / "mine")
    (root / "link").symlink_to(outside)
    (root / "folder").symlink_to(outside.parent)
    os.mkfifo(root / "fifo")
    with socket.socket(socket.AF_UNIX) as listening:
        here = os.getcwd()
        os.chdir(root)
        try:
            listening.bind("s")
        finally:
            os.chdir(here)
    assert found(open_files()) == {}


def test_folders_of_triton_go_as_one_or_not_at_all(root: Path, open_files: Callable[..., TreeFiles]) -> None:
    compile_kernel(root / "triton", 0)
    write(root / "fx" / "graph")
    assert set(found(open_files())) == {"fx/graph"}


def test_our_own_folder_is_no_part_of_the_tree(root: Path, open_files: Callable[..., TreeFiles]) -> None:
    files = open_files()
    assert (root / "lockcache" / "layout").read_text() == "files\n"
    assert found(files) == {}


# ---- what may not go -------------------------------------------------------------------------------------------------


def test_a_file_that_may_still_be_written_stays(
    root: Path, open_files: Callable[..., TreeFiles], monkeypatch: pytest.MonkeyPatch
) -> None:
    os.utime(write(root / "a"), (10**9, 10**9))  # as a copy that keeps times and is still under way
    files = open_files(60.0)
    assert not files.evict(found(files)["a"])
    now = time.time
    monkeypatch.setattr(time, "time", lambda: now() + 61)
    assert files.evict(found(files)["a"])


def test_a_file_that_was_used_or_replaced_since_it_was_chosen_stays(
    root: Path, open_files: Callable[..., TreeFiles]
) -> None:
    for name in ("used", "replaced"):
        os.utime(write(root / name), (10**9, 10**9))
    files = open_files()
    seen = found(files)
    os.utime(root / "used")
    os.utime(write(root / "new"), (10**9, 10**9))
    (root / "new").rename(root / "replaced")
    assert not files.evict(seen["used"])
    assert not files.evict(seen["replaced"])


@pytest.mark.parametrize("depth", [1, 2])
def test_a_folder_that_becomes_a_symlink_between_look_and_removal_is_not_followed(
    root: Path, open_files: Callable[..., TreeFiles], tmp_path: Path, depth: int
) -> None:
    write(root / "a" / "b" / "c")
    files = open_files()
    entry = found(files)["a/b/c"]
    swapped = root / "a" if depth == 1 else root / "a" / "b"
    shutil.move(swapped, tmp_path / "elsewhere")
    swapped.symlink_to(tmp_path / "elsewhere")
    before = photograph(tmp_path / "elsewhere")
    assert not files.evict(entry)
    assert photograph(tmp_path / "elsewhere") == before


@pytest.mark.root
def test_another_file_system_below_is_not_entered(
    root: Path, open_files: Callable[..., TreeFiles], mount_tmpfs: Callable[[str], Path]
) -> None:
    mounted = mount_tmpfs("size=1m")
    write(mounted / "theirs")
    below = root / mounted.name
    below.mkdir()
    assert os.system(f"mount --bind {mounted} {below}") == 0
    try:
        files = open_files()
        assert found(files) == {}
        assert not files.evict(Found(0, f"{below.name}/theirs", 100, 1))
    finally:
        assert os.system(f"umount {below}") == 0


# ---- trees that are refused ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [".git", "deep/down/.git", ".ssh", "a/.hg"])
def test_a_tree_with_what_no_cache_holds_is_refused_before_anything_goes(
    root: Path, open_files: Callable[..., TreeFiles], name: str
) -> None:
    write(root / "a.cubin")
    (root / name).mkdir(parents=True)
    with pytest.raises(NotACacheError, match="not a cache"):
        list(open_files().scan())


@pytest.mark.parametrize("name", ["a.nbi", "__pycache__/kernel.1.nbc"])
def test_numbas_files_which_go_together_are_refused(
    root: Path, open_files: Callable[..., TreeFiles], name: str
) -> None:
    write(root / name)
    with pytest.raises(NotACacheError, match="numba"):
        list(open_files().scan())


def test_a_cache_of_lockcaches_own_below_is_refused(root: Path, open_files: Callable[..., TreeFiles]) -> None:
    FileStreamProgramCache(root / "kernels")["k"] = b"v"
    with pytest.raises(NotACacheError, match="lockcache's"):
        list(open_files().scan())


@pytest.mark.parametrize(
    "path",
    ["/", "/etc", "/etc/ssl", "/home", "/home/somebody", "/usr/lib/python3", "/tmp", "/var", "/dev/shm", "/root"],
)
def test_the_systems_directories_and_homes_are_refused(path: str) -> None:
    with pytest.raises(NotACacheError, match=path):
        refuse_unless_cache(path)


@pytest.mark.parametrize("below", [".", "..", ".cache", ".config"])
def test_where_somebody_lives_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, below: str) -> None:
    home = tmp_path / "people" / "me"
    (home / ".cache").mkdir(parents=True)
    for name in ("XDG_CACHE_HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_STATE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(home))
    with pytest.raises(NotACacheError):
        refuse_unless_cache(os.path.normpath(home / below))
    refuse_unless_cache(str(home / ".cache" / "cupy"))


def test_a_symlink_to_a_home_is_refused_as_the_home_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "me").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "me")
    monkeypatch.setenv("HOME", str(tmp_path / "me"))
    with pytest.raises(NotACacheError):
        refuse_unless_cache(str(tmp_path / "link"))


def test_a_repository_is_refused(root: Path) -> None:
    (root / ".git").write_text("gitdir: elsewhere")  # as a worktree has it
    with pytest.raises(NotACacheError, match=r"\.git"):
        refuse_unless_cache(str(root))


def test_a_tree_that_others_may_write_to_is_refused(root: Path) -> None:
    root.chmod(0o777)
    with pytest.raises(UnsafeCacheDirError, match="chmod"):
        TreeFiles(str(root), 0.0)


def test_a_glance_sees_what_changes_in_any_folder_that_changed_lately(
    root: Path, open_files: Callable[..., TreeFiles]
) -> None:
    write(root / "a" / "b" / "c")
    files = open_files()
    found(files)
    before = files.glance()
    assert files.glance() == before
    write(root / "a" / "b" / "d")
    assert files.glance() != before


def test_on_a_full_disk_no_folder_goes_by_way_of_a_link_and_folders_of_other_programs_stay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root, outside = tmp_path / "cache", tmp_path / "outside"
    (outside / "ab").mkdir(parents=True)
    (root / "entries" / "ab").mkdir(parents=True)
    with opened_root(str(root)) as fd:
        (root / "entries").rename(root / "moved")
        (root / "entries").symlink_to(outside)
        first_room._remove_empty(fd, "entries/ab")
        assert (outside / "ab").is_dir()
        first_room._remove_empty(fd, "moved/ab")
        assert not (root / "moved" / "ab").exists()
    (root / "entries").unlink()
    (root / "a").mkdir()
    (root / "a" / "file").write_bytes(bytes(5000))
    calls = iter([OSError(errno.ENOSPC, "full")])

    def work() -> None:
        for error in calls:
            raise error

    first_room.with_room(str(root), "files", work)
    assert list((root / "a").iterdir()) == []
