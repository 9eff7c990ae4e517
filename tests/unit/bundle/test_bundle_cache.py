# SPDX-License-Identifier: Apache-2.0
"""BundleProgramCache as its callers see it: reads as any cache, and drops what is written."""

from __future__ import annotations

import logging
import multiprocessing
import pickle
from typing import Any

import pytest

from lockcache import BundleProgramCache, Entry, FileStreamProgramCache, InMemoryProgramCache, TieredProgramCache, Turn
from tests.unit.bundle.bundles import bundle_of, made_of, write


@pytest.fixture
def path(tmp_path):
    return write(tmp_path / "kernels.lcb", bundle_of({b"k": b"code", b"other": b"more"}))


@pytest.fixture
def cache(path):
    with BundleProgramCache(path) as cache:
        yield cache


def test_it_reads_as_any_cache(cache):
    assert (cache[b"k"], cache["k"], cache.get(b"no", 7), len(cache)) == (b"code", b"code", 7, 2)
    with pytest.raises(KeyError):
        cache[b"no"]
    stats = cache.stats()
    assert (stats.hits, stats.misses, stats.entries) == (2, 2, 2)


def test_a_write_is_dropped_and_what_it_would_have_replaced_is_not_read_any_more(cache, path, caplog):
    with caplog.at_level(logging.WARNING):
        cache[b"k"] = b"newer"
        cache.put_entry(b"new", Entry(b"newer"))
    assert (cache.get(b"k"), cache.get(b"new"), cache.get(b"other")) == (None, None, b"more")
    assert cache.stats().dropped_writes == 2
    assert len(caplog.records) == 1
    assert BundleProgramCache(path).get(b"k") == b"code"


def test_writes_of_other_keys_than_the_bundles_take_no_memory(cache):
    for number in range(100):
        cache[b"new %d" % number] = b"newer"
    cache[b"k"] = b"newer"
    assert len(cache._hidden) == 1


def test_what_was_replaced_while_the_file_was_away_is_not_read_any_more(cache, path):
    cache.close()
    path.rename(path.with_name("away"))
    cache[b"k"] = b"newer"
    path.with_name("away").rename(path)
    assert (cache.get(b"k"), cache.get(b"other")) == (None, b"more")


def test_what_is_missing_is_computed_and_nobody_is_waited_for(cache):
    assert cache.get_or_compute(b"k", lambda: b"not called") == b"code"
    assert cache.get_or_compute(b"new", lambda: b"computed") == b"computed"
    assert isinstance(cache.begin(b"new"), Turn)
    assert isinstance(cache.begin(b"new"), Turn)
    assert cache.wait(b"new", 3600) is None


def test_nothing_is_removed(cache):
    with pytest.raises(PermissionError, match="never changed"):
        del cache[b"k"]
    with pytest.raises(PermissionError, match="never changed"):
        cache.clear()


@pytest.mark.parametrize("arguments", [(3, b"x"), (b"k", 3)])
def test_what_no_cache_takes_is_refused(cache, arguments):
    with pytest.raises(TypeError):
        cache[arguments[0]] = arguments[1]


def test_a_copy_reads_the_same_file(cache):
    copy = pickle.loads(pickle.dumps(cache))
    assert (copy.path, copy[b"k"]) == (cache.path, b"code")


def _read(cache, queue):
    queue.put([cache[b"k"] for _ in range(100)])


def test_forked_children_and_their_parent_read_at_once(cache):
    context = multiprocessing.get_context("fork")
    queue = context.Queue()
    children = [context.Process(target=_read, args=(cache, queue)) for _ in range(4)]
    for child in children:
        child.start()
    assert cache[b"k"] == b"code"
    assert [set(queue.get(timeout=60)) for _ in children] == [{b"code"}] * 4
    for child in children:
        child.join()


@pytest.mark.parametrize("variable", ["LOCKCACHE_DISABLE", "LOCKCACHE_RECACHE"])
def test_the_switches_hide_it(path, monkeypatch, variable):
    monkeypatch.setenv(variable, "1")
    assert BundleProgramCache(path).get(b"k") is None


@pytest.mark.parametrize("place", [0, 1])
def test_it_can_be_no_tier_in_front_of_one_that_is_written(cache, place):
    tiers: list[Any] = [InMemoryProgramCache(), InMemoryProgramCache()]
    tiers.insert(place, cache)
    with pytest.raises(TypeError, match=rf"tiers\[{place}\] is a BundleProgramCache.*behind the caches that do"):
        TieredProgramCache(*tiers)
    with pytest.raises(TypeError, match="never changes"):
        TieredProgramCache(cache)


def test_as_a_tier_behind_others_it_is_asked_for_what_they_lack(path, tmp_path, caplog):
    memory, bundle = InMemoryProgramCache(), BundleProgramCache(path)
    with FileStreamProgramCache(tmp_path / "cache") as mine, TieredProgramCache(memory, mine, bundle) as tiers:
        assert tiers.get_or_compute("k", lambda: pytest.fail("computed")) == memory["k"] == mine["k"] == b"code"
        assert tiers.get_or_compute("new", lambda: b"compiled") == mine["new"] == b"compiled"
        tiers["other"] = b"newer"
        del memory["other"], mine["other"]
        assert tiers.get("other") == b"more", "the bundle is asked for what they lack"
        with pytest.raises(PermissionError, match="never changed"):
            del tiers["k"]
        assert (tiers.stats().dropped_writes, bundle.stats().dropped_writes) == (0, 0)
    assert not caplog.records


def test_a_damaged_bundle_is_one_warning_and_misses(path, caplog):
    write(path, path.read_bytes()[:-1])
    with caplog.at_level(logging.WARNING), BundleProgramCache(path) as cache:
        assert (cache.get(b"k"), cache.get(b"other"), len(cache)) == (None, None, 0)
    assert ["every lookup misses" in record.message for record in caplog.records] == [True]


def test_record_files_and_signatures_go_into_the_bundle(tmp_path, monkeypatch):
    write(tmp_path / "keys", b"5a" * 32)
    monkeypatch.setenv("LOCKCACHE_SIGNING_KEY_FILE", str(tmp_path / "keys"))
    long_metadata = {"symbol_mapping": {f"kernel{number}": "x" * 50 for number in range(500)}}
    with FileStreamProgramCache(tmp_path / "cache", record_files=True) as cache:
        cache.put_entry(b"k", Entry(b"code", long_metadata))
        made_of(tmp_path / "cache", tmp_path / "signed")
        assert BundleProgramCache(tmp_path / "signed").get_entry(b"k") == cache.get_entry(b"k")
    # Without keys nobody can tell whether it is what was signed.
    assert BundleProgramCache(tmp_path / "signed", signing_key_file=False).get(b"k") is None
