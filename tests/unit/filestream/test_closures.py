# SPDX-License-Identifier: Apache-2.0
"""The file of closures: whole or none, by any writer."""

from __future__ import annotations

import errno
import multiprocessing
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from lockcache import FileStreamProgramCache, TieredProgramCache
from lockcache.filestream.closures import ClosureFile
from lockcache.filestream.disk import Mount
from lockcache.headers import Evidence, examine, files
from lockcache.memory import InMemoryProgramCache
from tests.unit.forked import finish as finish_child, start as start_child

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


SLOT = 32 * 1024


@pytest.mark.parametrize("slot", [0, 1022, 1023])
@pytest.mark.parametrize("size", [SLOT - 44, SLOT - 43, 3 * SLOT, 8 * SLOT - 44])
def test_a_large_one_takes_slots_that_follow_each_other(cache_path: Path, slot: int, size: int) -> None:
    name = bytes(28) + slot.to_bytes(4, "big")
    content = os.urandom(size)
    with FileStreamProgramCache(cache_path) as cache:
        closures(cache).store(name, content)
        assert closures(cache).load(name) == content
        assert file_of(cache_path).stat().st_size <= 1024 * SLOT
        closures(cache).store(bytes(28) + ((slot + 1) % 1024).to_bytes(4, "big"), CONTENT)
        assert closures(cache).load(name) == (content if size == SLOT - 44 else None)


def test_what_is_too_large_is_not_kept(cache_path: Path) -> None:
    with FileStreamProgramCache(cache_path) as cache:
        closures(cache).store(NAME, bytes(8 * SLOT - 43))
        assert closures(cache).load(NAME) is None
    with FileStreamProgramCache(cache_path, max_size_bytes=64 * 2 * SLOT) as cache:
        closures(cache).store(NAME, bytes(2 * SLOT - 43))
        assert closures(cache).load(NAME) is None
        closures(cache).store(NAME, bytes(2 * SLOT - 44))
        assert closures(cache).load(NAME) == bytes(2 * SLOT - 44)


@pytest.fixture
def header(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A header that counts as old enough at once."""
    monkeypatch.setattr(files, "_RACY_NS", 0)
    (tmp_path / "own.h").write_text("int one;")
    return tmp_path / "own.h"


@pytest.mark.parametrize("end", ["stores", "dies", "raises"])
def test_of_processes_that_begin_at_once_one_reads_the_headers(
    cache_path: Path, header: Path, monkeypatch: pytest.MonkeyPatch, end: str
) -> None:
    real = files.load
    (asked, asks), (answered, answers) = os.pipe(), os.pipe()
    reads = multiprocessing.Value("i", 0)

    def load(path: bytes) -> Any:
        with reads:
            reads.value += 1
            is_first = reads.value == 1
        if is_first:  # it has the turn, and keeps it until the others wait
            os.write(asks, b".")
            if os.read(answered, 1) == b"r":
                raise OSError(errno.EIO, "the disk fails")
        return real(path)

    def find() -> bytes:
        with FileStreamProgramCache(cache_path) as cache:
            return examine("#include <own.h>", os.fspath(header.parent), store=cache._closures).digest

    monkeypatch.setattr(files, "load", load)
    first = start_child(find)
    assert os.read(asked, 1) == b"."
    others = [start_child(find) for _ in range(3)]
    leases = cache_path / "lockcache" / "leases"
    while not list(leases.glob("*.bell")):  # limited by the test's time
        time.sleep(0.005)
    if end == "dies":
        os.kill(first[0], signal.SIGKILL)
    os.write(answers, b"r" if end == "raises" else b".")
    assert len({finish_child(*each) for each in others}) == 1
    os.waitpid(first[0], 0)
    os.close(first[1])
    # A failure is everybody's own: no caller waits for it again.
    assert reads.value == {"stores": 1, "dies": 2}.get(end, reads.value)
    assert not list(leases.glob("*.bell"))


def test_what_holds_no_longer_is_replaced_by_the_first_that_sees_it(cache_path: Path, header: Path) -> None:
    with FileStreamProgramCache(cache_path) as cache:
        before = examine("#include <own.h>", os.fspath(header.parent), store=cache._closures)
        header.write_text("int other;")

        def find() -> bytes:
            with FileStreamProgramCache(cache_path) as own:
                return examine("#include <own.h>", os.fspath(header.parent), store=own._closures).digest

        assert finish_child(*start_child(find)) != before.digest
        assert finish_child(*start_child(find)) == examine("#include <own.h>", os.fspath(header.parent)).digest


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


def test_a_signal_handler_does_not_wait_for_its_own_thread(cache_path: Path) -> None:
    with FileStreamProgramCache(cache_path) as cache:
        own, name, begun = closures(cache), bytes(32), time.monotonic()
        with own.turn(name, None) as found:
            assert found is None
            with own.turn(name, None) as again:  # as a handler that compiles the same
                assert again is None
    assert time.monotonic() - begun < 5
