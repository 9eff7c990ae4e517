# SPDX-License-Identifier: Apache-2.0
"""The three files of a pyptx entry are one, for any number of processes and for one that dies at any step."""

from __future__ import annotations

import multiprocessing
import os
import random
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from lockcache.filestream.disk.locks import ProcessLock
from lockcache.integrations.pyptx import CacheEntry, CacheKey, CubinCache
from lockcache.integrations.pyptx_directory import files as pyptx_files
from lockcache.integrations.pyptx_directory.files import PyptxFiles
from tests.crash.measure import every_death
from tests.matrix_sampling import diagonals
from tests.processes.crowd import HANG_SECONDS, METHODS, run_all
from tests.unit.integrations.pyptx_format import read_entry

PROCESSES = 6
KEYS = [CacheKey(f"kernel {number}", (("BM", 64),), (((8,), "f32"),), "sm_90a") for number in range(2)]


def entry_for(key: CacheKey, writer: object, serial: int) -> CacheEntry:
    """An entry of which each part names the same write; every third has no cubin."""
    tag = f"{key.fn_id} by {writer}, {serial}"
    cubin = None if serial % 3 == 2 else (tag * (200 + serial % 7 * 100)).encode()
    return CacheEntry(key, f"{tag}\r\n" * 50, cubin, {"tag": (tag, serial)})


def prove(entry: CacheEntry) -> str:
    """The write that all parts of an entry name; :class:`AssertionError` if they do not."""
    tag, serial = entry.metadata["tag"]
    assert tag.startswith(entry.key.fn_id)
    assert entry.ptx_source == f"{tag}\r\n" * 50, "one writer's metadata with another's PTX"
    assert (entry.cubin_bytes is None) == (serial % 3 == 2), "one writer's cubin, or none, with another's PTX"
    assert entry.cubin_bytes in (None, (tag * (200 + serial % 7 * 100)).encode()), "a cubin of another write"
    return str(tag)


def prove_as_pyptx_reads(directory: Path, key: CacheKey) -> None:
    """Prove like :func:`prove`, for a reader that verifies nothing. Requires: no process writes now."""
    found = read_entry(directory, key.hash())
    if found is not None:
        ptx, cubin, metadata = found
        prove(CacheEntry(key, ptx.replace("\n", "\r\n"), cubin, {"tag": tuple(metadata["tag"])}))


def work(directory: str, writer: int, turns: int, start: Any, has_own_locks: bool) -> tuple[int, int]:
    """Puts and gets at random; returns (hits, corrupt entries seen)."""
    draw = random.Random(writer)
    cache = CubinCache(directory)
    if has_own_locks:  # what a network file system does whose locks are the node's own
        locks = os.path.join(directory, "lockcache", f"locks of {writer}")
        assert cache._files is not None
        cache._files._locks = {digit: ProcessLock(f"{locks}/{digit}", 5.0) for digit in "0123456789abcdef"}
    start.wait(HANG_SECONDS)
    hits = 0
    for serial in range(turns):
        key = draw.choice(KEYS)
        if draw.random() < 0.3:
            cache.put(entry_for(key, writer, serial))
        else:
            cache.clear()  # so that each read is one of the disk
            found = cache.get(key)
            if found is not None:
                hits += 1
                prove(found)
    return hits, cache.stats().corrupt_entries


@pytest.mark.long
@pytest.mark.parametrize("method", METHODS)
def test_no_reader_gets_one_writers_cubin_with_anothers_ptx(tmp_path: Path, method: str) -> None:
    start = multiprocessing.get_context(method).Barrier(PROCESSES)
    done = run_all(method, work, [(str(tmp_path / "c"), writer, 200, start, False) for writer in range(PROCESSES)])
    assert sum(hits for hits, _ in done) > 20
    assert sum(corrupt for _, corrupt in done) == 0
    for key in KEYS:
        prove_as_pyptx_reads(tmp_path / "c", key)
    assert list((tmp_path / "c" / "lockcache" / "staged").iterdir()) == []


# ---- death -----------------------------------------------------------------------------------------------------------

OLDER = [pytest.param(None, id="new"), pytest.param(3, id="over an entry"), pytest.param(2, id="over PTX alone")]
SERIAL = [pytest.param(1, id="with cubin"), pytest.param(2, id="PTX alone")]


@pytest.mark.long
@pytest.mark.parametrize("older, serial", diagonals(OLDER, SERIAL, 2))
def test_a_writer_that_dies_at_any_step_leaves_the_older_entry_or_the_newer(
    tmp_path: Path, serial: int, older: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = tmp_path / "c"

    def prepare() -> Callable[[], object]:
        shutil.rmtree(directory, ignore_errors=True)
        cache = CubinCache(directory)
        cache.put(entry_for(KEYS[1], "warm", 0))
        if older is not None:
            cache.put(entry_for(KEYS[0], "older", older))
        return lambda: cache.put(entry_for(KEYS[0], "dying", serial))

    def check() -> None:
        found = CubinCache(directory).get(KEYS[0])
        was = None if found is None else prove(found)
        assert was in (older and f"kernel 0 by older, {older}", f"kernel 0 by dying, {serial}")
        prove_as_pyptx_reads(directory, KEYS[0])  # pyptx, which verifies nothing, is never shown a mixture either
        neighbour = CubinCache(directory).get(KEYS[1])
        assert neighbour is not None
        prove(neighbour)
        staged = directory / "lockcache" / "staged"
        for file in staged.iterdir():
            os.utime(file, (1, 1))
        with monkeypatch.context() as later:
            later.setattr(pyptx_files, "_LEFT_SECONDS", 0.0)
            PyptxFiles(str(directory)).reap([KEYS[0].hash()])  # as a daemon does
        assert list(staged.iterdir()) == []
        # What was still read is an entry for pyptx again, which looks in no other place.
        assert (read_entry(directory, KEYS[0].hash()) is None) == (was is None)
        prove_as_pyptx_reads(directory, KEYS[0])
        again = CubinCache(directory).get(KEYS[0])
        assert (None if again is None else prove(again)) == was
        cache = CubinCache(directory)
        cache.put(entry_for(KEYS[0], "next", 0))
        assert CubinCache(directory).get(KEYS[0]) == entry_for(KEYS[0], "next", 0)
        assert (list(staged.iterdir()), cache.stats().dropped_writes) == ([], 0)

    # The call, and the suffix of the last file that it is about.
    steps = [re.match(r"call \d+: (\w+)\(.*?(?:/[^/.]*\.(\w+)[^/]*)?\)$", step) for step in every_death(prepare, check)]
    died = {(step[1], step[2]) for step in steps if step}
    files = {"json", "ptx"} | ({"cubin"} if serial == 1 else set())
    assert {(call, suffix) for call in ("open", "rename") for suffix in files} <= died
    assert {("unlink", suffix) for suffix in ("json", "ptx", "cubin")} <= died
