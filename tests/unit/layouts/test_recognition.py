# SPDX-License-Identifier: Apache-2.0
"""Whose directory it is: known by what is in it, and not guessed where that is unclear."""

from __future__ import annotations

from pathlib import Path

import pytest

from lockcache import FileStreamProgramCache
from lockcache.integrations.pyptx import CubinCache
from lockcache.layouts.recognition import WrongLayoutError, recognise
from lockcache.layouts.tree import TreeFiles
from lockcache.layouts.triton import TritonFiles
from tests.daemon import tilelang_format
from tests.daemon.directories import fill as fill_as_stranger
from tests.daemon.pyptx_crowd import entry_of, store
from tests.daemon.triton_format import fill, key_of, put
from tests.daemon.warp_format import compile_module


def test_each_layout_is_recognised_by_its_own_files(tmp_path: Path) -> None:
    FileStreamProgramCache(tmp_path / "ours")["k"] = b"v"
    fill_as_stranger(tmp_path / "cuda", 3, 10)
    store(tmp_path / "pyptx", range(1))
    fill(tmp_path / "triton", range(1))
    compile_module(tmp_path / "warp", 0)
    compile_module(tmp_path / "warp-of-a-version/1.19.0", 0)
    tilelang_format.compile_kernel(tmp_path / "tilelang", 0)
    tilelang_format.begin(tmp_path / "tilelang-was-only-imported")
    (tmp_path / "empty").mkdir()
    chosen = {path.name: recognise(str(path)) for path in (*tmp_path.iterdir(), tmp_path / "missing")}
    assert chosen == {
        "ours": ("lockcache", []),
        "cuda": ("cuda.core", []),
        "pyptx": ("pyptx", []),
        "triton": ("triton", []),
        "warp": ("warp", []),
        "warp-of-a-version": ("warp", []),
        "tilelang": ("tilelang", []),
        "tilelang-was-only-imported": ("tilelang", []),
        "empty": ("lockcache", []),
        "missing": ("lockcache", []),
    }


@pytest.mark.parametrize("part", ["entries", "entries/ab", "lockcache", "tmp"])
def test_a_part_of_a_cache_is_refused_with_the_name_of_the_whole(cache_path: Path, part: str) -> None:
    FileStreamProgramCache(cache_path).close()
    with pytest.raises(WrongLayoutError, match=f"is a part of the cache in {cache_path}: use that directory"):
        recognise(str(cache_path / part))
    assert recognise(str(cache_path / "below"))[0] == "lockcache"


def test_cuda_cores_directory_is_still_cuda_cores_after_a_daemon_kept_it(cache_path: Path) -> None:
    fill_as_stranger(cache_path, 3, 10)
    FileStreamProgramCache(cache_path).close()
    assert recognise(str(cache_path))[0] == "cuda.core"


def test_a_cache_of_ours_that_is_empty_is_ours_whatever_lies_beside_it(cache_path: Path) -> None:
    FileStreamProgramCache(cache_path).close()
    (cache_path / "README").write_text("mine")
    assert recognise(str(cache_path)) == ("lockcache", [])


def test_keys_in_the_names_of_older_tritons_are_recognised(cache_path: Path) -> None:
    for key in ("0a" * 32, "Ab-_" * 10 + "x1z"):
        (cache_path / key).mkdir(parents=True)
        (cache_path / key / "__grp__k.json").write_text("{}")
        assert recognise(str(cache_path))[0] == "triton"
        (cache_path / key / "__grp__k.json").unlink()


def test_a_cache_from_which_all_was_evicted_is_still_tritons(cache_path: Path) -> None:
    files = TritonFiles(str(cache_path), 0.0)
    files.prepare()
    files.close()
    assert recognise(str(cache_path))[0] == "triton"


def test_one_that_was_kept_as_files_is_not_taken_for_anything(cache_path: Path) -> None:
    files = TreeFiles(str(cache_path), 0.0)
    files.prepare()
    files.close()
    with pytest.raises(WrongLayoutError, match="--layout files"):
        recognise(str(cache_path))


@pytest.mark.parametrize("name", ["thesis.tex", ".bashrc", "jit_f-0a-cache", "kernel.cubin"])
def test_files_that_are_of_no_layout_are_not_guessed_at(cache_path: Path, name: str) -> None:
    cache_path.mkdir()
    (cache_path / name).write_text("mine")
    with pytest.raises(WrongLayoutError, match=name):
        recognise(str(cache_path))


def test_a_folder_with_a_keys_name_alone_is_no_sign_of_triton(cache_path: Path) -> None:
    put(cache_path, 0, "thesis.tex", "mine")
    with pytest.raises(WrongLayoutError, match=key_of(0)):
        recognise(str(cache_path))


def test_two_guests_in_one_directory_are_not_chosen_between(cache_path: Path) -> None:
    fill(cache_path, range(1))
    cache = CubinCache(cache_path)
    cache.put(entry_of(0))
    with pytest.raises(WrongLayoutError, match="pyptx and of triton"):
        recognise(str(cache_path))


def test_entries_beside_guests_are_kept_and_the_guests_named(cache_path: Path) -> None:
    FileStreamProgramCache(cache_path)["k"] = b"v"
    fill(cache_path, range(1))
    assert recognise(str(cache_path)) == ("lockcache", ["triton"])


def test_what_a_file_system_puts_there_means_nothing(cache_path: Path) -> None:
    (cache_path / "lost+found").mkdir(parents=True)
    (cache_path / ".nfs000001").write_text("")
    assert recognise(str(cache_path))[0] == "lockcache"


@pytest.mark.parametrize("is_made", [False, True])
def test_an_empty_directory_in_the_usual_place_of_a_program_is_that_programs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_made: bool
) -> None:
    for name in ("TRITON_CACHE_DIR", "PYPTX_CACHE_DIR", "TILELANG_CACHE_DIR", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    usual = {
        "triton": tmp_path / ".triton/cache",
        "pyptx": tmp_path / ".cache/pyptx",
        "tilelang": tmp_path / ".tilelang/cache",
        "lockcache": tmp_path / "x",
    }
    for layout, path in usual.items():
        if is_made:
            path.mkdir(parents=True)
        assert recognise(str(path)) == (layout, [])
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path / "elsewhere"))
    assert recognise(str(tmp_path / "elsewhere")) == ("triton", [])


def test_nothing_is_read_behind_a_symlink_while_a_directory_is_recognised(cache_path: Path, tmp_path: Path) -> None:
    fill_as_stranger(tmp_path / "outside", 3, 10)
    (tmp_path / "outside" / "layout").write_text("triton")
    cache_path.mkdir()
    (cache_path / "lockcache").symlink_to(tmp_path / "outside")
    (cache_path / "entries").symlink_to(tmp_path / "outside" / "entries")
    assert recognise(str(cache_path)) == ("lockcache", [])
