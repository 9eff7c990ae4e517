# SPDX-License-Identifier: Apache-2.0
"""Eviction: who goes, who stays although chosen, and when it ends."""

from __future__ import annotations

import os
import time

import pytest
from hypothesis import given, strategies as st

from lockcache.filestream.accounting import read_worth, sums_in
from lockcache.filestream.accounting.scan import Found
from lockcache.filestream.disk.layout import SHARDS, entry_name
from lockcache.filestream.disk.locks import ProcessLock
from lockcache.filestream.entry.codec import Record
from lockcache.filestream.entry.locate import Prices
from lockcache.filestream.entry.removal import remove_entry
from lockcache.filestream.eviction.choose import Goal, Need, choose_victims, first_enough
from lockcache.filestream.eviction.evict import all_entries, evict_to_limit, sample_entries, sweep
from lockcache.filestream.eviction.pins import change_pins
from lockcache.filestream.eviction.remove import Evicted, remove_victims
from lockcache.filestream.policy import Policy
from lockcache.filestream.writer import EntryWriter, Outcome
from tests.unit.material import (
    entry_path,
    keys_in_shard,
    on_disk,
    open_directory,
    property_test,
    put,
    set_last_use,
    shard_of,
)

_found = st.builds(
    Found, st.integers(0, 9), st.text("0123456789abcdef", min_size=4, max_size=4), st.integers(0, 50), st.just(1)
)
_samples = st.lists(_found, max_size=30, unique_by=lambda found: found.name)


def fill(directory, count, size=100, *, record_files=False):
    """Entries 0, 1, 2, ... of which 0 was used first; their keys."""
    keys = [b"%d" % number for number in range(count)]
    for number, key in enumerate(keys):
        put(directory, key, b"x" * size, record_files=record_files)
        set_last_use(entry_path(directory.layout.root, key), 1000 + number)
    return keys


def present(directory, keys):
    return [key for key in keys if os.path.exists(entry_path(directory.layout.root, key))]


@pytest.mark.slow
@property_test
@given(_samples, st.integers(-5, 600), st.integers(0, 12))
def test_the_victims_are_the_oldest_that_make_enough_room_and_a_batch(sample, needed, batch):
    victims, batch_bytes, spared = first_enough(sorted(sample), Need(needed, batch_entries=batch))
    assert [*victims, *spared] == sorted(sample)[: len(victims) + len(spared)]
    assert not spared or (batch_bytes == 0 and len(spared) < 8)
    batch = 0 if batch < 8 else batch
    enough = victims[: len(victims) - batch] if len(victims) < len(sample) else victims
    freed = sum(found.size_bytes for found in victims)
    assert freed >= needed or victims == sorted(sample)
    if len(victims) < len(sample):
        assert sum(found.size_bytes for found in enough) >= needed
        assert batch_bytes == sum(found.size_bytes for found in victims[len(enough) :])
        assert needed <= 0 or sum(found.size_bytes for found in enough[:-1]) < needed  # and not one more
    assert batch_bytes <= freed


@pytest.mark.parametrize("record_files", [False, True])
def test_the_least_recently_used_go_and_the_accounting_is_exact(directory, record_files):
    keys = fill(directory, 10, record_files=record_files)
    size = on_disk(directory.layout.root).bytes // 10
    set_last_use(entry_path(directory.layout.root, keys[0]), 5000)
    assert evict_to_limit(directory, 7 * size) == Evicted(3, 3 * size)
    assert present(directory, keys) == [keys[0], *keys[4:]]
    assert directory.usage().total() == on_disk(directory.layout.root) == (7 * size, 7)
    assert os.listdir(directory.layout.tmp) == []


def test_up_to_the_sample_it_is_exact_lru_whatever_shard_it_starts_with(directory, monkeypatch):
    keys = fill(directory, 100)
    for start in (0, 100, 255):
        monkeypatch.setattr("random.randrange", lambda stop, start=start: start)
        before = present(directory, keys)
        removed = evict_to_limit(directory, directory.usage().total_bytes() - 1)
        assert present(directory, keys) == before[removed.entries :]


def test_a_batch_of_a_sixteenth_is_added_so_that_the_next_puts_need_not_look(directory):
    fill(directory, 128)
    assert evict_to_limit(directory, 127 * 100).entries == 1 + 128 // 16


def test_of_few_entries_no_batch_is_removed_and_the_next_evictions_need_not_look(directory, monkeypatch):
    keys = fill(directory, 127)
    assert evict_to_limit(directory, 126 * 100).entries == 1
    with monkeypatch.context() as patched:
        patched.setattr("lockcache.filestream.eviction.evict.sample_entries", pytest.fail)
        for left in range(125, 126 - 127 // 16 - 1, -1):
            assert evict_to_limit(directory, left * 100) == Evicted(1, 100)
            assert present(directory, keys) == keys[-left:]
    left = len(present(directory, keys))
    assert evict_to_limit(directory, (left - 1) * 100).entries == 1, "and then it looks again"
    assert present(directory, keys) == keys[-left + 1 :]


@pytest.mark.parametrize("change", ["used", "replaced", "deleted", "pinned", "in another order"])
def test_what_goes_next_from_a_small_cache_stays_if_something_changed_since(directory, change):
    keys = fill(directory, 40)  # two of them would have been the batch
    assert evict_to_limit(directory, 39 * 100).entries == 1
    if change == "used":
        set_last_use(entry_path(directory.layout.root, keys[1]), 5000)
    elif change == "replaced":
        put(directory, keys[1], b"y" * 100)
        set_last_use(entry_path(directory.layout.root, keys[1]), 1001)
    elif change == "deleted":
        remove_entry(directory, entry_name(keys[1]), 1.0)
    elif change == "pinned":
        change_pins(directory, add=[entry_name(keys[1])])
    else:
        directory.policy.replace(Policy(priority="lru"))
    held = len(present(directory, keys))
    assert evict_to_limit(directory, (held - 1) * 100).entries == 1
    gone = {"used": keys[2], "pinned": keys[2], "deleted": keys[2]}.get(change, keys[1])
    assert gone not in present(directory, keys)
    assert len(present(directory, keys)) == held - 1


def test_what_one_process_would_remove_next_another_one_may_have_removed(directory):
    keys = fill(directory, 40)
    assert evict_to_limit(directory, 39 * 100).entries == 1
    assert evict_to_limit(open_directory(directory.layout.root), 37 * 100).entries == 2
    assert evict_to_limit(directory, 36 * 100) == Evicted(1, 100)
    assert present(directory, keys) == keys[4:]


def test_in_large_caches_only_a_sample_is_looked_at(directory):
    keys = fill(directory, 200)
    sample = sample_entries(directory.layout, sums_in(directory.usage().whole()).entries, 20)
    assert 20 <= len(sample) < 200
    assert {found.name for found in sample} <= {entry_name(key) for key in keys}
    # Whole shards: nobody is passed over for the order of a listing.
    shards = {found.name[:2] for found in sample}
    assert len(sample) == sum(entry_name(key)[:2] in shards for key in keys)


def test_it_stops_when_others_made_room_meanwhile(directory):
    keys = fill(directory, 10)
    victims = choose_victims(sample_entries(directory.layout, sums_in(directory.usage().whole()).entries, 4096), 500)
    assert len(victims) == 5
    assert remove_victims(directory, victims, Goal(1000)) == Evicted()
    assert remove_victims(directory, victims, Goal(799)).entries >= 1
    assert directory.usage().total_bytes() <= 799
    assert len(present(directory, keys)) >= 5


def test_nothing_is_evicted_from_a_cache_under_its_limit(directory):
    keys = fill(directory, 5)
    assert evict_to_limit(directory, 500) == Evicted()
    assert sweep(directory, Goal(500), lambda: False) == Evicted()
    assert present(directory, keys) == keys


@pytest.mark.parametrize("change", ["read", "rewritten", "deleted", "replaced by a directory"])
def test_who_was_used_changed_or_removed_since_it_was_chosen_stays(directory, change):
    keys = fill(directory, 3)
    path = entry_path(directory.layout.root, keys[0])
    victims = choose_victims(sample_entries(directory.layout, sums_in(directory.usage().whole()).entries, 4096), 100)
    if change == "read":
        set_last_use(path, 5000)
    elif change == "rewritten":
        put(directory, keys[0], b"y" * 100)
    else:
        os.unlink(path)
        directory.usage().add_locked(shard_of(keys[0]), -100, -1)
        if change == "replaced by a directory":
            os.mkdir(path)
    before = directory.usage().total()
    assert remove_victims(directory, victims, Goal(0)) == Evicted()
    assert directory.usage().total() == before == on_disk(directory.layout.root)


def test_a_busy_shard_is_passed_over_without_waiting(directory, monkeypatch):
    keys = fill(directory, 10)
    busy = ProcessLock(directory.layout.lock(shard_of(keys[0])), 1.0)
    with busy:
        monkeypatch.setattr(ProcessLock, "acquire", lambda *_: pytest.fail("waited for a lock"))
        removed = evict_to_limit(directory, 800)
    assert keys[0] in present(directory, keys)
    assert removed.entries >= 1
    assert directory.usage().total() == on_disk(directory.layout.root)
    busy.close()


def test_many_victims_of_one_shard_go_in_several_holds_of_its_lock(directory, monkeypatch):
    keys = keys_in_shard(9, 70)
    for key in keys:
        put(directory, key, b"x")
    lock, holds = directory.locks[9], []
    try_hold = ProcessLock.try_hold
    monkeypatch.setattr(ProcessLock, "try_hold", lambda self: (holds.append(self), try_hold(self))[1])
    assert evict_to_limit(directory, 0) == Evicted(70, 70)
    assert holds == [lock] * 3 + [directory.lock]  # the directory's, for its age


def test_a_sweep_is_exact_lru_without_a_batch_and_sees_what_nobody_accounted_for(directory):
    keys = fill(directory, 40)
    foreign = f"{directory.layout.entry_shard(3)}/{'0' * 62}"
    os.makedirs(os.path.dirname(foreign), exist_ok=True)
    with open(foreign, "wb") as file:
        file.write(b"x" * 100)
    set_last_use(foreign, 1)  # oldest of all, in no accounting
    assert "03" + "0" * 62 in {found.name for found in all_entries(directory.layout)}
    assert sweep(directory, Goal(3000), lambda: False) == Evicted(10, 1000)
    assert not os.path.exists(foreign)
    assert present(directory, keys) == keys[9:]


def test_a_sweep_that_is_told_to_stop_leaves_exact_accounting(directory):
    fill(directory, 100)
    asked = iter([False] * 300)
    sweep(directory, Goal(0), lambda: not next(asked, False) and next(asked, True))
    assert directory.usage().total() == on_disk(directory.layout.root)


def test_a_sweep_gets_down_to_whichever_of_bytes_and_entries_takes_more(directory):
    keys = fill(directory, 40)  # of 100 bytes
    assert sweep(directory, Goal(limit_entries=35), lambda: False) == Evicted(5, 500)
    assert sweep(directory, Goal(3400, 30), lambda: False) == Evicted(5, 500)
    assert sweep(directory, Goal(2000, 30), lambda: False) == Evicted(10, 1000)
    assert sweep(directory, Goal(), lambda: False) == Evicted()
    assert present(directory, keys) == keys[20:]


def price(directory, key, cost_ns, used_seconds):
    """An entry of 100 bytes that took so long to compile."""
    record = Record(100, 1, cost_ns, b"")
    writer = EntryWriter(directory, 5.0, fsync=False, use_record_files=False)
    assert writer.store(entry_name(key), b"x" * 100, record).outcome is Outcome.STORED
    set_last_use(entry_path(directory.layout.root, key), used_seconds)


def half_expensive(directory, count):
    """Store entries used at the same time, every second one expensive. Returns the keys of these and of the others."""
    used_seconds = time.time() - 1000
    keys = [b"%d" % number for number in range(count)]
    for number, key in enumerate(keys):
        price(directory, key, 10**10 if number % 2 else 10**7, used_seconds)
    return keys[1::2], keys[::2]


def test_by_value_a_writer_evicts_what_is_cheap_to_rebuild(directory):
    expensive, cheap = half_expensive(directory, 32)
    assert evict_to_limit(directory, 2000) == Evicted(12, 1200)
    assert present(directory, expensive) == expensive
    assert len(present(directory, cheap)) == 4
    assert directory.usage().total() == on_disk(directory.layout.root)


def test_by_value_a_sweep_evicts_what_is_cheap_to_rebuild_and_no_more_than_asked_for(directory):
    expensive, cheap = half_expensive(directory, 40)
    assert sweep(directory, Goal(2500), lambda: False, "value") == Evicted(15, 1500)
    assert present(directory, expensive) == expensive
    assert sweep(directory, Goal(limit_entries=15), lambda: False, "value") == Evicted(10, 1000)
    assert present(directory, cheap) == []
    assert len(present(directory, expensive)) == 15
    assert directory.usage().total() == on_disk(directory.layout.root)


def test_evictions_read_the_records_of_entries_that_none_has_read(directory, monkeypatch):
    half_expensive(directory, 32)
    read = []
    cost_ns = Prices.cost_ns
    monkeypatch.setattr(Prices, "cost_ns", lambda self, found: (read.append(found.name), cost_ns(self, found))[1])
    assert evict_to_limit(directory, 3000).entries == 2
    assert len(read) == 32
    for number in range(3):
        price(directory, b"new %d" % number, 10**9, 1000)
    other = open_directory(directory.layout.root)
    assert evict_to_limit(other, 2900).entries == 4
    assert {*read[32:]} == {entry_name(b"new %d" % number) for number in range(3)}
    other.close()


def test_an_entry_that_replaces_one_whose_record_was_read_is_worth_its_own_cost(directory):
    for number in range(32):
        price(directory, b"%d" % number, 10**9 if number else 1, 1000 + number)
    price(directory, b"in use", 1, time.time())
    evict_to_limit(directory, directory.usage().total_bytes() - 1)
    assert present(directory, [b"0", b"in use"]) == [b"in use"]
    price(directory, b"in use", 10**12, 1000)
    evict_to_limit(directory, 200)
    assert present(directory, [b"in use"]) == [b"in use"]


@pytest.mark.parametrize(
    "evict", [evict_to_limit, lambda directory, limit: sweep(directory, Goal(limit), lambda: False)]
)
def test_the_age_is_that_of_what_went_where_a_shard_was_busy(directory, evict):
    keys = [b"%d" % number for number in range(4)]
    for number, key in enumerate(keys):
        price(directory, key, 100 * 2**number, time.time() - 1000)
    busy = ProcessLock(directory.layout.lock(shard_of(keys[1])), 1.0)
    with busy:
        assert evict(directory, 200).entries == 1
    busy.close()
    assert present(directory, keys) == keys[1:]
    assert read_worth(directory.layout).ages.at(2**62) == 1.0


def test_a_sweep_tries_again_what_was_locked_and_leaves_what_stays_so(directory, monkeypatch):
    keys = fill(directory, 60)
    refused = []
    try_hold = ProcessLock.try_hold

    def refuse_first(lock):
        if lock.path not in refused:
            refused.append(lock.path)
            return None
        return try_hold(lock)

    monkeypatch.setattr(ProcessLock, "try_hold", refuse_first)
    assert sweep(directory, Goal(3000), lambda: False) == Evicted(30, 3000)
    assert present(directory, keys) == keys[30:]
    monkeypatch.setattr(ProcessLock, "try_hold", lambda _: None)
    assert sweep(directory, Goal(2000), lambda: False) == Evicted()


@pytest.mark.parametrize("change", ["read", "deleted"])
def test_one_that_stays_does_not_keep_the_others_of_its_shard(directory, change):
    keys = keys_in_shard(9, 5)
    for key in keys:
        put(directory, key, b"x")
    victims = choose_victims(sample_entries(directory.layout, sums_in(directory.usage().whole()).entries, 4096), 5)
    path = directory.layout.entry(victims[0].name)
    if change == "read":
        set_last_use(path, 5000)
    else:
        os.unlink(path)
        directory.usage().add_locked(9, -1, -1)
    assert remove_victims(directory, victims, Goal(0)) == Evicted(4, 4)
    assert directory.usage().total() == on_disk(directory.layout.root)


def test_a_sweep_is_asked_within_a_shard_too_whether_it_is_to_stop(cache_path):
    shard = cache_path / "entries" / "ff"
    shard.mkdir(parents=True)
    for number in range(5000):
        (shard / f"{number:062x}").write_bytes(b"x")
    directory, asked = open_directory(cache_path), []

    def should_stop(last):
        asked.append(1)
        return len(asked) > last

    plenty = sweep(directory, Goal(100_000), lambda: should_stop(10**9))
    assert plenty.entries == 0
    asked.clear()
    assert sweep(directory, Goal(10), lambda: should_stop(SHARDS + 3)) == Evicted()
    assert len(os.listdir(shard)) == 5000
    asked.clear()
    assert list(all_entries(directory.layout, lambda: should_stop(SHARDS + 1)))  # in the last shard
    assert len(asked) == SHARDS + 2
    directory.close()
