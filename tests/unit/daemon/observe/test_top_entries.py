# SPDX-License-Identifier: Apache-2.0
"""The largest, oldest and most expensive entries: found by and by, at a bounded cost, and forgotten when they go."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from lockcache import Entry, FileStreamProgramCache
from lockcache.filestream.disk.layout import SHARDS, Layout, entry_name
from lockcache_daemon.observe import top_entries
from lockcache_daemon.observe.top_entries import Standouts, in_shards
from lockcache_daemon.settings.rules import Rules
from tests.daemon.daemon_process import until
from tests.daemon.http_client import Watched


@pytest.fixture
def cache(cache_path: Path) -> FileStreamProgramCache:
    made = FileStreamProgramCache(cache_path)
    for number in range(200):
        cost = {"compile_cost_ns": number * 10**6, "kind": "cubin", "arch": "sm_90"} if number % 2 else {}
        made.put_entry(b"%d" % number, Entry(bytes(1000 + number), cost))
        path = Layout(made.path).entry(entry_name(b"%d" % number))
        os.utime(path, (10**9 - number, 10**9 - number))
    return made


def looked(cache: FileStreamProgramCache) -> Standouts:
    """After a whole round."""
    found = Standouts(in_shards(Layout(cache.path)), Rules())
    found._throttle.change(1e9, 0.5)  # as if time passed between ticks
    while found.seen.shards_seen < SHARDS:
        found.tick()
    return found


def names(*numbers: int) -> list[str]:
    return [entry_name(b"%d" % number) for number in numbers]


def test_the_best_of_all_shards_are_found_in_order(cache: FileStreamProgramCache) -> None:
    seen = looked(cache).seen
    assert [each.name for each in seen.oldest] == names(*range(199, 189, -1))
    assert [each.name for each in seen.most_expensive] == names(*range(199, 179, -2))
    most_expensive = seen.most_expensive[0]
    assert (most_expensive.cost_ns, most_expensive.kind, most_expensive.arch) == (199 * 10**6, "cubin", "sm_90")
    sizes = [each.size_bytes for each in seen.largest]
    assert sizes == sorted(sizes, reverse=True)
    assert {each.name for each in seen.largest} <= set(names(*range(180, 200)))


def test_of_more_entries_in_one_shard_than_are_listed_the_best_are(cache_path: Path) -> None:
    cache = FileStreamProgramCache(cache_path)
    keys = [key for key in (b"%d" % number for number in range(20_000)) if entry_name(key).startswith("00")]
    for number, key in enumerate(keys[: 3 * top_entries.LISTED]):
        cache.put_entry(key, Entry(bytes(10_000 * (number + 1)), {"compile_cost_ns": number + 1}))
    seen = looked(cache).seen
    assert [each.cost_ns for each in seen.most_expensive] == [30, 29, 28, 27, 26, 25, 24, 23, 22, 21]
    best = [entry_name(key) for key in reversed(keys[2 * top_entries.LISTED : 3 * top_entries.LISTED])]
    assert [each.name for each in seen.largest] == best


def test_looking_states_no_use(cache: FileStreamProgramCache) -> None:
    path = Layout(cache.path).entry(entry_name(b"7"))
    before = os.stat(path)
    looked(cache)
    after = os.stat(path)
    assert (before.st_atime_ns, before.st_mtime_ns) == (after.st_atime_ns, after.st_mtime_ns)


def test_what_is_gone_is_taken_off_and_what_was_used_is_no_longer_among_the_oldest(
    cache: FileStreamProgramCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = looked(cache)
    del cache[b"199"]
    assert cache.get(b"198") is not None
    monkeypatch.setattr(top_entries, "_REVIEW_SECONDS", 0.0)
    found._review_due = 0.0
    found.tick()
    oldest = [each.name for each in found.seen.oldest]
    assert not set(oldest) & set(names(199, 198))
    assert found.seen.most_expensive[0].name == entry_name(b"197")


def test_entries_of_others_and_damaged_records_are_listed_without_what_they_cost(cache: FileStreamProgramCache) -> None:
    layout = Layout(cache.path)
    damaged, stranger = entry_name(b"0"), entry_name(b"1")
    Path(layout.entry(damaged)).write_bytes(bytes(100_000))
    os.setxattr(layout.entry(damaged), "user.lockcache", b"\xff" * 60)
    Path(layout.entry(stranger)).unlink()
    Path(layout.entry(stranger)).write_bytes(bytes(99_000))
    seen = looked(cache).seen
    assert [(each.name, each.cost_ns, each.kind) for each in seen.largest[:2]] == [(damaged, 0, ""), (stranger, 0, "")]


def test_what_is_planted_among_entries_is_neither_followed_nor_a_hang(
    cache: FileStreamProgramCache, tmp_path: Path
) -> None:
    layout = Layout(cache.path)
    theirs = tmp_path / "theirs"
    theirs.write_bytes(bytes(10**6))
    shard = Path(layout.entry(entry_name(b"0"))).parent
    (shard / ("a" * 62)).symlink_to(theirs)
    os.mkfifo(shard / ("b" * 62))
    (shard / ("c" * 62)).mkdir()
    before = time.time()
    largest = looked(cache).seen.largest
    assert max(each.size_bytes for each in largest) < 10_000
    assert before <= largest[0].seen <= time.time()


@pytest.mark.slow
def test_entries_of_another_programs_layout_are_listed_by_size_and_age(tmp_path: Path) -> None:
    root = tmp_path / "tree"
    root.mkdir(mode=0o700)
    for number in range(20):
        path = root / f"file-{number}"
        path.write_bytes(bytes(4096 * number + 1))
        os.utime(path, (10**9 - number, 10**9 - number))
    with Watched("--layout", "files", "--max-size", "1M", root) as daemon:
        until(lambda: daemon.directory(root)["standouts"]["shards_seen"] == 1)
        seen = daemon.directory(root)["standouts"]
    assert [each["size_bytes"] for each in seen["largest"]] == [4096 * number for number in range(20, 10, -1)]
    assert [each["last_use_ns"] // 10**9 for each in seen["oldest"]] == [10**9 - number for number in range(19, 9, -1)]
    assert seen["dearest"] == []
