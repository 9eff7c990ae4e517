# SPDX-License-Identifier: Apache-2.0
"""Warp's and TileLang's folders: where they are, what tells a whole one, and how it is described."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from lockcache.layouts.folders.files import FolderFiles, describe_entry
from lockcache.layouts.folders.scan import Program
from lockcache.layouts.folders.tilelang import TILELANG
from lockcache.layouts.folders.warp import WARP
from lockcache.lowlevel import Found
from tests.daemon import tilelang_format, warp_format
from tests.daemon.directories import disk_usage


@pytest.fixture
def scan(cache_path: Path, keep_open: Callable[[FolderFiles], FolderFiles]) -> Callable[[Program], dict[str, Found]]:
    def found(program: Program) -> dict[str, Found]:
        return {each.name: each for each in keep_open(FolderFiles(program, str(cache_path), 0.0)).scan()}

    return found


def test_a_module_of_warps_is_in_the_root_or_in_the_folder_of_a_version(
    cache_path: Path, scan: Callable[[Program], dict[str, Found]]
) -> None:
    warp_format.compile_module(cache_path, 0)
    warp_format.compile_module(cache_path / "1.19.0", 1)
    found = scan(WARP)
    assert set(found) == {warp_format.name_of(0), f"1.19.0/{warp_format.name_of(1)}"}
    described = describe_entry(WARP, str(cache_path), found[f"1.19.0/{warp_format.name_of(1)}"])
    assert (described.kind, described.label) == ("o", "simulate_1")


def test_tilelangs_entries_are_kernels_results_of_tuning_and_binaries(
    cache_path: Path, scan: Callable[[Program], dict[str, Found]]
) -> None:
    kernel = tilelang_format.compile_kernel(cache_path, 0)
    places = [
        kernel,
        tilelang_format.compile_kernel(cache_path, 1, kind="autotuner"),
        tilelang_format.compile_binary(cache_path, 2),
    ]
    found = scan(TILELANG)
    assert set(found) == {str(place.relative_to(cache_path)) for place in places}
    assert all(each.inode for each in found.values())
    names = [str(place.relative_to(cache_path)) for place in places]
    described = [describe_entry(TILELANG, str(cache_path), found[name]) for name in names]
    assert [(each.kind, each.arch, each.label) for each in described] == [
        ("so", "sm_90a", "simulate_0_kernel"),
        ("so", "sm_90a", "simulate_1_kernel"),
        ("cubin", None, None),
    ]


def test_describing_an_entry_does_not_count_as_a_use(
    cache_path: Path, scan: Callable[[Program], dict[str, Found]]
) -> None:
    place = tilelang_format.compile_kernel(cache_path, 0)
    for path in place.iterdir():
        os.utime(path, ns=(10**18, 10**18 + 1))  # where relatime, too, would note that it was read
    [found] = scan(TILELANG).values()
    assert describe_entry(TILELANG, str(cache_path), found).label == "simulate_0_kernel"
    assert [*scan(TILELANG).values()] == [found]


def test_bytecode_of_a_kernel_that_is_a_module_of_python_belongs_to_its_entry(
    cache_path: Path, keep_open: Callable[[FolderFiles], FolderFiles]
) -> None:
    place = tilelang_format.compile_kernel(cache_path, 0)
    bytecode = place / "__pycache__/kernel.cpython-311.pyc"
    bytecode.parent.mkdir()
    bytecode.write_bytes(b"b" * 500)
    files = keep_open(FolderFiles(TILELANG, str(cache_path), 0.0))
    [found] = files.scan()
    assert found.size_bytes == disk_usage(place)
    assert files.evict(found)
    assert not place.exists()


@pytest.mark.parametrize("missing", ["params.json", "kernel_lib.so"])
def test_a_kernel_that_lacks_a_file_is_not_an_entry(
    cache_path: Path, scan: Callable[[Program], dict[str, Found]], missing: str
) -> None:
    (tilelang_format.compile_kernel(cache_path, 0) / missing).unlink()
    [found] = scan(TILELANG).values()
    assert found.inode == 0
