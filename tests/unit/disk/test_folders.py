"""How folders and files are made: as shared as what they are put into, whole under their names, through no symlink."""

from __future__ import annotations

import errno
import os
import stat

import pytest

from lockcache.filestream.disk.descriptors import Descriptor
from lockcache.filestream.disk.folders import (
    PlantedFolderError,
    create_file,
    make_folder,
    make_private_folder,
    open_folder,
    open_or_create,
    refuse_symlink,
)

OPEN = os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW


@pytest.fixture(params=[0o700, 0o2770], ids=["private", "shared"])
def parent(request, tmp_path):
    path = tmp_path / "parent"
    path.mkdir()
    path.chmod(request.param)
    before = os.umask(0o077)
    yield path
    os.umask(before)


def mode(path):
    return stat.S_IMODE(os.lstat(path).st_mode)


def test_a_folder_is_as_shared_as_its_parent(parent):
    make_folder(f"{parent}/x")
    make_folder(f"{parent}/x")
    assert mode(parent / "x") == mode(parent)
    make_private_folder(f"{parent}/private")
    assert mode(parent / "private") & 0o777 == 0o700
    assert sorted(os.listdir(parent)) == ["private", "x"]


def _open_or_create(path):
    file = Descriptor()
    open_or_create(path, OPEN, file.open)
    return file


@pytest.mark.parametrize("make", [_open_or_create, lambda path: create_file(path, OPEN)])
def test_a_file_is_as_shared_as_its_folder(parent, make):
    make(f"{parent}/x").close()
    assert mode(parent / "x") == (0o660 if mode(parent) == 0o2770 else 0o600)
    assert os.lstat(parent / "x").st_nlink == 1


def test_a_shared_file_is_made_also_where_no_file_can_be_without_a_name(parent, monkeypatch):
    real = os.open

    def refuse(path, flags, *arguments, **options):
        if flags & os.O_TMPFILE == os.O_TMPFILE:
            raise OSError(errno.EOPNOTSUPP, "not on NFS")
        return real(path, flags, *arguments, **options)

    monkeypatch.setattr(os, "open", refuse)
    os.close(open_or_create(f"{parent}/x", OPEN))
    os.close(open_or_create(f"{parent}/x", OPEN))
    assert mode(parent / "x") == (0o660 if mode(parent) == 0o2770 else 0o600)


def test_a_file_that_is_there_is_opened_and_left_as_it_is(parent):
    (parent / "x").write_bytes(b"content")
    (parent / "x").chmod(0o640)
    fd = open_or_create(f"{parent}/x", OPEN)
    assert os.read(fd, 10) == b"content"
    assert mode(parent / "x") == 0o640
    os.close(fd)


def test_in_a_missing_folder_nothing_is_made(parent):
    for make in (lambda: open_or_create(f"{parent}/no/x", OPEN), lambda: make_folder(f"{parent}/no/x")):
        with pytest.raises(FileNotFoundError):
            make()
    assert os.listdir(parent) == []


@pytest.mark.parametrize("plant", ["file", "symlink", "dangling"])
def test_what_is_in_the_way_of_a_folder_is_left_and_refused(parent, plant, tmp_path):
    (tmp_path / "elsewhere").mkdir()
    if plant == "file":
        (parent / "x").write_bytes(b"")
    else:
        (parent / "x").symlink_to(tmp_path / ("elsewhere" if plant == "symlink" else "nowhere"))
    for make in (make_folder, make_private_folder):
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
    before = os.listdir("/proc/self/fd")
    with open_folder(str(tmp_path / "root"), "a", "b") as fd:
        assert os.path.samestat(os.fstat(fd), os.stat(tmp_path / "a" / "b"))
    for way in (("link",), ("link", "b"), ("missing",)):
        with pytest.raises(OSError, match=r"directory|symbolic"), open_folder(str(tmp_path), *way):
            pass
    assert os.listdir("/proc/self/fd") == before
