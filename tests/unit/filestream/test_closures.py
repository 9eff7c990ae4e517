# SPDX-License-Identifier: Apache-2.0
"""The file of closures: whole or none, by any writer."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from lockcache import FileStreamProgramCache, TieredProgramCache
from lockcache.filestream.closures import ClosureFile
from lockcache.filestream.disk import Mount
from lockcache.headers import Evidence
from lockcache.memory import InMemoryProgramCache

NAME, OTHER = bytes(32), bytes([*range(32)])
CONTENT = os.urandom(5000)


@pytest.fixture
def key_file(tmp_path: Path) -> Path:
    path = tmp_path / "key"
    path.write_text("5a" * 32 + "\n")
    path.chmod(0o600)
    return path


def closures(cache: FileStreamProgramCache) -> ClosureFile:
    assert isinstance(cache._closures, ClosureFile)
    return cache._closures


def file_of(path: Path) -> Path:
    return path / "lockcache" / "closures"


def test_one_process_stores_and_another_loads(cache_path: Path) -> None:
    with FileStreamProgramCache(cache_path) as one, FileStreamProgramCache(cache_path) as other:
        assert closures(other).load(NAME) is None
        closures(one).store(NAME, CONTENT)
        assert closures(other).load(NAME) == CONTENT
        assert closures(other).load(OTHER) is None
        assert len(other) == 0
        assert other.stats().bytes == 0
    assert file_of(cache_path).stat().st_mode & 0o777 == 0o600


def test_a_tier_in_front_has_those_of_the_directory(cache_path: Path) -> None:
    with FileStreamProgramCache(cache_path) as cache, TieredProgramCache(InMemoryProgramCache(), cache) as tiered:
        assert tiered._closures is cache._closures
    assert TieredProgramCache(InMemoryProgramCache())._closures is None


def test_a_64th_of_the_cap_is_never_exceeded(cache_path: Path) -> None:
    for cap in (1 << 20, 4 << 20, 9 << 20):
        with FileStreamProgramCache(cache_path, max_size_bytes=cap) as cache:
            cache.clear()
            for number in range(40):
                closures(cache).store(bytes(31) + bytes([number]), os.urandom(32 * 1024 - 44))
        path = file_of(cache_path)
        assert (path.stat().st_blocks * 512 if path.exists() else 0) <= cap / 64


def test_what_is_too_large_for_a_slot_is_not_kept(cache_path: Path) -> None:
    with FileStreamProgramCache(cache_path) as cache:
        closures(cache).store(NAME, bytes(32 * 1024 - 44))
        assert closures(cache).load(NAME) == bytes(32 * 1024 - 44)
        closures(cache).store(OTHER, bytes(32 * 1024 - 43))
        assert closures(cache).load(OTHER) is None


def damage(path: Path, at: int) -> None:
    with path.open("r+b") as file:
        file.seek(at)
        byte = file.read(1)
        file.seek(at)
        file.write(bytes([byte[0] ^ 1]))


@pytest.mark.parametrize(
    "spoil",
    [
        lambda path: damage(path, 0),
        lambda path: damage(path, 30),
        lambda path: damage(path, 44),
        lambda path: damage(path, 5043),
        lambda path: os.truncate(path, 5043),
        lambda path: os.truncate(path, 10),
        lambda path: os.truncate(path, 0),
        lambda path: path.unlink(),
        lambda path: (path.unlink(), path.mkdir()),
        lambda path: (path.unlink(), os.mkfifo(path)),
        lambda path: (path.rename(f"{path}.x"), path.symlink_to(f"{path}.x")),
    ],
)
def test_what_is_not_whole_is_none(cache_path: Path, spoil: Callable[[Path], object]) -> None:
    with FileStreamProgramCache(cache_path) as cache:
        closures(cache).store(NAME, CONTENT)
        spoil(file_of(cache_path))
        assert closures(cache).load(NAME) is None


def test_a_planted_file_is_not_written_to(cache_path: Path, tmp_path: Path) -> None:
    theirs = tmp_path / "theirs"
    with FileStreamProgramCache(cache_path) as cache:
        theirs.write_bytes(b"text")
        os.link(theirs, file_of(cache_path))
        closures(cache).store(NAME, CONTENT)
        assert theirs.read_bytes() == b"text"
        closures(cache).store(NAME, CONTENT)
        assert closures(cache).load(NAME) == CONTENT
        file_of(cache_path).unlink()
        file_of(cache_path).symlink_to(theirs)
        closures(cache).store(NAME, CONTENT)
    assert theirs.read_bytes() == b"text"


def test_where_entries_are_signed_so_are_these(cache_path: Path, key_file: Path, tmp_path: Path) -> None:
    other_key = tmp_path / "other"
    other_key.write_text("a5" * 32 + "\n")
    other_key.chmod(0o600)
    with (
        FileStreamProgramCache(cache_path) as plain,
        FileStreamProgramCache(cache_path, signing_key_file=key_file) as signing,
        FileStreamProgramCache(cache_path, signing_key_file=other_key) as stranger,
    ):
        closures(plain).store(NAME, CONTENT)
        assert closures(signing).load(NAME) is None
        closures(signing).store(NAME, CONTENT)
        assert closures(signing).load(NAME) == CONTENT
        assert closures(stranger).load(NAME) is closures(plain).load(NAME) is None


def test_where_nothing_may_be_written_nothing_is(cache_path: Path) -> None:
    with FileStreamProgramCache(cache_path) as cache:
        closures(cache).store(NAME, CONTENT)
    with FileStreamProgramCache(cache_path, read_only=True) as cache:
        assert closures(cache).load(NAME) == CONTENT
        closures(cache).store(OTHER, CONTENT)
        assert closures(cache).load(OTHER) is None


def test_clear_forgets_them(cache_path: Path) -> None:
    with FileStreamProgramCache(cache_path) as cache:
        cache.clear()
        closures(cache).store(NAME, CONTENT)
        cache.clear()
        assert closures(cache).load(NAME) is None
        assert not file_of(cache_path).exists()


@pytest.mark.parametrize(
    "kind, evidence",
    [
        *((kind, Evidence.STAT) for kind in ("ext4", "overlay")),
        *((kind, Evidence.OPEN) for kind in ("nfs4", "lustre")),
        *((kind, Evidence.CONTENT) for kind in ("fuse.sshfs", "fuseblk", "virtiofs", "erofs", "vfat")),
    ],
)
def test_what_stat_tells_goes_by_the_file_system(
    cache_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, evidence: Evidence
) -> None:
    with FileStreamProgramCache(cache_path) as cache:
        # A stand-in for a mount.
        monkeypatch.setattr("lockcache.filestream.closures.mount_of", lambda path: Mount(kind, "x", "/", "rw"))
        assert closures(cache).evidence(b"/x.h") is evidence
        monkeypatch.setattr("lockcache.filestream.closures.mount_of", lambda path: None)
        assert closures(cache).evidence(b"/x.h") is Evidence.STAT
