# SPDX-License-Identifier: Apache-2.0
"""torchinductor's directories, and both layouts' refusals: what goes as one, and what stays."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from lockcache.layouts import (
    GUESTS,
    Files,
    NotACacheError,
    WrongLayoutError,
    evict_each,
    recognise,
    triton,
)
from lockcache.lowlevel import Found
from tests.daemon import nested_format
from tests.daemon.directories import disk_usage
from tests.daemon.nested_format import compile_code, fill_inductor, fill_vllm
from tests.daemon.triton_format import key_of
from tests.unit.layouts.folders.found import entries, held_bytes


@pytest.fixture(autouse=True)
def readers_are_quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """No test of this file reads while it evicts."""
    monkeypatch.setattr(triton, "_READING_SECONDS", 0.0)


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
