# SPDX-License-Identifier: Apache-2.0
"""Recognition of caches, and of what only looks like one."""

from __future__ import annotations

import shutil
from collections.abc import Iterable
from pathlib import Path

import pytest

from lockcache import FileStreamProgramCache
from lockcache.filestream.disk.layout import Layout
from lockcache.filestream.disk.permissions import is_cache


def make(root: Path, names: Iterable[str]) -> None:
    """Files, and where a name ends with a slash, folders."""
    for name in names:
        path = root / name
        (path if name.endswith("/") else path.parent).mkdir(parents=True, exist_ok=True)
        if not name.endswith("/"):
            path.touch()


@pytest.mark.parametrize(
    "names",
    [
        ["lockcache/__init__.py", "README.md"],
        ["lockcache/"],
        ["lockcache"],
        ["entries/2026/first.md", "index.md"],
        [f"{'a' * 64}.json", "lockcache/staged/", "lockcache/locks/a"],
        ["KEY/__grp__k.json", "lockcache/layout", "lockcache/policy", "lockcache/daemon.json"],
        ["tmp/"],
        [],
    ],
    ids=["a checkout", "a folder", "a file", "a site", "pyptx's", "Triton's, kept by a daemon", "tmp", "empty"],
)
def test_other_things_are_no_cache(names: list[str], cache_path: Path) -> None:
    cache_path.mkdir()
    make(cache_path, names)
    assert not is_cache(Layout(str(cache_path)))


@pytest.mark.parametrize("names", [["entries/", "tmp/"], ["entries/ab/"], ["entries/ab/", "entries/x", "other/"]])
def test_what_cuda_core_made_is_a_cache(names: list[str], cache_path: Path) -> None:
    make(cache_path, names)
    assert is_cache(Layout(str(cache_path)))


@pytest.mark.parametrize("part", ["entries", "lockcache", "lockcache/state", "tmp"])
def test_a_cache_that_lost_a_part_is_still_one(part: str, cache_path: Path) -> None:
    FileStreamProgramCache(cache_path)["k"] = b"code"
    path = cache_path / part
    shutil.rmtree(path) if path.is_dir() else path.unlink()
    assert is_cache(Layout(str(cache_path)))


def test_where_nothing_is_no_cache_is(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    assert not is_cache(Layout(str(tmp_path / "missing")))
    assert not is_cache(Layout(str(tmp_path / "file")))
