# SPDX-License-Identifier: Apache-2.0
"""A bundle below a directory: what is read from it, what is not read from it any more, and what it takes of the cap."""

from __future__ import annotations

import contextlib
import logging
import os
import pickle
from pathlib import Path

import pytest

from lockcache import FileStreamProgramCache
from lockcache.bundle import promote
from lockcache.filestream.bundle import SeededRecords
from lockcache.filestream.bundle_format import START_BYTES
from lockcache.filestream.disk.layout import Layout, entry_name
from lockcache.filestream.repair import reap
from lockcache.filestream.seed_marks import has_seed
from lockcache.filestream.seeding import attach_seed, detach_seed, largest_bundle_bytes
from tests.unit.bundle.bundles import bundle_of, write
from tests.unit.filestream.seeds import KEYS, OLDER, evict_all, make_due
from tests.unit.material import open_directory


@pytest.fixture
def cache(seeded: FileStreamProgramCache) -> FileStreamProgramCache:
    return seeded


def test_what_the_directory_does_not_have_is_read_from_the_seed(cache: FileStreamProgramCache) -> None:
    assert {key: cache[key] for key in KEYS} == OLDER
    assert cache.get_entry(KEYS[0]) is not None
    assert cache.get_or_compute(KEYS[1], lambda: pytest.fail("it is there")) == OLDER[KEYS[1]]
    assert cache.get(b"absent") is None
    assert len(cache) == len(KEYS)
    stats = cache.stats()
    assert (stats.hits, stats.misses, stats.entries) == (len(KEYS) + 2, 1, 0)


def test_a_file_that_is_away_afterwards_is_not_missed(cache: FileStreamProgramCache, bundle: Path) -> None:
    bundle.unlink()
    make_due(Path(cache.path))
    with FileStreamProgramCache(cache.path) as other, FileStreamProgramCache(cache.path, seed=bundle) as named:
        assert other[KEYS[0]] == named[KEYS[0]] == OLDER[KEYS[0]]


def test_what_was_stored_over_the_seed_and_evicted_is_read_from_the_seed(
    cache: FileStreamProgramCache, bundle: Path
) -> None:
    reader = FileStreamProgramCache(cache.path)
    cache[KEYS[0]] = b"newer"
    assert reader[KEYS[0]] == b"newer"
    evict_all(cache)
    for each in (reader, cache, FileStreamProgramCache(cache.path, seed=bundle)):
        assert {key: each[key] for key in KEYS} == OLDER
    assert len(cache) == len(KEYS)


def test_a_delete_counts_for_the_seed_too(cache: FileStreamProgramCache, bundle: Path) -> None:
    assert [cache[key] for key in KEYS] == [*OLDER.values()]
    cache[KEYS[0]] = b"newer"
    for key in KEYS[:2]:
        del cache[key]
        with pytest.raises(KeyError):
            del cache[key]
    for each in (cache, FileStreamProgramCache(cache.path, seed=bundle)):
        assert [each.get(key) for key in KEYS[:3]] == [None, None, OLDER[KEYS[2]]]


def test_a_process_that_knows_of_no_seed_counts_over_it(cache_path: Path, bundle: Path) -> None:
    unaware = FileStreamProgramCache(cache_path)
    with FileStreamProgramCache(cache_path, seed=bundle) as cache:
        unaware[KEYS[0]] = b"newer"
        assert cache[KEYS[0]] == b"newer"
        del unaware[KEYS[0]]
        assert cache.get(KEYS[0]) is None


def test_the_seed_is_asked_for_what_a_dropped_write_removed(cache_path: Path, bundle: Path) -> None:
    with FileStreamProgramCache(cache_path, seed=bundle, max_size_bytes=100_000) as cache:
        cache[KEYS[0]] = b"newer"
        cache[KEYS[0]] = bytes(200_000)
        assert cache.stats().dropped_writes == 1
        assert cache[KEYS[0]] == OLDER[KEYS[0]]


def test_the_seed_is_asked_for_what_is_damaged_in_the_directory(cache: FileStreamProgramCache) -> None:
    for key in (KEYS[0], b"absent"):
        cache[key] = b"newer"
        Path(Layout(cache.path).entry(entry_name(key))).write_bytes(b"Newer")
    assert cache[KEYS[0]] == OLDER[KEYS[0]]
    assert cache.get(b"absent") is None
    stats = cache.stats()
    assert (stats.corrupt_entries, stats.hits, stats.misses) == (2, 1, 1)


def test_a_damaged_entry_of_the_seed_is_a_miss(cache: FileStreamProgramCache) -> None:
    seed = Path(Layout(cache.path).seed)
    assert cache[KEYS[0]]
    content = bytearray(seed.read_bytes())
    for offset in range(START_BYTES, content.index(b"LCBTABLE") - 56 * 64):
        content[offset] ^= 1
    with open(seed, "r+b") as file:
        file.write(content)
    assert [cache.get(key) for key in KEYS] == [None] * len(KEYS)
    assert cache.stats().corrupt_entries == len(KEYS)
    cache[KEYS[0]] = b"compiled again"
    assert cache[KEYS[0]] == b"compiled again"


def test_clear_detaches_the_seed_until_the_file_is_another(
    cache: FileStreamProgramCache, cache_path: Path, bundle: Path
) -> None:
    others = [FileStreamProgramCache(cache_path), FileStreamProgramCache(cache_path, seed=bundle)]
    assert [each[KEYS[0]] for each in others] == [OLDER[KEYS[0]]] * 2
    cache.clear()
    assert not os.path.lexists(Layout(str(cache_path)).seed)
    for each in (cache, *others, FileStreamProgramCache(cache_path, seed=bundle)):
        assert each.get(KEYS[0]) is None
        assert len(each) == 0
    write(bundle, bundle_of({KEYS[0]: b"of another bundle"}))
    make_due(cache_path)
    with FileStreamProgramCache(cache_path, seed=bundle) as again:
        assert again[KEYS[0]] == b"of another bundle"


def test_a_bundle_that_was_replaced_is_copied_a_minute_later(
    cache: FileStreamProgramCache, cache_path: Path, bundle: Path
) -> None:
    del cache[KEYS[0]]
    assert cache[KEYS[1]] == OLDER[KEYS[1]]
    newer = {**{key: b"newer " + key for key in KEYS}, b"one more": b"more"}
    write(bundle, bundle_of(newer))
    assert FileStreamProgramCache(cache_path, seed=bundle)[KEYS[1]] == OLDER[KEYS[1]]
    make_due(cache_path)
    with FileStreamProgramCache(cache_path, seed=bundle) as reopened:
        assert reopened[b"one more"] == b"more"
        assert reopened[KEYS[1]] == newer[KEYS[1]]
        assert reopened[KEYS[0]] == newer[KEYS[0]], "what was deleted over the older one comes with a newer one"
        assert cache.get(KEYS[1]) == newer[KEYS[1]], (
            "who has the older one open reads nothing of it, and opens the newer"
        )
        reopened[KEYS[1]] = b"newest"
        assert cache[KEYS[1]] == b"newest"


def test_who_has_an_older_copy_open_finds_what_only_the_newer_one_has(
    cache: FileStreamProgramCache, cache_path: Path, bundle: Path
) -> None:
    assert (cache[KEYS[0]], len(cache)) == (OLDER[KEYS[0]], len(KEYS))
    counting = FileStreamProgramCache(cache_path)
    assert (counting[KEYS[0]], len(counting)) == (OLDER[KEYS[0]], len(KEYS))
    write(bundle, bundle_of({**OLDER, b"one more": b"more"}))
    make_due(cache_path)
    FileStreamProgramCache(cache_path, seed=bundle).close()
    assert cache[b"one more"] == b"more"
    assert len(counting) == len(KEYS) + 1
    detach_seed(open_directory(cache_path))
    assert (len(counting), cache.get(b"one more")) == (0, None)


def test_another_seed_takes_the_place_of_a_programs_and_not_of_an_operators(
    cache: FileStreamProgramCache, cache_path: Path, tmp_path: Path, bundle: Path, caplog: pytest.LogCaptureFixture
) -> None:
    other = write(tmp_path / "other.lcb", bundle_of({b"other": b"of the other"}))
    with FileStreamProgramCache(cache_path, seed=other) as now:
        assert (now[b"other"], now.get(KEYS[0])) == (b"of the other", None)
    attach_seed(open_directory(cache_path), str(bundle), None, is_signed=False, by_operator=True)
    with FileStreamProgramCache(cache_path, seed=other) as now:
        assert (now.get(b"other"), now[KEYS[0]]) == (None, OLDER[KEYS[0]])
    assert "an operator set it to" in caplog.text


def test_an_operator_attaches_again_what_clear_took_away(
    cache: FileStreamProgramCache, cache_path: Path, bundle: Path
) -> None:
    cache.clear()
    attach_seed(open_directory(cache_path), str(bundle), None, is_signed=False, by_operator=True)
    assert FileStreamProgramCache(cache_path)[KEYS[0]] == OLDER[KEYS[0]]


def test_it_counts_under_the_cap(cache_path: Path, tmp_path: Path) -> None:
    bundle = write(tmp_path / "large.lcb", bundle_of({b"%d" % number: os.urandom(10_000) for number in range(100)}))
    with FileStreamProgramCache(cache_path, max_size_bytes=6_000_000) as cache:
        for number in range(600):
            cache[b"own %d" % number] = os.urandom(9_000)
        before = cache.stats()
        with FileStreamProgramCache(cache_path, seed=bundle) as seeded:
            assert seeded[b"0"]
            evicted = seeded.stats().evictions
        assert 0 < evicted < before.entries / 2
        for number in range(300):
            cache[b"more %d" % number] = os.urandom(9_000)
            if number % 10 == 0:
                taken = sum(
                    file.stat().st_size for file in cache_path.rglob("*") if file.is_file() and file.name != "state"
                )
                assert taken <= 6_000_000


def test_what_is_more_than_half_of_the_cap_is_refused_or_goes(
    cache_path: Path, bundle: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with FileStreamProgramCache(cache_path, seed=bundle, max_size_bytes=bundle.stat().st_size) as cache:
        assert len(cache) == 0
        assert "more than half of the cap" in caplog.text
        cache[b"key"] = b"stored"
        assert cache[b"key"] == b"stored"
    with FileStreamProgramCache(cache_path, seed=bundle, max_size_bytes=10**6) as cache:
        assert cache[KEYS[0]] == OLDER[KEYS[0]]
    with FileStreamProgramCache(cache_path, max_size_bytes=bundle.stat().st_size) as cache:
        assert cache.get(KEYS[0]) is None
        cache[b"key"] = b"stored"
        assert cache[b"key"] == b"stored"


@pytest.mark.parametrize(
    "what", ["missing", "a directory", "no bundle", "cut", "others may write to it", "its table is damaged"]
)
def test_a_seed_that_cannot_be_had_is_a_line_in_the_log(
    cache_path: Path, bundle: Path, what: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "lockcache")
    content = bundle.read_bytes()
    {
        "missing": bundle.unlink,
        "a directory": lambda: (bundle.unlink(), bundle.mkdir()),
        "no bundle": lambda: bundle.write_bytes(b"text" * 100),
        "cut": lambda: bundle.write_bytes(content[:-1]),
        "others may write to it": lambda: bundle.chmod(0o666),
        "its table is damaged": lambda: bundle.write_bytes(content[:-80] + bytes(80 - 64) + content[-64:]),
    }[what]()
    with FileStreamProgramCache(cache_path, seed=bundle) as cache:
        assert cache.get(KEYS[0]) is None
        cache[KEYS[0]] = b"stored"
        assert cache[KEYS[0]] == b"stored"
    assert len([record for record in caplog.records if "seed" in record.getMessage()]) == 1
    assert not os.path.lexists(Layout(str(cache_path)).seed)
    assert os.listdir(cache_path / "tmp") == []


def test_a_network_file_system_takes_none(
    cache_path: Path, bundle: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("lockcache.filestream.disk.mounts.network_kind", lambda root: "lustre")
    with FileStreamProgramCache(cache_path, seed=bundle) as cache:
        assert cache.get(KEYS[0]) is None
    assert "on a network file system" in caplog.text


def test_who_may_only_read_reads_the_seed(cache: FileStreamProgramCache, cache_path: Path) -> None:
    del cache[KEYS[1]]
    with FileStreamProgramCache(cache_path, read_only=True) as golden:
        assert golden[KEYS[0]] == OLDER[KEYS[0]]
        assert golden.get(KEYS[1]) is None
        golden[KEYS[0]] = b"dropped"
        assert golden.get(KEYS[0]) is None, "not the older one, through the object that wrote"
    assert cache[KEYS[0]] == OLDER[KEYS[0]]


@pytest.mark.parametrize("is_made_again", [False, True])
def test_who_may_only_read_reads_the_seed_also_where_the_page_was_lost(
    cache: FileStreamProgramCache, cache_path: Path, is_made_again: bool
) -> None:
    cache.close()
    (cache_path / "lockcache/state").unlink()
    if is_made_again:
        FileStreamProgramCache(cache_path).close()
    with FileStreamProgramCache(cache_path, read_only=True) as golden:
        assert golden[KEYS[0]] == OLDER[KEYS[0]]


def test_variables_and_copies(cache_path: Path, bundle: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOCKCACHE_SEED", str(bundle))
    cache = FileStreamProgramCache(cache_path)
    assert cache[KEYS[0]] == pickle.loads(pickle.dumps(cache))[KEYS[0]] == OLDER[KEYS[0]]
    monkeypatch.setenv("LOCKCACHE_RECACHE", "1")
    assert FileStreamProgramCache(cache_path).get(KEYS[0]) is None
    monkeypatch.setenv("LOCKCACHE_DISABLE", "1")
    assert FileStreamProgramCache(cache_path).get(KEYS[0]) is None


def test_a_recount_and_a_reaper_leave_it_alone(cache: FileStreamProgramCache, cache_path: Path) -> None:
    assert cache.recount() == []
    reap(open_directory(cache_path))
    assert cache[KEYS[0]] == OLDER[KEYS[0]]
    detach_seed(open_directory(cache_path))
    assert cache.get(KEYS[0]) is None


def test_a_seed_that_went_for_a_small_cap_comes_back(cache_path: Path, tmp_path: Path) -> None:
    bundle = write(tmp_path / "large.lcb", bundle_of({b"%d" % number: os.urandom(10_000) for number in range(50)}))
    with FileStreamProgramCache(cache_path, seed=bundle, max_size_bytes="10M") as cache:
        assert cache[b"0"]
    with FileStreamProgramCache(cache_path, seed=bundle, max_size_bytes="600K") as cache:
        assert cache.get(b"0") is None
    write(bundle, bundle_of({b"0": b"smaller"}))
    make_due(cache_path)
    with FileStreamProgramCache(cache_path, seed=bundle, max_size_bytes="10M") as cache:
        assert cache[b"0"] == b"smaller"


@pytest.mark.parametrize("size_bytes", [0, 16, 3000])
def test_the_largest_bundle_is_one_that_a_directory_with_the_cap_takes(tmp_path: Path, size_bytes: int) -> None:
    cap = 400_000
    with FileStreamProgramCache(tmp_path / "filled") as filling:
        filling.update((b"%d" % number, bytes(size_bytes)) for number in range(1200))
    with FileStreamProgramCache(tmp_path / "node", max_size_bytes=cap):
        most = largest_bundle_bytes(Layout(str(tmp_path / "node")), cap)
    promote(Layout(str(tmp_path / "filled")), str(tmp_path / "k.lcb"), most)
    assert 0.5 * most < (tmp_path / "k.lcb").stat().st_size <= most
    with FileStreamProgramCache(tmp_path / "node", max_size_bytes=cap, seed=tmp_path / "k.lcb"):
        assert has_seed(Layout(str(tmp_path / "node")))


def test_who_inspects_sees_the_entries_that_only_the_seed_has(
    cache: FileStreamProgramCache, cache_path: Path, bundle: Path
) -> None:
    layout, names = Layout(str(cache_path)), {entry_name(key) for key in KEYS}
    cache[KEYS[0]] = b"newer"
    del cache[KEYS[1]]
    with contextlib.closing(SeededRecords(layout)) as seed:
        assert set(seed.names()) == names - {entry_name(KEYS[0]), entry_name(KEYS[1])}
        record, payload_bytes = seed.record(entry_name(KEYS[2]))
        assert (bool(record), payload_bytes) == (True, len(OLDER[KEYS[2]]))
        assert seed.record(entry_name(KEYS[1])) is None
    os.truncate(layout.seed, os.path.getsize(layout.seed) - 1)
    with pytest.raises(OSError, match="damaged"):
        SeededRecords(layout)


def test_an_entry_that_is_hidden_in_the_copy_has_one_byte_of_its_slot_changed(
    cache: FileStreamProgramCache, cache_path: Path, bundle: Path
) -> None:
    """As other versions of lockcache read it: the flag is behind name, offset and sizes."""
    del cache[KEYS[0]]
    before, after = bundle.read_bytes(), Path(Layout(str(cache_path)).seed).read_bytes()
    changed = [place for place, (old, new) in enumerate(zip(before, after, strict=True)) if old != new]
    assert changed == [before.rindex(bytes.fromhex(entry_name(KEYS[0]))) + 52]
