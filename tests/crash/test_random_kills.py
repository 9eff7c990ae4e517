"""SIGKILL of busy writers at moments that nobody chose."""

from __future__ import annotations

import multiprocessing
import os
import random
import time
from pathlib import Path
from typing import Any

import pytest

from lockcache import FileStreamProgramCache
from tests.crash.measure import assert_accounting_is_not_too_low, assert_one_recount_mends_all, on_disk
from tests.processes.crowd import HANG_SECONDS
from tests.processes.proof import prove, value_for
from tests.thinning import all_but

KILLS = 30
KEYS = [b"%d" % n for n in range(60)]
CAP = 400_000


def _write_for_ever(path: str, writer: int, options: dict[str, Any], busy: Any) -> None:
    draw = random.Random(writer)
    cache = FileStreamProgramCache(path, **options)
    serial = 0
    while True:
        key = draw.choice(KEYS)
        if draw.random() < 0.1:
            cache.get(key)
        cache[key] = value_for(key, writer, serial, draw.choice((100, 4000, 30_000)))
        serial += 1
        if serial == 5:
            busy.set()


@pytest.mark.parametrize("options", all_but([{}], [{}, {"record_files": True}]), ids=["attributes", "record files"])
def test_thirty_kills_of_busy_writers_leave_whole_entries_and_one_recount_mends_the_accounting(
    cache_path: Path, options: dict[str, Any]
) -> None:
    context = multiprocessing.get_context("fork")
    cache = FileStreamProgramCache(cache_path, max_size_bytes=CAP, **options)
    draw = random.Random(0)
    writers: list[Any] = []
    try:
        for number in range(KILLS + 3):
            busy = context.Event()
            writer = context.Process(target=_write_for_ever, args=(str(cache_path), number, options, busy), daemon=True)
            writer.start()
            writers.append(writer)
            assert busy.wait(HANG_SECONDS), "neither a dead writer's lock nor its reservation holds up the next"
            if len(writers) > 3:
                victim = writers.pop(draw.randrange(3))
                victim.kill()
                victim.join()
                victim.close()
            for key in KEYS:
                found = cache.get(key)
                if found is not None:
                    prove(key, found)
    finally:
        for writer in writers:
            writer.kill()
            writer.join()
            writer.close()
    assert_accounting_is_not_too_low(cache_path)
    assert sum(bytes_ for bytes_, _ in on_disk(cache_path).values()) <= CAP
    cache[b"new"] = value_for(b"new", 99, 0)
    assert cache.stats().dropped_writes == 0
    assert_one_recount_mends_all(cache)
    alive = [key for key in KEYS if cache.get(key) is not None]
    assert len(alive) > 5
    assert cache.stats().corrupt_entries == 0 or options


def _reserve_and_wait(path: str, size_bytes: int, reserved: Any) -> None:
    def stop(*_: object) -> None:
        reserved.set()
        time.sleep(HANG_SECONDS)

    os.setxattr = stop  # type: ignore[assignment] # the first call behind the reservation
    FileStreamProgramCache(path)[b"huge"] = bytes(size_bytes)


def test_what_a_killed_writer_had_reserved_is_given_back_before_anybody_elses_entry_is_evicted(
    cache_path: Path,
) -> None:
    cache = FileStreamProgramCache(cache_path, max_size_bytes=CAP)
    for key in KEYS:
        cache[key] = value_for(key, 0, 0, 2000)
    context = multiprocessing.get_context("fork")
    reserved = context.Event()
    writer = context.Process(target=_reserve_and_wait, args=(str(cache_path), 250_000, reserved), daemon=True)
    writer.start()
    assert reserved.wait(HANG_SECONDS)
    writer.kill()
    writer.join()
    writer.close()
    # A write takes milliseconds, so reaping passes over what is younger than a second.
    [staged] = (cache_path / "tmp").iterdir()
    os.utime(staged, (1, 1))
    for serial in range(60):
        cache[b"new %d" % serial] = value_for(b"new %d" % serial, 0, 0, 2000)
    assert cache.stats().evictions == 0
    assert not staged.exists()
