# SPDX-License-Identifier: Apache-2.0
"""Directories that may be read and not written, or belong to someone else: hits work, writes are dropped."""

from __future__ import annotations

import errno
import os
import subprocess
import tempfile
from collections.abc import Iterator
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


def test_on_a_read_only_mount_hits_work_writes_are_dropped_and_deletes_raise(
    read_only: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with pytest.raises(PermissionError, match="may be read and not written") as denied:
        FileStreamProgramCache(read_only, read_only=False)
    assert denied.value.errno == errno.EROFS
    cache = FileStreamProgramCache(read_only, max_size_bytes=100)
    for number in range(10):
        assert cache.get_entry(b"%d" % number) == ENTRY
    assert cache.get(b"missing") is None
    for delete in (lambda: cache.__delitem__(b"0"), cache.clear):
        with pytest.raises(PermissionError, match="only reads the directory") as raised:
            delete()
        assert raised.value.errno == errno.EROFS
    for key in (b"new", b"newer", b"0"):
        cache.put_entry(key, ENTRY)
        assert cache.get(key) is None, "the older value was written over, as far as this object goes"
    assert cache.get_or_compute(b"1", lambda: b"other") == ENTRY.code
    assert cache.get_or_compute(b"missing", lambda: b"code") == b"code"
    stats = cache.stats()
    assert (stats.hits, stats.entries, stats.corrupt_entries, stats.dropped_writes) == (11, 10, 0, 4)
    [dropped] = [record for record in caplog.records if "dropped" in record.message]
    assert dropped.levelname == "WARNING"
    assert ": Read-only file system" in dropped.message
    assert len(cache) == 10
    assert cache.max_size_bytes is None, "nothing is evicted, and no caller hears otherwise"


def _become(uid: int) -> None:
    os.setgroups([])
    os.setgid(uid)
    os.setuid(uid)


def _read_and_try_to_write(path: str, uid: int) -> tuple[Any, ...]:
    _become(uid)
    cache = FileStreamProgramCache(path)
    found = [cache.get_entry(b"%d" % number) == ENTRY for number in range(10)]
    again = [cache.get(b"%d" % number) == ENTRY.code for number in range(10)]
    cache[b"0"] = b"mine"
    with FileStreamProgramCache(path) as another:
        seen = another.get(b"0")
    stats = cache.stats()
    return all(found), all(again), stats.dropped_writes, seen == ENTRY.code, stats.corrupt_entries


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
    assert outcome == (True, True, 0, False, 0), "and replacing them is allowed: the directory is one's own"


def test_a_directory_of_another_user_is_refused(filled: Path) -> None:
    os.chown(filled, NOBODY, NOBODY)
    with pytest.raises(UnsafeCacheDirError, match="as its owner"):
        FileStreamProgramCache(filled)
