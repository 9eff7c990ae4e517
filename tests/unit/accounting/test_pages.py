# SPDX-License-Identifier: Apache-2.0
"""The page of a directory: opened where it counts, and else made, with all that the directory holds."""

from __future__ import annotations

import errno
import os
import shutil
import time
from pathlib import Path

import pytest

from lockcache import FileStreamProgramCache
from lockcache.filestream.accounting import FILE_BYTES, encode_page, head_of, pages, replace_state
from lockcache.filestream.accounting.pages import FirstCount
from lockcache.filestream.accounting.state import Slot, StatePage
from lockcache.filestream.directory import CacheDirectory
from lockcache.filestream.disk.descriptors import Descriptor
from lockcache.filestream.disk.layout import SHARDS, Layout
from lockcache.filestream.disk.mounts import Hosts
from lockcache.filestream.disk.reach import Reach
from lockcache.filestream.inspect import accounted
from tests.state_pages import damage, state_of
from tests.unit.material import on_disk, open_directory


@pytest.mark.parametrize(
    "spoil, is_said",
    [
        (lambda page: damage(page.parents[1]), True),
        (lambda page: os.truncate(page, 100), True),
        (lambda page: page.write_bytes(b"no version ever wrote this"), True),
        (lambda page: os.truncate(page, 0), False),
        (Path.unlink, False),
    ],
)
def test_a_page_that_is_lost_or_damaged_is_counted_again(cache_path, spoil, is_said, caplog):
    with FileStreamProgramCache(cache_path, max_size_bytes=1000) as cache:
        cache["k"] = b"x" * 100
    spoil(state_of(cache_path))
    assert accounted(Layout(str(cache_path))) is None
    with FileStreamProgramCache(cache_path, max_size_bytes=1000) as cache:
        assert ("is damaged" in caplog.text) == is_said
        assert cache["k"] == b"x" * 100
        cache["l"] = b"x" * 100
        assert (cache.stats().bytes, cache.stats().entries) == on_disk(cache_path) == (200, 2)
        for number in range(20):
            cache[str(number)] = b"x" * 100
        assert on_disk(cache_path).bytes <= 1000


@pytest.mark.parametrize("size", [40960, FILE_BYTES - 1, FILE_BYTES + 4096])
def test_a_page_of_another_versions_size_is_counted_again_and_its_cap_stays(cache_path, size):
    with FileStreamProgramCache(cache_path, max_size_bytes=1000) as cache:
        cache["k"] = b"x" * 100
    page = open_directory(cache_path)
    page.usage().set_locked(7, Slot(500, 5))  # what that version accounts for is not believed
    page.close()
    os.truncate(state_of(cache_path), size)
    with FileStreamProgramCache(cache_path) as cache:
        assert state_of(cache_path).stat().st_size == FILE_BYTES
        assert (cache.stats().bytes, cache.stats().entries) == on_disk(cache_path) == (100, 1)
        assert cache["k"] == b"x" * 100
        for number in range(20):
            cache[str(number)] = b"x" * 100
        assert on_disk(cache_path).bytes <= 1000


def test_a_copy_of_a_directory_is_counted_and_has_its_cap(cache_path, tmp_path):
    copy = tmp_path / "copy"
    with FileStreamProgramCache(cache_path, max_size_bytes=1000) as cache:
        cache["k"] = b"x" * 100
        shutil.copytree(cache_path / "lockcache", copy / "lockcache")  # the copy has begun
        cache["l"] = b"x" * 100
        for folder in ("entries", "tmp"):
            shutil.copytree(cache_path / folder, copy / folder)
    for folder in (copy, copy / "lockcache"):
        folder.chmod(0o700)
    assert accounted(Layout(str(copy))) is None
    with FileStreamProgramCache(copy) as cache:
        assert (cache.max_size_bytes, cache.stats().bytes) == (1000, 200)
    with FileStreamProgramCache(cache_path) as cache:
        assert (cache.max_size_bytes, cache.stats().bytes) == (1000, 200)


def test_a_copy_by_hard_links_shares_no_accounting(cache_path, tmp_path):
    copy = tmp_path / "copy"
    with FileStreamProgramCache(cache_path) as cache:
        cache["k"] = b"x" * 100
        shutil.copytree(cache_path, copy, copy_function=os.link)
        copy.chmod(0o700)
        with FileStreamProgramCache(copy) as other:
            other["l"] = b"x" * 100
            cache["m"] = b"x" * 300
            assert (other.stats().bytes, cache.stats().bytes) == (200, 400)


def test_hosts_that_open_a_directory_in_turn_count_it_once(cache_path, monkeypatch):
    """Each sees it on another device."""
    FileStreamProgramCache(cache_path)["k"] = b"x" * 100
    real = os.stat_result
    monkeypatch.setattr(FirstCount, "replace_page_locked", lambda count: pytest.fail("it is there"))
    lstat = os.lstat

    def look(path: str, **options: object) -> os.stat_result:
        fields = list(lstat(path))
        fields[2] += 7
        return real(fields)

    monkeypatch.setattr("lockcache.filestream.accounting.state.os.lstat", look)
    assert FileStreamProgramCache(cache_path).stats().bytes == 100


def test_opening_keeps_the_page_young(cache_path):
    FileStreamProgramCache(cache_path).close()
    os.utime(state_of(cache_path), (10**9, 10**9))
    FileStreamProgramCache(cache_path).close()
    assert time.time() - state_of(cache_path).stat().st_mtime < 3600


@pytest.mark.parametrize("what", ["entries/ab", "tmp/file", "lockcache/records/ab", "lockcache/quarantine/file",
                                  "lockcache/locks/ab"])  # fmt: skip
def test_the_shards_of_a_new_directory_are_not_looked_into_and_of_any_other_all_are(cache_path, monkeypatch, what):
    looked = []
    monkeypatch.setattr(pages, "measure_shard", lambda layout, shard, **_: looked.append(shard) or Slot(0, 0))

    def count():
        directory = open_directory(cache_path)
        directory.usage()
        directory.close()

    count()
    assert looked == []
    os.unlink(state_of(cache_path))
    (cache_path / what).mkdir(mode=0o700, parents=True)
    count()
    assert looked == list(range(SHARDS))


def test_a_directory_with_entries_and_no_accounting_is_counted_at_opening(cache_path):
    with FileStreamProgramCache(cache_path) as cache:
        cache.update({"a": b"x" * 10, "b": b"y" * 20})
    shutil.rmtree(cache_path / "lockcache")
    directory = open_directory(cache_path)
    assert directory.usage().total() == (30, 2)
    directory.close()


@pytest.mark.parametrize("times", [1, 2, 3])
def test_a_page_that_another_host_replaces_while_it_is_opened_is_looked_for_again(
    times: int, cache_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An NFS client answers so once or twice; a file system that goes on with this answer is broken."""
    FileStreamProgramCache(cache_path)["k"] = b"x"
    image, stale = StatePage.image, iter(range(times))

    def read_unless_stale(page: StatePage) -> bytes:
        if next(stale, None) is not None:
            raise OSError(errno.ESTALE, os.strerror(errno.ESTALE))
        return image(page)

    monkeypatch.setattr(StatePage, "image", read_unless_stale)
    monkeypatch.setattr(FirstCount, "replace_page_locked", lambda count: pytest.fail("it is there"))
    if times == 3:
        with pytest.raises(OSError, match="Stale"):
            FileStreamProgramCache(cache_path)
    else:
        assert FileStreamProgramCache(cache_path).stats().entries == 1


@pytest.mark.parametrize("times, number", [(1, errno.ESTALE), (2, errno.ESTALE), (1, errno.EINVAL)])
def test_only_a_mount_that_refuses_it_has_the_page_opened_in_the_clients_cache(
    times: int, number: int, cache_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    FileStreamProgramCache(cache_path)["k"] = b"x"
    opened, errors = Reach.open, iter([number] * times)
    direct: list[bool] = []

    def open_unless_refused(reach: Reach, path: str, flags: int, file: Descriptor | None = None) -> Descriptor:
        if path.endswith("/lockcache/state"):
            direct.append(bool(flags & os.O_DIRECT))
            if flags & os.O_DIRECT and (error := next(errors, None)) is not None:
                raise OSError(error, os.strerror(error))
        return opened(reach, path, flags & ~os.O_DIRECT, file)  # not every file system below a test takes it

    monkeypatch.setattr("lockcache.filestream.disk.mounts.network_kind", lambda root: "nfs4")
    monkeypatch.setattr(Reach, "open", open_unless_refused)
    assert FileStreamProgramCache(cache_path).stats().entries == 1
    assert direct == ([True, False] if number == errno.EINVAL else [True] * (times + 1))


def test_a_page_that_0_3_0_was_counting_on_fuse_is_counted_again(cache_path, monkeypatch):
    """That version stated 0 there, which no folder has."""
    with FileStreamProgramCache(cache_path, max_size_bytes=4096) as cache:
        cache["k"] = b"x" * 100
    layout = Layout(str(cache_path))
    head = head_of(layout)
    assert head is not None
    replace_state(layout, encode_page(head._replace(folder=0)))
    monkeypatch.setattr(Hosts, "has_lasting_inodes", False)
    with FileStreamProgramCache(cache_path) as cache:
        assert (cache.stats().bytes, cache.stats().entries) == on_disk(cache_path)


@pytest.mark.parametrize("look", ["at the policy", "at the counters"])
def test_a_live_cache_keeps_its_cap_where_who_made_a_lost_page_again_died_before_it_stated_one(look, cache_path):
    with FileStreamProgramCache(cache_path, max_size_bytes=10**6) as cache:
        cache["a"] = b"x"
        os.truncate(cache_path / "lockcache" / "state", 0)
        open_directory(cache_path)
        if look == "at the policy":
            assert cache._directory.policy.current().max_size_bytes == 10**6
        else:
            with cache._directory.counting(1.0):
                pass
        cache["b"] = b"y"
        assert cache._directory.policy.current().max_size_bytes == 10**6


def test_a_look_at_the_policy_of_a_directory_that_was_deleted_makes_none(cache_path):
    with FileStreamProgramCache(cache_path, max_size_bytes=10**6) as cache:
        cache["a"] = b"x"
        shutil.rmtree(cache_path)
        assert cache.max_size_bytes == 10**6
        assert not cache_path.exists()


def test_a_look_at_the_policy_while_another_process_counts_keeps_it(cache_path):
    with FileStreamProgramCache(cache_path, max_size_bytes=10**6) as cache:
        cache["a"], seen = b"x", []
        os.truncate(cache_path / "lockcache" / "state", 0)
        CacheDirectory(str(cache_path), 5.0, lambda: seen.append(cache.max_size_bytes))
        cache["b"] = b"y"
        assert set(seen) == {10**6}
        assert cache.max_size_bytes == 10**6
