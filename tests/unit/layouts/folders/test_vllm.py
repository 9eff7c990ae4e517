# SPDX-License-Identifier: Apache-2.0
"""vLLM's directories: what goes as one, and what stays."""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from lockcache.layouts import (
    GUESTS,
    Files,
    WrongLayoutError,
    evict_each,
    recognise,
    with_room,
)
from lockcache.layouts.folders import scan as scanning
from lockcache.lowlevel import Found
from tests.daemon.directories import disk_usage, photograph
from tests.daemon.nested_format import compile_code, compile_model, fill_vllm, hash_of, set_age
from tests.unit.forked import in_child
from tests.unit.layouts.folders.found import entries, held_bytes


def test_a_models_hash_is_one_entry_with_all_that_is_in_it(cache_path: Path, opened: Callable[..., Files]) -> None:
    fill_vllm(cache_path, range(2))
    used = next((cache_path / "torch_compile_cache" / hash_of(0)).rglob("__grp__k.json"))
    os.utime(used, ns=(1_900_000_000 * 10**9 - 10**18, 10**17))
    found = entries(opened("vllm"))
    assert set(found) == {f"torch_compile_cache/{hash_of(number)}" for number in range(2)}
    assert all(each.size_bytes == disk_usage(cache_path / name) for name, each in found.items())


def test_its_last_use_is_that_of_whatever_is_in_it(cache_path: Path, opened: Callable[..., Files]) -> None:
    fill_vllm(cache_path, range(2))
    place = cache_path / "torch_compile_cache" / hash_of(0)
    used = next(place.rglob("*.so"))
    os.utime(used, ns=(1_700_000_000 * 10**9, 10**18))
    set_age(cache_path / "torch_compile_cache" / hash_of(1), -10_000)
    os.utime(used)
    assert min(entries(opened("vllm")).values()).name.endswith(hash_of(1))


@pytest.mark.parametrize("place", ["", "torch_compile_cache", "torch_compile_cache/torch_aot_compile"])
def test_a_hash_goes_whole_from_wherever_vllm_has_it(
    cache_path: Path, opened: Callable[..., Files], place: str, tmp_path: Path
) -> None:
    cache_path.mkdir(mode=0o700)
    (cache_path / place).mkdir(parents=True, exist_ok=True)
    compile_model(tmp_path / "made", 0).rename(cache_path / place / hash_of(0))
    set_age(cache_path / place / hash_of(0), 0)
    files = opened("vllm")
    files.prepare()
    [found] = entries(files).values()
    assert files.evict(found)
    assert not (cache_path / place / hash_of(0)).exists()
    assert [*(cache_path / "lockcache/condemned").iterdir()] == []


@pytest.mark.parametrize("change", ["used", "written", "deep"])
def test_a_hash_that_was_used_since_it_was_chosen_stays(
    cache_path: Path, opened: Callable[..., Files], change: str
) -> None:
    fill_vllm(cache_path, range(1))
    files = opened("vllm")
    [found] = entries(files).values()
    place = cache_path / found.name
    if change == "used":
        os.utime(next(place.rglob("*.so")))
    elif change == "written":
        (place / "rank_0_0/backbone/vllm_compile_cache.py").write_text("{}")
    else:
        compile_code(place / "rank_1_0/inductor_cache", 99)
    assert not files.evict(found)
    assert place.exists()


def test_a_hash_that_was_used_lately_or_is_being_compiled_stays(cache_path: Path, opened: Callable[..., Files]) -> None:
    fill_vllm(cache_path, range(1))
    compile_model(cache_path, 1, is_finished=False)
    half = compile_model(cache_path, 2, is_finished=False)
    (half / "rank_0_0/backbone/vllm_compile_cache.py").write_text("{}")  # the other rank compiles
    set_age(half, 2)
    lately, files = opened("vllm", 60.0), opened("vllm")
    assert not any(lately.evict(found) for found in entries(lately).values())
    assert [files.evict(found) for found in sorted(entries(files).values())] == [True, False, False]


def test_a_hash_in_which_a_lock_is_held_stays(cache_path: Path, opened: Callable[..., Files]) -> None:
    fill_vllm(cache_path, range(1))
    files = opened("vllm")
    [found] = entries(files).values()
    with next((cache_path / found.name).rglob("*.lock")).open("r+") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert not files.evict(found)
    assert files.evict(found)


def test_on_a_full_disk_the_oldest_hash_goes_and_none_that_is_compiled_or_locked(cache_path: Path) -> None:
    fill_vllm(cache_path, range(1, 4))
    set_age(compile_model(cache_path, 0, is_finished=False), 0)
    lock_path = next((cache_path / "torch_compile_cache" / hash_of(1)).rglob("*.lock"))
    full = [OSError(errno.ENOSPC, "full")]

    def work() -> None:
        if full:
            raise full.pop()

    with lock_path.open("r+") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with_room(str(cache_path), "vllm", work)
        left = {each.name for each in (cache_path / "torch_compile_cache").iterdir()}
        assert left == {hash_of(number) for number in (0, 1, 3)}
    full.append(OSError(errno.ENOSPC, "full"))
    with pytest.raises(OSError, match="full"):
        with_room(str(cache_path), "vllm", work, settle_seconds=60.0)


def test_a_lock_next_to_the_ranks_counts_too(cache_path: Path, opened: Callable[..., Files]) -> None:
    fill_vllm(cache_path, range(1))
    files = opened("vllm")
    lock_path = cache_path / "torch_compile_cache" / hash_of(0) / "x.lock"
    lock_path.touch()
    [found] = entries(files).values()
    with lock_path.open("r+") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert not files.evict(found)
    assert files.evict(found)


def let_in(path: Path) -> None:
    """Let every user into the folders above."""
    for parent in [*path.parents][:-2]:
        parent.chmod(parent.stat().st_mode | 0o011)


def be_nobody() -> None:
    os.setgroups([])
    os.setgid(65534)
    os.setuid(65534)


def own_by_nobody(path: Path, *but: Path) -> None:
    for each in {path, *path.rglob("*")} - set(but):
        os.chown(each, 65534, 65534)


@pytest.mark.root
@pytest.mark.parametrize("mode", [0o644, 0o600])
def test_a_held_lock_of_another_users_is_held(cache_path: Path, mode: int) -> None:
    fill_vllm(cache_path, range(1))
    lock_path = next(cache_path.rglob("*.lock"))
    lock_path.chmod(mode)
    own_by_nobody(cache_path, lock_path)
    let_in(cache_path)

    def evict_all() -> list[bool]:
        be_nobody()
        files = GUESTS["vllm"].open_files(str(cache_path), 0.0, lambda: None)
        files.prepare()
        return [files.evict(found) for found in entries(files).values()]

    with lock_path.open("r+") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert in_child(evict_all) == [False]
    assert in_child(evict_all) == [mode == 0o644]


@pytest.mark.root
def test_a_folder_that_may_not_be_changed_keeps_nothing_else_and_no_start(cache_path: Path) -> None:
    fill_vllm(cache_path, range(3))
    of_root = cache_path / "torch_compile_cache" / hash_of(0) / "rank_0_0/inductor_cache"
    own_by_nobody(cache_path, of_root)
    of_root.chmod(0o755)
    let_in(cache_path)

    def evict_all() -> tuple[int, bool]:
        be_nobody()
        files = GUESTS["vllm"].open_files(str(cache_path), 0.0, lambda: None)
        files.prepare()
        done = evict_each(files, sorted(entries(files).values()), lambda: False)
        return done.evicted.entries, done.failure is not None

    assert in_child(evict_all) == (2, True)
    assert in_child(evict_all) == (0, False)
    condemned = cache_path / "lockcache/condemned"
    left = [*condemned.iterdir()]
    assert left
    assert all(each.stat().st_uid in (0, 65534) for each in left)


def test_two_that_remove_what_was_condemned_do_not_trouble_each_other(
    cache_path: Path, opened: Callable[..., Files]
) -> None:
    fill_vllm(cache_path, range(20))
    files = opened("vllm")
    files.prepare()
    second = opened("vllm")
    with ThreadPoolExecutor(1) as pool:
        done = pool.submit(evict_each, files, [*entries(files).values()], lambda: False)
        while not done.done():
            second.prepare()
    assert (done.result().evicted.entries, done.result().failure) == (20, None)
    assert [*(cache_path / "lockcache/condemned").iterdir()] == []


def test_a_file_with_two_names_counts_once(cache_path: Path, opened: Callable[..., Files]) -> None:
    fill_vllm(cache_path, range(1))
    shutil.copytree(
        cache_path / "torch_compile_cache" / hash_of(0),
        cache_path / "torch_compile_cache" / hash_of(1),
        copy_function=os.link,
    )
    files = opened("vllm")
    usage = disk_usage_once(cache_path / "torch_compile_cache")
    assert held_bytes(files) == usage - (cache_path / "torch_compile_cache").stat().st_blocks * 512
    assert all(files.evict(found) for found in entries(files).values())
    assert entries(files) == {}


def disk_usage_once(root: Path) -> int:
    """Returns what ``du`` says, which counts a file with several names once."""
    return sum({each.lstat().st_ino: each.lstat().st_blocks * 512 for each in [root, *root.rglob("*")]}.values())


def test_what_is_not_vllms_is_neither_counted_nor_removed(
    cache_path: Path, opened: Callable[..., Files], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    outside = compile_model(tmp_path / "outside", 0)
    home = cache_path / "torch_compile_cache"
    home.mkdir(mode=0o700, parents=True)
    (home / hash_of(0)).symlink_to(outside)
    (home / hash_of(1) / "photos").mkdir(parents=True)
    (cache_path / "modelinfos").mkdir()
    monkeypatch.setattr(scanning, "_DEEPEST", 4)
    (compile_model(cache_path, 2) / "a/b/c/d/e").mkdir(parents=True)
    before = photograph(home), photograph(tmp_path / "outside")
    files = opened("vllm")
    assert [*files.scan()] == []
    for number in range(3):
        assert not files.evict(Found(0, f"torch_compile_cache/{hash_of(number)}", 0, 1))
    assert (photograph(home), photograph(tmp_path / "outside")) == before


@pytest.mark.parametrize("name", ["1764267800", "a" * 64])
def test_checkpoints_by_their_time_and_rank_are_not_vllms(
    cache_path: Path, opened: Callable[..., Files], name: str
) -> None:
    (cache_path / name / "rank_0").mkdir(parents=True)
    cache_path.chmod(0o700)
    (cache_path / name / "rank_0/model").write_bytes(b"weights")
    with pytest.raises(WrongLayoutError):
        recognise(str(cache_path))
    assert [*opened("vllm").scan()] == []


def test_a_program_that_is_compiled_ahead_is_one_in_its_folder_alone(
    cache_path: Path, opened: Callable[..., Files]
) -> None:
    name = f"torch_aot_compile/{'a' * 64}"
    (cache_path / name / "rank_0_0").mkdir(parents=True)
    cache_path.chmod(0o700)
    (cache_path / name / "rank_0_0/model").write_bytes(b"program")
    assert set(entries(opened("vllm"))) == {name}


@pytest.mark.parametrize("name", [".git", "rank_0_0/backbone/.ssh"])
def test_a_hash_in_which_somebody_works_stays(cache_path: Path, opened: Callable[..., Files], name: str) -> None:
    fill_vllm(cache_path, range(1))
    files = opened("vllm")
    [found] = entries(files).values()
    (cache_path / found.name / name).mkdir()
    assert not files.evict(found)
    assert [*files.scan()] == []


def test_a_hash_that_leads_out_of_it_loses_the_link_alone(
    cache_path: Path, opened: Callable[..., Files], tmp_path: Path
) -> None:
    fill_vllm(cache_path, range(1))
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine/file").write_text("mine")
    (cache_path / "torch_compile_cache" / hash_of(0) / "rank_0_0/link").symlink_to(tmp_path / "mine")
    set_age(cache_path / "torch_compile_cache" / hash_of(0), 0)
    files = opened("vllm")
    files.prepare()
    assert all(files.evict(found) for found in entries(files).values())
    assert (tmp_path / "mine/file").read_text() == "mine"


def test_what_a_death_left_of_a_hash_goes_at_the_next_start(cache_path: Path, opened: Callable[..., Files]) -> None:
    fill_vllm(cache_path, range(1))
    files = opened("vllm")
    files.prepare()
    condemned = cache_path / "lockcache/condemned"
    (cache_path / "torch_compile_cache" / hash_of(0)).rename(condemned / "half")
    shutil.rmtree(condemned / "half/rank_0_0/backbone")
    opened("vllm").prepare()
    assert [*condemned.iterdir()] == []
