# SPDX-License-Identifier: Apache-2.0
"""Pins: no eviction chooses what is pinned, half of the cap at most, and any file of pins is harmless."""

from __future__ import annotations

import os

import pytest
from hypothesis import given, strategies as st

from lockcache import FileStreamProgramCache
from lockcache.filestream.disk import entry_name
from lockcache.filestream.eviction import (
    MOST_PINS,
    Goal,
    TooManyPinsError,
    change_pins,
    choose_of_all,
    pinned_sizes,
    protected,
    stated_limit_bytes,
    sweep,
    unpinned,
)
from lockcache.filestream.eviction.choose import Need
from lockcache.filestream.policy import PRIORITIES, Policy, Seed
from lockcache_daemon.signals import StopSignals
from lockcache_daemon.stores.views import view_lockcache
from tests.unit.material import on_disk, property_test

KEYS = [b"%d" % number for number in range(20)]


@pytest.fixture
def cache(cache_path):
    with FileStreamProgramCache(cache_path, max_size_bytes=2000) as cache:
        for key in KEYS:
            cache[key] = bytes(100)
        yield cache


def names(*keys: bytes) -> list[str]:
    return [*map(entry_name, keys)]


def is_there(cache: FileStreamProgramCache, key: bytes) -> bool:
    return os.path.exists(cache._directory.layout.entry(entry_name(key)))


@pytest.mark.parametrize("priority", PRIORITIES)
def test_neither_a_writer_nor_a_sweep_chooses_what_is_pinned(cache, priority):
    directory = cache._directory
    directory.policy.replace(Policy(2000, priority=priority))
    pinned = KEYS[:5]
    assert change_pins(directory, add=names(*pinned)) == names(*pinned)
    for number in range(60):
        cache[b"new %d" % number] = bytes(100)
    assert all(is_there(cache, key) for key in pinned)
    assert on_disk(cache.path).bytes <= 2000
    sweep(directory, Goal(limit_entries=7), lambda: False, priority)
    assert all(is_there(cache, key) for key in pinned)
    assert on_disk(cache.path).entries == 7
    chosen = choose_of_all(directory.layout, Need(10**9), lambda: False, priority)
    assert len(chosen) == 2
    assert not {found.name for found in chosen}.intersection(names(*pinned))


def test_more_than_half_of_the_cap_is_refused_and_changes_nothing(cache):
    directory = cache._directory
    change_pins(directory, add=names(*KEYS[:10]))
    with pytest.raises(TooManyPinsError, match=r"would take 1,100 bytes, and may take half of the cap, 1,000"):
        change_pins(directory, add=names(KEYS[10]))
    assert [pin.name for pin in pinned_sizes(directory.layout)] == names(*KEYS[:10])
    assert change_pins(directory, add=names(KEYS[0])) == []  # it is pinned
    assert change_pins(directory, remove=names(KEYS[1], b"absent")) == names(KEYS[1])
    assert change_pins(directory, add=names(KEYS[10])) == names(KEYS[10])
    directory.policy.replace(Policy(None))
    with pytest.raises(TooManyPinsError, match="more than the 1023"):
        change_pins(directory, add=[f"{number:064x}" for number in range(MOST_PINS)])


def test_under_a_cap_that_is_lowered_the_first_pins_keep_half_and_the_cap_holds(cache):
    change_pins(cache._directory, add=names(*KEYS[:10]))
    cache._directory.policy.replace(Policy(1000))
    cache[b"new"] = bytes(100)
    assert on_disk(cache.path).bytes <= 1000
    assert all(is_there(cache, key) for key in KEYS[:5])
    assert protected(cache._directory.layout, 1000) >= {*names(*KEYS[:5])}
    assert protected(cache._directory.layout, None) == {*names(*KEYS[:10])}


def test_what_is_replaced_stays_pinned_and_what_was_deleted_is_pinned_when_it_is_stored_again(cache):
    change_pins(cache._directory, add=names(*KEYS[:2]))
    cache[KEYS[0]] = bytes(200)
    del cache[KEYS[1]]
    assert [pin.size_bytes for pin in pinned_sizes(cache._directory.layout)] == [200, 0]
    cache[KEYS[1]] = bytes(50)
    for number in range(60):
        cache[b"new %d" % number] = bytes(100)
    assert is_there(cache, KEYS[0])
    assert is_there(cache, KEYS[1])


def test_clear_and_del_go_by_what_they_are_told(cache):
    change_pins(cache._directory, add=names(*KEYS[:2]))
    del cache[KEYS[0]]
    cache.clear()
    assert len(cache) == 0


@pytest.mark.long
@property_test
@given(st.binary(max_size=500), st.booleans())
def test_any_bytes_in_its_place_are_harmless(tmp_path_factory, blob, has_magic):
    root = tmp_path_factory.mktemp("cache") / "c"
    with FileStreamProgramCache(root, max_size_bytes=1000) as cache:
        for key in KEYS[:4]:
            cache[key] = bytes(100)
        layout = cache._directory.layout
        with open(layout.pins, "wb") as file:
            file.write(
                (b"lockcache pins 1" if has_magic else b"") + blob + b"".join(map(bytes.fromhex, names(*KEYS[:4])))
            )
        for number in range(8):
            cache[b"new %d" % number] = bytes(100)
            assert on_disk(cache.path).bytes <= 1000
            assert cache.get(b"new %d" % number) == bytes(100)
        assert len(pinned_sizes(layout)) <= 20


@pytest.mark.parametrize("kind", ["symlink", "folder", "huge", "unreadable"])
def test_what_cannot_be_a_file_of_pins_protects_nothing(cache, tmp_path, kind):
    layout = cache._directory.layout
    other = tmp_path / "other"
    other.write_bytes(b"lockcache pins 1" + bytes.fromhex(entry_name(KEYS[0])))
    if kind == "symlink":
        os.symlink(other, layout.pins)
    elif kind == "folder":
        os.mkdir(layout.pins)
    elif kind == "huge":
        with open(layout.pins, "wb") as file:
            file.truncate(1 << 40)
    else:
        os.mkfifo(layout.pins)
    assert protected(layout, None) == frozenset()
    assert len([*unpinned(layout, [], 10)]) == 0
    cache[b"new"] = bytes(100)
    assert cache[b"new"] == bytes(100)


def test_of_what_others_files_leave_pins_keep_half_so_that_programs_store_at_once(cache_path):
    with FileStreamProgramCache(cache_path, max_size_bytes=2000, lock_timeout_seconds=0.5) as cache:
        for key in KEYS:
            cache[key] = bytes(50)
        change_pins(cache._directory, add=names(*KEYS[:19]))
        with open(f"{cache.path}/tmp/of-cuda-core", "wb") as other:
            other.write(bytes(1500))
        for number in range(30):
            cache[b"new %d" % number] = bytes(50)
            assert is_there(cache, b"new %d" % number)
        assert 0 < sum(is_there(cache, key) for key in KEYS[:19]) < 19


def test_what_cannot_fit_beside_the_pins_is_refused_before_all_else_goes_for_it(cache):
    change_pins(cache._directory, add=names(*KEYS[:8]))
    cache[b"large"] = bytes(1500)
    assert cache.stats().evictions == 0
    assert not is_there(cache, b"large")
    assert sum(is_there(cache, key) for key in KEYS) >= 18
    assert cache.stats().dropped_writes == 1
    cache[b"fits"] = bytes(1000)
    assert is_there(cache, b"fits")


def test_below_a_seed_all_who_evict_spare_the_same_half_of_the_rest(cache):
    directory = cache._directory
    change_pins(directory, add=names(*KEYS[:9]))
    directory.policy.replace_seed(Seed("/golden.lcb", 1000, "1"))
    layout, limit = directory.layout, directory.limit_bytes()
    assert limit == stated_limit_bytes(layout) < 2000
    kept = protected(layout, limit)
    assert 0 < len(kept) < 9  # as half of the cap, all were
    everything = {entry_name(key) for key in KEYS}
    with StopSignals() as stop:
        assert {found.name for found in view_lockcache(cache.path, stop).entries()} == everything - kept
    assert {found.name for found in choose_of_all(layout, Need(0, len(KEYS)), lambda: False)} == everything - kept
    sweep(directory, Goal(limit_entries=0), lambda: False)
    assert {name for name in everything if os.path.exists(layout.entry(name))} == kept
