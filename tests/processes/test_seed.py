# SPDX-License-Identifier: Apache-2.0
"""A seed and many processes: copied once, marked by any, never older than what was stored; and many promoters."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import random
import time
from pathlib import Path
from typing import Any

import pytest

from lockcache import FileStreamProgramCache
from lockcache.bundle import promote
from lockcache.filestream.bundle import BundleFile
from lockcache.filestream.disk.layout import Layout
from lockcache.filestream.disk.locks import ProcessLock
from lockcache.filestream.eviction import evict_to_limit
from lockcache.filestream.seeding import copying
from tests.processes.crowd import HANG_SECONDS, crowd, run_all
from tests.unit.bundle.bundles import bundle_of, name_of, write
from tests.unit.material import open_directory

KEYS = [b"key %d" % number for number in range(12)]
OLDER = dict.fromkeys(KEYS, b"0")
PROCESSES = 64
OPERATIONS = 150


@pytest.fixture
def bundle(tmp_path: Path) -> Path:
    return write(tmp_path / "kernels.lcb", bundle_of(OLDER))


def _open_and_read(root: str, bundle: str, copies: str, start: Any) -> dict[bytes, bytes | None]:
    copy = copying._copy

    def counted(*args: Any) -> Any:
        with open(copies, "a") as file:
            file.write("x")
        return copy(*args)

    vars(copying)["_copy"] = counted
    start.wait()
    with FileStreamProgramCache(root, seed=bundle) as cache:
        return {key: cache.get(key) for key in KEYS}


def test_processes_that_start_together_copy_it_once(cache_path: Path, bundle: Path, tmp_path: Path) -> None:
    copies, start = tmp_path / "copies", multiprocessing.get_context("fork").Barrier(PROCESSES)
    given = [(str(cache_path), str(bundle), str(copies), start)] * PROCESSES
    assert run_all("fork", _open_and_read, given) == [OLDER] * PROCESSES
    assert copies.read_text() == "x"


def _write_and_remove(root: str, seed: int, floors: Any, start: Any) -> None:
    """Stores ever newer versions, deletes and evicts. A floor is the latest version whose put has returned."""
    chance, cache = random.Random(seed), FileStreamProgramCache(root, lock_timeout_seconds=60)
    directory = open_directory(Path(root))
    start.wait()
    for _ in range(OPERATIONS):
        number = chance.randrange(len(KEYS))
        with floors.get_lock():  # one writer at a time, so that the order of versions is known
            version = floors[number] + 1
            cache[KEYS[number]] = b"%d" % version
            floors[number] = version
        deed = chance.random()
        if deed < 0.4:
            evict_to_limit(directory, 0)
        elif deed < 0.6:
            with contextlib.suppress(KeyError):
                del cache[KEYS[number]]
    assert cache.stats().dropped_writes == 0


def _read(root: str, seed: int, floors: Any, start: Any) -> tuple[int, int]:
    chance, cache, hits, seeded = random.Random(seed), FileStreamProgramCache(root), 0, 0
    start.wait()
    for _ in range(20 * OPERATIONS):
        number = chance.randrange(len(KEYS))
        floor = floors[number]
        found = cache.get(KEYS[number])
        if found is not None:
            hits += 1
            seeded += found == b"0"
            # The seed's value comes back after an eviction, and what was deleted with a newer bundle.
            assert found == b"0" or int(found) >= floor, "an older value of the directory"
        if chance.random() < 0.02:
            cache = FileStreamProgramCache(root)
    return hits, seeded


def _replace_the_bundle(root: str, bundle: str, floors: Any, start: Any) -> int:
    """Puts other files of the same entries in the bundle's place, and has each attached."""
    start.wait()
    for number in range(OPERATIONS // 5):
        write(Path(bundle), bundle_of({**OLDER, b"more %d" % number: bytes(number)}))
        assert _attached(root, bundle, b"more %d" % number) == bytes(number)
    return number


def _attached(root: str, bundle: str, key: bytes) -> bytes | None:
    """Returns the value of a key of the bundle's file, as soon as that file is attached.

    A program waits a second for a copy that another process makes, and then reads the older one for a minute. This
    process lets the minute end at once, as often as it takes: that other process may also have opened the older file.
    """
    until = time.monotonic() + HANG_SECONDS / 2
    while True:
        os.utime(f"{root}/lockcache/locks/seed", (0, 0))
        with FileStreamProgramCache(root, seed=bundle) as cache:
            found = cache.get(key)
        if found is not None or time.monotonic() > until:
            return found


def test_nobody_reads_what_is_older_than_what_was_stored(cache_path: Path, bundle: Path) -> None:
    with FileStreamProgramCache(cache_path, seed=bundle) as cache:
        assert {key: cache[key] for key in KEYS} == OLDER
    context = multiprocessing.get_context("fork")
    floors, start = context.Array("q", len(KEYS)), context.Barrier(6)
    root = str(cache_path)
    with (
        crowd("fork", _write_and_remove, [(root, seed, floors, start) for seed in range(2)]) as writers,
        crowd("fork", _read, [(root, seed, floors, start) for seed in range(3)]) as readers,
        crowd("fork", _replace_the_bundle, [(root, str(bundle), floors, start)]) as replacing,
    ):
        writers.results()
        assert replacing.results()
        assert all(hits for hits, _ in readers.results())


def _promote(root: str, number: int, path: str, start: Any) -> int:
    directory = f"{root}-{number}"
    with FileStreamProgramCache(directory) as cache:
        for serial in range(5):
            cache[b"%d %d" % (number, serial)] = b"%d" % number * 1000
        cache[b"of all"] = b"%d" % number
    start.wait()
    return promote(Layout(directory), path).promoted


def test_nothing_of_promoters_that_come_at_once_is_lost(cache_path: Path, tmp_path: Path) -> None:
    path, start = tmp_path / "together.lcb", multiprocessing.get_context("fork").Barrier(4)
    promoted = run_all("fork", _promote, [(str(cache_path), number, str(path), start) for number in range(4)])
    assert sorted(promoted) == [5, 5, 5, 6]
    bundle = BundleFile(str(path))
    names = {place.name for place in bundle.places()}
    assert names == {name_of(b"%d %d" % (number, serial)) for number in range(4) for serial in range(5)} | {
        name_of(b"of all")
    }


def test_a_stopped_process_that_copies_keeps_nobody_from_reading_what_stands(cache_path: Path, bundle: Path) -> None:
    with FileStreamProgramCache(cache_path, seed=bundle) as cache:
        assert cache[KEYS[0]] == OLDER[KEYS[0]]
    lock = ProcessLock(Layout(str(cache_path)).seed_lock, 1.0)
    os.utime(cache_path / "lockcache/locks/seed", (0, 0))
    with lock:
        [found] = run_all("fork", _read_one, [(str(cache_path), str(bundle))])
    assert found == OLDER[KEYS[0]]


def _read_one(root: str, bundle: str) -> bytes | None:
    return FileStreamProgramCache(root, seed=bundle).get(KEYS[0])
