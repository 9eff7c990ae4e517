"""Caches of several programs in one directory, of vLLM and of torchinductor: what goes as one, and what stays."""

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
    NotACacheError,
    WrongLayoutError,
    evict_each,
    measure,
    recognise,
    triton,
    with_room,
)
from lockcache.layouts.folders import scan as scanning
from lockcache.lowlevel import Found
from tests.daemon import nested_format
from tests.daemon.directories import disk_usage, photograph
from tests.daemon.nested_format import compile_code, compile_model, fill_inductor, fill_vllm, hash_of, set_age
from tests.daemon.triton_format import key_of
from tests.unit.forked import in_child


@pytest.fixture(autouse=True)
def readers_are_quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """No test of this file reads while it evicts."""
    monkeypatch.setattr(triton, "_READING_SECONDS", 0.0)


@pytest.fixture
def opened(cache_path: Path, keep_open: Callable[[Files], Files]) -> Callable[..., Files]:
    return lambda layout, settle=0.0: keep_open(GUESTS[layout].open_files(str(cache_path), settle, lambda: None))


def entries(files: Files) -> dict[str, Found]:
    return {found.name: found for found in files.scan() if found.inode}


def held_bytes(files: Files) -> int:
    return measure(files.scan(), 0).slot.bytes


# ---- vLLM ------------------------------------------------------------------------------------------------------------


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


# ---- torchinductor ---------------------------------------------------------------------------------------------------


def test_all_caches_of_inductors_are_one_directory_with_the_bytes_of_all(
    cache_path: Path, opened: Callable[..., Files]
) -> None:
    fill_inductor(cache_path, range(3))
    files = opened("torchinductor")
    names = set(entries(files))
    assert len(names) == 3 * 4
    assert f"triton/0/{key_of(0)}" in names
    assert held_bytes(files) == disk_usage(cache_path) - disk_usage(cache_path / "lockcache")


def test_the_least_recently_used_goes_from_whichever_of_them(cache_path: Path, opened: Callable[..., Files]) -> None:
    fill_inductor(cache_path, range(3))
    files = opened("torchinductor")
    files.prepare()
    found = sorted(entries(files).values())
    assert all(files.evict(each) for each in found[:8])
    while files.finish():
        pass
    assert set(entries(files)) == {each.name for each in found[8:]}
    left = {path.name for path in cache_path.rglob("*")}
    assert not any(nested_format.inductor_hash(kind, number) in left for kind in "af" for number in range(2))
    assert [*(cache_path / "triton/0").iterdir()] == [cache_path / "triton/0" / key_of(2)]
    assert not [path for path in cache_path.glob("??/*") if nested_format.inductor_hash("c", 0) in path.name]
    assert [*(cache_path / "lockcache/condemned").iterdir()] == []


def test_all_files_of_a_code_go_together_and_not_under_inductors_lock(
    cache_path: Path, opened: Callable[..., Files]
) -> None:
    cache_path.mkdir(mode=0o700)
    place, name = compile_code(cache_path, 0).parent, nested_format.inductor_hash("c", 0)
    files = opened("torchinductor")
    [found] = entries(files).values()
    with (cache_path / "locks" / f"{name}.lock").open("r+") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with pytest.raises(OSError, match="Inductor"):
            files.evict(found)
    assert files.evict(found)
    assert [*place.iterdir()] == []
    assert (cache_path / "locks" / f"{name}.lock").exists()


def test_a_held_lock_keeps_nothing_in_other_folders(cache_path: Path, opened: Callable[..., Files]) -> None:
    cache_path.mkdir(mode=0o700)
    codes: dict[str, int] = {}
    for number in range(200):
        codes.setdefault(nested_format.inductor_hash("c", number)[1:3], number)
    same_letter = sorted(codes)[:2]
    for letters in same_letter:
        compile_code(cache_path, codes[letters])
    assert same_letter[0][0] == same_letter[1][0]
    files = opened("torchinductor")
    files.prepare()
    name = nested_format.inductor_hash("c", codes[same_letter[0]])
    with (cache_path / "locks" / f"{name}.lock").open("r+") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        done = evict_each(files, sorted(entries(files).values(), key=lambda each: each.name), lambda: False)
    assert (done.evicted.entries, done.busy_locks) == (1, {same_letter[0]})


def test_a_key_condemned_before_a_death_goes_at_the_next_start(cache_path: Path, opened: Callable[..., Files]) -> None:
    fill_inductor(cache_path, range(1))
    files = opened("torchinductor")
    files.prepare()
    assert files.evict(entries(files)[f"triton/0/{key_of(0)}"])
    after = opened("torchinductor")
    after.prepare()
    assert after.is_pending
    assert after.finish()
    assert [*(cache_path / "triton/0").iterdir()] == []


def test_what_inductor_did_not_make_is_neither_counted_nor_removed(
    cache_path: Path, opened: Callable[..., Files]
) -> None:
    fill_inductor(cache_path, range(1))
    code = compile_code(cache_path, 1)
    files = opened("torchinductor")
    files.prepare()
    before, names = held_bytes(files), set(entries(files))
    mine = ["thesis.tex", "thesis/thesis.tex", "ab/mine.txt", "zz/" + code.name, "triton/mine", "fxgraph/ab/mine"]
    for name in mine:
        (cache_path / name).parent.mkdir(exist_ok=True)
        (cache_path / name).write_bytes(b"mine" * 5000)
    assert set(entries(files)) == names
    assert held_bytes(files) < before + 20_000
    found = Found((cache_path / mine[0]).stat().st_mtime_ns, mine[0], 20_480, (cache_path / mine[0]).stat().st_ino)
    assert not files.evict(found)
    assert all(files.evict(each) for each in entries(files).values())
    assert all((cache_path / name).exists() for name in mine)


def test_code_of_inductors_among_other_files_is_not_recognised(cache_path: Path) -> None:
    cache_path.mkdir(mode=0o700)
    compile_code(cache_path, 0)
    with pytest.raises(WrongLayoutError):
        recognise(str(cache_path))
    (cache_path / "triton").mkdir()
    assert recognise(str(cache_path)) == ("torchinductor", [])


@pytest.mark.parametrize("layout, fill", [("torchinductor", fill_inductor), ("vllm", fill_vllm)])
def test_a_home_a_repository_and_a_strangers_link_are_refused(
    cache_path: Path, monkeypatch: pytest.MonkeyPatch, layout: str, fill: Callable[[Path, range], None]
) -> None:
    fill(cache_path, range(1))
    link = cache_path.with_name("link")
    link.symlink_to(cache_path)
    assert recognise(str(link)) == (layout, [])
    if os.geteuid() == 0:
        os.chown(link, 12345, 12345, follow_symlinks=False)
        refused_everywhere(link, layout)
    with monkeypatch.context() as patched:
        patched.setenv("HOME", str(cache_path))
        refused_everywhere(cache_path, layout)
    (cache_path / ".git").mkdir()
    refused_everywhere(cache_path, layout)


def refused_everywhere(root: Path, layout: str) -> None:
    """Asserts that a root is neither recognised nor opened, and that nothing was made in it."""
    for ask in (recognise, lambda path: GUESTS[layout].open_files(path, 0.0, lambda: None)):
        with pytest.raises(NotACacheError, match=layout):
            ask(str(root))
    assert not (root / "lockcache").exists()
