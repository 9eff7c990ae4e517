# SPDX-License-Identifier: Apache-2.0
"""Looks at a seed's bundle: one process of a host opens it, once a minute."""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import resource
from pathlib import Path
from typing import Any

import pytest

from lockcache import FileStreamProgramCache
from lockcache.filestream import seed_marks
from lockcache.filestream.directory import CacheDirectory
from lockcache.filestream.disk.layout import Layout
from lockcache.filestream.seeding import attaching, copying
from lockcache.filestream.seeding.attaching import seed_lock
from tests.unit.bundle.bundles import bundle_of, write
from tests.unit.filestream.seeds import KEYS, OLDER, make_due
from tests.unit.forked import in_child


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> dict[str, int]:
    """Counts how often a bundle was opened, and copied."""
    counts = {"opened": 0, "copied": 0}
    real_opened, real_copy = attaching.opened, copying._copy

    def opened(*arguments: object) -> object:
        counts["opened"] += 1
        return real_opened(*arguments)

    def copy(*arguments: object) -> object:
        counts["copied"] += 1
        return real_copy(*arguments)

    monkeypatch.setattr(attaching, "opened", opened)
    monkeypatch.setattr(copying, "_copy", copy)
    return counts


def _open_often(path: Path, bundle: Path, cap: int | None = None) -> None:
    for _ in range(5):
        FileStreamProgramCache(path, seed=bundle, max_size_bytes=cap).close()


@pytest.mark.parametrize("what", ["as it should be", "too large", "unsafe", "a directory", "a full disk"])
def test_a_bundle_is_opened_and_copied_once_a_minute(
    cache_path: Path,
    bundle: Path,
    calls: dict[str, int],
    what: str,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, "lockcache")
    if what == "unsafe":
        bundle.chmod(0o666)
    elif what == "a directory":
        bundle.unlink()
        bundle.mkdir()
    elif what == "a full disk":
        monkeypatch.setattr(seed_marks, "write_all", lambda *_: os.write(os.open("/dev/full", os.O_WRONLY), b"x"))
    _open_often(cache_path, bundle, 1000 if what == "too large" else None)
    assert calls["opened"] == 1
    assert calls["copied"] == (what in ("as it should be", "a full disk"))
    assert ("was refused less than a minute ago" in caplog.text) == (what != "as it should be")
    make_due(cache_path)
    _open_often(cache_path, bundle)
    assert calls["opened"] == 2


def test_with_few_descriptors_it_is_copied_once(cache_path: Path, bundle: Path, calls: dict[str, int]) -> None:
    FileStreamProgramCache(cache_path).close()

    def open_with_few() -> dict[str, int]:
        resource.setrlimit(resource.RLIMIT_NOFILE, (100, 100))
        _open_often(cache_path, bundle)
        return calls

    assert in_child(open_with_few) == {"opened": 1, "copied": 1}
    assert os.path.lexists(Layout(str(cache_path)).seed)


def test_a_bundle_that_is_missing_is_found_as_soon_as_it_is_there(
    cache_path: Path, bundle: Path, calls: dict[str, int], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "lockcache")
    content = bundle.read_bytes()
    bundle.unlink()
    _open_often(cache_path, bundle)
    write(bundle, content)
    assert FileStreamProgramCache(cache_path, seed=bundle)[KEYS[0]] == OLDER[KEYS[0]]
    bundle.unlink()
    make_due(cache_path)
    before = calls["opened"]
    _open_often(cache_path, bundle)
    assert calls["opened"] == before + 1, "what stands is enough"
    assert "was refused" not in caplog.text


def test_who_asks_for_something_else_is_not_refused(
    cache_path: Path, bundle: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "lockcache")
    _open_often(cache_path, bundle, 1000)
    assert "refused less than a minute ago" in caplog.text
    assert FileStreamProgramCache(cache_path, seed=bundle, max_size_bytes=10**6)[KEYS[0]] == OLDER[KEYS[0]]
    _open_often(cache_path, write(tmp_path / "damaged.lcb", b"text" * 100))
    other = write(tmp_path / "other.lcb", bundle_of({b"other": b"of the other"}))
    assert FileStreamProgramCache(cache_path, seed=other)[b"other"] == b"of the other"


def test_the_server_of_a_bundle_is_not_asked_again_for_what_was_read(
    cache_path: Path, bundle: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An NFS client asks its server for the state of a file that it has read since: when the last read was."""
    inode, asked, real_fstat, real_pread = bundle.stat().st_ino, [], os.fstat, os.pread

    def fstat(fd: int) -> os.stat_result:
        status = real_fstat(fd)
        if status.st_ino == inode:
            asked.append("fstat")
        return status

    def pread(fd: int, size_bytes: int, offset: int) -> bytes:
        if real_fstat(fd).st_ino == inode:
            asked.append("pread")
        return real_pread(fd, size_bytes, offset)

    monkeypatch.setattr(os, "fstat", fstat)
    monkeypatch.setattr(os, "pread", pread)
    with FileStreamProgramCache(cache_path, seed=bundle) as cache:
        assert cache[KEYS[0]] == OLDER[KEYS[0]]
    assert "fstat" not in asked[asked.index("pread") :]


def test_a_process_that_hangs_with_the_bundle_is_waited_for_in_its_first_minute(
    cache_path: Path, bundle: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    waits = []

    def open_file(*arguments: Any) -> object:
        FileStreamProgramCache(cache_path, seed=bundle).close()
        make_due(cache_path)
        FileStreamProgramCache(cache_path, seed=bundle).close()
        raise OSError(errno.EIO, "it hangs no more")

    def lock(directory: CacheDirectory, seconds: float) -> contextlib.AbstractContextManager[None]:
        waits.append(seconds)
        return seed_lock(directory, min(seconds, 0.05))

    monkeypatch.setattr(attaching, "opened", open_file)
    monkeypatch.setattr(attaching, "seed_lock", lock)
    with FileStreamProgramCache(cache_path, seed=bundle) as cache:
        assert cache.get(KEYS[0]) is None
    assert waits == [attaching._LONGEST_WAIT_SECONDS] * 2 + [attaching._WAIT_FOR_NEWER_SECONDS]
