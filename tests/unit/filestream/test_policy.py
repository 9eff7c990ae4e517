# SPDX-License-Identifier: Apache-2.0
"""The directory's policy: whose cap counts, and when a change reaches whom."""

from __future__ import annotations

import gc
import os
import shutil
import struct
from pathlib import Path

import pytest
from xxhash import xxh3_64_intdigest

from lockcache import FileStreamProgramCache
from lockcache.filestream import admission
from lockcache.filestream.accounting import Head, StatedPolicy, decode_head, encode_head
from lockcache.filestream.disk.layout import Layout
from lockcache.filestream.disk.space import Space
from lockcache.filestream.inspect import accounted
from lockcache.filestream.policy import Policy, Seed
from tests.state_pages import damage, policy_of, set_policy, state_of
from tests.unit.material import on_disk, open_directory


@pytest.fixture
def make(cache_path):
    made = []

    def make(cap=None):
        made.append(FileStreamProgramCache(cache_path, max_size_bytes=cap))
        return made[-1]

    yield make
    for cache in made:
        cache.close()


def policy_file(cache) -> StatedPolicy:
    return cache._directory.policy


def test_the_last_opener_with_a_cap_wins_for_all(make):
    assert make().max_size_bytes is None
    one, other = make(1000), make(500)
    assert (one.max_size_bytes, other.max_size_bytes) == (500, 500)
    make()  # without a cap: no opinion
    assert (one.max_size_bytes, make().max_size_bytes, policy_of(one.path)) == (500, 500, Policy(500))


def test_a_cap_that_could_not_be_published_replaces_no_later_openers(make):
    first = make(1000)
    directory = first._directory
    for is_later, wins in ((False, 800), (True, 600)):
        policy_file(first).want(Policy(800))  # as an opener does while another process has the directory's lock
        assert first.max_size_bytes == 800
        if is_later:
            make(600)
        directory.policy.publish_wanted()
        assert (first.max_size_bytes, policy_of(first.path)) == (wins, Policy(wins))
        assert directory.policy.wanted is None
        directory.policy.replace(Policy(1000))


def test_a_cap_that_could_not_be_published_comes_before_a_default_one(make):
    cache = make()
    policy_file(cache).want(Policy(800))
    set_policy(cache.path, Policy(900, is_default=True))
    policy_file(cache).publish_wanted()
    assert policy_of(cache.path) == Policy(800)


def test_what_goes_first_is_the_directorys_and_stays_when_a_program_sets_a_cap(make):
    cache = make()
    assert cache._directory.policy.current().priority == "value"
    policy_file(cache).replace(Policy(None, priority="lru"))
    make(700)
    assert policy_file(cache).current() == Policy(700, by_operator=False, priority="lru")


@pytest.mark.parametrize("cap", [700, None])
def test_an_operators_cap_is_not_replaced_and_the_program_is_told(make, caplog, cap):
    cache = make()
    policy_file(cache).replace(Policy(cap, by_operator=True))
    assert make(100_000).max_size_bytes == cap
    assert f"an operator set it to {cap}" in caplog.text
    caplog.clear()
    assert make(cap).max_size_bytes == cap
    assert caplog.text == ""


def test_a_change_reaches_an_open_cache_at_its_next_write(make):
    cache = make()
    for key in "abcdef":
        cache[key] = b"x" * 100
    policy_file(cache).replace(Policy(250))
    assert len(cache) == 6
    cache["g"] = b"x" * 100
    assert on_disk(cache.path).bytes <= 250
    assert cache["g"] == b"x" * 100
    policy_file(cache).replace(Policy(None))
    for key in "abcdef":
        cache[key] = b"x" * 100
    assert len(cache) == 7


def test_opening_with_a_smaller_cap_evicts_down_to_it(make):
    cache = make()
    for key in "abcdef":
        cache[key] = b"x" * 100
    smaller = make(300)
    assert on_disk(cache.path).bytes <= 300
    assert smaller["f"] == b"x" * 100
    assert smaller.stats().evictions == 3


def test_a_page_that_is_damaged_or_deleted_later_leaves_the_last_good_policy_in_force(make, caplog):
    cache = make(250)
    damage(cache.path)
    for key in "abcdef":
        cache[key] = b"x" * 100
    assert cache.max_size_bytes == 250
    assert on_disk(cache.path).bytes <= 250
    assert len([record for record in caplog.records if "damaged" in record.message]) == 1  # once, not per write
    state_of(cache.path).unlink()
    assert cache.max_size_bytes == 250
    cache["g"] = b"x" * 100
    assert policy_of(cache.path) == Policy(250)


def test_setting_a_policy_repairs_a_damaged_head(make):
    cache = make(250)
    cache["k"] = b"x" * 100
    damage(cache.path)
    policy_file(cache).replace(Policy(500))
    assert policy_of(cache.path) == Policy(500)
    assert accounted(Layout(cache.path)) is not None


def test_a_process_that_knows_the_policy_restores_it_in_a_page_that_another_one_made(make):
    knows = make(700)
    shutil.rmtree(knows.path)
    assert make().max_size_bytes is None
    knows["k"] = b"code"
    assert policy_of(knows.path) == Policy(700)


def test_a_cap_that_an_operator_lifted_is_not_restored_by_a_process_that_knew_it(make):
    knows = make(700)
    knows.close()
    set_policy(knows.path, Policy(None))
    knows["k"] = bytes(1000)
    assert policy_of(knows.path) == Policy(None)


@pytest.mark.parametrize("cap", [None, 1, 100_000, 4 * 2**20 - 1])
def test_small_caps_are_the_entries_alone(cap):
    assert Policy(cap).entries_limit_bytes(Space(4096)) == cap


@pytest.mark.parametrize("cap", [8 * 2**20, 10**9, 2**63 - 1])
def test_of_larger_caps_the_directorys_own_files_take_a_small_part(cap):
    assert 0.96 * cap < Policy(cap).entries_limit_bytes(Space(4096)) < cap


def test_where_inodes_count_those_of_lock_files_and_folders_are_set_aside():
    limit, usual = (Policy(64 * 2**20).entries_limit_bytes(Space(4096, inode, True)) for inode in (512, 0))
    assert usual - limit >= (257 + 256) * 512


def test_the_environment_states_the_cap_for_a_program_that_states_none(make, monkeypatch):
    monkeypatch.setenv("LOCKCACHE_MAX_SIZE", "50M")
    monkeypatch.setenv("LOCKCACHE_POLICY", "cost")
    assert make().max_size_bytes == 50_000_000
    assert policy_file(make()).load() == Policy(50_000_000, priority="value")
    assert make(70_000_000).max_size_bytes == 70_000_000
    policy_file(make()).replace(Policy(20_000_000, by_operator=True))
    assert policy_file(make()).load() == Policy(20_000_000, by_operator=True)


def test_a_program_does_not_change_back_what_is_evicted_first(make, monkeypatch):
    policy_file(make()).replace(Policy(priority="lru"))
    monkeypatch.setenv("LOCKCACHE_POLICY", "value")
    assert policy_file(make()).load().priority == "lru"


def test_an_operators_value_is_not_taken_for_nothing_said(make, monkeypatch):
    policy_file(make()).replace(Policy(states_priority=True))
    monkeypatch.setenv("LOCKCACHE_POLICY", "lru")
    assert policy_file(make(500)).current() == Policy(500, priority="value")
    policy_file(make()).replace(Policy())
    assert policy_file(make()).current().priority == "lru"


@pytest.mark.parametrize(
    "code, states, priority",
    [(0, False, "value"), (0, True, "lru"), (1, False, "value"), (1, True, "value"), (2, False, "lru")],
)
def test_heads_that_were_written_while_lru_was_the_default_and_cost_the_other_one_stay_valid(code, states, priority):
    head = bytearray(encode_head(Head(1, Space(4096), Policy(10**6, priority="value", states_priority=states))))
    assert head[24] == 1
    head[24] = code
    head[504:512] = struct.pack("<Q", xxh3_64_intdigest(bytes(head[:504])))
    assert decode_head(bytes(head)).policy == Policy(10**6, priority=priority)


@pytest.fixture
def default_path(tmp_path, monkeypatch) -> Path:
    monkeypatch.delenv("LOCKCACHE_DIR", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path / "lockcache"


def test_the_default_directory_has_a_cap_from_its_making_on(default_path):
    with FileStreamProgramCache() as cache:
        assert policy_file(cache).load() == Policy(10 * 10**9, is_default=True)
    with FileStreamProgramCache(default_path, max_size_bytes=5_000_000) as cache:
        assert policy_file(cache).load() == Policy(5_000_000)


def test_a_default_directory_that_is_deleted_underneath_keeps_the_cap_that_it_had(default_path):
    with FileStreamProgramCache(max_size_bytes=5_000_000) as cache:
        shutil.rmtree(default_path)
        cache[b"key"] = b"value"
        assert policy_file(cache).load() == Policy(5_000_000)


def test_an_opening_evicts_what_one_that_was_interrupted_left_over_its_lower_cap(make, monkeypatch):
    cache = make(1 << 20)
    for number in range(10):
        cache[b"%d" % number] = bytes(20_000)

    def interrupt(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(admission, "evict_to_policy", interrupt)
        with pytest.raises(KeyboardInterrupt):
            make(100_000)
    assert make(100_000).stats().bytes <= 100_000


def test_beside_a_seed_and_what_others_left_a_quarter_of_the_rest_is_for_entries() -> None:
    seed = Seed("/seed", 50_000, "1")
    assert Policy(100_000, seed=seed, others_bytes=10**9).entries_limit_bytes(Space(1, 0, shows_blocks=False)) == 12_500


def test_a_policy_is_synced_when_it_is_stated_and_is_known_after_its_directory_is_gone(make, cache_path, monkeypatch):
    make()
    synced = []
    directory = open_directory(cache_path)
    policy, real = directory.policy, os.fsync
    monkeypatch.setattr(os, "fsync", lambda fd: (synced.append(os.fstat(fd).st_ino), real(fd)))
    policy.replace(Policy(5000, by_operator=True))
    assert synced == [os.stat(directory.layout.state).st_ino]
    directory.close()
    del directory
    gc.collect()
    assert policy.current().max_size_bytes == 5000


def test_a_seed_whose_path_the_head_has_no_room_for_is_refused_and_changes_nothing(make, cache_path):
    make(5000)
    directory = open_directory(cache_path)
    policy = directory.policy
    with pytest.raises(OSError, match="no room for the path of this seed"):
        policy.replace_seed(Seed("/" + "s" * 2200, 5, "1.2"))
    assert (policy.current().max_size_bytes, policy.current().seed) == (5000, None)
    policy.replace_seed(Seed("/" + "s" * 1500, 5, "1.2"))
    assert policy.current().seed == Seed("/" + "s" * 1500, 5, "1.2")
