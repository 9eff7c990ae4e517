# SPDX-License-Identifier: Apache-2.0
"""Making room: evict, take back what the dead hold, or give way."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time

import pytest

from lockcache import FileStreamProgramCache
from lockcache.filestream.accounting import Slot
from lockcache.filestream.admission import Admission
from lockcache.filestream.disk.layout import Layout, StagedName, entry_name
from lockcache.filestream.disk.owners import myself
from lockcache.filestream.entry.staging import StagedEntry
from lockcache.filestream.eviction import Evicted
from tests.unit.material import on_disk, put, set_last_use

# Reserves 900 bytes and dies without a word.
DIE = """
import os, sys
from lockcache.filestream.directory import CacheDirectory
from lockcache.filestream.admission import Admission
from lockcache.filestream.disk.layout import entry_name
from lockcache.filestream.entry.staging import StagedEntry
from lockcache.filestream.eviction import Evicted
staged = StagedEntry(CacheDirectory(sys.argv[1], 5.0), entry_name(b"of the dead"), 900)
staged.reserve()
os.kill(os.getpid(), 9)
"""


def admission(directory, seconds=30.0):
    return Admission(directory, time.monotonic() + seconds)


def test_where_there_is_room_nothing_is_touched(directory):
    put(directory, b"a", b"x" * 100)
    assert admission(directory).make_room(100, 0) is True
    assert directory.usage().total() == (100, 1)


def test_entries_make_way_for_a_reservation(directory):
    for number in range(5):
        put(directory, b"%d" % number, b"x" * 100)
    staged = StagedEntry(directory, "ab" + "0" * 62, 200)
    staged.reserve()
    mine = admission(directory)
    assert mine.make_room(500, 200) is True
    assert mine.evicted == Evicted(2, 200)
    assert directory.usage().total() == (500, 3)
    staged.abandon()


@pytest.mark.parametrize("others, evicted", [(1, 3), (2, 5), (3, 7), (5, 9)])
def test_while_others_write_more_makes_way_than_is_needed(directory, others, evicted):
    """As much more as they have reserved, for who comes next: a quarter of the cap at most."""
    for number in range(10):
        put(directory, b"%d" % number, b"x" * 100)
    staged = [StagedEntry(directory, f"{number:02x}" + "0" * 62, 100) for number in range(1 + others)]
    for each in staged:
        each.reserve()
    mine = admission(directory)
    assert mine.make_room(1000, 100) is True
    assert mine.evicted == Evicted(evicted, 100 * evicted)
    assert directory.usage().total() == (100 * (11 + others - evicted), 10 - evicted)
    for each in staged:
        each.abandon()


def test_a_name_alone_reserves_nothing(directory):
    """Other members of a group can make files of any name."""
    for number in range(10):
        put(directory, b"%d" % number, b"x" * 100)
    me = myself()
    with open(f"{directory.layout.tmp}/{StagedName(0xEE, 10**6, *me, 0)}", "w"):
        pass
    staged = StagedEntry(directory, "ab" + "0" * 62, 100)
    staged.reserve()
    mine = admission(directory)
    assert mine.make_room(1000, 100) is True
    assert mine.evicted == Evicted(1, 100), "and not a batch for a writer that is none"
    staged.abandon()


def test_where_all_that_is_left_is_reserved_by_the_living_it_gives_way(directory):
    put(directory, b"a", b"x" * 100)
    theirs, mine = StagedEntry(directory, "ab" + "0" * 62, 400), StagedEntry(directory, "cd" + "0" * 62, 400)
    theirs.reserve()
    mine.reserve()
    assert admission(directory).make_room(500, 0) is False
    assert directory.usage().total() == (800, 0)
    theirs.abandon()
    assert admission(directory).make_room(500, 0) is True
    mine.abandon()


def test_where_all_that_is_left_cannot_be_evicted_it_gives_way(directory):
    put(directory, b"a", b"x" * 400)
    mine = StagedEntry(directory, "cd" + "0" * 62, 400)
    mine.reserve()
    with directory.locks[int(entry_name(b"a")[:2], 16)]:
        assert admission(directory, 0.1).make_room(500, 0) is False
    assert directory.usage().total() == (800, 1)
    mine.abandon()


def test_what_the_dead_reserved_is_taken_back_before_anything_is_evicted(cache_path):
    with FileStreamProgramCache(cache_path, max_size_bytes=1000) as cache:
        cache["kept"] = b"x" * 100
        subprocess.run([sys.executable, "-c", DIE, str(cache_path)], check=False)
        [file] = os.listdir(Layout(str(cache_path)).tmp)
        set_last_use(f"{Layout(str(cache_path)).tmp}/{file}", 1000)  # as if it were there for a while
        cache["k"] = b"y" * 100
        assert (cache["kept"], cache["k"]) == (b"x" * 100, b"y" * 100)
        assert cache.stats().evictions == 0
        assert (cache.stats().bytes, cache.stats().entries) == on_disk(cache_path) == (200, 2)


def test_entries_deleted_by_hand_do_not_keep_the_cache_shut(cache_path):
    with FileStreamProgramCache(cache_path, max_size_bytes=1000, lock_timeout_seconds=0.2) as cache:
        cache.update({str(number): b"x" * 100 for number in range(10)})
        shutil.rmtree(cache_path / "entries")
        cache["k"] = b"y" * 1000
        assert cache["k"] == b"y" * 1000
        assert cache.stats().dropped_writes == 0


@pytest.mark.parametrize("seconds, drift", [(30.0, 0), (0.0, 4000)])
def test_past_its_deadline_a_write_recounts_no_further_shards(directory, seconds, drift):
    for shard in range(4):
        directory.usage().set_locked(shard, Slot(1000, 1))
    admission(directory, seconds).make_room(1000, 0)
    assert directory.usage().total_bytes() == drift


def test_a_full_cache_makes_room_however_short_the_timeout(directory):
    with FileStreamProgramCache(directory.layout.root, max_size_bytes=1000, lock_timeout_seconds=0.0) as cache:
        for number in range(20):
            cache[b"%d" % number] = b"x" * 100
        assert cache.stats().dropped_writes == 0


def test_an_interrupt_while_a_file_is_staged_leaves_none(directory, monkeypatch):
    """A reservation under its name would keep others out for as long as this process lives."""

    def open_and_interrupt(path, flags, mode=0o777, *, os_open=os.open, **options):
        fd = os_open(path, flags, mode, **options)
        if str(path).startswith(directory.layout.tmp):
            os.close(fd)
            raise KeyboardInterrupt
        return fd

    with FileStreamProgramCache(directory.layout.root, max_size_bytes=1000) as cache:
        with monkeypatch.context() as patched:
            patched.setattr(os, "open", open_and_interrupt)
            with pytest.raises(KeyboardInterrupt):
                cache["k"] = b"x" * 600
        assert os.listdir(Layout(directory.layout.root).tmp) == []
        cache["k"] = b"y" * 600
        assert cache["k"] == b"y" * 600
        assert directory.usage().total() == (600, 1)
