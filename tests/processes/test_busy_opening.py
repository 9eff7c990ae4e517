# SPDX-License-Identifier: Apache-2.0
"""Opening while another process holds the directory's lock: what the program asked for is not lost over it."""

from __future__ import annotations

import errno
import fcntl
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from lockcache import FileStreamProgramCache
from lockcache.filestream.accounting import StatePage
from lockcache.filestream.directory import CacheDirectory
from lockcache.filestream.disk.layout import Layout
from lockcache.filestream.policy import Policy
from tests.state_pages import policy_of
from tests.unit.bundle.bundles import bundle_of, write
from tests.unit.material import on_disk

_CAP = 300_000
_BRIEFLY = 0.05


@contextmanager
def _busy(path: Path) -> Iterator[None]:
    """Hold the lock of a directory without a page, as a process does that counts it."""
    lock = Path(Layout(str(path)).directory_lock)
    for folder in (*lock.parents[2::-1],):
        folder.mkdir(0o700, exist_ok=True)
    with lock.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _fill(cache: FileStreamProgramCache) -> None:
    for number in range(20):
        cache[b"%d" % number] = os.urandom(30_000)


@pytest.mark.parametrize("asked_by", ["argument", "variable"])
def test_a_cap_counts_from_the_first_write_on(
    cache_path: Path, real_blocks: None, monkeypatch: pytest.MonkeyPatch, asked_by: str
) -> None:
    with _busy(cache_path):
        if asked_by == "variable":
            monkeypatch.setenv("LOCKCACHE_MAX_SIZE", f"{_CAP}B")
        cap = _CAP if asked_by == "argument" else None
        cache = FileStreamProgramCache(cache_path, max_size_bytes=cap, lock_timeout_seconds=_BRIEFLY)
        assert cache.max_size_bytes == _CAP
        cache[b"dropped"] = b"x"
        assert cache.stats().dropped_writes == 1
    monkeypatch.delenv("LOCKCACHE_MAX_SIZE", raising=False)
    cache[b"first"] = b"x"
    assert policy_of(cache_path).max_size_bytes == _CAP
    _fill(cache)
    assert on_disk(cache_path)[0] <= _CAP


@pytest.mark.parametrize("others_cap", [None, 10 * _CAP])
def test_a_cap_counts_where_another_process_makes_the_page(cache_path: Path, others_cap: int | None) -> None:
    """Unless that process opens later and states one of its own."""
    cap = others_cap or _CAP
    with _busy(cache_path):
        cache = FileStreamProgramCache(cache_path, max_size_bytes=_CAP, lock_timeout_seconds=_BRIEFLY)
    with FileStreamProgramCache(cache_path, max_size_bytes=others_cap) as other:
        _fill(other)
        cache[b"first"] = b"x"
        assert other.max_size_bytes == cap
        assert on_disk(cache_path)[0] <= cap


def test_an_operators_cap_still_counts_first(cache_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with _busy(cache_path):
        cache = FileStreamProgramCache(cache_path, max_size_bytes=_CAP, lock_timeout_seconds=_BRIEFLY)
    operator = CacheDirectory(str(cache_path), 5.0)
    operator.policy.replace(Policy(2 * _CAP, by_operator=True))
    cache[b"first"] = b"x"
    assert cache.max_size_bytes == 2 * _CAP
    assert f"an operator set it to {2 * _CAP}" in caplog.text


def test_what_is_evicted_first_and_the_default_cap_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cache_path = tmp_path / "lockcache"
    monkeypatch.delenv("LOCKCACHE_DIR", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("LOCKCACHE_POLICY", "lru")
    with _busy(cache_path):
        cache = FileStreamProgramCache(lock_timeout_seconds=_BRIEFLY)
    cache[b"first"] = b"x"
    policy = policy_of(cache_path)
    assert (policy.priority, policy.is_default) == ("lru", True)


def test_a_group_shares_it(cache_path: Path) -> None:
    with _busy(cache_path):
        for folder in (cache_path, *(path for path in cache_path.rglob("*") if path.is_dir())):
            folder.chmod(0o2770)
        cache = FileStreamProgramCache(cache_path, group=True, lock_timeout_seconds=_BRIEFLY)
    cache[b"first"] = b"x"
    modes = {stat.S_IMODE(path.stat().st_mode) for path in cache_path.rglob("*") if path.is_dir()}
    assert modes == {0o2770}


def test_a_seed_that_cannot_be_attached_is_reported_and_the_next_opening_attaches_it(
    cache_path: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    bundle = write(tmp_path / "kernels.lcb", bundle_of({b"k": b"v"}))
    with _busy(cache_path):
        cache = FileStreamProgramCache(cache_path, seed=bundle, lock_timeout_seconds=_BRIEFLY)
        assert cache.get(b"k") is None
    assert "a seed is not waited for" in caplog.text
    with FileStreamProgramCache(cache_path, seed=bundle) as later:
        assert later.get(b"k") == b"v"
    assert cache.get(b"k") == b"v"


def test_a_directory_is_waited_for_once(cache_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    attempts = list[None]()
    create_page = CacheDirectory._create_page
    monkeypatch.setattr(CacheDirectory, "_create_page", lambda self: attempts.append(None) or create_page(self))
    with _busy(cache_path):
        FileStreamProgramCache(cache_path, max_size_bytes=_CAP, lock_timeout_seconds=_BRIEFLY).close()
    assert len(attempts) == 1


def test_a_process_keeps_to_a_cap_that_it_cannot_publish(
    cache_path: Path, real_blocks: None, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """As on a disk that copies what is written, and is full."""
    FileStreamProgramCache(cache_path).close()

    def refuse(page: StatePage, offset: int, content: bytes, *, fsync: bool = False) -> None:
        if not offset:
            raise OSError(errno.ENOSPC, "no room")
        write_page(page, offset, content, fsync=fsync)

    write_page = StatePage.write
    with monkeypatch.context() as patch:
        patch.setattr(StatePage, "write", refuse)
        cache = FileStreamProgramCache(cache_path, max_size_bytes=_CAP)
        assert "only this program keeps to" in caplog.text
        _fill(cache)
        assert (cache.max_size_bytes, policy_of(cache_path).max_size_bytes) == (_CAP, None)
        assert on_disk(cache_path)[0] <= _CAP
    for _ in range(256):  # between two looks at what others left
        cache[b"k"] = b"x"
    assert policy_of(cache_path).max_size_bytes == _CAP
