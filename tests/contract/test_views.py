# SPDX-License-Identifier: Apache-2.0
"""view_files: the files of an entry as real files in a folder, or None where a back end has none."""

from __future__ import annotations

import copy
import os
import pickle
from pathlib import Path

import pytest

KERNEL = {"kernel.cubin": b"\x7fELF" * 30, "kernel.json": b"{}", "empty": b""}
WITHOUT = ("memory", "sqlite", "remote")


def _files(path: str) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in Path(path).iterdir()}


@pytest.fixture
def viewing(cache, back_end):
    if back_end.name in WITHOUT:
        pytest.skip("no files")
    return cache


def test_a_back_end_that_is_no_directory_has_no_views(cache, back_end):
    cache.put_files("k", KERNEL)
    assert (cache.view_files("k") is None) == (back_end.name in WITHOUT)
    assert cache.get_files("k") == KERNEL


def test_the_files_are_there_under_one_path_until_they_change(viewing):
    assert viewing.view_files("k") is None
    viewing.put_files("k", KERNEL)
    path = viewing.view_files("k")
    assert _files(path) == KERNEL
    assert viewing.view_files(b"k") == path
    viewing.put_files("k", {**KERNEL, "kernel.json": b"[]"})
    newer = viewing.view_files("k")
    assert newer != path
    assert _files(newer) == {**KERNEL, "kernel.json": b"[]"}
    assert _files(path) == KERNEL, "who holds the older one has it whole"


def test_the_same_bytes_in_other_files_are_another_view(viewing):
    viewing.put_files("k", {"a": b"xy", "b": b"z"})
    path = viewing.view_files("k")
    viewing.put_files("k", {"a": b"x", "b": b"yz"})
    other = viewing.view_files("k")
    assert other != path
    assert _files(other) == {"a": b"x", "b": b"yz"}


def test_what_is_not_made_of_files_has_no_view(viewing):
    viewing.put_files("k", KERNEL)
    path = str(viewing.view_files("k"))
    viewing["k"] = b"plain code"
    assert viewing.view_files("k") is None
    assert not os.path.exists(path), "nobody held it, so it went with its entry"
    viewing["k"] = b""
    assert viewing.view_files("k") is None


def test_a_view_goes_with_its_entry(viewing):
    viewing.put_files("k", KERNEL)
    before = viewing.stats().bytes
    path = str(viewing.view_files("k"))
    assert viewing.stats().bytes > before
    del viewing["k"]
    assert not os.path.exists(path)
    assert viewing.stats().bytes == 0
    viewing.put_files("k", KERNEL)
    path = str(viewing.view_files("k"))
    viewing.clear()
    assert not os.path.exists(path)
    assert viewing.stats().bytes == 0


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy, lambda path: pickle.loads(pickle.dumps(path))])
def test_a_copy_of_the_path_is_a_path(viewing, copied):
    viewing.put_files("k", KERNEL)
    path = copied(viewing.view_files("k"))
    assert type(path) is str
    assert _files(path) == KERNEL


def test_a_key_is_what_it_is_everywhere(viewing):
    with pytest.raises(TypeError, match="key must be"):
        viewing.view_files(5)
