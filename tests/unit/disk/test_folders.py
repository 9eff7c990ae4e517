# SPDX-License-Identifier: Apache-2.0
"""Making folders and files: as shared as what they are put into, whole under their names, through no symlink."""

from __future__ import annotations

import errno
import os
import pickle
import stat
from functools import partial

import pytest

from lockcache.filestream.disk.descriptors import Descriptor
from lockcache.filestream.disk.folders import (
    PlantedFolderError,
    make_private_folder,
    open_folder,
    refuse_symlink,
)
from lockcache.filestream.disk.layout import Layout
from lockcache.filestream.disk.reach import Reach
from tests.unit.material import descriptors, descriptors_to_begin_with

OPEN = os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW


@pytest.fixture(params=[0o700, 0o2770], ids=["private", "shared"])
def parent(request, tmp_path):
    path = tmp_path / "parent"
    path.mkdir()
    path.chmod(request.param)
    before = os.umask(0o077)
    yield path
    os.umask(before)


def create(layout):
    file = Descriptor()
    layout.reach.create(f"{layout.root}/x", OPEN, file)
    return file


def mode(path):
    return stat.S_IMODE(os.lstat(path).st_mode)


def test_a_folder_is_as_shared_as_its_parent(parent):
    Layout(str(parent)).reach.make_folder(f"{parent}/x")
    Layout(str(parent)).reach.make_folder(f"{parent}/x")
    assert mode(parent / "x") == mode(parent)
    make_private_folder(f"{parent}/private")
    assert mode(parent / "private") & 0o777 == 0o700
    assert sorted(os.listdir(parent)) == ["private", "x"]


@pytest.mark.parametrize("make", [lambda layout: layout.reach.open_or_create(f"{layout.root}/x", OPEN), create])
def test_a_file_is_as_shared_as_its_folder(parent, make):
    make(Layout(str(parent))).close()
    assert mode(parent / "x") == (0o660 if mode(parent) == 0o2770 else 0o600)
    assert os.lstat(parent / "x").st_nlink == 1


def test_a_shared_file_is_made_also_where_no_file_can_be_without_a_name(parent, monkeypatch):
    real = os.open

    def refuse(path, flags, *arguments, **options):
        if flags & os.O_TMPFILE == os.O_TMPFILE:
            raise OSError(errno.EOPNOTSUPP, "not on NFS")
        return real(path, flags, *arguments, **options)

    monkeypatch.setattr(os, "open", refuse)
    Layout(str(parent)).reach.open_or_create(f"{parent}/x", OPEN).close()
    Layout(str(parent)).reach.open_or_create(f"{parent}/x", OPEN).close()
    assert mode(parent / "x") == (0o660 if mode(parent) == 0o2770 else 0o600)


def test_a_file_that_is_there_is_opened_and_left_as_it_is(parent):
    (parent / "x").write_bytes(b"content")
    (parent / "x").chmod(0o640)
    with Layout(str(parent)).reach.open_or_create(f"{parent}/x", OPEN) as fd:
        assert os.read(fd, 10) == b"content"
    assert mode(parent / "x") == 0o640


def test_in_a_missing_folder_nothing_is_made(parent):
    layout = Layout(str(parent))
    for make in (partial(layout.reach.open_or_create, flags=OPEN), layout.reach.make_folder):
        with pytest.raises(FileNotFoundError):
            make(f"{parent}/no/x")
    assert os.listdir(parent) == []


@pytest.mark.parametrize("plant", ["file", "symlink", "dangling"])
def test_what_is_in_the_way_of_a_folder_is_left_and_refused(parent, plant, tmp_path):
    (tmp_path / "elsewhere").mkdir()
    if plant == "file":
        (parent / "x").write_bytes(b"")
    else:
        (parent / "x").symlink_to(tmp_path / ("elsewhere" if plant == "symlink" else "nowhere"))
    for make in (Layout(str(parent)).reach.make_folder, make_private_folder):
        with pytest.raises(PlantedFolderError, match="in the way"):
            make(f"{parent}/x")
    assert os.listdir(parent) == ["x"]
    assert os.listdir(tmp_path / "elsewhere") == []


def test_a_symlink_is_refused_and_nothing_else(tmp_path):
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").write_bytes(b"")
    (tmp_path / "link").symlink_to("folder")
    for name in ("folder", "file", "missing", "file/below"):
        refuse_symlink(f"{tmp_path}/{name}")
    with pytest.raises(PlantedFolderError):
        refuse_symlink(f"{tmp_path}/link")


def test_no_symlink_is_followed_on_the_way_to_an_open_folder(tmp_path):
    (tmp_path / "a" / "b").mkdir(parents=True)
    (tmp_path / "root").symlink_to(tmp_path)
    (tmp_path / "link").symlink_to("a")
    before = descriptors_to_begin_with()
    with open_folder(str(tmp_path / "root"), "a", "b") as fd:
        assert os.path.samestat(os.fstat(fd), os.stat(tmp_path / "a" / "b"))
    for way in (("link",), ("link", "b"), ("missing",)):
        with pytest.raises(OSError, match=r"directory|symbolic"), open_folder(str(tmp_path), *way):
            pass
    assert descriptors() == before


@pytest.mark.parametrize("target", ["folder", "empty folder", "nowhere"])
def test_a_new_folder_that_is_swapped_before_it_is_shared_shares_no_other(tmp_path, monkeypatch, target):
    """Order forced: the swap comes right after the call that made it."""
    parent, elsewhere = tmp_path / "parent", tmp_path / "elsewhere"
    parent.mkdir()
    parent.chmod(0o2770)
    (elsewhere / "folder" / "full").mkdir(parents=True)
    (elsewhere / "empty folder").mkdir()
    (elsewhere / "folder").chmod(0o700)
    (elsewhere / "empty folder").chmod(0o700)
    real = os.mkdir

    def make_and_swap(name, mode=0o777, *, dir_fd=None):
        real(name, mode, dir_fd=dir_fd)
        os.rename(name, "away", src_dir_fd=dir_fd, dst_dir_fd=dir_fd)
        os.symlink(elsewhere / target, name, dir_fd=dir_fd)

    monkeypatch.setattr(os, "mkdir", make_and_swap)
    with pytest.raises(PlantedFolderError):
        Layout(str(parent)).reach.make_folder(f"{parent}/x")
    assert {path.name: mode(path) for path in elsewhere.iterdir()} == {"folder": 0o700, "empty folder": 0o700}


def test_a_folder_of_somebodys_that_was_put_in_a_new_ones_place_is_not_shared(tmp_path, monkeypatch):
    parent = tmp_path / "parent"
    (parent / "mine" / "full").mkdir(parents=True)
    parent.chmod(0o2770)
    (parent / "mine").chmod(0o700)
    real = os.mkdir

    def make_and_swap(name, mode=0o777, *, dir_fd=None):
        real(name, mode, dir_fd=dir_fd)
        os.rename(name, "away", src_dir_fd=dir_fd, dst_dir_fd=dir_fd)
        os.rename("mine", name, src_dir_fd=dir_fd, dst_dir_fd=dir_fd)

    monkeypatch.setattr(os, "mkdir", make_and_swap)
    with pytest.raises(PermissionError, match="not an empty folder of your own"):
        Layout(str(parent)).reach.make_folder(f"{parent}/x")
    assert [mode(path) for path in parent.iterdir() if (path / "full").exists()] == [0o700]


def test_below_a_shared_root_errors_name_the_whole_path_and_a_private_one_costs_no_call(parent):
    layout = Layout(str(parent))
    with pytest.raises(FileNotFoundError) as missing:
        layout.reach.unlink(f"{parent}/x")
    assert missing.value.filename == f"{parent}/x"
    with Layout("/nowhere", is_shared=False).reach.at("/nowhere") as folder:
        assert (folder.fd, folder.at("x")) == (None, "/nowhere/x")


def test_a_planted_folder_error_can_be_pickled():
    error = pickle.loads(pickle.dumps(PlantedFolderError("/x")))
    assert (error.filename, str(error)) == ("/x", str(PlantedFolderError("/x")))


@pytest.fixture
def opened_folders(monkeypatch):
    """The folders that are opened, in order."""
    paths = []
    real = os.open

    def note(path, flags, *args, **kwargs):
        if flags & os.O_DIRECTORY:
            paths.append(path)
        return real(path, flags, *args, **kwargs)

    monkeypatch.setattr(os, "open", note)
    return paths


def test_on_a_network_file_system_a_folder_is_looked_at_and_its_parent_where_it_is_missing(
    tmp_path, monkeypatch, opened_folders
):
    tmp_path.chmod(0o700)
    layout = Layout(str(tmp_path))
    monkeypatch.setattr("lockcache.filestream.disk.mounts.network_kind", lambda root: "nfs")
    shard = f"{layout.entries}/ab"
    os.makedirs(shard)
    assert layout.hosts.look(shard)
    assert opened_folders == [shard]
    os.rmdir(shard)
    opened_folders.clear()
    assert not layout.hosts.look(shard)
    assert opened_folders == [shard, layout.entries, shard]
    os.symlink("/", shard)
    assert not layout.hosts.look(shard)


def test_a_folder_that_will_be_wanted_is_made_where_it_is_missing_and_its_parent_is_not_asked(
    tmp_path, monkeypatch, opened_folders
):
    """Its maker on another host is answered for by ``mkdir``, which a client sends whatever it remembers."""
    tmp_path.chmod(0o700)
    layout = Layout(str(tmp_path))
    monkeypatch.setattr("lockcache.filestream.disk.mounts.network_kind", lambda root: "nfs4")
    shard = layout.entry_shard(0xAB)
    assert not layout.hosts.look_at_shard_locked(0xAB, makes=True), "its parent is made with it, later"
    os.makedirs(layout.entries)
    for is_new in (True, False):
        opened_folders.clear()
        assert layout.hosts.look_at_shard_locked(0xAB, makes=True) == is_new
        assert os.path.isdir(shard)
        assert opened_folders == [shard]
    os.rmdir(shard)
    assert not layout.hosts.look_at_shard_locked(0xAB)
    assert not os.path.exists(shard)
    monkeypatch.setattr(os, "mkdir", _made_by_another_host(os.mkdir))
    opened_folders.clear()
    assert not layout.hosts.look_at_shard_locked(0xAB, makes=True), "what is in it has to be looked at"
    assert opened_folders == [shard, shard]


@pytest.mark.parametrize("kind, looks", [("nfs", True), ("nfs4", False)])
def test_on_nfs_3_a_missing_folder_of_records_is_looked_for_since_its_entries_have_some(
    tmp_path, monkeypatch, opened_folders, kind, looks
):
    tmp_path.chmod(0o700)
    layout = Layout(str(tmp_path))
    monkeypatch.setattr("lockcache.filestream.disk.mounts.network_kind", lambda root: kind)
    for folder in (layout.entry_shard(0xAB), layout.own):
        os.makedirs(folder)
    layout.hosts.look_at_shard_locked(0xAB)
    known = [layout.entry_shard(0xAB)]
    assert opened_folders == ([*known, layout.records, layout.own, layout.records] if looks else known)


def _made_by_another_host(mkdir):
    def make(path, *arguments):
        mkdir(path, *arguments)
        mkdir(path, *arguments)

    return make


def test_on_a_local_file_system_no_folder_is_looked_at(tmp_path, monkeypatch, opened_folders):
    monkeypatch.setattr("lockcache.filestream.disk.mounts.network_kind", lambda root: "")
    assert Layout(str(tmp_path)).hosts.look(f"{tmp_path}/entries/ab")
    assert not opened_folders


@pytest.mark.parametrize("busy", [1, 5])
def test_a_rename_waits_for_another_of_this_host_to_the_same_name(tmp_path, monkeypatch, busy):
    """Linux's NFS client answers so meanwhile; the answer is a fake, for want of another kernel that gives it."""
    rename, refused = os.rename, iter(range(busy))

    def rename_unless_busy(*arguments, **options):
        if next(refused, None) is not None:
            raise OSError(errno.ETXTBSY, "Text file busy")
        rename(*arguments, **options)

    monkeypatch.setattr(os, "rename", rename_unless_busy)
    (tmp_path / "staged").write_bytes(b"new")
    reach = Reach(str(tmp_path))
    reach.rename(str(tmp_path / "staged"), str(tmp_path / "policy"))
    assert (tmp_path / "policy").read_bytes() == b"new"
    with pytest.raises(FileNotFoundError):
        reach.rename(str(tmp_path / "staged"), str(tmp_path / "policy"))
