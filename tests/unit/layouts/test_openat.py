# SPDX-License-Identifier: Apache-2.0
"""Folders below a root: what is mounted there is not entered, and a walk goes from one to the next."""

from __future__ import annotations

import contextlib
import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from lockcache.layouts import openat
from lockcache.layouts.openat import Descent, folder, opened_root
from lockcache.layouts.registry import GUESTS
from tests.crash.strace import trace
from tests.daemon import nested_format, tilelang_format, triton_format, warp_format


@pytest.fixture
def fd(tmp_path: Path) -> Iterator[int]:
    (tmp_path / "top").mkdir()
    with opened_root(str(tmp_path / "top")) as opened:
        yield opened


@pytest.fixture(params=["openat2", "without"])
def with_or_without_openat2(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param == "without":
        monkeypatch.setattr(openat, "_openat2", lambda: (None, int))


@contextlib.contextmanager
def bound(source: Path, place: Path) -> Iterator[None]:
    """Mount a folder at another place of the same file system."""
    place.mkdir(parents=True, exist_ok=True)
    subprocess.run(["mount", "--bind", source, place], check=True)
    try:
        yield
    finally:
        subprocess.run(["umount", place], check=True)


class Mounted(NamedTuple):
    """A layout, and where in its directory folders are that it would enter."""

    fill: Callable[[Path], object]
    #: Below the root.
    places: tuple[str, ...]


_TRITON = triton_format.key_of(1)
_GRAPH = nested_format.inductor_hash("f", 1)
_CODE = nested_format.inductor_hash("c", 1)
_HASH = nested_format.hash_of(1)
MEMBERS = {
    "files": Mounted(lambda root: (root / "a").mkdir(parents=True), ("a/b", "c")),
    "triton": Mounted(lambda root: triton_format.compile_kernel(root, 1), (_TRITON,)),
    "torchinductor": Mounted(
        lambda root: nested_format.fill_inductor(root, range(2)),
        (f"fxgraph/{_GRAPH[1:3]}", f"fxgraph/{_GRAPH[1:3]}/{_GRAPH}/deeper", _CODE[1:3], "triton/0", "triton/1"),
    ),
    "vllm": Mounted(
        lambda root: nested_format.fill_vllm(root, range(2)),
        (f"torch_compile_cache/{_HASH}/rank_0_0/kept", "torch_compile_cache"),
    ),
    "warp": Mounted(lambda root: warp_format.compile_module(root, 1), (warp_format.name_of(1),)),
    "tilelang": Mounted(lambda root: tilelang_format.compile_kernel(root, 1), (tilelang_format.name_of(1),)),
}


def test_every_layout_that_enters_folders_is_a_member() -> None:
    assert set(MEMBERS) == set(GUESTS) - {"pyptx"}  # whose files are all in the root


@pytest.mark.root
@pytest.mark.slow
@pytest.mark.usefixtures("with_or_without_openat2")
@pytest.mark.parametrize(
    "layout, place", [(layout, place) for layout, member in MEMBERS.items() for place in member.places]
)
def test_what_is_mounted_from_the_same_file_system_is_neither_counted_nor_removed(
    tmp_path: Path, layout: str, place: str
) -> None:
    """A bind mount has the device number of what is around it: the mount itself has to be asked for."""
    root, outside = tmp_path / "cache", tmp_path / "outside"
    root.mkdir(mode=0o700)
    MEMBERS[layout].fill(root)
    # Outside there is what the layout takes for entries: a mount in any of its folders leads to some.
    MEMBERS[layout].fill(outside)
    (outside / "precious").write_bytes(bytes(100))
    source = outside / place if (outside / place).is_dir() else outside
    before = sorted(outside.rglob("*"))
    with bound(source, root / place):
        files = GUESTS[layout].open_files(str(root), 0.0, lambda: None)
        try:
            files.prepare()
            found = [each for each in files.scan() if each.inode]
            assert not [each for each in found if each.name.startswith(f"{place}/") or each.name == place]
            for each in found:
                files.evict(each)
            files.reap([each.name for each in found])
        finally:
            files.close()
        assert sorted(outside.rglob("*")) == before


@pytest.mark.root
@pytest.mark.usefixtures("with_or_without_openat2")
def test_a_mount_is_no_folder_and_neither_is_a_symlink_or_a_file(fd: int, tmp_path: Path) -> None:
    top = tmp_path / "top"
    (top / "a/b").mkdir(parents=True)
    (top / "link").symlink_to("a")
    (top / "file").touch()
    for path, is_there in {
        "a": True,
        "a/b": True,
        "link": False,
        "link/b": False,
        "file": False,
        "none/b": False,
    }.items():
        with folder(fd, path) as opened:
            assert (opened is not None) is is_there
    with bound(top / "a", top / "mounted"), folder(fd, "mounted") as opened:
        assert opened is None
    with bound(top / "a", top / "mounted"), folder(fd, "mounted/b") as opened:
        assert opened is None


@pytest.mark.parametrize("name", ["", ".", ".."])
def test_only_names_lead_down(fd: int, name: str) -> None:
    with pytest.raises(ValueError, match="not a name"), folder(fd, f"{name}/a"):
        pass


@pytest.mark.usefixtures("with_or_without_openat2")
def test_a_folder_that_may_not_be_read_is_an_error(fd: int, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(OSError, match="too long"), folder(fd, "a" * 300):
        pass


def test_a_descent_goes_from_folder_to_folder_and_never_out(fd: int, tmp_path: Path) -> None:
    top = tmp_path / "top"
    for path in ("a/b/c", "a/d", "ab/b", "e"):
        (top / path).mkdir(parents=True)
    with Descent(fd) as descent:
        for path in ("a/b/c", "a/d", "", "ab/b", "a/b", "a", "a/none", "a/b/c", "e", "a/b/c"):
            opened = descent.go(path)
            if path == "a/none":
                assert opened is None
                continue
            assert opened is not None
            assert os.path.samestat(os.fstat(opened), (top / path).stat())
        # The open folder is moved out of the tree, and so is the one above it: the next step begins at the top.
        (top / "a/b").rename(tmp_path / "elsewhere")
        opened = descent.go("a/d")
        assert opened is not None
        assert os.path.samestat(os.fstat(opened), (top / "a/d").stat())
        assert descent.go("a/b/c") is None


def test_a_descent_leaves_no_descriptor(fd: int, tmp_path: Path) -> None:
    (tmp_path / "top/a/b/c").mkdir(parents=True)
    before = len(os.listdir("/proc/self/fd"))
    with Descent(fd) as descent:
        for path in ("a/b/c", "a/x/c", "a/b", "a"):
            descent.go(path)
            assert len(os.listdir("/proc/self/fd")) <= before + 1
    assert len(os.listdir("/proc/self/fd")) == before


_SCAN = """
import sys
from lockcache.layouts.tree import TreeFiles
files = TreeFiles(sys.argv[1], 0.0)
files.prepare()
assert len([each for each in files.scan() if each.inode]) == int(sys.argv[2])
files.glance()
files.close()
"""


def make_deep(root: Path, depth: int) -> None:
    """Make folders one in another, with a folder and a file in each."""
    above = os.open(root, os.O_RDONLY)
    for _ in range(depth):
        os.mkdir("d", dir_fd=above)
        os.mkdir("e", dir_fd=above)
        os.close(os.open("e/file", os.O_WRONLY | os.O_CREAT, dir_fd=above))
        fd = os.open("d", os.O_RDONLY, dir_fd=above)
        os.write(file := os.open("file", os.O_WRONLY | os.O_CREAT, dir_fd=fd), b"content")
        os.close(file)
        os.close(above)
        above = fd
    os.close(above)


@pytest.mark.slow
def test_a_walk_takes_calls_by_the_number_of_folders_however_deep_they_are(tmp_path: Path) -> None:
    calls = {}
    for depth in (200, 800):
        root = tmp_path / str(depth)
        root.mkdir(mode=0o700)
        make_deep(root, depth)
        made = trace(_SCAN, root, str(depth), log=tmp_path / "log")
        calls[depth] = sum(call.startswith("openat") for call in made)
        subprocess.run(["rm", "-rf", root], check=True)
    assert calls[800] - calls[200] < 600 * 6
