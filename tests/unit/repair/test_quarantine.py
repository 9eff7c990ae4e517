# SPDX-License-Identifier: Apache-2.0
"""Quarantine: what is corrupt is kept, within bounds, counted, and served by nobody."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from lockcache import FileStreamProgramCache
from lockcache.filestream.disk.layout import QuarantinedName, entry_name, parse_quarantined_name
from lockcache.filestream.disk.locks import ProcessLock
from lockcache.filestream.policy import Policy
from lockcache.filestream.repair import quarantine
from lockcache.filestream.repair.quarantine import list_quarantine, make_place, measure_quarantine, trim_quarantine
from lockcache.filestream.repair.recount import recount_all
from lockcache.filestream.repair.verify import verify_entry
from tests.crash.damage import DAMAGES
from tests.unit.material import entry_path, on_disk, put, shard_of


def spoil(directory, key: bytes, size: int = 1000, **stored):
    """Store an entry, damage it without changing its length, and repair that: its verdict."""
    put(directory, key, os.urandom(size), **stored)
    DAMAGES["last bit flipped"](Path(entry_path(directory.layout.root, key)))
    return verify_entry(directory, entry_name(key), repair=True)


def kept_keys(directory, keys):
    names = {entry_name(key): key for key in keys}
    return [names[each.name.entry] for each in list_quarantine(directory.layout)]


@pytest.mark.parametrize("is_record", [False, True])
def test_a_name_says_when_which_entry_and_what_was_wrong(is_record):
    name = QuarantinedName("20261121T170102.000000001Z", "ab" * 32, "digest", is_record)
    assert parse_quarantined_name(str(name)) == name
    assert name.shard == 0xAB


@pytest.mark.parametrize("other", ["", "notes.txt", "20261121T170102.000000001Z-" + "ab" * 32, "x" * 300])
def test_other_files_are_none_of_ours(other):
    assert parse_quarantined_name(other) is None


def test_what_is_in_quarantine_counts_until_it_is_dropped(directory):
    put(directory, b"stays", b"x" * 500)
    spoil(directory, b"k")
    assert directory.usage().total() == (1500, 1) == on_disk(directory.layout.root)
    assert recount_all(directory) == []
    assert measure_quarantine(directory.layout) == (1000, 1)
    trim_quarantine(directory, 100)
    assert directory.usage().total() == (500, 1) == on_disk(directory.layout.root)
    assert measure_quarantine(directory.layout) == (0, 0)


def test_the_oldest_go_when_there_are_too_many(directory, monkeypatch):
    monkeypatch.setattr(quarantine, "MOST_ENTRIES", 3)
    keys = [b"%d" % number for number in range(5)]
    for key in keys:
        spoil(directory, key, record_files=True)
    assert kept_keys(directory, keys) == keys[2:]
    assert directory.usage().total() == on_disk(directory.layout.root)
    assert len(os.listdir(directory.layout.quarantine)) == 6, "each with its record"


def test_the_oldest_go_when_they_are_more_than_a_sixteenth_of_the_cap(directory):
    directory.policy.replace(Policy(16 * 2500))
    keys = [b"%d" % number for number in range(5)]
    for key in keys:
        spoil(directory, key)
    assert kept_keys(directory, keys) == keys[3:]
    assert directory.usage().total() == (2000, 0) == on_disk(directory.layout.root)
    assert not make_place(directory, 2501)
    assert kept_keys(directory, keys) == keys[3:]
    assert make_place(directory, 2500)
    assert directory.usage().total() == (0, 0) == on_disk(directory.layout.root)


@pytest.mark.parametrize("damage", ["last bit flipped", "grown to a terabyte of holes"])
def test_what_is_too_large_to_be_kept_is_removed(directory, damage):
    directory.policy.replace(Policy(16 * 2500))
    put(directory, b"k", b"x" * 3000, record_files=True)
    DAMAGES[damage](Path(entry_path(directory.layout.root)))
    recount_all(directory)
    verdict = verify_entry(directory, entry_name(b"k"), repair=True)
    assert (verdict.is_repaired, verdict.moved_to) == (True, "")
    assert directory.usage().total() == (0, 0) == on_disk(directory.layout.root)


def test_a_lower_cap_shrinks_the_quarantine_rather_than_the_cache(directory):
    keys = [b"%d" % number for number in range(4)]
    for key in keys:
        spoil(directory, key, 10_000)
    cache = FileStreamProgramCache(directory.layout.root, max_size_bytes=60_000)
    for number in range(100):
        cache[b"new %d" % number] = b"x" * 1000
    assert measure_quarantine(directory.layout).bytes <= 60_000 // 16
    assert len(cache) > 50
    assert cache.stats().dropped_writes == 0
    assert directory.usage().total() == on_disk(directory.layout.root)


def test_an_entry_of_the_whole_cap_finds_room_beside_a_quarantine(directory):
    directory.policy.replace(Policy(100_000))
    spoil(directory, b"k", 6000)
    assert measure_quarantine(directory.layout).entries == 1
    cache = FileStreamProgramCache(directory.layout.root, lock_timeout_seconds=1)
    cache[b"large"] = b"x" * 99_000
    assert cache[b"large"] == b"x" * 99_000
    assert measure_quarantine(directory.layout) == (0, 0)


def test_clear_removes_what_is_in_quarantine_and_leaves_the_notes_of_an_operator(directory):
    spoil(directory, b"k", record_files=True)
    spoil(directory, b"other")
    notes = Path(directory.layout.quarantine, "notes.txt")
    notes.write_text("looked at on Monday")
    cache = FileStreamProgramCache(directory.layout.root)
    cache.clear()
    assert os.listdir(directory.layout.quarantine) == ["notes.txt"]
    assert cache.stats().bytes == 0
    notes.unlink()
    cache.clear()
    assert not os.path.exists(directory.layout.quarantine)


def test_clear_waits_for_a_busy_shard(directory):
    spoil(directory, b"k")
    busy = ProcessLock(directory.layout.lock(shard_of(b"k")), 1.0)
    cache = FileStreamProgramCache(directory.layout.root, lock_timeout_seconds=0.02)
    with busy:
        cache.clear()
        assert measure_quarantine(directory.layout).entries == 1
    cache.clear()
    assert measure_quarantine(directory.layout).entries == 0
    busy.close()


def test_the_next_writer_of_a_quarantined_key_is_not_held_up_and_its_entry_is_served(directory):
    spoil(directory, b"k", record_files=True)
    cache = FileStreamProgramCache(directory.layout.root)
    assert cache.get(b"k") is None
    cache[b"k"] = b"compiled again"
    assert cache[b"k"] == b"compiled again"
    assert cache.stats().unverified_hits == 0
    assert measure_quarantine(directory.layout).entries == 1


def _symlink(path: Path) -> None:
    elsewhere = path.parent.parent.parent / "elsewhere"
    elsewhere.mkdir(exist_ok=True)
    path.symlink_to(elsewhere)


PLANTED = {"symlink": _symlink, "dangling symlink": lambda p: p.symlink_to("/nowhere/at/all"), "fifo": os.mkfifo,
           "file": Path.touch}  # fmt: skip


@pytest.mark.parametrize("planted", PLANTED)
def test_something_planted_in_place_of_the_quarantine_is_not_followed_and_the_entry_stays(directory, planted):
    PLANTED[planted](Path(directory.layout.quarantine))
    verdict = spoil(directory, b"k")
    assert (verdict.is_repaired, verdict.moved_to) == (False, "")
    assert directory.layout.quarantine in verdict.error
    assert os.path.exists(entry_path(directory.layout.root))
    elsewhere = Path(directory.layout.root).parent / "elsewhere"
    assert not elsewhere.exists() or os.listdir(elsewhere) == []
    assert directory.usage().total() == on_disk(directory.layout.root) == (1000, 1)
    FileStreamProgramCache(directory.layout.root).clear()
    assert os.path.lexists(directory.layout.quarantine)


def test_a_directory_planted_in_quarantine_under_a_name_of_ours_harms_nobody(directory):
    spoil(directory, b"k")
    [kept] = list_quarantine(directory.layout)
    os.mkdir(f"{directory.layout.quarantine}/{kept.name._replace(is_record=True)}")
    os.mkdir(f"{directory.layout.quarantine}/{kept.name._replace(wrong='other')}")
    trim_quarantine(directory, 0)
    assert directory.usage().total() == (0, 0) == on_disk(directory.layout.root)
    assert spoil(directory, b"k").is_repaired
