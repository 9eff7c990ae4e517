# SPDX-License-Identifier: Apache-2.0
"""One keeper, tick by tick, in this process: what each tick does, without a clock."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import signal
import struct
import subprocess
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

from lockcache import FileStreamProgramCache
from lockcache.filestream.directory import CacheDirectory
from lockcache.filestream.disk.layout import SHARDS
from lockcache.filestream.eviction import remove as removal
from lockcache_daemon.keeper import single_instance
from tests.daemon.daemon_process import until
from tests.daemon.directories import accounting_is_exact, bytes_on_disk, fill, names_on_disk
from tests.daemon.keepers import CAP, LOW, Kept


@pytest.mark.slow
@pytest.mark.cuda
def test_what_cuda_core_itself_writes_is_bounded_within_two_ticks(
    cache_path: Path, keep: Callable[[Path], Kept]
) -> None:
    from cuda.core.utils import FileStreamProgramCache as Upstream

    kept = keep(cache_path)
    kept.keeper.tick()
    with Upstream(str(cache_path)) as upstream:
        for round_ in range(3):
            for number in range(300):
                upstream[b"%d/%d" % (round_, number)] = bytes(10_000)
            assert bytes_on_disk(cache_path) > CAP
            kept.keeper.tick()
            kept.keeper.tick()
            assert bytes_on_disk(cache_path) <= CAP


@pytest.mark.slow
def test_a_stranger_who_hides_behind_a_writer_that_accounts_is_bounded_within_two_ticks(
    cache_path: Path, keep: Callable[[Path], Kept]
) -> None:
    kept = keep(cache_path)
    kept.keeper.tick()
    with FileStreamProgramCache(cache_path) as cache:
        for number in range(2000):  # so that every shard has one, and its slot changes with its directory
            cache[b"%d" % number] = b"x"
        fill(cache_path, 400, 10_000)
    kept.keeper.tick()
    kept.keeper.tick()
    assert bytes_on_disk(cache_path) <= CAP


def test_a_sweep_removes_the_least_recently_used_and_ends_at_the_low_watermark(
    cache_path: Path, keep: Callable[[Path], Kept]
) -> None:
    made = fill(cache_path, 100, 10_000)
    for path in made[:10]:
        os.utime(path)  # used now
    kept = keep(cache_path)
    kept.keeper.tick()
    expected = [path for path in made if path not in made[10:20]]
    assert names_on_disk(cache_path) == {path.parent.name + path.name for path in expected}
    (sweep,) = kept.said("sweep")
    assert (sweep["before_bytes"], sweep["after_bytes"], sweep["evicted_entries"]) == (CAP, LOW, 10)


@pytest.mark.slow
@pytest.mark.parametrize("part", ["tmp", "lockcache/locks", "lockcache/state", "lockcache", "entries", "."])
def test_whatever_is_deleted_underneath_is_made_anew_and_the_directory_is_bounded_again(
    cache_path: Path, keep: Callable[[Path], Kept], part: str
) -> None:
    fill(cache_path, 50, 10_000)
    kept = keep(cache_path)
    kept.keeper.tick()
    subprocess.run(["rm", "-r", str(cache_path / part) if part != "." else str(cache_path)], check=True)
    for _ in range(3):
        kept.keeper.tick()
    fill(cache_path, 300, 10_000, first=1000)
    kept.keeper.tick()
    kept.keeper.tick()
    assert bytes_on_disk(cache_path) <= CAP
    assert accounting_is_exact(cache_path)
    assert kept.keeper.is_well


@pytest.mark.slow
def test_reservations_alone_are_not_a_reason_to_evict_what_is_there_again_and_again(
    cache_path: Path, keep: Callable[[Path], Kept], monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = keep(cache_path)
    kept.keeper.tick()
    directory = CacheDirectory(str(cache_path), 1.0)
    with directory.locks[7]:
        directory.usage().add_locked(7, 2 * CAP, 0)  # a drift, as weak locks leave
    directory.close()
    walks = []
    monkeypatch.setattr("lockcache_daemon.stores.sharded.sweep", lambda *_: walks.append(1) or removal.Evicted())
    kept.keeper.tick()
    kept.keeper.tick()
    assert len(walks) == 1
    assert accounting_is_exact(cache_path)


def test_a_shard_that_somebody_holds_is_passed_over_and_counted_later(
    cache_path: Path, keep: Callable[[Path], Kept]
) -> None:
    (path,) = fill(cache_path, 1, 10_000)
    kept = keep(cache_path)
    fill(cache_path, 120, 10_000, first=1)
    shard = int(path.parent.name, 16)
    other = CacheDirectory(str(cache_path), 1.0)
    with other.locks[shard]:
        kept.keeper.tick()
        assert kept.keeper.is_well
    kept.keeper.tick()
    other.close()
    assert bytes_on_disk(cache_path) <= CAP
    assert accounting_is_exact(cache_path)


@pytest.mark.root
def test_an_input_output_error_in_one_directory_is_said_once_and_the_other_is_kept(
    cache_path: Path, keep: Callable[[Path], Kept], mount_image: Callable[..., Path]
) -> None:
    broken = mount_image("ext4", 32)
    fill(broken, 20, 1000)
    sick, well = keep(broken), keep(cache_path)
    sick.keeper.tick()
    _shut_down(broken)
    fill(cache_path, 200, 10_000)
    for _ in range(5):
        sick.keeper.tick()
        well.keeper.tick()
    assert bytes_on_disk(cache_path) <= LOW
    assert not sick.keeper.is_well
    kinds = [(said["error"]["kind"], said["error"].get("errno")) for said in sick.said("error")]
    assert ("OSError", errno.EIO) in kinds
    assert len(kinds) == len(set(kinds))
    sick.keeper.close()


def _shut_down(mount: Path) -> None:
    """Make the file system fail all that touches its disk, as a dying disk does."""
    fd = os.open(mount, os.O_RDONLY)
    try:
        fcntl.ioctl(fd, 0x8004587D, struct.pack("I", 2))
    finally:
        os.close(fd)


@pytest.mark.slow
def test_a_writer_that_accounts_never_sees_its_entries_counted_twice(
    cache_path: Path, keep: Callable[[Path], Kept]
) -> None:
    kept = keep(cache_path)
    with FileStreamProgramCache(cache_path) as cache:
        for number in range(500):
            cache[b"%d" % number] = bytes(5000)
            if number % 50 == 0:
                kept.keeper.tick()
    until(lambda: kept.keeper.tick() is None and bytes_on_disk(cache_path) <= CAP)
    assert accounting_is_exact(cache_path)
    assert (
        len(list((cache_path / "lockcache" / "locks").iterdir())) <= SHARDS + 3
    )  # of the opening, the room, the policy


@pytest.mark.root
def test_a_disk_that_stays_full_is_said_once_and_a_problem_until_there_is_room(
    keep: Callable[[Path], Kept], mount_tmpfs: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = SimpleNamespace(monotonic=lambda: 0.0)
    monkeypatch.setattr(single_instance, "time", clock)
    disk = mount_tmpfs("size=2m")
    kept = keep(disk / "cache")
    fill(disk / "cache", 1, 1000)
    with open(disk / "ballast", "wb", buffering=0) as ballast, contextlib.suppress(OSError):
        while ballast.write(bytes(4096)):
            pass
    clock.monotonic = lambda: 60.0  # the status is due; from now on it is not
    for _ in range(5):
        kept.keeper.tick()
    assert [said["error"]["errno"] for said in kept.said("error")] == [errno.ENOSPC]
    assert kept.said("recovered") == []
    assert not kept.keeper.is_well
    (disk / "ballast").unlink()
    kept.keeper.tick()
    assert len(kept.said("recovered")) == 1
    kept.keeper.close()


def test_a_daemon_that_is_to_stop_says_of_no_directory_that_it_works_again(
    cache_path: Path, keep: Callable[[Path], Kept]
) -> None:
    kept = keep(cache_path)
    kept.keeper.note_failure(OSError(errno.EIO, "broken"))
    kept.stop.number = signal.SIGTERM
    kept.keeper.tick()
    assert (kept.keeper.is_well, kept.said("recovered")) == (False, [])
