# SPDX-License-Identifier: Apache-2.0
"""Replacing a small file as one unit."""

from __future__ import annotations

import errno
import os

import pytest

from lockcache.filestream.disk.files import (
    naming,
    parse_json,
    read_json,
    read_small,
    replace_file,
    replacing,
    write_all,
)
from lockcache.filestream.disk.layout import Layout


@pytest.fixture
def layout(tmp_path):
    layout = Layout(str(tmp_path / "cache"))
    for path in layout.directories():
        os.mkdir(path)
    return layout


def read(path):
    with open(path, "rb") as file:
        return file.read()


def test_the_new_content_stands_under_the_path_and_nothing_is_left_staged(layout):
    for content in (b"first", b"", b"x" * 100_000):
        replace_file(layout, layout.misses, content)
        assert read(layout.misses) == content
        assert os.listdir(layout.tmp) == []


@pytest.mark.parametrize("umask", [0o000, 0o022, 0o077, 0o002])
def test_it_is_private_whatever_the_umask(layout, umask):
    before = os.umask(umask)
    try:
        replace_file(layout, layout.misses, b"x")
    finally:
        os.umask(before)
    assert os.stat(layout.misses).st_mode & 0o777 == 0o600


def test_a_failure_leaves_the_old_file_and_nothing_staged(layout, monkeypatch):
    replace_file(layout, layout.misses, b"old")
    os.mkdir(layout.state)  # a directory cannot be replaced by a file
    with pytest.raises(OSError, match="state"):
        replace_file(layout, layout.state, b"x")
    monkeypatch.setattr(os, "write", lambda fd, content: (_ for _ in ()).throw(OSError(28, "no space")))
    with pytest.raises(OSError, match="no space"):
        replace_file(layout, layout.misses, b"new")
    assert os.listdir(layout.tmp) == []
    assert read(layout.misses) == b"old"


@pytest.mark.parametrize("folder", ["own", "tmp"])
def test_a_folder_that_is_swapped_for_a_symlink_meanwhile_leads_nowhere_else(layout, monkeypatch, tmp_path, folder):
    """In a directory that a group shares. Order forced: the swap comes before the file is renamed into place."""
    os.chmod(layout.root, 0o2770)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "daemon.json").write_bytes(b"mine")

    def swap(fd):
        os.rename(getattr(layout, folder), tmp_path / "away")
        os.symlink(elsewhere, getattr(layout, folder))

    monkeypatch.setattr(os, "fsync", swap)
    replace_file(layout, layout.daemon_status, b"theirs")
    assert [(path.name, path.read_bytes()) for path in elsewhere.iterdir()] == [("daemon.json", b"mine")]
    monkeypatch.undo()
    with pytest.raises(NotADirectoryError, match="in the way"):
        replace_file(layout, layout.daemon_status, b"theirs")


def test_short_writes_are_continued(tmp_path, monkeypatch):
    write = os.write
    monkeypatch.setattr(os, "write", lambda fd, content: write(fd, bytes(content)[:3]))
    fd = os.open(tmp_path / "f", os.O_WRONLY | os.O_CREAT)
    try:
        write_all(fd, b"0123456789")
        write_all(fd, b"")
    finally:
        os.close(fd)
    assert (tmp_path / "f").read_bytes() == b"0123456789"


@pytest.mark.parametrize(
    "text", [b"[" * 4096, b'{"a":' * 800, b"[]", b"1", b"", b"{", b"\xff\xfe", b'{"a": 1' + b"0" * 5000 + b"}"]
)
def test_what_is_not_a_json_object_of_ordinary_depth_is_a_value_error(tmp_path, text):
    (tmp_path / "file").write_bytes(text)
    with pytest.raises(ValueError):  # noqa: PT011 - any message
        read_json(None, str(tmp_path / "file"), 8192)


def test_a_small_file_is_read_up_to_its_bound_and_never_through_a_symlink_or_from_a_pipe(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(b"x" * 100)
    assert read_small(None, str(path), 10) == b"x" * 10
    (tmp_path / "link").symlink_to(path)
    with pytest.raises(OSError, match="symbolic"):
        read_small(None, str(tmp_path / "link"), 10)
    os.mkfifo(tmp_path / "fifo")
    assert read_small(None, str(tmp_path / "fifo"), 10) == b""


@pytest.mark.parametrize("number", ["9" * 400, "-" + "9" * 400, "9" * 21, "1e999", "-1e999", "NaN", "Infinity"])
def test_json_with_a_number_that_nobody_can_go_on_with_is_refused(number):
    with pytest.raises(ValueError, match="number"):
        parse_json(b'{"deep": [{"n": %b}]}' % number.encode())


@pytest.mark.parametrize("number", [0, -(2**63), 2**64 - 1, 1.5, -1e300])
def test_other_numbers_are_read_as_they_are(number):
    assert parse_json(b'{"n": %b}' % str(number).encode()) == {"n": number}


@pytest.mark.parametrize(
    "error, named",
    [
        (OSError(errno.EIO, "failed"), "the file"),
        (OSError(errno.ENOSPC, "failed"), "the file"),
        (OSError(errno.ENOSPC, "failed", "a staged file"), "the file"),
        (OSError(errno.EACCES, "failed", "another file"), "another file"),
        (OSError("failed"), None),
    ],
)
def test_an_error_of_writing_names_the_file_unless_it_names_another_already(error, named):
    with pytest.raises(OSError, match="failed") as raised, naming("the file"):
        raise error
    assert (raised.value.errno, raised.value.filename) == (error.errno, named)


def test_the_error_of_the_block_is_raised_where_what_it_wrote_cannot_be_removed(layout):
    def fail() -> None:
        with replacing(layout, layout.misses):
            [staged] = os.listdir(layout.tmp)
            os.unlink(os.path.join(layout.tmp, staged))
            raise ValueError("the block failed")

    with pytest.raises(ValueError, match="the block failed"):
        fail()
    assert not os.path.exists(layout.misses)
