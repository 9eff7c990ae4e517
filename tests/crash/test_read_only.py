"""Directories that may be read and not written, or belong to someone else: hits work, writes say why they do not."""

from __future__ import annotations

import errno
import os
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from lockcache import Entry, FileStreamProgramCache, UnsafeCacheDirError
from tests.processes.crowd import run_all

pytestmark = pytest.mark.root

NOBODY = 65534
ENTRY = Entry(b"code" * 1000, {"symbols": {"f": "_Z1fv"}})


@pytest.fixture(params=[False, True], ids=["attributes", "record files"])
def filled(request: pytest.FixtureRequest) -> Iterator[Path]:
    """A filled cache directory that every user of this machine can reach."""
    # Not under tmp_path: every run of pytest that starts closes the directory above it to other users.
    with tempfile.TemporaryDirectory(prefix="lockcache-test-") as parent:
        os.chmod(parent, 0o711)
        path = Path(parent, "cache")
        with FileStreamProgramCache(path, record_files=request.param) as cache:
            for number in range(10):
                cache.put_entry(b"%d" % number, ENTRY)
        yield path


@pytest.fixture
def read_only(filled: Path) -> Iterator[Path]:
    """The same directory, bound to itself and remounted read-only."""
    subprocess.run(["mount", "--bind", filled, filled], check=True)
    subprocess.run(["mount", "-o", "remount,bind,ro", filled], check=True)
    yield filled
    subprocess.run(["umount", "-l", filled], check=True)


def test_on_a_read_only_mount_hits_work_and_writes_raise_erofs(read_only: Path) -> None:
    cache = FileStreamProgramCache(read_only, max_size_bytes=100)
    for number in range(10):
        assert cache.get_entry(b"%d" % number) == ENTRY
    assert cache.get(b"missing") is None
    for write in (
        lambda: cache.put_entry(b"0", ENTRY),
        lambda: cache.__delitem__(b"0"),
        cache.clear,
    ):
        with pytest.raises(OSError, match="Read-only file system") as raised:
            write()
        assert raised.value.errno == errno.EROFS
    assert cache.get_entry(b"0") == ENTRY
    stats = cache.stats()
    assert (stats.hits, stats.entries, stats.corrupt_entries) == (11, 10, 0)
    assert len(cache) == 10
    assert cache.max_size_bytes is None, "nothing is evicted, and nobody is told otherwise"


def test_a_directory_that_becomes_read_only_while_it_is_open_goes_on_serving(
    mount_tmpfs: Callable[..., Path],
) -> None:
    disk = mount_tmpfs("size=8m")
    cache = FileStreamProgramCache(disk / "cache", max_size_bytes=10**6)
    cache.put_entry(b"0", ENTRY)
    cache.close()
    subprocess.run(["mount", "-o", "remount,ro", disk], check=True)
    assert cache.get_entry(b"0") == ENTRY
    with pytest.raises(OSError, match="Read-only file system"):
        cache.put_entry(b"1", ENTRY)
    subprocess.run(["mount", "-o", "remount,rw", disk], check=True)
    cache.put_entry(b"1", ENTRY)
    assert cache.get_entry(b"1") == ENTRY


def _become(uid: int) -> None:
    os.setgroups([])
    os.setgid(uid)
    os.setuid(uid)


def _read_and_try_to_write(path: str, uid: int) -> tuple[Any, ...]:
    _become(uid)
    cache = FileStreamProgramCache(path)
    found = [cache.get_entry(b"%d" % number) == ENTRY for number in range(10)]
    again = [cache.get(b"%d" % number) == ENTRY.code for number in range(10)]
    try:
        cache[b"0"] = b"mine"
    except PermissionError as error:
        refused: object = error.errno
    else:
        refused = None
    return all(found), all(again), refused, cache.get(b"0") == ENTRY.code, cache.stats().corrupt_entries


def test_another_user_reads_a_directory_of_roots_and_a_write_is_a_permission_error(filled: Path) -> None:
    for folder, _, files in os.walk(filled):
        os.chmod(folder, 0o755)
        for file in files:
            os.chmod(os.path.join(folder, file), 0o644)
    [outcome] = run_all("fork", _read_and_try_to_write, [(str(filled), NOBODY)])
    assert outcome == (True, True, errno.EACCES, True, 0)


def test_files_of_another_owner_are_hits_though_their_times_may_not_be_set(filled: Path) -> None:
    # A directory of one's own that holds files of another: what `cp` as root into a user's cache leaves. O_NOATIME and
    # explicit times need ownership, "now" needs write permission: EPERM and EACCES, and a hit all the same.
    for folder, _, files in os.walk(filled):
        os.chown(folder, NOBODY, NOBODY)
        for file in files:
            path = os.path.join(folder, file)
            if "entries" in folder:
                os.chmod(path, 0o644)
            else:
                os.chown(path, NOBODY, NOBODY)
            if "records" in folder:
                os.chown(path, 0, 0)
                os.chmod(path, 0o644)
    [outcome] = run_all("fork", _read_and_try_to_write, [(str(filled), NOBODY)])
    assert outcome == (True, True, None, False, 0), "and replacing them is allowed: the directory is one's own"


def test_a_directory_of_another_user_is_refused(filled: Path) -> None:
    os.chown(filled, NOBODY, NOBODY)
    with pytest.raises(UnsafeCacheDirError, match="chown"):
        FileStreamProgramCache(filled)
