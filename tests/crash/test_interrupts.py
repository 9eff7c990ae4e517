# SPDX-License-Identifier: Apache-2.0
"""Interrupts, anywhere: nothing is held, nothing is left, the accounting is never too low, and the thread goes on."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from lockcache import Entry, FileStreamProgramCache, ReentrantComputeError
from lockcache.filestream.disk.layout import StagedName, entry_name
from lockcache.filestream.disk.owners import myself
from lockcache.filestream.eviction import evict_to_limit
from lockcache.filestream.repair import recount_shard
from tests.crash.interrupted import (
    assert_nothing_is_left,
    interrupts,
    run_to,
    steps_of,
)

# Coverage has a lock of its own, which an interrupt leaves held: the next function that is called waits for ever.
pytestmark = pytest.mark.unmeasured

KEY = b"the key"
SHARD = int(entry_name(KEY)[:2], 16)
OLD = Entry(b"old" * 500, {"name": "old"})
NEW = Entry(b"newer" * 700, {"name": "new", "log": "x" * 3000})
FILES: dict[str, Any] = {"record_files": True}
CAP = 20_000

Prepare = Callable[[FileStreamProgramCache], Callable[[], object]]


def _put(cache: FileStreamProgramCache) -> Callable[[], object]:
    cache._parts.writer.remove(entry_name(KEY))
    return lambda: cache.put_entry(KEY, NEW)


def _put_again(cache: FileStreamProgramCache) -> Callable[[], object]:
    cache.put_entry(KEY, OLD)
    return lambda: cache.put_entry(KEY, NEW)


def _put_over_the_cap(cache: FileStreamProgramCache) -> Callable[[], object]:
    for number in range(8):
        cache[b"%d" % number] = bytes(2400)
    return _put(cache)


def _compute(cache: FileStreamProgramCache) -> Callable[[], object]:
    cache._parts.writer.remove(entry_name(KEY))
    return lambda: cache.get_or_compute(KEY, lambda: b"computed")


def _evict(cache: FileStreamProgramCache) -> Callable[[], object]:
    for number in range(4):
        cache[b"%d" % number] = bytes(2400)
    return lambda: evict_to_limit(cache._directory, 5000)


def _recount(cache: FileStreamProgramCache) -> Callable[[], object]:
    cache.put_entry(KEY, NEW)
    directory = cache._directory
    directory.usage().add_locked(SHARD, 1000, 1)
    # What a process that is gone left staged, and an orphan.
    me = myself()
    (Path(directory.layout.tmp) / str(StagedName(SHARD, 100, me.host, 2**22, 1, 1))).touch()
    shard = Path(directory.layout.record_shard(SHARD))
    shard.mkdir(parents=True, exist_ok=True)
    (shard / ("0" * 62)).write_bytes(b"an orphan")
    return lambda: recount_shard(directory, SHARD)


ACTIONS: dict[str, tuple[Prepare, dict[str, Any]]] = {
    "a put of a new key": (_put, {}),
    "a put of a known key": (_put_again, {}),
    "a put of a known key, record in a file": (_put_again, FILES),
    "a put over the cap": (_put_over_the_cap, {"max_size_bytes": CAP}),
    "get_or_compute": (_compute, {}),
    "an eviction": (_evict, {}),
    "an eviction of entries with record files": (_evict, FILES),
    "a recount": (_recount, {}),
}
# How many instructions are tried, spread evenly: a few, or about each third one. The scenario ``interrupts`` of the
# stress suite interrupts at random ones each night.
FEW, MANY = 20, 1200


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:unclosed scandir:ResourceWarning")  # which closes itself, as it says
@pytest.mark.parametrize("most", [FEW, pytest.param(MANY, marks=[pytest.mark.long, pytest.mark.timeout(900)])])
@pytest.mark.parametrize("action", ACTIONS)
def test_an_interrupt_in_front_of_any_instruction_leaves_nothing_held_and_nothing_behind(
    cache_path: Path, action: str, most: int
) -> None:
    prepare, options = ACTIONS[action]
    seen = 0
    with FileStreamProgramCache(cache_path, lock_timeout_seconds=5, **options) as cache:
        prepare(cache)()
        steps = steps_of(prepare(cache), most)
        for where in interrupts(lambda: prepare(cache), steps):
            seen += 1
            try:
                assert_nothing_is_left(cache)
                assert cache.get_or_compute(KEY, lambda: b"computed") in (OLD.code, NEW.code, b"computed")
                assert cache.stats().dropped_writes == 0
            except Exception as error:
                raise AssertionError(f"interrupted in front of {where}: {error}") from error
    assert seen >= len(steps) * 0.9


@pytest.mark.slow
# A lock that its own thread waits for would reach the timeout.
@pytest.mark.parametrize("most", [FEW, pytest.param(MANY, marks=[pytest.mark.long, pytest.mark.timeout(900)])])
@pytest.mark.parametrize("action", ["a put of a known key", "get_or_compute", "stats", "an eviction", "a recount"])
def test_a_signal_handler_may_use_the_cache_in_front_of_any_instruction(
    cache_path: Path, action: str, most: int
) -> None:
    prepare, options = {**ACTIONS, "stats": (lambda cache: cache.stats, {})}[action]
    with FileStreamProgramCache(cache_path, lock_timeout_seconds=1000, **options) as cache:
        handled = []

        def handle() -> None:
            before = cache.stats()
            cache[KEY] = b"handled"
            after = cache.stats()
            assert after.puts + after.dropped_writes == before.puts + before.dropped_writes + 1
            cache.get(KEY)
            with suppress(ReentrantComputeError):
                handled.append(cache.get_or_compute(KEY, lambda: b"handled"))

        prepare(cache)()
        steps = steps_of(prepare(cache), most)
        for number in steps:
            where = run_to(prepare(cache), handle, number)
            try:
                assert_nothing_is_left(cache)
            except AssertionError as error:
                raise AssertionError(f"handled in front of {where}: {error}") from error
        assert set(handled) <= {OLD.code, NEW.code, b"computed", b"handled"}
        assert len(handled) >= len(steps) / 2
