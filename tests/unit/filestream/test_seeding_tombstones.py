"""Seeds that come and go: what was not served of one is not served of the next, and what was cleared stays away."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from lockcache import FileStreamProgramCache
from lockcache.bundle import promote
from lockcache.filestream.disk.layout import Layout
from lockcache.filestream.seed_marks import has_seed
from lockcache.filestream.seeding import attach_seed, detach_seed, largest_bundle_bytes
from lockcache.filestream.seeding.tombstones import Tombstones, read_tombstones, write_tombstones
from tests.unit.bundle.bundles import bundle_of, write
from tests.unit.filestream.seeds import KEYS, OLDER, evict_all, make_due
from tests.unit.material import open_directory

PAD = os.urandom(50_000)


@pytest.fixture
def other(tmp_path: Path) -> Path:
    """A bundle that has nothing of the first one."""
    return write(tmp_path / "other.lcb", bundle_of({b"other": b"of the other"}))


def _attach(path: Path, bundle: Path, cap: int | None = None) -> FileStreamProgramCache:
    """Attaches a bundle as a program does, a minute after the last one."""
    make_due(path)
    return FileStreamProgramCache(path, seed=bundle, max_size_bytes=cap)


def _attach_as_operator(path: Path, bundle: Path) -> None:
    attach_seed(open_directory(path), str(bundle), None, is_signed=False, by_operator=True)


def test_another_seed_in_between_brings_nothing_older_back(
    seeded: FileStreamProgramCache, cache_path: Path, bundle: Path, other: Path
) -> None:
    seeded[KEYS[0]] = b"newer"
    del seeded[KEYS[0]], seeded[KEYS[1]]
    for _ in range(2):
        assert _attach(cache_path, other)[b"other"]
        with _attach(cache_path, bundle) as cache:
            assert [cache.get(key) for key in KEYS[:3]] == [None, None, OLDER[KEYS[2]]]
            assert seeded.get(KEYS[0]) is None


def test_what_was_stored_over_a_seed_and_goes_after_it_counts_over_the_next_one(
    seeded: FileStreamProgramCache, cache_path: Path, bundle: Path, other: Path
) -> None:
    seeded[KEYS[0]] = b"newer"
    assert _attach(cache_path, other)[KEYS[0]] == b"newer"
    evict_all(seeded)
    with _attach(cache_path, bundle) as cache:
        assert (cache.get(KEYS[0]), cache[KEYS[1]]) == (None, OLDER[KEYS[1]])


def test_a_version_that_lacks_an_entry_brings_no_older_one_back(
    seeded: FileStreamProgramCache, cache_path: Path, bundle: Path
) -> None:
    del seeded[KEYS[0]]
    write(bundle, bundle_of({KEYS[1]: b"1"}))
    assert _attach(cache_path, bundle)[KEYS[1]] == b"1"
    write(bundle, bundle_of({**OLDER, b"more": b"more"}))
    with _attach(cache_path, bundle) as cache:
        assert (cache.get(KEYS[0]), cache[b"more"]) == (None, b"more")
        assert len(cache) == len(KEYS)


def test_a_seed_that_went_for_a_small_cap_comes_back_as_it_went(cache_path: Path, tmp_path: Path) -> None:
    bundle = write(tmp_path / "large.lcb", bundle_of({**OLDER, b"pad": PAD}))
    with _attach(cache_path, bundle, 10**6) as cache:
        cache[KEYS[0]] = b"newer"
        del cache[KEYS[1]]
    with _attach(cache_path, bundle, 60_000) as cache:
        assert not os.path.lexists(Layout(str(cache_path)).seed)
        evict_all(cache)
    write(bundle, bundle_of({**OLDER, b"pad": PAD, b"more": b"more"}))
    with _attach(cache_path, bundle, 10**6) as cache:
        assert [cache.get(key) for key in (*KEYS[:3], b"more")] == [None, None, OLDER[KEYS[2]], b"more"]


def test_what_was_cleared_stays_away_whatever_seed_comes_in_between(
    seeded: FileStreamProgramCache, cache_path: Path, bundle: Path, other: Path
) -> None:
    seeded.clear()
    for _ in range(2):
        assert _attach(cache_path, other)[b"other"]
        with _attach(cache_path, bundle) as cache:
            assert (cache.get(KEYS[0]), cache[b"other"]) == (None, b"of the other")
    write(bundle, bundle_of({KEYS[0]: b"of another bundle"}))
    assert _attach(cache_path, bundle)[KEYS[0]] == b"of another bundle"


def test_an_operator_begins_again_where_there_is_none(
    seeded: FileStreamProgramCache, cache_path: Path, bundle: Path, other: Path
) -> None:
    del seeded[KEYS[0]]
    seeded.clear()
    _attach(cache_path, other).close()
    _attach_as_operator(cache_path, bundle)
    with FileStreamProgramCache(cache_path) as cache:
        assert (cache.get(KEYS[0]), cache[KEYS[1]]) == (None, OLDER[KEYS[1]])
    detach_seed(open_directory(cache_path))
    _attach_as_operator(cache_path, bundle)
    assert FileStreamProgramCache(cache_path)[KEYS[0]] == OLDER[KEYS[0]]
    os.unlink(Layout(str(cache_path)).seed)
    with _attach(cache_path, bundle) as cache:
        assert cache[KEYS[0]] == OLDER[KEYS[0]], "it is not taken for one that was cleared"


def _fill(path: Path) -> None:
    """Leaves no block of the disk."""
    with open(path, "wb", buffering=0) as file, contextlib.suppress(OSError):
        while True:
            file.write(bytes(4096))


@pytest.mark.parametrize("what", ["cut", "altered", "empty", "too large", "a folder", "too many names"])
def test_where_the_past_is_not_known_there_is_no_seed(
    seeded: FileStreamProgramCache,
    cache_path: Path,
    bundle: Path,
    other: Path,
    what: str,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    if what == "too many names":
        monkeypatch.setattr("lockcache.filestream.seeding.tombstones._MOST_NAMES", 0)
    del seeded[KEYS[0]]
    _attach(cache_path, other).close()
    file = Path(Layout(str(cache_path)).seed_past)
    content = file.read_bytes()
    if what == "a folder":
        file.unlink()
        file.mkdir()
    elif what != "too many names":
        altered = {
            "cut": content[:-1],
            "altered": content[:-1] + b"\0",
            "empty": b"",
            "too large": content + bytes(2**21),
        }
        file.write_bytes(altered[what])
    with _attach(cache_path, bundle) as cache:
        assert (cache.get(KEYS[0]), cache.get(KEYS[1]), cache[b"other"]) == (None, None, b"of the other")
        assert "the seed that it has stays" in caplog.text
        cache.clear()
    with _attach(cache_path, bundle) as cache:
        assert len(cache) == 0
    if what != "a folder":
        _attach_as_operator(cache_path, bundle)
        assert FileStreamProgramCache(cache_path)[KEYS[0]] == OLDER[KEYS[0]]


def test_of_files_that_were_cleared_the_latest_are_known(cache_path: Path, tmp_path: Path) -> None:
    FileStreamProgramCache(cache_path).close()
    bundles = [write(tmp_path / f"{number}.lcb", bundle_of({b"k": b"%d" % number})) for number in range(20)]
    for bundle in bundles:
        _attach(cache_path, bundle).clear()
    assert [_attach(cache_path, bundle).get(b"k") for bundle in bundles[4:]] == [None] * 16
    assert _attach(cache_path, bundles[0])[b"k"] == b"0"
    assert os.path.getsize(Layout(str(cache_path)).seed_past) == 32 + 16 * 32


def test_the_past_is_what_was_written(cache_path: Path) -> None:
    layout = Layout(str(cache_path))
    FileStreamProgramCache(cache_path).close()
    assert read_tombstones(layout) == Tombstones()
    tombstones = Tombstones(frozenset(f"{number:064x}" for number in range(100)), (b"1" * 32, b"2" * 32))
    write_tombstones(layout, tombstones)
    assert read_tombstones(layout) == tombstones


def test_what_a_seed_leaves_counts_under_the_cap(cache_path: Path, bundle: Path, other: Path) -> None:
    with FileStreamProgramCache(cache_path, seed=bundle) as cache:
        for key in KEYS:
            del cache[key]
    for step in (lambda: _attach(cache_path, other).close(), lambda: detach_seed(open_directory(cache_path))):
        step()
        seed = open_directory(cache_path).policy.current().seed
        files = [Layout(str(cache_path)).seed, Layout(str(cache_path)).seed_past]
        assert seed is not None
        assert seed.bytes >= sum(os.path.getsize(file) for file in files if os.path.exists(file)) > 20 * 32


def test_what_a_seed_left_does_not_shut_a_small_cap(seeded: FileStreamProgramCache, cache_path: Path) -> None:
    seeded.clear()
    assert os.path.getsize(Layout(str(cache_path)).seed_past) > 50
    with FileStreamProgramCache(cache_path, max_size_bytes=100) as cache:
        cache[b"own"] = bytes(60)
        assert cache[b"own"] == bytes(60)


@pytest.mark.root
def test_clear_removes_everything_on_a_full_disk(mount_tmpfs: Callable[[str], Path], tmp_path: Path) -> None:
    bundle = write(tmp_path / "kernels.lcb", bundle_of(OLDER))
    disk = mount_tmpfs("size=4m")
    with FileStreamProgramCache(disk / "cache", seed=bundle) as cache:
        cache.update({b"own %d" % number: os.urandom(100_000) for number in range(5)})
        del cache[KEYS[0]]
        _fill(disk / "fill")
        cache.clear()
        assert len(cache) == 0
        assert [cache.get(key) for key in KEYS] == [None] * len(KEYS)
        os.unlink(disk / "fill")
        assert len(_attach(disk / "cache", bundle)) == 0


@pytest.mark.parametrize("size_bytes", [0, 16, 3000])
def test_the_largest_bundle_is_one_that_a_directory_with_the_cap_takes(tmp_path: Path, size_bytes: int) -> None:
    """Of the smallest entries there are, whose names take the most of what a copy leaves, and of others."""
    cap = 400_000
    with FileStreamProgramCache(tmp_path / "filled") as filling:
        filling.update((b"%d" % number, bytes(size_bytes)) for number in range(1200))
    with FileStreamProgramCache(tmp_path / "node", max_size_bytes=cap):
        most = largest_bundle_bytes(Layout(str(tmp_path / "node")), cap)
    promote(Layout(str(tmp_path / "filled")), str(tmp_path / "k.lcb"), most)
    assert 0.5 * most < (tmp_path / "k.lcb").stat().st_size <= most
    with FileStreamProgramCache(tmp_path / "node", max_size_bytes=cap, seed=tmp_path / "k.lcb"):
        assert has_seed(Layout(str(tmp_path / "node")))
